package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/attached"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/httpio"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/readtext"
	"m40-llm/store"
)

// ExportFormat is the value of format in the files that GET /c/:id/export.json writes and
// POST /import reads.
const ExportFormat = "m40-llm-chat-1"

// ExportedChat is a whole chat: every branch, and how each answer was generated.
type ExportedChat struct {
	Format string `json:"format"`
	store.Metadata
	Leaf     int64             `json:"leaf"` // last message of the branch that is shown
	Messages []exportedMessage `json:"messages"`
}

// exportedMessage is a message in a file. Its id is unique in the file; a parent comes before
// its children.
type exportedMessage struct {
	ID        int64             `json:"id"`
	Parent    int64             `json:"parent,omitempty"`
	Role      store.Role        `json:"role"`
	State     store.State       `json:"state"`
	Author    string            `json:"author,omitempty"` // of a question: the reader of a shared chat who wrote it; missing: its owner
	Text      string            `json:"text"`
	Reasoning *string           `json:"reasoning,omitempty"` // of an answer; older files have no such field, but <think>…</think> in the text
	At        time.Time         `json:"at"`
	Answer    *store.AnswerJSON `json:"answer,omitempty"`
	Pictures  []exportedPicture `json:"pictures,omitempty"` // of a question
}

// exportedPicture is a picture in a file.
type exportedPicture struct {
	Type string `json:"type"` // media type, such as image/png
	Data []byte `json:"data"` // of the file, in base64

	Detail string `json:"detail,omitempty"` // in which models read it; missing: in full
}

// exportJSON answers GET /c/:id/export.json.
func (h *Handlers) exportJSON(c echo.Context) error {
	conversation, list, err := h.Live.Tree(c.Request().Context(), principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	if err := h.Live.WithFiles(c.Request().Context(), principal(c), c.Param("id"), list); err != nil {
		return err
	}
	attach(c, conversation.Title, "json")
	return c.JSONPretty(http.StatusOK, ExportChat(conversation, list), "  ")
}

// ExportChat returns a chat and all of its messages, with the files of their pictures, as a file.
func ExportChat(conversation store.Conversation, list []store.Message) ExportedChat {
	out := ExportedChat{Format: ExportFormat, Metadata: conversation.Metadata, Leaf: conversation.Leaf, Messages: []exportedMessage{}}
	for _, m := range list {
		out.Messages = append(out.Messages, exportMessage(m))
	}
	return out
}

// exportMarkdown answers GET /c/:id/export.md with the branch that is shown.
func (h *Handlers) exportMarkdown(c echo.Context) error {
	conversation, list, err := h.Live.Tree(c.Request().Context(), principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	byID := map[int64]store.Message{}
	for _, m := range list {
		byID[m.ID] = m
	}
	var branch []store.Message
	for id := conversation.Leaf; id != 0; id = byID[id].Parent {
		branch = append(branch, byID[id])
	}
	slices.Reverse(branch)
	if err := h.Live.WithFiles(c.Request().Context(), principal(c), c.Param("id"), branch); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", markdownLine(conversation.Title))
	for _, m := range branch {
		who := "You"
		if m.Author != "" {
			who = markdownLine(m.Author) + " (guest)"
		}
		if m.Role == store.RoleTool {
			who = "Result"
		}
		if m.Role == store.RoleAssistant {
			who = "Answer"
			if m.Answer != nil && m.Answer.Receipt.Model != "" {
				who = markdownLine(m.Answer.Receipt.Model)
			}
		}
		fmt.Fprintf(&text, "\n## %s\n", who)
		if reasoning := strings.TrimSpace(m.Reasoning); reasoning != "" {
			fmt.Fprintf(&text, "\n> %s\n", strings.ReplaceAll(reasoning, "\n", "\n> "))
		}
		for i, p := range m.Pictures {
			fmt.Fprintf(&text, "\n![Picture %d](data:%s;base64,%s)\n", i+1, p.Type, base64.StdEncoding.EncodeToString(p.Data))
		}
		called := m.Answer != nil && m.Answer.Call != nil
		if said := strings.TrimSpace(m.Text); said != "" || !called && len(m.Pictures) == 0 {
			fmt.Fprintf(&text, "\n%s\n", said)
		}
		if called {
			fmt.Fprintf(&text, "\nCalls %s:\n\n```json\n%s\n```\n", markdownLine(m.Answer.Call.Name), m.Answer.Call.Arguments)
		}
	}
	attach(c, conversation.Title, "md")
	return c.Blob(http.StatusOK, "text/markdown; charset=utf-8", []byte(text.String()))
}

// markdownLine returns a name in one line, with the characters escaped that have a meaning in
// Markdown.
func markdownLine(name string) string {
	var out strings.Builder
	for _, r := range strings.Join(strings.Fields(name), " ") {
		if strings.ContainsRune("\\`*_[]<>#&~|$", r) {
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	return out.String()
}

// attach makes browsers save the response as a file named after title.
func attach(c echo.Context, title, ending string) {
	c.Response().Header().Set(echo.HeaderContentDisposition, mime.FormatMediaType("attachment", map[string]string{"filename": FileName(title) + "." + ending}))
}

// FileName returns title without the characters that file systems forbid.
func FileName(title string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '-'
		}
		return r
	}, title)
}

// importChat answers POST /import. The file is the body, or the field "file" of a form: an exported chat, or chats that
// another program exported. Scripts get the id, title and number of messages of the new chat as JSON, and what foreign.go adds.
func (h *Handlers) importChat(c echo.Context) error {
	file, err := importedFile(c)
	if err != nil {
		return err
	}
	received, err := h.imports.receive(file)
	if err != nil {
		return discardRest(c, err)
	}
	defer received.Close()
	if done, err := h.importForeign(c, received); done || err != nil {
		return err
	}
	in := newExportReader(received)
	chat, err := h.Live.Import(c.Request().Context(), principal(c), in.messages, in.about)
	if err != nil {
		return discardRest(c, err)
	}
	if httpio.WantsJSON(c.Request()) {
		return c.JSON(http.StatusCreated, map[string]any{"chat": chat.ID, "title": chat.Title, "messages": in.count})
	}
	return c.Redirect(http.StatusSeeOther, "/c/"+chat.ID)
}

// discardRest reads the rest of a body and returns err. Clients that read the response only
// after they have sent everything would otherwise not see err.
func discardRest(c echo.Context, err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		_, _ = io.Copy(io.Discard, c.Request().Body)
	}
	return err
}

