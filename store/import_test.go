package store

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestImport(t *testing.T) {
	s := mustOpen(t, testOptions(t))
	at := time.UnixMilli(1_700_000_000_000).UTC()
	answer := of("m")
	answer.Settings, answer.Seed, answer.Usage.CompletionTokens, answer.Tokens = json.RawMessage(`{"top_k":3}`), 7, 2, []int32{5, 6}
	list := []Message{
		{ID: 10, Role: RoleUser, State: Done, Text: "one", Created: at},
		{ID: 20, Parent: 10, Role: RoleAssistant, State: Stopped, Text: "first words", Created: at, Answer: &answer},
		{ID: 15, Parent: 10, Role: RoleAssistant, State: Running, Text: "second", Created: at, Answer: &answer},
		{ID: 21, Parent: 20, Role: RoleUser, State: Done, Text: "two", Created: at},
	}
	t.Run("a tree comes back with the branch that was shown", func(t *testing.T) {
		c, err := importList(s, me, Metadata{Title: "copy"}, list, 15)
		if err != nil {
			t.Fatal(err)
		}
		branch, err := s.Branch(ctx, me, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if len(branch) != 2 || branch[0].Text != "one" || branch[1].Text != "second" || branch[1].State != Interrupted ||
			branch[1].Version != 2 || branch[1].Versions != 2 || !branch[1].Created.Equal(at) || branch[1].ID != c.Leaf {
			t.Errorf("the branch is %+v", branch)
		}
		if leaf, err := s.Select(ctx, me, c.ID, branch[0].ID); err != nil || leaf != c.Leaf {
			t.Errorf("the branch shown last ends at %d (%v), want %d", leaf, err, c.Leaf)
		}
		first, err := s.Sibling(ctx, me, c.ID, c.Leaf, 1)
		if err != nil {
			t.Fatal(err)
		}
		if tokens, err := s.Tokens(ctx, me, c.ID, first); err != nil || !reflect.DeepEqual(tokens, answer.Tokens) {
			t.Errorf("the answer has the tokens %v (%v)", tokens, err)
		}
		if found, err := s.Search(ctx, me, Query{Text: "first words"}); err != nil || len(found.Messages) != 1 {
			t.Errorf("a word of it was found %d times (%v)", len(found.Messages), err)
		}
	})
	t.Run("without a leaf the last message is shown", func(t *testing.T) {
		c, err := importList(s, me, Metadata{}, list, 0)
		if err != nil {
			t.Fatal(err)
		}
		if branch, err := s.Branch(ctx, me, c.ID); err != nil || len(branch) != 3 || branch[2].Text != "two" {
			t.Errorf("the branch is %+v (%v)", branch, err)
		}
	})
	for _, c := range []struct {
		name string
		list []Message
		leaf int64
	}{
		{"a parent that comes later is refused", []Message{{ID: 2, Parent: 1, Role: RoleUser, State: Done}, {ID: 1, Role: RoleUser, State: Done}}, 0},
		{"an id that comes twice is refused", []Message{{ID: 1, Role: RoleUser, State: Done}, {ID: 1, Role: RoleUser, State: Done}}, 0},
		{"a message without an id is refused", []Message{{Role: RoleUser, State: Done}}, 0},
		{"a leaf that is not in the list is refused", list, 99},
		{"an unknown role is refused", []Message{{ID: 1, Role: "king", State: Done}}, 0},
	} {
		t.Run(c.name+", and nothing is left of it", func(t *testing.T) {
			before, err := s.Conversations(ctx, me, Filter{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = importList(s, me, Metadata{}, c.list, c.leaf)
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("got %v", err)
			}
			if after, err := s.Conversations(ctx, me, Filter{}); err != nil || len(after) != len(before) {
				t.Errorf("%d conversations became %d (%v)", len(before), len(after), err)
			}
		})
	}
}

func TestContinueAnswer(t *testing.T) {
	s := mustOpen(t, testOptions(t))
	c, question, answer, err := s.Start(ctx, me, Metadata{}, NewMessage{Role: RoleUser, Text: "one"}, NewAnswer{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ContinueAnswer(ctx, me, c.ID, answer.ID, NewAnswer{}); !errors.Is(err, ErrConflict) {
		t.Errorf("an answer that runs was continued: %v", err)
	}
	if _, err := s.FinishAnswer(ctx, me, c.ID, answer.ID, Finish{State: Stopped, Text: "half", Answer: Answer{Tokens: []int32{1, 2}}}); err != nil {
		t.Fatal(err)
	}
	goesOn := NewAnswer{Text: "half", Answer: of("other")}
	goesOn.Tokens = []int32{1, 2}
	if err := s.ContinueAnswer(ctx, me, c.ID, answer.ID, goesOn); err != nil {
		t.Fatal(err)
	}
	m, err := s.Message(ctx, me, c.ID, answer.ID)
	if err != nil || m.State != Running || m.Text != "half" || m.Answer.Receipt.Model != "other" {
		t.Errorf("the continued answer is %+v (%v)", m, err)
	}
	if tokens, err := s.Tokens(ctx, me, c.ID, answer.ID); err != nil || !reflect.DeepEqual(tokens, []int32{1, 2}) {
		t.Errorf("its tokens are %v (%v)", tokens, err)
	}
	if ended, err := s.SaveProgress(ctx, []Progress{{Owner: me, Conversation: c.ID, Message: answer.ID, Text: "half more"}}); err != nil || len(ended) != 0 {
		t.Errorf("its text was not saved: %v, %v", ended, err)
	}
	if m, err := s.FinishAnswer(ctx, me, c.ID, answer.ID, Finish{State: Done, Text: "half more, done"}); err != nil || m.ID != answer.ID || m.Text != "half more, done" || m.Versions != 1 {
		t.Errorf("it ended as %+v (%v)", m, err)
	}
	t.Run("an answer that a person wrote can be continued", func(t *testing.T) {
		edited, err := s.AddMessage(ctx, me, c.ID, NewMessage{Parent: question.ID, Role: RoleAssistant, Text: "by hand"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ContinueAnswer(ctx, me, c.ID, edited.ID, NewAnswer{Text: "by hand"}); err != nil {
			t.Fatal(err)
		}
		if m, err := s.Message(ctx, me, c.ID, edited.ID); err != nil || m.State != Running || m.Text != "by hand" {
			t.Errorf("it is %+v (%v)", m, err)
		}
	})
	var invalid *InvalidError
	if err := s.ContinueAnswer(ctx, me, c.ID, question.ID, NewAnswer{}); !errors.As(err, &invalid) {
		t.Errorf("a question was continued: %v", err)
	}
	for name, err := range map[string]error{
		"somebody else": s.ContinueAnswer(ctx, you, c.ID, answer.ID, NewAnswer{}),
		"another chat":  s.ContinueAnswer(ctx, me, "other", answer.ID, NewAnswer{}),
		"no message":    s.ContinueAnswer(ctx, me, c.ID, 999, NewAnswer{}),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A chat may have a later time from a clock that was wrong. JSON, which exports are, has four digits
// for a year.
func TestATimeAfterTheYear9999ComesBackAsItsEnd(t *testing.T) {
	s := mustOpen(t, testOptions(t))
	at := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	c, err := importList(s, me, Metadata{Title: "late"}, []Message{{ID: 1, Role: RoleUser, State: Done, Text: "x", Created: at}}, 1)
	mustDo(t, err)
	branch := must[[]Message](t)(s.Branch(ctx, me, c.ID))
	if text, err := json.Marshal(branch[0].Created); err != nil || string(text) != `"9999-12-31T23:59:59.999Z"` {
		t.Errorf("got %s, %v", text, err)
	}
}
