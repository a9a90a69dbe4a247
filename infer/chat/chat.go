// Package chat renders conversations with the chat templates of model files: Jinja
// templates in the dialect of Hugging Face transformers, run by an interpreter in this
// package.
//
// A prompt records which of its text came from the caller: message content, tool
// definitions, any value of the request. That text is data: a special token spelled in it
// must be tokenized as text. The origin follows text through every operation of a
// template. A result that mixes both origins inseparably counts as the caller's.
//
// These parts of Jinja2 are left out on purpose: the filters urlize, pprint, xmlattr and
// random; the function lipsum; the tags block, autoescape and those that read other
// templates; Python's methods of numbers and those that return bytes or sets; complex
// numbers. Values that Python prints with an address are printed without it. Some mistakes
// that Jinja2 reports, such as a test named if, are accepted.
//
// Templates are not trusted. They see plain values only: no files, no imports, no
// attributes of Go objects. Their size, nesting, steps, memory, output and time are
// limited; beyond a limit, Parse and Render return a *LimitError.
package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Template is a parsed chat template. It is safe for concurrent use.
type Template struct {
	body []stmt
	uses map[string]bool // names of the request's variables that the template reads
	hash string
}

// Parse parses the source of a template. Its errors are *SyntaxError and *LimitError.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, overLimit("source", maxSource, "bytes")
	}
	if !utf8.ValidString(source) {
		return nil, &SyntaxError{1, "the template is not valid UTF-8"}
	}
	defer catch(&err)
	p := &parser{tokens: tokenize(source), localNames: map[string]int{}, uses: map[string]bool{}}
	body, _ := p.statements()
	sum := sha256.Sum256([]byte(source))
	return &Template{body, p.uses, hex.EncodeToString(sum[:])}, nil
}

// Hash returns the SHA-256 of the template's source in hexadecimal.
func (t *Template) Hash() string { return t.hash }

// Uses reports whether the template reads a variable of the request, such as tools
// or enable_thinking.
func (t *Template) Uses(variable string) bool { return t.uses[variable] }

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

	// NullContent sets the content of messages with tool calls and no content to null
	// instead of the empty string, for templates that require it.
	NullContent bool

	Vars     map[string]json.RawMessage // further variables of the template
	BOSToken string                     // counts as the template's text, like EOSToken
	EOSToken string
	Now      time.Time // for strftime_now; zero: the time of the call
}

// Render renders a conversation. It returns a *RaisedError if the template refuses the
// conversation, a *RenderError if the template fails, a *LimitError beyond a limit, the
// error of ctx, or an error that names the value in Input that is not JSON.
func (t *Template) Render(ctx context.Context, in Input) (Prompt, error) {
	prompt, _, err := t.RenderShown(ctx, in)
	return prompt, err
}

// RenderShown is Render, and returns for each message whether the prompt has some of its content.
// A template that mixes the texts of several messages inseparably may hide that one is shown.
func (t *Template) RenderShown(ctx context.Context, in Input) (Prompt, []bool, error) {
	out, err := t.renderInput(ctx, in, defaultLimits, threadCPUTime)
	if err != nil {
		return nil, nil, err
	}
	return out.prompt(), out.shown(len(in.Messages)), nil
}

func (t *Template) renderInput(ctx context.Context, in Input, l limits, clock func() time.Duration) (text, error) {
	vars := newDict()
	vars.setName("tools", nil)
	vars.setName("documents", nil)
	for name, raw := range in.Vars {
		if err := setJSON(vars, name, raw); err != nil {
			return text{}, err
		}
	}
	if len(in.Tools) > 0 {
		if err := setJSON(vars, "tools", in.Tools); err != nil {
			return text{}, err
		}
	}
	messages := &list{}
	for i, m := range in.Messages {
		v, err := m.value(i, in.NullContent, in.Reasoning)
		if err != nil {
			return text{}, fmt.Errorf("message %d: %w", i, err)
		}
		messages.items = append(messages.items, v)
	}
	vars.setName("messages", messages)
	vars.setName("add_generation_prompt", in.AddGenerationPrompt)
	vars.setName("bos_token", literal(in.BOSToken))
	vars.setName("eos_token", literal(in.EOSToken))
	return t.render(ctx, vars, in.Continue, in.Now, l, clock)
}