// importedFile returns a reader of the file that a request sends.
func importedFile(c echo.Context) (io.Reader, error) {
	kind, _, _ := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if kind != echo.MIMEMultipartForm {
		return c.Request().Body, nil
	}
	form, err := c.Request().MultipartReader()
	for err == nil {
		var part *multipart.Part
		if part, err = form.NextPart(); err == nil && part.FormName() == "file" {
			return part, nil
		}
	}
	return nil, fault.Invalid("file", "the form has no file: %v", err)
}

// maxExportValue is the largest message in a file, in bytes, with the probabilities of its
// tokens, and its pictures.
const maxExportValue = 64 << 20

// exportReader decodes an exported chat one message at a time.
type exportReader struct {
	source  *readtext.JSONValues
	text    *bufio.Reader
	decoder *json.Decoder
	head    ExportedChat // without the messages
	count   int          // messages so far
}

func newExportReader(file io.Reader) *exportReader {
	r := &exportReader{source: readtext.NewJSONValues(file, errLongValue)}
	r.text = bufio.NewReader(r.source)
	r.decoder = json.NewDecoder(r.text)
	return r
}

var errLongValue = fault.Invalid("messages", "a message in the file is longer than %d MiB, which is what one can have with its tokens and pictures", maxExportValue>>20)

// messages yields the messages of the file. It ends with the first error, if any.
func (r *exportReader) messages(yield func(store.Message, error) bool) {
	ended := false
	err := r.read(func(m store.Message) bool {
		ended = !yield(m, nil)
		return !ended
	})
	if err != nil && !ended {
		yield(store.Message{}, err)
	}
}

// about returns the chat's metadata and its leaf. It is valid after all messages were read.
func (r *exportReader) about() (store.Metadata, int64, error) {
	return r.head.Metadata, r.head.Leaf, nil
}

// errEnough is returned by read when its caller wants no more messages.
var errEnough = errors.New("no more messages are wanted")

