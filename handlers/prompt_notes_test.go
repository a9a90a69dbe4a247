package handlers_test

import (
	"context"
	"iter"
	"net/http"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/record"
)

func TestAHeaderOfEveryRouteSaysWhatTheChatTemplateRequired(t *testing.T) {
	engine := &handlerstest.FakeEngine{OnGenerate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			for _, e := range []infer.Event{
				{Type: infer.EventSchema, Schema: &infer.SchemaNotes{Ignored: []string{"if at #"}}},
				{Type: infer.EventPrompt, Prompt: &infer.PromptNotes{Notes: []string{"one thing: this", "another"}}},
				{Type: infer.EventQueued, Queued: &infer.Queued{Position: 1}},
				{Type: infer.EventToken, Token: &infer.Token{Text: "hi"}},
				{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{End: record.End{Reason: infer.FinishStop}}}},
			} {
				if !yield(e, nil) {
					return
				}
			}
		}
	}}
	s := handlerstest.Server(t, engine)
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", chatBody(`"stream":false`)},
		{"/v1/chat/completions", chatBody(`"stream":true,"n":2`)},
		{"/v1/responses", `{"input":"x"}`},
		{"/v1/responses", `{"input":"x","stream":true}`},
		{"/v1/messages", chatBody(`"model":"m","max_tokens":9`)},
		{"/v1/messages", chatBody(`"model":"m","max_tokens":9,"stream":true`)},
		{"/api/chat", chatBody(`"model":"m","stream":false`)},
		{"/api/chat", chatBody(`"model":"m"`)},
		{"/api/generate", `{"model":"m","prompt":"x"}`},
		{"/v1/generate", `{"messages":[{"role":"user","content":"x"}]}`},
	} {
		got := handlerstest.Post(t, s, c.path, c.body)
		notes, ignored := got.Header.Get("X-M40-LLM-Prompt-Notes"), got.Header.Get("X-M40-LLM-Schema-Ignored")
		if got.Status != http.StatusOK || notes != "one thing: this, another" || ignored != "if at #" {
			t.Errorf("%s %s: got %d, notes %q, ignored %q: %s", c.path, c.body, got.Status, notes, ignored, got.Body)
		}
	}
}
