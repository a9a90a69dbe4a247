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
	"m40-llm/infer/chatformat"
	"m40-llm/infer/fault"
	"m40-llm/infer/grammar"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// constraints holds what constrains the answers of a model: its vocabulary as a trie, and
// compiled grammars with their cached masks.
type constraints struct {
	vocabulary func() *grammar.Vocabulary

	mu   sync.Mutex
	used map[formKey]weak.Pointer[compiled] // every grammar that is still referenced
	last []*compiled                        // the most recently used ones, newest last: cached though no answer uses them
}

// compiled is a form compiled to a matcher of the model's tokens. All answers of that form share
// it.
type compiled struct {
	key     formKey
	matcher *grammar.Matcher
	ignored []string // keywords of its schemas that it does not enforce
}

// maxCompiled is how many grammars a model keeps that no answer uses. Each takes up to some 20
// MB.
const maxCompiled = 4

// compiling bounds how many grammars are compiled at a time, so that many requests leave cores to
// the step loop.
var compiling = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/4))

func newConstraints(m *openModel) *constraints {
	return &constraints{
		vocabulary: sync.OnceValue(func() *grammar.Vocabulary {
			t := m.tokenizer
			return grammar.NewVocabulary(m.config.Vocab, func(id int32) []byte { return t.Piece(id, false) }, t.IsEnd)
		}),
		used: map[formKey]weak.Pointer[compiled]{},
	}
}

// form is what an answer is constrained to: a grammar, or a reply.Form.
type form struct {
	param string // the field of the request that asked for it, for errors
	text  string // GBNF; empty: Form applies

	format *chatformat.Format // of the reply
	reply.Form
	beforeContent string // GBNF of what may come before the content, where the prompt opened reasoning
}

// formKey identifies a form by its contents.
type formKey [sha256.Size]byte

func (f *form) key() formKey {
	h := sha256.New()
	for _, part := range []string{f.text, string(f.Schema), fmt.Sprint(f.Strict, f.Single, len(f.Tools)), f.beforeContent, f.format.TemplateHash()} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	for _, t := range f.Tools {
		fmt.Fprintf(h, "%d:%s%d:%s%v", len(t.Name), t.Name, len(t.Parameters), t.Parameters, t.Strict)
	}
	return formKey(h.Sum(nil))
}

// compile returns the matcher of a form. It waits while others compile theirs.
func (m *openModel) compile(ctx context.Context, f *form) (*compiled, error) {
	c, key := m.constraints, f.key()
	if found := c.find(key); found != nil {
		return found, nil
	}
	select {
	case compiling <- struct{}{}:
		defer func() { <-compiling }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if found := c.find(key); found != nil { // another request compiled it meanwhile
		return found, nil
	}
	text, ignored := f.text, []string(nil)
	if text == "" {
		var err error
		if text, ignored, err = f.format.Grammar(ctx, f.Form); err != nil {
			return nil, f.invalid(ctx, err)
		}
	}
	g, err := grammar.Parse(ctx, text)
	if err != nil {
		return nil, f.invalid(ctx, err)
	}
	matcher, err := grammar.NewMatcher(g, c.vocabulary())
	if err != nil {
		return nil, f.invalid(ctx, err)
	}
	made := &compiled{key, matcher, ignored}
	c.add(made)
	return made, nil
}

// invalid returns the error of a form that cannot be compiled, or that of ctx if it was
// cancelled.
func (f *form) invalid(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := errors.AsType[*reply.ToolError](err); ok || f.param == "tools" {
		return fault.Invalid("tools", "%s", err)
	}
	return fault.Invalid(f.param, "%s cannot be used: %s", f.param, err)
}

// find returns the compiled form of a key, or nil.
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

func (c *constraints) add(made *compiled) {
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

// constraint constrains one answer to a form. A nil constraint allows every token.
type constraint struct {
	*compiled
	log    *slog.Logger
	states []grammar.State // before each token of the answer, and after the last
	err    error           // of the last token read

	pending chan allowed // the mask after the last token, computed while the device computes; nil: none is
}

// allowed holds the tokens that may come next.
type allowed struct {
	mask sample.Mask
	err  error
}

// constrain returns the constraint of the answer to r after p, nil if it has none, or an error if its
// grammar or schema is invalid. A schema is that of the content: where the reply is parsed,
// reasoning that the prompt has opened may come before it.
func (m *openModel) constrain(ctx context.Context, r *infer.Request, p prompt, log *slog.Logger) (*constraint, error) {
	f, err := m.form(r, p.text)
	if f == nil || err != nil {
		return nil, err
	}
	made, err := m.compile(ctx, f)
	if err != nil {
		return nil, err
	}
	c := &constraint{compiled: made, log: log, states: []grammar.State{made.matcher.Start()}}
	if r.Continue && r.ContinueForm {
		if err := c.resume(r, p.continued != nil); err != nil {
			return nil, fault.Invalid(f.param, "the beginning of the answer does not match %s: %s", f.param, err)
		}
	}
	return c, nil
}

// resume reads the message that r continues: its tokens, if the prompt ends with them, else its content.
func (c *constraint) resume(r *infer.Request, tokens bool) error {
	at := c.states[0]
	if !tokens {
		next, err := c.matcher.NextText(at, r.Messages[len(r.Messages)-1].Content)
		c.states[0] = next
		return err
	}
	for _, id := range r.ContinuedTokens {
		next, err := c.matcher.Next(at, id)
		if err != nil {
			return err
		}
		at = next
	}
	c.states[0] = at
	return nil
}

// allowed returns the tokens that may come as token n of the answer.
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

// rewind drops the pending mask and error when tokens are retracted.
func (c *constraint) rewind() {
	if c != nil {
		c.pending, c.err = nil, nil
	}
}

// read takes token n of the answer and starts to compute which tokens may follow. It reports
// whether the answer is complete, so that none may.
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

// admits returns how many of ids may follow the first n tokens of the answer, one after the other.
func (c *constraint) admits(n int, ids []int32) (count int) {
	if c == nil {
		return len(ids)
	}
	_ = contain(c.log, func() error {
		at := c.states[n]
		for _, id := range ids {
			next, err := c.matcher.Next(at, id)
			if err != nil || next.Complete() {
				return nil
			}
			at = next
			count++
		}
		return nil
	})
	return count
}

// ends reports whether an answer of n tokens may end and mask allows no token, not even an end
// token.
func (c *constraint) ends(n int, mask sample.Mask) bool {
	return c != nil && c.states[n].Accepts() && !slices.ContainsFunc(mask, func(word uint64) bool { return word != 0 })
}

// isConstraintError reports whether err says that no token continues the answer as its grammar
// requires.
func isConstraintError(err error) bool {
	return errors.Is(err, grammar.ErrNoToken) || errors.Is(err, grammar.ErrTooComplex) || errors.Is(err, sample.ErrMasked)
}