// Options are the parameters of RenderJSON beside the request.
type Options struct {
	BOSToken, EOSToken string    // variables, unless the request sets them
	Continue           bool      // as in Input
	Now                time.Time // as in Input
}

// RenderJSON renders a request: a JSON object whose keys, messages among them, become the
// variables of the template. The order of keys is kept, and 1 differs from 1.0. Its errors
// are those of Render.
func (t *Template) RenderJSON(ctx context.Context, request []byte, o Options) (Prompt, error) {
	return t.renderJSON(ctx, request, o, defaultLimits, threadCPUTime)
}

func (t *Template) renderJSON(ctx context.Context, request []byte, o Options, l limits, clock func() time.Duration) (Prompt, error) {
	v, err := decodeJSON(request)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the JSON is truncated")
		}
		return nil, fmt.Errorf("template request: %w", err)
	}
	given, ok := v.(*dict)
	if !ok {
		return nil, fmt.Errorf("template request: expected a JSON object, got %s", typeName(v))
	}
	vars := newDict()
	vars.setName("bos_token", literal(o.BOSToken))
	vars.setName("eos_token", literal(o.EOSToken))
	for i, k := range given.keys {
		vars.set(k, given.vals[i])
	}
	out, err := t.render(ctx, vars, o.Continue, o.Now, l, clock)
	return out.prompt(), err
}

func setJSON(vars *dict, name string, raw json.RawMessage) error {
	v, err := decodeJSON(raw)
	if err != nil {
		return fmt.Errorf("template variable %q: %w", name, err)
	}
	vars.setName(name, v)
	return nil
}

