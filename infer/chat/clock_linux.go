package chat

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is how long the calling thread has computed: on a busy machine a template
// takes longer, but no more of that.
func threadCPUTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // fails for clocks that there are not, alone
	return time.Duration(t.Nano())
}
