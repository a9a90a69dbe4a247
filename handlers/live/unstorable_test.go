package live

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// What an engine says may come from another server. An answer whose figures cannot be stored ends without them, one whose
// text or call cannot be as failed, with what can be stored of its text. Neither holds up its chat, nor the others.
func TestAnAnswerThatCannotBeStoredHoldsUpNothing(t *testing.T) {
	ctx := context.Background()
	done := func(d infer.Done) infer.Event { return infer.Event{Type: infer.EventDone, Done: &d} }
	scored := func(p float64) infer.Event {
		return infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: "x", Choice: sample.Choice{ID: 1, LogProb: p}}}
	}
	params := func(change func(*sample.Params)) infer.Event {
		var d infer.Done
		d.Reason, d.Receipt.Params = infer.FinishStop, sample.DefaultParams()
		change(&d.Receipt.Params)
		return done(d)
	}
	lost := []string{"a name of a function that is a flood", "a text that is a flood"} // others lose figures alone
	for name, events := range map[string][]infer.Event{
		"log probabilities without a sum":      {scored(-1e308), scored(-1e308), done(infer.Done{})},
		"a log probability that is none":       {scored(math.NaN()), done(infer.Done{})},
		"a log probability without an end":     {scored(math.Inf(-1)), done(infer.Done{})},
		"an end of infinite probability":       {scored(-1), done(infer.Done{Answer: record.Answer{End: record.End{EndProb: math.Inf(1)}}})},
		"a setting that is infinite":           {scored(-1), params(func(p *sample.Params) { p.Temperature = math.Inf(1) })},
		"a bias that is none":                  {scored(-1), params(func(p *sample.Params) { p.LogitBias = map[int32]float64{1: math.NaN()} })},
		"a name of a function that is a flood": {done(infer.Done{Calls: []reply.CallDelta{{ID: "c", Name: strings.Repeat("n", 2000), Arguments: "{}"}}})},
		"a hash that is a flood":               {done(infer.Done{Answer: record.Answer{Receipt: record.Receipt{ModelHash: strings.Repeat("a", 2000)}}})},
		"a row of candidates that is a flood":  {{Type: infer.EventToken, Token: &infer.Token{Text: "x", Choice: sample.Choice{ID: 1, Row: make([]byte, 5000)}}}, done(infer.Done{})},
		"a text that is a flood":               {{Type: infer.EventToken, Token: &infer.Token{Text: strings.Repeat("é", store.MaxText/2+1)}}, done(infer.Done{})},
	} {
		t.Run(name, func(t *testing.T) {
			db := openStore(t, filepath.Join(t.TempDir(), "chats.db"))
			s, engine := newService(t, Options{Store: db})
			other, err := s.Start(ctx, me, question("Another"), false)
			must(t, err)
			beside := <-engine.asked
			c, err := s.Start(ctx, me, question("Hello"), false)
			must(t, err)
			a := <-engine.asked
			a.do(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: "Hi. "}}, nil)
			beside.do(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: "Beside."}}, nil)
			for i, e := range events {
				if i == len(events)-1 { // while it is written
					(&saver{}).save(s)
					if got := storedText(t, db, other.ID()).Text; got != "Beside." {
						t.Errorf("of the answer beside it %q is saved", got)
					}
				}
				a.do(e, nil)
			}
			settle(c)
			last := lastMessage(t, c)
			if !slices.Contains(lost, name) {
				if stored := storedText(t, db, c.ID()); last.Answer.State != Done || last.Text != "Hi. x" && last.Text != "Hi. xx" && last.Text != "Hi. " || stored.State != store.Done || stored.Text != last.Text {
					t.Errorf("the answer ended as %s, %v, with %q; stored is %s with %q", last.Answer.State, last.Answer.Error, last.Text, stored.State, stored.Text)
				}
			} else if last.Answer.State != Failed || last.Answer.Error == nil || !strings.Contains(last.Answer.Error.Message, "cannot be stored") || !strings.HasPrefix(last.Text, "Hi. ") {
				t.Errorf("the answer ended as %s, %v, with %.10q", last.Answer.State, last.Answer.Error, last.Text)
			}
			if stored := storedText(t, db, c.ID()); slices.Contains(lost, name) && stored.State != store.Failed || !strings.HasPrefix(stored.Text, "Hi. ") || len(stored.Text) < min(len(last.Text), store.MaxText-1) {
				t.Errorf("stored is %s with %d bytes", stored.State, len(stored.Text))
			}
			err = c.Send(ctx, me, question("Still there?"))
			if name == "a text that is a flood" {
				if err == nil || !strings.Contains(err.Error(), "start a new chat") {
					t.Errorf("a chat that is full says %v", err)
				}
				return
			}
			must(t, err)
			a = <-engine.asked
			a.do(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: "Yes."}}, nil)
			a.do(done(infer.Done{}), nil)
			settle(c)
			if got := lastMessage(t, c); got.Text != "Yes." || got.Answer.State != Done {
				t.Errorf("the next answer is %q, %s", got.Text, got.Answer.State)
			}
		})
	}
}
