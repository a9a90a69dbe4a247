package bench_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"m40-llm/infer/bench"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
)

func TestSyntheticModelsAreLoadableAndDeterministic(t *testing.T) {
	for _, quant := range bench.Quants() {
		t.Run(quant, func(t *testing.T) {
			f, err := bench.Synthetic("tiny", quant, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			same, err := bench.Synthetic("TINY", strings.ToUpper(quant), 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			other, err := bench.Synthetic("tiny", quant, 2, 0)
			if err != nil {
				t.Fatal(err)
			}
			differ := 0
			for i, tensor := range f.Tensors() {
				if !bytes.Equal(tensor.Data, same.Tensors()[i].Data) {
					t.Errorf("%s differs from the one of the same seed", tensor.Name)
				}
				if !bytes.Equal(tensor.Data, other.Tensors()[i].Data) {
					differ++
				}
				checkValues(t, tensor)
			}
			if differ != len(f.Tensors()) {
				t.Errorf("%d of %d tensors differ from those of another seed", differ, len(f.Tensors()))
			}
			dev, err := cpu.Open(1)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			if _, err := model.Load(context.Background(), f, dev, model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 1, MaxRows: 1}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOfAMixtureTheExpertsThatATokenUsesCount(t *testing.T) {
	f, err := bench.Header("qwen3-30b-a3b-6l", "q8_0", 4096)
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := model.StepBytes(f, c, device.CacheOf(gguf.F16), 0)
	if err != nil {
		t.Fatal(err)
	}
	q8 := func(weights int64) int64 { return weights / 32 * 34 }
	layer := q8(2048*(2*32*128+2*4*128)+8*3*2048*768) + 4*(128*2048+2*2048+2*128)
	if want := 6*layer + q8(2048*151936) + 4*2048; got != want {
		t.Errorf("a token reads %d bytes of weights, want %d", got, want)
	}
}

// checkValues checks that the magnitude of values keeps activations near 1.
func checkValues(t *testing.T, tensor gguf.Tensor) {
	t.Helper()
	values := make([]float32, tensor.Elements())
	if err := gguf.Dequantize(tensor.Type, tensor.Data, values); err != nil {
		t.Fatal(err)
	}
	squares := 0.0
	for _, v := range values {
		squares += float64(v) * float64(v)
	}
	got, want := math.Sqrt(squares/float64(len(values))), 1.0
	if len(tensor.Shape) == 2 {
		want = 1 / math.Sqrt(float64(tensor.Shape[0]))
	}
	if !(got > want/4 && got < want*4) {
		t.Errorf("the values of %s are about %g, want about %g", tensor.Name, got, want)
	}
}

func TestSyntheticRejectsUnsupportedArguments(t *testing.T) {
	for _, c := range []struct{ name, shape, quant, errText string }{
		{"a shape", "llama-9b", "q8_0", "llama-8b"},
		{"a weight format", "tiny", "q1_0", "q4_k"},
		{"a format whose blocks do not fit the shape", "qwen-0.5b", "q4_k", "896 values are not whole blocks of 256"},
		{"more than there is memory for", "llama-8b", "f16", "llama-8b in f16 needs 16.1 GB of memory, but 1.0 GB are free"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := bench.Synthetic(c.shape, c.quant, 1, 1e9); err == nil || !strings.Contains(err.Error(), c.errText) {
				t.Errorf("got %v, want one with %q", err, c.errText)
			}
		})
	}
}

func run(t *testing.T, ctx context.Context, threads int, o bench.Options) (bench.Result, error) {
	t.Helper()
	f, err := bench.Synthetic("tiny", "q8_0", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.Open(threads)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	return bench.Run(ctx, f, "tiny", dev, o)
}

func TestLogitsAreTheSameWithoutRepacking(t *testing.T) {
	hashes := map[string]string{}
	for _, why := range []string{"", "--no-repack"} {
		f, err := bench.Synthetic("tiny", "q4_k", 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := cpu.OpenWith(cpu.Options{Threads: 2, NoRepack: why})
		if err != nil {
			t.Fatal(err)
		}
		r, err := bench.Run(t.Context(), f, "tiny", dev, bench.Options{Prompts: []int{40}, Answer: 1, Repeat: 1, Parallel: 1, Cache: device.CacheOf(gguf.F16)})
		if err != nil {
			t.Fatal(err)
		}
		if dev.Close(); !strings.HasSuffix(r.Notice, why) {
			t.Errorf("with the reason %q for weights in the file, the notice is %q", why, r.Notice)
		}
		hashes[why] = r.LogitsHash
	}
	if hashes[""] != hashes["--no-repack"] {
		t.Errorf("the hashes of logits differ: %v", hashes)
	}
}

func TestRunReportsAllFigures(t *testing.T) {
	o := bench.Options{Prompts: []int{300}, Contexts: []int{0, 70}, Answer: 4, Repeat: 3, Parallel: 4, Drafts: true, Cache: device.CacheOf(gguf.F16)} // two chunks of prompt
	done := map[string]bool{}
	o.Progress = func(what string, _, _ int64) { done[what] = true }
	r, err := run(t, context.Background(), 2, o)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]float64{
		"load_seconds": r.LoadSeconds, "prepare_seconds": r.PrepareSeconds, "read_gb_s": r.ReadGBs, "prefill_tok_s": r.PrefillTokS,
		"decode_tok_s": r.DecodeTokS, "decode_gb_s": r.DecodeGBs, "decode_share": r.DecodeShare, "peak_rss_mb": float64(r.PeakRSSMB),
	} {
		if !(v > 0) {
			t.Errorf("%s is %v", name, v)
		}
	}
	if r.PeakRSSMB > 900 {
		t.Errorf("peak_rss_mb is %d: it counts the gigabyte that the bandwidth is measured with", r.PeakRSSMB)
	}
	if r.Spread < 0 || len(r.Parallel) != 2 || r.Parallel[1].Answers != 4 || !(r.Parallel[1].DecodeTokS > 0) {
		t.Errorf("spread %v, several answers %+v", r.Spread, r.Parallel)
	}
	if n := len(r.Drafts); n != 4 || r.Drafts[n-1].Tokens != 8 || !(r.Drafts[n-1].Cost > 0 && r.Drafts[n-1].DecodeTokS > 0) {
		t.Errorf("drafts %+v", r.Drafts)
	} else if a := r.Drafts[0].Accepting; len(a) != 3 || a[2].Probability != 0.8 || !(a[2].Gain > 0 && a[2].DecodeTokS > 0 && a[2].Accepted <= 1) {
		t.Errorf("with drafts that are right by chance: %+v", a)
	}
	if len(r.Contexts) != 2 || r.Contexts[0].Context != 0 {
		t.Fatalf("got contexts %+v, want one of 0 and one of 70 tokens", r.Contexts)
	}
	if c := r.Contexts[1]; c.Context != 70 || !(c.PrefillSeconds > 0 && c.TurnSeconds > 0 && c.DecodeTokS > 0 && c.DecodeGBs > 0 && c.DecodeShare > 0) ||
		c.DecodeBytesPerToken != r.Contexts[0].DecodeBytesPerToken+70*2*2*2*64*2 {
		t.Errorf("got %+v", r.Contexts)
	}
	// All weights, including the tied output, and the KV cache of 302 positions: 2 layers, K and
	// V, 2 heads of 64 in half precision.
	f, _ := bench.Synthetic("tiny", "q8_0", 1, 0)
	if want := model.WeightBytes(f) + 302*2*2*2*64*2; r.DecodeBytesPerToken != want {
		t.Errorf("got %d bytes per token, want %d", r.DecodeBytesPerToken, want)
	}
	for _, what := range []string{"measuring the memory", "loading", "measuring", "measuring 2 answers at once", "measuring 4 answers at once"} {
		if !done[what] {
			t.Errorf("no progress was reported for %q", what)
		}
	}
	again, err := run(t, context.Background(), 1, o)
	if err != nil {
		t.Fatal(err)
	}
	if again.LogitsHash != r.LogitsHash || r.LogitsHash == "" {
		t.Errorf("got logits %s with one thread and %s with two", again.LogitsHash, r.LogitsHash)
	}
}

func TestRunMeasuresEachLengthOfPrompt(t *testing.T) {
	o := bench.Options{Prompts: []int{40, 8, 300}, Answer: 4, Repeat: 1, Parallel: 1, Cache: device.CacheOf(gguf.F16)}
	r, err := run(t, context.Background(), 1, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Lengths) != 3 || r.Speed != r.Lengths[0] {
		t.Fatalf("got %+v, of which the first counts: %+v", r.Lengths, r.Speed)
	}
	for i, prompt := range o.Prompts {
		if s := r.Lengths[i]; s.Prompt != prompt || !(s.PrefillTokS > 0 && s.DecodeTokS > 0 && s.DecodeShare > 0) {
			t.Errorf("with a prompt of %d: %+v", prompt, s)
		}
	}
	// The cache of 260 more positions: 2 layers, K and V, 2 heads of 64 in half precision.
	if got := r.Lengths[2].DecodeBytesPerToken - r.Lengths[0].DecodeBytesPerToken; got != 260*2*2*2*64*2 {
		t.Errorf("a token reads %d bytes more", got)
	}
	o.Prompts = o.Prompts[:1]
	alone, err := run(t, context.Background(), 1, o)
	if err != nil || alone.LogitsHash != r.LogitsHash || alone.Lengths != nil {
		t.Errorf("the first length alone: %+v, %v", alone, err)
	}
}

func TestRunReturnsErrorsOfContextAndPrompt(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := run(t, cancelled, 1, bench.Options{Prompts: []int{8}, Answer: 2, Repeat: 1, Parallel: 1, Cache: device.CacheOf(gguf.F16)}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := run(t, context.Background(), 1, bench.Options{Prompts: []int{1 << 20}, Answer: 2, Repeat: 1, Parallel: 1, Cache: device.CacheOf(gguf.F16)}); err == nil || !strings.Contains(err.Error(), "context of 131072") {
		t.Errorf("a prompt over the context: %v", err)
	}
}

func TestEveryShapeIsAModelThatLoads(t *testing.T) {
	for _, name := range bench.Shapes() {
		f, err := bench.Header(name, "q4_0", 4096)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := model.DeviceBytes(f, model.FileLayout{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
