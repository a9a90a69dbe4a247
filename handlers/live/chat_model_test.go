package live

import (
	"context"
	"errors"
	"strings"
	"testing"

	"m40-llm/infer"
)

func TestAChatKeepsTheModelThatItWasGiven(t *testing.T) {
	for name, temporary := range map[string]bool{"a stored chat": false, "a temporary chat": true} {
		t.Run(name, func(t *testing.T) {
			kept := openStore(t, storePath(t))
			s, engine := newService(t, Options{Store: kept})
			c, err := s.Start(Question{Text: "one", Settings: DefaultSettings(), Model: "first"}, temporary)
			must(t, err)
			asks := func(want string) {
				t.Helper()
				a := <-engine.asked
				a.finish()
				settle(c)
				if a.request.Model != want {
					t.Errorf("the engine was asked for %q, want %q", a.request.Model, want)
				}
				if m := lastMessage(t, c); m.Answer.Model.Name != want && want != "" {
					t.Errorf("the answer is said to be of %q, want %q", m.Answer.Model.Name, want)
				}
			}
			asks("first")
			sub, _, err := c.Subscribe(0)
			must(t, err)
			must(t, s.SetModel(context.Background(), c.ID(), "second"))
			events, _ := sub.Take()
			if last := events[len(events)-1]; last.Type != EventModel || last.Text != "second" {
				t.Errorf("the readers were told %+v", last)
			}
			must(t, c.Send(question("two")))
			asks("second")
			must(t, c.Regenerate(0, "", DefaultSettings()))
			asks("second")
			must(t, c.Continue(0, DefaultSettings()))
			asks("second")
			fork, err := s.Fork(c, lastMessage(t, c).ID)
			must(t, err)
			copied, err := s.Chat(fork)
			must(t, err)
			if got := snapshotOf(copied).Model; got != "second" {
				t.Errorf("a fork is answered by %q", got)
			}
			if !temporary {
				s.Close()
				s, engine = newService(t, Options{Store: kept})
				c, err = s.Chat(c.ID())
				must(t, err)
			}
			if got := snapshotOf(c).Model; got != "second" {
				t.Errorf("later the chat is answered by %q", got)
			}
			must(t, s.SetModel(context.Background(), c.ID(), ""))
			must(t, c.Send(question("three")))
			asks("")
		})
	}
}

func TestAModelThatIsChosenIsChecked(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "one")
	a.finish()
	for name, model := range map[string]string{"too long": strings.Repeat("m", maxModel+1), "no text": "\xff"} {
		if e, ok := errors.AsType[*infer.Error](s.SetModel(context.Background(), c.ID(), model)); !ok || e.Param != "model" {
			t.Errorf("a name that is %s was taken", name)
		}
	}
	if err := s.SetModel(context.Background(), "nowhere", "m"); !errors.Is(err, ErrNotFound) {
		t.Errorf("for a chat that is not there: %v", err)
	}
}

func TestAnAnswerOfAModelThatIsStillToBeLoadedSaysSo(t *testing.T) {
	s, engine := newService(t, Options{})
	c, err := s.Start(Question{Text: "one", Settings: DefaultSettings(), Model: "other"}, false)
	must(t, err)
	a := <-engine.asked
	if m := lastMessage(t, c); m.Answer.Model.Name != "other" || m.Answer.Context != 0 {
		t.Errorf("while it waits: model %q, context %d", m.Answer.Model.Name, m.Answer.Context)
	}
	a.do(infer.Event{Type: infer.EventDone, Done: &infer.Done{Reason: infer.FinishStop, Receipt: infer.Receipt{Model: "test"}}}, nil)
	settle(c)
	if m := lastMessage(t, c); m.Answer.Model.Name != "test" || m.Answer.Context != 100 {
		t.Errorf("at the end: model %q, context %d", m.Answer.Model.Name, m.Answer.Context)
	}
}
