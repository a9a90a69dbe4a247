package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

func TestEngine_AnswersAreThoseOfTheModelAlone(t *testing.T) {
	b := newBench(t, nil)
	for _, n := range []int{1, 2, 31, 32, 33, 64, 200} {
		t.Run(fmt.Sprintf("a prompt of %d tokens", n), func(t *testing.T) {
			prompt := span(10, int32(10+n))
			a := b.ask(request(prompt, 40))
			if a.err != nil || !slices.Equal(a.ids(), greedy(prompt, 40)) {
				t.Errorf("%v, %v; want %v", a.ids(), a.err, greedy(prompt, 40))
			}
		})
	}
}

func TestEngine_SixteenAtOnceAnswerAsEachAlone(t *testing.T) {
	// Prompts share prefixes of different lengths and are sampled with seeds.
	var requests []infer.Request
	for i := range 16 {
		r := request(append(span(10, int32(20+4*i)), int32(40+i)), 50)
		r.Params.Temperature, r.Params.TopK, r.Params.Seed = 1.5, 0, int64(i)
		r.PromptLogProb = i%5 == 0
		r.IgnoreEOS = true
		requests = append(requests, r)
	}
	b := newBench(t, nil)
	alone := make([]outcome, len(requests))
	for i, r := range requests {
		alone[i] = b.ask(r)
	}
	for _, rows := range []int{1, 24, 256} {
		t.Run(fmt.Sprintf("in steps of %d rows", rows), func(t *testing.T) {
			b := newBench(t, func(_ *bench, o *Options) { o.ChunkRows = rows })
			var wg sync.WaitGroup
			for i, r := range requests {
				wg.Go(func() {
					a := b.ask(r)
					if a.err != nil || len(a.tokens) != 50 || !reflect.DeepEqual(a.tokens, alone[i].tokens) || !reflect.DeepEqual(a.prompt, alone[i].prompt) {
						t.Errorf("request %d: %v, %v; alone: %v", i, a.ids(), a.err, alone[i].ids())
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestEngine_TheRequestIsLeftAsItIs(t *testing.T) {
	prompt := make([]int32, 10, 100)
	newBench(t, nil).ask(request(prompt, 20))
	if i := slices.IndexFunc(prompt[:100], func(id int32) bool { return id != 0 }); i >= 0 {
		t.Errorf("element %d of the caller's array was overwritten", i)
	}
}

func TestEngine_TheResidentModelsFileIsOpenedOnce(t *testing.T) {
	b := newBench(t, nil)
	for _, name := range []string{"", "toy", ""} {
		r := request(span(10, 20), 2)
		r.Model = name
		if a := b.ask(r); a.err != nil {
			t.Fatal(a.err)
		}
	}
	if b.reads != 1 {
		t.Errorf("the file was opened %d times", b.reads)
	}
}

func TestEngine_Endings(t *testing.T) {
	prompt := span(10, 20)
	text := newBench(t, nil).ask(request(prompt, 30)).text
	if len(text) < 30 {
		t.Fatalf("the toy answers %q", text)
	}
	end := int32(toyEnd)
	tests := []struct {
		name    string
		set     func(*infer.Request)
		endAt   int32 // position at which the end token becomes likeliest; 0: never
		want    record.End
		tokens  int
		text    string
		context int
	}{
		{"max_tokens ends an answer", func(r *infer.Request) { r.MaxTokens = 30 }, 0,
			record.End{Reason: infer.FinishLength}, 30, text, 0},
		{"max_tokens 0 computes the prompt and says nothing", func(r *infer.Request) { r.MaxTokens = 0 }, 0,
			record.End{Reason: infer.FinishLength}, 0, "", 0},
		{"an end token ends an answer and is not part of it", func(r *infer.Request) {}, 13,
			record.End{Reason: infer.FinishStop, EndToken: &end}, 4, "", 0},
		{"an end token is a token where it is to be ignored", func(r *infer.Request) { r.IgnoreEOS, r.MaxTokens = true, 30 }, 13,
			record.End{Reason: infer.FinishLength}, 30, "", 0},
		{"a stop string ends an answer in front of it", func(r *infer.Request) { r.Stop = []string{"never", text[8:14]} }, 0,
			record.End{Reason: infer.FinishStop, StopString: text[8:14]}, 0, text[:8], 0},
		{"the context ends an answer that may go on", func(r *infer.Request) { r.MaxTokens = -1 }, 0,
			record.End{Reason: infer.FinishLength, ContextFull: true}, 54, "", 64},
		{"the context ends an answer that wants more than is left", func(r *infer.Request) { r.MaxTokens = 55 }, 0,
			record.End{Reason: infer.FinishLength, ContextFull: true}, 54, "", 64},
		{"max_tokens ends an answer that just fits", func(r *infer.Request) { r.MaxTokens = 54 }, 0,
			record.End{Reason: infer.FinishLength}, 54, "", 64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(b *bench, o *Options) {
				o.ContextLength = tt.context
				b.onLogits = func(logits []float32, pos int32) {
					if tt.endAt > 0 && pos == tt.endAt {
						logits[toyEnd] = 100
					}
				}
			})
			r := request(prompt, -1)
			tt.set(&r)
			a := b.ask(r)
			if a.err != nil {
				t.Fatal(a.err)
			}
			d := *a.done
			if d.Reason != tt.want.Reason || d.StopString != tt.want.StopString || d.ContextFull != tt.want.ContextFull || !reflect.DeepEqual(d.EndToken, tt.want.EndToken) {
				t.Errorf("ended with %+v, want %+v", d, tt.want)
			}
			if d.EndToken != nil && !(d.EndProb > 0.99) {
				t.Errorf("the end token's probability is %g", d.EndProb)
			}
			if tt.tokens > 0 && len(a.tokens) != tt.tokens || d.Usage.CompletionTokens != len(a.tokens) || d.Usage.PromptTokens != len(prompt) {
				t.Errorf("%d tokens, want %d; usage %+v", len(a.tokens), tt.tokens, d.Usage)
			}
			if tt.text != "" && a.text != tt.text || tt.want.StopString != "" && strings.Contains(a.text, tt.want.StopString) {
				t.Errorf("text %q, want %q", a.text, tt.text)
			}
		})
	}
}

func TestEngine_RefusesWrongRequests(t *testing.T) {
	b := newBench(t, nil)
	message := []chat.Message{{Role: "user", Content: "hi"}}
	tests := []struct {
		name  string
		set   func(*infer.Request)
		code  fault.Code
		param string
		text  string
	}{
		{"no input", func(r *infer.Request) { r.Tokens = nil }, fault.CodeInvalid, "messages", "no input"},
		{"two inputs", func(r *infer.Request) { r.Prompt = "x" }, fault.CodeInvalid, "messages", "2 inputs"},
		{"a continuation of the user's message", func(r *infer.Request) { r.Tokens, r.Messages, r.Continue = nil, message, true }, fault.CodeInvalid, "continue", "not an assistant's"},
		{"a temperature below 0", func(r *infer.Request) { r.Params.Temperature = -1 }, fault.CodeInvalid, "temperature", "-1"},
		{"a temperature that is no number", func(r *infer.Request) { r.Params.Temperature = math.NaN() }, fault.CodeInvalid, "temperature", "NaN"},
		{"a bias for a token that does not exist", func(r *infer.Request) { r.Params.LogitBias = map[int32]float64{toyVocab: 1} }, fault.CodeInvalid, "logit_bias", "320"},
		{"a negative number of tokens", func(r *infer.Request) { r.MaxTokens = -2 }, fault.CodeInvalid, "max_tokens", "-2"},
		{"too many alternatives", func(r *infer.Request) { r.Alternatives = 257 }, fault.CodeInvalid, "alternatives", "257"},
		{"a negative number of alternatives", func(r *infer.Request) { r.Alternatives = -1 }, fault.CodeInvalid, "alternatives", "-1"},
		{"too many alternatives for every token of the prompt", func(r *infer.Request) { r.Alternatives, r.PromptLogProb = 101, true }, fault.CodeInvalid, "alternatives", "0 to 100"},
		{"too many stop strings", func(r *infer.Request) { r.Stop = slices.Repeat([]string{"x"}, 65) }, fault.CodeInvalid, "stop", "65"},
		{"an empty stop string", func(r *infer.Request) { r.Stop = []string{"x", ""} }, fault.CodeInvalid, "stop", "stop string 2"},
		{"a stop string that is too long", func(r *infer.Request) { r.Stop = []string{strings.Repeat("x", 1025)} }, fault.CodeInvalid, "stop", "1025"},
		{"too many banned strings", func(r *infer.Request) { r.BannedStrings = slices.Repeat([]string{"x"}, 513) }, fault.CodeInvalid, "banned_strings", "513"},
		{"an empty banned string", func(r *infer.Request) { r.BannedStrings = []string{"x", ""} }, fault.CodeInvalid, "banned_strings", "banned string 2"},
		{"a banned string that is too long", func(r *infer.Request) { r.BannedStrings = []string{strings.Repeat("x", 257)} }, fault.CodeInvalid, "banned_strings", "257"},
		{"banned strings that are too long together", func(r *infer.Request) { r.BannedStrings = slices.Repeat([]string{strings.Repeat("x", 256)}, 65) }, fault.CodeInvalid, "banned_strings", "16640"},
		{"a token outside the vocabulary", func(r *infer.Request) { r.Tokens = []int32{5, toyVocab} }, fault.CodeInvalid, "tokens", "number 2 is 320"},
		{"a negative token", func(r *infer.Request) { r.Tokens = []int32{-1} }, fault.CodeInvalid, "tokens", "-1"},
		{"a prompt as long as the context", func(r *infer.Request) { r.Tokens = span(0, 256) }, fault.CodeContext, "", "maximum context length is 256 tokens; the prompt has 256"},
		{"a model that does not exist", func(r *infer.Request) { r.Model = "nobody" }, fault.CodeNotFound, "", "nobody"},
	}
	for _, tt := range tests {
		t.Run(tt.name+" is refused", func(t *testing.T) {
			r := request(span(10, 20), 4)
			tt.set(&r)
			a := b.ask(r)
			var e *fault.Error
			if !errors.As(a.err, &e) || e.Code != tt.code || e.Param != tt.param || !strings.Contains(e.Message, tt.text) {
				t.Errorf("error %#v, want code %s, param %q and a message with %q", a.err, tt.code, tt.param, tt.text)
			}
		})
	}
	if s := b.Status(); s.State != infer.StateReady || s.Running+s.Queued != 0 {
		t.Errorf("status %+v after refusals", s)
	}
}

func TestEngine_ContextErrorsCarryTheNumbers(t *testing.T) {
	a := newBench(t, nil).ask(request(span(0, 300), 1))
	var e *fault.Error
	if !errors.As(a.err, &e) || e.PromptTokens != 300 || e.ContextLength != 256 {
		t.Errorf("error %+v, want 300 of 256", a.err)
	}
}

func TestEngine_ALargerContextIsAdvisedWhereTheModelHasOne(t *testing.T) {
	for _, length := range []int{0, 256, 128} {
		a := newBench(t, func(_ *bench, o *Options) { o.ContextLength = length }).ask(request(span(0, 300), 1))
		var e *fault.Error
		if !errors.As(a.err, &e) || e.ContextTrain != 256 || strings.Contains(e.Message, "--ctx") != (length == 128) {
			t.Errorf("with --ctx %d: error %+v", length, a.err)
		}
	}
}

func TestEngine_PrefixReuse(t *testing.T) {
	first := span(10, 80) // 70 tokens
	answer := greedy(first, 10)
	turn := slices.Concat(first, answer, span(200, 215))
	scored := request(turn, 5)
	scored.PromptLogProb = true
	tests := []struct {
		name   string
		second infer.Request
		cached int
	}{
		{"the next turn computes the last token of the answer and what is new", request(turn, 5), 79},
		{"the same prompt computes its last token", request(first, 5), 69},
		{"an edited prompt keeps the blocks in front of the edit", request(append(span(10, 50), 7, 7, 7), 5), 32},
		{"an unrelated prompt reuses nothing", request(span(100, 170), 5), 0},
		{"a prompt that is scored is computed whole", scored, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.ask(request(first, 10))
			before := b.rows
			a := b.ask(tt.second)
			if a.err != nil || a.done.Usage.CachedTokens != tt.cached {
				t.Fatalf("%d cached tokens, %v, want %d", a.done.Usage.CachedTokens, a.err, tt.cached)
			}
			if got, want := b.rows-before, len(tt.second.Tokens)-tt.cached+4; got != want {
				t.Errorf("%d rows computed, want %d", got, want)
			}
			if !slices.Equal(a.ids(), greedy(tt.second.Tokens, 5)) {
				t.Errorf("the answer changed: %v, want %v", a.ids(), greedy(tt.second.Tokens, 5))
			}
			if p := a.events[0].Prefill; p == nil || p.Cached != tt.cached || p.Done != tt.cached || p.Total != len(tt.second.Tokens) {
				t.Errorf("first event %+v, want a prefill that starts at %d", a.events[0], tt.cached)
			}
		})
	}
}

func TestEngine_PrefillProgress(t *testing.T) {
	b := newBench(t, func(_ *bench, o *Options) { o.ChunkRows = 16 })
	var done []int
	for _, e := range b.ask(request(span(10, 50), 2)).events {
		if e.Prefill != nil {
			done = append(done, e.Prefill.Done)
		}
	}
	if want := []int{0, 16, 32, 40}; !slices.Equal(done, want) {
		t.Errorf("prefill reports %v, want %v", done, want)
	}
}

func TestEngine_PromptLogProb(t *testing.T) {
	b := newBench(t, func(b *bench, o *Options) {
		o.Parallel = 2
		b.onLoad = func(_ context.Context, o model.Options) error {
			if o.MaxOut != 34 {
				t.Errorf("memory for the logits of %d rows, want 34", o.MaxOut)
			}
			return nil
		}
	})
	r := request(span(10, 90), 3)
	r.PromptLogProb, r.Alternatives = true, 2
	a := b.ask(r)
	if a.err != nil || len(a.prompt) != 80 || len(a.tokens) != 3 {
		t.Fatalf("%d prompt tokens and %d others, %v", len(a.prompt), len(a.tokens), a.err)
	}
	logits := make([]float32, toyVocab)
	for i, got := range a.prompt {
		if got.ID != r.Tokens[i] || len(got.Bytes) == 0 {
			t.Fatalf("token %d is %+v", i, got)
		}
		if i == 0 {
			if got.Top != nil || got.LogProb != 0 {
				t.Errorf("the first token has a prediction: %+v", got)
			}
			continue
		}
		fillLogits(logits, historyOf(r.Tokens[:i]))
		want, err := sample.Score(sample.RowOf(logits), toyVocab, r.Tokens[i], 2, false)
		if err != nil || !reflect.DeepEqual(got.Choice, want) || len(got.Tops) != 2 {
			t.Errorf("token %d is scored %+v, want %+v", i, got.Choice, want)
		}
	}
}

func TestEngine_APromptThatFillsTheContextIsScoredWhereNoAnswerIsAskedFor(t *testing.T) {
	b := newBench(t, nil)
	r := request(span(0, 256), 0)
	r.PromptLogProb = true
	if a := b.ask(r); a.err != nil || len(a.prompt) != 256 || len(a.tokens) != 0 {
		t.Errorf("%d prompt tokens and %d others, %v", len(a.prompt), len(a.tokens), a.err)
	}
	r.Tokens = span(0, 257)
	if a := b.ask(r); a.err == nil {
		t.Error("a prompt beyond the context was scored")
	}
}

func TestEngine_AlternativesAreListedOnRequest(t *testing.T) {
	b := newBench(t, nil)
	r := request(span(10, 20), 3)
	if a := b.ask(r); a.tokens[0].Top != nil || a.tokens[0].Tops != nil {
		t.Errorf("alternatives that nobody asked for: %+v", a.tokens[0])
	}
	r.Alternatives = 5
	for _, token := range b.ask(r).tokens {
		if len(token.Top) != 5 || len(token.Tops) != 5 || token.Top[0].ID != token.ID || string(token.Tops[0]) != string(token.Bytes) {
			t.Errorf("alternatives %+v, spelled %q", token.Top, token.Tops)
		}
	}
}

func TestEngine_RowsAreStoredOnRequest(t *testing.T) {
	b := newBench(t, nil)
	r := request(span(10, 20), 3)
	if a := b.ask(r); a.tokens[0].Row != nil {
		t.Error("a row that nobody asked for was stored")
	}
	r.Rows, r.Alternatives = true, 5
	for i, token := range b.ask(r).tokens {
		row, err := sample.ParseRow(token.Row)
		if err != nil {
			t.Fatalf("row of token %d: %v", i, err)
		}
		for j, top := range token.Top {
			if row.IDs[j] != top.ID {
				t.Errorf("candidate %d of token %d is %d, want %d", j, i, row.IDs[j], top.ID)
			}
		}
	}
}

func TestEngine_ASeedIsDrawnAndReproducesTheAnswer(t *testing.T) {
	b := newBench(t, nil)
	r := request(span(10, 20), 30)
	r.Params.Temperature, r.Params.TopK, r.Params.Seed = 2, 0, -1
	first := b.ask(r)
	if first.done.Receipt.Params.Seed < 0 {
		t.Fatalf("the receipt's seed is %d", first.done.Receipt.Params.Seed)
	}
	other := b.ask(r)
	r.Params = first.done.Receipt.Params
	again := b.ask(r)
	if !slices.Equal(again.ids(), first.ids()) {
		t.Errorf("the receipt gives %v, not %v", again.ids(), first.ids())
	}
	if slices.Equal(other.ids(), first.ids()) {
		t.Errorf("two drawn seeds gave the same answer")
	}
	// The random numbers belong to positions: an answer cut off and taken up again
	// goes on as it would have.
	r.Tokens, r.MaxTokens = slices.Concat(r.Tokens, first.ids()[:12]), 18
	if fork := b.ask(r); !slices.Equal(fork.ids(), first.ids()[12:]) {
		t.Errorf("taken up again: %v, want %v", fork.ids(), first.ids()[12:])
	}
}

func TestEngine_WhatARequestLeavesToTheModelIsWhatItsFileSuggests(t *testing.T) {
	b := newBench(t, func(b *bench, _ *Options) {
		b.suggests = &sample.Suggestion{Values: map[string]float64{"temperature": 0.25, "top_k": 7}, Ignored: []string{"general.sampling.top_p is ignored: it is 3"}}
	})
	r := request(span(10, 20), 1)
	r.Params.TopK = 3
	r.Unset = []string{"temperature", "min_p"}
	if p := b.ask(r).done.Receipt.Params; p.Temperature != 0.25 || p.TopK != 3 || p.MinP != r.Params.MinP {
		t.Errorf("answered with temperature %g, top_k %d, min_p %g", p.Temperature, p.TopK, p.MinP)
	}
	if notice := b.Status().Notice; !strings.Contains(notice, "general.sampling.top_p is ignored: it is 3") {
		t.Errorf("the notice is %q", notice)
	}
	r.Unset = []string{"seed"}
	if e := b.ask(r).err; e == nil || !strings.Contains(e.Error(), "unset") {
		t.Errorf("a setting that files do not have: %v", e)
	}
}

func TestEngine_Receipt(t *testing.T) {
	r := newBench(t, nil).ask(request(span(10, 20), 1)).done.Receipt
	if r.Model != "toy" || r.Device != "a toy" || r.Path != "hash" || r.CacheType != "f16" || r.Engine != "test" || len(r.ModelHash) != 64 || len(r.TemplateHash) != 64 {
		t.Errorf("receipt %+v", r)
	}
}

// gate makes every step wait for a call of next.
type gate chan struct{}

func (g gate) wait(int, *device.Batch) error { <-g; return nil }

// next lets n steps pass, each after all goroutines have come to rest.
func (g gate) next(n int) {
	for range n {
		synctest.Wait()
		g <- struct{}{}
	}
	synctest.Wait()
}

func (g gate) open() { close(g); synctest.Wait() }

// stream is an answer in another goroutine.
type stream struct {
	cancel context.CancelFunc
	reply  outcome
	ended  chan struct{}
}

func (b *bench) stream(r infer.Request, each func(infer.Event)) *stream {
	ctx, cancel := context.WithCancel(b.t.Context())
	s := &stream{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.reply = b.askContext(ctx, r, each)
	}()
	return s
}

func TestEngine_CancelTakesEffectWithinOneStep(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps int
	}{
		{"in prefill", 3},
		{"in decode", 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := make(gate)
				b := newBench(t, func(b *bench, o *Options) { o.ChunkRows, b.onStep = 16, g.wait })
				s := b.stream(request(span(10, 110), 50), nil) // 7 steps of prefill
				g.next(tt.steps)
				s.cancel()
				<-s.ended
				if !errors.Is(s.reply.err, context.Canceled) {
					t.Errorf("error %v, want that of the context", s.reply.err)
				}
				g.next(1) // the one that was under way
				if st := b.Status(); st.Running != 0 {
					t.Errorf("%d run one step after the cancel", st.Running)
				}
				if b.steps != tt.steps+1 {
					t.Errorf("%d steps, want %d", b.steps, tt.steps+1)
				}
				g.open()
				// What was computed is still known, up to the last step.
				a := b.ask(request(span(10, 110), 1))
				if want := min(99, 16*(tt.steps+1)); a.done.Usage.CachedTokens != want {
					t.Errorf("%d tokens cached, want %d", a.done.Usage.CachedTokens, want)
				}
			})
		})
	}
}

func TestEngine_AConsumerThatStopsRangingCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		for e := range b.Generate(t.Context(), request(span(10, 20), -1)) {
			if e.Token != nil {
				break
			}
		}
		synctest.Wait()
		if s := b.Status(); s.Running != 0 {
			t.Errorf("%d run after the consumer left", s.Running)
		}
	})
}

