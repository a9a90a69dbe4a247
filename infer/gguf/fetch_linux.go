package gguf

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readIn reads the mapped pages of data from disk and returns when they are in memory. It
// waits inside a system call, because a thread in a page fault would delay the garbage
// collector. Linux before 5.14 cannot do that; there it only starts reading. It returns
// ErrUnreadable for pages that are no longer in the file.
func readIn(data []byte) error {
	page := uintptr(unix.Getpagesize())
	first := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	start := first &^ (page - 1)
	pages := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(data)), -int(first-start))), len(data)+int(first-start))
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
