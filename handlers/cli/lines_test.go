package cli

import (
	"context"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"m40-llm/infer"
)

// screen is what a terminal shows, read by whoever sits at it.
type screen struct {
	t      *testing.T
	person *os.File
	shown  string
}

// until reads until there are n of text on the screen.
func (s *screen) until(n int, text string) {
	s.t.Helper()
	for strings.Count(s.shown, text) < n {
		var b [256]byte
		read, err := s.person.Read(b[:])
		if err != nil {
			s.t.Fatalf("%v, after %q", err, s.shown)
		}
		s.shown += string(b[:read])
	}
}

func (s *screen) types(text string) {
	s.t.Helper()
	if _, err := s.person.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func canonical(t *testing.T, terminal *os.File) bool {
	t.Helper()
	modes, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return modes.Lflag&unix.ICANON != 0
}

func TestLoop_LinesCanBeEditedBroughtBackAndPastedAtATerminal(t *testing.T) {
	person, terminal := openTerminal(t)
	engine := says("A")
	answer := engine.generate
	engine.generate = func(ctx context.Context, r infer.Request, yield func(infer.Event, error) bool) {
		if !canonical(t, terminal) {
			t.Error("while an answer is written, Ctrl-C is no signal")
		}
		answer(ctx, r, yield)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- (&Chat{Engine: engine, Terminal: &Terminal{In: terminal, Out: terminal, Err: terminal}}).Loop(t.Context())
	}()
	s := &screen{t: t, person: person}
	for i, typed := range []string{
		"helo\x1b[Dl\r",                  // the arrow to the left
		"\x1b[A!\r",                      // and up
		"\x1b[200~one\rtwo ü\x1b[201~\r", // pasted
	} {
		s.until(i+1, "\x1b[?2004h> ")
		s.types(typed)
	}
	s.until(4, "\x1b[?2004h> ")
	s.types("\x04")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, r := range engine.asked {
		asked = append(asked, r.Messages[len(r.Messages)-1].Content)
	}
	if want := []string{"hello", "hello!", "one\ntwo ü"}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked was %q, want %q", asked, want)
	}
	if !canonical(t, terminal) || strings.Count(s.shown, "\x1b[?2004h") < strings.Count(s.shown, "\x1b[?2004l") {
		t.Error("the terminal is not as it was")
	}
}

func TestLoop_CtrlCAtTheTerminalDiscardsALineAndEndsTheChatTheSecondTime(t *testing.T) {
	person, terminal := openTerminal(t)
	engine := says("A")
	ended := make(chan error, 1)
	go func() {
		ended <- (&Chat{Engine: engine, Terminal: &Terminal{In: terminal, Out: terminal, Err: terminal}}).Loop(t.Context())
	}()
	s := &screen{t: t, person: person}
	const first, further = "\x1b[?2004h> ", "\x1b[?2004h… "
	for _, step := range []struct {
		prompts int
		prompt  string
		typed   string
	}{
		{1, first, "one\r"},
		{2, first, "discarded\x03"},
		{3, first, "\x1b[A!\r"}, // the line before is in the history
		{4, first, "\"\"\"two\r"},
		{1, further, "\x03"},
		{5, first, "\x03"},
	} {
		s.until(step.prompts, step.prompt)
		s.types(step.typed)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, r := range engine.asked {
		asked = append(asked, r.Messages[len(r.Messages)-1].Content)
	}
	if want := []string{"one", "one!"}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked was %q, want %q", asked, want)
	}
	if !canonical(t, terminal) || strings.Count(s.shown, "Ctrl-C again") != 2 {
		t.Errorf("the terminal is not as it was, or the hint is missing: %q", s.shown)
	}
}

func TestLoop_ASignalAtTheTerminalLeavesItAsItWas(t *testing.T) {
	person, terminal := openTerminal(t)
	signals := make(chan os.Signal)
	ended := make(chan error, 1)
	go func() {
		ended <- (&Chat{Engine: says(), Terminal: &Terminal{In: terminal, Out: terminal, Err: terminal, Signals: signals}}).Loop(t.Context())
	}()
	s := &screen{t: t, person: person}
	s.until(1, "> ")
	if canonical(t, terminal) {
		t.Error("a line cannot be edited")
	}
	signals <- syscall.SIGTERM
	if err := <-ended; err != nil || !canonical(t, terminal) {
		t.Errorf("the chat ended with %v, and the terminal is not as it was", err)
	}
	s.types("\r") // lets the reader go
}
