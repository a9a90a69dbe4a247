package handlers

import (
	"encoding/json"
	"testing"

	"m40-llm/handlers/live"
	"m40-llm/handlers/stream"
)

// panelOf opens a chat anew and returns what it keeps for the next answer.
func panelOf(t testing.TB, c *socketClient, chat string) stream.Chat {
	t.Helper()
	c.send("open", map[string]any{"chat": chat})
	for {
		f, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		if f.Type != "snapshot" {
			continue
		}
		var shown stream.Chat
		if err := json.Unmarshal(f.Chat, &shown); err != nil {
			t.Fatal(err)
		}
		return shown
	}
}

func TestSocket_OfTwoPagesTheLastPanelStaysAndAnswersKeepTheirs(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	one := dialSocket(t, server)
	one.do("send", map[string]any{"text": "Hi", "settings": map[string]any{"top_k": 5}, "preset": "precise"})
	one.until("the chat", func() bool { return one.chat != "" })
	a := engine.next(t)
	a.write("Hello.")
	two := dialSocket(t, server)
	if got := panelOf(t, two, one.chat); got.Settings.TopK != 5 || got.Preset != "precise" {
		t.Errorf("the second page is shown %+v, %q", got.Settings, got.Preset)
	}
	two.do("panel", map[string]any{"settings": map[string]any{"top_k": 6, "stop": []string{"\n"}}, "system": "Two.", "preset": "7"}) // while it is written
	ack := one.reply(one.send("panel", map[string]any{"settings": map[string]any{"top_k": 7}, "system": "One.", "preset": "greedy"}))
	for _, c := range []*socketClient{one, two} {
		c.until("the last panel", func() bool { return c.panel.Settings != nil && c.panel.Settings.TopK == 7 })
		if e := c.panel; e.Seq != ack.Seq || e.System != "One." || e.Preset != "greedy" {
			t.Errorf("a page was told %+v, and the acknowledgement %d", e, ack.Seq)
		}
	}
	a.finish()
	one.until("the end", one.ended)
	if end := one.last().end; end.Settings.TopK != 5 {
		t.Errorf("the answer was made with %+v", end.Settings)
	}
	three := dialSocket(t, server)
	got := panelOf(t, three, one.chat)
	if got.Settings.TopK != 7 || got.System != "One." || got.Preset != "greedy" || got.Settings.TopP != live.DefaultSettings().TopP {
		t.Errorf("kept is %+v, %q, %q", got.Settings, got.System, got.Preset)
	}
	if m := got.Messages[1]; m.Answer.Settings.TopK != 5 {
		t.Errorf("the answer has lost what it was made with: %+v", m.Answer.Settings)
	}
	ref := three.send("panel", map[string]any{"settings": map[string]any{"presence_penalty": 101}})
	for {
		f, err := three.read()
		if err != nil {
			t.Fatal(err)
		}
		if f.Ref != ref {
			continue
		}
		if f.Error == nil || f.Error.Param != "presence_penalty" {
			t.Errorf("a value out of range: %+v", f)
		}
		break
	}
}
