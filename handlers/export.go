package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"m40-llm/infer/reply"
	"m40-llm/store"
	"m40-llm/web"
)

// exportFormat names the files of GET /c/:id/export.json, which POST /import takes.
const exportFormat = "m40-llm-chat-1"

// exportedChat is a whole chat: every branch, and how each answer was made.
type exportedChat struct {
	Format   string            `json:"format"`
	Title    string            `json:"title"`
	Model    string            `json:"model,omitempty"` // that answers next
	Raw      bool              `json:"raw,omitempty"`   // the texts go to the model as they are
	Leaf     int64             `json:"leaf"`            // message that is shown last
	Messages []exportedMessage `json:"messages"`
}

// exportedMessage has an id of its own in the file; a parent comes before its children.
type exportedMessage struct {
	ID     int64           `json:"id"`
	Parent int64           `json:"parent,omitempty"`
	Role   store.Role      `json:"role"`
	State  store.State     `json:"state"`
	Text   string          `json:"text"`
	At     time.Time       `json:"at"`
	Answer *exportedAnswer `json:"answer,omitempty"`
}

type exportedAnswer struct {
	Settings         json.RawMessage `json:"settings"`
	System           string          `json:"system,omitempty"`
	Model            string          `json:"model"`
	ModelHash        string          `json:"model_hash,omitempty"`
	TemplateHash     string          `json:"template_hash,omitempty"`
	Engine           string          `json:"engine,omitempty"`
	Device           string          `json:"device"`
	Path             string          `json:"path,omitempty"`
	CacheType        string          `json:"cache_type,omitempty"`
	Chain            json.RawMessage `json:"chain,omitempty"`
	Seed             int64           `json:"seed"`
	Context          int             `json:"context"`
	PromptTokens     int             `json:"prompt_tokens"`
	CachedTokens     int             `json:"cached_tokens"`
	CompletionTokens int             `json:"completion_tokens"`
	Timings          exportedTimings `json:"timings"`
	Reason           string          `json:"reason,omitempty"`
	ContextFull      bool            `json:"context_full,omitempty"`
	StopString       string          `json:"stop_string,omitempty"`
	EndProb          float64         `json:"end_prob,omitempty"`
	Error            json.RawMessage `json:"error,omitempty"`
	Begun            int             `json:"begun,omitempty"` // bytes of the text that a person wrote
	Tokens           []int32         `json:"tokens,omitempty"`
}

type exportedTimings struct {
	Queue   int64 `json:"queue_us"`
	Load    int64 `json:"load_us"`
	Prefill int64 `json:"prefill_us"`
	Decode  int64 `json:"decode_us"`
	First   int64 `json:"first_us"`
}

// exportJSON answers GET /c/:id/export.json.
func (h *Handlers) exportJSON(c echo.Context) error {
	conversation, list, err := h.Live.Tree(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	out := exportedChat{Format: exportFormat, Title: conversation.Title, Model: conversation.Model, Raw: conversation.Raw, Leaf: conversation.Leaf, Messages: []exportedMessage{}}
	for _, m := range list {
		out.Messages = append(out.Messages, exportMessage(m))
	}
	attach(c, conversation.Title, "json")
	return c.JSONPretty(http.StatusOK, out, "  ")
}

// exportMarkdown answers GET /c/:id/export.md with the branch that is shown.
func (h *Handlers) exportMarkdown(c echo.Context) error {
	conversation, list, err := h.Live.Tree(c.Request().Context(), c.Param("id"))
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
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", markdownLine(conversation.Title))
	for _, m := range branch {
		who := "You"
		if m.Role == store.RoleAssistant {
			who = "Answer"
			if m.Answer != nil && m.Answer.Model != "" {
				who = markdownLine(web.DisplayName(m.Answer.Model))
			}
		}
		fmt.Fprintf(&text, "\n## %s\n", who)
		said := m.Text
		if m.Role == store.RoleAssistant {
			var thought string
			if thought, said, _ = reply.SplitThought(m.Text); strings.TrimSpace(thought) != "" {
				fmt.Fprintf(&text, "\n> %s\n", strings.ReplaceAll(strings.TrimSpace(thought), "\n", "\n> "))
			}
		}
		fmt.Fprintf(&text, "\n%s\n", strings.TrimSpace(said))
	}
	attach(c, conversation.Title, "md")
	return c.Blob(http.StatusOK, "text/markdown; charset=utf-8", []byte(text.String()))
}

// markdownLine writes a name such that Markdown shows it and finds no meaning in it.
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

// attach makes a response a file to be saved.
func attach(c echo.Context, title, ending string) {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '-'
		}
		return r
	}, title)
	c.Response().Header().Set(echo.HeaderContentDisposition, mime.FormatMediaType("attachment", map[string]string{"filename": name + "." + ending}))
}

// importChat answers POST /import with the file as the body, or in a form as "file".
// Scripts are told what was imported.
func (h *Handlers) importChat(c echo.Context) error {
	data, err := importedFile(c)
	if err != nil {
		return err
	}
	var in exportedChat
	if err := errors.Join(checkDepth(data), decodeExport(data, &in)); err != nil {
		return err
	}
	list, err := in.messages()
	if err != nil {
		return err
	}
	id, err := h.Live.Import(c.Request().Context(), store.NewConversation{Title: in.Title, Model: in.Model, Raw: in.Raw}, list, in.Leaf)
	if err != nil {
		return err
	}
	if wantsJSON(c.Request()) {
		return c.JSON(http.StatusCreated, map[string]any{"chat": id, "title": in.Title, "messages": len(list)})
	}
	return c.Redirect(http.StatusSeeOther, "/c/"+id)
}

