package commands

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	heapLimitEvery = 5 * time.Second
	leastHeap      = 64 << 20 // bytes; below, the collector would do little else than run
)

// limitHeap makes the garbage collector run more often as memory becomes short, until ctx ends: Go's heap gets half of
// what free says is left. Without that it grows to twice what is in use. GOMEMLIMIT, if set, takes precedence.
func limitHeap(ctx context.Context, free func() int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	for tick := time.NewTicker(heapLimitEvery); ; {
		if left := free(); left > 0 {
			debug.SetMemoryLimit(heapLimit(goMemory(), left))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}

// heapLimit returns the limit for Go's memory, of which so many bytes are in use and so many are free.
func heapLimit(used, free int64) int64 { return max(leastHeap, used+free/2) }

// goMemory returns how many bytes Go has from the system.
func goMemory() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}
