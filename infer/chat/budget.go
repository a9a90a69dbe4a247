package chat

import (
	"context"
	"fmt"
	"time"
)

// Limits of one template and of one rendering.
const (
	maxSource = 256 << 10 // bytes of a template
	maxDepth  = 64        // nesting of tags, expressions, values, generators, macro calls and recursive loops
	maxNested = 8192      // expressions that are evaluated inside each other
	maxRange  = 100_000   // items of range()
	maxDigits = 1 << 14   // bits of an integer

	maxTupleKey = 1 << 16 // bytes of a tuple as the key of a dict
)

// Bytes charged for what takes memory besides the bytes of texts.
const (
	itemSize   = 16  // an item of a list
	numberSize = 8   // a number in it
	valueSize  = 80  // a text, list, function or generator
	dictSize   = 320 // a dict that is not empty
	entrySize  = 128 // an entry of a dict
	scopeSize  = 352 // a scope with variables
	nameSize   = 64  // one variable of a scope
	markSize   = 24  // a mark of a text
)

// limits bound one rendering.
type limits struct {
	steps  int           // nodes evaluated, items visited, blocks of bytes scanned
	output int           // bytes of the prompt, and of any string on the way to it
	alloc  int           // bytes of all strings and lists together
	time   time.Duration // of the processor; 0: without limit
}

var defaultLimits = limits{
	steps:  1_000_000,
	output: 4 << 20,
	alloc:  64 << 20,
	time:   250 * time.Millisecond,
}

// LimitError says that a template, or its rendering, went over a budget: it
// would take too long or too much memory.
type LimitError struct {
	Budget string // nesting depth, steps, output, string, memory, time, range, integer, source
	Limit  string // how much of it there is
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("chat template exceeds its %s budget of %s", e.Budget, e.Limit)
}

func overLimit(budget string, limit int, unit string) *LimitError {
	return &LimitError{Budget: budget, Limit: fmt.Sprintf("%d %s", limit, unit)}
}

// budget counts what one rendering has used.
type budget struct {
	limits
	ctx     context.Context
	clock   func() time.Duration
	started time.Duration

	usedSteps, usedAlloc int
	nextCheck            int // steps at which to look at the clock
	nextAllocCheck       int // bytes at which to look at it
	depth                int
	expressions          int
}

const (
	checkEvery      = 1024    // steps between two looks at the clock
	checkEveryAlloc = 1 << 18 // bytes of memory between two looks at the clock
	scanUnit        = 256     // bytes that one step scans
)

// newBudget begins to count. clock tells the time that the budget is measured in.
func newBudget(ctx context.Context, l limits, clock func() time.Duration) *budget {
	return &budget{limits: l, ctx: ctx, clock: clock, started: clock()}
}

// step counts n steps.
func (b *budget) step(n int) {
	b.usedSteps += n
	if b.usedSteps > b.steps {
		throw(overLimit("steps", b.steps, "steps"))
	}
	if b.usedSteps < b.nextCheck {
		return
	}
	b.check()
}

// check looks at the clock and at the context.
func (b *budget) check() {
	b.nextCheck = b.usedSteps + checkEvery
	b.nextAllocCheck = b.usedAlloc + checkEveryAlloc
	if err := b.ctx.Err(); err != nil {
		throw(err)
	}
	if b.time > 0 && b.clock()-b.started > b.time {
		throw(&LimitError{Budget: "time", Limit: b.time.String()})
	}
}

// scan counts the reading of n bytes.
func (b *budget) scan(n int) { b.step(1 + n/scanUnit) }

// alloc counts n bytes of new memory.
func (b *budget) alloc(n int) {
	b.usedAlloc += n
	if b.usedAlloc > b.limits.alloc {
		throw(overLimit("memory", b.limits.alloc, "bytes"))
	}
	if n >= scanUnit {
		b.step(n / scanUnit)
	}
	if b.usedAlloc >= b.nextAllocCheck {
		b.check()
	}
}

// value counts a new text, list, function or generator.
func (b *budget) allocValue() { b.alloc(valueSize) }

// entry counts another entry of d.
func (b *budget) allocEntry(d *dict) {
	if d.index == nil {
		b.alloc(dictSize)
	}
	b.alloc(entrySize)
}

// text checks the size of one string.
func (b *budget) checkSize(n int, output bool) {
	if n <= b.output {
		return
	}
	if output {
		throw(overLimit("output", b.output, "bytes"))
	}
	throw(overLimit("string", b.output, "bytes"))
}

// enter goes one level deeper into calls or values; leave comes back.
func (b *budget) enter() {
	if b.depth++; b.depth > maxDepth {
		throw(overLimit("nesting depth", maxDepth, "levels"))
	}
}

func (b *budget) leave() { b.depth-- }

// begin begins the evaluation of an expression, which finish ends. How deep expressions
// lie in each other bounds the stack: a template can call a macro from inside of its
// longest expression.
func (b *budget) enterExpression() {
	b.step(1)
	if b.expressions++; b.expressions > maxNested {
		throw(overLimit("nesting depth", maxNested, "expressions inside each other"))
	}
}

func (b *budget) leaveExpression() { b.expressions-- }
