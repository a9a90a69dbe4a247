package cpu

// #include "engine.h"
import "C"

import (
	"time"

	"m40-llm/infer/cpu/host"
)

// ReadBandwidth measures how many bytes per second all threads together read from memory: the best
// of several passes over up to 1 GiB.
func (d *cpu) ReadBandwidth() (float64, error) {
	if d.engine == nil {
		return 0, errClosed
	}
	const passes, most = 8, 1 << 30
	bytes := int64(most)
	for free := host.MemoryAvailable(); free > 0 && bytes > arenaPiece && bytes > free/4; {
		bytes /= 2
	}
	var a arena
	defer a.free()
	p, err := a.alloc(bytes)
	if err != nil {
		return 0, err
	}
	a.touch()
	best := 0.0
	for range passes {
		begin := time.Now()
		C.engine_read(d.engine, (*C.uint8_t)(p), C.size_t(bytes))
		best = max(best, float64(bytes)/time.Since(begin).Seconds())
	}
	return best, nil
}
