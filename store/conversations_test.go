package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func titles(list []Conversation) (names []string) {
	for _, c := range list {
		names = append(names, c.ID)
	}
	return names
}

func TestConversations_ListsPinnedFirstThenByLastMessage(t *testing.T) {
	s := newStore(t)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		talk(t, s, id, "hello", "hi")
	}
	yes, work := true, "work"
	must[Conversation](t)(s.UpdateConversation(ctx, me, "b", func(m *Metadata) { m.Pinned = yes }))
	must[Conversation](t)(s.UpdateConversation(ctx, me, "d", func(m *Metadata) { m.Archived = yes }))
	must[Conversation](t)(s.UpdateConversation(ctx, me, "a", func(m *Metadata) { m.Folder = work }))
	must[Message](t)(s.AddMessage(ctx, me, "a", NewMessage{Role: RoleUser, Text: "more"}))
	mustDo(t, s.DeleteConversation(ctx, me, "c"))
	none := ""

	for _, c := range []struct {
		name   string
		filter Filter
		want   []string
	}{
		{"all that are not put away", Filter{}, []string{"b", "a", "e"}},
		{"the archive", Filter{Archived: true}, []string{"d"}},
		{"the trash", Filter{Deleted: true}, []string{"c"}},
		{"a folder", Filter{Folder: &work}, []string{"a"}},
		{"those in no folder", Filter{Folder: &none}, []string{"b", "e"}},
		{"a first page", Filter{Limit: 2}, []string{"b", "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := titles(must[[]Conversation](t)(s.Conversations(ctx, me, c.filter)))
			if !slices.Equal(got, c.want) {
				t.Errorf("listed %v, want %v", got, c.want)
			}
		})
	}
	t.Run("pages join without gap or repeat", func(t *testing.T) {
		var got []string
		f := Filter{Limit: 1}
		for range 10 {
			page := must[[]Conversation](t)(s.Conversations(ctx, me, f))
			if len(page) == 0 {
				break
			}
			got = append(got, titles(page)...)
			f.After = page[len(page)-1].Cursor()
		}
		if want := []string{"b", "a", "e"}; !slices.Equal(got, want) {
			t.Errorf("the pages hold %v, want %v", got, want)
		}
	})
	t.Run("folders are counted", func(t *testing.T) {
		got := must[[]Folder](t)(s.Folders(ctx, me))
		if want := []Folder{{"work", 1}}; !slices.Equal(got, want) {
			t.Errorf("folders %v, want %v", got, want)
		}
	})
	t.Run("taken out of the trash, a conversation stands where it stood", func(t *testing.T) {
		mustDo(t, s.RestoreConversation(ctx, me, "c"))
		got := titles(must[[]Conversation](t)(s.Conversations(ctx, me, Filter{})))
		if want := []string{"b", "a", "e", "c"}; !slices.Equal(got, want) {
			t.Errorf("listed %v, want %v", got, want)
		}
	})
}

