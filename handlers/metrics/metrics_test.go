package metrics_test

import (
	"context"
	"errors"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/metrics"
	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/record"
)

// engine is an engine with a status.
type engine func() infer.Status

func (e engine) Status() infer.Status { return e() }

func TestMetricsOfOtherEnginesHaveTheirAddress(t *testing.T) {
	s := metrics.New(engine(func() infer.Status {
		return infer.Status{
			State: infer.StateReady, Model: infer.ModelInfo{Name: "guide"}, Device: device.Info{Name: "test"},
			Upstreams: []infer.UpstreamServer{{Address: "a:1", Running: 2, Answers: 7, Failed: 1}, {Address: "b:1", Problem: "gone"}},
			Remote:    []infer.ModelInfo{{Name: "far", Upstream: &infer.Upstream{Servers: []string{"a:1"}}}},
		}
	}))
	for _, event := range []infer.Event{{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{End: record.End{Reason: infer.FinishStop}, Receipt: record.Receipt{Model: "far", Device: "any name"}}}}, {Type: infer.EventQueued}} {
		generate := s.Observe(func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
			return func(yield func(infer.Event, error) bool) { yield(event, nil) }
		})
		for range generate(t.Context(), infer.Request{Model: "far"}) {
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`m40_llm_answers_total{device="a:1",model="far",reason="stop"} 1`, `m40_llm_answers_total{device="a:1",model="far",reason="cancelled"} 1`,
		`m40_llm_upstream_ready{upstream="a:1"} 1`, `m40_llm_upstream_ready{upstream="b:1"} 0`, `m40_llm_upstream_running_answers{upstream="a:1"} 2`,
		`m40_llm_upstream_answers_total{upstream="a:1"} 7`, `m40_llm_upstream_failed_requests_total{upstream="a:1"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is missing in\n%s", want, w.Body)
		}
	}
}

func TestMetricsCountAnswersByHowTheyEnd(t *testing.T) {
	status := func() infer.Status {
		return infer.Status{State: infer.StateReady, Model: infer.ModelInfo{Name: "guide"}, Device: device.Info{Name: "test"}, Running: 2, Cache: infer.Cache{Used: 7}, Ahead: infer.Ahead{On: true, Tokens: 90, Missed: 3}}
	}
	s := metrics.New(engine(status))
	done := infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{
		End:     record.End{Reason: infer.FinishLength},
		Usage:   record.Usage{PromptTokens: 7, CachedTokens: 3, CompletionTokens: 5},
		Timings: record.Timings{Queue: time.Second, First: 2 * time.Second, Decode: 4 * time.Second},
		Lookup:  record.Lookup{Drafted: 4, Accepted: 2},
	}}}
	answer := func(events ...any) {
		generate := s.Observe(func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
			return func(yield func(infer.Event, error) bool) {
				for _, e := range events {
					err, _ := e.(error)
					event, _ := e.(infer.Event)
					if !yield(event, err) {
						return
					}
				}
			}
		})
		for e := range generate(t.Context(), infer.Request{Model: "a name that a client made up"}) {
			if e.Type == infer.EventQueued {
				return // the client leaves
			}
		}
	}
	answer(infer.Event{Type: infer.EventToken}, done)
	answer(errors.New("broken"))
	answer(context.Canceled)
	answer(infer.Event{Type: infer.EventQueued}, done)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	got := w.Body.String()
	const both = `{device="test",model="guide"`
	for _, want := range []string{
		"m40_llm_answers_total" + both + `,reason="length"} 1`,
		"m40_llm_answers_total" + both + `,reason="error"} 1`,
		"m40_llm_answers_total" + both + `,reason="cancelled"} 2`,
		"m40_llm_prompt_tokens_total" + both + "} 7",
		"m40_llm_cached_tokens_total" + both + "} 3",
		"m40_llm_generated_tokens_total" + both + "} 5",
		"m40_llm_drafted_tokens_total" + both + "} 4",
		"m40_llm_accepted_tokens_total" + both + "} 2",
		"m40_llm_queue_seconds_sum" + both + "} 1",
		"m40_llm_first_token_seconds_sum" + both + "} 2",
		"m40_llm_token_seconds_sum" + both + "} 1",
		"m40_llm_running_answers" + both + "} 2",
		"m40_llm_kv_cache_used_bytes" + both + "} 7",
		"m40_llm_ahead_tokens" + both + "} 90",
		"m40_llm_ahead_missed_tokens" + both + "} 3",
		"m40_llm_ready" + both + "} 1",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(got, "made up") {
		t.Error("a name of a request is a label")
	}
	if t.Failed() {
		t.Log(got)
	}
}
