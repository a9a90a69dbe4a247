// Package chat renders conversations with the chat templates of model files.
//
// A prompt records which of its text came from the caller: message content, tool
// definitions, any value of the request. That text is data: a special token spelled in it
// must be tokenized as text.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"m40-llm/infer/jinja"
)

// Template is a parsed chat template. It is safe for concurrent use.
type Template struct{ *jinja.Template }

// Parse parses the source of a template. Its errors are *jinja.SyntaxError and *jinja.LimitError.
func Parse(source string) (*Template, error) {
	t, err := jinja.Parse(source)
	if err != nil {
		return nil, err
	}
	return &Template{t}, nil
}

// Where the caller's text came from: besides the origins of the interpreter, so that it can be found in the prompt.
const (
	fromContinued = jinja.FromCaller + 1 + iota // the text that Input.Continue continues
	fromMessages                                // the first of those that origins.next returns
)

// origins are the origins of what the messages of a conversation say.
type origins struct {
	last     jinja.Origin
	messages []messageOrigins
}

// messageOrigins are the origins of the content of a message, and of the names and arguments of its calls as far as
// they have text.
type messageOrigins struct {
	content jinja.Origin
	calls   []jinja.Origin
}

func newOrigins() *origins { return &origins{last: fromMessages - 1} }

// next returns an origin that no other text has.
func (o *origins) next() jinja.Origin {
	o.last++
	return o.last
}

// ChatML is the template that is used for models whose file has none.
var ChatML = builtin(ChatMLSource)

// ChatMLSource is the source of ChatML.
const ChatMLSource = `{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' }}
{%- if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for part in message.content or [] -%}{{ part.text }}{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}`

func builtin(source string) *Template {
	t, err := Parse(source)
	if err != nil {
		panic(err)
	}
	return t
}

// Span is a piece of a prompt. Content is true if the text came from the caller.
type Span struct {
	Text    string
	Content bool
}

// Prompt is a rendered conversation. Neighbouring spans differ in Content. It must be
// tokenized as one text, in which a special token is recognised only if all of it lies in
// one span without Content.
type Prompt []Span

// String returns the text of all spans.
func (p Prompt) String() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteString(s.Text)
	}
	return b.String()
}

// Input is a conversation to render.
type Input struct {
	Messages            []Message
	Tools               json.RawMessage // array of tool definitions; empty: none
	AddGenerationPrompt bool            // end with the header of an assistant's message

	// Continue ends the prompt right after the content of the last message, which must be
	// the assistant's, so that the model continues it. Without content, its reasoning is
	// continued; without either, a new assistant's message is opened. AddGenerationPrompt is
	// ignored. Render fails with ErrNotContinued if the template leaves that text out or
	// changes more of it than the white space around it.
	Continue bool

	Reasoning ReasoningForm // how templates receive ReasoningContent

	// Picture is what marks a picture in the text of a message, for templates that take no lists of texts and pictures: a text
	// of the template. Empty: messages with pictures are such lists.
	Picture string

	// NullContent sets the content of messages with tool calls and no content to null
	// instead of the empty string, for templates that require it.
	NullContent bool

	Vars     map[string]json.RawMessage // further variables of the template
	BOSToken string                     // counts as the template's text, like EOSToken
	EOSToken string
	Now      time.Time // for strftime_now; zero: the time of the call
}

// Render renders a conversation. It returns a *jinja.RaisedError if the template refuses the
// conversation, a *jinja.RenderError if the template fails, a *jinja.LimitError beyond a limit, the
// error of ctx, or an error that names the value in Input that is not JSON.
func (t *Template) Render(ctx context.Context, in Input) (Prompt, error) {
	prompt, _, err := t.RenderShown(ctx, in)
	return prompt, err
}

// Shown is what a prompt shows of a message. White space does not count.
type Shown struct {
	Content bool // some of its content
	Calls   bool // of each of its calls the name and some of the arguments, as far as they have text
}

// RenderShown is Render, and returns what the prompt shows of each message. The content of the message that Input.Continue
// continues counts as not shown. A template that mixes the texts of several messages inseparably may hide that one is shown.
func (t *Template) RenderShown(ctx context.Context, in Input) (Prompt, []Shown, error) {
	from := newOrigins()
	out, err := t.renderInput(ctx, in, from, jinja.Limits{})
	if err != nil {
		return nil, nil, err
	}
	return promptOf(out), from.shownIn(out), nil
}

// renderInput renders a conversation, and adds the origins of its messages to from.
func (t *Template) renderInput(ctx context.Context, in Input, from *origins, l jinja.Limits) (jinja.Text, error) {
	vars := jinja.NewDict()
	vars.Set("tools", nil)
	vars.Set("documents", nil)
	for name, raw := range in.Vars {
		if err := setJSON(vars, name, raw); err != nil {
			return jinja.Text{}, err
		}
	}
	if len(in.Tools) > 0 {
		if err := setJSON(vars, "tools", in.Tools); err != nil {
			return jinja.Text{}, err
		}
	}
	messages := &jinja.List{}
	for i, m := range in.Messages {
		v, err := m.value(from, in)
		if err != nil {
			return jinja.Text{}, fmt.Errorf("message %d: %w", i, err)
		}
		messages.Items = append(messages.Items, v)
	}
	vars.Set("messages", messages)
	vars.Set("add_generation_prompt", in.AddGenerationPrompt)
	vars.Set("bos_token", jinja.Literal(in.BOSToken))
	vars.Set("eos_token", jinja.Literal(in.EOSToken))
	return t.render(ctx, vars, in.Continue, jinja.Options{Now: in.Now, Limits: l})
}

