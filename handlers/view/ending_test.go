package view

import (
	"testing"

	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/store"
)

func TestAnEndingIsOneTextWithItsFigure(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*live.Answer)
		kind   string
		text   string
	}{
		{"the model ended it", func(*live.Answer) {}, "finished", "finished"},
		{"a person ended it", func(a *live.Answer) { a.State = live.Stopped }, "stopped", "stopped by you at token 1,200"},
		{"a person ended it before the first token", func(a *live.Answer) { a.State, a.Usage.CompletionTokens = live.Stopped, 0 }, "stopped", "stopped by you"},
		{"the server ended it", func(a *live.Answer) { a.State = live.Interrupted }, "interrupted", "the server stopped here"},
		{"it failed", func(a *live.Answer) { a.State = live.Failed }, "failed", "failed at token 1,200"},
		{"a person wrote it", func(a *live.Answer) { a.Rewritten = true }, "edited", "edited by you"},
		{"the context is full", func(a *live.Answer) { a.ContextFull, a.Reason = true, infer.FinishLength }, "context", "context full, 4,096 tokens"},
		{"the context is full, and how long it is was not said", func(a *live.Answer) { a.ContextFull, a.Reason, a.Context = true, infer.FinishLength, 0 }, "context", "context full"},
		{"a limit of one token", func(a *live.Answer) {
			a.Reason, a.Settings.MaxTokens, a.Usage.CompletionTokens = infer.FinishLength, 1, 1
		}, "length", "length limit, 1 token"},
		{"its limit is reached", func(a *live.Answer) { a.Reason, a.Usage.CompletionTokens = infer.FinishLength, 512 }, "length", "length limit, 512 tokens"},
		{"its limit is reached behind seven tokens of another answer", func(a *live.Answer) { a.Reason, a.Usage.CompletionTokens = infer.FinishLength, 519 }, "length", "length limit, 512 new tokens"},
		{"an upstream has a limit of its own", func(a *live.Answer) { a.Reason, a.Settings.MaxTokens = infer.FinishLength, -1 }, "length", "length limit"},
		{"a stop string came", func(a *live.Answer) { a.StopString = "\n" }, "stop_string", `stop string "\n"`},
		{"it calls a tool", func(a *live.Answer) { a.Reason, a.Call = infer.FinishCalls, &store.Call{Name: "weather"} }, "call", `ended with a call of "weather"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &live.Answer{State: live.Done, Settings: setting.Default()}
			a.Usage.CompletionTokens, a.Settings.MaxTokens, a.Context = 1200, 512, 4096
			c.change(a)
			if got := End(t.Context(), a); got == nil || got.Kind != c.kind || got.String() != c.text {
				t.Errorf("got %+v, want %s: %s", got, c.kind, c.text)
			}
		})
	}
	if got := End(t.Context(), &live.Answer{State: live.Writing}); got != nil {
		t.Errorf("an answer that is being written ended: %+v", got)
	}
}
