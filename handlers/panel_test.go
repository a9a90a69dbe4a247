package handlers_test

import (
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/setting"
)

func TestSocket_OfTwoPagesTheLastPanelStaysAndAnswersKeepTheirs(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	one := handlerstest.DialSocket(t, server)
	one.Do("send", map[string]any{"text": "Hi", "settings": map[string]any{"top_k": 5}, "preset": "precise"})
	one.Until("the chat", func() bool { return one.Chat != "" })
	a := engine.Next(t)
	a.Write("Hello.")
	two := handlerstest.DialSocket(t, server)
	if got := handlerstest.PanelOf(t, two, one.Chat); got.Settings.TopK != 5 || got.Preset != "precise" {
		t.Errorf("the second page is shown %+v, %q", got.Settings, got.Preset)
	}
	two.Do("panel", map[string]any{"settings": map[string]any{"top_k": 6, "stop": []string{"\n"}}, "system": "Two.", "preset": "7"}) // while it is written
	ack := one.Reply(one.Send("panel", map[string]any{"settings": map[string]any{"top_k": 7}, "system": "One.", "preset": "greedy"}))
	for _, c := range []*handlerstest.SocketClient{one, two} {
		c.Until("the last panel", func() bool { return c.Panel.Settings != nil && c.Panel.Settings.TopK == 7 })
		if e := c.Panel; e.Seq != ack.Seq || e.System != "One." || e.Preset != "greedy" {
			t.Errorf("a page was told %+v, and the acknowledgement %d", e, ack.Seq)
		}
	}
	a.Finish()
	one.Until("the end", one.Ended)
	if end := one.Last().End; end.Settings.TopK != 5 {
		t.Errorf("the answer was made with %+v", end.Settings)
	}
	three := handlerstest.DialSocket(t, server)
	got := handlerstest.PanelOf(t, three, one.Chat)
	if got.Settings.TopK != 7 || got.System != "One." || got.Preset != "greedy" || got.Settings.TopP != setting.Default().TopP {
		t.Errorf("kept is %+v, %q, %q", got.Settings, got.System, got.Preset)
	}
	if m := got.Messages[1]; m.Answer.Settings.TopK != 5 {
		t.Errorf("the answer has lost what it was made with: %+v", m.Answer.Settings)
	}
	ref := three.Send("panel", map[string]any{"settings": map[string]any{"presence_penalty": 101}})
	for {
		f, err := three.Read()
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
