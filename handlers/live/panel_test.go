package live

import (
	"context"
	"reflect"
	"testing"

	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/store"
)

// keep keeps a panel and returns the number of its event.
func keep(t testing.TB, c *Chat, p Panel, system string) int64 {
	t.Helper()
	seq, err := c.SetPanel(context.Background(), me, p, system)
	must(t, err)
	return seq
}

func TestPanel_ReadersAreToldOfAChangeAndOnlyTheLastIsKeptForThoseWhoComeBack(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "one")
	a.finish()
	settle(c)
	since := snapshotOf(c).Seq
	open, _, err := c.Subscribe(context.Background(), me, since)
	must(t, err)
	p := Panel{Settings: setting.Default(), Preset: "7"}
	p.TopK = 3
	first := keep(t, c, p, "Be brief.")
	if again := keep(t, c, p, "Be brief."); first != since+1 || again != first {
		t.Errorf("after event %d a change is %d, and the same once more %d", since, first, again)
	}
	if events, err := open.Take(); err != nil || len(events) != 1 || events[0].Seq != first || !reflect.DeepEqual(*events[0].Panel, p) || events[0].Text != "Be brief." {
		t.Errorf("a reader was told %+v, %v", events, err)
	}
	p.TopK = 4
	keep(t, c, p, "Be long.")
	must(t, s.Rename(context.Background(), me, c.ID(), "Between"))
	p.TopK = 5
	last := keep(t, c, p, "Be kind.")
	late, snapshot, err := c.Subscribe(context.Background(), me, since)
	must(t, err)
	events, err := late.Take()
	if must(t, err); snapshot != nil || len(events) != 3 {
		t.Fatalf("who comes back gets %+v, and the events %+v", snapshot, events)
	}
	if e := events[0]; e.First != first || e.Seq != first+1 || e.Panel != nil || e.Text != "" {
		t.Errorf("of older panels it is told %+v", e)
	}
	if e := events[2]; e.Seq != last || !reflect.DeepEqual(*e.Panel, p) || e.Text != "Be kind." {
		t.Errorf("of the last panel it is told %+v", e)
	}
}

func TestPanel_EachChatKeepsItsOwnAndAnswersKeepTheirs(t *testing.T) {
	path := storePath(t)
	db := openStore(t, path)
	s, engine := newService(t, Options{Store: db})
	q := question("one")
	q.Settings.TopK, q.Settings.Seed, q.System, q.Preset = 7, 5, "Be brief.", "precise"
	c, err := s.Start(context.Background(), me, q, false)
	must(t, err)
	a := <-engine.asked
	other, b := start(t, s, engine, "two")
	changed := Panel{Settings: setting.Default(), Preset: "12"}
	changed.Temperature, changed.Stop = 1.5, []string{"\n"}
	keep(t, c, changed, "Be long.") // while the answer is written
	a.finish()
	b.finish()
	settle(c)
	settle(other)
	if got := snapshotOf(c); !reflect.DeepEqual(got.Panel, changed) || got.System != "Be long." {
		t.Errorf("the panel is %+v, %q", got.Panel, got.System)
	}
	fork, err := s.Fork(context.Background(), me, c, c.branch.leaf())
	must(t, err)
	s.Close()
	must(t, db.Close())

	s, engine = newService(t, Options{Store: openStore(t, path)})
	for id, want := range map[string]Panel{c.ID(): changed, fork: changed, other.ID(): {Settings: setting.Default()}} {
		c, err := s.Chat(context.Background(), me, id)
		must(t, err)
		if got := snapshotOf(c).Panel; !reflect.DeepEqual(got, want) {
			t.Errorf("after a restart the panel is %+v, want %+v", got, want)
		}
	}
	c, err = s.Chat(context.Background(), me, c.ID())
	must(t, err)
	if got := lastMessage(t, c).Answer; got.Settings.TopK != 7 || got.Settings.Seed != 5 || got.System != "Be brief." {
		t.Errorf("the answer has lost what it was made with: %+v", got)
	}
	must(t, c.Regenerate(context.Background(), me, 0, "Be brief.", q.Settings)) // from a page that knows nothing of the change
	(<-engine.asked).finish()
	settle(c)
	if got := snapshotOf(c); got.Panel.TopK != 7 || got.Panel.Preset != "12" || got.System != "Be brief." {
		t.Errorf("the last writer did not win: %+v, %q", got.Panel, got.System)
	}
}

func TestPanel_OfATemporaryChatIsNotStored(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, err := s.Start(context.Background(), me, question("one"), true)
	must(t, err)
	(<-engine.asked).finish()
	settle(c)
	p := Panel{Settings: setting.Default()}
	p.TopK = 3
	keep(t, c, p, "x")
	if got := snapshotOf(c); got.Panel.TopK != 3 || got.System != "x" {
		t.Errorf("the panel is %+v", got.Panel)
	}
	if list, err := s.List.Conversations(context.Background(), me, store.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("stored are %+v, %v", list, err)
	}
}

func TestPanel_OfAnOlderChatIsThatOfItsLastAnswer(t *testing.T) {
	s, _ := newService(t, Options{Store: openStore(t, storePath(t))})
	answered := func(settings, system string) store.Message {
		return store.Message{ID: 2, Parent: 1, Role: store.RoleAssistant, State: store.Done, Text: "x",
			Answer: &store.Answer{Settings: []byte(settings), System: system, Seed: 4}}
	}
	question := store.Message{ID: 1, Role: store.RoleUser, State: store.Done, Text: "x"}
	id, err := importList(s, store.Metadata{Title: "old"}, []store.Message{question, answered(`{"top_k":9,"seed":4}`, "Old.")}, 2)
	must(t, err)
	c, err := s.Chat(context.Background(), me, id)
	must(t, err)
	want := Panel{Settings: setting.Default()}
	want.TopK = 9
	if got := snapshotOf(c); !reflect.DeepEqual(got.Panel, want) || got.System != "Old." {
		t.Errorf("the panel is %+v, %q; want %+v", got.Panel, got.System, want)
	}
}

func TestPanel_RefusesWhatNoAnswerCouldBeMadeWith(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "one")
	a.finish()
	settle(c)
	for name, change := range map[string]func(p *Panel, system *string){
		"a value out of range":      func(p *Panel, _ *string) { p.TopP = 2 },
		"a system prompt as bytes":  func(_ *Panel, system *string) { *system = "\xff" },
		"a preset as long as a day": func(p *Panel, _ *string) { p.Preset = string(make([]byte, maxPresetID+1)) },
	} {
		p, system := Panel{Settings: setting.Default()}, ""
		change(&p, &system)
		if _, err := c.SetPanel(context.Background(), me, p, system); err == nil {
			t.Errorf("%s is stored", name)
		}
	}
	must(t, s.Delete(context.Background(), me, c.ID()))
	if _, err := c.SetPanel(context.Background(), me, Panel{Settings: setting.Default()}, ""); err != owned.ErrNotFound {
		t.Errorf("the panel of a deleted chat: %v", err)
	}
}
