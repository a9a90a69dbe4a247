// Package worldtest starts the programs of others that make world installs, by the recipes of the documentation.
package worldtest

import (
	"bytes"
	"net/http"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Process is a server that a test runs, with all processes that it starts.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	log   bytes.Buffer // read only after ended is closed
}

// Start starts a server in a process group of its own and returns when its health route answers 200. It fails the test if
// the server ends before that or is not ready within a time. At the end of the test the group gets SIGTERM, and the test's
// log what it wrote if the test failed.
func Start(t testing.TB, cmd *exec.Cmd, health string, within time.Duration) *Process {
	t.Helper()
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second // for processes that have left the group and hold its output open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(time.Minute):
			t.Errorf("%s does not end a minute after SIGTERM", cmd.Path)
		}
		p.Kill()
		if t.Failed() {
			written := p.log.Bytes()
			t.Logf("%s wrote, at the end:\n%s", cmd.Path, written[max(0, len(written)-20_000):])
		}
	})
	late := time.After(within)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if got, err := http.Get(health); err == nil {
			got.Body.Close()
			if got.StatusCode == http.StatusOK {
				return p
			}
		}
		select {
		case <-tick.C:
		case <-p.ended:
			t.Fatalf("%s ended before it was ready", cmd.Path)
		case <-late:
			t.Fatalf("%s is not ready after %v", cmd.Path, within)
		}
	}
}

// Kill ends the server and the processes that it started as the kernel would.
func (p *Process) Kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}
