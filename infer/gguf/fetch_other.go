//go:build !linux

package gguf

import "golang.org/x/sys/unix"

// readIn asks the system to begin reading the mapped pages of data.
func readIn(data []byte) error {
	unix.Madvise(data, unix.MADV_WILLNEED)
	return nil
}
