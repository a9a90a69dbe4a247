package presets_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/presets"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

var me = access.Local

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func chatsOf(t testing.TB, engine *handlerstest.Script) *live.Service {
	t.Helper()
	chats := live.New(engine, live.Options{})
	t.Cleanup(chats.Close)
	return chats
}

// newService returns presets in a database, of a server with an engine.
func newService(t testing.TB) (*presets.Service, *handlerstest.Script) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "data", "chats.db"), Ballast: -1, MinFree: 1})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	engine := handlerstest.NewScript()
	return presets.New(chatsOf(t, engine), db), engine
}

func TestPresets_TheBuiltInOnesCanOnlyBeCopied(t *testing.T) {
	s, _ := newService(t)
	list, err := s.List(t.Context(), me)
	must(t, err)
	if !reflect.DeepEqual(list[0].Settings, setting.Default()) {
		t.Errorf("the first one is %+v, not the defaults", list[0])
	}
	for _, p := range list {
		if err := p.Settings.Validate(); err != nil || !p.Builtin || p.Settings.Seed != -1 {
			t.Errorf("%s: %v, %+v", p.Name, err, p)
		}
		_, err := s.Save(t.Context(), me, p.ID, "", setting.Default())
		for what, err := range map[string]error{"saved": err, "renamed": s.Rename(t.Context(), me, p.ID, "x"), "deleted": s.Delete(t.Context(), me, p.ID)} {
			if !errors.Is(err, presets.ErrBuiltin) {
				t.Errorf("%s can be %s: %v", p.Name, what, err)
			}
		}
		var taken *owned.TakenError
		if _, err := s.Create(t.Context(), me, presets.Preset{Name: strings.ToUpper(p.Name), Settings: setting.Default()}); !errors.As(err, &taken) {
			t.Errorf("another %s can be made: %v", p.Name, err)
		}
		copied, err := s.Copy(t.Context(), me, p.ID)
		must(t, err)
		if copied.Name != p.Name+" (2)" || !reflect.DeepEqual(copied.Settings, p.Settings) || copied.Builtin {
			t.Errorf("the copy of %+v is %+v", p, copied)
		}
	}
}

func TestPresets_TheModelsOwnHasWhatItsFileSuggests(t *testing.T) {
	s, engine := newService(t)
	if _, err := s.Get(t.Context(), me, "own"); !errors.Is(err, presets.ErrNoPreset) {
		t.Errorf("of a model whose file suggests nothing: %v", err)
	}
	engine.Suggest(map[string]float64{"temperature": 1, "top_k": 64})
	want := setting.Default()
	want.Temperature, want.TopK = 1, 64
	list, err := s.List(t.Context(), me)
	must(t, err)
	if p := list[0]; p.ID != "own" || !p.Builtin || !reflect.DeepEqual(p.Settings, want) || list[1].ID != "balanced" {
		t.Errorf("the first presets are %+v and %s", p, list[1].ID)
	}
	if _, err := s.Save(t.Context(), me, "own", "", want); !errors.Is(err, presets.ErrBuiltin) {
		t.Errorf("it can be saved: %v", err)
	}
	var taken *owned.TakenError
	if _, err := s.Create(t.Context(), me, presets.Preset{Name: "The model’s own", Settings: want}); !errors.As(err, &taken) {
		t.Errorf("another of its name can be made: %v", err)
	}
	if presets.Builtins[0].ID != "balanced" {
		t.Error("it has become one of every model")
	}
}

