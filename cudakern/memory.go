package cudakern

import (
	"errors"
	"fmt"
)

// MemoryRead only reads device memory: the bound that other kernels are compared with.
type MemoryRead struct {
	words  *Function
	blocks int
}

// NewMemoryRead loads the kernel.
func NewMemoryRead(c *Context) (*MemoryRead, error) {
	words, err := c.kernel("memory", "memory_read")
	return &MemoryRead{words, c.Properties().SMs * 8}, err
}

// Sums returns the number of sums that Enqueue writes.
func (k *MemoryRead) Sums() int { return k.blocks }

// Enqueue sums the 4-byte words of n bytes at src, and writes Sums partial sums, uint32, to sums. n
// must be a multiple of 16.
func (k *MemoryRead) Enqueue(s *Stream, sums, src Ptr, n int64) error {
	if n%16 != 0 {
		return fmt.Errorf("cannot read %d bytes, want a multiple of 16", n)
	}
	return k.words.Launch(s, Dim3{X: k.blocks}, Dim3{X: threads}, 4*threads/32, sums, src, n/16)
}

// ReadBandwidth measures how many bytes per second the device reads from its memory: the best of
// four reads of far more than its L2 cache holds.
func (c *Context) ReadBandwidth() (rate float64, err error) {
	k, err := NewMemoryRead(c)
	if err != nil {
		return 0, err
	}
	s, err := c.NewStream(PriorityLow)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	start, err := c.NewEvent()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, start.Close()) }()
	end, err := c.NewEvent()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end.Close()) }()
	n := int64(16*max(c.Properties().L2, 1<<20)) / 16 * 16
	p, err := c.Alloc(n + int64(4*k.Sums()))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Free(p)) }()
	for range 4 {
		if err := errors.Join(s.Record(start), k.Enqueue(s, p+Ptr(n), p, n), s.Record(end), end.Sync()); err != nil {
			return 0, err
		}
		d, err := end.Since(start)
		if err != nil {
			return 0, err
		}
		rate = max(rate, float64(n)/d.Seconds())
	}
	return rate, nil
}
