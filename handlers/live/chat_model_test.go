package live

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	"m40-llm/handlers/choice"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/store"
)

func TestAChatKeepsTheModelThatItWasGiven(t *testing.T) {
	for name, temporary := range map[string]bool{"a stored chat": false, "a temporary chat": true} {
		t.Run(name, func(t *testing.T) {
			db := openStore(t, storePath(t))
			s, engine := newService(t, Options{Store: db})
			c, err := s.Start(context.Background(), me, Question{Text: "one", Settings: setting.Default(), Opening: store.Opening{Model: "first"}}, temporary)
			must(t, err)
			asks := func(want string) {
				t.Helper()
				a := <-engine.asked
				a.finish()
				settle(c)
				if a.request.Model != want {
					t.Errorf("the engine was asked for %q, want %q", a.request.Model, want)
				}
				if m := lastMessage(t, c); m.Answer.Receipt.Model != want {
					t.Errorf("the answer is said to be of %q, want %q", m.Answer.Receipt.Model, want)
				}
			}
			asks("first")
			sub, _, err := c.Subscribe(context.Background(), me, 0)
			must(t, err)
			must(t, s.SetModel(context.Background(), me, c.ID(), "second"))
			events, _ := sub.Take()
			if last := events[len(events)-1]; last.Type != EventModel || last.Text != "second" {
				t.Errorf("the readers were told %+v", last)
			}
			must(t, c.Send(context.Background(), me, question("two")))
			asks("second")
			must(t, c.Regenerate(context.Background(), me, 0, "", setting.Default()))
			asks("second")
			must(t, c.Continue(context.Background(), me, 0, setting.Default()))
			asks("second")
			fork, err := s.Fork(context.Background(), me, c, lastMessage(t, c).ID)
			must(t, err)
			copied, err := s.Chat(context.Background(), me, fork)
			must(t, err)
			if got := snapshotOf(copied).Model; got != "second" {
				t.Errorf("a fork is answered by %q", got)
			}
			if !temporary {
				s.Close()
				s, engine = newService(t, Options{Store: db})
				c, err = s.Chat(context.Background(), me, c.ID())
				must(t, err)
			}
			if got := snapshotOf(c).Model; got != "second" {
				t.Errorf("later the chat is answered by %q", got)
			}
			must(t, s.SetModel(context.Background(), me, c.ID(), ""))
			must(t, c.Send(context.Background(), me, question("three")))
			asks("test")
		})
	}
}

func TestAChatKeepsTheModelOfItsFirstAnswerWhenAnotherIsLoaded(t *testing.T) {
	for name, temporary := range map[string]bool{"a stored chat": false, "a temporary chat": true} {
		t.Run(name, func(t *testing.T) {
			db := openStore(t, storePath(t))
			s, engine := newService(t, Options{Store: db})
			engine.load("first")
			c, err := s.Start(context.Background(), me, question("one"), temporary)
			must(t, err)
			asked := func() string {
				a := <-engine.asked
				a.finish()
				settle(c)
				return a.request.Model
			}
			asked()
			engine.load("second") // for another chat
			for what, ask := range map[string]func() error{
				"a question":                   func() error { return c.Send(context.Background(), me, question("two")) },
				"another version of an answer": func() error { return c.Regenerate(context.Background(), me, 0, "", setting.Default()) },
				"the rest of an answer":        func() error { return c.Continue(context.Background(), me, 0, setting.Default()) },
			} {
				must(t, ask())
				if got := asked(); got != "first" {
					t.Errorf("for %s the engine was asked for %q", what, got)
				}
			}
			fork, err := s.Fork(context.Background(), me, c, lastMessage(t, c).ID)
			must(t, err)
			copied, err := s.Chat(context.Background(), me, fork)
			must(t, err)
			if got := snapshotOf(copied).Model; got != "first" {
				t.Errorf("a fork is answered by %q", got)
			}
			if temporary {
				return
			}
			s.Close()
			s, engine = newService(t, Options{Store: db})
			engine.load("second")
			c, err = s.Chat(context.Background(), me, c.ID())
			must(t, err)
			must(t, c.Send(context.Background(), me, question("three")))
			if got := asked(); got != "first" {
				t.Errorf("after a restart the engine was asked for %q", got)
			}
		})
	}
}

// Chats that began before chats had a model have none stored, and imported ones may not.
func TestAChatWithoutAModelGoesOnWithThatOfItsFirstAnswer(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	id, err := importList(s, store.Metadata{Title: "old"}, []store.Message{
		{ID: 1, Role: store.RoleUser, State: store.Done, Text: "one"},
		{ID: 2, Parent: 1, Role: store.RoleAssistant, State: store.Done, Text: "by hand"},
		{ID: 3, Parent: 2, Role: store.RoleUser, State: store.Done, Text: "two"},
		{ID: 4, Parent: 3, Role: store.RoleAssistant, State: store.Done, Text: "2", Answer: answerOf("first")},
		{ID: 5, Parent: 4, Role: store.RoleUser, State: store.Done, Text: "three"},
		{ID: 6, Parent: 5, Role: store.RoleAssistant, State: store.Done, Text: "3", Answer: answerOf("second")},
	}, 6)
	must(t, err)
	c, err := s.Chat(context.Background(), me, id)
	must(t, err)
	must(t, c.Send(context.Background(), me, question("four")))
	if got := (<-engine.asked).request.Model; got != "first" {
		t.Errorf("the engine was asked for %q", got)
	}
}

