package model_test

import (
	"context"
	"math"
	"os"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
	"m40-llm/infer/tokenizer"
)

// cacheBars are bounds of the Kullback-Leibler divergences from a cache of F32 that formats of KV caches cause: the mean over all tokens, and the worst. The
// fixtures are random weights, whose keys have no elements much larger than others; the guide was trained.
var cacheBars = []struct {
	format                string
	mean, worst           float64 // of the fixtures
	guideMean, guideWorst float64 // of the guide
}{
	{"f16", 5e-6, 2e-4, 1e-6, 1e-5},
	{"q8_0", 3e-3, 0.08, 4e-4, 4e-3},
	{"q8_0/q4_0", 0.25, 4, 0.05, 0.8},
	{"q4_0", 0.6, 12, 0.12, 2},
}

// divergences adds up Kullback-Leibler divergences.
type divergences struct {
	sum, worst float64
	count      int
}

func (d *divergences) add(want, got []float32) {
	divergence, q := 0.0, logProbs(got)
	for i, p := range logProbs(want) {
		divergence += math.Exp(p) * (p - q[i])
	}
	d.sum, d.count = d.sum+divergence, d.count+1
	if !(divergence <= d.worst) {
		d.worst = divergence
	}
}

func (d *divergences) mean() float64 { return d.sum / float64(d.count) }

func (d *divergences) check(t *testing.T, format string, mean, worst float64) {
	t.Helper()
	t.Logf("fidelity: divergence of %d tokens with a cache of %s: mean %.2g of %g, worst %.2g of %g", d.count, format, d.mean(), mean, d.worst, worst)
	if d.count == 0 || !(d.mean() <= mean && d.worst <= worst) {
		t.Errorf("divergences of %d tokens with a cache of %s: mean %g, worst %g; allowed are %g and %g", d.count, format, d.mean(), d.worst, mean, worst)
	}
}

// openReferenceWith opens the reference device: devicetest compares others with it, and their own rounding does not count here.
func openReferenceWith(t *testing.T, f *gguf.File, format string) *model.Model {
	t.Helper()
	return openWith(t, f, ref.New(), format)
}

func openWith(t *testing.T, f *gguf.File, d device.Device, format string) *model.Model {
	t.Helper()
	cache, err := device.ParseCacheType(format)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(context.Background(), f, d, model.Options{CacheType: cache, Blocks: 8, MaxRows: 64})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Over the dense families whose heads are whole blocks of q8_0. Others keep f16, and in a mixture of experts with random weights a
// little rounding chooses other experts.
func TestCacheFormatsCostLittle(t *testing.T) {
	found := make([]divergences, len(cacheBars))
	for _, name := range families {
		data, err := os.ReadFile(familyPath(t, name, "f32.gguf"))
		if err != nil {
			continue // the family has F16 weights alone
		}
		f, err := gguf.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		config, err := model.ReadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		dense := !slices.ContainsFunc(config.Layers, func(l model.Layer) bool { return l.Routing.Experts > 0 || !l.Attends() })
		if !dense || config.NotQuantized(device.CacheOf(gguf.Q8_0)) != "" {
			continue
		}
		exact := openReferenceWith(t, f, "f32")
		for _, tokens := range readGolden(t, familyPath(t, name)).Sequences {
			want := feed(t, exact, tokens, 0)
			for i, c := range cacheBars {
				for at, got := range feed(t, openReferenceWith(t, f, c.format), tokens, 0) {
					found[i].add(want[at], got)
				}
			}
		}
	}
	for i, c := range cacheBars {
		found[i].check(t, c.format, c.mean, c.worst)
	}
}

func TestCacheFormatsCostATrainedModelLittle(t *testing.T) {
	checkGuideCaches(t, func() (device.Device, error) { return ref.New(), nil }, 0)
}

// On the GPU they cost no more. The emulation takes its time.
func TestCacheFormatsCostATrainedModelLittleOnTheGPU(t *testing.T) {
	most := 24
	if manyOnGPU() {
		most = 0
	}
	checkGuideCaches(t, cudaOpener(t), most)
}

// checkGuideCaches compares formats on a device with f32 on the same, over the first most tokens of texts; 0: all.
func checkGuideCaches(t *testing.T, openDevice func() (device.Device, error), most int) {
	opened := func(f *gguf.File, format string) *model.Model {
		d, err := openDevice()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return openWith(t, f, d, format)
	}
	f, err := gguf.Parse(guide.Model)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(f)
	if err != nil {
		t.Fatal(err)
	}
	exact := opened(f, "f32")
	found := make([]divergences, len(cacheBars))
	for _, question := range questions[:2] {
		text := "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\nA model is loaded into memory, with a KV cache that holds the keys and values of all positions. " +
			"The page shows how many tokens fit, how fast answers are written, and which device computes them."
		tokens, err := tok.Encode(context.Background(), text, tokenizer.Options{ParseSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		if most > 0 {
			tokens = tokens[:most]
		}
		want := feed(t, exact, tokens, 0)
		for i, c := range cacheBars {
			for at, got := range feed(t, opened(f, c.format), tokens, 0) {
				found[i].add(want[at], got)
			}
		}
	}
	for i, c := range cacheBars {
		found[i].check(t, c.format, c.guideMean, c.guideWorst)
	}
}