// Options are the parameters of RenderJSON apart from the request.
type Options struct {
	BOSToken, EOSToken string    // variables, unless the request sets them
	Continue           bool      // as in Input
	Now                time.Time // as in Input
}

// RenderJSON renders a request: a JSON object whose keys, messages among them, become the
// variables of the template. The order of keys is kept, and 1 differs from 1.0. Its errors
// are those of Render.
func (t *Template) RenderJSON(ctx context.Context, request []byte, o Options) (Prompt, error) {
	return t.renderJSON(ctx, request, o, jinja.Limits{})
}

func (t *Template) renderJSON(ctx context.Context, request []byte, o Options, l jinja.Limits) (Prompt, error) {
	v, err := jinja.DecodeJSON(request)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the JSON is truncated")
		}
		return nil, fmt.Errorf("template request: %w", err)
	}
	given, ok := v.(*jinja.Dict)
	if !ok {
		return nil, fmt.Errorf("template request: expected a JSON object, got %s", jinja.TypeName(v))
	}
	vars := jinja.NewDict()
	vars.Set("bos_token", jinja.Literal(o.BOSToken))
	vars.Set("eos_token", jinja.Literal(o.EOSToken))
	vars.Update(given)
	out, err := t.render(ctx, vars, o.Continue, jinja.Options{Now: o.Now, Limits: l})
	return promptOf(out), err
}

func setJSON(vars *jinja.Dict, name string, raw json.RawMessage) error {
	v, err := jinja.DecodeJSON(raw)
	if err != nil {
		return fmt.Errorf("template variable %q: %w", name, err)
	}
	vars.Set(name, v)
	return nil
}

// value returns the message as templates see it, and adds the origins of its texts to from.
func (m Message) value(from *origins, in Input) (jinja.Value, error) {
	own := messageOrigins{content: from.next()}
	d := jinja.NewDict()
	d.Set("role", callerText(m.Role))
	d.Set("content", jinja.Marked(validText(m.Content), own.content))
	switch {
	case len(m.Pictures) > 0 && in.Picture != "":
		d.Set("content", m.textWith(in.Picture, own.content))
	case len(m.Pictures) > 0:
		d.Set("content", m.parts(own.content))
	}
	if in.NullContent && m.Content == "" && len(m.ToolCalls) > 0 {
		d.Set("content", nil)
	}
	for _, f := range []struct{ name, s string }{
		{"name", m.Name},
		{"tool_call_id", m.ToolCallID},
	} {
		if f.s != "" {
			d.Set(f.name, callerText(f.s))
		}
	}
	in.Reasoning.addTo(d, m, own.content)
	if len(m.ToolCalls) > 0 {
		if err := setJSON(d, "tool_calls", m.ToolCalls); err != nil {
			return nil, err
		}
		own.calls = markCalls(d, from)
	}
	from.messages = append(from.messages, own)
	return d, nil
}

// markCalls gives the name and the arguments of each call of a message an origin, and returns the origins of those that
// have text.
func markCalls(message *jinja.Dict, from *origins) (marked []jinja.Origin) {
	v, _ := message.Get("tool_calls")
	calls, _ := v.(*jinja.List)
	if calls == nil {
		return nil
	}
	for _, c := range calls.Items {
		call, _ := c.(*jinja.Dict)
		if call == nil {
			continue
		}
		v, _ := call.Get("function")
		function, _ := v.(*jinja.Dict)
		if function == nil {
			continue
		}
		for _, name := range []string{"name", "arguments"} {
			value, ok := function.Get(name)
			if !ok {
				continue
			}
			origin := from.next()
			value, hasText := jinja.WithOrigin(value, origin)
			if hasText {
				function.Set(name, value)
				marked = append(marked, origin)
			}
		}
	}
	return marked
}

func callerText(s string) jinja.Text { return jinja.Marked(validText(s), jinja.FromCaller) }

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (t *Template) render(ctx context.Context, vars *jinja.Dict, resume bool, o jinja.Options) (jinja.Text, error) {
	var continued string
	if resume {
		var err error
		if continued, err = markContinued(vars); err != nil {
			return jinja.Text{}, err
		}
	}
	trustRoles(vars)
	out, err := t.Template.Render(ctx, vars, o)
	if err == nil && continued != "" {
		return truncateAfterContinued(out, continued)
	}
	return out, err
}

// knownRoles are the roles that count as the template's text where a template prints them.
// Some templates build special tokens from the role, as in '<|' + message.role + '|>', and
// a caller must not be able to build other tokens that way.
var knownRoles = []string{"system", "developer", "user", "assistant", "model", "tool", "function", "ipython", "observation", "environment", "context", "documents"}

