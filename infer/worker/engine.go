// Package worker runs the engine in a process of its own: the same program as a worker, which
// serves the engine's API to the server over a socket. A crash in C code or in a driver then ends
// no chat.
//
// An [Engine] has the methods of engine.Engine. It starts the worker, watches it, and starts the
// next one when it has ended: the first time at once, then after pauses of up to 4 s. The worker
// ends when its server does, for whatever reason: the kernel kills it (on Linux), and its control
// socket tells it.
//
// # What becomes of requests
//
// A request whose answer had started, with its prompt or its tokens, ends with fault.CodeLost; the
// caller keeps the text so far. One that still waited is sent once more, to the next worker. An
// input that was being computed, or had no event yet, when a worker ended three times, and was
// never answered in between, is refused with fault.CodeCrashes for ten minutes.
//
// # When a worker hangs
//
// The worker is polled for its status every 200 ms; it answers without its step loop. It is
// killed
//   - after 5 s without an answer: it is stopped, or its runtime hangs;
//   - when a step takes longer than 60 s and ten times the longest one before: a kernel
//     hangs. The scheduler makes a prompt's chunks longer by steps, never more than
//     double, so on a slow processor the steps before have been slow too, and the bound
//     is long. Before any step has ended, it is 10 minutes;
//   - after 5 minutes of loading without progress.
//
// If SIGKILL does not end a worker within 5 s, because it waits in a driver that hangs, the next
// one is started next to it.
//
// Time is counted in polls, so that a server that was itself suspended does not kill its worker.
// A step that takes longer than 2 s and twice the longest before is reported in the log and in
// Status.Trouble.
//
// A GPU whose driver has failed cannot be used by that process again. An engine with a fallback
// therefore ends a worker that reports a device failure. After the second such failure or end
// within ten minutes the fallback takes over, until the server is restarted; Status.Trouble says
// so.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/client"
	"m40-llm/infer/fault"
)

// Options say how to start a worker.
type Options struct {
	Args      []string                   // with which the program becomes a worker
	Model     string                     // name of the model that it loads first
	SetupArgs func(infer.Setup) []string // arguments of a worker with that setup, in addition to Args
	LoadFlag  string                     // flag for the name of the model that a later worker loads first
	Fallback  *Fallback
	Join      func(io.ReadWriteCloser) // gets the socket by which each worker takes turns at devices with others; nil: they have none

	Log    *slog.Logger // nil: nothing is logged
	Stderr io.Writer    // gets the worker's log; nil: it is dropped
}

// Fallback is the worker that takes over when the device of the first fails.
type Fallback struct {
	Args   []string // added to Options.Args
	Kind   string   // of the device that takes over, as infer.Status names it
	Device string   // what failed, such as "the GPU"
	Name   string   // what takes over, such as "the CPU"
}

// secrets are the environment variables that a worker does not inherit.
var secrets = []string{"M40_LLM_API_KEY", "M40_LLM_UPSTREAM_KEY", "HF_TOKEN"}

// Engine is an engine in a worker. Its methods may be called by any goroutine.
type Engine struct {
	options Options
	program string
	log     *slog.Logger
	crashes crashes
	closing chan struct{}
	done    chan struct{} // closed when the last worker has ended
	wake    chan struct{} // a request arrived while no worker was to be started

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of state
	current *process      // nil while there is none
	status  infer.Status
	trouble string       // why a worker is being restarted; empty: it is not
	slow    string       // message while a step takes unusually long
	fallen  string       // why the fallback has taken over; empty: it has not
	failed  *fault.Error // why no worker is started until the next request
	closed  bool
	model   string       // the last model that was ready
	setup   *infer.Setup // with which it was loaded; nil: none was ready

	// The supervisor owns the fields below.
	failures []time.Time // of the device
	early    int         // consecutive workers that ended before they were ready
	ends     int         // consecutive ends without a completed answer in between
}

// Start starts the worker and returns at once.
func Start(o Options) (*Engine, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	return start(o, program), nil
}

func start(o Options, program string) *Engine {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	e := &Engine{
		options: o,
		program: program,
		log:     o.Log,
		crashes: crashes{now: time.Now},
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}),
		model:   o.Model,
	}
	e.status.State, e.status.Model.Name, e.status.Loading.Model = infer.StateLoading, o.Model, o.Model
	go e.supervise()
	return e
}

