package cli

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
)

// fakeEngine answers with a function and remembers what it was asked.
type fakeEngine struct {
	generate func(ctx context.Context, r infer.Request, yield func(infer.Event, error) bool)
	asked    []infer.Request
}

func (e *fakeEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	e.asked = append(e.asked, r)
	return func(yield func(infer.Event, error) bool) { e.generate(ctx, r, yield) }
}

func token(text string) infer.Event {
	return infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: text}}
}

func done(text string) infer.Event {
	return infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{End: record.End{Reason: infer.FinishStop}}, Text: text}}
}

// says answers every question with tokens.
func says(tokens ...string) *fakeEngine {
	return &fakeEngine{generate: func(_ context.Context, _ infer.Request, yield func(infer.Event, error) bool) {
		yield(infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Model: "m", Done: 1, Total: 2}}, nil)
		yield(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1, Total: 2}}, nil)
		for _, t := range tokens {
			if !yield(token(t), nil) {
				return
			}
		}
		yield(done(""), nil)
	}}
}

func fails(err error) *fakeEngine {
	return &fakeEngine{generate: func(_ context.Context, _ infer.Request, yield func(infer.Event, error) bool) {
		if yield(token("some"), nil) {
			yield(infer.Event{}, err)
		}
	}}
}

// terminal returns a Terminal over strings, and functions that return what was written.
func terminal(in string) (t *Terminal, out, errs func() string) {
	var o, e syncBuffer
	return &Terminal{In: strings.NewReader(in), Out: &o, Err: &e, Env: func(string) string { return "" }}, o.String, e.String
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine *fakeEngine
		raw    bool
		out    string
	}{
		{"an answer is written and its last line ended", says("Hel", "lo"), false, "Hello\n"},
		{"a line that has ended is not ended again", says("Hello\n"), false, "Hello\n"},
		{"escape sequences of the model are removed, across tokens too", says("a\x1b[3", "1mb\x1b]0;t", "itle\x07c\r"), false, "abc\n"},
		{"a raw answer is written as it is", says("a\x1b[31mb"), true, "a\x1b[31mb"},
		{"an empty answer writes nothing", says(), false, ""},
		{"text held back until the end is written", &fakeEngine{generate: func(_ context.Context, _ infer.Request, yield func(infer.Event, error) bool) {
			yield(done("end"), nil)
		}}, false, "end\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			term, out, errs := terminal("")
			chat := &Chat{Engine: c.engine, Request: infer.DefaultRequest(), Raw: c.raw, Terminal: term}
			if err := chat.Once(context.Background(), "hi"); err != nil {
				t.Fatal(err)
			}
			if out() != c.out || errs() != "" {
				t.Errorf("wrote %q and %q, want %q and nothing: nobody sits at it to see progress", out(), errs(), c.out)
			}
		})
	}
	t.Run("what is left out of a schema is said beside the answer", func(t *testing.T) {
		term, out, errs := terminal("")
		engine := &fakeEngine{generate: func(_ context.Context, _ infer.Request, yield func(infer.Event, error) bool) {
			yield(infer.Event{Type: infer.EventSchema, Schema: &infer.SchemaNotes{Ignored: []string{"if at #", "not at #/a"}}}, nil)
			yield(done("{}"), nil)
		}}
		chat := &Chat{Engine: engine, Request: infer.DefaultRequest(), Terminal: term}
		if err := chat.Once(context.Background(), "hi"); err != nil {
			t.Fatal(err)
		}
		if want := "m40-llm: note: these parts of the JSON Schema are not enforced: if at #, not at #/a\n"; out() != "{}\n" || errs() != want {
			t.Errorf("wrote %q and %q, want %q", out(), errs(), want)
		}
	})
	t.Run("the system prompt and the settings go with the question", func(t *testing.T) {
		term, _, _ := terminal("")
		engine := says("x")
		request := infer.DefaultRequest()
		request.Model, request.MaxTokens = "m", 7
		if err := (&Chat{Engine: engine, Request: request, System: "be brief", Terminal: term}).Once(context.Background(), "hi"); err != nil {
			t.Fatal(err)
		}
		got := engine.asked[0]
		want := []chat.Message{{Role: "system", Content: "be brief"}, {Role: "user", Content: "hi"}}
		if !reflect.DeepEqual(got.Messages, want) || got.Model != "m" || got.MaxTokens != 7 {
			t.Errorf("asked %+v", got)
		}
	})
	t.Run("a model without a chat template continues all that was written", func(t *testing.T) {
		term, _, errs := terminal("Once upon\na king.\n")
		engine := says(" a time")
		if err := (&Chat{Engine: engine, Request: infer.DefaultRequest(), System: "A tale", Continue: true, Terminal: term}).Loop(context.Background()); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"A tale\n\nOnce upon", "A tale\n\nOnce upon a timea king."} {
			if r := engine.asked[i]; r.Prompt != want || r.Messages != nil || r.ParseReply {
				t.Errorf("request %d has %q, %+v", i, r.Prompt, r.Messages)
			}
		}
		if !strings.Contains(errs(), continueHelp) {
			t.Errorf("the chat says %q", errs())
		}
	})
	t.Run("what should be known of the model is told once, when it is loaded", func(t *testing.T) {
		term, out, errs := terminal("")
		loaded := false
		engine := &fakeEngine{generate: func(_ context.Context, _ infer.Request, yield func(infer.Event, error) bool) {
			yield(infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Model: "m", Done: 1, Total: 2}}, nil)
			loaded = true
			yield(token("x"), nil)
			yield(done(""), nil)
		}}
		chat := &Chat{Engine: engine, Terminal: term, Notice: func() string {
			if !loaded {
				t.Error("it is asked for before the model is loaded")
			}
			return "no template\x1b[2J"
		}}
		for range 2 {
			if err := chat.Once(context.Background(), "hi"); err != nil {
				t.Fatal(err)
			}
		}
		if want := "m40-llm: note: no template\n"; errs() != want || out() != "x\nx\n" {
			t.Errorf("wrote %q and %q, want %q", out(), errs(), want)
		}
	})
	t.Run("a failure is returned after the text so far", func(t *testing.T) {
		term, out, _ := terminal("")
		broken := &fault.Error{Code: fault.CodeDevice, Message: "the device failed"}
		err := (&Chat{Engine: fails(broken), Terminal: term}).Once(context.Background(), "hi")
		if !errors.Is(err, broken) || out() != "some\n" {
			t.Errorf("got %v after %q", err, out())
		}
	})
	t.Run("an empty prompt is wrong usage", func(t *testing.T) {
		term, _, _ := terminal("")
		var usage *UsageError
		if err := (&Chat{Engine: says(), Terminal: term}).Once(context.Background(), " \n"); !errors.As(err, &usage) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("output that cannot be written ends the answer", func(t *testing.T) {
		r, w := io.Pipe()
		r.Close()
		term := &Terminal{Out: w, Err: io.Discard}
		if err := (&Chat{Engine: says("x", "y"), Terminal: term}).Once(context.Background(), "hi"); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v", err)
		}
	})
}

