package cpu

// #include "engine.h"
import "C"

import (
	"time"
	"unsafe"

	"m40-llm/infer/cpu/host"
)

// ReadBandwidth measures how many bytes per second all threads together read from memory: the best
// of several passes over the copies of weights, which steps read too. Where these are few, it reads a
// buffer: of 64 MiB, or on a device without weights of up to 1 GiB, as with several nodes (NUMA), where the threads that read a copy in one
// pass are not those that have it in a step.
func (d *cpu) ReadBandwidth() (float64, error) {
	if d.engine == nil {
		return 0, errClosed
	}
	if pieces, bytes := d.copies(); bytes >= arenaPiece && d.numa == nil {
		return d.read(pieces), nil
	} else if bytes > 0 && d.numa == nil {
		return d.readBuffer(arenaPiece)
	}
	bytes := int64(1 << 30)
	for free := host.MemoryAvailable(); free > 0 && bytes > arenaPiece && bytes > free/4; {
		bytes /= 2
	}
	return d.readBuffer(bytes)
}

// copies returns the memory of all copies of weights, and its size in bytes.
func (d *cpu) copies() (pieces [][]byte, bytes int64) {
	for _, a := range []*arena{&d.weights, &d.later} {
		for i, piece := range a.pieces {
			if i == len(a.pieces)-1 {
				piece = piece[:a.used]
			}
			pieces, bytes = append(pieces, piece), bytes+int64(len(piece))
		}
	}
	return pieces, bytes
}

// readBuffer measures with a buffer of so many bytes.
func (d *cpu) readBuffer(bytes int64) (float64, error) {
	var a arena
	defer a.free()
	if _, err := a.alloc(bytes); err != nil {
		return 0, err
	}
	for _, piece := range a.pieces {
		d.numa.divide(unsafe.Pointer(unsafe.SliceData(piece)), int64(len(piece)))
	}
	a.touch()
	return d.read(a.pieces), nil
}

// read returns the bytes per second of the fastest of several passes over pieces.
func (d *cpu) read(pieces [][]byte) (best float64) {
	const passes = 8
	for range passes {
		begin, bytes := time.Now(), 0
		for _, piece := range pieces {
			C.engine_read(d.engine, (*C.uint8_t)(unsafe.SliceData(piece)), C.size_t(len(piece)))
			bytes += len(piece)
		}
		best = max(best, float64(bytes)/time.Since(begin).Seconds())
	}
	return best
}
