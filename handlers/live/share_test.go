package live

import (
	"context"
	"errors"
	"strings"
	"testing"

	"m40-llm/handlers/links"
	"m40-llm/handlers/owned"
)

func TestShare_RefusesWhatCannotBeShared(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "Why?")
	temporary, err := s.Start(context.Background(), me, question("Hush"), true)
	must(t, err)
	hushed := <-engine.asked
	for _, tc := range []struct {
		name string
		who  Principal
		chat string
		n    links.Wanted
		want string
	}{
		{"a temporary chat", me, temporary.ID(), links.Wanted{Live: true}, "a temporary chat is never stored"},
		{"a chat as it is, while it is being answered", me, c.ID(), links.Wanted{}, "cannot share the chat as it is while an answer is being written"},
		{"from a message that it does not have", me, c.ID(), links.Wanted{Live: true, First: 99}, "no message 99"},
		{"a chat of somebody else", Principal{Owner: "other"}, c.ID(), links.Wanted{Live: true}, owned.ErrNotFound.Error()},
		{"on behalf of nobody", Principal{}, c.ID(), links.Wanted{Live: true}, owned.ErrNotFound.Error()},
	} {
		if _, err := s.Links.Add(context.Background(), tc.who, tc.chat, tc.n); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
	share, err := s.Links.Add(context.Background(), me, c.ID(), links.Wanted{Live: true})
	must(t, err)
	if err := s.Links.End(context.Background(), Principal{Owner: "other"}, c.ID(), share.ID); !errors.Is(err, owned.ErrNotFound) {
		t.Errorf("somebody else ended a link: %v", err)
	}
	for range 19 {
		_, err := s.Links.Add(context.Background(), me, c.ID(), links.Wanted{Live: true})
		must(t, err)
	}
	if _, err := s.Links.Add(context.Background(), me, c.ID(), links.Wanted{Live: true}); err == nil || !strings.Contains(err.Error(), "20 links already") {
		t.Errorf("a link too many: %v", err)
	}
	a.finish()
	hushed.finish()
	settle(c)
	settle(temporary)
}

func TestAFollowerMayDoNothingElse(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "Why?")
	a.finish()
	settle(c)
	other, b := start(t, s, engine, "What else?")
	b.finish()
	settle(other)
	share, err := s.Links.Add(context.Background(), me, c.ID(), links.Wanted{Live: true})
	must(t, err)
	ctx := context.Background()
	who, err := s.Links.Follower(ctx, share.Token)
	must(t, err)
	if _, err := s.Links.Follower(ctx, share.Token[:20]); !errors.Is(err, links.ErrNotShared) {
		t.Errorf("a part of a link: %v", err)
	}
	question := question("Mine?")
	for name, do := range map[string]func() error{
		"read the chat":       func() error { _, err := s.Chat(ctx, who, c.ID()); return err },
		"subscribe":           func() error { _, _, err := c.Subscribe(ctx, who, 0); return err },
		"read a snapshot":     func() error { _, err := c.Snapshot(ctx, who, 0); return err },
		"read older messages": func() error { _, _, err := c.Older(ctx, who, 2); return err },
		"ask":                 func() error { return c.Send(ctx, who, question) },
		"begin a chat":        func() error { _, err := s.Start(ctx, who, question, false); return err },
		"stop":                func() error { return c.Stop(ctx, who, 0) },
		"list the chats":      func() error { _, err := s.List.Folders(ctx, who); return err },
		"list the links":      func() error { _, err := s.Links.List(ctx, who, c.ID()); return err },
		"share on":            func() error { _, err := s.Links.Add(ctx, who, c.ID(), links.Wanted{Live: true}); return err },
		"end the link":        func() error { return s.Links.End(ctx, who, c.ID(), share.ID) },
		"delete the chat":     func() error { return s.Delete(ctx, who, c.ID()) },
		"read another chat":   func() error { _, err := s.Chat(ctx, who, other.ID()); return err },
	} {
		if err := do(); !errors.Is(err, owned.ErrNotFound) {
			t.Errorf("a follower may %s: %v", name, err)
		}
	}
	if _, err := s.Linked(ctx, me); !errors.Is(err, links.ErrNotShared) {
		t.Errorf("who has no link follows: %v", err)
	}
	if _, err := s.Links.Seat(ctx, me); !errors.Is(err, links.ErrNotShared) {
		t.Errorf("who has no link takes a seat: %v", err)
	}
}
