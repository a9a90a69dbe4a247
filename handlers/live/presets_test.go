package live

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

var background = context.Background()

func TestPresets_TheBuiltInOnesCanOnlyBeCopied(t *testing.T) {
	s, _ := newService(t, Options{Store: openStore(t, storePath(t))})
	list, err := s.Presets(background, me)
	must(t, err)
	if !reflect.DeepEqual(list[0].Settings, DefaultSettings()) {
		t.Errorf("the first one is %+v, not the defaults", list[0])
	}
	for _, p := range list {
		if err := p.Settings.Validate(); err != nil || !p.Builtin || p.Settings.Seed != -1 {
			t.Errorf("%s: %v, %+v", p.Name, err, p)
		}
		_, err := s.SavePreset(background, me, p.ID, "", DefaultSettings())
		for what, err := range map[string]error{"saved": err, "renamed": s.RenamePreset(background, me, p.ID, "x"), "deleted": s.DeletePreset(background, me, p.ID)} {
			if !errors.Is(err, ErrBuiltin) {
				t.Errorf("%s can be %s: %v", p.Name, what, err)
			}
		}
		var taken *TakenError
		if _, err := s.CreatePreset(background, me, Preset{Name: strings.ToUpper(p.Name), Settings: DefaultSettings()}); !errors.As(err, &taken) {
			t.Errorf("another %s can be made: %v", p.Name, err)
		}
		copied, err := s.CopyPreset(background, me, p.ID)
		must(t, err)
		if copied.Name != p.Name+" (2)" || !reflect.DeepEqual(copied.Settings, p.Settings) || copied.Builtin {
			t.Errorf("the copy of %+v is %+v", p, copied)
		}
	}
}

func TestPresets_TheModelsOwnHasWhatItsFileSuggests(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	if _, err := s.Preset(background, me, "own"); !errors.Is(err, ErrNoPreset) {
		t.Errorf("of a model whose file suggests nothing: %v", err)
	}
	engine.suggests.Store(&sample.Suggestion{Values: map[string]float64{"temperature": 1, "top_k": 64}})
	want := DefaultSettings()
	want.Temperature, want.TopK = 1, 64
	list, err := s.Presets(background, me)
	must(t, err)
	if p := list[0]; p.ID != "own" || !p.Builtin || !reflect.DeepEqual(p.Settings, want) || list[1].ID != "balanced" {
		t.Errorf("the first presets are %+v and %s", p, list[1].ID)
	}
	if _, err := s.SavePreset(background, me, "own", "", want); !errors.Is(err, ErrBuiltin) {
		t.Errorf("it can be saved: %v", err)
	}
	var taken *TakenError
	if _, err := s.CreatePreset(background, me, Preset{Name: "The model’s own", Settings: want}); !errors.As(err, &taken) {
		t.Errorf("another of its name can be made: %v", err)
	}
	if builtins[0].ID != "balanced" {
		t.Error("it has become one of every model")
	}
}

func TestPresets_OfAPerson(t *testing.T) {
	s, _ := newService(t, Options{Store: openStore(t, storePath(t))})
	settings := DefaultSettings()
	settings.Temperature, settings.Stop, settings.Seed = 1.5, []string{"\n\n"}, 77
	p, err := s.CreatePreset(background, me, Preset{Name: "  Mia’s \n stories ", System: "Be warm.", Settings: settings})
	must(t, err)
	settings.Seed = -1
	if p.Name != "Mia’s stories" || p.System != "Be warm." || !reflect.DeepEqual(p.Settings, settings) {
		t.Errorf("created %+v", p)
	}
	settings.TopK = 3
	saved, err := s.SavePreset(background, me, p.ID, "", settings)
	must(t, err)
	if saved.ID != p.ID || saved.Name != p.Name || saved.System != "" || saved.Settings.TopK != 3 {
		t.Errorf("saved as %+v", saved)
	}
	must(t, s.RenamePreset(background, me, p.ID, "Stories"))
	var taken *TakenError
	if err := s.RenamePreset(background, me, p.ID, "balanced"); !errors.As(err, &taken) {
		t.Errorf("renamed to a built-in one's name: %v", err)
	}
	must(t, s.DeletePreset(background, me, p.ID))
	if _, err := s.Preset(background, me, p.ID); !errors.Is(err, ErrNoPreset) {
		t.Errorf("after the deletion: %v", err)
	}
	if gone, err := s.DeletedPreset(context.Background(), me, p.ID); err != nil || gone.Name != "Stories" {
		t.Errorf("to be brought back: %+v, %v", gone, err)
	}
	must(t, s.RestorePreset(background, me, p.ID))
	if back, err := s.Preset(background, me, p.ID); err != nil || back.Name != "Stories" || back.Settings.TopK != 3 {
		t.Errorf("came back as %+v, %v", back, err)
	}
	if err := s.RestorePreset(background, me, p.ID); !errors.Is(err, ErrNoPreset) {
		t.Errorf("came back twice: %v", err)
	}
	for _, id := range []string{"", "0", "-1", "99", "x", "1e3", "9223372036854775808"} {
		if _, err := s.Preset(background, me, id); !errors.Is(err, ErrNoPreset) {
			t.Errorf("preset %q: %v", id, err)
		}
	}
}

