// Package jinja interprets Jinja templates in the dialect in which Hugging Face transformers
// renders chat templates.
//
// A text records which of its bytes came from the caller, as opposed to the template. The
// origin follows text through every operation of a template. A result that mixes both origins
// inseparably counts as the caller's.
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
package jinja

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"time"
	"unicode/utf8"
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	body []stmt
	uses map[string]bool // names of the variables that the template reads
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

// Uses reports whether the template reads a variable that it does not set, such as tools
// or enable_thinking.
func (t *Template) Uses(variable string) bool { return t.uses[variable] }

// Options are the parameters of a rendering apart from its variables.
type Options struct {
	Now    time.Time // for strftime_now; zero: the time of the call
	Limits Limits    // zero: DefaultLimits
}

// Render renders the template with variables. It returns a *RaisedError if the template calls
// raise_exception, a *RenderError if it fails, a *LimitError beyond a limit, or the error of ctx.
func (t *Template) Render(ctx context.Context, vars *Dict, o Options) (Text, error) {
	return t.render(ctx, vars, o, threadCPUTime)
}

// render is Render with the clock that Limits.Time is compared with.
func (t *Template) render(ctx context.Context, vars *Dict, o Options, clock func() time.Duration) (Text, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	runtime.LockOSThread() // the clock counts the time of one thread
	defer runtime.UnlockOSThread()
	in := &interp{budget: newBudget(ctx, o.Limits, clock), now: o.Now}
	return in.run(t.body, vars)
}