// value returns the message, number i of the conversation, as templates see it.
func (m Message) value(i int, nullContent bool, reasoning ReasoningForm) (value, error) {
	d := newDict()
	d.setName("role", callerText(m.Role))
	d.setName("content", marked(validText(m.Content), fromMessage(i)))
	if len(m.Pictures) > 0 {
		d.setName("content", m.parts(fromMessage(i)))
	}
	if nullContent && m.Content == "" && len(m.ToolCalls) > 0 {
		d.setName("content", nil)
	}
	for _, f := range []struct{ name, s string }{
		{"name", m.Name},
		{"tool_call_id", m.ToolCallID},
	} {
		if f.s != "" {
			d.setName(f.name, callerText(f.s))
		}
	}
	reasoning.addTo(d, m)
	if len(m.ToolCalls) > 0 {
		if err := setJSON(d, "tool_calls", m.ToolCalls); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func callerText(s string) text { return marked(validText(s), fromCaller) }

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (t *Template) render(ctx context.Context, vars *dict, resume bool, now time.Time, l limits, clock func() time.Duration) (text, error) {
	var continued string
	if resume {
		var err error
		if continued, err = markContinued(vars); err != nil {
			return text{}, err
		}
	}
	trustRoles(vars)
	if now.IsZero() {
		now = time.Now()
	}
	runtime.LockOSThread() // the clock counts the time of one thread
	defer runtime.UnlockOSThread()
	in := &interp{budget: newBudget(ctx, l, clock), now: now}
	out, err := in.run(t.body, vars)
	if err != nil {
		return text{}, err
	}
	if continued != "" {
		return truncateAfterContinued(out, continued)
	}
	return out, nil
}

// knownRoles are the roles that count as the template's text where a template prints them.
// Some templates build special tokens from the role, as in '<|' + message.role + '|>', and
// a caller must not be able to build other tokens that way.
var knownRoles = []string{"system", "developer", "user", "assistant", "model", "tool", "function", "ipython", "observation", "environment", "context", "documents"}

// trustRoles gives the known roles of the messages the origin of the template.
func trustRoles(vars *dict) {
	v, _ := vars.getName("messages")
	messages, ok := v.(*list)
	if !ok {
		return
	}
	for _, m := range messages.items {
		d, ok := m.(*dict)
		if !ok {
			continue
		}
		if role, ok := d.getName("role"); ok && slices.Contains(knownRoles, keyString(role)) {
			d.setName("role", literal(keyString(role)))
		}
	}
}

// prompt returns the spans of t.
func (t text) prompt() Prompt {
	var p Prompt
	t.runs(func(lo, hi int, from origin) bool {
		content := from != fromTemplate
		if n := len(p); n > 0 && p[n-1].Content == content {
			p[n-1].Text += t.s[lo:hi]
		} else {
			p = append(p, Span{t.s[lo:hi], content})
		}
		return true
	})
	return p
}

// shown returns, for each of n messages, whether t has some of its content that is not white space.
func (t text) shown(n int) []bool {
	shown := make([]bool, n)
	t.runs(func(lo, hi int, from origin) bool {
		if i := int(from - fromMessages); 0 <= i && i < n && !shown[i] {
			shown[i] = strings.TrimFunc(t.s[lo:hi], isSpace) != ""
		}
		return true
	})
	return shown
}

var errNotContinuable = errors.New("only an assistant's message at the end of the conversation can be continued")

// markContinued marks the text to continue in the last message, so that it can be found in
// the prompt, and returns it. If there is no such text it removes the message, requests the
// generation prompt and returns "".
func markContinued(vars *dict) (string, error) {
	v, _ := vars.getName("messages")
	messages, ok := v.(*list)
	if !ok || len(messages.items) == 0 {
		return "", errNotContinuable
	}
	n := len(messages.items) - 1
	last, ok := messages.items[n].(*dict)
	if !ok {
		return "", errNotContinuable
	}
	if role, _ := last.getName("role"); keyString(role) != "assistant" {
		return "", errNotContinuable
	}
	before := messages.items[:n:n]
	for _, key := range append([]string{"content"}, ReasoningFields...) {
		v, _ := last.getName(key)
		continued, marked := markLastText(v)
		if strings.TrimFunc(continued, isSpace) == "" {
			continue
		}
		resumed := newDict()
		for i, k := range last.keys {
			resumed.set(k, last.vals[i])
		}
		resumed.setName(key, marked)
		vars.setName("messages", &list{items: append(before, resumed)})
		vars.setName("add_generation_prompt", false)
		return continued, nil
	}
	vars.setName("messages", &list{items: before})
	vars.setName("add_generation_prompt", true)
	return "", nil
}

func keyString(v value) string {
	t, _ := v.(text)
	return t.s
}

// markLastText marks content: a text, or in a list of parts the last one that has text. It
// returns that text and the content with the mark.
func markLastText(v value) (continued string, withMark value) {
	switch v := v.(type) {
	case text:
		return v.s, marked(v.s, fromContinued)
	case *list:
		for i := len(v.items) - 1; i >= 0; i-- {
			part, ok := v.items[i].(*dict)
			if !ok {
				continue
			}
			key := "text"
			t, ok := part.getName(key)
			if !ok {
				key = "thinking"
				t, ok = part.getName(key)
			}
			if !ok {
				continue
			}
			resumed := newDict()
			for j, k := range part.keys {
				resumed.set(k, part.vals[j])
			}
			resumed.setName(key, marked(keyString(t), fromContinued))
			items := append(append([]value{}, v.items[:i]...), resumed)
			return keyString(t), &list{items: append(items, v.items[i+1:]...)}
		}
	}
	return "", v
}

// ErrNotContinued is returned if the template does not print the message to continue as it is.
var ErrNotContinued = errors.New("the chat template leaves out or changes the message to be continued: send it as a new turn instead")

// truncateAfterContinued truncates the prompt where the marked text ends. White space that
// the template trimmed off the end of that text is restored, because the model has emitted it.
func truncateAfterContinued(out text, continued string) (text, error) {
	for _, m := range slices.Backward(out.marks) {
		if m.from != fromContinued || strings.TrimFunc(out.s[m.lo:m.hi], isSpace) == "" {
			continue
		}
		found := strings.TrimFunc(out.s[m.lo:m.hi], isSpace)
		whole := strings.TrimRightFunc(continued, isSpace)
		if !strings.HasSuffix(whole, found) {
			break
		}
		end := m.lo + strings.LastIndex(out.s[m.lo:m.hi], found) + len(found)
		b := &builder{}
		b.text(out.slice(0, end))
		b.add(continued[len(whole):], fromContinued)
		return b.take(), nil
	}
	return text{}, ErrNotContinued
}
