package live

import (
	"context"
	"errors"
	"testing"

	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/store"
)

// Every use case refuses who may not see the object, as if the object did not exist.
func TestAChatOfAnotherDoesNotExist(t *testing.T) {
	ctx := context.Background()
	for _, temporary := range []bool{false, true} {
		s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
		c, err := s.Start(ctx, me, question("mine"), temporary)
		must(t, err)
		a := <-engine.asked
		a.write("text")
		a.finish()
		settle(c)
		mine := s.List.Changes(me)
		for _, who := range []Principal{{}, {Owner: "another"}} {
			for name, err := range map[string]error{
				"open":       second(s.Chat(ctx, who, c.ID())),
				"read":       func() error { _, _, err := c.Subscribe(ctx, who, 0); return err }(),
				"read at":    func() error { _, _, err := c.SubscribeAt(ctx, who, 1); return err }(),
				"snapshot":   second(c.Snapshot(ctx, who, 1)),
				"older":      func() error { _, _, err := c.Older(ctx, who, 1); return err }(),
				"newer":      func() error { _, _, err := c.Newer(ctx, who, 1); return err }(),
				"send":       c.Send(ctx, who, question("x")),
				"edit":       c.Edit(ctx, who, 1, question("x")),
				"regenerate": c.Regenerate(ctx, who, 0, "", setting.Default()),
				"rewrite":    c.Rewrite(ctx, who, 0, "x", ""),
				"continue":   c.Continue(ctx, who, 0, setting.Default()),
				"past end":   c.ContinuePastEnd(ctx, who, 0, setting.Default()),
				"rewind":     c.Rewind(ctx, who, 0, 0, Next{}, setting.Default()),
				"select":     c.Select(ctx, who, 1, 0),
				"stop":       c.Stop(ctx, who, 0),
				"recipe":     second(c.Recipe(ctx, who, 0)),
				"panel":      second(c.SetPanel(ctx, who, Panel{Settings: setting.Default()}, "")),
				"fork":       second(s.Fork(ctx, who, c, 1)),
				"tree":       func() error { _, _, err := s.Tree(ctx, who, c.ID()); return err }(),
				"about":      second(s.Conversation(ctx, who, c.ID())),
				"rename":     s.Rename(ctx, who, c.ID(), "x"),
				"model":      s.SetModel(ctx, who, c.ID(), "x"),
				"move":       s.List.Move(ctx, who, c.ID(), "x"),
				"pin":        s.List.Pin(ctx, who, c.ID(), true),
				"archive":    s.List.Archive(ctx, who, c.ID(), true),
				"delete":     s.Delete(ctx, who, c.ID()),
				"restore":    s.Restore(ctx, who, c.ID()),
				"count":      second(s.DraftRequest(ctx, who, c.ID(), Draft{Text: "x"})),
				"use preset": c.UsePanel(ctx, who, Panel{Settings: setting.Default()}, "", nil),
			} {
				if !errors.Is(err, owned.ErrNotFound) {
					t.Errorf("%s as %q, temporary %v: %v", name, who.Owner, temporary, err)
				}
			}
			if s.Running(who, c.ID()) {
				t.Errorf("%q sees that the chat runs", who.Owner)
			}
		}
		list, err := s.List.Conversations(ctx, Principal{Owner: "another"}, store.Filter{})
		if err != nil || len(list) != 0 {
			t.Errorf("another's list has %+v (%v)", list, err)
		}
		if m := lastMessage(t, c); m.Text != "text" {
			t.Errorf("afterwards the chat ends with %q", m.Text)
		}
		theirs, err := s.Start(ctx, Principal{Owner: "another"}, question("theirs"), false)
		must(t, err)
		if a := <-engine.asked; a.request.Client != "another" {
			t.Errorf("the engine was asked for %q", a.request.Client)
		} else {
			a.finish()
		}
		settle(theirs)
		select {
		case <-mine:
			t.Error("a change of another's list was told")
		default:
		}
	}
}

func second[T any](_ T, err error) error { return err }
