// Package presets has the use cases of presets: named settings, built in and of people. It knows no HTTP.
package presets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"m40-llm/handlers/access"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
	"m40-llm/store"
	"m40-llm/web/lang"
)

// Preset is a named set of settings, with a system prompt if it has one. It has no
// seed: Settings.Seed is always -1.
type Preset struct {
	ID       string // a word for a built-in one, a number for one that a person made
	Name     string
	About    string // what a built-in one is for
	System   string
	Settings setting.Settings
	Builtin  bool
	Updated  time.Time // zero for a built-in one
}

// Store is where a person's presets are stored: *store.Store.
type Store interface {
	Presets(ctx context.Context, owner string) ([]store.Preset, error)
	Preset(ctx context.Context, owner string, id int64) (store.Preset, error)
	CreatePreset(ctx context.Context, owner string, p store.Preset) (store.Preset, error)
	UpdatePreset(ctx context.Context, owner string, p store.Preset) (store.Preset, error)
	RenamePreset(ctx context.Context, owner string, id int64, name string) error
	DeletePreset(ctx context.Context, owner string, id int64) error
	RestorePreset(ctx context.Context, owner string, p store.Preset) error
	ImportPresets(ctx context.Context, owner string, list []store.Preset) ([]store.Preset, error)
}

// Service has the presets of a server.
type Service struct {
	chats *live.Service
	store Store // nil: there are the built-in ones only

	mu      sync.Mutex
	deleted []deletedPreset // the last ones, for a while
}

// New returns a Service for the panels of chats; nil store: there are the built-in presets only.
func New(chats *live.Service, store Store) *Service { return &Service{chats: chats, store: store} }

// may authorizes what who does with presets of its own.
func may(who live.Principal, what access.Action) error {
	return owned.Authorize(who, what, access.Object{Kind: access.KindPreset, Owner: who.Owner})
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
	ErrNoPreset = fault.New(fault.CodePresetNotFound, "there is no such preset on this server")
	// ErrBuiltin says that a preset is part of the program.
	ErrBuiltin = fault.New(fault.CodePresetBuiltin, "built-in presets cannot be changed; save a copy under a name of its own")
)