func TestEngine_AStalledConsumerDoesNotSlowTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		release := make(chan struct{})
		stalled := b.stream(request(span(10, 20), 100), func(e infer.Event) {
			if e.Type == infer.EventToken {
				<-release
			}
		})
		synctest.Wait()
		before := b.steps
		a := b.ask(request(span(30, 40), 60))
		if a.err != nil || len(a.tokens) != 60 {
			t.Fatalf("%d tokens, %v", len(a.tokens), a.err)
		}
		if steps := b.steps - before; steps != 60 {
			t.Errorf("60 tokens took %d steps beside a stalled consumer", steps)
		}
		close(release)
		<-stalled.ended
		if !slices.Equal(stalled.reply.ids(), greedy(span(10, 20), 100)) {
			t.Errorf("the stalled consumer got %v, %v", stalled.reply.ids(), stalled.reply.err)
		}
	})
}

func TestEngine_PrefillDoesNotStopDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		b := newBench(t, func(b *bench, o *Options) { o.ChunkRows, b.onStep = 64, g.wait })
		tokens := 0
		s := b.stream(request(span(10, 20), 40), func(e infer.Event) {
			if e.Token != nil {
				tokens++
			}
		})
		g.next(5)
		long := b.stream(request(span(50, 250), 2), nil)
		g.next(20)
		if tokens != 25 {
			t.Errorf("%d tokens in 25 steps, 20 of them beside a long prompt", tokens)
		}
		g.open()
		<-s.ended
		<-long.ended
		if long.reply.err != nil || !slices.Equal(long.reply.ids(), greedy(span(50, 250), 2)) {
			t.Errorf("the long prompt: %v, %v", long.reply.ids(), long.reply.err)
		}
	})
}

