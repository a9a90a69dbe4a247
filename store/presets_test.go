package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
)

func TestPresets(t *testing.T) {
	s := newStore(t)
	names := func() (list []string) {
		for _, p := range must[[]Preset](t)(s.Presets(ctx, me)) {
			list = append(list, p.Name)
		}
		return list
	}
	precise := must[Preset](t)(s.CreatePreset(ctx, me, Preset{Name: " Precise ", System: "Be exact.", Settings: json.RawMessage(`{"temperature":0}`)}))
	wild := must[Preset](t)(s.CreatePreset(ctx, me, Preset{Name: "Wild"}))
	if precise.Name != "Precise" || precise.System != "Be exact." || string(precise.Settings) != `{"temperature":0}` || string(wild.Settings) != "null" {
		t.Errorf("created %+v and %+v", precise, wild)
	}
	if got := must[Preset](t)(s.Preset(ctx, me, precise.ID)); fmt.Sprint(got) != fmt.Sprint(precise) {
		t.Errorf("read %+v, want %+v", got, precise)
	}
	for name, do := range map[string]func() error{
		"a second of the name":      func() error { return second(s.CreatePreset(ctx, me, Preset{Name: "precise"})) },
		"a rename to a name in use": func() error { return s.RenamePreset(ctx, me, wild.ID, "PRECISE ") },
		"an update to a name in use": func() error {
			return second(s.UpdatePreset(ctx, me, Preset{ID: wild.ID, Name: "Precise"}))
		},
	} {
		if err := do(); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v, want ErrConflict", name, err)
		}
	}
	must[Preset](t)(s.CreatePreset(ctx, you, Preset{Name: "Precise"}))
	mustDo(t, s.RenamePreset(ctx, me, precise.ID, "PRECISE"))
	mustDo(t, s.RenamePreset(ctx, me, wild.ID, "Änderung"))
	updated := must[Preset](t)(s.UpdatePreset(ctx, me, Preset{ID: wild.ID, Name: "Bold", System: "S", Settings: json.RawMessage(`[1]`)}))
	if updated.Name != "Bold" || updated.System != "S" || string(updated.Settings) != "[1]" || !updated.Created.Equal(wild.Created) {
		t.Errorf("updated to %+v", updated)
	}
	if got, want := names(), []string{"Bold", "PRECISE"}; !slices.Equal(got, want) {
		t.Errorf("presets %v, want %v", got, want)
	}
	mustDo(t, s.DeletePreset(ctx, me, wild.ID))
	if err := s.DeletePreset(ctx, me, wild.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if got, want := names(), []string{"PRECISE"}; !slices.Equal(got, want) {
		t.Errorf("presets %v, want %v", got, want)
	}
}

func TestSettings(t *testing.T) {
	s := newStore(t)
	if _, err := s.Setting(ctx, me, "theme"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a setting never set: %v", err)
	}
	mustDo(t, s.SetSetting(ctx, me, "theme", json.RawMessage(`"light"`)))
	mustDo(t, s.SetSetting(ctx, me, "theme", json.RawMessage(`"dark"`)))
	mustDo(t, s.SetSetting(ctx, me, "model", json.RawMessage(`{"name":"guide"}`)))
	mustDo(t, s.SetSetting(ctx, me, "gone", json.RawMessage(`1`)))
	mustDo(t, s.SetSetting(ctx, me, "gone", nil))
	mustDo(t, s.SetSetting(ctx, you, "theme", json.RawMessage(`"blue"`)))
	if v := must[json.RawMessage](t)(s.Setting(ctx, me, "theme")); string(v) != `"dark"` {
		t.Errorf("theme is %s", v)
	}
	values := must[map[string]json.RawMessage](t)(s.Settings(ctx, me))
	if got := slices.Sorted(maps.Keys(values)); !slices.Equal(got, []string{"model", "theme"}) {
		t.Errorf("settings %v", got)
	}
}

func TestPresets_ADeletedOneComesBackUnderItsId(t *testing.T) {
	s := newStore(t)
	p := must[Preset](t)(s.CreatePreset(ctx, me, Preset{Name: "Precise", System: "S", Settings: json.RawMessage(`{"top_k":1}`)}))
	if err := s.RestorePreset(ctx, me, p); !errors.Is(err, ErrConflict) {
		t.Errorf("one that is there comes back: %v", err)
	}
	mustDo(t, s.DeletePreset(ctx, me, p.ID))
	mustDo(t, s.RestorePreset(ctx, me, p))
	if got := must[Preset](t)(s.Preset(ctx, me, p.ID)); fmt.Sprint(got) != fmt.Sprint(p) {
		t.Errorf("came back as %+v, want %+v", got, p)
	}
	mustDo(t, s.DeletePreset(ctx, me, p.ID))
	must[Preset](t)(s.CreatePreset(ctx, me, Preset{Name: "precise"}))
	if err := s.RestorePreset(ctx, me, p); !errors.Is(err, ErrConflict) {
		t.Errorf("one whose name is taken comes back: %v", err)
	}
}

func TestPresets_AnImportIsWholeAndTakesNoName(t *testing.T) {
	s := newStore(t)
	must[Preset](t)(s.CreatePreset(ctx, me, Preset{Name: "Precise"}))
	list := []Preset{{Name: "precise"}, {Name: " Precise "}, {Name: "Wild"}}
	added := must[[]Preset](t)(s.ImportPresets(ctx, me, list))
	var names []string
	for _, p := range added {
		names = append(names, p.Name)
	}
	if want := []string{"precise (2)", "Precise (3)", "Wild"}; !slices.Equal(names, want) {
		t.Errorf("imported as %q, want %q", names, want)
	}
	if _, err := s.ImportPresets(ctx, me, []Preset{{Name: "Good"}, {Name: "Bad", Settings: json.RawMessage(`{`)}}); err == nil {
		t.Error("a preset that is no JSON is imported")
	}
	if got := must[[]Preset](t)(s.Presets(ctx, me)); len(got) != 4 {
		t.Errorf("half an import was made: %+v", got)
	}
}

func TestPresets_ASystemPromptIsFoundInThoseOfItsOwner(t *testing.T) {
	s := newStore(t)
	must[Preset](t)(s.CreatePreset(ctx, me, Preset{Name: "House", System: "In the style of the house."}))
	must[Preset](t)(s.CreatePreset(ctx, me, Preset{Name: "None"}))
	for _, tc := range []struct {
		owner, system string
		want          bool
	}{
		{me, "In the style of the house.", true},
		{me, "in the style of the house.", false},
		{"another", "In the style of the house.", false},
	} {
		if got := must[bool](t)(s.HasSystemPrompt(ctx, tc.owner, tc.system)); got != tc.want {
			t.Errorf("%s has %q: %v, want %v", tc.owner, tc.system, got, tc.want)
		}
	}
}
