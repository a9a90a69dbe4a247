package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/model"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
	"m40-llm/infer/units"
)

// comparison is the kind of an answer whose prompt two models score, one after the other, since an engine has one
// loaded at a time. With infer.RowFile it is a half of one: the other half is in another engine. The rows of the first
// wait in a file for those of the second, so that the divergence is that of the full vocabulary. The disk and the arithmetic are the work of a goroutine: the step loop copies
// rows into its queue, and pauses the answer while that is full.
type comparison struct {
	writing
	answer  *answer
	file    rowFile // (scored tokens, vocab) logits
	size    int64   // bytes of file at its end
	most    int     // bytes of rows from which the queue is full
	release func()  // called once, when nothing is used any more
	log     *slog.Logger
	wake    func() // the step loop

	next   *openModel      // the second model until its turn comes; the loop's
	first  *openModel      // the first one
	ending *record.Receipt // of the last model, when all rows are in the queue; the loop's
	ended  time.Time       // when that was

	// Of the goroutine, which also has the echo of the answer from the first row on.
	raw       []byte    // of one row
	reference []float32 // the row of the first model

	mu      sync.Mutex
	queue   []comparedRow
	bytes   int // of rows in the queue, with the one that is being worked on
	working bool
	closed  bool
	err     error
}

// comparedRow is a row of logits of one of the models.
type comparedRow struct {
	index  int   // of the row among those of its model
	token  int32 // that follows
	second bool
	logits []float32 // (vocab)
}

// rowFile is a file of rows.
type rowFile interface {
	io.Writer
	io.ReaderAt
	io.Closer
}

const (
	maxCompared = 2 << 30  // bytes of the files of all comparisons together
	maxQueued   = 32 << 20 // bytes of rows in the queue of a comparison, from which it is full
)

// compareWith makes the answer a one that is compared with the model that its request names.
func (e *Engine) compareWith(ctx context.Context, a *answer) error {
	other, err := e.models.acquire(ctx, a.request.Against, a.request.AgainstDevice)
	if err != nil {
		return err
	}
	first := e.models.retain(a.model)
	size := int64(a.prompt) * int64(a.model.config.Vocab) * 4
	used := e.compared.Add(size)
	c := &comparison{answer: a, size: size, most: e.options.rowsQueued, first: first, next: other, log: e.options.Logger, wake: e.inbox.signal}
	c.release = func() {
		e.models.release(first)
		e.models.release(other)
		e.compared.Add(-size)
	}
	a.kind = c
	if err = sameVocabulary(a.model, other); err == nil && other.config.Embeds() {
		err = errWritesNothing(other)
	}
	if err == nil {
		switch {
		case size > maxCompared:
			err = fault.Invalid("against", "comparing %d tokens of a vocabulary of %d needs a temporary file of %s, and at most %s are used: compare a shorter text",
				a.prompt, a.model.config.Vocab, units.ByteSize(size), units.ByteSize(maxCompared))
		case used > maxCompared:
			err = fault.Errorf(fault.CodeQueueFull, "other comparisons use %s of the %s for temporary files; try again later", units.ByteSize(used-size), units.ByteSize(maxCompared))
		default:
			c.file, err = e.rowsOf(a.request.RowFile)
		}
	}
	if err != nil {
		c.close()
		return err
	}
	if file := a.request.RowFile; file != nil && file.Second {
		a.scoreWith(other)
	}
	return nil
}

