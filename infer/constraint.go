package infer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"m40-llm/infer/grammar"
	"m40-llm/infer/sample"
)

// constraints are what a model's answers can be held to: its vocabulary as a trie, and
// the grammars that were asked for last, with what they have worked out.
type constraints struct {
	vocabulary func() *grammar.Vocabulary

	mu   sync.Mutex
	last []compiled // the latest last
}

type compiled struct {
	text    string // of the grammar
	matcher *grammar.Matcher
}

// maxCompiled is how many grammars a model keeps. Each takes up to some 20 MB.
const maxCompiled = 4

func newConstraints(s *source) *constraints {
	return &constraints{vocabulary: sync.OnceValue(func() *grammar.Vocabulary {
		t := s.tokenizer
		return grammar.NewVocabulary(s.config.Vocab, func(id int32) []byte { return t.Piece(id, false) }, t.IsEnd)
	})}
}

// matcher returns the matcher of a grammar.
func (c *constraints) matcher(ctx context.Context, text string) (*grammar.Matcher, error) {
	if m := c.find(text); m != nil {
		return m, nil
	}
	g, err := grammar.Parse(ctx, text)
	if err != nil {
		return nil, err
	}
	m, err := grammar.NewMatcher(g, c.vocabulary())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last) == maxCompiled {
		c.last = slices.Delete(c.last, 0, 1)
	}
	c.last = append(c.last, compiled{text, m})
	return m, nil
}

func (c *constraints) find(text string) *grammar.Matcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.last, func(k compiled) bool { return k.text == text })
	if i < 0 {
		return nil
	}
	found := c.last[i]
	c.last = append(slices.Delete(c.last, i, i+1), found)
	return found.matcher
}

// constraint holds one answer to a grammar; nil holds it to nothing.
type constraint struct {
	matcher *grammar.Matcher
	log     *slog.Logger
	states  []grammar.State // in front of each token of the answer, and behind the last
	err     error           // from the last token

	pending chan allowed // the mask behind the last token, worked out while the device computes; nil if nothing is
}

// allowed is the tokens that may come next.
type allowed struct {
	mask sample.Mask
	err  error
}

// constrain returns what holds the answer to r, and says if the grammar or the schema
// is not one. A schema is that of the content: where the reply is parsed, a thought that
// the prompt has opened may come before it.
func (s *source) constrain(ctx context.Context, r Request, prompt string, log *slog.Logger) (*constraint, error) {
	text, param := r.Grammar, "grammar"
	if len(r.JSONSchema) > 0 {
		rules, err := grammar.SchemaRules("json", r.JSONSchema)
		if err != nil {
			return nil, invalid("json_schema", "json_schema cannot be used: %s", err)
		}
		lead := ""
		if r.ParseReply {
			lead = s.format.Lead(s.gbnf(), s.opening(r, prompt))
		}
		text, param = "root ::= "+lead+"json\n"+rules, "json_schema"
	}
	if text == "" {
		return nil, nil
	}
	m, err := s.constraints.matcher(ctx, text)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, invalid(param, "%s cannot be used: %s", param, err)
	}
	return &constraint{matcher: m, log: log, states: []grammar.State{m.Start()}}, nil
}

// allowed returns the tokens that may come next in an answer of n tokens.
func (c *constraint) allowed(n int) (sample.Mask, error) {
	if c == nil {
		return nil, nil
	}
	pending := c.pending
	c.pending = nil
	switch {
	case c.err != nil:
		return nil, c.err
	case pending != nil && n == len(c.states)-1:
		a := <-pending
		return a.mask, a.err
	}
	return c.mask(c.states[n])
}

func (c *constraint) mask(at grammar.State) (mask sample.Mask, err error) {
	err = contain(c.log, func() (err error) {
		mask, err = c.matcher.Mask(at)
		return err
	})
	return mask, err
}

// rewind forgets what is being worked out about tokens that are taken back.
func (c *constraint) rewind() {
	if c != nil {
		c.pending, c.err = nil, nil
	}
}

// read takes token number n of the answer, and begins to work out what may follow it.
// It reports whether nothing may, because the answer is complete.
func (c *constraint) read(n int, id int32) (complete bool) {
	if c == nil {
		return false
	}
	var next grammar.State
	if next, c.err = c.matcher.Next(c.states[n], id); c.err != nil {
		return false
	}
	c.states = append(c.states[:n+1], next)
	if next.Complete() {
		return true
	}
	pending := make(chan allowed, 1)
	c.pending = pending
	if mask, ok := c.matcher.Known(next); ok {
		pending <- allowed{mask: mask}
		return false
	}
	go func() {
		mask, err := c.mask(next)
		pending <- allowed{mask, err}
	}()
	return false
}

// ends reports whether an answer of n tokens may end, and no token, not even one that
// ends it, can come.
func (c *constraint) ends(n int, mask sample.Mask) bool {
	return c != nil && c.states[n].Accepts() && !slices.ContainsFunc(mask, func(word uint64) bool { return word != 0 })
}

// isConstraintError reports whether err says that an answer cannot go on as its grammar
// wants.
func isConstraintError(err error) bool {
	return errors.Is(err, grammar.ErrNoToken) || errors.Is(err, grammar.ErrTooComplex) || errors.Is(err, sample.ErrMasked)
}