func TestPresets_WhatIsRefused(t *testing.T) {
	s, _ := newService(t, Options{Store: openStore(t, storePath(t))})
	good := Preset{Name: "x", Settings: DefaultSettings()}
	for _, c := range []struct {
		name, field string
		change      func(*Preset)
	}{
		{"no name", "presets[1].name", func(p *Preset) { p.Name = " \n" }},
		{"a long name", "presets[1].name", func(p *Preset) { p.Name = strings.Repeat("é", maxPresetName+1) }},
		{"a name that is no text", "presets[1].name", func(p *Preset) { p.Name = "\xff" }},
		{"a long system prompt", "presets[1].system", func(p *Preset) { p.System = strings.Repeat("x", maxPresetSystem+1) }},
		{"a value out of range", "presets[1].settings.top_p", func(p *Preset) { p.Settings.TopP = 7 }},
	} {
		bad := good
		c.change(&bad)
		var wrong *infer.Error
		if _, err := s.ImportPresets(background, me, []Preset{good, bad}); !errors.As(err, &wrong) || wrong.Param != c.field {
			t.Errorf("%s: %v, want an error about %s", c.name, err, c.field)
		}
	}
	for name, list := range map[string][]Preset{"none": nil, "too many": make([]Preset, maxPresets+1)} {
		if _, err := s.ImportPresets(background, me, list); err == nil {
			t.Errorf("%s are imported", name)
		}
	}
	if list, err := s.Presets(background, me); err != nil || len(list) != len(builtins) {
		t.Errorf("there are %d presets, %v", len(list), err)
	}
}

func TestPresets_WhatWasImportedUnderANumberIsImportedAgain(t *testing.T) {
	s, _ := newService(t, Options{Store: openStore(t, storePath(t))})
	long := strings.Repeat("ä", maxPresetName)
	list := []Preset{{Name: long, Settings: DefaultSettings()}, {Name: long, Settings: DefaultSettings()}, {Name: "x", Settings: DefaultSettings()}, {Name: "x", Settings: DefaultSettings()}}
	for round := range 3 {
		added, err := s.ImportPresets(background, me, list)
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
		if p := fromStoredPreset(store.Preset{ID: 1, Name: "x", Settings: []byte(settings)}); !reflect.DeepEqual(p.Settings, DefaultSettings()) {
			t.Errorf("%s reads as %+v", settings, p.Settings)
		}
	}
}

func TestPresets_WithoutAStoreThereAreTheBuiltInOnes(t *testing.T) {
	s, _ := newService(t, Options{})
	if list, err := s.Presets(background, me); err != nil || len(list) != len(builtins) {
		t.Errorf("there are %+v, %v", list, err)
	}
	if _, err := s.CreatePreset(background, me, Preset{Name: "x", Settings: DefaultSettings()}); err == nil {
		t.Error("a preset is made and stored nowhere")
	}
	if _, err := s.Preset(background, me, "1"); !errors.Is(err, ErrNoPreset) {
		t.Errorf("preset 1: %v", err)
	}
}
