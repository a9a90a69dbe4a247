//go:build !linux

package gguf

import "golang.org/x/sys/unix"

// readIn starts reading the mapped pages of data from disk.
func readIn(data []byte) error {
	unix.Madvise(data, unix.MADV_WILLNEED)
	return nil
}
