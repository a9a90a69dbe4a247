//go:build !linux

package document

import (
	"io"
	"os/exec"
	"runtime/debug"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// restrict limits the depth of recursion; the reader ends the process after its time.
func restrict() error {
	debug.SetMaxStack(64 << 20)
	debug.SetMemoryLimit(maxMemory / 2)
	return nil
}

func outOfTime(*exec.ExitError) bool { return false }

func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, MaxBytes+1)) }
