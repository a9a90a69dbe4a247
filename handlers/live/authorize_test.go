package live

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/infer/kvfile"
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
		mine := s.Changes(me)
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
				"regenerate": c.Regenerate(ctx, who, 0, "", DefaultSettings()),
				"rewrite":    c.Rewrite(ctx, who, 0, "x", ""),
				"continue":   c.Continue(ctx, who, 0, DefaultSettings()),
				"past end":   c.ContinuePastEnd(ctx, who, 0, DefaultSettings()),
				"rewind":     c.Rewind(ctx, who, 0, 0, Next{}, DefaultSettings()),
				"select":     c.Select(ctx, who, 1, 0),
				"stop":       c.Stop(ctx, who, 0),
				"recipe":     second(c.Recipe(ctx, who, 0)),
				"panel":      second(c.SetPanel(ctx, who, Panel{Settings: DefaultSettings()}, "")),
				"fork":       second(s.Fork(ctx, who, c, 1)),
				"tree":       func() error { _, _, err := s.Tree(ctx, who, c.ID()); return err }(),
				"about":      second(s.Conversation(ctx, who, c.ID())),
				"rename":     s.Rename(ctx, who, c.ID(), "x"),
				"model":      s.SetModel(ctx, who, c.ID(), "x"),
				"move":       s.Move(ctx, who, c.ID(), "x"),
				"pin":        s.Pin(ctx, who, c.ID(), true),
				"archive":    s.Archive(ctx, who, c.ID(), true),
				"delete":     s.Delete(ctx, who, c.ID()),
				"restore":    s.Restore(ctx, who, c.ID()),
				"count":      second(s.Count(ctx, who, c.ID(), Draft{Text: "x"})),
				"use preset": s.UsePreset(ctx, who, c.ID(), "precise"),
			} {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("%s as %q, temporary %v: %v", name, who.Owner, temporary, err)
				}
			}
			if s.Running(who, c.ID()) {
				t.Errorf("%q sees that the chat runs", who.Owner)
			}
		}
		list, err := s.Conversations(ctx, Principal{Owner: "another"}, store.Filter{})
		if err != nil || len(list) != 0 {
			t.Errorf("another's list has %+v (%v)", list, err)
		}
		if _, err := s.Presets(ctx, Principal{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("nobody's presets: %v", err)
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

// The limits of what is stored of all people are the owner's of the server.
func TestTheLimitsOfTheServerAreItsOwners(t *testing.T) {
	caches, err := kvfile.OpenDir(filepath.Join(t.TempDir(), "kv"))
	must(t, err)
	s, _ := newService(t, Options{Store: openStore(t, storePath(t)), KVFiles: caches})
	limits, _, err := s.RowLimits(t.Context(), me)
	must(t, err)
	for name, who := range map[string]Principal{"nobody": {}, "a person": {Owner: "another"}, "a guest": {Share: &store.Share{Owner: me.Owner}, Writer: 1}} {
		if err := s.SetRowLimits(t.Context(), who, limits); !errors.Is(err, access.ErrDenied) {
			t.Errorf("%s sets how long candidates are stored: %v", name, err)
		}
		if err := s.SetKVLimit(t.Context(), who, 1); !errors.Is(err, access.ErrDenied) {
			t.Errorf("%s sets how large the KV caches are: %v", name, err)
		}
	}
	must(t, s.SetRowLimits(t.Context(), me, limits))
	must(t, s.SetKVLimit(t.Context(), me, 1))
}

func second[T any](_ T, err error) error { return err }
