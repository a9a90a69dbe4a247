// Package talk reads a model's chat format from its file: the chat template, the forms in which
// that takes tool calls and reasoning, and the syntax in which the model writes them.
package talk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"m40-llm/infer/chat"
	"m40-llm/infer/gguf"
	"m40-llm/infer/reply"
	"m40-llm/infer/tokenizer"
)

// Format is the chat format of one model: it renders conversations to prompts and creates the
// parsers and grammars of replies. It is immutable and safe for concurrent use.
type Format struct {
	probe        probe // its template is nil if that cannot be used; notice says why
	tokenizer    *tokenizer.Tokenizer
	notice       string           // what a user should know of the template
	controls     map[string]int32 // control tokens by their text
	controlFirst [256]bool        // first bytes of these
	syntax       *reply.Syntax    // of calls and reasoning in replies
	callStyle    func() callStyle
	reasoning    func() chat.ReasoningForm
	traits       func() traits
}

// NoTemplate is the notice of a model without a chat template.
const NoTemplate = "this model has no chat template; ChatML is used, answers may be odd"

// Read returns the format of the model in file, whose tokenizer is t. A template that cannot be
// parsed is not an error, since raw prompts need none: Notice reports it.
func Read(file *gguf.File, t *tokenizer.Tokenizer) *Format {
	controls, first := map[string]int32{}, [256]bool{}
	for id := range int32(t.VocabSize()) {
		if t.IsControl(id) {
			text := t.Text(id)
			controls[text] = id
			if text != "" {
				first[text[0]] = true
			}
		}
	}
	template, source, notice := readTemplate(file)
	f := newFormat(newProbe(template, source, special(t, t.BOS), special(t, t.EOS)), func(text string) bool { _, ok := controls[text]; return ok })
	f.tokenizer, f.controls, f.controlFirst, f.notice = t, controls, first, notice
	return f
}

// newFormat returns the format of a template; isControl reports whether the text of a token is that
// of a control token.
func newFormat(p probe, isControl func(text string) bool) *Format {
	f := &Format{probe: p}
	f.syntax = reply.Detect(p.source, p.template != nil && p.template.Uses("tools"), isControl)
	f.callStyle = sync.OnceValue(func() callStyle { return p.calls(context.Background()) })
	f.reasoning = remember(func() (chat.ReasoningForm, error) { return p.reasoning(context.Background(), f.callStyle()) })
	f.traits = remember(func() (traits, error) { return p.traits(context.Background()) })
	return f
}

// readTemplate parses the template of a file. If it cannot be used, the template is nil and source "".
func readTemplate(file *gguf.File) (template *chat.Template, source, notice string) {
	source, err := file.Str("tokenizer.chat_template")
	if errors.Is(err, gguf.ErrMissing) || err == nil && source == "" {
		return chat.ChatML, chat.ChatMLSource, NoTemplate
	}
	if err == nil {
		template, err = chat.Parse(source)
	}
	if err != nil {
		return nil, "", fmt.Sprintf("the model's chat template cannot be used (%s); only raw prompts work", err)
	}
	return template, source, ""
}

// remember returns a function that calls find until that succeeds once, and returns its value.
func remember[T any](find func() (T, error)) func() T {
	var mu sync.Mutex
	var found *T
	return func() T {
		mu.Lock()
		defer mu.Unlock()
		if found != nil {
			return *found
		}
		value, err := find()
		if err == nil {
			found = &value
		}
		return value
	}
}

// special returns the text of a special token, "" if the tokenizer has none.
func special(t *tokenizer.Tokenizer, token func() (int32, bool)) string {
	id, ok := token()
	if !ok {
		return ""
	}
	return t.Text(id)
}

// Notice returns what a user should know of the template, "" if nothing.
func (f *Format) Notice() string { return f.notice }

// TemplateHash returns the SHA-256 of the template, "" if it cannot be used.
func (f *Format) TemplateHash() string {
	if f.probe.template == nil {
		return ""
	}
	return f.probe.template.Hash()
}

// ThinkingVars returns the names of the variables that switch reasoning and that the template reads.
func (f *Format) ThinkingVars() []string {
	if f.probe.template == nil {
		return nil
	}
	return slices.DeleteFunc([]string{"enable_thinking", "thinking", "reasoning_effort"}, func(name string) bool { return !f.probe.template.Uses(name) })
}

// Parser returns a parser of one reply.
func (f *Format) Parser(o reply.Options) *reply.Parser { return f.syntax.Parser(o) }

// Marker returns the text of a control token, and whether the parser interprets it.
func (f *Format) Marker(id int32) (text string, ok bool) {
	if !f.tokenizer.IsControl(id) {
		return "", false
	}
	text = f.tokenizer.Text(id)
	return text, f.syntax.IsMarker(text)
}
