package live

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
)

// TestMain runs the tests, or plays the server that a test kills.
func TestMain(m *testing.M) {
	if path := os.Getenv("LIVE_HELPER"); path != "" {
		fmt.Fprintln(os.Stderr, playServer(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// script is an engine whose answers a test writes. Each step returns when the
// chat has applied it, so tests need no waiting.
type script struct {
	asked    chan *answer
	rendered atomic.Int64           // how often Render was called
	resident atomic.Pointer[string] // model; default: test
}

type answer struct {
	request infer.Request
	steps   chan step
	ended   chan struct{}
	tokens  int
}

type step struct {
	event   infer.Event
	err     error
	applied chan struct{}
}

func newScript() *script {
	s := &script{asked: make(chan *answer, 1000)}
	s.load("test")
	return s
}

// load makes a model the one that is loaded.
func (s *script) load(model string) { s.resident.Store(&model) }

func (s *script) Status() infer.Status {
	return infer.Status{State: infer.StateReady, Model: infer.ModelInfo{Name: *s.resident.Load()}, ContextLength: 100}
}

// Detokenize names the tokens.
func (s *script) Detokenize(_ context.Context, _ string, ids []int32) (string, error) {
	return fmt.Sprint(ids), nil
}

// Pieces names each token.
func (s *script) Pieces(_ context.Context, _ string, ids []int32) (pieces []string, err error) {
	for _, id := range ids {
		pieces = append(pieces, fmt.Sprintf("<%d>", id))
	}
	return pieces, nil
}

// Tokenize counts words.
func (s *script) Tokenize(_ context.Context, _, text string, _, _ bool) ([]int32, error) {
	return make([]int32, len(strings.Fields(text))), nil
}

// Render counts the words of messages, and three tokens around each. Tokens spell their ids.
func (s *script) Render(_ context.Context, r infer.Request) (infer.Rendered, error) {
	s.rendered.Add(1)
	var view infer.Rendered
	for _, m := range r.Messages {
		view.Tokens = append(view.Tokens, make([]int32, 3+len(strings.Fields(m.Content)))...)
	}
	if len(r.ContinuedTokens) > 0 {
		view.Continued = &chat.Message{Content: spellIDs(r.ContinuedTokens)}
	}
	return view, nil
}

func (s *script) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	a := &answer{request: r, steps: make(chan step), ended: make(chan struct{})}
	return func(yield func(infer.Event, error) bool) {
		defer close(a.ended)
		s.asked <- a
		for {
			select {
			case step := <-a.steps:
				more := yield(step.event, step.err)
				close(step.applied)
				if !more || step.err != nil || step.event.Done != nil {
					return
				}
				if ctx.Err() != nil { // it was stopped for this event: select would choose at random
					yield(infer.Event{}, ctx.Err())
					return
				}
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
				return
			}
		}
	}
}

// do gives the chat one event, unless the answer has been stopped.
func (a *answer) do(e infer.Event, err error) {
	s := step{event: e, err: err, applied: make(chan struct{})}
	select {
	case a.steps <- s:
		<-s.applied
	case <-a.ended:
	}
}

func (a *answer) write(tokens ...string) {
	for _, text := range tokens {
		a.tokens++
		a.do(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: text, Choice: sample.Choice{Row: []byte("secret row")}}}, nil)
	}
}

// think writes words that the model only thinks.
func (a *answer) think(tokens ...string) {
	for _, text := range tokens {
		a.tokens++
		a.do(infer.Event{Type: infer.EventToken, Token: &infer.Token{Reasoning: text}}, nil)
	}
}

func (a *answer) finish() {
	a.do(infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{
		End:     record.End{Reason: infer.FinishStop},
		Usage:   record.Usage{PromptTokens: 5, CompletionTokens: a.tokens},
		Timings: record.Timings{Prefill: 20 * time.Millisecond, Decode: 100 * time.Millisecond},
		Receipt: record.Receipt{Params: a.request.Params},
	}}}, nil)
}

// settle waits until no answer runs.
func settle(c *Chat) {
	for {
		if !c.running() {
			return
		}
		runtime.Gosched()
	}
}

