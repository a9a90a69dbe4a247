package handlers_test

import (
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/inspect"
)

// A fork keeps the tokens of the answer before it, by their ids, and takes over their stored candidates.
func TestAForkAtATokenKeepsTheTokensBeforeIt(t *testing.T) {
	server, chats := handlerstest.ServeStored(t, handlerstest.OpenGuide(t))
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "Tell me a story about a fox.", "settings": map[string]any{"max_tokens": 24, "seed": 5}})
	c.Until("the end", func() bool { return len(c.Branch) == 2 && c.Ended() })
	chat, err := chats.Chat(t.Context(), access.Local, c.Chat)
	if err != nil {
		t.Fatal(err)
	}
	tokens := func(answer int64) (list []inspect.Token) {
		list, _, err := inspect.New(chats).Tokens(t.Context(), access.Local, chat, answer, 0, 1000, 8)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	id := func(token inspect.Token) int32 { return token.ID }
	first := c.Branch[1]
	was := tokens(first)
	for _, tc := range []struct {
		name string
		keep int
		next map[string]any
		want func(is []inspect.Token) bool
	}{
		{"another candidate", 6, map[string]any{"token": was[6].Choice.Top[2].ID}, func(is []inspect.Token) bool { return is[6].ID == was[6].Choice.Top[2].ID && is[6].Choice != nil }},
		{"a typed text", 3, map[string]any{"text": " purple elephant"}, func(is []inspect.Token) bool { return is[3].Text+is[4].Text != "" && is[3].ID != was[3].ID }},
		{"the first token", 0, map[string]any{"text": "No"}, func(is []inspect.Token) bool { return is[0].Text == "No" }},
	} {
		seq, fields := c.Seq, map[string]any{"answer": first, "keep": tc.keep, "settings": map[string]any{"max_tokens": 12, "seed": -1}}
		for name, value := range tc.next {
			fields[name] = value
		}
		c.Do("select", map[string]any{"message": first})
		c.Do("rewind", fields)
		c.Until("the end", func() bool { return c.Ended() && c.Seq > seq && c.Branch[1] != first })
		is := tokens(c.Branch[1])
		if len(is) <= tc.keep+1 || !slices.EqualFunc(is[:tc.keep], was[:tc.keep], func(a, b inspect.Token) bool { return id(a) == id(b) && a.Choice.LogProb == b.Choice.LogProb }) || !tc.want(is) {
			t.Errorf("%s: the version has the tokens %v, want the first %d of %v", tc.name, is, tc.keep, was)
		}
		for _, ask := range []bool{false, true} { // what the samplers left of the token that a person chose
			m, err := inspect.New(chats).Microscope(t.Context(), access.Local, chat, c.Branch[1], tc.keep, ask)
			if err != nil {
				t.Fatal(err)
			}
			if m.Source == "" && !ask && m.NeedsAsk {
				continue // its candidates are not stored
			}
			if m.Source == "" || m.Choice.ID != is[tc.keep].ID || !strings.Contains(m.Reason, "A person chose") || m.Choice.Drawn.To != 0 || len(m.Choice.Followed) == 0 {
				t.Errorf("%s: the microscope, asking %v, says %q from %q: %+v", tc.name, ask, m.Reason, m.Source, m.Choice)
			}
		}
	}
	for name, next := range map[string]map[string]any{"both": {"token": 7, "text": "x"}, "a token that ends the answer": {"token": 2}, "no token of the model": {"token": 1 << 30}} {
		next["answer"], next["keep"] = first, 2
		c.Do("select", map[string]any{"message": first})
		if e := c.Reply(c.Send("rewind", next)).Error; e == nil || e.Code != "invalid_request" && e.Code == "" {
			t.Errorf("%s: got %+v", name, e)
		}
	}
}
