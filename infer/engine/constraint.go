package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"weak"

	"m40-llm/infer"
	"m40-llm/infer/grammar"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// constraints are what a model's answers can be held to: its vocabulary as a trie, and
// grammars with what they have worked out.
type constraints struct {
	vocabulary func() *grammar.Vocabulary

	mu   sync.Mutex
	used map[formKey]weak.Pointer[compiled] // by all who have it
	last []*compiled                        // those that are kept with nobody using them, the latest last
}

// compiled is a form as a grammar of the model's tokens. All answers of that form share it.
type compiled struct {
	key     formKey
	matcher *grammar.Matcher
	ignored []string // what its schemas say and it is not held to
}

// maxCompiled is how many grammars a model keeps that nobody uses. Each takes up to some 20 MB.
const maxCompiled = 4

// compiling bounds how many grammars are compiled at a time, so that a flood of them leaves
// cores to those that decode.
var compiling = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/4))

func newConstraints(s *source) *constraints {
	return &constraints{
		vocabulary: sync.OnceValue(func() *grammar.Vocabulary {
			t := s.tokenizer
			return grammar.NewVocabulary(s.config.Vocab, func(id int32) []byte { return t.Piece(id, false) }, t.IsEnd)
		}),
		used: map[formKey]weak.Pointer[compiled]{},
	}
}

// form is what an answer is held to: a grammar, or what reply.Form says.
type form struct {
	param string // the field of the request that it came with
	text  string // a grammar
	reply.Form
	lead string // an expression of what the prompt puts in front of the content
}

// formKey tells forms apart.
type formKey [sha256.Size]byte

func (f *form) key() formKey {
	h := sha256.New()
	for _, part := range []string{f.text, string(f.Schema), fmt.Sprint(f.Strict, f.Single, len(f.Tools)), f.lead} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	for _, t := range f.Tools {
		fmt.Fprintf(h, "%d:%s%d:%s%v", len(t.Name), t.Name, len(t.Parameters), t.Parameters, t.Strict)
	}
	return formKey(h.Sum(nil))
}

// compile returns the grammar of a form. It waits while others compile theirs.
func (s *source) compile(ctx context.Context, f *form) (*compiled, error) {
	c, key := s.constraints, f.key()
	if found := c.find(key); found != nil {
		return found, nil
	}
	select {
	case compiling <- struct{}{}:
		defer func() { <-compiling }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if found := c.find(key); found != nil { // another request had the same one
		return found, nil
	}
	text, ignored := f.text, []string(nil)
	if text == "" {
		var err error
		if text, ignored, err = s.format.Grammar(ctx, f.Form); err != nil {
			return nil, f.refuse(ctx, err)
		}
	}
	g, err := grammar.Parse(ctx, text)
	if err != nil {
		return nil, f.refuse(ctx, err)
	}
	m, err := grammar.NewMatcher(g, c.vocabulary())
	if err != nil {
		return nil, f.refuse(ctx, err)
	}
	made := &compiled{key, m, ignored}
	c.keep(made)
	return made, nil
}

// refuse says that a form cannot be used, unless it was ctx that ended it.
func (f *form) refuse(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := errors.AsType[*reply.ToolError](err); ok || f.param == "tools" {
		return infer.Invalid("tools", "%s", err)
	}
	return infer.Invalid(f.param, "%s cannot be used: %s", f.param, err)
}

// find returns the grammar of a key, nil if it is not there.
func (c *constraints) find(key formKey) *compiled {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.used[key].Value()
	if found != nil {
		c.last = append(slices.DeleteFunc(c.last, func(k *compiled) bool { return k == found }), found)
		c.trim()
	}
	return found
}

func (c *constraints) keep(made *compiled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.used, func(_ formKey, p weak.Pointer[compiled]) bool { return p.Value() == nil })
	c.used[made.key] = weak.Make(made)
	c.last = append(c.last, made)
	c.trim()
}

func (c *constraints) trim() {
	if n := len(c.last) - maxCompiled; n > 0 {
		c.last = slices.Delete(c.last, 0, n)
	}
}

// constraint holds one answer to a form; nil holds it to nothing.
type constraint struct {
	*compiled
	log    *slog.Logger
	states []grammar.State // in front of each token of the answer, and behind the last
	err    error           // from the last token

	pending chan allowed // the mask behind the last token, worked out while the device computes; nil if nothing is
}

// allowed is the tokens that may come next.
type allowed struct {
	mask sample.Mask
	err  error
}

// constrain returns what holds the answer to r, and says if the grammar or a schema is not
// one. A schema is that of the content: where the reply is parsed, a thought that the prompt
// has opened may come before it.
func (s *source) constrain(ctx context.Context, r *infer.Request, prompt string, log *slog.Logger) (*constraint, error) {
	f, err := s.form(r, prompt)
	if f == nil || err != nil {
		return nil, err
	}
	made, err := s.compile(ctx, f)
	if err != nil {
		return nil, err
	}
	return &constraint{compiled: made, log: log, states: []grammar.State{made.matcher.Start()}}, nil
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
	if mask, ok := c.matcher.CachedMask(next); ok {
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