// rowsOf opens the file of a comparison.
func (e *Engine) rowsOf(shared *infer.RowFile) (rowFile, error) {
	if shared == nil {
		return e.options.openRows()
	}
	flags := os.O_WRONLY | os.O_TRUNC
	if shared.Second {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(shared.Path, flags, 0)
	if err != nil {
		return nil, fault.Errorf(fault.CodeInternal, "cannot open the file for the rows of the first model: %s", err)
	}
	return f, nil
}

// scoreWith makes m, the second model, the one that scores the prompt of a.
func (a *answer) scoreWith(m *openModel) {
	client, sibling, audience := a.client, a.sibling, a.audience
	a.model, a.second = m, true
	a.sequence = newSequence(m.key(), a.tokens, true)
	a.client, a.sibling, a.audience, a.reused = client, sibling, audience, 0
}

// sameVocabulary returns an error that names the first token that two models do not share.
func sameVocabulary(a, b *openModel) error {
	refuse := func(why string, args ...any) error {
		return fault.Invalid("against", "%s and %s have different vocabularies, so that their probabilities cannot be compared: %s", a.info.Name, b.info.Name, fmt.Sprintf(why, args...))
	}
	if a.config.Vocab != b.config.Vocab {
		return refuse("they have %d and %d logits", a.config.Vocab, b.config.Vocab)
	}
	if n, m := a.tokenizer.VocabSize(), b.tokenizer.VocabSize(); n != m {
		return refuse("they have %d and %d tokens", n, m)
	}
	for id := range int32(a.tokenizer.VocabSize()) {
		if x, y := a.tokenizer.Piece(id, true), b.tokenizer.Piece(id, true); string(x) != string(y) {
			return refuse("token %d is %.40q and %.40q", id, x, y)
		}
	}
	return nil
}

// temporaryFile returns a file without a name, so that it is gone with the process.
func temporaryFile() (rowFile, error) {
	f, err := os.CreateTemp("", "m40-llm-rows-")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		return nil, fault.Errorf(fault.CodeInternal, "cannot make a temporary file for the rows of the first model: %s", err)
	}
	return f, nil
}

func (c *comparison) drafts() bool { return false }

// close releases what the comparison has when its goroutine has ended, for which it does not wait.
func (c *comparison) close() (isLast bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return true
	}
	if c.closed = true; !c.working {
		c.free()
	}
	return true
}

func (c *comparison) free() {
	if c.file != nil {
		c.file.Close() // nothing of it is needed any more
	}
	c.release()
}

// deliver puts the rows into the queue. The answer goes on with the second model when the first has scored all of
// the prompt, and ends when the queue is empty after the second.
func (c *comparison) deliver(l *loop, a *answer, _ scheduled, results []model.Result, now time.Time, _ settledStep) (accepted int, err error) {
	a.reportPrefill()
	for _, result := range results {
		known, err := l.loaded.row(result.Row)
		if err != nil {
			return 0, err
		}
		logits, err := known.All()
		if unread, ok := errors.AsType[*readError](err); ok {
			return 0, unread.error
		}
		if err != nil {
			l.end(a, samplingError(err), false)
			return 0, nil
		}
		c.put(&l.comparing, comparedRow{index: a.scored - 1, token: a.tokens[a.scored], second: a.second, logits: slices.Clone(logits)})
		a.scored++
	}
	full, _, _ := c.state()
	switch {
	case a.missing() > 0:
	case !a.second && a.request.RowFile == nil:
		l.scoreWithNext(a, c)
	default:
		receipt := l.loaded.receipt
		c.ending, c.ended = &receipt, now
	}
	if full || c.ending != nil {
		l.sched.pause(a.sequence)
	}
	return 0, nil
}

// scoreWithNext lets the second model score the prompt of an answer.
func (l *loop) scoreWithNext(a *answer, c *comparison) {
	l.sched.remove(a.sequence, true)
	delete(l.answers, a.sequence)
	l.models.release(a.model)
	a.scoreWith(l.models.retain(c.next))
	l.answers[a.sequence] = a
	l.sched.add(a.sequence)
	if a.modelKey == l.sched.model {
		l.fit(a)
	}
}

// settleComparisons ends those that failed or are complete, and resumes those whose queue has room again.
func (l *loop) settleComparisons() {
	for _, a := range l.answers {
		if c, ok := a.kind.(*comparison); ok {
			l.settle(a, c)
		}
	}
}

