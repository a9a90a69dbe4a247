package worker

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/client"
)

// newClient returns a client of a worker to which dial connects.
func newClient(dial func(context.Context) (net.Conn, error)) *client.Client {
	return client.New(client.Options{Base: "http://engine", Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression:  true,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     time.Minute,
	}})
}

// process is one worker process.
type process struct {
	cmd     *exec.Cmd
	control *control
	client  *client.Client
	stderr  *stderr
	gone    chan struct{} // closed when the process has ended or is given up
	once    sync.Once     // for gone

	ready  atomic.Bool // a model has been ready
	worked atomic.Bool // an answer has completed
	inputs inputs      // in flight
	device string      // kind of its device, "" until it is ready; guarded by Engine.mu

	polling sync.Mutex // held while a status is asked for and published, so that an older one comes first

	mu     sync.Mutex
	reason string // why the server killed it; empty: it did not
	ended  string // why it ended, set before gone is closed
}

// startProcess runs program with args. It must be called on an OS thread that lives at
// least as long as the process, which the kernel kills when that thread ends.
func startProcess(program string, args, env []string, log io.Writer, join func(io.ReadWriteCloser)) (*process, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	p := &process{control: &control{conn: conn}, stderr: &stderr{log: log}, gone: make(chan struct{})}
	p.client = newClient(p.control.dial)
	p.cmd = exec.Command(program, args...)
	p.cmd.Args[0] = "m40-llm"
	p.cmd.Env = env
	p.cmd.Stderr = p.stderr
	p.cmd.ExtraFiles = []*os.File{theirs}
	var leases *net.UnixConn
	if join != nil {
		ours, theirs, err := socketPair()
		if err != nil {
			conn.Close()
			return nil, err
		}
		defer theirs.Close()
		p.cmd.ExtraFiles, leases = append(p.cmd.ExtraFiles, theirs), ours
	}
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = childAttributes()
	if err := p.cmd.Start(); err != nil {
		if conn.Close(); leases != nil {
			leases.Close()
		}
		return nil, fmt.Errorf("failed to start the engine's process: %w", err)
	}
	if leases != nil {
		join(leases) // which closes it when the process has ended
	}
	go p.wait()
	return p, nil
}

func (p *process) wait() {
	p.cmd.Wait() // its error is in ProcessState too
	p.mu.Lock()
	reason := p.reason
	p.mu.Unlock()
	p.end(cmp.Or(reason, p.stderr.cause(), describe(p.cmd.ProcessState)))
}

// end records that the process is gone.
func (p *process) end(why string) {
	p.once.Do(func() {
		p.control.conn.Close()
		p.mu.Lock()
		p.ended = why
		p.mu.Unlock()
		close(p.gone)
		p.client.Close()
	})
}

func describe(s *os.ProcessState) string {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() && w.Signal() == syscall.SIGKILL {
		return "it was killed, as happens when memory runs out"
	}
	return s.String()
}

// killTime is how long the kernel may take to kill a process. One that waits inside a driver that
// hangs may never end.
const killTime = 5 * time.Second

// kill ends the process, even one that is stopped or hangs.
func (p *process) kill(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != "" {
		return
	}
	p.reason = reason
	p.cmd.Process.Kill()
	time.AfterFunc(killTime, func() { p.giveUp(reason) })
}

// giveUp treats a process that was killed as gone though it has not ended.
func (p *process) giveUp(reason string) {
	if !p.hasEnded() {
		p.end(reason + "; it hangs in the kernel and cannot be killed")
		p.control.cut()
	}
}

func (p *process) hasEnded() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// why returns how the process, which is gone, ended.
func (p *process) why() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// stopTime is how long a worker may take to stop with its server.
const stopTime = 2 * time.Second

// stop makes the process end, and waits until it has.
func (p *process) stop() {
	p.control.conn.Close()
	select {
	case <-p.gone:
	case <-time.After(stopTime):
		p.kill("it did not stop")
		<-p.gone
	}
}

// status polls the engine's status, for at most limit.
func (p *process) status(limit time.Duration) (infer.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return p.client.Status(ctx)
}

// stderr passes on the log of a worker and keeps its other output: the last lines, or the first
// ones of a crash, which say where it was.
type stderr struct {
	log io.Writer

	mu      sync.Mutex
	line    []byte // that has not ended yet
	words   []string
	crashed string // the line with the cause, the first of words
}

const (
	maxLine  = 4 << 10
	maxWords = 20 // lines
)

func (s *stderr) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		s.line = append(s.line, line[:min(len(line), max(0, maxLine-len(s.line)))]...)
		rest = after
		if whole {
			s.take(string(s.line))
			s.line = s.line[:0]
		}
	}
	return len(p), nil
}

// crashWords are the beginnings of the line in which the runtime says why it ends the process.
var crashWords = []string{"SIG", "fatal error: ", "panic: ", "runtime: "}

func (s *stderr) take(line string) {
	if strings.HasPrefix(line, "time=") { // of package slog
		fmt.Fprintln(s.log, line)
		return
	}
	if s.crashed == "" && slices.ContainsFunc(crashWords, func(word string) bool { return strings.HasPrefix(line, word) }) {
		s.crashed, s.words = line, nil
	}
	if len(s.words) == maxWords {
		if s.crashed != "" {
			return
		}
		s.words = s.words[1:]
	}
	s.words = append(s.words, line)
}

// cause returns the line that says why the process ended, or "".
func (s *stderr) cause() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed == "" && len(s.words) > 0 {
		if own, ok := strings.CutPrefix(s.words[len(s.words)-1], "m40-llm: "); ok {
			return own
		}
	}
	return s.crashed
}

// last returns the stored lines.
func (s *stderr) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.words, "\n")
}
