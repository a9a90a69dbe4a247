package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/client"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// fakeEngine is what a worker of these tests computes with.
type fakeEngine struct {
	handlers.Engine
	generate func(context.Context, infer.Request) iter.Seq2[infer.Event, error]
	status   infer.Status
	asked    infer.Request
	text     string
}

func (f *fakeEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return f.generate(ctx, r)
}

func (f *fakeEngine) Status() infer.Status { return f.status }

func (f *fakeEngine) Models(context.Context) ([]infer.ModelInfo, error) {
	return []infer.ModelInfo{{Name: "a", Path: "/models/a.gguf", Size: 7}, {Name: "b", Error: "cut short"}}, nil
}

func (f *fakeEngine) Tokenize(_ context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error) {
	if name == "none" {
		return nil, &fault.Error{Code: fault.CodeNotFound, Param: "model", Message: "there is none"}
	}
	f.text = fmt.Sprint(name, text, addSpecial, parseSpecial)
	return []int32{1, 2}, nil
}

func (f *fakeEngine) Detokenize(_ context.Context, _ string, ids []int32) (string, error) {
	return "☃☃"[:len(ids)], nil
}

func (f *fakeEngine) Pieces(_ context.Context, _ string, ids []int32) (pieces []string, err error) {
	for _, id := range ids {
		pieces = append(pieces, "☃ "[id:id+1])
	}
	return pieces, nil
}

func (f *fakeEngine) Render(_ context.Context, r infer.Request) (infer.Rendered, error) {
	f.asked = r
	return infer.Rendered{Prompt: "☃"[:1], Tokens: []int32{4}, Notice: "n"}, nil
}

// connect returns a client of a worker in this process.
func connect(t *testing.T, engine handlers.Engine) *client.Client {
	t.Helper()
	c, _ := connectControl(t, engine)
	return c
}

func connectControl(t *testing.T, engine handlers.Engine) (*client.Client, *control) {
	t.Helper()
	conn, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := unixConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handlers.NewWorker(handlers.Config{Engine: engine, Logger: slog.New(slog.DiscardHandler)})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(&listener{inherited}) }()
	line := &control{conn: conn}
	c := newClient(line.dial)
	t.Cleanup(func() {
		c.Close()
		conn.Close() // as the end of a server does
		if err := <-served; err == nil {
			t.Error("the worker goes on without its server")
		}
		server.Close()
	})
	return c, line
}

// events are those of one answer, with numbers that JSON has trouble with.
func events() []infer.Event {
	end := int32(3)
	token := &infer.Token{
		Choice: sample.Choice{ID: 9, LogProb: -9999, Entropy: math.SmallestNonzeroFloat64, PMax: 1.0 / 3,
			Stages: []sample.Stage{{Name: "top_k", Kept: 3, Removed: 0.1}}, Top: []sample.Candidate{{ID: 9, LogProb: -0.1}}},
		Bytes: []byte{0xe2, 0x98}, Tops: [][]byte{{0xff}}, Text: "\u2028<&>\x00",
		Reasoning: "<", Calls: []reply.CallDelta{{Index: 1, ID: "a", Name: "b", Arguments: "{\""}},
	}
	done := &infer.Done{Text: "x", Reasoning: "y", Calls: []reply.CallDelta{{Arguments: "}"}}, Answer: record.Answer{
		End:     record.End{Reason: infer.FinishCalls, EndToken: &end, EndProb: 0.3},
		Usage:   record.Usage{PromptTokens: 1, CachedTokens: 2, CompletionTokens: 3},
		Timings: record.Timings{Queue: 250 * time.Microsecond},
		Receipt: record.Receipt{Model: "m", Params: sample.Params{Seed: math.MaxInt64, LogitBias: map[int32]float64{-1: 2}}}}}
	return []infer.Event{
		{Type: infer.EventQueued, Queued: &infer.Queued{Position: 2}},
		{Type: infer.EventLoading, Loading: &infer.Loading{Model: "m", Done: 1, Total: 1 << 60}},
		{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1, Total: 2, Cached: 1}},
		{Type: infer.EventToken, Token: token},
		{Type: infer.EventDone, Done: done},
	}
}

