package jinja

import (
	"context"
	"fmt"
	"time"
)

// Limits of one template and of one rendering.
const (
	maxSource = 256 << 10 // bytes of a template
	maxDepth  = 64        // nesting of tags, expressions, values, generators, macro calls and recursive loops
	maxNested = 8192      // expressions whose evaluation has started and not ended
	maxRange  = 100_000   // items of range()
	maxDigits = 1 << 14   // bits of an integer

	maxTupleKey = 1 << 16 // bytes of a tuple that is the key of a dict
)

// Bytes counted for each allocation apart from the bytes of texts.
const (
	itemSize   = 16  // an item of a list
	numberSize = 8   // a number in a list
	valueSize  = 80  // a text, list, function or generator
	dictSize   = 320 // a dict that is not empty
	entrySize  = 128 // an entry of a dict
	scopeSize  = 352 // a scope with variables
	nameSize   = 64  // one variable of a scope
	markSize   = 24  // a mark of a text
)

// Limits bound one rendering.
type Limits struct {
	Steps  int           // nodes evaluated, items visited, blocks of scanUnit bytes scanned
	Output int           // bytes of the prompt, and of any intermediate string
	Alloc  int           // bytes allocated in total
	Time   time.Duration // CPU time; 0 for no limit
}

// DefaultLimits are enough for each template that models are published with.
var DefaultLimits = Limits{
	Steps:  1_000_000,
	Output: 4 << 20,
	Alloc:  64 << 20,
	Time:   250 * time.Millisecond,
}

// LimitError is returned if parsing or rendering a template would take too much time or
// memory.
type LimitError struct {
	Budget string // nesting depth, steps, output, string, memory, time, range, integer, source
	Limit  string // the limit with its unit
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("chat template exceeds its %s budget of %s", e.Budget, e.Limit)
}

func overLimit(budget string, limit int, unit string) *LimitError {
	return &LimitError{Budget: budget, Limit: fmt.Sprintf("%d %s", limit, unit)}
}

// budget counts what one rendering has used. Its methods throw a *LimitError beyond a limit.
type budget struct {
	Limits
	ctx     context.Context
	clock   func() time.Duration
	started time.Duration

	usedSteps, usedAlloc int
	nextCheck            int // used steps at which check runs next
	nextAllocCheck       int // allocated bytes at which check runs next
	depth                int // of calls and values; see enter
	expressions          int // see enterExpression
}

const (
	checkEvery      = 1024    // steps between two checks of the clock
	checkEveryAlloc = 1 << 18 // allocated bytes between two checks of the clock
	scanUnit        = 256     // bytes that one step scans
)

// newBudget returns an unused budget. clock returns the time that l.time limits.
func newBudget(ctx context.Context, l Limits, clock func() time.Duration) *budget {
	return &budget{Limits: l, ctx: ctx, clock: clock, started: clock()}
}

// step counts n steps.
func (b *budget) step(n int) {
	b.usedSteps += n
	if b.usedSteps > b.Steps {
		throw(overLimit("steps", b.Steps, "steps"))
	}
	if b.usedSteps < b.nextCheck {
		return
	}
	b.check()
}

// check throws if the time is used up or the context is done.
func (b *budget) check() {
	b.nextCheck = b.usedSteps + checkEvery
	b.nextAllocCheck = b.usedAlloc + checkEveryAlloc
	if err := b.ctx.Err(); err != nil {
		throw(err)
	}
	if b.Time > 0 && b.clock()-b.started > b.Time {
		throw(&LimitError{Budget: "time", Limit: b.Time.String()})
	}
}

// scan counts the reading of n bytes.
func (b *budget) scan(n int) { b.step(1 + n/scanUnit) }

// alloc counts n bytes of new memory.
func (b *budget) alloc(n int) {
	b.usedAlloc += n
	if b.usedAlloc > b.Limits.Alloc {
		throw(overLimit("memory", b.Limits.Alloc, "bytes"))
	}
	if n >= scanUnit {
		b.step(n / scanUnit)
	}
	if b.usedAlloc >= b.nextAllocCheck {
		b.check()
	}
}

// allocValue counts a new text, list, function or generator.
func (b *budget) allocValue() { b.alloc(valueSize) }

// allocEntry counts another entry of d.
func (b *budget) allocEntry(d *Dict) {
	if d.index == nil {
		b.alloc(dictSize)
	}
	b.alloc(entrySize)
}

// checkSize checks the size of one string in bytes; output is set for the prompt itself.
func (b *budget) checkSize(n int, output bool) {
	if n <= b.Output {
		return
	}
	if output {
		throw(overLimit("output", b.Output, "bytes"))
	}
	throw(overLimit("string", b.Output, "bytes"))
}

// enter enters a call or a nested value, which leave ends.
func (b *budget) enter() {
	if b.depth++; b.depth > maxDepth {
		throw(overLimit("nesting depth", maxDepth, "levels"))
	}
}

func (b *budget) leave() { b.depth-- }

// enterExpression starts the evaluation of an expression, which leaveExpression ends. The
// number of started expressions is limited because it bounds the stack: a template can call
// a macro from inside its longest expression.
func (b *budget) enterExpression() {
	b.step(1)
	if b.expressions++; b.expressions > maxNested {
		throw(overLimit("nesting depth", maxNested, "expressions inside each other"))
	}
}

func (b *budget) leaveExpression() { b.expressions-- }
