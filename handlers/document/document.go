// Package document makes text of PDF and DOCX files. Strangers write such files, and the libraries that read them were made
// for friendlier ones, so each file is read by a process of its own, with limits of time and memory: a file that loops,
// bursts or crashes ends that process and nothing else.
package document

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Limits of a file and of what reading it may take.
const (
	MaxBytes  = 32 << 20 // of a file
	maxText   = 4 << 20  // bytes
	maxPages  = 5000
	maxTime   = 30 * time.Second
	maxCPU    = 20       // seconds
	maxMemory = 1 << 30  // bytes
	atOnce    = 2        // files; more wait
	maxReply  = 32 << 20 // bytes of JSON; control characters of a text take six each
)

// Document is the text of a file.
type Document struct {
	Kind  Kind   `json:"kind"`
	Text  string `json:"text"`
	Pages int    `json:"pages,omitempty"` // of a PDF
}

// Kind says what a file is.
type Kind string

const (
	PDF  Kind = "pdf"
	DOCX Kind = "docx"
)

// Error says why a file could not be read. Its text goes on after the name of the file.
type Error struct{ Reason string }

func (e *Error) Error() string { return fmt.Sprintf("the file %s", e.Reason) }

func failed(format string, args ...any) *Error { return &Error{fmt.Sprintf(format, args...)} }

var (
	errLocked  = failed("is protected by a password: save a copy without one, and attach that")
	errScanned = failed("has no text: its pages are pictures, as scanners make them. Run it through text recognition (OCR), or attach the pages as pictures")
	errKind    = failed("is neither a PDF nor a DOCX file")
	errTime    = failed("took more than %v to read: save it anew, or attach the part that matters", maxTime)
	errMemory  = failed("needs more memory to read than a file may: save it anew, or attach the part that matters")
)

// Is reports whether a file that begins with these bytes may be one that Read makes text of, or one like it that Read
// names in its error.
func Is(beginning []byte) bool {
	return bytes.HasPrefix(beginning, []byte("PK\x03\x04")) || bytes.HasPrefix(beginning, oleMagic) || bytes.Contains(beginning[:min(len(beginning), 1024)], []byte("%PDF-"))
}

var oleMagic = []byte("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")

// Reader reads files in processes of their own.
type Reader struct {
	program string // that calls Serve
	slots   chan struct{}
	time    time.Duration // for one file
}

// NewReader returns a reader that starts a program, which calls Serve first.
func NewReader(program string) *Reader {
	return &Reader{program: program, slots: make(chan struct{}, atOnce), time: maxTime}
}

// arguments are those with which a program is started to read a file.
var arguments = []string{"worker", "document"}

// Read returns the text of a file. An error about the file is an *Error.
func (r *Reader) Read(ctx context.Context, file []byte) (Document, error) {
	if len(file) > MaxBytes {
		return Document{}, failed("has more than %d MB, the most that a document can have", MaxBytes>>20)
	}
	if !Is(file[:min(len(file), 1024)]) {
		return Document{}, errKind
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return Document{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, r.time)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.program, arguments...)
	cmd.Stdin = bytes.NewReader(file)
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = time.Second
	out, trouble := &bounded{most: maxReply}, &bounded{most: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, trouble
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return decode(out.Bytes())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Document{}, errTime
	case ctx.Err() != nil:
		return Document{}, ctx.Err()
	case !errors.As(err, &exit):
		return Document{}, fmt.Errorf("the process that reads documents did not start: %w", err)
	case outOfTime(exit):
		return Document{}, errTime
	case strings.Contains(trouble.String(), "out of memory"), strings.Contains(trouble.String(), "cannot allocate memory"):
		return Document{}, errMemory
	}
	return Document{}, failed("is broken: reading it failed. Open it in another program, save it anew, and attach that")
}

// bounded keeps the beginning of what is written.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, b.most-b.Len()))])
	return len(p), nil
}

// reply is what the process that read a file writes.
type reply struct {
	Document
	Reason string `json:"reason,omitempty"`
}

func decode(out []byte) (Document, error) {
	var r reply
	if err := json.Unmarshal(out, &r); err != nil {
		return Document{}, fmt.Errorf("the process that reads documents wrote no document: %w", err)
	}
	if r.Reason != "" {
		return Document{}, &Error{r.Reason}
	}
	return r.Document, nil
}

// Serve reads the file on the standard input, writes what it found and ends the process, if that was started by a
// Reader; else it does nothing.
func Serve() {
	if len(os.Args) != 1+len(arguments) || os.Args[1] != arguments[0] || os.Args[2] != arguments[1] {
		return
	}
	if err := restrict(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	file, err := readAll(os.Stdin)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answer(file))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func answer(file []byte) (r reply) {
	d, err := parse(file)
	if known := (*Error)(nil); errors.As(err, &known) {
		return reply{Reason: known.Reason}
	}
	if err != nil {
		return reply{Reason: "is broken: " + err.Error()}
	}
	return reply{Document: d}
}

// parse returns the text of a file. The package that it uses for PDF panics on what it does not expect.
func parse(file []byte) (d Document, err error) {
	defer func() {
		if v := recover(); v != nil {
			d, err = Document{}, fmt.Errorf("%v", v)
		}
	}()
	switch {
	case bytes.HasPrefix(file, []byte("PK\x03\x04")):
		d.Kind = DOCX
		d.Text, err = readDOCX(file)
	case bytes.HasPrefix(file, oleMagic):
		return d, failed("is an Office file with a password, or of before 2007: save it as DOCX without a password, and attach that")
	default:
		d.Kind = PDF
		d.Text, d.Pages, err = readPDF(file)
	}
	d.Text = clean(d.Text)
	if err == nil && strings.TrimSpace(d.Text) == "" {
		err = failed("has no text")
	}
	return d, err
}

// clean returns a text in valid UTF-8, without control characters, and with at most one empty line in a row.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\u00a0':
			return ' '
		case r == '\u00ad', r == '\ufeff', r < ' ' && r != '\n' && r != '\t', r == 0x7f:
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	var out strings.Builder
	empty := 0
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " \t")
		if line == "" {
			empty++
			continue
		}
		if out.Len() > 0 {
			out.WriteString("\n\n"[:min(2, empty+1)])
		}
		empty = 0
		out.WriteString(line)
	}
	return out.String()
}