// memoryFor is the memory of a device on which the KV cache gets blocks blocks.
func memoryFor(t *testing.T, o Options, blocks int) int64 {
	t.Helper()
	m := toySource(t)
	scratch := placement.StepLimitsOf(o.Parallel, o.ChunkRows).Scratch(m.config)
	return model.WeightBytes(m.file) + scratch + placement.Spare + 2*int64(blocks)*m.config.KVLayout(device.CacheOf(gguf.F16), 1).BlockBytes()
}

// toySource is the toy's file, opened.
func toySource(t testing.TB) *openModel {
	t.Helper()
	m := &openModel{name: "toy"}
	b := &bench{t: t, files: map[string][]byte{"toy": gguftest.TinyLlama(gguftest.Llama{})}}
	if err := m.read(catalog{b}); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestEngine_AnswersThatGiveWayGoOnAsIfNothingHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		started, again := map[int32]bool{}, 0
		b := newBench(t, func(b *bench, o *Options) {
			o.Parallel, o.ChunkRows, o.ContextLength = 6, 64, 128
			b.memory = memoryFor(t, *o, 8) // two whole contexts for six answers
			b.onStep = func(step int, batch *device.Batch) error {
				g.wait(step, batch)
				// The first token of a prompt is computed again only after its
				// answer gave way.
				for row, pos := range batch.Pos {
					if first := batch.Tokens[row]; pos == 0 && started[first] {
						again++
					} else if pos == 0 {
						started[first] = true
					}
				}
				return nil
			}
		})
		var streams []*stream
		for i := range 6 {
			r := request(span(int32(40*i), int32(40*i+30)), 80)
			r.PromptLogProb = i%2 == 0
			streams = append(streams, b.stream(r, nil))
		}
		g.next(1)
		g.open()
		for i, s := range streams {
			<-s.ended
			prompt := span(int32(40*i), int32(40*i+30))
			if a := s.reply; a.err != nil || !slices.Equal(a.ids(), greedy(prompt, 80)) || len(a.prompt) != 30*((i+1)%2) {
				t.Errorf("answer %d: %v, %v, %d prompt tokens; want %v", i, a.ids(), a.err, len(a.prompt), greedy(prompt, 80))
			}
		}
		if again == 0 {
			t.Error("no answer had to give way: the test tests nothing")
		}
	})
}

