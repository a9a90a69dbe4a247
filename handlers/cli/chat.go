package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/chat"
)

// Generator is what a chat needs of the inference engine.
type Generator interface {
	// Generate streams one answer. A failure is an *infer.Error, or the
	// context's own error after a cancel; nothing follows it.
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
}

// Chat talks to a model in the terminal.
type Chat struct {
	Engine   Generator
	Request  infer.Request // model and settings of every answer
	System   string        // system prompt, if any
	Raw      bool          // the answer is written as it is, for files and pipes
	Terminal *Terminal

	// Notice returns what a person should know of the model once it is loaded, "" for
	// nothing. It is told before the first answer. nil: nothing.
	Notice func() string
}

// errStopped ends an answer that an interrupt stopped.
var errStopped = errors.New("stopped")

// Once answers one prompt.
func (c *Chat) Once(ctx context.Context, prompt string) error {
	if strings.TrimSpace(prompt) == "" {
		return Usagef("the prompt is empty; see m40-llm run -h")
	}
	_, err := c.answer(ctx, append(c.start(), chat.Message{Role: "user", Content: prompt}))
	return err
}

const chatHelp = `Ctrl-C stops an answer, Ctrl-D or /bye ends the chat, /clear starts it anew. """ begins and ends a message of several lines.`

// Prompts of a message, and of its further lines.
const (
	prompt     = "> "
	morePrompt = "… "
	quotes     = `"""`
)

// Loop answers line by line until the input ends. An interrupt stops the answer that
// is being written, or ends the chat if none is.
func (c *Chat) Loop(ctx context.Context) error {
	t := c.Terminal
	fmt.Fprintln(t.Err, chatHelp)
	lines := t.lines(ctx)
	messages := c.start()
	for {
		line, quoted, more := readMessage(ctx, lines)
		name := ""
		if !quoted {
			name = command(line)
		}
		switch {
		case !more || name == "bye" || name == "exit" || name == "quit":
			fmt.Fprintln(t.Err)
			return nil
		case name == "clear":
			messages = c.start()
			continue
		case name == "help" || name == "?":
			fmt.Fprintln(t.Err, chatHelp)
			continue
		case name != "":
			fmt.Fprintf(t.Err, "there is no command /%s%s; /help lists them. A message that begins with / goes between \"\"\"\n", Line(name), didYouMean("/", Nearest(name, chatCommands)))
			continue
		case line == "":
			continue
		}
		asked := append(messages, chat.Message{Role: "user", Content: line})
		answer, err := c.answer(ctx, asked)
		switch {
		case err == nil || errors.Is(err, errStopped) && answer.Content+answer.ReasoningContent != "":
			messages = append(asked, answer)
		case errors.Is(err, errStopped):
		case goesOn(err):
			if e, ok := errors.AsType[*infer.Error](err); ok && e.Code == infer.CodeContext && len(messages) > len(c.start()) {
				err = fmt.Errorf("%w; /clear starts the chat anew", err)
			}
			t.Exit(err) // reports it; the question does not become part of the chat
		default:
			return err
		}
	}
}

var chatCommands = []string{"bye", "clear", "exit", "help", "quit"}

// command returns the name of the command that a line begins with; "" if it is a message.
func command(line string) string {
	name, is := strings.CutPrefix(line, "/")
	name, _, several := strings.Cut(name, "\n")
	words := strings.Fields(name)
	if !is || several || len(words) == 0 || strings.ContainsAny(words[0], "/.") { // a path, for example
		return ""
	}
	return words[0]
}

// readMessage reads a line, or the lines between quotes.
func readMessage(ctx context.Context, lines lineReader) (text string, quoted, more bool) {
	line, more := lines.read(ctx, prompt)
	text = strings.TrimSpace(line)
	text, quoted = strings.CutPrefix(text, quotes)
	for quoted && more {
		if inside, ended := strings.CutSuffix(strings.TrimRight(text, " \r\n"), quotes); ended {
			return strings.TrimSpace(inside), true, true
		}
		line, more = lines.read(ctx, morePrompt)
		text += "\n" + strings.TrimRight(line, "\r\n")
	}
	return text, quoted, more
}

// goesOn reports whether another question can do better than the one that failed.
func goesOn(err error) bool {
	var e *infer.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case infer.CodeContext, infer.CodeInvalid, infer.CodeTemplate, infer.CodeQueueFull, infer.CodeNotFinite:
		return true
	}
	return false
}

func (c *Chat) start() []chat.Message {
	if c.System == "" {
		return nil
	}
	return []chat.Message{{Role: "system", Content: c.System}}
}

