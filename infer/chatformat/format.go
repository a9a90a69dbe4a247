// Package chatformat reads a model's chat format from its file: the chat template, the forms in which
// that takes tool calls and reasoning, and the syntax in which the model writes them.
package chatformat

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"m40-llm/infer/chat"
	"m40-llm/infer/gguf"
	"m40-llm/infer/reply"
	"m40-llm/infer/tokenizer"
)

// Format is the chat format of one model: it renders conversations to prompts and creates the
// parsers and grammars of replies. It is immutable and safe for concurrent use.
type Format struct {
	vocabulary
	probe     probe              // its template is nil if that cannot be used; notice says why
	notice    string             // what a user should know of the template
	named     map[string]*Format // of the other templates of the file, by name
	syntax    *reply.Syntax      // of calls and reasoning in replies
	callStyle func() callStyle
	reasoning func() chat.ReasoningForm
	traits    func() traits
}

// NoTemplate is the notice of a model without a chat template.
const NoTemplate = "this model has no chat template: it continues text; conversations are given to it as ChatML and answers may be odd"

// Names under which files have more than one template: for conversations with tools, and with
// documents.
const (
	toolUse = "tool_use"
	rag     = "rag"
)

// Read returns the format of the model in file, whose tokenizer is t. source replaces the templates of
// the file, unless it is empty. A template that cannot be parsed is not an error, since raw prompts
// need none: Notice reports it.
func Read(file *gguf.File, t *tokenizer.Tokenizer, source string) *Format {
	v := readVocabulary(t)
	first, others := templates(file, source)
	f := v.format(first)
	for _, other := range others {
		if format := v.format(other.source); format.probe.template != nil {
			f.named[other.name] = format
		} else {
			f.notice = withNotice(f.notice, other.name, format.notice)
		}
	}
	return f
}

// TemplateProblem returns why a template cannot be used, or "".
func TemplateProblem(source string) string {
	if source == "" {
		return ""
	}
	_, _, problem := parseTemplate(source)
	return problem
}

// TemplateProblems returns why templates of the model in file cannot be used, or "".
func TemplateProblems(file *gguf.File) string {
	first, others := templates(file, "")
	problems := TemplateProblem(first)
	for _, other := range others {
		if problem := TemplateProblem(other.source); problem != "" {
			problems = withNotice(problems, other.name, problem)
		}
	}
	return problems
}

// namedTemplate is a template for one kind of conversations.
type namedTemplate struct{ name, source string }

// templates returns the template for most conversations, "" if there is none, and the others of the file.
// source replaces all of them, unless it is empty.
func templates(file *gguf.File, source string) (first string, others []namedTemplate) {
	if source != "" {
		return source, nil
	}
	text := func(name string) string {
		source, _ := file.Str("tokenizer.chat_template" + name) // a key of another type is as missing
		return source
	}
	first = cmp.Or(text(""), text(".default"), text("."+toolUse), text("."+rag))
	for _, name := range []string{toolUse, rag} {
		if source := text("." + name); source != "" && source != first {
			others = append(others, namedTemplate{name, source})
		}
	}
	return first, others
}

// withNotice adds the notice of the template called name to notices.
func withNotice(notices, name, notice string) string {
	return strings.TrimPrefix(notices+"; "+name+": "+notice, "; ")
}

// For returns the format of conversations that have tools, calls or results, or that have documents,
// if the file has a template of its own for them; else f.
func (f *Format) For(tools, documents bool) *Format {
	if named := f.named[toolUse]; named != nil && tools {
		return named
	}
	if named := f.named[rag]; named != nil && documents {
		return named
	}
	return f
}

// vocabulary is a tokenizer with its control tokens.
type vocabulary struct {
	tokenizer    *tokenizer.Tokenizer
	controls     map[string]int32 // control tokens by their text
	controlFirst [256]bool        // first bytes of these
}

func readVocabulary(t *tokenizer.Tokenizer) vocabulary {
	v := vocabulary{tokenizer: t, controls: map[string]int32{}}
	for id := range int32(t.VocabSize()) {
		if t.IsControl(id) {
			text := t.Text(id)
			v.controls[text] = id
			if text != "" {
				v.controlFirst[text[0]] = true
			}
		}
	}
	return v
}

// format returns the format of a template; without one, that of ChatML.
func (v vocabulary) format(source string) *Format {
	template, source, notice := parseTemplate(source)
	f := newFormat(newProbe(template, source, v.special(v.tokenizer.BOS()), v.special(v.tokenizer.EOS())), func(text string) bool { _, ok := v.controls[text]; return ok })
	f.vocabulary, f.notice, f.named = v, notice, map[string]*Format{}
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

// parseTemplate parses a template, or returns ChatML if there is none. If it cannot be used, the
// template is nil and source "".
func parseTemplate(given string) (template *chat.Template, source, notice string) {
	if given == "" {
		return chat.ChatML, chat.ChatMLSource, NoTemplate
	}
	template, err := chat.Parse(given)
	if err != nil {
		return nil, "", fmt.Sprintf("the model's chat template cannot be used (%s); only raw prompts work", err)
	}
	return template, given, ""
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
func (v vocabulary) special(id int32, ok bool) string {
	if !ok {
		return ""
	}
	return v.tokenizer.Text(id)
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
func (f *Format) ThinkingVars() (names []string) {
	for _, name := range []string{"enable_thinking", "thinking", "reasoning_effort"} {
		if f.uses(name) {
			names = append(names, name)
		}
	}
	return names
}

// uses reports whether a template of the format reads a variable.
func (f *Format) uses(name string) bool {
	for _, other := range f.named {
		if other.uses(name) {
			return true
		}
	}
	return f.probe.template != nil && f.probe.template.Uses(name)
}

// EndMarkers returns texts that end a reply. They are those of ChatML where it was chosen for a model
// whose file has no template: the model may have no control tokens for them.
func (f *Format) EndMarkers() []string {
	if !f.chosen() {
		return nil
	}
	return []string{"<|im_end|>", "<|im_start|>"}
}

// chosen reports whether the file has no template, so that ChatML was chosen.
func (f *Format) chosen() bool { return f.notice == NoTemplate }

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
