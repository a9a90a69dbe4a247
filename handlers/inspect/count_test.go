package inspect_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// renderings counts the prompts that a Script renders.
type renderings struct {
	*handlerstest.Script
	n atomic.Int64
}

func (r *renderings) Render(ctx context.Context, request infer.Request) (infer.Rendered, error) {
	r.n.Add(1)
	return r.Script.Render(ctx, request)
}

func TestCount_IsThatOfThePromptAndRendersALongChatOnce(t *testing.T) {
	engine := &renderings{Script: handlerstest.NewScript()}
	engine.Set(func(s *infer.Status) { s.ContextLength = 100 })
	chats := live.New(engine, live.Options{})
	t.Cleanup(chats.Close)
	s := inspect.New(chats)
	count := func(id, text string) inspect.Count {
		t.Helper()
		n, err := s.Count(context.Background(), me, id, live.Draft{Text: text, System: "be brief"})
		must(t, err)
		return n
	}
	if got, want := count("", "one two"), (inspect.Count{Tokens: 5 + 5, Draft: 2, Context: 100}); !reflect.DeepEqual(got, want) {
		t.Errorf("in a new chat: got %+v, want %+v", got, want)
	}
	q := question("a b")
	q.System = "be brief"
	c, err := chats.Start(context.Background(), me, q, true)
	must(t, err)
	a := engine.Next(t)
	a.Write("c ", "d ", "e")
	a.Finish()
	last(t, c)

	engine.n.Store(0)
	for _, step := range []struct {
		text     string
		draft    int
		rendered int64
	}{
		{"x", 1, 1},
		{"x y", 2, 1},
		{"x y z", 3, 1},
		{strings.Repeat("w ", 70), 70, 2}, // near the end, where one token matters
		{"x", 1, 2},
	} {
		got, want := count(c.ID(), step.text), inspect.Count{Tokens: 5 + 5 + 6 + 3 + step.draft, Draft: step.draft, Context: 100}
		if !reflect.DeepEqual(got, want) || engine.n.Load() != step.rendered {
			t.Errorf("%.10q: got %+v after %d renderings, want %+v after %d", step.text, got, engine.n.Load(), want, step.rendered)
		}
	}
	must(t, c.Rewrite(context.Background(), me, 0, "c d e f", ""))
	if got := count(c.ID(), "x"); got.Tokens != 5+5+7+4 || engine.n.Load() != 3 {
		t.Errorf("after the answer has changed: %+v after %d renderings", got, engine.n.Load())
	}
	engine.Set(func(s *infer.Status) { s.Model.Name = "other" })
	must(t, chats.SetModel(context.Background(), me, c.ID(), "other"))
	if count(c.ID(), "x"); engine.n.Load() != 4 {
		t.Error("what one model counted was taken for another one's")
	}
	question := snapshot(t, c).Messages[0].ID
	must(t, c.Delete(context.Background(), me, question))
	if got := count(c.ID(), "x"); got.Tokens != 5+7+4 || engine.n.Load() != 5 {
		t.Errorf("after a message before the last was deleted: %+v after %d renderings", got, engine.n.Load())
	}
}

func TestCount_RefusesWhatCannotBeSent(t *testing.T) {
	l := newLooking(t)
	for name, c := range map[string]struct {
		chat  string
		draft live.Draft
	}{
		"an empty draft":            {"", live.Draft{Text: " \n"}},
		"a draft that is no UTF-8":  {"", live.Draft{Text: "\xff"}},
		"a system prompt like that": {"", live.Draft{Text: "x", System: "\xff"}},
		"a model like that":         {"", live.Draft{Text: "x", Opening: store.Opening{Model: "\xff"}}},
	} {
		if _, err := l.Count(context.Background(), me, c.chat, c.draft); !errors.As(err, new(*fault.Error)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := l.Count(context.Background(), me, "nowhere", live.Draft{Text: "x"}); !errors.Is(err, owned.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