// answer writes one answer and returns it. Stopped by an interrupt, it returns what there is
// of it and errStopped.
func (c *Chat) answer(ctx context.Context, messages []chat.Message) (chat.Message, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case s := <-c.Terminal.Signals:
			if s == os.Interrupt {
				cancel(errStopped)
			} else {
				cancel(fmt.Errorf("ended by signal: %v", s))
			}
		case <-ctx.Done():
		}
	}()

	request := c.Request
	request.Messages, request.ParseReply = messages, true
	out := &answerWriter{w: c.Terminal.Out, raw: c.Raw}
	progress := newProgress(c.Terminal.Err)
	defer progress.clear()
	for event, err := range c.Engine.Generate(ctx, request) {
		if err != nil {
			progress.clear()
			out.end()
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				err = context.Cause(ctx)
			}
			return out.answer(), err
		}
		progress.show(event)
		if event.Type != infer.EventSchema && event.Type != infer.EventQueued && event.Type != infer.EventLoading {
			c.tellNotice(progress)
		}
		switch event.Type {
		case infer.EventSchema:
			fmt.Fprintf(c.Terminal.Err, "m40-llm: note: the answer is not held to all of the schema: %s\n", Line(strings.Join(event.Schema.Ignored, ", ")))
		case infer.EventToken:
			err = out.add(event.Token.Text, event.Token.Reasoning)
		case infer.EventDone:
			if err = out.add(event.Done.Text, event.Done.Reasoning); err == nil && event.Done.ContextFull {
				defer fmt.Fprintln(c.Terminal.Err, "m40-llm: the answer ends here because the context is full")
			}
		}
		if err != nil {
			return out.answer(), fmt.Errorf("failed to write the answer: %w", err)
		}
	}
	err := out.end()
	return out.answer(), err
}

func (c *Chat) tellNotice(p *progress) {
	if c.Notice == nil {
		return
	}
	if notice := c.Notice(); notice != "" {
		p.clear()
		fmt.Fprintf(c.Terminal.Err, "m40-llm: note: %s\n", Line(notice))
	}
	c.Notice = nil
}

// answerWriter writes an answer, its reasoning between tags, and remembers it.
type answerWriter struct {
	w               io.Writer
	raw             bool
	filter          Filter
	text, reasoning strings.Builder
	thinking        bool // the reasoning was written last
	last            byte
}

// add writes what a piece of the answer says and thinks.
func (a *answerWriter) add(said, thought string) error {
	a.text.WriteString(said)
	a.reasoning.WriteString(thought)
	if thought != "" {
		if !a.thinking {
			thought = "<think>\n" + thought
			if a.last != 0 {
				thought = "\n\n" + thought
			}
		}
		a.thinking = true
	}
	if said != "" && a.thinking {
		a.thinking, said = false, "\n</think>\n\n"+said
	}
	return a.write(thought + said)
}

func (a *answerWriter) answer() chat.Message {
	return chat.Message{Role: "assistant", Content: a.text.String(), ReasoningContent: a.reasoning.String()}
}

func (a *answerWriter) write(s string) error {
	if !a.raw {
		s = a.filter.Text(s)
	}
	if s == "" {
		return nil
	}
	a.last = s[len(s)-1]
	_, err := io.WriteString(a.w, s)
	return err
}

// end ends the last line.
func (a *answerWriter) end() error {
	if a.raw || a.last == 0 || a.last == '\n' {
		return nil
	}
	_, err := io.WriteString(a.w, "\n")
	return err
}

// progress shows on a terminal what an answer waits for.
type progress struct {
	w     io.Writer // nil: nobody watches
	shown string
}

func newProgress(w io.Writer) *progress {
	if !IsTerminal(w) {
		w = nil
	}
	return &progress{w: w}
}

func (p *progress) show(e infer.Event) {
	var line string
	switch e.Type {
	case infer.EventQueued:
		line = fmt.Sprintf("waiting, number %d in the queue", e.Queued.Position)
	case infer.EventLoading:
		line = fmt.Sprintf("loading %s: %d %%", Line(e.Loading.Model), percent(e.Loading.Done, e.Loading.Total))
		if e.Loading.KernelsTotal > 0 {
			line = fmt.Sprintf("compiling kernels for %s: %d of %d", Line(e.Loading.Model), e.Loading.Kernels, e.Loading.KernelsTotal)
		}
	case infer.EventPrefill:
		line = fmt.Sprintf("reading the prompt: %d %%", percent(int64(e.Prefill.Done), int64(e.Prefill.Total)))
	default:
		p.clear()
		return
	}
	p.line(line)
}

// line puts text in the place of what is shown.
func (p *progress) line(text string) {
	if p.w != nil && text != p.shown {
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		p.shown = text
	}
}

func (p *progress) clear() {
	if p.shown != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = ""
	}
}

func percent(done, total int64) int64 {
	if total <= 0 {
		return 100
	}
	return min(100*done/total, 100)
}
