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
	"m40-llm/infer/fault"
	"m40-llm/infer/units"
)

// Generator is the part of an engine that a chat uses.
type Generator interface {
	// Generate streams one answer. It ends with the first error: a *fault.Error, or the
	// error of ctx if that was cancelled.
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
}

// Chat is a chat with a model in the terminal.
type Chat struct {
	Engine   Generator
	Request  infer.Request // model and settings of every answer
	System   string        // system prompt; "": none
	Raw      bool          // write answers unfiltered, for files and pipes
	Pictures [][]byte      // files of pictures before the first message
	Detail   chat.Detail   // in which pictures are read
	Continue bool          // the model continues text: it has no chat template
	Terminal *Terminal

	// Notice returns a note about the loaded model for the person, "": none. It is printed
	// before the first answer. May be nil.
	Notice func() string
}

// errStopped is the error of an answer that an interrupt stopped.
var errStopped = errors.New("stopped")

// Once writes the answer to one prompt.
func (c *Chat) Once(ctx context.Context, prompt string) error {
	if strings.TrimSpace(prompt) == "" {
		return Usagef("the prompt is empty; see m40-llm run -h")
	}
	question, err := c.question(prompt, true, true)
	if err == nil {
		_, err = c.answer(ctx, append(c.start(), question))
	}
	return err
}

const chatHelp = `Ctrl-C stops an answer, Ctrl-D, /bye or Ctrl-C twice ends the chat, /clear starts a new one. """ begins and ends a message of several lines.
A path in a line, such as ./photo.jpg, attaches that picture; /detail low, medium or full says in how much detail pictures are read.`

const continueHelp = "This model has no chat template: it continues what you write, and then what you add to that."

// The terminal's prompts for a message and for its further lines, and what surrounds a
// message of several lines.
const (
	prompt     = "> "
	morePrompt = "… "
	quotes     = `"""`
)

// Loop reads messages and writes an answer to each until the input ends. An interrupt stops
// the running answer, or discards the message that is being typed; a second one in a row ends the chat.
func (c *Chat) Loop(ctx context.Context) error {
	t := c.Terminal
	fmt.Fprintln(t.Err, chatHelp)
	if c.Continue {
		fmt.Fprintln(t.Err, continueHelp)
	}
	lines := t.lines(ctx)
	messages := c.start()
	for interrupted := false; ; {
		line, quoted, err := readMessage(ctx, lines)
		name := ""
		if !quoted {
			name = command(line)
		}
		if errors.Is(err, errInterrupted) && !interrupted {
			interrupted = true
			fmt.Fprint(t.Err, "\nCtrl-C again ends the chat\n")
			continue
		}
		interrupted = false
		switch {
		case err != nil || name == "bye" || name == "exit" || name == "quit":
			fmt.Fprintln(t.Err)
			return nil
		case name == "clear":
			messages = c.start()
			continue
		case name == "detail":
			c.setDetail(line)
			continue
		case name == "help" || name == "?":
			fmt.Fprintln(t.Err, chatHelp)
			continue
		case name != "":
			fmt.Fprintf(t.Err, "there is no command /%s%s; /help lists them. Put \"\"\" around a message that begins with /\n", Line(name), DidYouMean("/", Nearest(name, chatCommands)))
			continue
		case line == "":
			continue
		}
		question, err := c.question(line, len(messages) == len(c.start()), quoted)
		if err != nil {
			t.Exit(fmt.Errorf("the message is not sent: %w", err)) // prints it
			continue
		}
		asked := append(messages, question)
		answer, err := c.answer(ctx, asked)
		switch {
		case err == nil || errors.Is(err, errStopped) && answer.Content+answer.ReasoningContent != "":
			messages = append(asked, answer)
		case errors.Is(err, errStopped):
		case canContinue(err):
			if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.CodeContext && e.Largest != fault.PartSystem && len(messages) > len(c.start()) {
				err = fmt.Errorf("%w; /clear starts a new chat", err)
			}
			t.Exit(err) // prints err; the failed message is not added to the chat
		default:
			return err
		}
	}
}

var chatCommands = []string{"bye", "clear", "detail", "exit", "help", "quit"}

// setDetail sets the detail of the pictures of further messages, as the line /detail NAME says.
func (c *Chat) setDetail(line string) {
	detail, err := ParseDetail(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "/detail")))
	if err != nil {
		c.Terminal.Exit(err) // prints it
		return
	}
	c.Detail = detail
}

// command returns the name of the command in a line; "" if the line is a message.
func command(line string) string {
	name, slash := strings.CutPrefix(line, "/")
	name, _, several := strings.Cut(name, "\n")
	words := strings.Fields(name)
	if !slash || several || len(words) == 0 || strings.ContainsAny(words[0], "/.") { // such as a path
		return ""
	}
	return words[0]
}

