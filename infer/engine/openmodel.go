package engine

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

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/talk"
	"m40-llm/infer/tokenizer"
)

// source is an opened model file with all of it that needs no device: what turns
// conversations into its tokens and tokens into text. It does not change, so that
// any goroutine may use it.
type source struct {
	name        string // as it was asked for
	info        infer.ModelInfo
	file        *gguf.File
	config      model.Config
	tokenizer   *tokenizer.Tokenizer
	format      *talk.Format
	constraints *constraints

	hash string // of the file's header and size

	lost *infer.Error // parts of the file were gone when they were read; belongs to the loop

	users int           // guarded by sources.mu
	ready chan struct{} // closed when it is opened, or err says why it cannot be
	err   error
}

// key tells models apart: two names of one file are one model, a replaced file
// under the same name is another.
func (s *source) key() string { return s.info.Name + "@" + s.hash }

// vocabulary is a source as its samplers see it.
type vocabulary struct{ *source }

// Size may be more than the tokenizer has: rows are padded in some models.
func (v vocabulary) Size() int { return v.config.Vocab }

func (v vocabulary) Piece(id int32) []byte { return v.tokenizer.Piece(id, true) }

// sources shares opened model files among those who use them. A file stays open
// as long as anyone does.
type sources struct {
	catalog infer.Catalog
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

func (s *source) read(c infer.Catalog) (err error) {
	if s.file, s.info, err = c.Open(s.name); err != nil {
		return infer.AsError(infer.CodeModelFile, err)
	}
	if s.config, err = model.ReadConfig(s.file); err == nil {
		s.tokenizer, err = tokenizer.New(s.file)
	}
	if err != nil {
		return infer.Errorf(infer.CodeModelFile, "cannot use model %q: %s", s.info.Name, err)
	}
	s.hash = headerHash(s.file)
	s.constraints = newConstraints(s)
	s.format = talk.Read(s.file, s.tokenizer)
	return nil
}

// notices tells what a person should know of the model.
func (s *source) notices() string {
	return strings.Trim(s.format.Notice()+"; "+s.tokenizer.Notice(), "; ")
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
	begun  *reader // of the tokens with which the answer had begun; nil: with none
}

// prompt turns the input of r into tokens.
func (s *source) prompt(ctx context.Context, r infer.Request, now time.Time) (p prompt, err error) {
	switch {
	case len(r.Tokens) > 0:
		p.tokens = slices.Clone(r.Tokens)
	case r.Prompt != "":
		p.text = r.Prompt
		p.tokens, err = s.tokenizer.Encode(ctx, r.Prompt, tokenizer.Options{AddSpecial: true, ParseSpecial: true})
	default:
		if p = s.resume(ctx, r, now); p.begun == nil {
			p.text, p.tokens, err = s.conversation(ctx, r, now)
		}
	}
	if err != nil && ctx.Err() == nil {
		err = infer.AsError(infer.CodeInternal, err)
	}
	if err == nil && len(p.tokens) == 0 {
		err = infer.Invalid("prompt", "the prompt has no tokens")
	}
	if err == nil {
		// A file may name tokens that its model has no row for.
		err = inVocabulary("tokens", p.tokens, s.config.Vocab)
	}
	return p, err
}

// conversation renders and encodes the messages of r.
func (s *source) conversation(ctx context.Context, r infer.Request, now time.Time) (string, []int32, error) {
	if r.ToolChoice == infer.ToolChoiceNone {
		r.Tools = nil
	}
	text, tokens, err := s.format.Prompt(ctx, chat.Input{Messages: r.Messages, Tools: r.Tools, Continue: r.Continue, Vars: r.TemplateVars, Now: now})
	return text, tokens, conversationError(err)
}

func conversationError(err error) error {
	if wrong, ok := errors.AsType[*talk.MessageError](err); ok {
		return infer.Invalid("messages", "%s", wrong)
	}
	if failed, ok := errors.AsType[*talk.TemplateError](err); ok {
		return &infer.Error{Code: infer.CodeTemplate, Message: failed.Error(), Param: "messages"}
	}
	if errors.Is(err, talk.ErrNoTemplate) {
		return &infer.Error{Code: infer.CodeTemplate, Message: err.Error()}
	}
	return err
}

// opening returns what the parser of a reply to r goes on from, behind a prompt.
func (s *source) opening(r infer.Request, prompt string) string {
	if !r.Continue {
		return prompt
	}
	return s.format.Continued(r.Messages[len(r.Messages)-1], prompt)
}

// inVocabulary reports the first of ids that is not a token of a vocabulary of
// size vocab.
func inVocabulary(param string, ids []int32, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return infer.Invalid(param, "%s: number %d is %d, but the model's tokens are 0 to %d", param, i+1, id, vocab-1)
		}
	}
	return nil
}