// Close ends the worker, and with it all answers, and returns when it is gone.
func (e *Engine) Close() error {
	e.update(func() {
		if !e.closed {
			e.closed = true
			close(e.closing)
		}
	})
	<-e.done
	return nil
}

// update calls change with mu held and wakes those who wait for a change.
func (e *Engine) update(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
	close(e.changed)
	e.changed = make(chan struct{})
}

// supervise starts one worker after another until the engine closes. It keeps its OS thread,
// because the kernel kills the worker when that ends.
func (e *Engine) supervise() {
	runtime.LockOSThread()
	defer close(e.done)
	for {
		p, err := startProcess(e.program, e.args(), environment(), e.options.Stderr, e.options.Join)
		if err == nil {
			e.update(func() { e.current = p })
			var watching sync.WaitGroup
			watching.Go(func() { e.watch(p) })
			select {
			case <-p.gone:
			case <-e.closing:
				p.stop()
			}
			watching.Wait()
		}
		if !e.again(p, err) {
			return
		}
	}
}

// args returns the arguments of the next worker.
func (e *Engine) args() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	args := slices.Clone(e.options.Args)
	if e.fallen != "" {
		args = append(args, e.options.Fallback.Args...)
	}
	if e.model != e.options.Model {
		args = append(args, "--"+e.options.LoadFlag, e.model)
	}
	if e.setup != nil && e.options.SetupArgs != nil {
		args = append(args, e.options.SetupArgs(*e.setup)...)
	}
	return args
}

func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(secrets, name)
	})
}

// pauses are the waits before the next worker, by the number of consecutive ends.
var pauses = []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

// maxEarly is how many consecutive workers may end before they are ready. Then the next one is
// started with the next request.
const maxEarly = 3

// again records that a worker ended or could not be started, and returns when the next one is
// due. It returns false if the engine closes.
func (e *Engine) again(p *process, err error) bool {
	if e.isClosing() {
		return false
	}
	e.early, e.ends = e.early+1, e.ends+1
	reason, words := "", ""
	if err != nil {
		reason = err.Error()
	} else {
		reason, words = p.why(), p.stderr.last()
		if p.ready.Load() {
			e.early = 0
		}
		if p.worked.Load() {
			e.ends = 1
		}
	}
	e.log.Error("the engine's process has ended", "reason", reason, "stderr", words)
	if e.deviceLost(p) {
		e.fallBack(reason)
	}
	due := time.After(pauses[min(e.ends, len(pauses))-1])
	if e.early < maxEarly {
		e.restarting(reason)
	} else {
		e.giveUp(reason)
		due = nil
	}
	select {
	case <-due:
	case <-e.wake:
	case <-e.closing:
	}
	return !e.isClosing()
}

// fallBack makes the fallback the next worker.
func (e *Engine) fallBack(reason string) {
	f := e.options.Fallback
	fallen := fmt.Sprintf("%s took over: %s failed twice, the second time with: %s. A new start of the server tries it again", f.Name, f.Device, reason)
	e.log.Error(fallen)
	e.early, e.ends = 0, 1
	e.update(func() { e.fallen = fallen })
}

// restarting sets the status while there is no worker.
func (e *Engine) restarting(reason string) {
	e.update(func() {
		s := e.status
		e.current, e.slow = nil, ""
		e.status = infer.Status{State: infer.StateRestarting, Model: s.Model, Device: s.Device, CacheType: s.CacheType, ContextLength: s.ContextLength, Setup: s.Setup, KeepAliveS: s.KeepAliveS, Memory: s.Memory}
		e.trouble = fmt.Sprintf("the engine stopped and is being restarted: %s", reason)
	})
}

// giveUp sets the status of an engine that starts no worker until the next request.
func (e *Engine) giveUp(reason string) {
	err := &fault.Error{Code: fault.CodeLost, Message: fmt.Sprintf("the engine ended %d times before it was ready, the last time with: %s", e.early, reason)}
	e.update(func() {
		e.current, e.failed, e.trouble, e.slow = nil, err, "", ""
		e.status = infer.Status{State: infer.StateFailed, Error: err, Model: e.status.Model, Setup: e.status.Setup, KeepAliveS: e.status.KeepAliveS}
	})
}

