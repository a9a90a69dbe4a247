package handlers

import (
	"slices"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/live"
)

// A fork keeps the tokens of the answer before it, by their ids, and takes over their stored candidates.
func TestAForkAtATokenKeepsTheTokensBeforeIt(t *testing.T) {
	server, chats := serveStored(t, openGuide(t))
	c := dialSocket(t, server)
	c.do("send", map[string]any{"text": "Tell me a story about a fox.", "settings": map[string]any{"max_tokens": 24, "seed": 5}})
	c.until("the end", func() bool { return len(c.branch) == 2 && c.ended() })
	chat, err := chats.Chat(t.Context(), access.Local, c.chat)
	if err != nil {
		t.Fatal(err)
	}
	tokens := func(answer int64) (list []live.Token) {
		list, _, err := chat.Tokens(t.Context(), access.Local, answer, 0, 1000, 8)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	id := func(token live.Token) int32 { return token.ID }
	first := c.branch[1]
	was := tokens(first)
	for _, tc := range []struct {
		name string
		keep int
		next map[string]any
		want func(is []live.Token) bool
	}{
		{"another candidate", 6, map[string]any{"token": was[6].Choice.Top[2].ID}, func(is []live.Token) bool { return is[6].ID == was[6].Choice.Top[2].ID && is[6].Choice != nil }},
		{"a typed text", 3, map[string]any{"text": " purple elephant"}, func(is []live.Token) bool { return is[3].Text+is[4].Text != "" && is[3].ID != was[3].ID }},
		{"the first token", 0, map[string]any{"text": "No"}, func(is []live.Token) bool { return is[0].Text == "No" }},
	} {
		seq, fields := c.seq, map[string]any{"answer": first, "keep": tc.keep, "settings": map[string]any{"max_tokens": 12, "seed": -1}}
		for name, value := range tc.next {
			fields[name] = value
		}
		c.do("select", map[string]any{"message": first})
		c.do("rewind", fields)
		c.until("the end", func() bool { return c.ended() && c.seq > seq && c.branch[1] != first })
		is := tokens(c.branch[1])
		if len(is) <= tc.keep+1 || !slices.EqualFunc(is[:tc.keep], was[:tc.keep], func(a, b live.Token) bool { return id(a) == id(b) && a.Choice.LogProb == b.Choice.LogProb }) || !tc.want(is) {
			t.Errorf("%s: the version has the tokens %v, want the first %d of %v", tc.name, is, tc.keep, was)
		}
	}
	for name, next := range map[string]map[string]any{"both": {"token": 7, "text": "x"}, "a token that ends the answer": {"token": 2}, "no token of the model": {"token": 1 << 30}} {
		next["answer"], next["keep"] = first, 2
		c.do("select", map[string]any{"message": first})
		if e := c.reply(c.send("rewind", next)).Error; e == nil || e.Code != "invalid_request" && e.Code == "" {
			t.Errorf("%s: got %+v", name, e)
		}
	}
}
