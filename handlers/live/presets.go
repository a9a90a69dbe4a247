package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"m40-llm/handlers/access"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// Preset is a named set of settings, with a system prompt if it has one. It has no
// seed: Settings.Seed is always -1.
type Preset struct {
	ID       string // a word for a built-in one, a number for one that a person made
	Name     string
	About    string // what a built-in one is for
	System   string
	Settings Settings
	Builtin  bool
	Updated  time.Time // zero for a built-in one
}

// Limits of presets.
const (
	maxPresetName   = 100 // characters
	maxPresetSystem = 64 << 10
	maxPresets      = 500 // of one import
	maxDeleted      = 50  // that can be brought back
)

var (
	// ErrNoPreset says that there is no preset of this id.
	ErrNoPreset = errors.New("there is no such preset on this server")
	// ErrBuiltin says that a preset is part of the program.
	ErrBuiltin = errors.New("built-in presets cannot be changed; save a copy under a name of its own")
)

// TakenError says that another preset, or another folder, has the name.
type TakenError struct{ Kind, Name string }

func (e *TakenError) Error() string {
	return fmt.Sprintf("there is a %s “%s” already", e.Kind, e.Name)
}

// builtins are the presets of every server and model. The first one is DefaultSettings.
var builtins = func() []Preset {
	make := func(id, name, about string, change func(*Settings)) Preset {
		p := Preset{ID: id, Name: name, About: about, Settings: DefaultSettings(), Builtin: true}
		change(&p.Settings)
		return p
	}
	return []Preset{
		make("balanced", "Balanced", "start here", func(*Settings) {}),
		make("precise", "Precise", "facts, code, extraction", func(s *Settings) {
			s.Temperature, s.TopK, s.TopP, s.MaxTokens = 0.3, 20, 0.9, 1024
		}),
		make("creative", "Creative", "stories, first ideas", func(s *Settings) {
			s.Temperature, s.TopK, s.TopP, s.RepeatPenalty, s.MaxTokens = 1.1, 0, 1, 1.05, 1024
		}),
		make("greedy", "Greedy", "always the likeliest token, the same answer each time", func(s *Settings) {
			s.Temperature = 0
		}),
		make("unfiltered", "Nothing removed", "the model’s own probabilities, rare tokens too", func(s *Settings) {
			s.Temperature, s.TopK, s.TopP, s.MinP = 1, 0, 1, 0
		}),
	}
}()

// modelsOwn is the id of the built-in preset with the settings that the loaded model's file suggests.
const (
	modelsOwn     = "own"
	modelsOwnName = "The model’s own"
)

// ModelsOwn returns the preset with the settings that the loaded model's file suggests; false if it
// suggests none.
func (s *Service) ModelsOwn() (Preset, bool) {
	suggested := s.engine.Status().Model.Sampling
	if suggested.Empty() {
		return Preset{}, false
	}
	p := Preset{ID: modelsOwn, Name: modelsOwnName, About: "what the model’s maker recommends; new chats begin with it", Settings: DefaultSettings(), Builtin: true}
	p.Settings.Params = suggested.Apply(p.Settings.Params, sample.SuggestionNames())
	return p, true
}

// builtins lists the built-in presets, first that of the loaded model if it has one.
func (s *Service) builtins() []Preset {
	list := slices.Clone(builtins)
	if own, ok := s.ModelsOwn(); ok {
		list = slices.Insert(list, 0, own)
	}
	return list
}

func (s *Service) builtin(id string) (Preset, bool) {
	list := s.builtins()
	if i := slices.IndexFunc(list, func(p Preset) bool { return p.ID == id }); i >= 0 {
		return list[i], true
	}
	return Preset{}, false
}

func builtinName(name string) bool {
	return strings.EqualFold(modelsOwnName, name) || slices.ContainsFunc(builtins, func(p Preset) bool { return strings.EqualFold(p.Name, name) })
}

