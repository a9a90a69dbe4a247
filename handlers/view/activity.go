package view

import (
	"cmp"
	"fmt"
	"time"

	"m40-llm/handlers/activity"
	"m40-llm/infer"
	"m40-llm/infer/units"
	"m40-llm/web"
)

// Activity describes the answers that are being generated, for the page of one person.
func Activity(list activity.List, status infer.Status) web.Activity {
	shown := web.Activity{Engine: Engine(status), Others: others(list.Others)}
	for _, a := range list.Answers {
		shown.Answers = append(shown.Answers, activeAnswer(a, status))
	}
	return shown
}

func activeAnswer(a activity.Answer, status infer.Status) web.ActiveAnswer {
	v := web.ActiveAnswer{ID: a.ID, Who: cmp.Or(a.Name, "Somebody who was removed"), Own: a.Own, Kind: kindOf(a), State: string(a.State())}
	if a.Own {
		v.Who, v.Chat = "You", a.Chat
	}
	facts := []string{doing(a)}
	if a.Tokens > 0 {
		facts = []string{"writes", web.Counted(a.Tokens, "token")}
		if a.Rate > 0 {
			facts = append(facts, units.TokenRate(a.Rate)+" tok/s")
		}
	}
	v.Facts = Joined(" · ", append(facts, elapsed(a.For), web.NameOf(cmp.Or(a.Model, status.Model.Name)))...)
	return v
}

// kindOf says what asked for an answer.
func kindOf(a activity.Answer) string {
	switch {
	case a.Replay:
		return "replay in a chat"
	case a.Compared:
		return "comparison of answers"
	case a.Chat != "":
		return "chat"
	case a.Key != "":
		return "program with the key “" + a.Key + "”"
	}
	return "program"
}

// doing says what an answer without a token does.
func doing(a activity.Answer) string {
	last := a.Last
	switch {
	case a.Limit > 0:
		return fmt.Sprintf("waits for another answer to end: the limit is %d at once", a.Limit)
	case last.Pictures != nil:
		return fmt.Sprintf("reads pictures, %d of %d done", last.Pictures.Done, last.Pictures.Total)
	case last.Queued != nil:
		return fmt.Sprintf("number %s in the queue%s", web.Thousands(last.Queued.Position), Wait(*last.Queued))
	case last.Loading != nil && last.Loading.Total > 0:
		return fmt.Sprintf("loads the model, %d %%%s", 100*last.Loading.Done/last.Loading.Total, about(last.Loading.LeftS))
	case last.Loading != nil:
		return "loads the model"
	case last.Prefill != nil && last.Prefill.Total == 0: // another engine, which does not say how many tokens
		return "reads the prompt"
	case last.Prefill != nil:
		return fmt.Sprintf("reads the prompt, %s of %s tokens", web.Thousands(last.Prefill.Done), web.Thousands(last.Prefill.Total))
	}
	return "waits to begin"
}

// elapsed says for how long something has lasted, in seconds or in minutes.
func elapsed(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("for %d s", int(d.Seconds()))
	}
	return fmt.Sprintf("for %d min", int(d.Minutes()))
}

// others says what others than those listed do; empty if there are none.
func others(o activity.Others) string {
	if o.Running+o.Waiting == 0 {
		return ""
	}
	var parts []string
	if o.Running > 0 {
		parts = append(parts, web.Counted(o.Running, "answer")+" being written")
	}
	if o.Waiting > 0 {
		parts = append(parts, web.Counted(o.Waiting, "answer")+" waiting")
	}
	return Joined(", ", parts...)
}
