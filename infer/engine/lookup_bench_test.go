package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"m40-llm/infer"
	shapes "m40-llm/infer/bench"
	"m40-llm/infer/chat"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/guide"
	"m40-llm/infer/model"
	"m40-llm/infer/record"
)

// BenchmarkPromptLookup writes answers without prompt lookup and with it, in turn, on the CPU and on a GPU if there is one: those of
// the built-in model to requests that quote or edit text, and to others, and those of random weights in the shape of Llama 3.2 1B, on a GPU
// also of 3.1 8B, which never repeat anything, or have to copy a text as a grammar says.
func BenchmarkPromptLookup(b *testing.B) {
	b.Run("cpu", func(b *testing.B) {
		benchmarkLookups(b, func() (device.Device, error) { return cpu.Open(0) }, "llama-1b")
	})
	b.Run("cuda", func(b *testing.B) {
		if err := cuda.Check(); err != nil {
			b.Skip(err)
		}
		benchmarkLookups(b, func() (device.Device, error) { return cuda.Open() }, "llama-1b", "llama-8b")
	})
}

type openDevice func() (device.Device, error)

func benchmarkLookups(b *testing.B, open openDevice, models ...string) {
	for _, name := range []string{"quote", "edit", "explain"} {
		b.Run("guide/"+name, func(b *testing.B) {
			var requests []infer.Request
			for _, content := range guidePrompts[name] {
				r := infer.DefaultRequest()
				r.Messages, r.MaxTokens, r.Params.Temperature = []chat.Message{{Role: "user", Content: content}}, 160, 0
				requests = append(requests, r)
			}
			benchmarkLookup(b, open, guide.Model, loadModel, 1, requests)
		})
	}
	b.Run("guide/copies", func(b *testing.B) { benchmarkLookup(b, open, guide.Model, loadModel, 1, []infer.Request{copying()}) })
	for _, shape := range models {
		for _, answers := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/never repeats, %d at once", shape, answers), func(b *testing.B) {
				r := request(span(10, 200), 64)
				r.IgnoreEOS, r.Params.Temperature, r.Params.TopK, r.Params.TopP, r.Params.MinP = true, 1, 0, 1, 0
				benchmarkRandom(b, open, shape, answers, r)
			})
			b.Run(fmt.Sprintf("%s/copies, %d at once", shape, answers), func(b *testing.B) {
				benchmarkRandom(b, open, shape, answers, copying())
			})
		}
	}
}

// copying returns a request whose answer has to copy a text of its prompt, as a grammar says.
func copying() infer.Request {
	const text = "FUNC SUM(LIST) { TOTAL := 0; FOR _, V := RANGE LIST { TOTAL += V }; RETURN TOTAL } // 2026-11-23: 40, 41, 42"
	r := infer.DefaultRequest()
	r.Prompt, r.MaxTokens, r.Params.Temperature = text+"\n"+text+"\n", 100, 0
	r.Grammar = fmt.Sprintf("root ::= %q", text)
	return r
}

// guidePrompts are requests to the built-in model.
var guidePrompts = map[string][]string{
	"quote": {
		"Repeat this text word for word: The temperature divides the logits before the softmax. A low temperature makes likely tokens likelier, a high one makes unlikely tokens likelier. At zero the likeliest token is always taken.",
		"Quote the second sentence of this text: Top-k keeps the k likeliest tokens. Top-p keeps the likeliest tokens until their probabilities add up to p. Min-p keeps tokens that are at least p times as likely as the likeliest one.",
	},
	"edit": {
		"Rename the variable n to count in this function, and print all of it again:\n```go\nfunc sum(list []int) int {\n\tn := 0\n\tfor _, v := range list {\n\t\tn += v\n\t}\n\treturn n\n}\n```",
		"Correct the spelling in this text: The keys and values of a chat are stored on disc, so that a chat that you opne again begins to answer without reading everything again, and with the same bits.",
	},
	"explain": {"What does the temperature do?", "How can I get the same answer again?", "What is a KV cache?"},
}

// benchmarkRandom is benchmarkLookup for random weights in Q4_0 with the shapes of a model.
func benchmarkRandom(b *testing.B, open openDevice, shape string, answers int, r infer.Request) {
	weights, err := shapes.Synthetic(shape, "q4_0", 1, 0)
	if err != nil {
		b.Fatal(err)
	}
	config, err := model.ReadConfig(weights)
	if err != nil {
		b.Fatal(err)
	}
	file := gguftest.TinyLlama(gguftest.Llama{Dim: 32, Heads: 1, KVHeads: 1, FFN: 32, Rows: config.Vocab, Context: 512})
	benchmarkLookup(b, open, file, func(ctx context.Context, _ *gguf.File, stages []model.Stage, o model.Options) (forwarder, error) {
		stages[0].Layers = len(config.Layers)
		return model.LoadStages(ctx, weights, stages, o)
	}, answers, []infer.Request{r})
}

// benchmarkLookup reports the speeds, so many answers to each request at once.
func benchmarkLookup(b *testing.B, openOn openDevice, file []byte, load loadFunc, answers int, requests []infer.Request) {
	one := &bench{t: b, files: map[string][]byte{"m": file}}
	e, err := open(Options{
		Catalog:    catalog{one},
		OpenDevice: func(*gguf.File) (device.Device, error) { return openOn() },
		Model:      "m", ContextLength: 512, Parallel: answers,
	}, load)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	one.Engine = e
	if err := e.WaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	var sum record.Lookup
	tokens := 0
	speed := func(on bool) float64 {
		n, seconds := 0, 0.0
		for _, r := range requests {
			r.PromptLookup = &on
			done := make(chan outcome)
			for i := range answers {
				r.Params.Seed = int64(i)
				go func() { done <- one.ask(r) }()
			}
			longest := 0.0
			for range answers {
				a := <-done
				if a.err != nil {
					b.Error(a.err)
					continue
				}
				n += len(a.tokens) - 1
				longest = max(longest, a.done.Timings.Decode.Seconds())
				sum.Drafted, sum.Accepted, tokens = sum.Drafted+a.done.Lookup.Drafted, sum.Accepted+a.done.Lookup.Accepted, tokens+len(a.tokens)
			}
			seconds += longest
		}
		return float64(n) / seconds
	}
	speed(true)
	sum, tokens = record.Lookup{}, 0
	var off, on, gains []float64
	for b.Loop() {
		off, on = append(off, speed(false)), append(on, speed(true))
		gains = append(gains, on[len(on)-1]/off[len(off)-1])
	}
	middle := func(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(middle(off), "off-tok/s")
	b.ReportMetric(middle(on), "on-tok/s")
	b.ReportMetric(middle(gains), "gain")
	b.ReportMetric(slices.Min(gains), "least-gain")
	b.ReportMetric(slices.Max(gains), "most-gain")
	b.ReportMetric(100*sum.Share(), "accepted-%")
	b.ReportMetric(float64(2*sum.Drafted)/float64(tokens), "drafted/token")
}
