package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// embed returns the embeddings of texts.
func (b *bench) embed(texts ...string) (infer.Embeddings, error) {
	r := infer.EmbedRequest{Model: "m"}
	for _, text := range texts {
		r.Inputs = append(r.Inputs, infer.EmbedInput{Text: text})
	}
	return b.Embed(b.t.Context(), r)
}

func TestEmbed_ATextHasTheSameVectorWhateverSharesItsSteps(t *testing.T) {
	causal := func(pooling int) []byte {
		return gguftest.TinyLlama(gguftest.Llama{Keys: map[string]any{"llama.pooling_type": pooling}})
	}
	for name, file := range map[string][]byte{
		"mean":                   gguftest.TinyBERT(gguftest.BERT{Pooling: 1}),
		"cls":                    gguftest.TinyBERT(gguftest.BERT{Pooling: 2}),
		"last":                   gguftest.TinyBERT(gguftest.BERT{Pooling: 3}),
		"a unigram vocabulary":   gguftest.TinyBERT(gguftest.BERT{Unigram: true}),
		"mean of a causal model": causal(1),
		"last token of such":     causal(3),
	} {
		t.Run(name, func(t *testing.T) {
			b := openReference(t, file, func(o *Options) { o.ChunkRows = 130 })
			var texts []string
			for i := range fixtures.At(16, 40, 40) {
				texts = append(texts, strings.Repeat(fmt.Sprintf("text %d! ", i), 1+i*7%12))
			}
			together, err := b.embed(texts...)
			if err != nil {
				t.Fatal(err)
			}
			if len(together.Vectors) != len(texts) || together.Model != "m" || len(together.Vectors[0]) != 64 {
				t.Fatalf("got %d vectors of %s", len(together.Vectors), together.Model)
			}
			var running sync.WaitGroup
			for i := range 4 {
				running.Go(func() {
					for k := i; k < len(texts); k += 4 {
						alone, err := b.embed(texts[k])
						if err != nil || !slices.Equal(alone.Vectors[0], together.Vectors[k]) || alone.Tokens[0] != together.Tokens[k] {
							t.Errorf("text %d alone has another vector than among others: %v", k, err)
						}
					}
				})
			}
			running.Wait()
			if used := b.Status().Cache; b.Status().Running != 0 || used.Saves != 0 {
				t.Errorf("after all texts %d run, %d caches were saved", b.Status().Running, used.Saves)
			}
		})
	}
}

// countingForwarder has vectors with the number of the row.
type countingForwarder struct{ forwarder }

func (countingForwarder) Vectors(dst []float32, first int) error {
	for i := range dst {
		dst[i] = float32(first + i)
	}
	return nil
}

func TestEmbed_ATextThatLosesItsMemoryIsPooledFromItsBeginning(t *testing.T) {
	m := &openModel{config: model.Config{Dim: 1, Pooling: model.PoolMean}}
	l := &loop{loaded: &loadedModel{forward: countingForwarder{}}}
	e := &embedding{pooling: m.config.Pooling}
	a := &answer{kind: e, sequence: newSequence("m", span(0, 9), false), reader: reader{model: m}}
	for _, step := range [][]int32{{0, 1, 2}, {3, 4}, {0, 1}, {2, 3, 4, 5}} { // positions; its memory is lost after the second
		var results []model.Result
		for _, pos := range step {
			results = append(results, model.Result{Pos: pos, Row: int(pos)})
		}
		a.computed = int(step[len(step)-1]) + 1
		if _, err := e.deliver(l, a, scheduled{}, results, time.Time{}, settledStep{}); err != nil {
			t.Fatal(err)
		}
	}
	if e.pooled != 6 || e.sum[0] != 0+1+2+3+4+5 {
		t.Errorf("%d rows are pooled, to %v; 6 were computed", e.pooled, e.sum)
	}
}

func TestEmbed_TokensAreUsedAsTheyAre(t *testing.T) {
	b := openReference(t, gguftest.TinyBERT(gguftest.BERT{}), nil)
	tokens, err := b.Tokenize(t.Context(), "m", "a b!", true, true)
	if err != nil || tokens[0] != 2 || tokens[len(tokens)-1] != 3 {
		t.Fatalf("got tokens %v, %v", tokens, err)
	}
	of, err := b.Embed(t.Context(), infer.EmbedRequest{Inputs: []infer.EmbedInput{{Tokens: tokens}, {Text: "a b!"}, {Tokens: tokens[1:2]}, {}, {Tokens: []int32{2, 3}}}})
	if err == nil && !slices.Equal(of.Vectors[3], of.Vectors[4]) {
		t.Error("an empty text has another vector than its special tokens")
	}
	if err != nil || !slices.Equal(of.Vectors[0], of.Vectors[1]) || slices.Equal(of.Vectors[0], of.Vectors[2]) {
		t.Errorf("got %v", err)
	}
}