// importedFile reads what was sent.
func importedFile(c echo.Context) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if kind != echo.MIMEMultipartForm {
		return io.ReadAll(c.Request().Body)
	}
	header, err := c.FormFile("file")
	if err != nil {
		return nil, invalidf("file", "the form has no file: %v", err)
	}
	file, err := header.Open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// decodeExport decodes a file; what is wrong with one that is no export at all is said
// without the words of JSON.
func decodeExport(data []byte, in *exportedChat) error {
	const export = "export a chat as JSON from its menu, and import that file"
	trimmed := bytes.TrimLeft(data, "\ufeff \t\r\n")
	switch {
	case len(trimmed) == 0:
		return invalidf("file", "the file is empty: %s", export)
	case !bytes.ContainsRune([]byte("{["), rune(trimmed[0])), !utf8.Valid(data):
		return invalidf("file", "the file is not JSON: %s", export)
	case trimmed[0] == '[':
		return invalidf("file", "the file holds a list, not a chat of this program: %s", export)
	}
	if err := decodeJSON(trimmed, "", in); err != nil {
		return err
	}
	if in.Format == "" {
		return invalidf("format", "the file is JSON, but not a chat of this program: %s", export)
	}
	return nil
}

// messages checks what a file says of the tree; the store checks the rest.
func (e *exportedChat) messages() ([]store.Message, error) {
	if e.Format != exportFormat {
		return nil, invalidf("format", "format is %q, but this program reads %q", e.Format, exportFormat)
	}
	if len(e.Messages) == 0 {
		return nil, invalidf("messages", "there are no messages in the file")
	}
	states := []store.State{store.Done, store.Running, store.Stopped, store.Failed, store.Interrupted}
	var list []store.Message
	for i, m := range e.Messages {
		name := fmt.Sprintf("messages[%d]", i)
		switch {
		case m.ID < 1:
			return nil, invalidf(name+".id", "%s.id is %d, but must be positive", name, m.ID)
		case m.Role != store.RoleUser && m.Role != store.RoleAssistant:
			return nil, invalidf(name+".role", "%s.role is %q, but must be user or assistant", name, m.Role)
		case !slices.Contains(states, m.State), m.Role == store.RoleUser && m.State != store.Done:
			return nil, invalidf(name+".state", "%s.state is %q, which no such message has", name, m.State)
		case m.Role == store.RoleUser && m.Answer != nil:
			return nil, invalidf(name+".answer", "%s is a question and has an answer's figures", name)
		}
		list = append(list, importMessage(m))
	}
	return list, nil
}

func exportMessage(m store.Message) exportedMessage {
	out := exportedMessage{ID: m.ID, Parent: m.Parent, Role: m.Role, State: m.State, Text: m.Text, At: m.Created}
	if a := m.Answer; a != nil {
		out.Answer = &exportedAnswer{
			Settings: a.Settings, System: a.System, Model: a.Model, ModelHash: a.ModelHash, TemplateHash: a.TemplateHash,
			Engine: a.Engine, Device: a.Device, Path: a.Path, CacheType: a.CacheType, Chain: a.Chain, Seed: a.Seed, Context: a.Context,
			PromptTokens: a.PromptTokens, CachedTokens: a.CachedTokens, CompletionTokens: a.CompletionTokens,
			Timings: exportedTimings{
				Queue: a.Timings.Queue.Microseconds(), Load: a.Timings.Load.Microseconds(), Prefill: a.Timings.Prefill.Microseconds(),
				Decode: a.Timings.Decode.Microseconds(), First: a.Timings.First.Microseconds(),
			},
			Reason: a.Reason, ContextFull: a.ContextFull, StopString: a.StopString, EndProb: a.EndProb, Error: a.Error, Begun: a.Begun, Tokens: a.Tokens,
		}
	}
	return out
}

func importMessage(m exportedMessage) store.Message {
	out := store.Message{ID: m.ID, Parent: m.Parent, Role: m.Role, State: m.State, Text: m.Text, Created: m.At}
	if a := m.Answer; a != nil {
		us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
		out.Answer = &store.Answer{
			Settings: a.Settings, System: a.System, Model: a.Model, ModelHash: a.ModelHash, TemplateHash: a.TemplateHash,
			Engine: a.Engine, Device: a.Device, Path: a.Path, CacheType: a.CacheType, Chain: a.Chain, Seed: a.Seed, Context: a.Context,
			PromptTokens: a.PromptTokens, CachedTokens: a.CachedTokens, CompletionTokens: a.CompletionTokens,
			Timings: store.Timings{
				Queue: us(a.Timings.Queue), Load: us(a.Timings.Load), Prefill: us(a.Timings.Prefill),
				Decode: us(a.Timings.Decode), First: us(a.Timings.First),
			},
			Reason: a.Reason, ContextFull: a.ContextFull, StopString: a.StopString, EndProb: a.EndProb, Error: a.Error, Begun: a.Begun, Tokens: a.Tokens,
		}
	}
	return out
}
