// Package choice remembers which model each person chose last, with which their next chats begin.
package choice

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// MaxModel is how many bytes the name of a model can have.
const MaxModel = 500

// name is that of the stored setting.
const name = "chosen_model"

// Store has the settings of people.
type Store interface {
	Setting(ctx context.Context, owner, name string) (json.RawMessage, error)
	SetSetting(ctx context.Context, owner, name string, value json.RawMessage) error
}

// Service has the choices of all people.
type Service struct {
	store Store // nil: choices last as long as the server
	first func(ctx context.Context, chosen string) string
	log   *slog.Logger

	mu   sync.Mutex
	last map[string]chosen // since the start, by owner
}

type chosen struct {
	model  string
	stored bool // in the setting
}

// New returns a Service. first returns the model that the chats of a person begin with who has chosen one, or none if that is
// empty; an empty name means the loaded one. nil: the chosen one.
func New(store Store, first func(ctx context.Context, chosen string) string, log *slog.Logger) *Service {
	return &Service{store: store, first: first, log: log, last: map[string]chosen{}}
}

// Check returns an error if model cannot be the name of one.
func Check(model string) error {
	if len(model) > MaxModel {
		return fault.Invalid("model", "the model's name has %d bytes, and at most %d are stored", len(model), MaxModel)
	}
	return fault.CheckUTF8("model", model)
}

// Model returns the model that a person chose last; if they have chosen none, that of First.
func (s *Service) Model(ctx context.Context, who access.Principal) (model string, err error) {
	if err := owned.May(who, access.ActionRead, access.KindSetting); err != nil {
		return "", err
	}
	s.mu.Lock()
	last, known := s.last[who.Owner]
	s.mu.Unlock()
	switch {
	case known:
		return last.model, nil
	case s.store == nil:
		return s.First(ctx, ""), nil
	}
	value, err := s.store.Setting(ctx, who.Owner, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return s.First(ctx, ""), nil
	case err == nil:
		err = json.Unmarshal(value, &model)
	}
	if err != nil {
		return "", owned.StoreError(err)
	}
	return model, nil
}

// First returns the model that the chats of a person begin with who has chosen one, or none if that is empty: another one
// while the chosen one cannot chat. Empty: the loaded one.
func (s *Service) First(ctx context.Context, chosen string) string {
	if s.first == nil {
		return chosen
	}
	return s.first(ctx, chosen)
}

// Began takes the model with which a chat of a person began as their choice, unless their chats begin with it anyway, or it
// replaces one that is not available.
func (s *Service) Began(ctx context.Context, who access.Principal, model string) {
	if model == "" {
		return
	}
	if now, err := s.Model(ctx, who); err != nil || model != now && model != s.First(ctx, now) {
		s.Choose(ctx, who, model)
	}
}

// Choose remembers which model a person chose. If it cannot be stored, new chats begin with another one, which is no
// reason to refuse what was asked for.
func (s *Service) Choose(ctx context.Context, who access.Principal, model string) {
	s.mu.Lock()
	before := s.last[who.Owner]
	s.last[who.Owner] = chosen{model: model, stored: before.stored && before.model == model}
	s.mu.Unlock()
	if before.stored && before.model == model || s.store == nil || owned.May(who, access.ActionChange, access.KindSetting) != nil {
		return
	}
	value, _ := json.Marshal(model) // cannot fail
	if err := s.store.SetSetting(context.WithoutCancel(ctx), who.Owner, name, value); err != nil {
		s.log.Warn("the model that was chosen last cannot be remembered", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[who.Owner].model == model {
		s.last[who.Owner] = chosen{model: model, stored: true}
	}
}

// Forget forgets what a person has chosen since the start.
func (s *Service) Forget(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, owner)
}
