package infer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"m40-llm/infer/chat"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/reply"
	"m40-llm/infer/tokenizer"
)

// source is an opened model file with all of it that needs no device: what turns
// conversations into its tokens and tokens into text. It does not change, so that
// any goroutine may use it.
type source struct {
	name         string // as it was asked for
	info         ModelInfo
	file         *gguf.File
	config       model.Config
	tokenizer    *tokenizer.Tokenizer
	template     *chat.Template   // nil: cannot be used, notice says why
	notice       string           // what a person should know of the template
	controls     map[string]int32 // control tokens by what they spell
	controlFirst [256]bool        // bytes with which one begins
	format       *reply.Format    // how the model writes calls and thoughts
	callStyle    func() callStyle
	thoughts     func() chat.Thoughts // of the template

	constraints *constraints

	hash string // of the file's header and size

	lost *Error // parts of the file were gone when they were read; belongs to the loop

	users int           // guarded by sources.mu
	ready chan struct{} // closed when it is opened, or err says why it cannot be
	err   error
}

// key tells models apart: two names of one file are one model, a replaced file
// under the same name is another.
func (s *source) key() string { return s.info.Name + "@" + s.hash }

// noTemplate tells what happens to a model without a chat template.
const noTemplate = "this model has no chat template; ChatML is used, answers may be odd"

// vocabulary is a source as its samplers see it.
type vocabulary struct{ *source }

// Size may be more than the tokenizer has: rows are padded in some models.
func (v vocabulary) Size() int { return v.config.Vocab }

func (v vocabulary) Piece(id int32) []byte { return v.tokenizer.Piece(id, true) }

// sources shares opened model files among those who use them. A file stays open
// as long as anyone does.
type sources struct {
	catalog Catalog
	log     *slog.Logger

	mu   sync.Mutex
	open map[string]*source // by the name that was asked for, and by its own
}

// acquire opens the model called name, or joins those who did. The caller releases
// it.
func (l *sources) acquire(ctx context.Context, name string) (*source, error) {
	l.mu.Lock()
	s, ok := l.open[name]
	if !ok {
		s = &source{name: name, ready: make(chan struct{})}
		l.open[name] = s
	}
	s.users++
	l.mu.Unlock()
	if !ok {
		s.err = contain(l.log, func() error { return s.read(l.catalog) })
		l.publish(s)
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		l.release(s)
		return nil, ctx.Err()
	}
	if s.err != nil {
		err := s.err
		l.release(s)
		return nil, err
	}
	return s, nil
}

// publish lets those who joined go on. A model is found under its own name too,
// unless another file is.
func (l *sources) publish(s *source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.err != nil {
		delete(l.open, s.name) // the next one to ask tries again
	} else if l.open[s.info.Name] == nil {
		l.open[s.info.Name] = s
	}
	close(s.ready)
}

// retain adds a user to a source that has one.
func (l *sources) retain(s *source) *source {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.users++
	return s
}

func (l *sources) release(s *source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	l.withdraw(s)
	if s.file != nil {
		s.file.Close()
	}
}

// forget lets the next one who asks for the model of s open its file anew.
func (l *sources) forget(s *source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withdraw(s)
}

func (l *sources) withdraw(s *source) {
	maps.DeleteFunc(l.open, func(_ string, other *source) bool { return other == s })
}

func (s *source) read(c Catalog) (err error) {
	if s.file, s.info, err = c.Open(s.name); err != nil {
		return asError(CodeModelFile, err)
	}
	if s.config, err = model.ReadConfig(s.file); err == nil {
		s.tokenizer, err = tokenizer.New(s.file)
	}
	if err != nil {
		return errorf(CodeModelFile, "cannot use model %q: %s", s.info.Name, err)
	}
	s.hash = headerHash(s.file)
	s.constraints = newConstraints(s)
	s.readTemplate()
	return nil
}

// readTemplate never fails: raw prompts need no template.
func (s *source) readTemplate() {
	text, err := s.file.Str("tokenizer.chat_template")
	if errors.Is(err, gguf.ErrMissing) || err == nil && text == "" {
		text, err = chat.ChatMLSource, nil
		s.template, s.notice = chat.ChatML, noTemplate
	} else if err == nil {
		s.template, err = chat.Parse(text)
	}
	if err != nil {
		s.notice = fmt.Sprintf("the model's chat template cannot be used (%s); only raw prompts work", err)
		text = ""
	}
	s.controls = map[string]int32{}
	for id := range int32(s.tokenizer.VocabSize()) {
		if s.tokenizer.IsControl(id) {
			text := s.tokenizer.Text(id)
			s.controls[text] = id
			if text != "" {
				s.controlFirst[text[0]] = true
			}
		}
	}
	s.format = reply.Detect(text, s.template != nil && s.template.Uses("tools"), s.isControl)
	p := probe{s.template, text, s.special(s.tokenizer.BOS()), s.special(s.tokenizer.EOS())}
	s.callStyle = sync.OnceValue(func() callStyle { return p.calls(context.Background()) })
	s.thoughts = remember(func() (chat.Thoughts, error) { return p.thoughts(context.Background(), s.callStyle()) })
}