func TestEngine_QueuePositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		b := newBench(t, func(b *bench, o *Options) { o.Parallel, o.QueueLimit, b.onStep = 1, 3, g.wait })
		var streams []*stream
		for i := range 4 {
			streams = append(streams, b.stream(request(span(int32(20*i), int32(20*i+5)), 8), nil))
			g.next(1)
		}
		if s := b.Status(); s.Running != 1 || s.Queued != 3 {
			t.Errorf("%d run and %d wait", s.Running, s.Queued)
		}
		g.next(4*8 - 4)
		want := [][]int{nil, {1}, {2, 1}, {3, 2, 1}}
		for i, s := range streams {
			<-s.ended
			var positions []int
			for _, e := range s.reply.events {
				if e.Queued != nil {
					positions = append(positions, e.Queued.Position)
				}
			}
			if s.reply.err != nil || !slices.Equal(positions, want[i]) {
				t.Errorf("answer %d was told positions %v, %v; want %v", i, positions, s.reply.err, want[i])
			}
		}
	})
}

func TestEngine_AFullQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		b := newBench(t, func(b *bench, o *Options) { o.Parallel, o.QueueLimit, b.onStep = 1, 2, g.wait })
		var streams []*stream
		for i := range 3 {
			streams = append(streams, b.stream(request(span(int32(20*i), int32(20*i+5)), 3), nil))
		}
		synctest.Wait()
		if a := b.ask(request(span(0, 5), 3)); a.code() != fault.CodeQueueFull {
			t.Errorf("error %v, want a full queue", a.err)
		}
		streams[2].cancel() // leaves a place
		g.next(1)
		last := b.stream(request(span(0, 5), 3), nil)
		g.open()
		<-last.ended
		if last.reply.err != nil {
			t.Errorf("after one left: %v", last.reply.err)
		}
	})
}

