package worker

import (
	"os"
	"syscall"
)

// Program returns the path of the running program, which works even when its file has been
// replaced.
func Program() (string, error) { return "/proc/self/exe", nil }

// childAttributes returns the attributes of a worker: the terminal's Ctrl-C does not reach it,
// since its server handles that, and the kernel kills it when its server ends, even if it hangs
// or is stopped.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Yield makes the process the first one that the kernel kills when memory runs out, and keeps a
// crash from writing the model to disk. It ignores what the system does not permit.
func Yield() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
}
