package api

import (
	"math"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/record"
)

// timings are the speed of an answer, so far if it is running, with llama-server's names.
type timings struct {
	Cached             int     `json:"cache_n"`  // tokens of the prompt that were found in the KV cache
	Prompt             int     `json:"prompt_n"` // those that were computed
	PromptMS           float64 `json:"prompt_ms"`
	PromptPerToken     float64 `json:"prompt_per_token_ms"`
	PromptPerSecond    float64 `json:"prompt_per_second"`
	Predicted          int     `json:"predicted_n"`  // tokens of the answer
	PredictedMS        float64 `json:"predicted_ms"` // from the first to the last
	PredictedPerToken  float64 `json:"predicted_per_token_ms"`
	PredictedPerSecond float64 `json:"predicted_per_second"`
	Drafted            int     `json:"draft_n,omitempty"`          // tokens that were drafted
	Accepted           int     `json:"draft_n_accepted,omitempty"` // those of them that were drawn
}

func newTimings(u record.Usage, t record.Timings) *timings {
	w := &timings{
		Cached: u.CachedTokens, Prompt: u.PromptTokens - u.CachedTokens, PromptMS: record.Milliseconds(t.Prefill),
		Predicted: u.CompletionTokens, PredictedMS: record.Milliseconds(t.Decode),
	}
	w.PromptPerToken, w.PromptPerSecond = pace(w.Prompt, w.PromptMS)
	w.PredictedPerToken, w.PredictedPerSecond = pace(w.Predicted-1, w.PredictedMS)
	return w
}

// allTimings returns the timings of an answer that has ended.
func allTimings(a record.Answer) *timings {
	w := newTimings(a.Usage, a.Timings)
	w.Drafted, w.Accepted = a.Lookup.Drafted, a.Lookup.Accepted
	return w
}

// pace returns the milliseconds for each of n tokens and the tokens for each second; 0 where
// there is nothing to divide.
func pace(n int, ms float64) (perToken, perSecond float64) {
	if n <= 0 || ms <= 0 {
		return 0, 0
	}
	return thousandths(ms / float64(n)), thousandths(float64(n) / ms * 1000)
}

func thousandths(v float64) float64 { return math.Round(v*1000) / 1000 }

// PromptProgress says how much of the prompt is in the KV cache, with llama-server's names.
type PromptProgress struct {
	Total     int     `json:"total"`     // tokens
	Cached    int     `json:"cache"`     // of them found there
	Processed int     `json:"processed"` // of them there by now, those that were found included
	MS        float64 `json:"time_ms"`
}

// extras are what a chunk of a stream may have apart from its choice.
type extras struct {
	Progress *PromptProgress `json:"prompt_progress,omitempty"`
	Timings  *timings        `json:"timings,omitempty"`
}

// stopwatch measures one answer of a stream.
type stopwatch struct {
	start, first, last time.Time // of prefill, of the first token, of the last until now
	prefill            infer.Prefill
	tokens             int
}

// note records an event of the answer and returns what to send with it: the extras that f
// requests, and the timings at the end. progress is true for an event that leads to a chunk
// without any text.
func (w *stopwatch) note(f *generationFields, e infer.Event, now time.Time) (x extras, progress bool) {
	switch {
	case e.Type == infer.EventPrefill:
		if w.start.IsZero() {
			w.start = now
		}
		w.prefill = *e.Prefill
		if f.ReturnProgress {
			x.Progress = &PromptProgress{e.Prefill.Total, e.Prefill.Cached, e.Prefill.Done, record.Milliseconds(now.Sub(w.start))}
		}
	case e.Type == infer.EventToken && !e.Token.Prompt:
		if w.last = now; w.first.IsZero() {
			w.first = now
		}
		w.tokens++
		if f.TimingsPerToken {
			x.Timings = newTimings(w.usage(), w.timings())
		}
	case e.Type == infer.EventDone:
		x.Timings = allTimings(e.Done.Answer)
	}
	return x, x.Progress != nil
}

// usage and timings are those of the answer so far, after its first token.
func (w *stopwatch) usage() record.Usage {
	return record.Usage{PromptTokens: w.prefill.Total, CachedTokens: w.prefill.Cached, CompletionTokens: w.tokens}
}

func (w *stopwatch) timings() record.Timings {
	return record.Timings{Prefill: w.first.Sub(w.start), Decode: w.last.Sub(w.first)}
}