func TestTheModelThatAPersonChoseLastIsRemembered(t *testing.T) {
	db := openStore(t, storePath(t))
	s, engine := newService(t, Options{Store: db})
	chosen := func(want string) {
		t.Helper()
		if got, err := s.Choice.Model(context.Background(), me); err != nil || got != want {
			t.Errorf("the model chosen last is %q (%v), want %q", got, err, want)
		}
	}
	c, a := start(t, s, engine, "one")
	a.finish()
	chosen("") // nobody has chosen the one that was loaded
	must(t, s.SetModel(context.Background(), me, c.ID(), "first"))
	chosen("first")
	_, err := s.Start(context.Background(), me, Question{Text: "two", Settings: setting.Default(), Opening: store.Opening{Model: "second"}}, true)
	must(t, err)
	chosen("second")
	s.Close()
	s, _ = newService(t, Options{Store: db})
	chosen("second")
}

func TestAModelThatChatsBeginWithAnywayIsNoChoice(t *testing.T) {
	first := "flag"
	s, engine := newService(t, Options{Store: openStore(t, storePath(t)), FirstModel: func(_ context.Context, chosen string) string { return cmp.Or(chosen, first) }})
	for _, step := range []struct{ model, want string }{
		{"flag", "flag"}, {"flag", "later flag"}, // nobody has chosen it
		{"other", "other"}, {"later flag", "later flag"}, {"other", "other"}, // somebody has chosen each
	} {
		c, err := s.Start(t.Context(), me, Question{Text: "one", Settings: setting.Default(), Opening: store.Opening{Model: step.model}}, false)
		must(t, err)
		(<-engine.asked).finish()
		settle(c)
		if step.want == "later flag" {
			first = "later flag"
		}
		if got, err := s.Choice.Model(t.Context(), me); err != nil || got != step.want {
			t.Errorf("after a chat with %q new ones begin with %q (%v), want %q", step.model, got, err, step.want)
		}
	}
}

func TestAModelThatStandsInForTheChosenOneIsNoChoice(t *testing.T) {
	away := false
	s, engine := newService(t, Options{Store: openStore(t, storePath(t)), FirstModel: func(_ context.Context, chosen string) string {
		if away || chosen == "" {
			return "here"
		}
		return chosen
	}})
	begin := func(model, want string) {
		t.Helper()
		c, err := s.Start(t.Context(), me, Question{Text: "one", Settings: setting.Default(), Opening: store.Opening{Model: model}}, false)
		must(t, err)
		(<-engine.asked).finish()
		settle(c)
		if got, err := s.Choice.Model(t.Context(), me); err != nil || got != want {
			t.Errorf("after a chat with %q, %q is chosen (%v), want %q", model, got, err, want)
		}
	}
	begin("far", "far")
	away = true // its server is down
	begin("here", "far")
	begin("other", "other") // which the page does not begin with
	away = false
	begin("far", "far")
	begin("here", "here")
}

func TestAModelThatIsChosenIsChecked(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "one")
	a.finish()
	for name, model := range map[string]string{"too long": strings.Repeat("m", choice.MaxModel+1), "no text": "\xff"} {
		if e, ok := errors.AsType[*fault.Error](s.SetModel(context.Background(), me, c.ID(), model)); !ok || e.Param != "model" {
			t.Errorf("a name that is %s was taken", name)
		}
	}
	if err := s.SetModel(context.Background(), me, "nowhere", "m"); !errors.Is(err, owned.ErrNotFound) {
		t.Errorf("for a chat that is not there: %v", err)
	}
}

func TestAnAnswerOfAModelThatIsStillToBeLoadedSaysSo(t *testing.T) {
	s, engine := newService(t, Options{})
	c, err := s.Start(context.Background(), me, Question{Text: "one", Settings: setting.Default(), Opening: store.Opening{Model: "other"}}, false)
	must(t, err)
	a := <-engine.asked
	if m := lastMessage(t, c); m.Answer.Receipt.Model != "other" || m.Answer.Context != 0 {
		t.Errorf("while it waits: model %q, context %d", m.Answer.Receipt.Model, m.Answer.Context)
	}
	a.do(infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{End: record.End{Reason: infer.FinishStop}, Receipt: record.Receipt{Model: "test"}}}}, nil)
	settle(c)
	if m := lastMessage(t, c); m.Answer.Receipt.Model != "test" || m.Answer.Context != 100 {
		t.Errorf("at the end: model %q, context %d", m.Answer.Receipt.Model, m.Answer.Context)
	}
}

// answerOf is the record of an answer of a model.
func answerOf(model string) *store.Answer {
	return &store.Answer{Answer: record.Answer{Receipt: record.Receipt{Model: model}}}
}
