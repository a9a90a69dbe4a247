package picture

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Budget bounds the memory that all pictures decoded at a time need together. It is safe for concurrent use.
type Budget struct {
	bytes int64
	free  *semaphore.Weighted
}

// NewBudget returns a budget of some bytes.
func NewBudget(bytes int64) *Budget { return &Budget{bytes, semaphore.NewWeighted(bytes)} }

// Decode is the function Decode, which begins when the memory that it needs is free: first come, first served. A file
// that needs more than the whole budget is refused. It returns the error of ctx if that ends before.
func (b *Budget) Decode(ctx context.Context, data []byte, limits Limits) (*Image, error) {
	limits.Memory = int(min(int64(limits.Memory), b.bytes))
	info, err := Inspect(data, limits)
	if err != nil {
		return nil, err
	}
	if err := b.free.Acquire(ctx, int64(info.Memory)); err != nil {
		return nil, err
	}
	defer b.free.Release(int64(info.Memory))
	return Decode(data, limits)
}