// builtins are the presets of every server and model. The first one is setting.Default.
var builtins = func() []Preset {
	make := func(id, name, about string, change func(*setting.Settings)) Preset {
		p := Preset{ID: id, Name: name, About: about, Settings: setting.Default(), Builtin: true}
		change(&p.Settings)
		return p
	}
	return []Preset{
		make("balanced", "Balanced", lang.Key("start here"), func(*setting.Settings) {}),
		make("precise", "Precise", lang.Key("facts, code, extraction"), func(s *setting.Settings) {
			s.Temperature, s.TopK, s.TopP, s.MaxTokens = 0.3, 20, 0.9, 1024
		}),
		make("creative", "Creative", lang.Key("stories, first ideas"), func(s *setting.Settings) {
			s.Temperature, s.TopK, s.TopP, s.RepeatPenalty, s.MaxTokens = 1.1, 0, 1, 1.05, 1024
		}),
		make("greedy", "Greedy", lang.Key("always the likeliest token, the same answer each time"), func(s *setting.Settings) {
			s.Temperature = 0
		}),
		make("unfiltered", "Nothing removed", lang.Key("the model’s own probabilities, rare tokens too"), func(s *setting.Settings) {
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
	suggested := s.chats.Status().Model.Sampling
	if suggested.Empty() {
		return Preset{}, false
	}
	p := Preset{ID: modelsOwn, Name: modelsOwnName, About: lang.Key("what the model’s maker recommends; new chats begin with it"), Settings: setting.Default(), Builtin: true}
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

// List lists the built-in presets, and then a person's by name.
func (s *Service) List(ctx context.Context, who live.Principal) ([]Preset, error) {
	if err := may(who, access.ActionRead); err != nil {
		return nil, err
	}
	list := s.builtins()
	if s.store == nil {
		return list, nil
	}
	own, err := s.store.Presets(ctx, who.Owner)
	for _, p := range own {
		list = append(list, fromStoredPreset(p))
	}
	return list, presetError(err, "")
}

// Get returns one preset, or ErrNoPreset.
func (s *Service) Get(ctx context.Context, who live.Principal, id string) (Preset, error) {
	if err := may(who, access.ActionRead); err != nil {
		return Preset{}, err
	}
	if p, ok := s.builtin(id); ok {
		return p, nil
	}
	number, err := s.own(id)
	if err != nil {
		return Preset{}, err
	}
	p, err := s.store.Preset(ctx, who.Owner, number)
	if err != nil {
		return Preset{}, presetError(err, "")
	}
	return fromStoredPreset(p), nil
}

// Create adds a preset; of p its name, system prompt and settings count. It
// fails with a *owned.TakenError if the name is taken.
func (s *Service) Create(ctx context.Context, who live.Principal, p Preset) (Preset, error) {
	if err := may(who, access.ActionChange); err != nil {
		return Preset{}, err
	}
	if s.store == nil {
		return Preset{}, errNoStore
	}
	record, err := p.record()
	if err != nil {
		return Preset{}, err
	}
	if builtinName(record.Name) {
		return Preset{}, &owned.TakenError{Kind: "preset", Name: record.Name}
	}
	saved, err := s.store.CreatePreset(ctx, who.Owner, record)
	return fromStoredPreset(saved), presetError(err, record.Name)
}

// Copy adds a preset that is another one but for the number after its name.
func (s *Service) Copy(ctx context.Context, who live.Principal, id string) (Preset, error) {
	p, err := s.Get(ctx, who, id)
	if err != nil {
		return Preset{}, err
	}
	added, err := s.Import(ctx, who, []Preset{p})
	if err != nil {
		return Preset{}, err
	}
	return added[0], nil
}

// Save gives a preset another system prompt and other settings.
func (s *Service) Save(ctx context.Context, who live.Principal, id, system string, settings setting.Settings) (Preset, error) {
	if err := may(who, access.ActionChange); err != nil {
		return Preset{}, err
	}
	number, err := s.own(id)
	if err != nil {
		return Preset{}, err
	}
	old, err := s.store.Preset(ctx, who.Owner, number)
	if err != nil {
		return Preset{}, presetError(err, "")
	}
	record, err := Preset{Name: old.Name, System: system, Settings: settings}.record()
	if err != nil {
		return Preset{}, err
	}
	record.ID = number
	saved, err := s.store.UpdatePreset(ctx, who.Owner, record)
	return fromStoredPreset(saved), presetError(err, record.Name)
}

// Replace gives a preset another name, system prompt and settings. It fails with a
// *owned.TakenError if another preset has the name.
func (s *Service) Replace(ctx context.Context, who live.Principal, p Preset) error {
	if err := may(who, access.ActionChange); err != nil {
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
		return &owned.TakenError{Kind: "preset", Name: record.Name}
	}
	record.ID = number
	_, err = s.store.UpdatePreset(ctx, who.Owner, record)
	return presetError(err, record.Name)
}

// Use puts the values of a preset into the panel of a chat. Its seed stays, and so does a system
// prompt that no preset brought.
func (s *Service) Use(ctx context.Context, who live.Principal, chat, id string) error {
	p, err := s.Get(ctx, who, id)
	if err != nil {
		return err
	}
	c, err := s.chats.Chat(ctx, who, chat)
	if err != nil {
		return err
	}
	return c.UsePanel(ctx, who, live.Panel{Settings: p.Settings, Preset: p.ID}, p.System, func(ctx context.Context, preset, system string) bool {
		before, err := s.Get(ctx, who, preset)
		return err == nil && system == before.System
	})
}

// Rename fails with a *owned.TakenError if another preset has the name.
func (s *Service) Rename(ctx context.Context, who live.Principal, id, name string) error {
	if err := may(who, access.ActionChange); err != nil {
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
		return &owned.TakenError{Kind: "preset", Name: name}
	}
	return presetError(s.store.RenamePreset(ctx, who.Owner, number, name), name)
}

// Delete removes a preset. Until the server stops, Restore brings it back.
func (s *Service) Delete(ctx context.Context, who live.Principal, id string) error {
	if err := may(who, access.ActionChange); err != nil {
		return err
	}
	number, err := s.own(id)
	if err != nil {
		return err
	}
	p, err := s.store.Preset(ctx, who.Owner, number)
	if err == nil {
		err = s.store.DeletePreset(ctx, who.Owner, number)
	}
	if err != nil {
		return presetError(err, "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = append(s.deleted, deletedPreset{who.Owner, p})
	if len(s.deleted) > maxDeleted {
		s.deleted = s.deleted[1:]
	}
	return nil
}

// Deleted returns a preset that Restore would bring back, or ErrNoPreset.
func (s *Service) Deleted(_ context.Context, who live.Principal, id string) (Preset, error) {
	if err := may(who, access.ActionRead); err != nil {
		return Preset{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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

func (s *Service) deletedAt(who live.Principal, id string) int {
	return slices.IndexFunc(s.deleted, func(p deletedPreset) bool { return p.owner == who.Owner && strconv.FormatInt(p.ID, 10) == id })
}

// Restore brings a deleted preset back under its id. It fails with a *owned.TakenError
// if another has its name by now.
func (s *Service) Restore(ctx context.Context, who live.Principal, id string) error {
	if err := may(who, access.ActionChange); err != nil {
		return err
	}
	p, found := s.takeDeleted(who, id)
	if !found {
		return ErrNoPreset
	}
	if err := s.store.RestorePreset(ctx, who.Owner, p.Preset); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.deleted = append(s.deleted, p)
		return presetError(err, p.Name)
	}
	return nil
}

// takeDeleted takes a preset from those that were deleted.
func (s *Service) takeDeleted(who live.Principal, id string) (p deletedPreset, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.deletedAt(who, id)
	if i < 0 {
		return p, false
	}
	p = s.deleted[i]
	s.deleted = slices.Delete(s.deleted, i, i+1)
	return p, true
}

// Import adds all of list, or none. One whose name is taken gets a number
// after it. An error names the field that is wrong by its place in the list.
func (s *Service) Import(ctx context.Context, who live.Principal, list []Preset) ([]Preset, error) {
	if err := may(who, access.ActionChange); err != nil {
		return nil, err
	}
	switch {
	case s.store == nil:
		return nil, errNoStore
	case len(list) == 0:
		return nil, fault.Invalid("presets", "there are no presets in the file")
	case len(list) > maxPresets:
		return nil, fault.Invalid("presets", "there are %d presets in the file, and at most %d are taken at once", len(list), maxPresets)
	}
	var records []store.Preset
	for i, p := range list {
		record, err := p.record()
		if err != nil {
			return nil, fault.Inside(err, fmt.Sprintf("presets[%d]", i))
		}
		if builtinName(record.Name) {
			record.Name += " (2)"
		}
		records = append(records, record)
	}
	saved, err := s.store.ImportPresets(ctx, who.Owner, records)
	var added []Preset
	for _, p := range saved {
		added = append(added, fromStoredPreset(p))
	}
	return added, presetError(err, "")
}

// errNoStore says that there is no place for presets.
var errNoStore = fault.Invalid("", "this server keeps no presets of its own")

// own returns the number of a preset that a person made.
func (s *Service) own(id string) (int64, error) {
	if _, fixed := s.builtin(id); fixed {
		return 0, ErrBuiltin
	}
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil || number < 1 || s.store == nil {
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
		return store.Preset{}, fault.Invalid("system", "the system prompt has %d bytes, and a preset keeps at most %d", len(p.System), maxPresetSystem)
	}
	if err := fault.CheckUTF8("system", p.System); err != nil {
		return store.Preset{}, err
	}
	p.Settings.Seed = -1
	if err := p.Settings.Validate(); err != nil {
		return store.Preset{}, fault.Inside(err, "settings")
	}
	settings, _ := json.Marshal(p.Settings) // cannot fail: numbers and text
	return store.Preset{Name: name, System: p.System, Settings: settings}, nil
}

func presetName(name string) (string, error) {
	if err := fault.CheckUTF8("name", name); err != nil {
		return "", err
	}
	name = strings.Join(strings.Fields(name), " ")
	switch n := utf8.RuneCountInString(name); {
	case n == 0:
		return "", fault.Invalid("name", "the preset has no name")
	case n > maxPresetName:
		return "", fault.Invalid("name", "the name has %d characters, and at most %d are stored", n, maxPresetName)
	}
	return name, nil
}

// fromStoredPreset reads a preset. Settings that another program spoilt are the
// defaults.
func fromStoredPreset(p store.Preset) Preset {
	out := Preset{ID: strconv.FormatInt(p.ID, 10), Name: p.Name, System: p.System, Settings: setting.Default(), Updated: p.Updated}
	if json.Unmarshal(p.Settings, &out.Settings) != nil || out.Settings.Validate() != nil {
		out.Settings = setting.Default()
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
		return &owned.TakenError{Kind: "preset", Name: name}
	}
	return owned.StoreError(err)
}
