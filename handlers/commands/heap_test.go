package commands

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheHeapIsLimitedToAPartOfWhatIsLeft(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		left := int64(8 << 30)
		go limitHeap(ctx, func() int64 { return left })
		synctest.Wait()
		much := debug.SetMemoryLimit(-1)
		left = 1 << 30
		time.Sleep(heapLimitEvery)
		synctest.Wait()
		little := debug.SetMemoryLimit(-1)
		if much < 4<<30 || little >= 2<<30 || little < 512<<20 {
			t.Errorf("with 8 GiB left the limit is %d, with 1 GiB %d", much, little)
		}
		left = 0 // unknown
		time.Sleep(heapLimitEvery)
		synctest.Wait()
		if got := debug.SetMemoryLimit(-1); got != little {
			t.Errorf("when nothing is known the limit becomes %d", got)
		}
		cancel()
		synctest.Wait()
		if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
			t.Errorf("at the end the limit is %d", got)
		}
	})
	if got := heapLimit(10<<20, 2<<20); got != leastHeap {
		t.Errorf("a machine without memory gets %d", got)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	t.Setenv("GOMEMLIMIT", "3GiB")
	limitHeap(t.Context(), func() int64 { return 1 << 30 })
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("the user's own limit is replaced by %d", got)
	}
}
