package device

import "time"

// Profiler is implemented by executables that can measure the launches of kernels in a step.
type Profiler interface {
	// Profile runs b rounds times, as Run does, and returns the launches in their order. It fails
	// with the error of Batch.Check if b is invalid.
	Profile(b *Batch, rounds int) ([]LaunchTime, error)
}

// LaunchTime is how long a launch of a kernel takes.
type LaunchTime struct {
	Kernel string
	Grid   [3]int        // blocks
	Bytes  int64         // of the weights and of the KV cache that it reads; activations are not counted
	Time   time.Duration // median of the rounds, without the time between launches
}