func newService(t testing.TB, opt Options) (*Service, *script) {
	t.Helper()
	engine := newScript()
	s := New(engine, opt)
	t.Cleanup(s.Close)
	return s, engine
}

func question(text string) Question { return Question{Text: text, Settings: setting.Default()} }

func start(t testing.TB, s *Service, engine *script, text string) (*Chat, *answer) {
	t.Helper()
	c, err := s.Start(context.Background(), me, question(text), false)
	if err != nil {
		t.Fatal(err)
	}
	return c, <-engine.asked
}

func lastMessage(t testing.TB, c *Chat) Message {
	t.Helper()
	snapshot, err := c.Snapshot(context.Background(), me, 0)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Messages[len(snapshot.Messages)-1]
}

func TestAnAnswerKeepsItsFigures(t *testing.T) {
	now := time.Unix(1000, 0)
	s, engine := newService(t, Options{Now: func() time.Time { return now }, Seed: func() int64 { return 8842 }})
	c, a := start(t, s, engine, "Hello")
	pass := func(ms int) { now = now.Add(time.Duration(ms) * time.Millisecond) }
	pass(10)
	a.do(infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 1}}, nil)
	pass(30)
	a.do(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 0, Total: 7, Cached: 2}}, nil)
	pass(60)
	a.write("One")
	pass(50)
	a.write(" two")
	got := lastMessage(t, c).Answer
	if got.State != Writing || got.Usage.CompletionTokens != 2 || got.Usage.PromptTokens != 7 || got.Usage.CachedTokens != 2 || got.Settings.Seed != 8842 {
		t.Errorf("while it is written the answer is %+v", got)
	}
	want := record.Timings{Queue: 40 * time.Millisecond, Prefill: 60 * time.Millisecond, Decode: 50 * time.Millisecond, First: 100 * time.Millisecond}
	if got.Timings != want {
		t.Errorf("the timings are %+v, want %+v", got.Timings, want)
	}
	a.finish()
	settle(c)
	got = lastMessage(t, c).Answer
	if got.State != Done || got.Usage.PromptTokens != 5 || got.Usage.CompletionTokens != 2 || got.Timings.Decode != 100*time.Millisecond || got.Timings.First != want.First {
		t.Errorf("at the end the answer is %+v, without the engine's figures", got)
	}
	if p := a.request.Params; p.Seed != 8842 || p.Temperature != setting.Default().Temperature {
		t.Errorf("the engine was asked with %+v", p)
	}
}

func TestAContinuedAnswerCountsItsBeginningOnce(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "Hello")
	prefill := func(total int) {
		a.do(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Total: total, Cached: 2}}, nil)
	}
	prefill(7)
	a.write("One", " two")
	must(t, c.Stop(context.Background(), me, 0))
	settle(c)
	must(t, c.Continue(context.Background(), me, 0, setting.Default()))
	a = <-engine.asked
	prefill(7 + 2)
	a.write(" three")
	if got := lastMessage(t, c).Answer; got.Usage.PromptTokens != 7 || got.Usage.CompletionTokens != 3 {
		t.Errorf("while it is written on it has %d tokens after a prompt of %d, want 3 after 7", got.Usage.CompletionTokens, got.Usage.PromptTokens)
	}
	a.finish()
	settle(c)
	if got := lastMessage(t, c).Answer; got.Usage.PromptTokens != 7 || got.Usage.CompletionTokens != 3 {
		t.Errorf("at the end it has %d tokens after a prompt of %d, want 3 after 7", got.Usage.CompletionTokens, got.Usage.PromptTokens)
	}
}