func TestRenameFolder_TakesAllOfItsChatsAlongAndMixesThemWithNoOthers(t *testing.T) {
	s := newStore(t)
	work, home, gone, yes := "work", "home", "gone", true
	for id, folder := range map[string]*string{"a": &work, "archived": &work, "deleted": &work, "b": &home, "c": &gone} {
		talk(t, s, id, "hello", "hi")
		must[Conversation](t)(s.UpdateConversation(ctx, me, id, func(m *Metadata) { m.Folder = *folder }))
	}
	must[Conversation](t)(s.UpdateConversation(ctx, me, "archived", func(m *Metadata) { m.Archived = yes }))
	mustDo(t, s.DeleteConversation(ctx, me, "deleted"))
	mustDo(t, s.DeleteConversation(ctx, me, "c"))
	for _, c := range []struct {
		name, owner, from, to string
		want                  error
	}{
		{"a name that another folder has is refused", me, "work", "home", ErrConflict},
		{"a folder that is not there is not found", me, "play", "games", ErrNotFound},
		{"a folder of somebody else is not found", "other", "work", "mine", ErrNotFound},
		{"the same name changes nothing", me, "work", "work", nil},
		{"a folder with a chat in the trash alone leaves its name to others", me, "home", "gone", nil},
	} {
		if err := s.RenameFolder(ctx, c.owner, c.from, c.to); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, name := range []string{"", " ", strings.Repeat("x", maxName+1), "\xff"} {
		var wrong *InvalidError
		if err := s.RenameFolder(ctx, me, "work", name); !errors.As(err, &wrong) {
			t.Errorf("the name %.10q is kept: %v", name, err)
		}
	}
	mustDo(t, s.RenameFolder(ctx, me, "work", "Beruf ☕"))
	mustDo(t, s.RestoreConversation(ctx, me, "deleted"))
	want := []Folder{{"Beruf ☕", 2}, {"gone", 1}}
	if got := must[[]Folder](t)(s.Folders(ctx, me)); !slices.Equal(got, want) {
		t.Errorf("the folders are %v, want %v", got, want)
	}
	if c := must[Conversation](t)(s.Conversation(ctx, me, "archived")); c.Folder != "Beruf ☕" {
		t.Errorf("in the archive the folder is %q", c.Folder)
	}
}

func TestConversations_OrderDoesNotFollowTheClock(t *testing.T) {
	opt := testOptions(t)
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	opt.Now = func() time.Time { clock = clock.Add(-time.Hour); return clock }
	s := mustOpen(t, opt)
	for _, id := range []string{"first", "second", "third"} {
		talk(t, s, id, "hello", "hi")
	}
	got := titles(must[[]Conversation](t)(s.Conversations(ctx, me, Filter{})))
	if want := []string{"third", "second", "first"}; !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

func TestConversation_Fields(t *testing.T) {
	opt := testOptions(t)
	clock := time.Date(2026, 11, 20, 12, 0, 0, 123_000_000, time.UTC)
	opt.Now = func() time.Time { return clock }
	s := mustOpen(t, opt)
	c := must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{
		ID: "x", Title: "T", System: "S", Settings: json.RawMessage(`{"top_k":40}`), Opening: Opening{Model: "M", Raw: true}, Placement: Placement{Folder: "F"},
	}))
	want := Conversation{
		Metadata: Metadata{ID: "x", Title: "T", System: "S", Settings: json.RawMessage(`{"top_k":40}`), Opening: Opening{Model: "M", Raw: true}, Placement: Placement{Folder: "F"}},
		Activity: 1, Created: clock, Updated: clock,
	}
	if fmt.Sprint(c) != fmt.Sprint(want) {
		t.Errorf("created %+v, want %+v", c, want)
	}
	c = must[Conversation](t)(s.UpdateConversation(ctx, me, "x", func(m *Metadata) {
		m.Title, m.System, m.Settings, m.Model = "new", "", json.RawMessage(`{"top_k":1}`), "N"
	}))
	want.Title, want.System, want.Model, want.Settings = "new", "", "N", json.RawMessage(`{"top_k":1}`)
	if fmt.Sprint(c) != fmt.Sprint(want) {
		t.Errorf("changed to %+v, want %+v", c, want)
	}
	if again := must[Conversation](t)(s.Conversation(ctx, me, "x")); fmt.Sprint(again) != fmt.Sprint(want) {
		t.Errorf("read %+v, want %+v", again, want)
	}
	made := must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{}))
	if !conversationID.MatchString(made.ID) || len(made.ID) != 26 {
		t.Errorf("made the id %q", made.ID)
	}
	if string(made.Settings) != "null" {
		t.Errorf("settings never set are %s", made.Settings)
	}
}

