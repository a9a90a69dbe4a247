package worker

import (
	"os"
	"syscall"
)

// Program is the running program, even when its file has been replaced since.
func Program() (string, error) { return "/proc/self/exe", nil }

// childAttributes are those of a worker: it is out of reach of the terminal's Ctrl-C,
// which its server handles, and the kernel kills it when its server ends in whichever
// way, even if it hangs or is stopped.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Yield makes the process the first one that the kernel ends when memory runs out, and
// keeps a crash from writing the model to disk. Where either is not allowed, it is left.
func Yield() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
}