// Presets lists the built-in presets, and then a person's by name.
func (s *Service) Presets(ctx context.Context, who Principal) ([]Preset, error) {
	if err := may(who, access.ActionRead, access.KindPreset); err != nil {
		return nil, err
	}
	list := s.builtins()
	if s.opt.Store == nil {
		return list, nil
	}
	own, err := s.opt.Store.Presets(ctx, who.Owner)
	for _, p := range own {
		list = append(list, fromStoredPreset(p))
	}
	return list, presetError(err, "")
}

// Preset returns one preset, or ErrNoPreset.
func (s *Service) Preset(ctx context.Context, who Principal, id string) (Preset, error) {
	if err := may(who, access.ActionRead, access.KindPreset); err != nil {
		return Preset{}, err
	}
	if p, ok := s.builtin(id); ok {
		return p, nil
	}
	number, err := s.own(id)
	if err != nil {
		return Preset{}, err
	}
	p, err := s.opt.Store.Preset(ctx, who.Owner, number)
	if err != nil {
		return Preset{}, presetError(err, "")
	}
	return fromStoredPreset(p), nil
}

// CreatePreset adds a preset; of p its name, system prompt and settings count. It
// fails with a *TakenError if the name is taken.
func (s *Service) CreatePreset(ctx context.Context, who Principal, p Preset) (Preset, error) {
	if err := may(who, access.ActionChange, access.KindPreset); err != nil {
		return Preset{}, err
	}
	if s.opt.Store == nil {
		return Preset{}, errNoStore
	}
	record, err := p.record()
	if err != nil {
		return Preset{}, err
	}
	if builtinName(record.Name) {
		return Preset{}, &TakenError{"preset", record.Name}
	}
	saved, err := s.opt.Store.CreatePreset(ctx, who.Owner, record)
	return fromStoredPreset(saved), presetError(err, record.Name)
}

// CopyPreset adds a preset that is another one but for the number behind its name.
func (s *Service) CopyPreset(ctx context.Context, who Principal, id string) (Preset, error) {
	p, err := s.Preset(ctx, who, id)
	if err != nil {
		return Preset{}, err
	}
	added, err := s.ImportPresets(ctx, who, []Preset{p})
	if err != nil {
		return Preset{}, err
	}
	return added[0], nil
}

// SavePreset gives a preset another system prompt and other settings.
func (s *Service) SavePreset(ctx context.Context, who Principal, id, system string, settings Settings) (Preset, error) {
	if err := may(who, access.ActionChange, access.KindPreset); err != nil {
		return Preset{}, err
	}
	number, err := s.own(id)
	if err != nil {
		return Preset{}, err
	}
	old, err := s.opt.Store.Preset(ctx, who.Owner, number)
	if err != nil {
		return Preset{}, presetError(err, "")
	}
	record, err := Preset{Name: old.Name, System: system, Settings: settings}.record()
	if err != nil {
		return Preset{}, err
	}
	record.ID = number
	saved, err := s.opt.Store.UpdatePreset(ctx, who.Owner, record)
	return fromStoredPreset(saved), presetError(err, record.Name)
}

// ReplacePreset gives a preset another name, system prompt and settings. It fails with a
// *TakenError if another preset has the name.
func (s *Service) ReplacePreset(ctx context.Context, who Principal, p Preset) error {
	if err := may(who, access.ActionChange, access.KindPreset); err != nil {
		return err
	}
	number, err := s.own(p.ID)
	if err != nil {
		return err
	}
	record, err := p.record()
	if err != nil {
		return err
	}
	if builtinName(record.Name) {
		return &TakenError{"preset", record.Name}
	}
	record.ID = number
	_, err = s.opt.Store.UpdatePreset(ctx, who.Owner, record)
	return presetError(err, record.Name)
}

