package cpu

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"m40-llm/infer/cpu/host"
)

// arenaPiece is what an arena asks the system for at a time. What is never touched of it
// takes no memory.
const arenaPiece = 64 << 20

// arena hands out memory for weights, on huge pages where the system has them: with pages
// of 4 KiB a processor that streams through weights spends part of its time on finding
// them. The zero arena is empty.
type arena struct {
	pieces [][]byte
	used   int64 // of the last piece
}

// alloc returns bytes bytes of zeroed memory, aligned to a cache line, which free gives back.
func (a *arena) alloc(bytes int64) (unsafe.Pointer, error) {
	if n := len(a.pieces); n == 0 || int64(len(a.pieces[n-1]))-a.used < bytes {
		if free := host.MemoryAvailable(); free > 0 && bytes > free {
			return nil, fmt.Errorf("%s of memory are needed and %s are free", mebibytes(bytes), mebibytes(free))
		}
		piece, err := unix.Mmap(-1, 0, int(max(bytes, arenaPiece)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return nil, fmt.Errorf("the system refuses %s of memory: %w", mebibytes(bytes), err)
		}
		_ = unix.Madvise(piece, unix.MADV_HUGEPAGE) // a kernel without huge pages refuses
		a.pieces, a.used = append(a.pieces, piece), 0
	}
	last := a.pieces[len(a.pieces)-1]
	p := unsafe.Pointer(&last[a.used])
	a.used += (bytes + line - 1) / line * line
	return p, nil
}

// free gives all memory back.
func (a *arena) free() {
	for _, piece := range a.pieces {
		_ = unix.Munmap(piece)
	}
	*a = arena{}
}
