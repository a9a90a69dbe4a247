package live

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// What an engine says may come from another server. An answer that cannot be stored as it was made
// ends as failed with its text, and holds up neither its chat nor the others.
func TestAnAnswerThatCannotBeStoredHoldsUpNothing(t *testing.T) {
	ctx := context.Background()
	done := func(d infer.Done) infer.Event { return infer.Event{Type: infer.EventDone, Done: &d} }
	for name, events := range map[string][]infer.Event{
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
			if last.Answer.State != Failed || last.Answer.Error == nil || !strings.Contains(last.Answer.Error.Message, "cannot be stored") || !strings.HasPrefix(last.Text, "Hi. ") {
				t.Errorf("the answer ended as %s, %v, with %.10q", last.Answer.State, last.Answer.Error, last.Text)
			}
			if stored := storedText(t, db, c.ID()); stored.State != store.Failed || !strings.HasPrefix(stored.Text, "Hi. ") || len(stored.Text) < min(len(last.Text), store.MaxText-1) {
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