// UsePreset puts the values of a preset into the panel of a chat. Its seed stays, and so
// does a system prompt that no preset brought.
func (s *Service) UsePreset(ctx context.Context, who Principal, chat, id string) error {
	p, err := s.Preset(ctx, who, id)
	if err != nil {
		return err
	}
	c, err := s.Chat(ctx, who, chat)
	if err != nil {
		return err
	}
	if err := c.may(who, access.ActionChange); err != nil {
		return err
	}
	defer c.mustExclude()()
	panel, system := Panel{Settings: p.Settings, Preset: p.ID}, c.metadata.System
	panel.Seed = c.panel.Seed
	brought := system == ""
	if !brought {
		last := c.panel.Preset
		_ = c.commit(ctx, func(ctx context.Context) error { // without mu: the store may be slow
			before, err := s.Preset(ctx, who, last)
			brought = err == nil && system == before.System
			return err
		})
	}
	if brought {
		system = p.System
	}
	if err := panel.validate(system); err != nil {
		return err
	}
	_, err = c.storePanel(ctx, panel, system)
	return err
}

// RenamePreset fails with a *TakenError if another preset has the name.
func (s *Service) RenamePreset(ctx context.Context, who Principal, id, name string) error {
	if err := may(who, access.ActionChange, access.KindPreset); err != nil {
		return err
	}
	number, err := s.own(id)
	if err != nil {
		return err
	}
	if name, err = presetName(name); err != nil {
		return err
	}
	if builtinName(name) {
		return &TakenError{"preset", name}
	}
	return presetError(s.opt.Store.RenamePreset(ctx, who.Owner, number, name), name)
}

// DeletePreset removes a preset. Until the server stops, RestorePreset brings it back.
func (s *Service) DeletePreset(ctx context.Context, who Principal, id string) error {
	if err := may(who, access.ActionChange, access.KindPreset); err != nil {
		return err
	}
	number, err := s.own(id)
	if err != nil {
		return err
	}
	p, err := s.opt.Store.Preset(ctx, who.Owner, number)
	if err == nil {
		err = s.opt.Store.DeletePreset(ctx, who.Owner, number)
	}
	if err != nil {
		return presetError(err, "")
	}
	s.presetsMu.Lock()
	defer s.presetsMu.Unlock()
	s.deleted = append(s.deleted, deletedPreset{who.Owner, p})
	if len(s.deleted) > maxDeleted {
		s.deleted = s.deleted[1:]
	}
	return nil
}

// DeletedPreset returns a preset that RestorePreset would bring back, or ErrNoPreset.
func (s *Service) DeletedPreset(_ context.Context, who Principal, id string) (Preset, error) {
	if err := may(who, access.ActionRead, access.KindPreset); err != nil {
		return Preset{}, err
	}
	s.presetsMu.Lock()
	defer s.presetsMu.Unlock()
	if i := s.deletedAt(who, id); i >= 0 {
		return fromStoredPreset(s.deleted[i].Preset), nil
	}
	return Preset{}, ErrNoPreset
}

// deletedPreset is a preset that its owner can have back.
type deletedPreset struct {
	owner string
	store.Preset
}

func (s *Service) deletedAt(who Principal, id string) int {
	return slices.IndexFunc(s.deleted, func(p deletedPreset) bool { return p.owner == who.Owner && strconv.FormatInt(p.ID, 10) == id })
}

// RestorePreset brings a deleted preset back under its id. It fails with a *TakenError
// if another has its name by now.
func (s *Service) RestorePreset(ctx context.Context, who Principal, id string) error {
	if err := may(who, access.ActionChange, access.KindPreset); err != nil {
		return err
	}
	p, found := s.takeDeleted(who, id)
	if !found {
		return ErrNoPreset
	}
	if err := s.opt.Store.RestorePreset(ctx, who.Owner, p.Preset); err != nil {
		s.presetsMu.Lock()
		defer s.presetsMu.Unlock()
		s.deleted = append(s.deleted, p)
		return presetError(err, p.Name)
	}
	return nil
}