// trustRoles gives the known roles of the messages the origin of the template.
func trustRoles(vars *jinja.Dict) {
	v, _ := vars.Get("messages")
	messages, ok := v.(*jinja.List)
	if !ok {
		return
	}
	for _, m := range messages.Items {
		d, ok := m.(*jinja.Dict)
		if !ok {
			continue
		}
		if role, ok := d.Get("role"); ok && slices.Contains(knownRoles, keyString(role)) {
			d.Set("role", jinja.Literal(keyString(role)))
		}
	}
}

// promptOf returns the spans of a rendered text.
func promptOf(out jinja.Text) Prompt {
	var p Prompt
	for piece, from := range out.Pieces {
		content := from != jinja.FromTemplate
		if n := len(p); n > 0 && p[n-1].Content == content {
			p[n-1].Text += piece
		} else {
			p = append(p, Span{piece, content})
		}
	}
	return p
}

// shownIn returns what out shows of each message.
func (o *origins) shownIn(out jinja.Text) []Shown {
	found := make([]bool, o.last-fromMessages+1)
	for piece, from := range out.Pieces {
		if i := int(from - fromMessages); i >= 0 && !found[i] {
			found[i] = strings.TrimFunc(piece, jinja.IsSpace) != ""
		}
	}
	isMissing := func(origin jinja.Origin) bool { return !found[origin-fromMessages] }
	shown := make([]Shown, len(o.messages))
	for i, m := range o.messages {
		shown[i] = Shown{Content: !isMissing(m.content), Calls: !slices.ContainsFunc(m.calls, isMissing)}
	}
	return shown
}

var errNotContinuable = errors.New("only an assistant's message at the end of the conversation can be continued")

// markContinued marks the text to continue in the last message, so that it can be found in
// the prompt, and returns it. If there is no such text it removes the message, requests the
// generation prompt and returns "".
func markContinued(vars *jinja.Dict) (string, error) {
	v, _ := vars.Get("messages")
	messages, ok := v.(*jinja.List)
	if !ok || len(messages.Items) == 0 {
		return "", errNotContinuable
	}
	n := len(messages.Items) - 1
	last, ok := messages.Items[n].(*jinja.Dict)
	if !ok {
		return "", errNotContinuable
	}
	if role, _ := last.Get("role"); keyString(role) != "assistant" {
		return "", errNotContinuable
	}
	before := messages.Items[:n:n]
	for _, key := range append([]string{"content"}, ReasoningFields...) {
		v, _ := last.Get(key)
		continued, marked := markLastText(v)
		if strings.TrimFunc(continued, jinja.IsSpace) == "" {
			continue
		}
		resumed := last.Clone()
		resumed.Set(key, marked)
		vars.Set("messages", &jinja.List{Items: append(before, resumed)})
		vars.Set("add_generation_prompt", false)
		return continued, nil
	}
	vars.Set("messages", &jinja.List{Items: before})
	vars.Set("add_generation_prompt", true)
	return "", nil
}

func keyString(v jinja.Value) string {
	t, _ := v.(jinja.Text)
	return t.String()
}

// markLastText marks content: a text, or in a list of parts the last one that has text. It
// returns that text and the content with the mark.
func markLastText(v jinja.Value) (continued string, withMark jinja.Value) {
	switch v := v.(type) {
	case jinja.Text:
		return v.String(), jinja.Marked(v.String(), fromContinued)
	case *jinja.List:
		for i := len(v.Items) - 1; i >= 0; i-- {
			part, ok := v.Items[i].(*jinja.Dict)
			if !ok {
				continue
			}
			key := "text"
			t, ok := part.Get(key)
			if !ok {
				key = "thinking"
				t, ok = part.Get(key)
			}
			if !ok {
				continue
			}
			resumed := part.Clone()
			resumed.Set(key, jinja.Marked(keyString(t), fromContinued))
			items := append(append([]jinja.Value{}, v.Items[:i]...), resumed)
			return keyString(t), &jinja.List{Items: append(items, v.Items[i+1:]...)}
		}
	}
	return "", v
}

// ErrNotContinued is returned if the template does not print the message to continue as it is.
var ErrNotContinued = errors.New("the chat template leaves out or changes the message to be continued: send it as a new turn instead")

// truncateAfterContinued truncates the prompt where the marked text ends. White space that
// the template trimmed off the end of that text is restored, because the model has emitted it.
func truncateAfterContinued(out jinja.Text, continued string) (jinja.Text, error) {
	found, end := "", 0 // the last piece with the mark, and where it ends
	at := 0
	for piece, from := range out.Pieces {
		at += len(piece)
		if text := strings.TrimFunc(piece, jinja.IsSpace); from == fromContinued && text != "" {
			found, end = text, at-len(piece)+strings.LastIndex(piece, text)+len(text)
		}
	}
	whole := strings.TrimRightFunc(continued, jinja.IsSpace)
	if found == "" || !strings.HasSuffix(whole, found) {
		return jinja.Text{}, ErrNotContinued
	}
	return out.Slice(0, end).Append(continued[len(whole):], fromContinued), nil
}