func sending(list ...infer.Event) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func TestClient_LosesNothing(t *testing.T) {
	asks := infer.DefaultRequest()
	asks.Model, asks.Continue, asks.IgnoreEOS, asks.PromptLogProb = "m", true, true, true
	asks.Messages = []chat.Message{{Role: "assistant", Content: strings.Repeat("long ☃ ", 1<<17)}}
	asks.Params.LogitBias = map[int32]float64{5: -1}
	asks.ParseReply, asks.WholeCalls, asks.SingleCall = true, true, true
	asks.Params.Seed, asks.MaxTokens, asks.Stop, asks.Alternatives = math.MaxInt64, 7, []string{"<"}, 3
	failure := &fault.Error{Code: fault.CodeContext, Message: "too long", Param: "prompt", PromptTokens: 9, ContextLength: 8}
	engine := &fakeEngine{status: infer.Status{State: infer.StateFailed, Error: failure, Model: infer.ModelInfo{Name: "m", Path: "/p"},
		Device: device.Info{Kind: "cuda", Memory: 1 << 40}, Step: infer.Step{Rows: 8, ForMS: 0.5, LongestMS: 2}, Trouble: "t"}}
	engine.generate = func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		engine.asked = r
		return sending(events()...)
	}
	c, ctx := connect(t, engine), context.Background()

	t.Run("a request and its events", func(t *testing.T) {
		var got []infer.Event
		err := c.Generate(ctx, asks, func(e infer.Event) bool {
			got = append(got, e)
			return true
		})
		if err != nil || !reflect.DeepEqual(got, events()) {
			t.Errorf("got %+v, %v", got, err)
		}
		if !reflect.DeepEqual(engine.asked, asks) {
			t.Error("the request has changed on the way")
		}
	})
	for name, before := range map[string][]infer.Event{"before the first event": nil, "after it": events()[:4]} {
		t.Run("a failure "+name, func(t *testing.T) {
			engine.generate = func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
				return func(yield func(infer.Event, error) bool) {
					sending(before...)(yield)
					yield(infer.Event{}, failure)
				}
			}
			n := 0
			err := c.Generate(ctx, asks, func(infer.Event) bool { n++; return true })
			if !reflect.DeepEqual(err, error(failure)) || n != len(before) {
				t.Errorf("after %d events there is %#v", n, err)
			}
		})
	}
	t.Run("the status", func(t *testing.T) {
		if got, err := c.Status(ctx); err != nil || !reflect.DeepEqual(got, engine.status) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("the models", func(t *testing.T) {
		want, _ := engine.Models(ctx)
		if got, err := c.Models(ctx); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("a text to be tokenised", func(t *testing.T) {
		if got, err := c.Tokenize(ctx, "m", "", true, false); err != nil || !reflect.DeepEqual(got, []int32{1, 2}) || engine.text != fmt.Sprint("m", "", true, false) {
			t.Errorf("got %v, %v for %q", got, err, engine.text)
		}
		var failed *fault.Error
		if _, err := c.Tokenize(ctx, "none", "", true, false); !errors.As(err, &failed) || failed.Code != fault.CodeNotFound || failed.Param != "model" {
			t.Errorf("the failure is %#v", err)
		}
	})
	t.Run("half a character", func(t *testing.T) {
		for n := range 7 {
			if got, err := c.Detokenize(ctx, "m", make([]int32, n)); err != nil || got != "☃☃"[:n] {
				t.Errorf("got %q, %v", got, err)
			}
		}
	})
	t.Run("what each token spells", func(t *testing.T) {
		if got, err := c.Pieces(ctx, "m", []int32{3, 0, 1}); err != nil || !reflect.DeepEqual(got, []string{" ", "\xe2", "\x98"}) {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("a prompt as the model gets it", func(t *testing.T) {
		got, err := c.Render(ctx, asks)
		if want := (infer.Rendered{Prompt: "☃"[:1], Tokens: []int32{4}, Notice: "n"}); err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(engine.asked, asks) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("a request that JSON cannot hold is refused", func(t *testing.T) {
		wrong := asks
		wrong.Params.Temperature = math.NaN()
		var failed *fault.Error
		if err := c.Generate(ctx, wrong, nil); !errors.As(err, &failed) || failed.Code != fault.CodeInvalid {
			t.Errorf("got %v", err)
		}
	})
}

// Readers that take nothing do not hold up the others, and lose nothing.
func TestClient_SlowReadersHoldUpNobody(t *testing.T) {
	token := events()[3]
	token.Token.Text = strings.Repeat("x", 4<<10)
	const tokens = 300 // more than sockets hold
	engine := &fakeEngine{generate: func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			for range tokens {
				if !yield(token, nil) {
					return
				}
			}
			yield(events()[4], nil)
		}
	}}
	c := connect(t, engine)
	read := func(wait <-chan struct{}) error {
		n := 0
		err := c.Generate(context.Background(), infer.DefaultRequest(), func(infer.Event) bool {
			<-wait
			n++
			return true
		})
		if err == nil && n != tokens+1 {
			err = fmt.Errorf("there were %d events", n)
		}
		return err
	}
	var slow, fast sync.WaitGroup
	held, open := make(chan struct{}), make(chan struct{})
	close(open)
	for range 4 {
		slow.Go(func() {
			if err := read(held); err != nil {
				t.Errorf("a slow reader: %v", err)
			}
		})
	}
	for range 8 {
		fast.Go(func() {
			if err := read(open); err != nil {
				t.Errorf("a reader beside slow ones: %v", err)
			}
		})
	}
	fast.Wait()
	close(held)
	slow.Wait()
}

func TestClient_CancelReachesTheWorker(t *testing.T) {
	ended := make(chan error)
	engine := &fakeEngine{generate: func(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			yield(events()[3], nil)
			<-ctx.Done()
			ended <- ctx.Err()
		}
	}}
	c := connect(t, engine)
	t.Run("by its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		err := c.Generate(ctx, infer.DefaultRequest(), func(infer.Event) bool {
			cancel()
			return true
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(<-ended, context.Canceled) {
			t.Errorf("the client has %v", err)
		}
	})
	t.Run("by a reader that stops", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := c.Generate(ctx, infer.DefaultRequest(), func(infer.Event) bool { return false }); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// An end of the control socket that sends something else than sockets is told apart from
// one that has ended.
// The status is polled every 200 ms, and clients ask for it when they know of an answer's end.
func TestEngine_TheEndOfAnAnswerIsToldWhenTheStatusHasItsKeepAlive(t *testing.T) {
	worker := &unloading{}
	worker.generate = func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		worker.set(*r.KeepAliveS)
		return sending(infer.Event{Type: infer.EventDone, Done: &infer.Done{}})
	}
	e := &Engine{log: slog.New(slog.DiscardHandler), crashes: crashes{now: time.Now}, changed: make(chan struct{}),
		current: &process{client: connect(t, worker), gone: make(chan struct{})}}
	for _, seconds := range []float64{300, 60, -1, 0} {
		r := infer.DefaultRequest()
		r.Prompt, r.KeepAliveS = "a", &seconds
		for event, err := range e.Generate(t.Context(), r) {
			want := infer.Status{State: infer.StateReady, KeepAliveS: seconds}
			if seconds == 0 {
				want.State = infer.StateUnloaded
			}
			if s := e.Status(); err != nil || event.Type != infer.EventDone || s.KeepAliveS != want.KeepAliveS || s.State != want.State {
				t.Errorf("after a request that keeps its model for %g s the status has %g s and is %s (%v)", seconds, s.KeepAliveS, s.State, err)
			}
		}
	}
}

// unloading is an engine that unloads its model some time after it was told to.
type unloading struct {
	fakeEngine
	mu    sync.Mutex
	now   infer.Status
	polls int // until the model is unloaded
}

func (u *unloading) set(seconds float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now, u.polls = infer.Status{State: infer.StateReady, KeepAliveS: seconds}, 3
}

func (u *unloading) Status() infer.Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.polls--; u.polls <= 0 && u.now.KeepAliveS == 0 {
		u.now.State = infer.StateUnloaded
	}
	return u.now
}

func TestListener_WantsSockets(t *testing.T) {
	conn, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	inherited, err := unixConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	if _, err := conn.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if _, err := (&listener{inherited}).Accept(); !errors.Is(err, errNoSocket) {
		t.Errorf("without a socket: %v", err)
	}
	conn.Close()
	if _, err := (&listener{inherited}).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("at its end: %v", err)
	}
}

// A process that the kernel cannot end is given up, and who waited for it is told.
func TestProcess_GivenUp(t *testing.T) {
	silent := &fakeEngine{generate: func(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			yield(events()[3], nil)
			<-ctx.Done()
		}
	}}
	c, line := connectControl(t, silent)
	p := &process{client: c, control: line, gone: make(chan struct{})}
	begun, ended := make(chan bool), make(chan error)
	go func() {
		ended <- c.Generate(context.Background(), infer.DefaultRequest(), func(infer.Event) bool {
			begun <- true
			return true
		})
	}()
	<-begun
	p.giveUp("a step did not end")
	if err := <-ended; !errors.Is(err, client.ErrCut) {
		t.Errorf("an answer ends with %v", err)
	}
	<-p.gone
	if why := p.why(); !strings.Contains(why, "a step did not end; it hangs in the kernel") {
		t.Errorf("the reason is %q", why)
	}
	p.end("later") // when the kernel can end it after all
	if why := p.why(); strings.Contains(why, "later") {
		t.Errorf("the reason is %q", why)
	}
}

// startProgram starts an engine whose worker is another program.
func startProgram(t *testing.T, program string, args ...string) (*Engine, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	e := start(Options{Args: args, Model: "m", Log: slog.New(slog.NewTextHandler(&log, nil))}, program)
	t.Cleanup(func() { e.Close() })
	return e, &log
}

func TestEngine_AWorkerThatNeverWorks(t *testing.T) {
	for name, c := range map[string]struct {
		program string
		args    []string
		says    string
	}{
		"that ends at once":    {"/bin/sh", []string{"-c", "echo 'm40-llm: no such device' >&2; exit 1"}, "no such device"},
		"that crashes":         {"/bin/sh", []string{"-c", "kill -SEGV $$"}, "segmentation fault"},
		"that is not there":    {"/nowhere/m40-llm", nil, "no such file"},
		"that says it is over": {"/bin/true", nil, "exit status 0"},
	} {
		t.Run("a worker "+name+" is started three times", func(t *testing.T) {
			e, log := startProgram(t, c.program, c.args...)
			if s := e.Status(); s.Model.Name != "m" {
				t.Errorf("at first the status is %+v", s)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			var failed *fault.Error
			if err := e.WaitReady(ctx); !errors.As(err, &failed) || failed.Code != fault.CodeLost || !strings.Contains(failed.Message, "ended 3 times") || !strings.Contains(failed.Message, c.says) {
				t.Fatalf("WaitReady says %v", err)
			}
			if s := e.Status(); s.State != infer.StateFailed || s.Error == nil {
				t.Errorf("the status is %+v", s)
			}
			// Who asks has it tried again.
			for _, err := range e.Generate(ctx, infer.DefaultRequest()) {
				if !errors.As(err, &failed) || failed.Code != fault.CodeLost {
					t.Errorf("an answer ends with %v", err)
				}
			}
			e.Close()
			if n := strings.Count(log.String(), "the engine's process has ended"); n != 4 && n != 5 { // a request that no worker has begun to answer is made twice
				t.Errorf("a worker has ended %d times: %s", n, log)
			}
			if _, err := e.Models(ctx); !errors.As(err, &failed) || failed.Code != fault.CodeClosed {
				t.Errorf("a closed engine says %v", err)
			}
		})
	}
}

func TestEngine_CloseEndsAWorkerThatDoesNotListen(t *testing.T) {
	e, _ := startProgram(t, "/bin/sleep", "1000")
	waited := make(chan error, 1)
	go func() { waited <- e.WaitReady(context.Background()) }()
	e.Close()
	var failed *fault.Error
	if err := <-waited; !errors.As(err, &failed) || failed.Code != fault.CodeClosed {
		t.Errorf("who waited has %v", err)
	}
}
