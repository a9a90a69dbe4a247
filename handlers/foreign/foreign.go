// Package foreign reads chats that other programs exported: ChatGPT, Open WebUI, the page of llama-server and LM Studio. It
// recognises a file by its content, and keeps branches, reasoning and times. Strangers may have written the files, so all
// sizes are limited.
package foreign

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"m40-llm/infer/fault"
	"m40-llm/infer/readtext"
	"m40-llm/infer/record"
	"m40-llm/store"
)

// Limits of a file.
const (
	maxChat     = 32 << 20  // bytes of JSON of one chat
	maxUnpacked = 512 << 20 // bytes of what is read of an archive
	maxEntries  = 100_000   // files of an archive
	maxChats    = 20_000
)

// Chat is a chat of another program. Ids are positions in Messages, from 1.
type Chat struct {
	Program  string
	Metadata store.Metadata
	Messages []store.Message // parents before their children
	Leaf     int64           // shown last; 0: the last message
}

// Omitted counts what was not imported, by the sentence that says how many there are.
type Omitted map[string]int

const (
	files    = "Pictures and other files: %d."
	calls    = "Calls of tools and their results: %d."
	orphaned = "Messages without text: %d."
)

// All yields a sentence for each kind.
func (o Omitted) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for what, n := range o {
			if !yield(fmt.Sprintf(what, n)) {
				return
			}
		}
	}
}

// Known reports whether a file begins as those of this package do, rather than as an export of this program.
func Known(beginning []byte) bool {
	text := bytes.TrimLeft(bytes.TrimPrefix(beginning, []byte("\xef\xbb\xbf")), " \t\r\n")
	if bytes.HasPrefix(text, []byte("PK\x03\x04")) || bytes.HasPrefix(text, []byte("[")) {
		return true
	}
	// The first field of an export of this program is its format; the others begin with another one.
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return false
	}
	key, err := d.Token()
	name, _ := key.(string)
	return err == nil && !slices.Contains([]string{"format", "raw", "leaf", "model"}, name)
}

// Read yields the chats of a file of size bytes, and counts in omitted what it leaves out. An error ends the file, unless
// it is a *ChatError.
func Read(file io.ReaderAt, size int64, omitted Omitted) iter.Seq2[Chat, error] {
	return func(yield func(Chat, error) bool) {
		var magic [4]byte
		if _, err := file.ReadAt(magic[:], 0); err == nil && string(magic[:]) == "PK\x03\x04" {
			readArchive(file, size, omitted, yield)
			return
		}
		readJSON(io.NewSectionReader(file, 0, size), omitted, yield)
	}
}

// ChatError says why one chat of a file was left out.
type ChatError struct {
	Title string
	err   error
}

func (e *ChatError) Error() string {
	return fmt.Sprintf("the chat “%s” was left out: %v", e.Title, e.err)
}

// Failed returns the error that leaves the chat out.
func (c Chat) Failed(err error) *ChatError { return &ChatError{c.Metadata.Title, err} }

// ErrUnknown is the error of a file without chats of a program that is known.
var ErrUnknown = fault.Invalid("format", "the file has no chats that this program knows: import its own JSON, or the export of ChatGPT, Open WebUI, llama-server or LM Studio")

func readArchive(file io.ReaderAt, size int64, omitted Omitted, yield func(Chat, error) bool) {
	archive, err := zip.NewReader(file, size)
	if err != nil {
		yield(Chat{}, fault.Invalid("file", "the ZIP archive is broken, or only a part of it: %v", err))
		return
	}
	if len(archive.File) > maxEntries {
		yield(Chat{}, fault.Invalid("file", "the ZIP archive has %d files, and at most %d are read", len(archive.File), maxEntries))
		return
	}
	rest, found, ended := int64(maxUnpacked), false, false
	for _, f := range archive.File {
		name := path.Base(f.Name)
		if !strings.HasSuffix(name, ".json") || strings.HasPrefix(name, ".") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			yield(Chat{}, fault.Invalid("file", "%s in the ZIP archive cannot be read: %v", name, err))
			return
		}
		limited := &io.LimitedReader{R: r, N: rest}
		readJSON(limited, omitted, func(c Chat, err error) bool {
			if errors.Is(err, ErrUnknown) {
				return true // a file next to the chats
			}
			if err != nil && limited.N <= 0 {
				err = fault.Invalid("file", "the ZIP archive unpacks to more than %d MiB: import the files in it one by one", maxUnpacked>>20)
			}
			found = true
			ended = !yield(c, err)
			return !ended
		})
		rest = limited.N
		if err := r.Close(); err != nil && !ended {
			ended = !yield(Chat{}, fault.Invalid("file", "%s in the ZIP archive is broken: %v", name, err))
		}
		if ended {
			return
		}
	}
	if !found {
		yield(Chat{}, ErrUnknown)
	}
}