// readMessage reads one line or, if it begins with quotes, all lines up to the next quotes. The error is
// that of lines.
func readMessage(ctx context.Context, lines lineReader) (text string, quoted bool, err error) {
	line, err := lines.read(ctx, prompt)
	text = strings.TrimSpace(line)
	text, quoted = strings.CutPrefix(text, quotes)
	for quoted && err == nil {
		if inside, ended := strings.CutSuffix(strings.TrimRight(text, " \r\n"), quotes); ended {
			return strings.TrimSpace(inside), true, nil
		}
		line, err = lines.read(ctx, morePrompt)
		text += "\n" + strings.TrimRight(line, "\r\n")
	}
	return text, quoted, err
}

// canContinue reports whether the chat can continue after err: the next message may succeed.
func canContinue(err error) bool {
	var e *fault.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case fault.CodeContext, fault.CodeInvalid, fault.CodeTemplate, fault.CodeQueueFull, fault.CodeNotFinite:
		return true
	}
	return false
}

// start returns the messages that every chat begins with.
func (c *Chat) start() []chat.Message {
	if c.System == "" {
		return nil
	}
	return []chat.Message{{Role: "system", Content: validText(c.System)}}
}

// answer writes one answer and returns it. If an interrupt stops it, answer returns the part
// that was written and errStopped.
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
	if c.Continue {
		request.Prompt = textOf(messages)
	} else {
		request.Messages, request.ParseReply = messages, true
	}
	out := &answerWriter{w: c.Terminal.answers(), raw: c.Raw}
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
		if !event.IsNote() && event.Type != infer.EventPictures && event.Type != infer.EventQueued && event.Type != infer.EventLoading {
			c.printNotice(progress)
		}
		switch event.Type {
		case infer.EventSchema:
			fmt.Fprintf(c.Terminal.Err, "m40-llm: note: these parts of the JSON Schema are not enforced: %s\n", Line(strings.Join(event.Schema.Ignored, ", ")))
		case infer.EventPrompt:
			fmt.Fprintf(c.Terminal.Err, "m40-llm: note: %s\n", Line(strings.Join(event.Prompt.Notes, "; ")))
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

// textOf returns the text that a model without a chat template continues: nothing is between the
// messages, but an empty line after the system prompt.
func textOf(messages []chat.Message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.Content)
		if m.Role == "system" {
			b.WriteString("\n\n")
		}
	}
	return b.String()
}

// printNotice prints the notice about the model, once.
func (c *Chat) printNotice(p *progress) {
	if c.Notice == nil {
		return
	}
	if notice := c.Notice(); notice != "" {
		p.clear()
		fmt.Fprintf(c.Terminal.Err, "m40-llm: note: %s\n", Line(notice))
	}
	c.Notice = nil
}

// answerWriter writes an answer, with its reasoning between tags, and stores both.
type answerWriter struct {
	w               io.Writer
	raw             bool
	filter          Filter
	text, reasoning strings.Builder
	inReasoning     bool // the opening tag was written, but not the closing one
	last            byte // the last byte written; 0: none yet
}

// add writes a piece of the answer: its text and its reasoning, either of which may be "".
func (a *answerWriter) add(text, reasoning string) error {
	a.text.WriteString(text)
	a.reasoning.WriteString(reasoning)
	if reasoning != "" {
		if !a.inReasoning {
			reasoning = "<think>\n" + reasoning
			if a.last != 0 {
				reasoning = "\n\n" + reasoning
			}
		}
		a.inReasoning = true
	}
	if text != "" && a.inReasoning {
		a.inReasoning, text = false, "\n</think>\n\n"+text
	}
	return a.write(reasoning + text)
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

// end ends the last line, unless the answer is written unfiltered.
func (a *answerWriter) end() error {
	if a.raw || a.last == 0 || a.last == '\n' {
		return nil
	}
	_, err := io.WriteString(a.w, "\n")
	return err
}

// progress shows on a terminal, in one line, what an answer is waiting for.
type progress struct {
	w     io.Writer // nil: the output is not a terminal
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
	case infer.EventPictures:
		line = "reading the picture"
		if e.Pictures.Total > 1 {
			line = fmt.Sprintf("reading picture %d of %d", min(e.Pictures.Done+1, e.Pictures.Total), e.Pictures.Total)
		}
	case infer.EventQueued:
		line = fmt.Sprintf("waiting, number %d in the queue", e.Queued.Position)
		if e.Queued.WaitS > 0 {
			line += ", about " + units.Roughly(e.Queued.WaitS)
		}
	case infer.EventLoading:
		line = fmt.Sprintf("loading %s: %d %%", Line(e.Loading.Model), percent(e.Loading.Done, e.Loading.Total))
		if e.Loading.LeftS > 0 {
			line += ", about " + units.Roughly(e.Loading.LeftS) + " left"
		}
		if e.Loading.KernelsTotal > 0 {
			line = fmt.Sprintf("compiling kernels for %s: %d of %d", Line(e.Loading.Model), e.Loading.Kernels, e.Loading.KernelsTotal)
		}
	case infer.EventPrefill:
		line = "reading the prompt"
		if e.Prefill.Total > 0 { // other engines do not say how many tokens
			line += fmt.Sprintf(": %d %%", percent(int64(e.Prefill.Done), int64(e.Prefill.Total)))
		}
	default:
		p.clear()
		return
	}
	p.line(line)
}

// line replaces the line that is shown by text.
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