func (e *Engine) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

// deviceLost records a device failure of p, nil if it could not be started, and reports whether
// the fallback takes over now.
func (e *Engine) deviceLost(p *process) bool {
	if !e.canFallBack(p) {
		return false
	}
	now := time.Now()
	e.failures = slices.DeleteFunc(e.failures, func(at time.Time) bool { return now.Sub(at) >= forgetTime })
	e.failures = append(e.failures, now)
	return len(e.failures) == 2
}

// watch polls p and publishes its status until it has ended, and kills it if it hangs.
func (e *Engine) watch(p *process) {
	var dog watchdog
	ticks := time.NewTicker(pollEvery)
	defer ticks.Stop()
	for last := time.Now(); ; {
		p.polling.Lock()
		status, err := p.status(answerTime)
		now := time.Now()
		verdict := ""
		if err != nil {
			verdict = dog.silence(now.Sub(last))
		} else {
			var slow string
			verdict, slow = dog.receive(status, now.Sub(last))
			e.publish(p, status, slow)
		}
		p.polling.Unlock()
		last = now
		if verdict != "" {
			p.kill(verdict)
		}
		select {
		case <-p.gone:
			return
		case <-ticks.C:
		}
	}
}

// refresh publishes the status of p after a request said how long its model stays, because a client that knows of
// its end asks for that: the next poll would be too late. unloads: wait until the model is unloaded, unless
// others use it.
func (e *Engine) refresh(p *process, unloads bool) {
	patience := time.NewTimer(answerTime)
	defer patience.Stop()
	again := time.NewTicker(pollEvery / 20)
	defer again.Stop()
	for {
		if e.poll(p) != nil {
			return
		}
		if s := e.Status(); !unloads || s.State != infer.StateReady || s.Running+s.Queued > 0 {
			return
		}
		select {
		case <-again.C:
		case <-patience.C:
			return
		case <-p.gone:
			return
		}
	}
}

// poll publishes the status of p.
func (e *Engine) poll(p *process) error {
	p.polling.Lock()
	defer p.polling.Unlock()
	status, err := p.status(answerTime)
	if err == nil {
		e.mu.Lock()
		slow := e.slow
		e.mu.Unlock()
		e.publish(p, status, slow)
	}
	return err
}