func TestEmbed_WhatCannotBeEmbeddedIsRefused(t *testing.T) {
	b := openReference(t, gguftest.TinyBERT(gguftest.BERT{Context: 32}), nil)
	b.files["text"] = gguftest.TinyLlama(gguftest.Llama{})
	long := strings.Repeat("long ", 40)
	for name, c := range map[string]struct {
		request infer.EmbedRequest
		code    fault.Code
		want    string
	}{
		"a text model":        {infer.EmbedRequest{Model: "text", Inputs: []infer.EmbedInput{{Text: "a"}}}, fault.CodeNotSupported, "m40-llm pull"},
		"no tokens":           {infer.EmbedRequest{Inputs: []infer.EmbedInput{{Text: "a"}, {Tokens: []int32{}}}}, fault.CodeInvalid, "number 2 has no tokens"},
		"too many texts":      {infer.EmbedRequest{Inputs: make([]infer.EmbedInput, infer.MaxEmbedInputs+1)}, fault.CodeInvalid, "at most 2048"},
		"a token that is not": {infer.EmbedRequest{Inputs: []infer.EmbedInput{{Tokens: []int32{1 << 20}}}}, fault.CodeInvalid, "input"},
		"a long text":         {infer.EmbedRequest{Inputs: []infer.EmbedInput{{Text: "a"}, {Text: long}}}, fault.CodeContext, "text 2 has"},
		"an unknown model":    {infer.EmbedRequest{Model: "none", Inputs: []infer.EmbedInput{{Text: "a"}}}, fault.CodeNotFound, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.Embed(t.Context(), c.request)
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Code != c.code || !strings.Contains(e.Message, c.want) {
				t.Errorf("got %v, want %s with %q", err, c.code, c.want)
			}
		})
	}
	if got := b.ask(request([]int32{5}, 3)); got.err == nil || !strings.Contains(got.err.Error(), "computes embeddings") {
		t.Errorf("an embedding model was asked to write and said %v", got.err)
	}
}

func TestEmbed_ATruncatedTextKeepsTheTokenAtItsEnd(t *testing.T) {
	b := openReference(t, gguftest.TinyBERT(gguftest.BERT{Context: 32}), nil)
	long := strings.Repeat("long ", 40)
	tokens, err := b.Tokenize(t.Context(), "m", long, true, true)
	if err != nil {
		t.Fatal(err)
	}
	cut := append(slices.Clone(tokens[:31]), tokens[len(tokens)-1])
	of, err := b.Embed(t.Context(), infer.EmbedRequest{Truncate: true, Inputs: []infer.EmbedInput{{Text: long}, {Tokens: cut}}})
	if err != nil || of.Tokens[0] != 32 || !slices.Equal(of.Vectors[0], of.Vectors[1]) {
		t.Errorf("got %v tokens, %v", of.Tokens, err)
	}
}

func TestEmbed_ACancelledRequestLeavesNothingBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Bool
	steps := 0 // of the request, which is cancelled in the second one
	b := openReference(t, gguftest.TinyBERT(gguftest.BERT{Dim: 128, FFN: 512, Layers: 4}), func(o *Options) {
		o.OpenDevice = func(*gguf.File) (device.Device, error) {
			dev := ref.New()
			return &watchedDevice{Device: dev, info: dev.Info(), run: func() {
				if asked.Load() {
					steps++
				}
				if steps == 2 {
					cancel()
				}
			}}, nil
		}
	})
	r := infer.EmbedRequest{}
	for range 600 {
		r.Inputs = append(r.Inputs, infer.EmbedInput{Text: strings.Repeat("word ", 25)})
	}
	asked.Store(true)
	if _, err := b.Embed(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	asked.Store(false)
	if of, err := b.embed("after it"); err != nil || len(of.Vectors) != 1 {
		t.Errorf("got %v", err)
	}
	if s := b.Status(); s.Running != 0 || s.Queued != 0 {
		t.Errorf("%d texts run and %d wait", s.Running, s.Queued)
	}
}

func TestEmbed_CancelledRequestsCountUntilTheirTextsHaveLeftTheQueue(t *testing.T) {
	report, reported := make(chan struct{}), make(chan struct{})
	b := newBench(t, func(b *bench, o *Options) {
		b.files["e"] = gguftest.TinyBERT(gguftest.BERT{})
		o.Model, o.Parallel, o.QueueLimit = "e", 1, 1
		b.onLoad = func(_ context.Context, o model.Options) error {
			for range report {
				o.Progress(model.Progress{Total: 1})
				reported <- struct{}{}
			}
			return errors.New("it is not needed any more")
		}
	})
	defer close(report)
	report <- struct{}{} // the model is being loaded
	<-reported
	post := func() error { // texts, and cancel once they are in the queue
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		b.inbox.mu.Lock()
		before := len(b.inbox.fresh)
		b.inbox.mu.Unlock()
		go func() {
			_, err := b.Embed(ctx, infer.EmbedRequest{Model: "e", Inputs: slices.Repeat([]infer.EmbedInput{{Text: "a"}}, 50)})
			ended <- err
		}()
		for {
			b.inbox.mu.Lock()
			queued := len(b.inbox.fresh) > before
			b.inbox.mu.Unlock()
			if queued {
				cancel()
			}
			select {
			case err := <-ended:
				return err
			case <-time.After(time.Millisecond):
			}
		}
	}
	for i := range 2 {
		if err := post(); !errors.Is(err, context.Canceled) {
			t.Fatalf("request %d: %v", i+1, err)
		}
	}
	if e, ok := errors.AsType[*fault.Error](post()); !ok || e.Code != fault.CodeQueueFull {
		t.Errorf("a request beyond the limit got %v", e)
	}
	report <- struct{}{} // while it is loaded on, the loop drops what was cancelled
	<-reported
	if err := post(); !errors.Is(err, context.Canceled) {
		t.Errorf("after the texts have left: %v", err)
	}
}

func TestEmbed_NumbersThatAreNotFiniteEndTheRequest(t *testing.T) {
	e := &embedding{number: 3}
	e.pool([]float32{1, float32(math.Inf(1)), 3, 4}, 2)
	if err := e.finish(); err == nil || !strings.Contains(err.Error(), "text 3") {
		t.Errorf("got %v", err)
	}
}