func TestTheEngineGetsTheConversation(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "one")
	a.do(infer.Event{}, &fault.Error{Code: fault.CodeContext, Message: "too long"})
	settle(c)
	q := question("two")
	q.System = "Be brief."
	if err := c.Send(context.Background(), me, q); err != nil {
		t.Fatal(err)
	}
	a = <-engine.asked
	a.write("three")
	if err := c.Stop(context.Background(), me, 0); err != nil {
		t.Fatal(err)
	}
	settle(c)
	if err := c.Regenerate(context.Background(), me, 0, "Be brief.", setting.Default()); err != nil {
		t.Fatal(err)
	}
	a = <-engine.asked
	a.write("four")
	a.finish()
	settle(c)
	if err := c.Send(context.Background(), me, question("five")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range (<-engine.asked).request.Messages {
		got = append(got, m.Role+": "+m.Content)
	}
	// The first question had no answer and the second system prompt is empty.
	want := []string{"user: two", "assistant: four", "user: five"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("the engine got %q, want %q", got, want)
	}
	if roles := a.request.Messages[0].Role; roles != "system" {
		t.Errorf("the answer that was given again began with a %s message, not with the system prompt", roles)
	}
}

func TestCommandsThatDoNotFitAreRefused(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "one")
	for name, command := range map[string]func() error{
		"send":         func() error { return c.Send(context.Background(), me, question("two")) },
		"answer again": func() error { return c.Regenerate(context.Background(), me, 0, "", setting.Default()) },
		"edit":         func() error { return c.Edit(context.Background(), me, 1, question("two")) },
		"rewrite":      func() error { return c.Rewrite(context.Background(), me, 2, "two", "") },
		"continue":     func() error { return c.Continue(context.Background(), me, 2, setting.Default()) },
		"select":       func() error { return c.Select(context.Background(), me, 2, 1) },
	} {
		var conflict *owned.Conflict
		if err := command(); !errors.As(err, &conflict) || conflict.State != "waiting" || conflict.Answer != 2 {
			t.Errorf("%s while an answer waits returned %v", name, err)
		}
	}
	var conflict *owned.Conflict
	if err := c.Stop(context.Background(), me, 7); !errors.As(err, &conflict) {
		t.Errorf("to stop another answer returned %v", err)
	}
	a.finish()
	settle(c)
	if err := c.Stop(context.Background(), me, 0); !errors.As(err, &conflict) || conflict.State != owned.Idle {
		t.Errorf("to stop nothing returned %v", err)
	}
}

func TestQuestionsAreChecked(t *testing.T) {
	s, _ := newService(t, Options{})
	for _, c := range []struct {
		name, param string
		change      func(*Question)
	}{
		{"an empty text", "text", func(q *Question) { q.Text = " \n" }},
		{"a text that is not UTF-8", "text", func(q *Question) { q.Text = "a\xff" }},
		{"a system prompt that is not UTF-8", "system", func(q *Question) { q.System = "\xff" }},
		{"too high a temperature", "temperature", func(q *Question) { q.Settings.Temperature = 101 }},
		{"a negative temperature", "temperature", func(q *Question) { q.Settings.Temperature = -0.1 }},
		{"a negative top-k", "top_k", func(q *Question) { q.Settings.TopK = -1 }},
		{"a top-p above one", "top_p", func(q *Question) { q.Settings.TopP = 1.01 }},
		{"a negative min-p", "min_p", func(q *Question) { q.Settings.MinP = -0.5 }},
		{"a repeat penalty of zero", "repeat_penalty", func(q *Question) { q.Settings.RepeatPenalty = 0 }},
		{"no tokens at all", "max_tokens", func(q *Question) { q.Settings.MaxTokens = 0 }},
		{"a negative number of tokens", "max_tokens", func(q *Question) { q.Settings.MaxTokens = -2 }},
		{"a seed that browsers cannot hold", "seed", func(q *Question) { q.Settings.Seed = setting.MaxSeed + 1 }},
		{"a seed below -1", "seed", func(q *Question) { q.Settings.Seed = -2 }},
	} {
		t.Run(c.name+" is refused and names its field", func(t *testing.T) {
			q := question("fine")
			c.change(&q)
			_, err := s.Start(context.Background(), me, q, false)
			var invalid *fault.Error
			if !errors.As(err, &invalid) || invalid.Code != fault.CodeInvalid || invalid.Param != c.param {
				t.Errorf("got %v", err)
			}
		})
	}
	if len(s.chats) != 0 {
		t.Errorf("refused questions left %d chats behind", len(s.chats))
	}
}

