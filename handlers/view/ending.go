package view

import (
	"context"
	"fmt"
	"strings"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/web/lang"
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
func PromptNotes(ctx context.Context, notes []string) string {
	sentences := make([]string, len(notes))
	for i, n := range notes {
		sentences[i] = failure.Sentence(ctx, n)
	}
	return strings.Join(sentences, " ")
}

// EndForReaders returns End for those who read a shared chat. They are not told that it is “you” who stopped or edited.
func EndForReaders(ctx context.Context, a *live.Answer) *Ending {
	e := End(ctx, a)
	if e == nil {
		return nil
	}
	switch e.Kind {
	case "edited":
		e.Text = lang.T(ctx, "edited")
	case "stopped":
		if a.Error == nil {
			e.Text = atToken(ctx, a, lang.Key("stopped"), lang.Key("stopped at token %s"))
		}
	}
	return e
}

// atToken returns a text, or the one with the token at which an answer ended, if it has any.
func atToken(ctx context.Context, a *live.Answer, text, withToken string) string {
	if a.Usage.CompletionTokens == 0 {
		return lang.T(ctx, text)
	}
	return lang.T(ctx, withToken, lang.Count(ctx, a.Usage.CompletionTokens))
}

// End returns why a ended; nil while it is running.
func End(ctx context.Context, a *live.Answer) *Ending {
	at := func(text, withToken string) string { return atToken(ctx, a, text, withToken) }
	switch {
	case a.State.Running():
		return nil
	case a.State == live.Interrupted:
		return &Ending{Kind: "interrupted", Text: lang.T(ctx, "the server stopped here")}
	case a.Rewritten:
		return &Ending{Kind: "edited", Text: lang.T(ctx, "edited by you")}
	case a.State == live.Failed:
		return &Ending{Kind: "failed", Text: at(lang.Key("failed"), lang.Key("failed at token %s"))}
	case a.State == live.Stopped && a.Reason == infer.FinishRepetition:
		return &Ending{Kind: "repetition", Text: at(lang.Key("paused, because it repeats itself"), lang.Key("paused, because it repeats itself, at token %s"))}
	case a.State == live.Stopped && a.Error != nil:
		return &Ending{Kind: "stopped", Text: at(lang.Key("stopped by the owner of the server"), lang.Key("stopped by the owner of the server at token %s"))}
	case a.State == live.Stopped:
		return &Ending{Kind: "stopped", Text: at(lang.Key("stopped by you"), lang.Key("stopped by you at token %s"))}
	case a.ContextFull && a.Context > 0:
		return &Ending{Kind: "context", Text: lang.N(ctx, a.Context, "context full, %s token", "context full, %s tokens", lang.Count(ctx, a.Context))}
	case a.ContextFull:
		return &Ending{Kind: "context", Text: lang.T(ctx, "context full")}
	case a.Reason == infer.FinishLength:
		return &Ending{Kind: "length", Text: lengthLimit(ctx, a)}
	case a.Call != nil:
		return &Ending{Kind: "call", Text: lang.T(ctx, "ended with a call of"), Code: a.Call.Name}
	case a.StopString != "":
		return &Ending{Kind: "stop_string", Text: lang.T(ctx, "stop string"), Code: a.StopString}
	}
	return &Ending{Kind: "finished", Text: lang.T(ctx, "finished")}
}

func lengthLimit(ctx context.Context, a *live.Answer) string {
	n := a.Settings.MaxTokens
	switch {
	case n <= 0:
		return lang.T(ctx, "length limit")
	case a.Usage.CompletionTokens > n: // it continues tokens that were there before
		return lang.N(ctx, n, "length limit, %s new token", "length limit, %s new tokens", lang.Count(ctx, n))
	}
	return lang.N(ctx, n, "length limit, %s token", "length limit, %s tokens", lang.Count(ctx, n))
}