func (r *exportReader) read(take func(store.Message) bool) error {
	r.source.Allow(maxExportValue)
	if err := r.begin(); err != nil {
		return err
	}
	for r.decoder.More() {
		key, err := r.decoder.Token()
		if err != nil {
			return r.broken(err)
		}
		if name, _ := key.(string); name == "messages" {
			err = r.readMessages(take)
		} else {
			err = r.readField(name)
		}
		if err != nil {
			return err
		}
	}
	if _, err := r.decoder.Token(); err != nil {
		return r.broken(err)
	}
	if _, err := r.decoder.Token(); err != io.EOF {
		return fault.Invalid("file", "the file does not end after the chat: %s", pleaseExport)
	}
	if r.head.Format == "" {
		return errNoChat
	}
	if r.count == 0 {
		return fault.Invalid("messages", "the file has no messages")
	}
	return nil
}

const pleaseExport = "export a chat as JSON from its menu, and import that file; of other programs, the exports of ChatGPT, Open WebUI, llama-server and LM Studio can be imported"

var (
	errNotJSON = fault.Invalid("file", "the file is not JSON: %s", pleaseExport)
	errNoChat  = fault.Invalid("format", "the file is JSON, but not a chat of this program: %s", pleaseExport)
)

// begin reads up to the first field. Its errors are for people who chose a file that is not an
// export at all, so they do not speak of JSON syntax.
func (r *exportReader) begin() error {
	for {
		c, _, err := r.text.ReadRune()
		switch {
		case err == io.EOF:
			return fault.Invalid("file", "the file is empty: %s", pleaseExport)
		case err != nil:
			return err
		case strings.ContainsRune("\ufeff \t\r\n", c):
			continue
		case c == '[':
			return fault.Invalid("file", "the file holds a list, not a chat of this program: %s", pleaseExport)
		case c != '{':
			return errNotJSON
		}
		if err := r.text.UnreadRune(); err != nil {
			return err
		}
		_, err = r.decoder.Token()
		return err
	}
}

// broken returns the error for a person of an error of the JSON decoder.
func (r *exportReader) broken(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fault.Invalid("file", "the file ends too early, in message %d: it may be truncated", r.count+1)
	case errors.Is(err, readtext.ErrSpace):
		return fault.Invalid("file", "the file cannot be read: %v", err)
	case errors.As(err, &syntax):
		return fault.Invalid("file", "the file is not valid JSON near byte %d: %v", r.decoder.InputOffset(), err)
	}
	return err
}

// value decodes the next value of the file into dst. name is its path, for errors.
func (r *exportReader) value(name string, dst any) error {
	r.source.Allow(maxExportValue)
	var raw json.RawMessage
	if err := r.decoder.Decode(&raw); err != nil {
		return r.broken(err)
	}
	if !utf8.Valid(raw) {
		return errNotJSON
	}
	return errors.Join(httpio.CheckDepth(raw), httpio.DecodeJSON(raw, name, dst))
}

func (r *exportReader) readField(name string) error {
	switch name {
	case "format":
		if err := r.value(name, &r.head.Format); err != nil {
			return err
		}
		if r.head.Format != ExportFormat {
			return fault.Invalid("format", "format is %q, but this program reads %q", httpio.Shorten(r.head.Format), ExportFormat)
		}
		return nil
	case "leaf":
		return r.value(name, &r.head.Leaf)
	}
	var value json.RawMessage
	if err := r.value(name, &value); err != nil {
		return err
	}
	field, err := json.Marshal(map[string]json.RawMessage{name: value})
	return errors.Join(err, httpio.DecodeJSON(field, "", &r.head.Metadata))
}

func (r *exportReader) readMessages(take func(store.Message) bool) error {
	if r.head.Format == "" || r.count > 0 {
		return errNoChat
	}
	r.source.Allow(maxExportValue)
	if begin, err := r.decoder.Token(); err != nil {
		return r.broken(err)
	} else if begin != json.Delim('[') {
		return fault.Invalid("messages", "messages must be an array")
	}
	for r.decoder.More() {
		var m exportedMessage
		name := fmt.Sprintf("messages[%d]", r.count)
		if err := r.value(name, &m); err != nil {
			return err
		}
		if err := m.check(name); err != nil {
			return err
		}
		r.count++
		message, err := importMessage(m, name, r.head.Raw)
		if err != nil {
			return err
		}
		if !take(message) {
			return errEnough
		}
	}
	_, err := r.decoder.Token()
	if err != nil {
		return r.broken(err)
	}
	return nil
}