func TestTheLongestIdleChatGoesFirst(t *testing.T) {
	var seconds atomic.Int64
	s, engine := newService(t, Options{MaxChats: 3, Now: func() time.Time { return time.Unix(seconds.Add(1), 0) }})
	read, a := start(t, s, engine, "read by somebody")
	a.finish()
	settle(read)
	sub, _, err := read.Subscribe(context.Background(), me, 0)
	if err != nil {
		t.Fatal(err)
	}
	idle, a := start(t, s, engine, "idle")
	a.finish()
	settle(idle)
	running, _ := start(t, s, engine, "running")
	next, a := start(t, s, engine, "next")
	if _, err := s.Chat(context.Background(), me, idle.ID()); !errors.Is(err, owned.ErrNotFound) {
		t.Error("the idle chat is still there")
	}
	if err := idle.Send(context.Background(), me, question("more")); !errors.Is(err, owned.ErrNotFound) {
		t.Errorf("a dropped chat answered %v to a question", err)
	}
	last, _ := start(t, s, engine, "last") // next runs, so the one that is read goes
	<-sub.Ready()
	if _, err := sub.Take(); !errors.Is(err, owned.ErrGone) {
		t.Errorf("the reader of the dropped chat got %v", err)
	}
	for _, c := range []*Chat{running, next, last} {
		if _, err := s.Chat(context.Background(), me, c.ID()); err != nil {
			t.Errorf("a running chat: %v", err)
		}
	}
	if _, err := s.Start(context.Background(), me, question("one too many"), false); !errors.Is(err, ErrFull) {
		t.Errorf("with all chats running a further one got %v", err)
	}
	a.finish()
}

func TestASlowReaderIsCutOffAndTheOthersAreNot(t *testing.T) {
	s, engine := newService(t, Options{QueueBytes: 1000})
	c, a := start(t, s, engine, "go")
	slow, snapshot, err := c.Subscribe(context.Background(), me, 0)
	if err != nil {
		t.Fatal(err)
	}
	fast, _, err := c.Subscribe(context.Background(), me, 0)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for range 100 {
		a.write("twenty bytes of text")
		events, err := fast.Take()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			text.WriteString(e.Text)
		}
	}
	if _, err := slow.Take(); !errors.Is(err, ErrSlow) {
		t.Errorf("the slow reader got %v", err)
	}
	if text.String() != strings.Repeat("twenty bytes of text", 100) {
		t.Error("the other reader lost text")
	}
	again, full, err := c.Subscribe(context.Background(), me, snapshot.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if full == nil {
		t.Error("2000 bytes were replayed into a queue of 1000")
	} else if got := full.Messages[1].Text; got != text.String() {
		t.Errorf("the snapshot has %d bytes of text, want %d", len(got), text.Len())
	}
	again.Close()
	again.Close()
}

func TestCloseKeepsTheTextAndRefusesMore(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "go")
	a.write("some ", "text")
	s.Close()
	if m := lastMessage(t, c); m.Text != "some text" || m.Answer.State != Interrupted {
		t.Errorf("after Close the answer is %q, %s", m.Text, m.Answer.State)
	}
	if err := c.Send(context.Background(), me, question("more")); !errors.Is(err, owned.ErrClosed) {
		t.Errorf("after Close a question got %v", err)
	}
	if _, err := s.Start(context.Background(), me, question("more"), false); !errors.Is(err, owned.ErrClosed) {
		t.Errorf("after Close a new chat got %v", err)
	}
}

type panicking struct{ *script }

func (panicking) Generate(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
	return func(func(infer.Event, error) bool) { panic("kernel") }
}

func TestAPanicEndsOneAnswer(t *testing.T) {
	s := New(panicking{newScript()}, Options{})
	defer s.Close()
	c, err := s.Start(context.Background(), me, question("go"), false)
	if err != nil {
		t.Fatal(err)
	}
	settle(c)
	if m := lastMessage(t, c); m.Answer.State != Failed || m.Answer.Error.Code != fault.CodeInternal {
		t.Errorf("the answer is %+v", m.Answer)
	}
}

// me is who carries out the use cases of these tests.
var me = access.Local
