// Package disk has the use cases of what chats take on the disk: the room that is left, and the limits of KV caches
// and of the candidates of tokens. It knows no HTTP.
package disk

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/infer/kvfile"
	"m40-llm/store"
)

// Store is where chats are stored: *store.Store.
type Store interface {
	Setting(ctx context.Context, owner, name string) (json.RawMessage, error)
	SetSetting(ctx context.Context, owner, name string, value json.RawMessage) error
	RowLimits(ctx context.Context) (limits store.RowLimits, used int64, err error)
	SetRowLimits(ctx context.Context, limits store.RowLimits) error
	ConversationIDs(ctx context.Context) ([]string, error)
	Present() error
	Free() (bytes int64, enough bool, err error)
}

// Service knows what the chats of a server take.
type Service struct {
	store   Store       // nil: no chat is stored
	files   *kvfile.Dir // nil: no KV cache is stored
	now     func() time.Time
	log     *slog.Logger
	space   space
	kvLimit atomic.Int64 // megabytes that the KV caches of all chats may take
}

// New returns a Service for the chats in db and their KV caches in files; where one is nil, none are stored.
func New(ctx context.Context, db Store, files *kvfile.Dir, now func() time.Time, log *slog.Logger) *Service {
	s := &Service{store: db, files: files, now: now, log: log}
	if err := s.readKVLimit(ctx); err != nil {
		log.Warn("failed to read the limit of KV caches", "error", err)
	}
	return s
}

// RowLimits returns how long, and up to which size, the candidates of tokens are stored, and how many bytes
// they take now; nothing where no chat is stored.
func (s *Service) RowLimits(ctx context.Context, who access.Principal) (limits store.RowLimits, used int64, err error) {
	if err := owned.May(who, access.ActionRead, access.KindChat); err != nil || s.store == nil {
		return limits, 0, err
	}
	limits, used, err = s.store.RowLimits(ctx)
	if err != nil {
		return limits, 0, owned.StoreError(err)
	}
	return limits, used, nil
}

// SetRowLimits sets the limits, and deletes the candidates that exceed them. The owner of the server may, else
// the error is access.ErrDenied.
func (s *Service) SetRowLimits(ctx context.Context, who access.Principal, limits store.RowLimits) error {
	if err := owned.MayManageModels(who); err != nil {
		return err
	}
	if s.store == nil {
		return owned.ErrNotFound
	}
	if err := s.store.SetRowLimits(context.WithoutCancel(ctx), limits); err != nil {
		return owned.StoreError(err)
	}
	return nil
}