// check returns an error if a field of the message, whose path is name, is invalid. The store
// checks how the messages are connected.
func (m *exportedMessage) check(name string) error {
	states := []store.State{store.Done, store.Running, store.Stopped, store.Failed, store.Interrupted}
	switch {
	case m.ID < 1:
		return fault.Invalid(name+".id", "%s.id is %d, but must be positive", name, m.ID)
	case m.Role != store.RoleUser && m.Role != store.RoleAssistant && m.Role != store.RoleTool:
		return fault.Invalid(name+".role", "%s.role is %q, but must be user, assistant or tool", name, m.Role)
	case !slices.Contains(states, m.State), m.Role != store.RoleAssistant && m.State != store.Done:
		return fault.Invalid(name+".state", "%s.state is %q, which is not a state of such a message", name, m.State)
	case m.Role != store.RoleUser && m.Author != "", !guest.IsName(m.Author):
		return fault.Invalid(name+".author", "%s.author is %q, which is not the name of the writer of a message", name, httpio.Shorten(m.Author))
	case m.Role != store.RoleUser && len(m.Pictures) > 0:
		return fault.Invalid(name+".pictures", "%s.pictures must be missing, because the role is %s", name, m.Role)
	case len(m.Pictures) > attached.MaxPictures:
		return fault.Invalid(name+".pictures", "%s has %d pictures, and at most %d fit", name, len(m.Pictures), attached.MaxPictures)
	case m.Role != store.RoleAssistant && m.Answer != nil:
		return fault.Invalid(name+".answer", "%s.answer must be missing, because the role is %s", name, m.Role)
	case m.At.UTC().Year() < 1 || m.At.UTC().Year() > 9999:
		return fault.Invalid(name+".at", "%s.at is not in the years 1 to 9999 of UTC", name)
	}
	return nil
}

func exportMessage(m store.Message) exportedMessage {
	out := exportedMessage{ID: m.ID, Parent: m.Parent, Role: m.Role, State: m.State, Author: m.Author, Text: m.Text, At: m.Created}
	if m.Answer != nil {
		answer := m.Answer.JSON()
		out.Answer = &answer
	}
	if m.Role == store.RoleAssistant {
		out.Reasoning = &m.Reasoning
	}
	for _, p := range m.Pictures {
		out.Pictures = append(out.Pictures, exportedPicture{p.Type, p.Data, p.Detail})
	}
	return out
}

func importMessage(m exportedMessage, name string, raw bool) (store.Message, error) {
	out := store.Message{ID: m.ID, Parent: m.Parent, Role: m.Role, State: m.State, Author: m.Author, Text: m.Text, Created: m.At}
	if m.Answer != nil {
		answer := m.Answer.Answer()
		out.Answer = &answer
	}
	for i, p := range m.Pictures {
		read, err := attached.Read(p.Data)
		if err != nil {
			return out, fault.Invalid(fmt.Sprintf("%s.pictures[%d]", name, i), "%s.pictures[%d]: %s", name, i, err)
		}
		if read.Detail = p.Detail; !chat.Detail(p.Detail).IsKnown() {
			return out, fault.Invalid(fmt.Sprintf("%s.pictures[%d].detail", name, i), "%s.pictures[%d].detail must be low, medium or missing, not %q", name, i, httpio.Shorten(p.Detail))
		}
		out.Pictures = append(out.Pictures, read)
	}
	switch {
	case m.Role != store.RoleAssistant:
	case m.Reasoning != nil:
		out.Reasoning = *m.Reasoning
	case !raw:
		if a := out.Answer; a != nil && a.Prefix > 0 {
			reasoning, text := splitReasoning(m.Text[:min(a.Prefix, len(m.Text))])
			a.ReasoningPrefix, a.Prefix = len(reasoning), len(text)
		}
		out.Reasoning, out.Text = splitReasoning(m.Text)
	}
	return out, nil
}

var escapedTag = regexp.MustCompile(`<\\(\\{0,8}/think>)`)

// splitReasoning separates reasoning and text of an answer from an older file, which has no
// field for the reasoning.
func splitReasoning(whole string) (reasoning, text string) {
	rest, found := strings.CutPrefix(whole, "<think>")
	if !found {
		return "", whole
	}
	reasoning, text, ended := strings.Cut(strings.TrimPrefix(rest, "\n"), "</think>")
	if ended {
		reasoning, text = strings.TrimSuffix(reasoning, "\n"), strings.TrimPrefix(text, "\n\n")
	}
	return escapedTag.ReplaceAllString(reasoning, "<$1"), text
}
