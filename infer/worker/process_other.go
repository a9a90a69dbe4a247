//go:build !linux

package worker

import (
	"os"
	"syscall"
)

// Program returns the file of the running program.
func Program() (string, error) { return os.Executable() }

// childAttributes returns the attributes of a worker: the terminal's Ctrl-C does not reach it,
// since its server handles that. The end of its server it learns only from the control socket.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Yield keeps a crash from writing the model to disk.
func Yield() { _ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) }
