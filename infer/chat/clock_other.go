//go:build !linux

package chat

import "time"

var start = time.Now()

// processorTime stands for how long the calling thread has computed.
func processorTime() time.Duration { return time.Since(start) }