// publish makes s the status of the engine.
func (e *Engine) publish(p *process, s infer.Status, slow string) {
	if s.State == infer.StateFailed && s.Error != nil {
		e.checkDevice(p, s.Error)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slow != "" && e.slow == "" {
		e.log.Warn(slow)
	}
	before := e.status.State
	e.status, e.slow = s, slow
	switch s.State {
	case infer.StateReady:
		p.ready.Store(true)
		p.device = s.Device.Kind
		e.trouble, e.model = "", s.Model.Name
		e.setup = &s.Setup
	case infer.StateFailed:
		e.trouble = "" // the status's error says more
	}
	if s.State != before {
		close(e.changed)
		e.changed = make(chan struct{})
	}
}

// canFallBack reports whether there is a fallback and p does not already run on it, by its
// arguments or by its own choice.
func (e *Engine) canFallBack(p *process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.options.Fallback
	return f != nil && e.fallen == "" && (p == nil || p.device != f.Kind)
}

// checkDevice ends a worker whose device has failed, if a new one may help.
func (e *Engine) checkDevice(p *process, err *fault.Error) {
	if err.Code == fault.CodeDevice && e.canFallBack(p) {
		p.kill(err.Message)
	}
}

var errClosed = &fault.Error{Code: fault.CodeClosed, Message: "the engine is shutting down"}

// worker returns the running worker, and waits for one if none runs.
func (e *Engine) worker(ctx context.Context) (*process, error) {
	for asked := false; ; {
		e.mu.Lock()
		p, changed, failed := e.current, e.changed, e.failed
		if p != nil && p.hasEnded() {
			p = nil // the supervisor has not noticed yet
		}
		if failed != nil && !asked {
			e.failed, asked = nil, true
			e.status.State, e.status.Error = infer.StateRestarting, nil
			select {
			case e.wake <- struct{}{}:
			default:
			}
			failed = nil
		}
		closed := e.closed
		e.mu.Unlock()
		switch {
		case closed:
			return nil, errClosed
		case p != nil:
			return p, nil
		case failed != nil:
			return nil, failed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// goneTime is how long a worker may take to end after it has cut a connection. A worker that
// hangs is killed by the watchdog within that time.
const goneTime = 10 * time.Second

// lost returns the error of a request whose connection to p was cut.
func (e *Engine) lost(ctx context.Context, p *process, cut error) error {
	patience := time.NewTimer(goneTime)
	defer patience.Stop()
	select {
	case <-p.gone:
	case <-ctx.Done():
		return ctx.Err()
	case <-patience.C:
		return &fault.Error{Code: fault.CodeInternal, Message: cut.Error()}
	}
	if e.isClosing() {
		return errClosed
	}
	return &fault.Error{Code: fault.CodeLost, Message: fmt.Sprintf("the engine stopped while it worked on this (%s) and is being restarted. What was written is kept; ask again, or write on from there", p.why())}
}

// tries is how often a request is sent that no worker has started to answer.
const tries = 2

// call calls f with the client of the worker, and once more if that ends meanwhile.
func (e *Engine) call(ctx context.Context, f func(*client.Client) error) error {
	for try := 1; ; try++ {
		p, err := e.worker(ctx)
		if err != nil {
			return err
		}
		if err = f(p.client); !errors.Is(err, client.ErrCut) {
			return err
		}
		if err = e.lost(ctx, p, err); !isLost(err) || try == tries {
			return err
		}
	}
}

func isLost(err error) bool {
	known, ok := errors.AsType[*fault.Error](err)
	return ok && known.Code == fault.CodeLost
}

// Generate streams one answer, as engine.Engine does.
func (e *Engine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		wanted := true
		err := e.generate(ctx, r, func(event infer.Event) bool {
			wanted = yield(event, nil)
			return wanted
		})
		if err != nil && wanted {
			yield(infer.Event{}, err)
		}
	}
}

func (e *Engine) generate(ctx context.Context, r infer.Request, take func(infer.Event) bool) error {
	input := fingerprintOf(r)
	for try := 1; ; try++ {
		if err := e.crashes.check(input); err != nil {
			return err
		}
		p, err := e.worker(ctx)
		if err != nil {
			return err
		}
		p.inputs.add(input)
		var phase infer.EventType // of the last event
		err = p.client.Generate(ctx, r, func(event infer.Event) bool {
			phase = event.Type
			if phase == infer.EventDone && r.KeepAliveS != nil {
				e.refresh(p, *r.KeepAliveS == 0)
			}
			return take(event)
		})
		if !errors.Is(err, client.ErrCut) {
			p.inputs.remove(input)
		}
		started := phase == infer.EventPrefill || phase == infer.EventToken
		if errors.Is(err, client.ErrCut) {
			if err = e.lost(ctx, p, err); isLost(err) {
				if phase != infer.EventQueued {
					e.crashes.blame(input, p) // with no event yet, reading the input may have ended the worker
				}
				if !started && try < tries {
					continue
				}
			}
			return err
		}
		if known, ok := errors.AsType[*fault.Error](err); ok && known.Code == fault.CodeDevice {
			e.checkDevice(p, known)
			if started {
				e.crashes.blame(input, p)
			}
		}
		if phase == infer.EventDone {
			p.worked.Store(true)
			e.crashes.clear(input)
		}
		return err
	}
}

// Status returns a snapshot, at most one poll old. It never waits for the worker.
func (e *Engine) Status() infer.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.status
	s.Trouble = strings.Join(slices.DeleteFunc([]string{e.fallen, e.trouble, e.slow}, func(text string) bool { return text == "" }), "; ")
	return s
}

// WaitReady waits until a model is loaded. It returns the *fault.Error for which that failed.
func (e *Engine) WaitReady(ctx context.Context) error {
	for {
		e.mu.Lock()
		s, changed, closed := e.status, e.changed, e.closed
		e.mu.Unlock()
		switch {
		case closed:
			return errClosed
		case s.State == infer.StateReady:
			return nil
		case s.State == infer.StateFailed:
			return s.Error
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Models lists the models of the catalog.
func (e *Engine) Models(ctx context.Context) (list []infer.ModelInfo, err error) {
	err = e.call(ctx, func(c *client.Client) error {
		list, err = c.Models(ctx)
		return err
	})
	return list, err
}

// Tokenize returns the tokens of text. An empty name means the loaded model.
func (e *Engine) Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) (tokens []int32, err error) {
	err = e.call(ctx, func(c *client.Client) error {
		tokens, err = c.Tokenize(ctx, name, text, addSpecial, parseSpecial)
		return err
	})
	return tokens, err
}

// Detokenize returns the text of tokens, that of special tokens included. An empty name means the
// loaded model.
func (e *Engine) Detokenize(ctx context.Context, name string, ids []int32) (text string, err error) {
	err = e.call(ctx, func(c *client.Client) error {
		text, err = c.Detokenize(ctx, name, ids)
		return err
	})
	return text, err
}

// Pieces returns the bytes of each token. A token that holds a part of a character is not valid
// UTF-8. An empty name means the loaded model.
func (e *Engine) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
	err = e.call(ctx, func(c *client.Client) error {
		pieces, err = c.Pieces(ctx, name, ids)
		return err
	})
	return pieces, err
}

// Embed computes the embeddings of texts, as engine.Engine does. Texts that a worker had when it
// ended are sent once more, and refused when it had nothing else three times.
func (e *Engine) Embed(ctx context.Context, r infer.EmbedRequest) (result infer.Embeddings, err error) {
	err = e.compute(ctx, fingerprintOfTexts(r), func(c *client.Client) (err error) {
		result, err = c.Embed(ctx, r)
		return err
	})
	if p, gone := e.worker(ctx); r.KeepAliveS != nil && err == nil && gone == nil {
		e.refresh(p, *r.KeepAliveS == 0)
	}
	return result, err
}

// Rank scores documents for a query, as engine.Engine does. Documents that a worker had when it ended are treated as texts of Embed.
func (e *Engine) Rank(ctx context.Context, r infer.RankRequest) (result infer.Ranking, err error) {
	err = e.compute(ctx, fingerprintOfDocuments(r), func(c *client.Client) (err error) {
		result, err = c.Rank(ctx, r)
		return err
	})
	return result, err
}

// compute has a worker compute an input by call. An input that a worker had when it ended is sent once more, and refused when it had
// nothing else three times.
func (e *Engine) compute(ctx context.Context, input fingerprint, call func(c *client.Client) error) error {
	for try := 1; ; try++ {
		if err := e.crashes.check(input); err != nil {
			return err
		}
		p, err := e.worker(ctx)
		if err != nil {
			return err
		}
		p.inputs.add(input)
		err = call(p.client)
		if !errors.Is(err, client.ErrCut) {
			p.inputs.remove(input)
		}
		if err == nil {
			p.worked.Store(true)
			e.crashes.clear(input)
			return nil
		}
		if known, ok := errors.AsType[*fault.Error](err); ok && known.Code == fault.CodeDevice {
			e.checkDevice(p, known)
		}
		if !errors.Is(err, client.ErrCut) {
			return err
		}
		if err = e.lost(ctx, p, err); isLost(err) && p.inputs.alone() {
			e.crashes.blame(input, p) // alongside others, it may only have waited
		}
		if !isLost(err) || try == tries {
			return err
		}
	}
}

// Reload loads the model again with another setup; see engine.Engine. Later workers get it too.
func (e *Engine) Reload(ctx context.Context, s infer.Setup) error {
	return e.call(ctx, func(c *client.Client) error { return c.Reload(ctx, s) })
}

// Keep sets how long the loaded model stays without a request; see engine.Engine. It returns when the status has that.
func (e *Engine) Keep(ctx context.Context, seconds *float64) error {
	return e.call(ctx, func(c *client.Client) error {
		err := c.Keep(ctx, seconds)
		if p, gone := e.worker(ctx); err == nil && gone == nil {
			e.refresh(p, seconds != nil && *seconds == 0)
		}
		return err
	})
}

// Render returns the prompt and the tokens that r would give to the model.
func (e *Engine) Render(ctx context.Context, r infer.Request) (view infer.Rendered, err error) {
	err = e.call(ctx, func(c *client.Client) error {
		view, err = c.Render(ctx, r)
		return err
	})
	return view, err
}
