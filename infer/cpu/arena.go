package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
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
		piece, err := mapPages(max(bytes, arenaPiece), bytes)
		if err != nil {
			return nil, err
		}
		_ = unix.Madvise(piece, unix.MADV_HUGEPAGE) // a kernel without huge pages refuses
		a.pieces, a.used = append(a.pieces, piece), 0
	}
	last := a.pieces[len(a.pieces)-1]
	p := unsafe.Pointer(&last[a.used])
	a.used += (bytes + line - 1) / line * line
	return p, nil
}

// touch has the system find memory for everything: until then, all pages are one page of zeros.
func (a *arena) touch() {
	for _, piece := range a.pieces {
		for i := 0; i < len(piece); i += 4096 {
			piece[i] = 1
		}
	}
}

// free gives all memory back.
func (a *arena) free() {
	for _, piece := range a.pieces {
		_ = unix.Munmap(piece)
	}
	*a = arena{}
}
