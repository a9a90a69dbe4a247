package gguf

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readIn reads the mapped pages that data touches from the disk, and returns when they are
// in memory. The thread waits inside a system call: one that waits for a page that it uses
// itself would keep the garbage collector waiting too. A system that cannot do that (Linux
// before 5.14) is asked to begin reading. ErrUnreadable is returned for pages that are not in the
// file any more.
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