// A step that hangs is seen from outside, by its age.
func TestEngine_StatusSaysWhatTheStepDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		b := newBench(t, func(b *bench, o *Options) { o.Now, b.onStep = time.Now, g.wait })
		synctest.Wait()
		if s := b.Status().Step; s != (infer.Step{}) {
			t.Errorf("an idle engine computes %+v", s)
		}
		answer := b.stream(request(span(10, 20), 3), nil)
		synctest.Wait()
		time.Sleep(3 * time.Second)
		if s := b.Status().Step; s != (infer.Step{Rows: 10, ForMS: 3000}) {
			t.Errorf("after 3 s in the first step: %+v", s)
		}
		g.next(1)
		time.Sleep(time.Second)
		if s := b.Status().Step; s != (infer.Step{Rows: 1, ForMS: 1000, LongestMS: 3000}) {
			t.Errorf("after 1 s in the second: %+v", s)
		}
		g.open()
		<-answer.ended
		if s := b.Status().Step; s != (infer.Step{LongestMS: 3000}) {
			t.Errorf("after the last: %+v", s)
		}
	})
}

func TestEngine_SwitchesModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		b := newBench(t, func(b *bench, o *Options) { b.onStep = g.wait })
		first := b.stream(request(span(10, 20), 5), nil)
		g.next(2)
		other := request(span(10, 20), 5)
		other.Model = "other"
		second := b.stream(other, nil)
		back := request(span(10, 20), 5)
		back.Model = "toy"
		synctest.Wait()
		third := b.stream(back, nil)
		g.next(1)
		if s := b.Status(); s.Model.Name != "toy" || s.Running != 1 || s.Queued != 2 {
			t.Errorf("status %+v while the first answer runs", s)
		}
		g.open()
		for _, s := range []*stream{first, second, third} {
			<-s.ended
			if s.reply.err != nil || len(s.reply.tokens) != 5 {
				t.Errorf("%d tokens, %v", len(s.reply.tokens), s.reply.err)
			}
		}
		var types []infer.EventType
		for _, e := range second.reply.events[:3] {
			types = append(types, e.Type)
		}
		if want := []infer.EventType{infer.EventQueued, infer.EventLoading, infer.EventPrefill}; !slices.Equal(types, want) {
			t.Errorf("the second answer began with %v, want %v", types, want)
		}
		if second.reply.done.Receipt.Model != "other" || third.reply.done.Receipt.Model != "toy" {
			t.Errorf("answered by %s and %s", second.reply.done.Receipt.Model, third.reply.done.Receipt.Model)
		}
		if third.reply.done.Usage.CachedTokens != 0 {
			t.Errorf("%d tokens reused across models", third.reply.done.Usage.CachedTokens)
		}
		if s := b.Status(); s.Model.Name != "toy" || s.ContextLength != 256 || b.opened != 3 {
			t.Errorf("status %+v after %d loads", s, b.opened)
		}
	})
}

func TestEngine_RequestsWaitForTheFirstModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := make(chan struct{})
		b := newBench(t, func(b *bench, o *Options) {
			b.onLoad = func(_ context.Context, o model.Options) error {
				<-load
				o.Progress(model.Progress{Done: 30, Total: 100})
				<-load
				return nil
			}
		})
		s := b.stream(request(span(10, 20), 2), nil)
		synctest.Wait()
		load <- struct{}{}
		synctest.Wait()
		if st := b.Status(); st.State != infer.StateLoading || st.Loading.Done != 30 || st.Loading.Total != 100 || st.Model.Name != "toy" {
			t.Errorf("status %+v while loading", st)
		}
		time.Sleep(time.Second)
		load <- struct{}{}
		if err := b.WaitReady(t.Context()); err != nil {
			t.Errorf("WaitReady: %v", err)
		}
		<-s.ended
		if e := s.reply.events[0]; e.Loading == nil || e.Loading.Done != 30 || e.Loading.Model != "toy" {
			t.Errorf("first event %+v, want the progress", e)
		}
		if d := s.reply.done; d == nil || d.Timings.Load != time.Second || d.Timings.Queue != 0 {
			t.Errorf("%+v, %v; want a second of loading", d, s.reply.err)
		}
		if st := b.Status(); st.State != infer.StateReady || st.LoadMS != 1000 || st.Device.Kind != "toy" || st.CacheType != "f16" {
			t.Errorf("status %+v", st)
		}
	})
}

func TestEngine_LoadFailures(t *testing.T) {
	tests := []struct {
		name string
		set  func(*bench, *Options)
		code fault.Code
		text string
	}{
		{"an unknown model", func(b *bench, o *Options) { o.Model = "nobody" }, fault.CodeNotFound, "nobody"},
		{"a file that is no model", func(b *bench, o *Options) { b.files["toy"] = []byte("rubbish") }, fault.CodeModelFile, ""},
		{"too little memory", func(b *bench, o *Options) { b.memory = 1000 }, fault.CodeMemory, "1.0 kB are free"},
		{"a device that cannot be opened", func(b *bench, o *Options) { b.openErr = errors.New("no such card") }, fault.CodeDevice, "no such card"},
		{"a device that lacks a kernel", func(b *bench, o *Options) {
			b.onLoad = func(context.Context, model.Options) error { return errors.New("no kernel for Q9") }
		}, fault.CodeModelFile, "no kernel for Q9"},
		{"a device that fails", func(b *bench, o *Options) {
			b.onLoad = func(context.Context, model.Options) error { return fmt.Errorf("out of luck: %w", device.ErrFailed) }
		}, fault.CodeDevice, "out of luck"},
		{"a panic", func(b *bench, o *Options) {
			b.onLoad = func(context.Context, model.Options) error { panic("boo") }
		}, fault.CodeInternal, "boo"},
		{"no model at all", func(b *bench, o *Options) { o.Model = "" }, fault.CodeNotFound, "name one"},
	}
	for _, tt := range tests {
		t.Run(tt.name+" is said and does not stop the next model", func(t *testing.T) {
			var log bytes.Buffer
			b := newBench(t, func(b *bench, o *Options) {
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				tt.set(b, o)
			})
			var e *fault.Error
			if err := b.WaitReady(t.Context()); !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Message, tt.text) {
				t.Errorf("WaitReady: %v, want %s with %q", err, tt.code, tt.text)
			}
			if wanted := e != nil && e != errNoModel; wanted != strings.Contains(log.String(), "level=ERROR msg=\"model not loaded\"") {
				t.Errorf("the log says %q", log.String())
			}
			if s := b.Status(); s.State != infer.StateFailed || s.Error == nil || s.Error.Code != tt.code {
				t.Errorf("status %+v", s)
			}
			if a := b.ask(request(span(10, 20), 2)); a.code() != tt.code {
				t.Errorf("a request got %v, want %s", a.err, tt.code)
			}
			b.mu.Lock()
			b.openErr, b.memory = nil, 0
			b.onLoad = nil
			b.mu.Unlock()
			r := request(span(10, 20), 2)
			r.Model = "other"
			if a := b.ask(r); a.err != nil || b.Status().State != infer.StateReady {
				t.Errorf("the next model: %v, %+v", a.err, b.Status())
			}
		})
	}
}

func TestEngine_LeavesWeightsInTheFileIfCopiesDoNotFit(t *testing.T) {
	const notice = "the weights stay in the model file, which is slower: copies of them need "
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	shape, err := placement.ShapeOf(f, config)
	if err != nil {
		t.Fatal(err)
	}
	needs := shape.Fit(placement.Machine{Devices: []device.Info{{}}}).Whole + placement.Spare
	for name, tt := range map[string]struct {
		memory int64
		inFile bool
	}{
		"copies fit":        {needs, false},
		"copies do not fit": {needs - 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			b := newBench(t, func(b *bench, o *Options) {
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				b.readsFile, b.memory = true, tt.memory
			})
			if err := b.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := b.Status().Device
			b.Close() // the log is complete then
			if strings.HasPrefix(got.Notice, notice) != tt.inFile || (got.InFile != "") != tt.inFile || strings.Contains(log.String(), notice) != tt.inFile {
				t.Errorf("got %+v, log %q", got, log.String())
			}
		})
	}
}

