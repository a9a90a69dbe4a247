package engine

import (
	"context"
	"errors"
	"iter"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// fullLogits returns the logits (tokens, vocab) of the model in a file, computed without an engine.
func fullLogits(t *testing.T, file []byte, tokens []int32) (rows [][]float32) {
	t.Helper()
	f, config := parse(t, file)
	n := len(tokens)
	m, err := model.LoadStages(t.Context(), f, []model.Stage{{Device: ref.New(), Layers: len(config.Layers)}}, model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: n/device.BlockSize + 1, MaxRows: n})
	if err != nil {
		t.Fatal(err)
	}
	b := device.Batch{Tokens: tokens, Seq: make([]int32, n), Tables: [][][]int32{{span(0, int32(n/device.BlockSize+1))}}}
	b.Pos = span(0, int32(n))
	b.Out = b.Pos
	ticket, err := m.Submit(&b)
	if err == nil {
		_, err = m.Collect(ticket)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range tokens {
		row := make([]float32, config.Vocab)
		if err := m.Logits(row, i); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// probabilities returns the softmax of a row, by the definition.
func probabilities(row []float32) []float64 {
	list, sum := make([]float64, len(row)), 0.0
	for i, x := range row {
		list[i] = math.Exp(float64(x))
		sum += list[i]
	}
	for i := range list {
		list[i] /= sum
	}
	return list
}

// twoModels are a model and the same one in eight bits.
func twoModels() map[string][]byte {
	return map[string][]byte{"m": gguftest.TinyLlama(gguftest.Llama{Context: 128}), "q8": gguftest.TinyLlama(gguftest.Llama{Context: 128, Type: gguf.Q8_0}),
		"wide": gguftest.TinyLlama(gguftest.Llama{Vocab: 352}), "renamed": gguftest.TinyLlama(gguftest.Llama{Controls: []string{"<|x|>"}}), "padded": gguftest.TinyLlama(gguftest.Llama{Rows: 384})}
}

// openTwo starts an engine that has them all, with m loaded.
func openTwo(t *testing.T, set func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, files: twoModels()}
	o := Options{Catalog: catalog{b}, OpenDevice: func(*gguf.File) (device.Device, error) { return ref.New(), nil }, Model: "m"}
	if set != nil {
		set(&o)
	}
	b.openReady(o)
	return b
}

func compared(tokens []int32, against string) infer.Request {
	r := request(tokens, 0)
	r.Model, r.PromptLogProb, r.Against, r.Rows = "m", true, against, true
	return r
}

func TestRealModel_TheDivergenceOfTwoModelsIsThatOfTheirFullLogits(t *testing.T) {
	b := openTwo(t, func(o *Options) { o.ChunkRows = 8 })
	tokens := span(5, 75)
	files := twoModels()
	p, q := fullLogits(t, files["m"], tokens), fullLogits(t, files["q8"], tokens)
	a := b.ask(compared(tokens, "q8"))
	if a.err != nil || len(a.prompt) != len(tokens) {
		t.Fatalf("%d tokens are scored, %v", len(a.prompt), a.err)
	}
	if a.prompt[0].Compared != nil {
		t.Errorf("the first token, which nothing predicts, is compared: %+v", a.prompt[0].Compared)
	}
	largest := 0.0
	for i, got := range a.prompt[1:] {
		was, is := probabilities(p[i]), probabilities(q[i])
		want := 0.0
		for id := range was {
			want += was[id] * math.Log(was[id]/is[id])
		}
		largest = max(largest, want)
		c, id := got.Compared, tokens[i+1]
		if c == nil || math.Abs(c.KL-want) > 1e-12+1e-9*want {
			t.Fatalf("token %d: got %+v, want a divergence of %g", i+1, c, want)
		}
		if math.Abs(got.LogProb-math.Log(was[id])) > 1e-9 || math.Abs(c.LogProb-math.Log(is[id])) > 1e-9 || len(got.Row) == 0 {
			t.Errorf("token %d has %g and %g, want %g and %g", i+1, got.LogProb, c.LogProb, math.Log(was[id]), math.Log(is[id]))
		}
	}
	if largest < 1e-6 {
		t.Errorf("the largest divergence is %g: the models are too much alike to show an error", largest)
	}
	for _, e := range a.events {
		if e.Prefill != nil && e.Prefill.Against {
			return
		}
	}
	t.Error("no event shows the progress of the second model")
}

func TestRealModel_AModelDoesNotDivergeFromItself(t *testing.T) {
	b := openTwo(t, nil)
	a := b.ask(compared(span(5, 45), "m"))
	if a.err != nil {
		t.Fatal(a.err)
	}
	for i, token := range a.prompt[1:] {
		if c := token.Compared; c.KL != 0 || c.LogProb != token.LogProb || c.Rank != token.Rank {
			t.Errorf("token %d: got %+v, want no difference from %+v", i+1, c, token.Choice)
		}
	}
}

// namedDevice says that it is of another kind.
type namedDevice struct {
	device.Device
	info device.Info
}

func (d namedDevice) Info() device.Info { return d.info }

func TestRealModel_OneFileIsComparedOnTwoDevices(t *testing.T) {
	first := device.Info{Kind: "cuda", Name: "a GPU", Path: "go", Memory: 1 << 30, Dedicated: true}
	b := openTwo(t, func(o *Options) {
		o.OpenDevice = func(*gguf.File) (device.Device, error) { return namedDevice{ref.New(), first}, nil }
		o.MoreDevices = func() iter.Seq2[device.Device, error] {
			return func(yield func(device.Device, error) bool) {
				yield(namedDevice{ref.New(), device.Info{Kind: "cpu", Name: "the processor", Path: "go", Memory: 1 << 30}}, nil)
			}
		}
	})
	r := compared(span(5, 45), "m")
	r.AgainstDevice = "cpu"
	a := b.ask(r)
	if a.err != nil || a.done.Receipt.Device != "the processor" || a.prompt[9].Compared == nil {
		t.Fatalf("computed on %+v, %v", a.done, a.err)
	}
	plain := b.ask(request(span(5, 45), 1))
	if plain.err != nil || plain.done.Receipt.Device != "a GPU" {
		t.Errorf("the next answer: %+v, %v", plain.done, plain.err)
	}
}

func TestEngine_ComparisonsThatCannotBeMadeAreRefused(t *testing.T) {
	b := openTwo(t, nil)
	for _, c := range []struct {
		name   string
		change func(*infer.Request)
		code   fault.Code
		says   string
	}{
		{"a vocabulary of another size", func(r *infer.Request) { r.Against = "wide" }, fault.CodeInvalid, "m and wide have different vocabularies, so that their probabilities cannot be compared: they have 320 and 352 logits"},
		{"a vocabulary with another token", func(r *infer.Request) { r.Against = "renamed" }, fault.CodeInvalid, `and "<|x|>"`},
		{"an output matrix with further rows", func(r *infer.Request) { r.Against = "padded" }, fault.CodeInvalid, "320 and 384 logits"},
		{"a model that there is not", func(r *infer.Request) { r.Against = "none" }, fault.CodeNotFound, `there is no model "none"`},
		{"a device that there is not", func(r *infer.Request) { r.AgainstDevice = "cpu" }, fault.CodeInvalid, "this server computes on no cpu"},
		{"a device of another kind", func(r *infer.Request) { r.AgainstDevice = "cuda" }, fault.CodeInvalid, "must be cpu"},
		{"an answer behind the prompt", func(r *infer.Request) { r.MaxTokens = 1 }, fault.CodeInvalid, "max_tokens is 0"},
		{"a prompt that is not scored", func(r *infer.Request) { r.PromptLogProb = false }, fault.CodeInvalid, "prompt_logprob is set"},
		{"a prompt beyond the context of the second model", func(r *infer.Request) { r.Model, r.Against, r.Tokens = "long", "m", span(0, 200) }, fault.CodeContext, "maximum context length is 128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.mu.Lock()
			b.files["long"] = gguftest.TinyLlama(gguftest.Llama{Context: 256})
			b.mu.Unlock()
			r := compared(span(5, 15), "q8")
			c.change(&r)
			a := b.ask(r)
			if a.code() != c.code || !strings.Contains(a.err.Error(), c.says) {
				t.Errorf("got %v, want %s with %q", a.err, c.code, c.says)
			}
		})
	}
	b.compared.Add(maxCompared)
	if a := b.ask(compared(span(5, 15), "q8")); a.code() != fault.CodeQueueFull || !strings.Contains(a.err.Error(), "try again later") {
		t.Errorf("a comparison beside many others: %v", a.err)
	}
	b.compared.Add(-maxCompared)
	if a := b.ask(request(span(5, 15), 2)); a.err != nil || len(a.tokens) != 2 {
		t.Errorf("the answer after them has %d tokens, %v", len(a.tokens), a.err)
	}
	b.Close() // a file is counted until the last row of its comparison is written
	if n := b.compared.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// A bench checks at its end that no file is open and no request is counted.
func TestEngine_ACancelledComparisonLeavesNothingOpen(t *testing.T) {
	for _, model := range []string{"toy", "other"} {
		t.Run("while "+model+" scores", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := make(gate)
				b := newBench(t, func(b *bench, o *Options) { o.ChunkRows, b.onStep = 16, g.wait })
				r := request(span(10, 90), 0)
				r.PromptLogProb, r.Against = true, "other"
				s := b.stream(r, nil)
				for g.next(2); b.Status().Model.Name != model; {
					g.next(1)
				}
				s.cancel()
				<-s.ended
				if !errors.Is(s.reply.err, context.Canceled) || len(s.reply.prompt) > 0 {
					t.Errorf("%d tokens were scored, %v", len(s.reply.prompt), s.reply.err)
				}
				g.open()
			})
		})
	}
	t.Run("at its end", func(t *testing.T) {
		b := newBench(t, nil)
		r := request(span(10, 90), 0)
		r.PromptLogProb, r.Against = true, "other"
		if a := b.ask(r); a.err != nil || len(a.prompt) != 80 || a.done.Receipt.Model != "other" {
			t.Errorf("%d tokens, %v", len(a.prompt), a.err)
		}
	})
}

