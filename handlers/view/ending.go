package view

import (
	"fmt"
	"strings"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/web"
)

// Ending is why an answer ended. Kind is edited, stopped, interrupted, failed, context, length,
// stop_string, repetition, call or finished.
type Ending struct {
	Kind string `json:"kind"`
	Text string `json:"text"`           // for people, with the number of tokens if that explains it
	Code string `json:"code,omitempty"` // the stop string, for the kind stop_string; the name of the tool, for call
}

func (e Ending) String() string {
	if e.Code == "" {
		return e.Text
	}
	return fmt.Sprintf("%s %q", e.Text, e.Code)
}

// PromptNotes returns sentences that say how the prompt of an answer differs from the chat.
func PromptNotes(notes []string) string {
	sentences := make([]string, len(notes))
	for i, n := range notes {
		sentences[i] = failure.Sentence(n)
	}
	return strings.Join(sentences, " ")
}

// withCount returns text with a number of what, unless that is not known.
func withCount(text string, n int, what string) string {
	if n <= 0 {
		return text
	}
	return text + ", " + web.Counted(n, what)
}

// End returns why a ended; nil while it is running.
func End(a *live.Answer) *Ending {
	at := func(text string) string {
		if a.Usage.CompletionTokens == 0 {
			return text
		}
		return text + " at token " + web.Thousands(a.Usage.CompletionTokens)
	}
	switch {
	case a.State.Running():
		return nil
	case a.State == live.Interrupted:
		return &Ending{Kind: "interrupted", Text: "the server stopped here"}
	case a.Rewritten:
		return &Ending{Kind: "edited", Text: "edited by you"}
	case a.State == live.Failed:
		return &Ending{Kind: "failed", Text: at("failed")}
	case a.State == live.Stopped && a.Reason == infer.FinishRepetition:
		return &Ending{Kind: "repetition", Text: at("paused, because it repeats itself,")}
	case a.State == live.Stopped && a.Error != nil:
		return &Ending{Kind: "stopped", Text: at("stopped by the owner of the server")}
	case a.State == live.Stopped:
		return &Ending{Kind: "stopped", Text: at("stopped by you")}
	case a.ContextFull:
		return &Ending{Kind: "context", Text: withCount("context full", a.Context, "token")}
	case a.Reason == infer.FinishLength:
		what := "token"
		if a.Usage.CompletionTokens > a.Settings.MaxTokens { // it continues tokens that were there before
			what = "new token"
		}
		return &Ending{Kind: "length", Text: withCount("length limit", a.Settings.MaxTokens, what)}
	case a.Call != nil:
		return &Ending{Kind: "call", Text: "ended with a call of", Code: a.Call.Name}
	case a.StopString != "":
		return &Ending{Kind: "stop_string", Text: "stop string", Code: a.StopString}
	}
	return &Ending{Kind: "finished", Text: "finished"}
}