func (l *loop) settle(a *answer, c *comparison) {
	full, idle, err := c.state()
	switch {
	case err != nil && idle:
		l.end(a, samplingError(err), false)
	case err != nil:
		l.sched.pause(a.sequence)
	case c.ending == nil:
		a.paused = a.paused && full
	case idle:
		l.finish(a, ended(record.End{Reason: infer.FinishLength, ContextFull: a.contextFull}, ""), *c.ending, c.ended)
	}
}

// put adds a row to the queue, and starts the goroutine unless it runs.
func (c *comparison) put(running *sync.WaitGroup, row comparedRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue, c.bytes = append(c.queue, row), c.bytes+4*len(row.logits)
	if !c.working {
		c.working = true
		running.Go(c.work)
	}
}

// state returns whether the queue is full, whether nothing is in it or worked on, and why the comparison failed.
func (c *comparison) state() (full, idle bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes >= c.most, !c.working, c.err
}

// work takes rows from the queue until it is empty. If the comparison has failed or is closed, it drops them.
func (c *comparison) work() {
	defer c.wake()
	for {
		row, ok := c.take()
		if !ok {
			return
		}
		err := contain(c.log, func() error { return c.compare(row) })
		if c.took(row, err) {
			c.wake()
		}
	}
}

// take returns the next row; if there is none, the goroutine has ended.
func (c *comparison) take() (row comparedRow, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		c.queue, c.bytes = nil, 0
	}
	if len(c.queue) == 0 {
		if c.working = false; c.closed {
			c.free()
		}
		return row, false
	}
	row, c.queue = c.queue[0], c.queue[1:]
	return row, true
}

// took records that the work on a row has ended, and reports whether the queue has room again.
func (c *comparison) took(row comparedRow, err error) (room bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := c.bytes >= c.most
	c.bytes -= 4 * len(row.logits)
	c.err = err
	return full && c.bytes < c.most
}

// compare scores the token that follows a row. A row of the first model then goes to the file, and one of the second is
// compared with that of the first.
func (c *comparison) compare(row comparedRow) error {
	a := c.answer
	choice, err := sample.Score(sample.RowOf(row.logits), c.first.config.Vocab, row.token, a.request.Alternatives, a.request.Rows)
	if err != nil {
		return err
	}
	if !row.second {
		a.echoToken(c.first, choice)
		return c.save(row.logits)
	}
	if err := c.load(row.index, len(row.logits)); err != nil {
		return err
	}
	kl, err := sample.Divergence(c.reference, row.logits)
	if a.request.RowFile != nil { // the first model's choices are those of the other engine
		a.echoToken(c.first, choice)
	}
	a.echo[row.index+1].Token.Compared = &infer.Compared{KL: kl, LogProb: choice.LogProb, Rank: choice.Rank}
	return err
}

// save appends a row of the first model to the file.
func (c *comparison) save(row []float32) error {
	var err error
	if c.raw, err = binary.Append(c.raw[:0], binary.LittleEndian, row); err == nil {
		_, err = c.file.Write(c.raw)
	}
	if err != nil {
		return &comparisonError{fmt.Errorf("the logits of the first model could not be written to the temporary folder %s: %w", os.TempDir(), err)}
	}
	return nil
}

// load reads row i of the first model, of vocab logits, into reference.
func (c *comparison) load(i, vocab int) error {
	size := 4 * vocab
	c.raw = slices.Grow(c.raw[:0], size)[:size]
	if _, err := c.file.ReadAt(c.raw, int64(i)*int64(size)); err != nil && !errors.Is(err, io.EOF) {
		return &comparisonError{fmt.Errorf("the logits of the first model cannot be read any more: %w", err)}
	}
	c.reference = slices.Grow(c.reference[:0], vocab)[:vocab]
	for id := range c.reference {
		c.reference[id] = math.Float32frombits(binary.LittleEndian.Uint32(c.raw[4*id:]))
	}
	return nil
}

// comparisonError is the error of the file of a comparison.
type comparisonError struct{ error }
