package cuda

import (
	"fmt"

	"m40-llm/cudakern"
)

// arena allocates GPU memory. Small allocations share slabs, because the driver rounds every
// allocation up to 2 MiB.
type arena struct {
	context *cudakern.Context
	slabs   []slab
	owned   []cudakern.Ptr
}

type slab struct {
	at   cudakern.Ptr
	left int64
}

const (
	slabBytes  = 32 << 20
	smallPiece = slabBytes / 8 // larger allocations do not use slabs, so that little of a slab stays unused
	alignment  = 256

	driverBytes = 2 << 20 // the driver allocates multiples of it
)

// allocated returns how much memory n bytes take: their own size if they use a slab, otherwise what the driver allocates.
func allocated(n int64) int64 {
	if n <= smallPiece {
		return n
	}
	return (n + driverBytes - 1) / driverBytes * driverBytes
}

// alloc returns n uninitialised bytes, aligned for every kind of load.
func (a *arena) alloc(n int64) (cudakern.Ptr, error) {
	if n <= 0 {
		return 0, fmt.Errorf("cannot allocate %d bytes of GPU memory", n)
	}
	n = (n + alignment - 1) / alignment * alignment
	if n > smallPiece {
		return a.allocate(n)
	}
	for i := range a.slabs {
		if s := &a.slabs[i]; s.left >= n {
			return s.cut(n), nil
		}
	}
	at, err := a.allocate(slabBytes)
	if err != nil {
		return 0, err
	}
	a.slabs = append(a.slabs, slab{at, slabBytes})
	return a.slabs[len(a.slabs)-1].cut(n), nil
}

func (s *slab) cut(n int64) cudakern.Ptr {
	at := s.at
	s.at += cudakern.Ptr(n)
	s.left -= n
	return at
}

func (a *arena) allocate(n int64) (cudakern.Ptr, error) {
	p, err := a.context.Alloc(n)
	if cudakern.IsOutOfMemory(err) {
		free, total, infoErr := a.context.MemInfo()
		if infoErr == nil {
			return 0, fmt.Errorf("%s of GPU memory are needed, but only %s of %s are free: %w", mebibytes(n), mebibytes(free), mebibytes(total), err)
		}
	}
	if err != nil {
		return 0, err
	}
	a.owned = append(a.owned, p)
	return p, nil
}

// free frees everything and returns the first error.
func (a *arena) free() (first error) {
	for _, p := range a.owned {
		if err := a.context.Free(p); err != nil && first == nil {
			first = err
		}
	}
	*a = arena{context: a.context}
	return first
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
