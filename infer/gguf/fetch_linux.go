package gguf

import (
	"errors"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readIn reads the mapped pages of data from disk, unless the page cache has them, and returns when they are in memory. It
// waits inside a system call, because a thread in a page fault would delay the garbage
// collector. Linux before 5.14 cannot do that; there it only starts reading. It returns
// ErrUnreadable for pages that are no longer in the file.
func readIn(data []byte) error {
	page := uintptr(unix.Getpagesize())
	first := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	start := first &^ (page - 1)
	pages := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(data)), -int(first-start))), len(data)+int(first-start))
	if cached(pages) {
		return nil
	}
	err := unix.Madvise(pages, unix.MADV_POPULATE_READ)
	for range 100 { // signals interrupt it
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
		err = unix.Madvise(pages, unix.MADV_POPULATE_READ)
	}
	switch {
	case errors.Is(err, unix.EFAULT) || errors.Is(err, unix.EHWPOISON):
		return ErrUnreadable
	case err != nil:
		unix.Madvise(pages, unix.MADV_WILLNEED)
	}
	return nil
}

// cached reports whether pages are in the page cache: mapping them here would take longer than page faults in the
// threads that read them. Of a file that this process neither owns nor may write, Linux says so in any case.
func cached(pages []byte) bool {
	states := make([]byte, (len(pages)+unix.Getpagesize()-1)/unix.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(pages))), uintptr(len(pages)), uintptr(unsafe.Pointer(unsafe.SliceData(states))))
	return errno == 0 && !slices.ContainsFunc(states, func(state byte) bool { return state&1 == 0 })
}
