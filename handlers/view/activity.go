package view

import (
	"cmp"
	"context"
	"time"

	"m40-llm/handlers/activity"
	"m40-llm/infer"
	"m40-llm/infer/units"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// Activity describes the answers that are being generated, for the page of one person.
func Activity(ctx context.Context, list activity.List, status infer.Status) web.Activity {
	shown := web.Activity{Engine: Engine(ctx, status), Others: others(ctx, list.Others)}
	for _, a := range list.Answers {
		shown.Answers = append(shown.Answers, activeAnswer(ctx, a, status))
	}
	return shown
}

func activeAnswer(ctx context.Context, a activity.Answer, status infer.Status) web.ActiveAnswer {
	v := web.ActiveAnswer{ID: a.ID, Who: cmp.Or(a.Name, lang.T(ctx, "Somebody who was removed")), Own: a.Own, Kind: kindOf(ctx, a), State: string(a.State())}
	if a.Own {
		v.Who, v.Chat = lang.T(ctx, "You"), a.Chat
	}
	facts := []string{doing(ctx, a)}
	if a.Tokens > 0 {
		facts = []string{lang.T(ctx, "writes"), lang.N(ctx, a.Tokens, "%s token", "%s tokens", lang.Count(ctx, a.Tokens))}
		if a.Rate > 0 {
			facts = append(facts, lang.Figure(ctx, units.TokenRate(a.Rate))+" tok/s")
		}
	}
	v.Facts = Joined(" · ", append(facts, elapsed(ctx, a.For), web.NameOf(ctx, cmp.Or(a.Model, status.Model.Name)))...)
	return v
}

// kindOf says what asked for an answer.
func kindOf(ctx context.Context, a activity.Answer) string {
	switch {
	case a.Replay:
		return lang.T(ctx, "replay in a chat")
	case a.Compared:
		return lang.T(ctx, "comparison of answers")
	case a.Chat != "":
		return lang.T(ctx, "chat")
	case a.Key != "":
		return lang.T(ctx, "program with the key “%s”", a.Key)
	}
	return lang.T(ctx, "program")
}

// doing says what an answer without a token does.
func doing(ctx context.Context, a activity.Answer) string {
	last := a.Last
	switch {
	case a.Limit > 0:
		return lang.T(ctx, "waits for another answer to end: the limit is %d at once", a.Limit)
	case last.Pictures != nil:
		return lang.T(ctx, "reads pictures, %d of %d done", last.Pictures.Done, last.Pictures.Total)
	case last.Queued != nil:
		return lang.T(ctx, "number %s in the queue%s", lang.Count(ctx, last.Queued.Position), Wait(ctx, *last.Queued))
	case last.Loading != nil && last.Loading.Total > 0:
		return lang.T(ctx, "loads the model, %d %%%s", 100*last.Loading.Done/last.Loading.Total, about(ctx, last.Loading.LeftS))
	case last.Loading != nil:
		return lang.T(ctx, "loads the model")
	case last.Prefill != nil && last.Prefill.Total == 0: // another engine, which does not say how many tokens
		return lang.T(ctx, "reads the prompt")
	case last.Prefill != nil:
		return lang.T(ctx, "reads the prompt, %s of %s tokens", lang.Count(ctx, last.Prefill.Done), lang.Count(ctx, last.Prefill.Total))
	}
	return lang.T(ctx, "waits to begin")
}

// elapsed says for how long something has lasted, in seconds or in minutes.
func elapsed(ctx context.Context, d time.Duration) string {
	if d < 2*time.Minute {
		return lang.T(ctx, "for %d s", int(d.Seconds()))
	}
	return lang.T(ctx, "for %d min", int(d.Minutes()))
}

// others says what others than those listed do; empty if there are none.
func others(ctx context.Context, o activity.Others) string {
	if o.Running+o.Waiting == 0 {
		return ""
	}
	var parts []string
	if o.Running > 0 {
		parts = append(parts, lang.N(ctx, o.Running, "%s answer being written", "%s answers being written", lang.Count(ctx, o.Running)))
	}
	if o.Waiting > 0 {
		parts = append(parts, lang.N(ctx, o.Waiting, "%s answer waiting", "%s answers waiting", lang.Count(ctx, o.Waiting)))
	}
	return Joined(", ", parts...)
}
