package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// arenaPiece is the number of bytes that an arena maps at a time. Pages that are never used take no
// memory.
const arenaPiece = 64 << 20

// arena allocates memory for weights, in huge pages if the system has them: with pages of 4 KiB,
// streaming through weights spends part of the time on TLB misses. The zero arena is empty.
type arena struct {
	pieces [][]byte
	used   int64 // bytes of the last piece
}

// alloc returns bytes bytes of zeroed memory, aligned to a cache line.
func (a *arena) alloc(bytes int64) (unsafe.Pointer, error) {
	if n := len(a.pieces); n == 0 || int64(len(a.pieces[n-1]))-a.used < bytes {
		piece, err := mapPages(max(bytes, arenaPiece), bytes)
		if err != nil {
			return nil, err
		}
		_ = unix.Madvise(piece, unix.MADV_HUGEPAGE) // fails on kernels without huge pages
		a.pieces, a.used = append(a.pieces, piece), 0
	}
	last := a.pieces[len(a.pieces)-1]
	p := unsafe.Pointer(&last[a.used])
	a.used += (bytes + line - 1) / line * line
	return p, nil
}

// touch writes to every page. Before that, reads of all pages hit the same page of zeros.
func (a *arena) touch() {
	for _, piece := range a.pieces {
		for i := 0; i < len(piece); i += 4096 {
			piece[i] = 1
		}
	}
}

// free unmaps all memory.
func (a *arena) free() {
	for _, piece := range a.pieces {
		_ = unix.Munmap(piece)
	}
	*a = arena{}
}