// readJSON yields the chats of a JSON file: a list of them, or one.
func readJSON(file io.Reader, omitted Omitted, yield func(Chat, error) bool) {
	values := readtext.NewJSONValues(file, errLongChat)
	values.Allow(maxChat)
	text := bufio.NewReader(values)
	if mark, err := text.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
		_, _ = text.Discard(3)
	}
	first := byte(0)
	for first == 0 {
		c, err := text.ReadByte()
		if err != nil {
			yield(Chat{}, ErrUnknown)
			return
		}
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(c)) {
			first = c
			_ = text.UnreadByte() // cannot fail
		}
	}
	d := json.NewDecoder(text)
	one := func() (more bool) {
		values.Allow(maxChat)
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			yield(Chat{}, broken(err))
			return false
		}
		c, err := parse(raw, omitted)
		return yield(c, err) && (err == nil || errors.As(err, new(*ChatError)))
	}
	switch first {
	case '{':
		one()
	case '[':
		if _, err := d.Token(); err != nil {
			yield(Chat{}, broken(err))
			return
		}
		n := 0
		for ; d.More(); n++ {
			if n == maxChats {
				yield(Chat{}, fault.Invalid("file", "the file has more than %d chats; the first ones were imported", maxChats))
				return
			}
			if !one() {
				return
			}
		}
		if _, err := d.Token(); err != nil {
			yield(Chat{}, broken(err))
			return
		}
		if n == 0 {
			yield(Chat{}, fault.Invalid("file", "the file is an empty list"))
		}
	default:
		yield(Chat{}, ErrUnknown)
	}
}

func broken(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fault.Invalid("file", "the file ends too early: it may be truncated")
	}
	if errors.Is(err, readtext.ErrSpace) {
		return fault.Invalid("file", "the file cannot be read: %v", err)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fault.Invalid("file", "the file is not valid JSON: %v", err)
	}
	return err
}

var errLongChat = fault.Invalid("file", "a chat in the file is longer than %d MiB", maxChat>>20)

// parse recognises the program of a chat by its fields.
func parse(raw json.RawMessage, omitted Omitted) (Chat, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return Chat{}, ErrUnknown
	}
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return len(fields[name]) == 0 })
	}
	read := readChatGPT
	switch {
	case has("mapping"):
	case has("conv", "messages"):
		read = readLlamaServer
	case has("chat"):
		read = readOpenWebUI
	case has("messages") && bytes.Contains(fields["messages"], []byte(`"versions"`)):
		read = readLMStudio
	default:
		return Chat{}, ErrUnknown
	}
	c, err := read(raw, omitted)
	if err == nil && len(c.Messages) == 0 {
		err = errors.New("it has no messages")
	}
	if err == nil && len(c.Messages) > store.MaxImport {
		err = fmt.Errorf("it has %d messages, and at most %d can be imported", len(c.Messages), store.MaxImport)
	}
	c.Metadata.Title = oneLine(c.Metadata.Title)
	if err != nil {
		return Chat{}, &ChatError{c.Metadata.Title, err}
	}
	return c, nil
}

func oneLine(title string) string {
	runes := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(title, "\ufffd")), " "))
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, string(runes[:min(len(runes), 200)]))
}

// node is a message of another program's tree. Without a role it is left out, and its children become those of its parent.
type node struct {
	id, parent      string
	role            store.Role
	text, reasoning string
	at              time.Time
}

// omitEmpty has a message without text left out.
func (n *node) omitEmpty(omitted Omitted) {
	if n.role != "" && strings.TrimSpace(n.text+n.reasoning) == "" {
		n.role = ""
		omitted[orphaned]++
	}
}

// tree orders nodes so that parents come before their children, and returns them as messages, with the one called leaf. Of
// nodes that go in circles it leaves out all.
func tree(nodes []node, leaf string) (list []store.Message, last int64) {
	below := map[string][]int{}
	known := map[string]int{}
	for i, n := range nodes {
		if _, twice := known[n.id]; !twice {
			known[n.id] = i
		}
	}
	for i, n := range nodes {
		if known[n.id] != i {
			continue
		}
		parent := n.parent
		if _, there := known[parent]; !there {
			parent = ""
		}
		below[parent] = append(below[parent], i)
	}
	type step struct {
		at     int
		parent int64
	}
	var open []step
	push := func(of string, parent int64) {
		for _, i := range slices.Backward(below[of]) {
			open = append(open, step{i, parent})
		}
		delete(below, of)
	}
	push("", 0)
	ids := map[string]int64{}
	for len(open) > 0 {
		s := open[len(open)-1]
		open = open[:len(open)-1]
		n := nodes[s.at]
		id := s.parent
		if n.role != "" {
			id = int64(len(list)) + 1
			m := store.Message{ID: id, Parent: s.parent, Role: n.role, State: store.Done, Text: n.text, Reasoning: n.reasoning, Created: n.at}
			if n.role == store.RoleAssistant {
				m.Answer = &store.Answer{Settings: json.RawMessage("{}"), Error: json.RawMessage("null"), Answer: record.Answer{}}
			}
			list = append(list, m)
		}
		ids[n.id] = id
		push(n.id, id)
	}
	return list, ids[leaf]
}

// seconds returns a time of seconds since 1970, and the zero time for what is none.
func seconds(s float64) time.Time {
	if math.IsNaN(s) || s <= 0 || s > 32503680000 { // the year 3000
		return time.Time{}
	}
	return time.UnixMilli(int64(s * 1000)).UTC()
}