func TestEngine_ADeviceThatFailsOnceIsReopened(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail func() error
		code fault.Code
	}{
		{"an error of the device", func() error { return errors.New("launch failed") }, fault.CodeDevice},
		{"a panic", func() error { panic("boo") }, fault.CodeInternal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(b *bench, o *Options) {
				b.onStep = func(step int, _ *device.Batch) error {
					if step == 4 || step == 45 {
						return tt.fail()
					}
					return nil
				}
			})
			// Twice, with steps in between that do not fail.
			for i, answers := range []int{1, 3} {
				var a outcome
				for range answers {
					a = b.ask(request(span(10, 20), 20))
				}
				if a.code() != tt.code {
					t.Errorf("error %v, want %s", a.err, tt.code)
				}
				if err := b.WaitReady(t.Context()); err != nil || b.opened != i+2 {
					t.Errorf("%v after %d loads", err, b.opened)
				}
			}
			a := b.ask(request(span(10, 20), 20))
			if a.err != nil || a.done.Usage.CachedTokens != 0 {
				t.Errorf("next answer: %v, %+v", a.err, a.done)
			}
		})
	}
}

func TestEngine_ADeviceThatKeepsFailingIsGivenUpUntilTheNextRequest(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail func() error
		code fault.Code
	}{
		{"an error of the device", func() error { return errors.New("launch failed") }, fault.CodeDevice},
		{"a panic", func() error { panic("boo") }, fault.CodeInternal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			broken := true
			b := newBench(t, func(b *bench, o *Options) {
				b.onStep = func(int, *device.Batch) error {
					if broken {
						return tt.fail()
					}
					return nil
				}
			})
			for range 2 {
				if a := b.ask(request(span(10, 20), 20)); a.code() != tt.code {
					t.Fatalf("error %v, want %s", a.err, tt.code)
				}
			}
			if err := b.WaitReady(t.Context()); err == nil || b.Status().State != infer.StateFailed {
				t.Fatalf("state %s, want failed", b.Status().State)
			}
			if s := b.Status().Step; s.Rows != 0 {
				t.Errorf("who has given up computes %+v", s)
			}
			broken = false
			if a := b.ask(request(span(10, 20), 20)); a.err != nil || b.Status().State != infer.StateReady {
				t.Errorf("after the repair: %v, %s", a.err, b.Status().State)
			}
		})
	}
}

func TestEngine_LogitsThatAreNotFiniteEndOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		poison := int32(-1)
		b := newBench(t, func(b *bench, o *Options) {
			b.onStep = g.wait
			b.onLogits = func(logits []float32, pos int32) {
				if pos == poison {
					logits[7] = float32(math.NaN())
				}
			}
		})
		long, short := b.stream(request(span(10, 90), 20), nil), b.stream(request(span(100, 110), 20), nil)
		g.next(3)
		poison = 85
		g.open()
		<-long.ended
		<-short.ended
		if long.reply.code() != fault.CodeNotFinite || short.reply.err != nil || len(short.reply.tokens) != 20 {
			t.Errorf("errors %v and %v, want the first alone to fail", long.reply.err, short.reply.err)
		}
		poison = -1
		if a := b.ask(request(span(10, 90), 1)); a.err != nil || a.done.Usage.CachedTokens != 0 {
			t.Errorf("%v, %+v: the failed answer's work was reused", a.err, a.done)
		}
	})
}

func TestEngine_CloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		b := newBench(t, func(b *bench, o *Options) { o.Parallel, b.onStep = 1, g.wait })
		running, waiting := b.stream(request(span(10, 20), 50), nil), b.stream(request(span(30, 40), 50), nil)
		g.next(3)
		closed := make(chan error)
		go func() { closed <- b.Close() }()
		synctest.Wait()
		g.open()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		<-running.ended
		<-waiting.ended
		for _, s := range []*stream{running, waiting} {
			if s.reply.code() != fault.CodeClosed {
				t.Errorf("error %v, want %s", s.reply.err, fault.CodeClosed)
			}
		}
		if a := b.ask(request(span(10, 20), 1)); a.code() != fault.CodeClosed {
			t.Errorf("a request after Close: %v", a.err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

func TestEngine_CloseEndsALoad(t *testing.T) {
	b := newBench(t, func(b *bench, o *Options) {
		b.onLoad = func(ctx context.Context, _ model.Options) error { <-ctx.Done(); return ctx.Err() }
	})
	s := b.stream(request(span(10, 20), 1), nil)
	b.Close()
	<-s.ended
	if s.reply.code() != fault.CodeClosed {
		t.Errorf("error %v, want %s", s.reply.err, fault.CodeClosed)
	}
}

func TestEngine_TimingsAndSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench, o *Options) {
			o.Parallel, o.ChunkRows = 2, 32
			b.onStep = func(int, *device.Batch) error { time.Sleep(100 * time.Millisecond); return nil }
		})
		b.WaitReady(t.Context())
		speed, tokens := 0.0, 0
		first := b.stream(request(span(10, 74), 11), func(e infer.Event) { // two steps of prefill
			if e.Token == nil {
				return
			}
			if tokens++; tokens < 11 { // at the last one the step may not be recorded yet, or the answer's speed be gone
				speed = max(speed, b.Status().Decode)
			}
		})
		<-first.ended
		want := record.Timings{Prefill: 200 * time.Millisecond, Decode: time.Second, First: 200 * time.Millisecond}
		if first.reply.done.Timings != want {
			t.Errorf("timings %+v, want %+v", first.reply.done.Timings, want)
		}
		// The token before the last is seen while the last is computed.
		if speed < 9 || speed > 9.2 {
			t.Errorf("%g tokens a second, want 10 in 1.1 s", speed)
		}
		synctest.Wait()
		if s := b.Status(); s.Decode != 0 {
			t.Errorf("%g tokens a second when idle", s.Decode)
		}
	})
}