func TestConversation_Refusals(t *testing.T) {
	s := newStore(t)
	talk(t, s, "x", "hello", "hi")
	_, err := s.CreateConversation(ctx, you, Metadata{ID: "x"})
	if !errors.Is(err, ErrConflict) {
		t.Errorf("an id that another has: %v", err)
	}
	bad := "\xff"
	for name, do := range map[string]func() error{
		"an id with capitals": func() error { _, err := s.CreateConversation(ctx, me, Metadata{ID: "X"}); return err },
		"an id with a slash":  func() error { _, err := s.CreateConversation(ctx, me, Metadata{ID: "a/b"}); return err },
		"an id that is too long": func() error {
			_, err := s.CreateConversation(ctx, me, Metadata{ID: strings.Repeat("a", 65)})
			return err
		},
		"no owner":                  func() error { _, err := s.CreateConversation(ctx, "", Metadata{}); return err },
		"a title that is not UTF-8": func() error { _, err := s.CreateConversation(ctx, me, Metadata{Title: bad}); return err },
		"settings that are not JSON": func() error {
			_, err := s.CreateConversation(ctx, me, Metadata{Settings: json.RawMessage("{")})
			return err
		},
		"a new title, not UTF-8": func() error {
			_, err := s.UpdateConversation(ctx, me, "x", func(m *Metadata) { m.Title = bad })
			return err
		},
		"new settings, not JSON": func() error {
			_, err := s.UpdateConversation(ctx, me, "x", func(m *Metadata) { m.Settings = json.RawMessage("nul") })
			return err
		},
		"a message of unknown role":   func() error { _, err := s.AddMessage(ctx, me, "x", NewMessage{Role: "model"}); return err },
		"a message that is not UTF-8": func() error { _, err := s.AddMessage(ctx, me, "x", NewMessage{Role: RoleUser, Text: bad}); return err },
		"a message that is too long": func() error {
			_, err := s.AddMessage(ctx, me, "x", NewMessage{Role: RoleUser, Text: strings.Repeat("a", MaxText+1)})
			return err
		},
		"an end that is none":   func() error { _, err := s.FinishAnswer(ctx, me, "x", 2, Finish{State: Running}); return err },
		"a preset with no name": func() error { _, err := s.CreatePreset(ctx, me, Preset{Name: " \t"}); return err },
		"a setting not JSON":    func() error { return s.SetSetting(ctx, me, "x", json.RawMessage("'")) },
	} {
		var invalid *InvalidError
		if err := do(); !errors.As(err, &invalid) {
			t.Errorf("%s: %v, want an *InvalidError", name, err)
		}
	}
}