func TestRealModel_TwoEnginesCompareTwoModelsAsOneDoesAndEachLoadsOne(t *testing.T) {
	tokens := span(5, 75)
	want := openTwo(t, nil).ask(compared(tokens, "q8"))
	if want.err != nil {
		t.Fatal(want.err)
	}
	path := filepath.Join(t.TempDir(), "rows")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	half := func(loaded string, second bool) outcome {
		opened := 0
		b := openTwo(t, func(o *Options) {
			o.Model = loaded
			o.OpenDevice = func(*gguf.File) (device.Device, error) { opened++; return ref.New(), nil }
		})
		r := compared(tokens, "q8")
		r.RowFile = &infer.RowFile{Path: path, Second: second}
		a := b.ask(r)
		if a.err != nil || len(a.prompt) != len(tokens) {
			t.Fatalf("%d tokens are scored by %s, %v", len(a.prompt), loaded, a.err)
		}
		if got := b.Status().Model.Name; got != loaded || opened != 1 {
			t.Errorf("the engine with %s has %s at the end and loaded %d models, want it alone", loaded, got, opened)
		}
		if receipt := a.done.Receipt.Model; receipt != loaded {
			t.Errorf("the receipt is that of %s, want %s", receipt, loaded)
		}
		return a
	}
	first, second := half("m", false), half("q8", true)
	for i := range tokens {
		got := first.prompt[i]
		got.Compared = second.prompt[i].Compared
		if !reflect.DeepEqual(got, want.prompt[i]) {
			t.Fatalf("token %d: two engines say %+v, one says %+v", i, got, want.prompt[i])
		}
	}
}

func TestRealModel_AHalfOfAComparisonWithoutTheRowsOfTheOtherFails(t *testing.T) {
	b := openTwo(t, nil)
	r := compared(span(5, 20), "q8")
	for what, path := range map[string]string{"a file that is not there": filepath.Join(t.TempDir(), "none"), "no path": ""} {
		r.RowFile = &infer.RowFile{Path: path, Second: true}
		if a := b.ask(r); a.err == nil {
			t.Errorf("%s: the comparison succeeds", what)
		}
	}
}
