// Package chat renders conversations with the chat templates of model files: Jinja
// templates in the dialect of Hugging Face transformers, run by an interpreter of
// our own.
//
// A prompt remembers which of its text came from the caller: message content, tool
// definitions, any value of the request. That text is data; special tokens spelled
// in it must stay text. The mark follows text through every operation of a template,
// and where a result cannot be told apart it counts as the caller's.
//
// Where it departs from Jinja2, it does so on purpose: of the filters, urlize, pprint,
// xmlattr and random are missing, of the functions lipsum, of the tags block, autoescape
// and all that read other templates, of Python's methods those of numbers and those that
// give bytes or sets; complex numbers are errors; what prints an address in Python prints
// none; and some mistakes that Jinja2 reports, such as a test named if, are let pass.
//
// Templates come from strangers. They see plain values only: no files, no imports,
// no attributes of the host's objects. Size, nesting, steps, memory, output and time
// are bounded; over a bound, Parse and Render return a *LimitError.
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

// Template is a parsed chat template. It can be rendered by several goroutines at
// once.
type Template struct {
	body []stmt
	uses map[string]bool
	hash string
}

// Parse reads a template. Its errors are *SyntaxError and *LimitError.
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

// ChatML is the template for models whose file has none.
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

// Span is a piece of a prompt. Content is true for text from the caller.
type Span struct {
	Text    string
	Content bool
}

// Prompt is the rendered conversation. Neighbouring spans differ in Content. It is
// to be tokenised as one text in which a special token counts only where all of it
// lies in one span without Content.
type Prompt []Span

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
	AddGenerationPrompt bool            // end with the opening of the assistant's turn

	// Continue ends the prompt right after the content of the last message, an
	// assistant's, so that the model writes on in it (in its reasoning, if it has no
	// content yet; if it has neither, the assistant's turn is opened anew).
	// AddGenerationPrompt is then ignored. It is an error if the template leaves that
	// content out or changes more of it than the white space around it.
	Continue bool

	Reasoning ReasoningForm // how messages are given their ReasoningContent

	// NullContent gives messages that have tool calls and no content null for content,
	// as some templates want it; else it is the empty string.
	NullContent bool

	Vars     map[string]json.RawMessage // further variables
	BOSToken string                     // the template's own text, as is EOSToken
	EOSToken string
	Now      time.Time // for strftime_now; zero: the time of the call
}

// Render renders a conversation. Its errors are *RaisedError where the template
// refuses the conversation, *RenderError where it fails on it, *LimitError where it
// exceeds a budget, the context's, and those of values in Input that are no JSON.
func (t *Template) Render(ctx context.Context, in Input) (Prompt, error) {
	return t.renderInput(ctx, in, defaultLimits, threadCPUTime)
}

func (t *Template) renderInput(ctx context.Context, in Input, l limits, clock func() time.Duration) (Prompt, error) {
	vars := newDict()
	vars.setName("tools", nil)
	vars.setName("documents", nil)
	for name, raw := range in.Vars {
		if err := setJSON(vars, name, raw); err != nil {
			return nil, err
		}
	}
	if len(in.Tools) > 0 {
		if err := setJSON(vars, "tools", in.Tools); err != nil {
			return nil, err
		}
	}
	messages := &list{}
	for i, m := range in.Messages {
		v, err := m.value(in.NullContent, in.Reasoning)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		messages.items = append(messages.items, v)
	}
	vars.setName("messages", messages)
	vars.setName("add_generation_prompt", in.AddGenerationPrompt)
	vars.setName("bos_token", literal(in.BOSToken))
	vars.setName("eos_token", literal(in.EOSToken))
	return t.render(ctx, vars, in.Continue, in.Now, l, clock)
}

// Options are what RenderJSON is told beside the request.
type Options struct {
	BOSToken, EOSToken string    // variables unless the request has them
	Continue           bool      // as in Input
	Now                time.Time // as in Input
}

// RenderJSON renders a request: a JSON object whose keys become the variables of
// the template, messages among them. What it leaves out is undefined. The order of
// keys counts, and 1 differs from 1.0. Errors are those of Render.
func (t *Template) RenderJSON(ctx context.Context, request []byte, o Options) (Prompt, error) {
	return t.renderJSON(ctx, request, o, defaultLimits, threadCPUTime)
}

