package document

import (
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"
)

// attributes lets the kernel end the process with the server.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// restrict limits what this process may use: processor time, memory, files and the depth of recursion.
func restrict() error {
	debug.SetMaxStack(64 << 20)
	debug.SetMemoryLimit(maxMemory / 2)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("900"), 0)
	for kind, most := range map[int]uint64{
		syscall.RLIMIT_CPU:   maxCPU,
		syscall.RLIMIT_DATA:  maxMemory,
		syscall.RLIMIT_CORE:  0,
		syscall.RLIMIT_FSIZE: 0,
	} {
		if err := syscall.Setrlimit(kind, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	return nil
}

// outOfTime reports whether a process used up its processor time.
func outOfTime(e *exec.ExitError) bool {
	status, ok := e.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGXCPU || status.Signal() == syscall.SIGKILL)
}

func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, MaxBytes+1)) }