func TestEngine_TextInAndOut(t *testing.T) {
	b := newBench(t, func(b *bench, o *Options) {
		b.files["toy"] = gguftest.TinyLlama(gguftest.Llama{NoTemplate: true})
	})
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	ids, err := b.Tokenize(t.Context(), "", "<|im_start|>hi", true, true)
	if err != nil || len(ids) != 3 || ids[0] != 1 {
		t.Errorf("Tokenize: %v, %v", ids, err)
	}
	text, err := b.Detokenize(t.Context(), "other", ids)
	if err != nil || text != "<|im_start|>hi" {
		t.Errorf("Detokenize: %q, %v", text, err)
	}
	if _, err := b.Detokenize(t.Context(), "", []int32{toyVocab}); err == nil {
		t.Error("Detokenize took a token that does not exist")
	}
	r := infer.DefaultRequest()
	r.Messages = []chat.Message{{Role: "user", Content: "hi <|im_end|>"}}
	view, err := b.Render(t.Context(), r)
	if err != nil || view.Prompt != "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n" || view.Notice == "" {
		t.Errorf("Render: %+v, %v", view, err)
	}
	if n := len(slices.DeleteFunc(slices.Clone(view.Tokens), func(id int32) bool { return id != 2 })); n != 1 {
		t.Errorf("%d end tokens in %v: a message's text became one", n, view.Tokens)
	}
	if s := b.Status(); s.Notice != view.Notice {
		t.Errorf("notice %q, want %q", s.Notice, view.Notice)
	}
	a := b.ask(r)
	if a.err != nil || a.done.Usage.PromptTokens != len(view.Tokens) {
		t.Errorf("%v, %+v; want a prompt of %d tokens", a.err, a.done, len(view.Tokens))
	}
}

func TestRequestAndEventsAreValues(t *testing.T) {
	end, keep, on, budget := int32(2), 7.5, true, 3
	r := infer.Request{
		Model: "m", Client: "c", CacheScope: "s", PublicSystem: true, Sibling: 2, Messages: []chat.Message{{Role: "user", Content: "x\u2028<|im_end|>"}}, Continue: true, ContinuedTokens: []int32{4}, BannedEnds: []int{1}, ToolChoice: "t", Tools: json.RawMessage(`[{"b":1,"a":2.0}]`),
		TemplateVars: map[string]json.RawMessage{"enable_thinking": json.RawMessage("false")}, Prompt: "p", Tokens: []int32{1, 2}, Pictures: [][]byte{{1, 2}}, ContinueForm: true,
		Params: sample.Params{Temperature: 0.1, LogitBias: map[int32]float64{5: -1.5}, Seed: 1 << 40}, MaxTokens: 7, Stop: []string{"\n"}, BannedStrings: []string{"b"},
		KVFile: &infer.KVFile{Name: "c", Limit: 1}, RowFile: &infer.RowFile{Path: "f", Second: true}, KeepAliveS: &keep, PromptLookup: &on, ReasoningBudget: &budget, IgnoreEOS: true, Unset: []string{"top_k"}, Alternatives: 3, Rows: true, Follow: []int32{7}, PromptLogProb: true, Answered: []int32{4}, LeftOut: &infer.PicturePart{Picture: 1, X: 2, Y: 3, Width: 4, Height: 5}, Against: "o", AgainstDevice: "cpu", ParseReply: true, WholeCalls: true, SingleCall: true, ChatTemplate: "t", Grammar: "g", JSONSchema: json.RawMessage(`{"b":1,"a":2.0}`), StrictSchema: true,
	}
	choice := sample.Choice{ID: 5, LogProb: -0.1, Rank: 1, PMax: 0.7, Entropy: 1.5, Stages: []sample.Stage{{Name: "top_k", Kept: 3, Removed: 0.25}}, Top: []sample.Candidate{{ID: 5, LogProb: -0.1}}, Followed: [][]float64{{0.5}, {0}}, Drawn: &sample.Drawn{Of: 9, U: 0.5, From: 0.25, To: 1}}
	calls := []reply.CallDelta{{Index: 1, ID: "i", Name: "n", Arguments: "{"}}
	events := []infer.Event{
		{Type: infer.EventSchema, Schema: &infer.SchemaNotes{Ignored: []string{"if at #"}}},
		{Type: infer.EventPrompt, Prompt: &infer.PromptNotes{Notes: []string{"one", "two"}}},
		{Type: infer.EventQueued, Queued: &infer.Queued{Position: 3, WaitS: 2, ForMemory: true}},
		{Type: infer.EventLoading, Loading: &infer.Loading{Model: "m", Done: 1, Total: 2, Kernels: 3, KernelsTotal: 4, InPlaceOf: "o", LeftS: 2}},
		{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1, Total: 3, Cached: 1, Against: true}},
		{Type: infer.EventToken, Token: &infer.Token{Choice: choice, Bytes: []byte{0xe2, 0x82}, Tops: [][]byte{{0xff}}, Text: "é", Prompt: true, Compared: &infer.Compared{KL: 0.5, LogProb: -1, Rank: 2}, Reasoning: "r", Calls: calls}},
		{Type: infer.EventDone, Done: &infer.Done{
			Text: "t", Reasoning: "r", Calls: calls, Answer: record.Answer{
				End:     record.End{Reason: infer.FinishStop, StopString: "x", EndToken: &end, EndProb: 0.5, ContextFull: true},
				Usage:   record.Usage{PromptTokens: 1, CachedTokens: 2, CompletionTokens: 3, ReasoningTokens: 4},
				Timings: record.Timings{Queue: 1e6, Load: 2e6, Prefill: 3e6, Decode: 4.5e6, First: 6e6},
				Lookup:  record.Lookup{Drafted: 3, Accepted: 2},
				Notes:   []string{"n"},
				Receipt: record.Receipt{Model: "m", ModelHash: "h", TemplateHash: "t", Params: r.Params, Device: "d", Path: "p", CacheType: "f16", Engine: "v"},
			},
		}},
	}
	for i, v := range append([]any{r}, any(events[0]), events[1], events[2], events[3], events[4], events[5], events[6]) {
		for field := range reflect.ValueOf(v).NumField() {
			if f := reflect.ValueOf(v).Field(field); i == 0 && f.IsZero() {
				t.Errorf("%T.%s is not set: the test does not see it", v, reflect.TypeOf(v).Field(field).Name)
			}
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(v))
		if err := json.Unmarshal(data, back.Interface()); err != nil || !reflect.DeepEqual(back.Elem().Interface(), v) {
			t.Errorf("%s became %+v, %v", data, back.Elem().Interface(), err)
		}
	}
}
