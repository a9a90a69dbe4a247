package cudakern

import (
	"fmt"
	"unsafe"
)

// CanReside returns nil if blocks blocks of threads threads, with shared bytes of dynamic shared memory, can run
// at the same time on the device, and as long as they like; otherwise the reason. f is a kernel that is declared RESIDENT.
func (c *Context) CanReside(f *Function, blocks, threads, shared int) error {
	p := c.Properties()
	if p.ExecTimeout {
		return fmt.Errorf("%s drives a display, and kernels that run for seconds are killed", p.Name)
	}
	each, err := f.Occupancy(threads, shared)
	if err != nil {
		return err
	}
	if most := each * p.SMs; blocks > most {
		return fmt.Errorf("kernel %s needs %d blocks that run at the same time, %s has room for %d", f.name, blocks, p.Name, most)
	}
	return nil
}

// BarrierBytes is the size of a barrier of all blocks in device memory, in bytes: struct Barrier in barrier.cuh.
const BarrierBytes = 16

// ResetBarrier enqueues the initialisation of the barrier at b, before a launch of the kernel that uses it. arrived
// is the count that it begins with, any number.
func ResetBarrier(s *Stream, b Ptr, arrived uint32) error {
	words := []uint32{arrived, arrived, 0, 0}
	return s.Upload(b, wordBytes(words))
}

// BarrierError returns nil, or if a block has given up at the barrier at b, an error that names it. It waits for the stream.
func BarrierError(s *Stream, b Ptr) error {
	words := make([]uint32, BarrierBytes/4)
	if err := s.Download(wordBytes(words), b); err != nil {
		return err
	}
	if err := s.Sync(); err != nil {
		return err
	}
	if words[2] == 0 {
		return nil
	}
	return fmt.Errorf("block %d of a resident kernel has waited for %d others for too long", words[2]-1, words[3])
}

func wordBytes(words []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 4*len(words))
}
