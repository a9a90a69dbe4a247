//go:build !linux

package worker

import (
	"os"
	"syscall"
)

// Program is the file of the running program.
func Program() (string, error) { return os.Executable() }

// childAttributes are those of a worker: it is out of reach of the terminal's Ctrl-C,
// which its server handles. That its server has ended, it learns from the control socket
// alone.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Yield keeps a crash from writing the model to disk.
func Yield() { _ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) }