// signalled sends s after its first token and goes on until it is cancelled.
func signalled(signals chan<- os.Signal, s os.Signal) *fakeEngine {
	return &fakeEngine{generate: func(ctx context.Context, _ infer.Request, yield func(infer.Event, error) bool) {
		if !yield(token("begun"), nil) {
			return
		}
		signals <- s
		<-ctx.Done()
		yield(infer.Event{}, ctx.Err())
	}}
}

func TestLoop(t *testing.T) {
	contents := func(messages []chat.Message) (list []string) {
		for _, m := range messages {
			list = append(list, m.Role+": "+m.Content)
		}
		return list
	}
	for _, c := range []struct {
		name   string
		engine *fakeEngine
		in     string
		asked  []string // messages of the last question
	}{
		{"a question is asked with all that was said before", says("A"), "one\n\n  two \n", []string{"user: one", "assistant: A", "user: two"}},
		{"a cleared chat starts anew", says("A"), "one\n/clear\ntwo\n", []string{"user: two"}},
		{"a question that failed is not part of the chat", fails(&fault.Error{Code: fault.CodeContext, Message: "too long"}), "one\ntwo\n", []string{"user: two"}},
		{"/bye ends the chat", says("A"), "one\n/bye\ntwo\n", []string{"user: one"}},
		{"/exit ends the chat as elsewhere", says("A"), "one\n/exit\ntwo\n", []string{"user: one"}},
		{"an unknown command asks nothing", says("A"), "one\n/set\n", []string{"user: one"}},
		{"an unknown command with words behind it asks nothing", says("A"), "one\n/set temp 0\n/clera it\n", []string{"user: one"}},
		{"a message between quotes may begin like a command", says("A"), "\"\"\"/set temp 0\"\"\"\n", []string{"user: /set temp 0"}},
		{"a path is no command", says("A"), "/etc/hosts\n", []string{"user: /etc/hosts"}},
		{"a message of several lines stands between quotes", says("A"), "\"\"\"one\r\n  two\n\n/bye\n\"\"\"\n", []string{"user: one\n  two\n\n/bye"}},
		{"quotes begin and end in one line too", says("A"), "\"\"\"one\"\"\"\n", []string{"user: one"}},
		{"quotes without an end ask nothing", says("A"), "one\n\"\"\"two\n", []string{"user: one"}},
		{"/help asks nothing", says("A"), "one\n/help\n", []string{"user: one"}},
		{"bytes that are not UTF-8 become replacement characters", says("A"), "caf\xe9\n", []string{"user: caf\ufffd"}},
		{"a last line without a line break counts", says("A"), "one\ntwo", []string{"user: one", "assistant: A", "user: two"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			term, _, _ := terminal(c.in)
			if err := (&Chat{Engine: c.engine, Terminal: term}).Loop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if got := contents(c.engine.asked[len(c.engine.asked)-1].Messages); !reflect.DeepEqual(got, c.asked) {
				t.Errorf("asked %q, want %q", got, c.asked)
			}
		})
	}
	t.Run("a failure that the next question would meet too ends the chat", func(t *testing.T) {
		term, _, _ := terminal("one\ntwo\n")
		broken := &fault.Error{Code: fault.CodeModelFile, Message: "broken file"}
		engine := fails(broken)
		if err := (&Chat{Engine: engine, Terminal: term}).Loop(context.Background()); !errors.Is(err, broken) || len(engine.asked) != 1 {
			t.Errorf("got %v after %d questions", err, len(engine.asked))
		}
	})
	t.Run("a chat that has outgrown the context says how to go on", func(t *testing.T) {
		for in, hints := range map[string]int{"one\n": 0, "one\ntwo\nthree\n": 2} {
			term, _, errs := terminal(in)
			engine := says("A")
			answer := engine.generate
			engine.generate = func(ctx context.Context, r infer.Request, yield func(infer.Event, error) bool) {
				if len(r.Messages) > 1 || hints == 0 {
					yield(infer.Event{}, &fault.Error{Code: fault.CodeContext, Message: "too long"})
					return
				}
				answer(ctx, r, yield)
			}
			if err := (&Chat{Engine: engine, Terminal: term}).Loop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(errs(), "too long; /clear starts a new chat\n"); got != hints {
				t.Errorf("%q: %d hints, want %d: %q", in, got, hints, errs())
			}
		}
	})
	t.Run("a new chat is no way out where the system prompt does not fit", func(t *testing.T) {
		for part, hints := range map[fault.Part]int{fault.PartSystem: 0, fault.PartHistory: 1, fault.PartTools: 1} {
			term, _, errs := terminal("one\ntwo\n")
			engine := says("A")
			answer := engine.generate
			engine.generate = func(ctx context.Context, r infer.Request, yield func(infer.Event, error) bool) {
				if len(r.Messages) > 2 {
					yield(infer.Event{}, &fault.Error{Code: fault.CodeContext, Message: "too long", Largest: part})
					return
				}
				answer(ctx, r, yield)
			}
			if err := (&Chat{Engine: engine, Terminal: term, System: "Be short."}).Loop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(errs(), "/clear starts a new chat"); got != hints || !strings.Contains(errs(), "too long") {
				t.Errorf("%s: got %q", part, errs())
			}
		}
	})
	t.Run("an interrupt stops the answer and keeps the chat with what there is of it", func(t *testing.T) {
		signals := make(chan os.Signal)
		term, out, _ := terminal("one\ntwo\n")
		term.Signals = signals
		engine := signalled(signals, os.Interrupt)
		if err := (&Chat{Engine: engine, Terminal: term}).Loop(context.Background()); err != nil {
			t.Fatal(err)
		}
		want := []string{"user: one", "assistant: begun", "user: two"}
		if len(engine.asked) != 2 || !reflect.DeepEqual(contents(engine.asked[1].Messages), want) || out() != "begun\nbegun\n" {
			t.Errorf("%d questions, output %q", len(engine.asked), out())
		}
	})
	t.Run("the second interrupt in a row at the prompt ends the chat", func(t *testing.T) {
		signals := make(chan os.Signal)
		r, w := io.Pipe()
		defer w.Close()
		term, _, errs := terminal("")
		term.In, term.Signals = r, signals
		engine, answered := signalled(signals, os.Interrupt), make(chan struct{})
		answer := engine.generate
		engine.generate = func(ctx context.Context, r infer.Request, yield func(infer.Event, error) bool) {
			answer(ctx, r, yield)
			close(answered)
		}
		ended := make(chan error, 1)
		go func() { ended <- (&Chat{Engine: engine, Terminal: term}).Loop(context.Background()) }()
		signals <- os.Interrupt
		if _, err := io.WriteString(w, "one\n"); err != nil {
			t.Fatal(err)
		}
		<-answered
		signals <- os.Interrupt
		signals <- os.Interrupt
		if err := <-ended; err != nil || len(engine.asked) != 1 || strings.Count(errs(), "Ctrl-C again ends the chat") != 2 {
			t.Errorf("got %v after %d questions: %q", err, len(engine.asked), errs())
		}
	})
	t.Run("a terminate signal at the prompt ends the chat", func(t *testing.T) {
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGTERM
		r, w := io.Pipe()
		defer w.Close()
		term, _, _ := terminal("")
		term.In, term.Signals = r, signals
		if err := (&Chat{Engine: says(), Terminal: term}).Loop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Run("a terminate signal ends the answer and the chat", func(t *testing.T) {
		signals := make(chan os.Signal)
		term, _, _ := terminal("one\ntwo\n")
		term.Signals = signals
		engine := signalled(signals, syscall.SIGTERM)
		if err := (&Chat{Engine: engine, Terminal: term}).Loop(context.Background()); err == nil || len(engine.asked) != 1 {
			t.Errorf("got %v after %d questions", err, len(engine.asked))
		}
	})
}

func TestThoughtsAreWrittenInOneFormAndGivenBackApart(t *testing.T) {
	engine := &fakeEngine{generate: func(_ context.Context, _ infer.Request, yield func(infer.Event, error) bool) {
		yield(infer.Event{Type: infer.EventToken, Token: &infer.Token{Reasoning: "Hm."}}, nil)
		yield(token("Yes."), nil)
		yield(done(""), nil)
	}}
	term, out, _ := terminal("one\ntwo\n")
	if err := (&Chat{Engine: engine, Terminal: term}).Loop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := engine.asked[1]; !got.ParseReply || got.Messages[1].Content != "Yes." || got.Messages[1].ReasoningContent != "Hm." {
		t.Errorf("the second question is asked behind %+v", got.Messages)
	}
	const answer = "<think>\nHm.\n</think>\n\nYes.\n"
	if out() != answer+answer {
		t.Errorf("it reads %q", out())
	}
}

func TestProgressSaysWhatIsWaitedFor(t *testing.T) {
	var out strings.Builder
	p := &progress{w: &out}
	for _, c := range []struct {
		event infer.Event
		line  string
	}{
		{infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 2}}, "waiting, number 2 in the queue"},
		{infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 2, WaitS: 120}}, "waiting, number 2 in the queue, about 2 min"},
		{infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Model: "m", Done: 1, Total: 2}}, "loading m: 50 %"},
		{infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Model: "m", Done: 1, Total: 2, LeftS: 4}}, "loading m: 50 %, about 4 s left"},
		{infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Model: "m", Done: 2, Total: 2, Kernels: 3, KernelsTotal: 14}}, "compiling kernels for m: 3 of 14"},
		{infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1, Total: 4}}, "reading the prompt: 25 %"},
		{infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{}}, "reading the prompt"},
	} {
		out.Reset()
		p.show(c.event)
		if got := strings.TrimPrefix(out.String(), "\r\x1b[K"); got != c.line {
			t.Errorf("%s: got %q, want %q", c.event.Type, got, c.line)
		}
	}
}