func TestPresets_OfAPerson(t *testing.T) {
	s, _ := newService(t)
	settings := setting.Default()
	settings.Temperature, settings.Stop, settings.Seed = 1.5, []string{"\n\n"}, 77
	p, err := s.Create(t.Context(), me, presets.Preset{Name: "  Mia’s \n stories ", System: "Be warm.", Settings: settings})
	must(t, err)
	settings.Seed = -1
	if p.Name != "Mia’s stories" || p.System != "Be warm." || !reflect.DeepEqual(p.Settings, settings) {
		t.Errorf("created %+v", p)
	}
	settings.TopK = 3
	saved, err := s.Save(t.Context(), me, p.ID, "", settings)
	must(t, err)
	if saved.ID != p.ID || saved.Name != p.Name || saved.System != "" || saved.Settings.TopK != 3 {
		t.Errorf("saved as %+v", saved)
	}
	must(t, s.Rename(t.Context(), me, p.ID, "Stories"))
	var taken *owned.TakenError
	if err := s.Rename(t.Context(), me, p.ID, "balanced"); !errors.As(err, &taken) {
		t.Errorf("renamed to a built-in one's name: %v", err)
	}
	must(t, s.Delete(t.Context(), me, p.ID))
	if _, err := s.Get(t.Context(), me, p.ID); !errors.Is(err, presets.ErrNoPreset) {
		t.Errorf("after the deletion: %v", err)
	}
	if gone, err := s.Deleted(t.Context(), me, p.ID); err != nil || gone.Name != "Stories" {
		t.Errorf("to be brought back: %+v, %v", gone, err)
	}
	must(t, s.Restore(t.Context(), me, p.ID))
	if back, err := s.Get(t.Context(), me, p.ID); err != nil || back.Name != "Stories" || back.Settings.TopK != 3 {
		t.Errorf("came back as %+v, %v", back, err)
	}
	if err := s.Restore(t.Context(), me, p.ID); !errors.Is(err, presets.ErrNoPreset) {
		t.Errorf("came back twice: %v", err)
	}
	for _, id := range []string{"", "0", "-1", "99", "x", "1e3", "9223372036854775808"} {
		if _, err := s.Get(t.Context(), me, id); !errors.Is(err, presets.ErrNoPreset) {
			t.Errorf("preset %q: %v", id, err)
		}
	}
}

func TestPresets_WhatIsRefused(t *testing.T) {
	s, _ := newService(t)
	good := presets.Preset{Name: "x", Settings: setting.Default()}
	for _, c := range []struct {
		name, field string
		change      func(*presets.Preset)
	}{
		{"no name", "presets[1].name", func(p *presets.Preset) { p.Name = " \n" }},
		{"a long name", "presets[1].name", func(p *presets.Preset) { p.Name = strings.Repeat("é", presets.MaxName+1) }},
		{"a name that is no text", "presets[1].name", func(p *presets.Preset) { p.Name = "\xff" }},
		{"a long system prompt", "presets[1].system", func(p *presets.Preset) { p.System = strings.Repeat("x", presets.MaxSystem+1) }},
		{"a value out of range", "presets[1].settings.top_p", func(p *presets.Preset) { p.Settings.TopP = 7 }},
	} {
		bad := good
		c.change(&bad)
		var wrong *fault.Error
		if _, err := s.Import(t.Context(), me, []presets.Preset{good, bad}); !errors.As(err, &wrong) || wrong.Param != c.field {
			t.Errorf("%s: %v, want an error about %s", c.name, err, c.field)
		}
	}
	for name, list := range map[string][]presets.Preset{"none": nil, "too many": make([]presets.Preset, presets.MaxImport+1)} {
		if _, err := s.Import(t.Context(), me, list); err == nil {
			t.Errorf("%s are imported", name)
		}
	}
	if list, err := s.List(t.Context(), me); err != nil || len(list) != len(presets.Builtins) {
		t.Errorf("there are %d presets, %v", len(list), err)
	}
}

func TestPresets_WhatWasImportedUnderANumberIsImportedAgain(t *testing.T) {
	s, _ := newService(t)
	long := strings.Repeat("ä", presets.MaxName)
	list := []presets.Preset{{Name: long, Settings: setting.Default()}, {Name: long, Settings: setting.Default()}, {Name: "x", Settings: setting.Default()}, {Name: "x", Settings: setting.Default()}}
	for round := range 3 {
		added, err := s.Import(t.Context(), me, list)
		if err != nil || len(added) != len(list) {
			t.Fatalf("round %d: %d are added, %v", round, len(added), err)
		}
		if round == 0 && (added[1].Name == long || added[3].Name != "x (2)") {
			t.Errorf("they are called %q and %q", added[1].Name, added[3].Name)
		}
		list = added
	}
}

