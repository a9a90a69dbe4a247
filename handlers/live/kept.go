package live

import (
	"context"

	"m40-llm/handlers/access"
	"m40-llm/store"
)

// RowLimits returns how long, and up to which size, the candidates of tokens are kept, and how many bytes
// they take now; nothing where no chat is stored.
func (s *Service) RowLimits(ctx context.Context, who Principal) (limits store.RowLimits, used int64, err error) {
	if err := may(who, access.ActionRead, access.KindChat); err != nil || s.opt.Store == nil {
		return limits, 0, err
	}
	limits, used, err = s.opt.Store.RowLimits(ctx)
	if err != nil {
		return limits, 0, StoreError(err)
	}
	return limits, used, nil
}

// SetRowLimits sets the limits, and deletes the candidates that exceed them. The owner of the server may, else
// the error is access.ErrDenied.
func (s *Service) SetRowLimits(ctx context.Context, who Principal, limits store.RowLimits) error {
	if err := mayManageModels(who); err != nil {
		return err
	}
	if s.opt.Store == nil {
		return ErrNotFound
	}
	if err := s.opt.Store.SetRowLimits(context.WithoutCancel(ctx), limits); err != nil {
		return StoreError(err)
	}
	return nil
}
