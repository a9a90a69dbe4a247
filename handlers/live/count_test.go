package live

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

func TestCount_IsThatOfThePromptAndRendersALongChatOnce(t *testing.T) {
	engine := newScript()
	s := New(engine, Options{})
	defer s.Close()
	count := func(id, text string) Count {
		t.Helper()
		n, err := s.Count(context.Background(), me, id, Draft{Text: text, System: "be brief"})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got, want := count("", "one two"), (Count{Tokens: 5 + 5, Draft: 2, Context: 100}); !reflect.DeepEqual(got, want) {
		t.Errorf("in a new chat: got %+v, want %+v", got, want)
	}
	c, err := s.Start(context.Background(), me, Question{Text: "a b", System: "be brief", Settings: setting.Default()}, true)
	if err != nil {
		t.Fatal(err)
	}
	a := <-engine.asked
	a.write("c ", "d ", "e")
	a.finish()
	settle(c)

	engine.rendered.Store(0)
	for _, step := range []struct {
		text     string
		draft    int
		rendered int64
	}{
		{"x", 1, 1},
		{"x y", 2, 1},
		{"x y z", 3, 1},
		{strings.Repeat("w ", 70), 70, 2}, // near the end, where a token decides
		{"x", 1, 2},
	} {
		got, want := count(c.ID(), step.text), Count{Tokens: 5 + 5 + 6 + 3 + step.draft, Draft: step.draft, Context: 100}
		if !reflect.DeepEqual(got, want) || engine.rendered.Load() != step.rendered {
			t.Errorf("%.10q: got %+v after %d renderings, want %+v after %d", step.text, got, engine.rendered.Load(), want, step.rendered)
		}
	}
	if err := c.Rewrite(context.Background(), me, 0, "c d e f", ""); err != nil {
		t.Fatal(err)
	}
	if got := count(c.ID(), "x"); got.Tokens != 5+5+7+4 || engine.rendered.Load() != 3 {
		t.Errorf("after the answer has changed: %+v after %d renderings", got, engine.rendered.Load())
	}
	engine.load("other")
	if count(c.ID(), "x"); engine.rendered.Load() != 4 {
		t.Error("what one model counted was taken for another one's")
	}
}

func TestCount_RefusesWhatCannotBeSent(t *testing.T) {
	s := New(newScript(), Options{})
	defer s.Close()
	for name, c := range map[string]struct {
		chat  string
		draft Draft
	}{
		"an empty draft":            {"", Draft{Text: " \n"}},
		"a draft that is no UTF-8":  {"", Draft{Text: "\xff"}},
		"a system prompt like that": {"", Draft{Text: "x", System: "\xff"}},
		"a model like that":         {"", Draft{Text: "x", Opening: store.Opening{Model: "\xff"}}},
	} {
		if _, err := s.Count(context.Background(), me, c.chat, c.draft); !errors.As(err, new(*fault.Error)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := s.Count(context.Background(), me, "nowhere", Draft{Text: "x"}); !errors.Is(err, owned.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