func (t *Template) renderJSON(ctx context.Context, request []byte, o Options, l limits, clock func() time.Duration) (Prompt, error) {
	v, err := decodeJSON(request)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the JSON ends too early")
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
	return t.render(ctx, vars, o.Continue, o.Now, l, clock)
}

func setJSON(vars *dict, name string, raw json.RawMessage) error {
	v, err := decodeJSON(raw)
	if err != nil {
		return fmt.Errorf("template variable %q: %w", name, err)
	}
	vars.setName(name, v)
	return nil
}

// value is the message as templates see it.
func (m Message) value(nullContent bool, thoughts ReasoningForm) (value, error) {
	d := newDict()
	d.setName("role", callerText(m.Role))
	d.setName("content", callerText(m.Content))
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
	thoughts.addTo(d, m)
	if len(m.ToolCalls) > 0 {
		if err := setJSON(d, "tool_calls", m.ToolCalls); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func callerText(s string) text { return marked(strings.ToValidUTF8(s, "\uFFFD"), fromCaller) }

func (t *Template) render(ctx context.Context, vars *dict, resume bool, now time.Time, l limits, clock func() time.Duration) (Prompt, error) {
	var tail string
	if resume {
		var err error
		if tail, err = markContinued(vars); err != nil {
			return nil, err
		}
	}
	trustRoles(vars)
	if now.IsZero() {
		now = time.Now()
	}
	runtime.LockOSThread() // whose time is counted
	defer runtime.UnlockOSThread()
	in := &interp{budget: newBudget(ctx, l, clock), now: now}
	out, err := in.run(t.body, vars)
	if err != nil {
		return nil, err
	}
	if tail != "" {
		if out, err = truncateAfterContinued(out, tail); err != nil {
			return nil, err
		}
	}
	return out.prompt(), nil
}

// knownRoles are the names of roles in use. Only these count as the template's own
// words where a template prints a role: some build their special tokens out of it, as
// in '<|' + message.role + '|>', and a caller must not build others that way.
var knownRoles = []string{"system", "developer", "user", "assistant", "model", "tool", "function", "ipython", "observation", "environment", "context", "documents"}

// trustRoles takes the mark off the known roles of the messages.
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

var errNotContinuable = errors.New("only an assistant's message at the end of the conversation can be continued")

// markTail marks the text to continue, in the last of the messages, so that it can
// be found in the prompt, and returns it; "" if there is none yet, in which case the
// message is taken off and the assistant's turn opened instead.
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
		tail, marked := markLastText(v)
		if strings.TrimFunc(tail, isSpace) == "" {
			continue
		}
		resumed := newDict()
		for i, k := range last.keys {
			resumed.set(k, last.vals[i])
		}
		resumed.setName(key, marked)
		vars.setName("messages", &list{items: append(before, resumed)})
		vars.setName("add_generation_prompt", false)
		return tail, nil
	}
	vars.setName("messages", &list{items: before})
	vars.setName("add_generation_prompt", true)
	return "", nil
}

func keyString(v value) string {
	t, _ := v.(text)
	return t.s
}

// markLastText marks content, or the last part of a list of parts that has text.
func markLastText(v value) (tail string, withMark value) {
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

// ErrNotContinued says that a message cannot be continued with this template.
var ErrNotContinued = errors.New("the chat template leaves out or changes the message to be continued: send it as a new turn instead")

// cutAfterTail ends the prompt where the marked text ends, and puts back the white
// space that the template trimmed off its end: the model wrote it, and goes on
// behind it.
func truncateAfterContinued(out text, tail string) (text, error) {
	for _, m := range slices.Backward(out.marks) {
		if m.from != fromContinued || strings.TrimFunc(out.s[m.lo:m.hi], isSpace) == "" {
			continue
		}
		found := strings.TrimFunc(out.s[m.lo:m.hi], isSpace)
		whole := strings.TrimRightFunc(tail, isSpace)
		if !strings.HasSuffix(whole, found) {
			break
		}
		end := m.lo + strings.LastIndex(out.s[m.lo:m.hi], found) + len(found)
		b := &builder{}
		b.text(out.slice(0, end))
		b.add(tail[len(whole):], fromContinued)
		return b.take(), nil
	}
	return text{}, ErrNotContinued
}