// TestOwners tries every method that names an owner on what belongs to another.
func TestOwners(t *testing.T) {
	s := newStore(t)
	q, a := talk(t, s, "mine", "secret question", "secret answer")
	_, running := start(t, s, "busy", "secret")
	p := must[Preset](t)(s.CreatePreset(ctx, me, Preset{Name: "secret"}))
	mustDo(t, s.SetSetting(ctx, me, "theme", json.RawMessage(`"dark"`)))
	_, own := talk(t, s, "other", "x", "y")
	_, _, foreign, err := s.Start(ctx, you, Metadata{ID: "yours"}, NewMessage{Role: RoleUser, Text: "x"}, NewAnswer{})
	mustDo(t, err)
	title := "changed"
	before := dump(t, s.opt.Path)

	for _, c := range []struct {
		name string
		do   func(owner, conversation string) error
	}{
		{"Conversation", func(o, c string) error { _, err := s.Conversation(ctx, o, c); return err }},
		{"UpdateConversation", func(o, c string) error {
			_, err := s.UpdateConversation(ctx, o, c, func(m *Metadata) { m.Title = title })
			return err
		}},
		{"DeleteConversation", func(o, c string) error { return s.DeleteConversation(ctx, o, c) }},
		{"RestoreConversation", func(o, c string) error { return s.RestoreConversation(ctx, o, c) }},
		{"Erase", func(o, c string) error { return s.Erase(ctx, o, c) }},
		{"AddMessage", func(o, c string) error { _, err := s.AddMessage(ctx, o, c, NewMessage{Role: RoleUser}); return err }},
		{"AddAnswer", func(o, c string) error { _, err := s.AddAnswer(ctx, o, c, NewAnswer{Parent: q.ID}); return err }},
		{"Ask", func(o, c string) error {
			_, _, err := s.Ask(ctx, o, c, NewMessage{Role: RoleUser}, NewAnswer{})
			return err
		}},
		{"FinishAnswer", func(o, c string) error {
			_, err := s.FinishAnswer(ctx, o, c, running.ID, Finish{State: Done})
			return err
		}},
		{"Message", func(o, c string) error { _, err := s.Message(ctx, o, c, a.ID); return err }},
		{"Tokens", func(o, c string) error { _, err := s.Tokens(ctx, o, c, a.ID); return err }},
		{"Sibling", func(o, c string) error { _, err := s.Sibling(ctx, o, c, a.ID, 1); return err }},
		{"Select", func(o, c string) error { _, err := s.Select(ctx, o, c, a.ID); return err }},
		{"Page", func(o, c string) error { _, err := s.Page(ctx, o, c, 0, 0); return err }},
		{"Page before a message", func(o, c string) error { _, err := s.Page(ctx, o, c, a.ID, 0); return err }},
		{"Branch", func(o, c string) error { _, err := s.Branch(ctx, o, c); return err }},
		{"Tree", func(o, c string) error { _, _, err := tree(s, ctx, o, c); return err }},
	} {
		t.Run(c.name+" finds no conversation of another", func(t *testing.T) {
			for _, conversation := range []string{"mine", "busy", "no-such"} {
				if err := c.do(you, conversation); !errors.Is(err, ErrNotFound) {
					t.Errorf("%s: %v, want ErrNotFound", conversation, err)
				}
			}
		})
	}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"a question below a message of another conversation", func() error {
			_, err := s.AddMessage(ctx, me, "mine", NewMessage{Parent: own.ID, Role: RoleUser})
			return err
		}},
		{"an answer to a message of another conversation", func() error { _, err := s.AddAnswer(ctx, me, "mine", NewAnswer{Parent: own.ID}); return err }},
		{"an answer to a message of another owner", func() error { _, err := s.AddAnswer(ctx, me, "mine", NewAnswer{Parent: foreign.ID}); return err }},
		{"a page before a message of another owner", func() error { _, err := s.Page(ctx, me, "mine", foreign.ID, 0); return err }},
		{"a message read through another conversation", func() error { _, err := s.Message(ctx, me, "mine", own.ID); return err }},
		{"tokens read through another conversation", func() error { _, err := s.Tokens(ctx, me, "mine", own.ID); return err }},
		{"a message shown in another conversation", func() error { _, err := s.Select(ctx, me, "mine", own.ID); return err }},
		{"a version asked for in another conversation", func() error { _, err := s.Sibling(ctx, me, "mine", own.ID, 1); return err }},
		{"a page before a message of another conversation", func() error { _, err := s.Page(ctx, me, "mine", own.ID, 0); return err }},
		{"an answer ended through another conversation", func() error {
			_, err := s.FinishAnswer(ctx, me, "mine", running.ID, Finish{State: Done})
			return err
		}},
		{"a message read through one's own conversation", func() error { _, err := s.Message(ctx, me, "mine", foreign.ID); return err }},
		{"tokens read through one's own conversation", func() error { _, err := s.Tokens(ctx, me, "mine", foreign.ID); return err }},
		{"a message shown in one's own conversation", func() error { _, err := s.Select(ctx, me, "mine", foreign.ID); return err }},
		{"an answer ended through one's own conversation", func() error {
			_, err := s.FinishAnswer(ctx, me, "mine", foreign.ID, Finish{State: Done})
			return err
		}},
		{"a preset read", func() error { _, err := s.Preset(ctx, you, p.ID); return err }},
		{"a preset changed", func() error { _, err := s.UpdatePreset(ctx, you, Preset{ID: p.ID, Name: "x"}); return err }},
		{"a preset renamed", func() error { return s.RenamePreset(ctx, you, p.ID, "x") }},
		{"a preset removed", func() error { return s.DeletePreset(ctx, you, p.ID) }},
		{"a setting read", func() error { _, err := s.Setting(ctx, you, "theme"); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.do(); !errors.Is(err, ErrNotFound) {
				t.Errorf("%v, want ErrNotFound", err)
			}
		})
	}
	t.Run("lists and searches hold nothing of another", func(t *testing.T) {
		for _, f := range []Filter{{}, {Archived: true}, {Deleted: true}} {
			for _, c := range must[[]Conversation](t)(s.Conversations(ctx, you, f)) {
				if c.ID != "yours" {
					t.Errorf("%+v lists %q", f, c.ID)
				}
			}
		}
		found := must[Found](t)(s.Search(ctx, you, Query{Text: "secret"}))
		if len(found.Titles)+len(found.Messages) > 0 {
			t.Errorf("found %+v", found)
		}
		if list := must[[]Preset](t)(s.Presets(ctx, you)); len(list) > 0 {
			t.Errorf("presets %+v", list)
		}
		if values := must[map[string]json.RawMessage](t)(s.Settings(ctx, you)); len(values) > 0 {
			t.Errorf("settings %v", values)
		}
		ended := must[[]int64](t)(s.SaveProgress(ctx, []Progress{
			{Owner: you, Conversation: "busy", Message: running.ID, Text: "x"},
			{Owner: me, Conversation: "mine", Message: running.ID, Text: "x"},
		}))
		if len(ended) != 2 {
			t.Errorf("saved the progress of another's answer")
		}
	})
	if after := dump(t, s.opt.Path); after != before {
		t.Errorf("a call that found nothing changed the database\n%s\nwas\n%s", after, before)
	}
}