// takeDeleted takes a preset from those that were deleted.
func (s *Service) takeDeleted(who Principal, id string) (p deletedPreset, found bool) {
	s.presetsMu.Lock()
	defer s.presetsMu.Unlock()
	i := s.deletedAt(who, id)
	if i < 0 {
		return p, false
	}
	p = s.deleted[i]
	s.deleted = slices.Delete(s.deleted, i, i+1)
	return p, true
}

// ImportPresets adds all of list, or none. One whose name is taken gets a number
// behind it. An error names the field that is wrong by its place in the list.
func (s *Service) ImportPresets(ctx context.Context, who Principal, list []Preset) ([]Preset, error) {
	if err := may(who, access.ActionChange, access.KindPreset); err != nil {
		return nil, err
	}
	switch {
	case s.opt.Store == nil:
		return nil, errNoStore
	case len(list) == 0:
		return nil, invalid("presets", "there are no presets in the file")
	case len(list) > maxPresets:
		return nil, invalid("presets", "there are %d presets in the file, and at most %d are taken at once", len(list), maxPresets)
	}
	var records []store.Preset
	for i, p := range list {
		record, err := p.record()
		if err != nil {
			return nil, inside(err, fmt.Sprintf("presets[%d]", i))
		}
		if builtinName(record.Name) {
			record.Name += " (2)"
		}
		records = append(records, record)
	}
	saved, err := s.opt.Store.ImportPresets(ctx, who.Owner, records)
	var added []Preset
	for _, p := range saved {
		added = append(added, fromStoredPreset(p))
	}
	return added, presetError(err, "")
}

// errNoStore says that there is no place for presets.
var errNoStore = invalid("", "this server keeps no presets of its own")

// own returns the number of a preset that a person made.
func (s *Service) own(id string) (int64, error) {
	if _, fixed := s.builtin(id); fixed {
		return 0, ErrBuiltin
	}
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil || number < 1 || s.opt.Store == nil {
		return 0, ErrNoPreset
	}
	return number, nil
}

// record checks what a person made, and returns it as it is stored.
func (p Preset) record() (store.Preset, error) {
	name, err := presetName(p.Name)
	if err != nil {
		return store.Preset{}, err
	}
	if len(p.System) > maxPresetSystem {
		return store.Preset{}, invalid("system", "the system prompt has %d bytes, and a preset keeps at most %d", len(p.System), maxPresetSystem)
	}
	if err := checkUTF8("system", p.System); err != nil {
		return store.Preset{}, err
	}
	p.Settings.Seed = -1
	if err := p.Settings.Validate(); err != nil {
		return store.Preset{}, inside(err, "settings")
	}
	settings, _ := json.Marshal(p.Settings) // cannot fail: numbers and text
	return store.Preset{Name: name, System: p.System, Settings: settings}, nil
}

func presetName(name string) (string, error) {
	if err := checkUTF8("name", name); err != nil {
		return "", err
	}
	name = strings.Join(strings.Fields(name), " ")
	switch n := utf8.RuneCountInString(name); {
	case n == 0:
		return "", invalid("name", "the preset has no name")
	case n > maxPresetName:
		return "", invalid("name", "the name has %d characters, and at most %d are stored", n, maxPresetName)
	}
	return name, nil
}

// fromStoredPreset reads a preset. Settings that another program spoilt are the
// defaults.
func fromStoredPreset(p store.Preset) Preset {
	out := Preset{ID: strconv.FormatInt(p.ID, 10), Name: p.Name, System: p.System, Settings: DefaultSettings(), Updated: p.Updated}
	if json.Unmarshal(p.Settings, &out.Settings) != nil || out.Settings.Validate() != nil {
		out.Settings = DefaultSettings()
	}
	out.Settings.Seed = -1
	return out
}

func presetError(err error, name string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return ErrNoPreset
	case errors.Is(err, store.ErrConflict):
		return &TakenError{"preset", name}
	}
	return StoreError(err)
}