func TestPresets_WhatOtherProgramsStored(t *testing.T) {
	for _, settings := range []string{`null`, `[]`, `{"top_p":9}`, `{"top_k":"x"}`} {
		if p := presets.FromStored(store.Preset{ID: 1, Name: "x", Settings: []byte(settings)}); !reflect.DeepEqual(p.Settings, setting.Default()) {
			t.Errorf("%s reads as %+v", settings, p.Settings)
		}
	}
}

func TestPresets_WithoutAStoreThereAreTheBuiltInOnes(t *testing.T) {
	s := presets.New(chatsOf(t, handlerstest.NewScript()), nil)
	if list, err := s.List(t.Context(), me); err != nil || len(list) != len(presets.Builtins) {
		t.Errorf("there are %+v, %v", list, err)
	}
	if _, err := s.Create(t.Context(), me, presets.Preset{Name: "x", Settings: setting.Default()}); err == nil {
		t.Error("a preset is made and stored nowhere")
	}
	if _, err := s.Get(t.Context(), me, "1"); !errors.Is(err, presets.ErrNoPreset) {
		t.Errorf("preset 1: %v", err)
	}
}

func TestPresets_AreOfWhoMadeThem(t *testing.T) {
	s, _ := newService(t)
	if _, err := s.List(t.Context(), access.Principal{}); !errors.Is(err, owned.ErrNotFound) {
		t.Errorf("nobody's presets: %v", err)
	}
	p, err := s.Create(t.Context(), me, presets.Preset{Name: "mine", Settings: setting.Default()})
	must(t, err)
	other := access.Principal{Owner: "another"}
	if _, err := s.Get(t.Context(), other, p.ID); !errors.Is(err, presets.ErrNoPreset) {
		t.Errorf("another reads it: %v", err)
	}
	if err := s.Delete(t.Context(), other, p.ID); !errors.Is(err, presets.ErrNoPreset) {
		t.Errorf("another deletes it: %v", err)
	}
}

func TestUse_KeepsTheSeedAndASystemPromptThatNoPresetBrought(t *testing.T) {
	engine := handlerstest.NewScript()
	chats := chatsOf(t, engine)
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "data", "chats.db"), Ballast: -1, MinFree: 1})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s := presets.New(chats, db)
	rhyme, err := s.Create(t.Context(), me, presets.Preset{Name: "rhyme", System: "Rhyme.", Settings: setting.Default()})
	must(t, err)
	for name, tc := range map[string]struct {
		system, preset string // of the panel before
		use            string
		want           string
	}{
		"no system prompt before":                      {"", "", rhyme.ID, "Rhyme."},
		"one that a person wrote":                      {"Be brief.", rhyme.ID, "precise", "Be brief."},
		"one that the preset before brought":           {"Rhyme.", rhyme.ID, "precise", ""},
		"one that is like that of a preset long since": {"Rhyme.", "precise", "greedy", "Rhyme."},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := chats.Start(t.Context(), me, live.Question{Text: "one", Settings: setting.Default(), Unanswered: true}, false)
			must(t, err)
			panel := live.Panel{Settings: setting.Default(), Preset: tc.preset}
			panel.Seed = 77
			_, err = c.SetPanel(t.Context(), me, panel, tc.system)
			must(t, err)
			must(t, s.Use(t.Context(), me, c.ID(), tc.use))
			now, err := c.Snapshot(t.Context(), me, 0)
			must(t, err)
			if now.Panel.Seed != 77 || now.Panel.Preset != tc.use || now.Metadata.System != tc.want {
				t.Errorf("the panel is %+v with the system prompt %q, want %q", now.Panel, now.Metadata.System, tc.want)
			}
		})
	}
}