// TestTrash has a conversation in the trash be found by nothing but what is for it.
func TestTrash(t *testing.T) {
	s := newStore(t)
	q, a := talk(t, s, "x", "findable question", "findable answer")
	question, running := start(t, s, "running", "hello")
	mustDo(t, s.DeleteConversation(ctx, me, "x"))
	mustDo(t, s.DeleteConversation(ctx, me, "running"))
	title := "changed"
	for name, do := range map[string]func() error{
		"Conversation": func() error { _, err := s.Conversation(ctx, me, "x"); return err },
		"Update": func() error {
			_, err := s.UpdateConversation(ctx, me, "x", func(m *Metadata) { m.Title = title })
			return err
		},
		"Delete": func() error { return s.DeleteConversation(ctx, me, "x") },
		"AddMessage": func() error {
			_, err := s.AddMessage(ctx, me, "x", NewMessage{Role: RoleUser, Parent: a.ID})
			return err
		},
		"AddAnswer": func() error { _, err := s.AddAnswer(ctx, me, "x", NewAnswer{Parent: q.ID}); return err },
		"Message":   func() error { _, err := s.Message(ctx, me, "x", a.ID); return err },
		"Tokens":    func() error { _, err := s.Tokens(ctx, me, "x", a.ID); return err },
		"Sibling":   func() error { _, err := s.Sibling(ctx, me, "x", a.ID, 1); return err },
		"Select":    func() error { _, err := s.Select(ctx, me, "x", a.ID); return err },
		"Page":      func() error { _, err := s.Page(ctx, me, "x", 0, 0); return err },
		"Tree":      func() error { _, _, err := tree(s, ctx, me, "x"); return err },
	} {
		if err := do(); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
	if found := must[Found](t)(s.Search(ctx, me, Query{Text: "findable"})); len(found.Messages) > 0 {
		t.Errorf("found %+v", found.Messages)
	}
	// An answer that ran goes on.
	if ended := must[[]int64](t)(s.SaveProgress(ctx, []Progress{{me, "running", running.ID, "par", "", nil, nil}})); len(ended) > 0 {
		t.Error("the answer's progress was refused")
	}
	must[Message](t)(s.FinishAnswer(ctx, me, "running", running.ID, Finish{State: Stopped, Text: "partial"}))
	mustDo(t, s.RestoreConversation(ctx, me, "running"))
	mustDo(t, s.RestoreConversation(ctx, me, "x"))
	if err := s.RestoreConversation(ctx, me, "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("restored twice: %v", err)
	}
	branch := must[[]Message](t)(s.Branch(ctx, me, "running"))
	if len(branch) != 2 || branch[0].ID != question.ID || branch[1].Text != "partial" || branch[1].State != Stopped {
		t.Errorf("after its restore: %+v", branch)
	}
	if found := must[Found](t)(s.Search(ctx, me, Query{Text: "findable"})); len(found.Messages) != 2 {
		t.Errorf("after the restore found %+v", found.Messages)
	}
}