// notices tells what a person should know of the model.
func (s *source) notices() string {
	return strings.Trim(s.notice+"; "+s.tokenizer.Notice(), "; ")
}

// remember returns a function that finds a value once, or again if that failed.
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

func (s *source) isControl(text string) bool {
	_, ok := s.controls[text]
	return ok
}

// thinkingVars returns the variables about thinking that the model's chat template reads.
func (s *source) thinkingVars() (names []string) {
	for _, name := range []string{"enable_thinking", "thinking", "reasoning_effort"} {
		if s.template != nil && s.template.Uses(name) {
			names = append(names, name)
		}
	}
	return names
}

func headerHash(f *gguf.File) string {
	h := sha256.New()
	h.Write(f.Header())
	fmt.Fprintf(h, "%d", f.Size())
	return hex.EncodeToString(h.Sum(nil))
}

// prompt is what an answer goes on from.
type prompt struct {
	text   string // what the tokens spell; empty if the request came with tokens
	tokens []int32
	begun  *reading // of the tokens with which the answer had begun; nil: with none
}

// prompt turns the input of r into tokens.
func (s *source) prompt(ctx context.Context, r Request, now time.Time) (p prompt, err error) {
	switch {
	case len(r.Tokens) > 0:
		p.tokens = slices.Clone(r.Tokens)
	case r.Prompt != "":
		p.text = r.Prompt
		p.tokens, err = s.tokenizer.Encode(ctx, r.Prompt, tokenizer.Options{AddSpecial: true, ParseSpecial: true})
	default:
		if p = s.goOn(ctx, r, now); p.begun == nil {
			p.text, p.tokens, err = s.conversation(ctx, r, now)
		}
	}
	if err != nil && ctx.Err() == nil {
		err = asError(CodeInternal, err)
	}
	if err == nil && len(p.tokens) == 0 {
		err = invalid("prompt", "the prompt has no tokens")
	}
	if err == nil {
		// A file may name tokens that its model has no row for.
		err = inVocabulary("tokens", p.tokens, s.config.Vocab)
	}
	return p, err
}

// conversation renders the messages of r. What a message says is data: only the
// template's own text may hold special tokens.
func (s *source) conversation(ctx context.Context, r Request, now time.Time) (string, []int32, error) {
	if s.template == nil {
		return "", nil, &Error{Code: CodeTemplate, Message: s.notice}
	}
	if r.ToolChoice == ToolChoiceNone {
		r.Tools = nil
	}
	messages, style, err := s.toolMessages(r)
	if err != nil {
		return "", nil, err
	}
	in := chat.Input{
		Messages:            messages,
		Tools:               r.Tools,
		AddGenerationPrompt: string(r.TemplateVars["add_generation_prompt"]) != "false", // Continue goes before it
		Continue:            r.Continue,
		NullContent:         style.nullContent,
		Thoughts:            s.thoughtsOf(messages),
		Vars:                r.TemplateVars,
		BOSToken:            s.special(s.tokenizer.BOS()),
		EOSToken:            s.special(s.tokenizer.EOS()),
		Now:                 now,
	}
	tell := len(r.Tools) > 0 && !s.template.Uses("tools")
	if tell {
		in.Messages = withToolPrompt(messages, "system", toolPrompt(r.Tools))
	}
	parts, err := s.render(ctx, in)
	if _, raised := errors.AsType[*chat.RaisedError](err); raised && tell {
		in.Messages = withToolPrompt(messages, "user", toolPrompt(r.Tools))
		parts, err = s.render(ctx, in)
	}
	if err != nil {
		if ctx.Err() == nil {
			err = &Error{Code: CodeTemplate, Message: err.Error(), Param: "messages"}
		}
		return "", nil, err
	}
	spans := make([]tokenizer.Span, len(parts))
	for i, part := range parts {
		spans[i] = tokenizer.Span{Text: part.Text, ParseSpecial: !part.Content}
	}
	tokens, err := s.tokenizer.EncodeSpans(ctx, spans, false)
	if err != nil {
		return "", nil, err
	}
	// Some templates leave the first token to the tokenizer, others write it.
	if bos, _ := s.tokenizer.BOS(); s.tokenizer.AddsBOS() && (len(tokens) == 0 || tokens[0] != bos) {
		tokens = slices.Insert(tokens, 0, bos)
	}
	return parts.String(), tokens, nil
}

func (s *source) special(id int32, ok bool) string {
	if !ok {
		return ""
	}
	return s.tokenizer.Text(id)
}
