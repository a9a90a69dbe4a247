package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"

	"m40-llm/infer"
	"m40-llm/infer/sample"
	"m40-llm/infer/units"
)

// comparison is the state of an answer whose prompt two models score, one after the other, since one is
// loaded at a time. The rows of the first wait in a file for those of the second, so that the divergence
// is that of the full vocabulary.
type comparison struct {
	next *openModel    // the second model until its turn comes; then nil
	rows *os.File      // (scored tokens, vocab) logits; without a name, so that it is gone with the process
	size int64         // bytes of rows at its end
	used *atomic.Int64 // bytes of all comparisons of the engine
	raw  []byte        // of one row
}

// maxCompared bounds the files of all comparisons together, in bytes.
const maxCompared = 2 << 30

// isSecond reports whether the second model scores.
func (c *comparison) isSecond() bool { return c != nil && c.next == nil }

// compareWith makes the answer a one that is compared with the model that its request names.
func (e *Engine) compareWith(ctx context.Context, a *answer) error {
	other, err := e.models.acquire(ctx, a.request.Against, a.request.AgainstDevice)
	if err != nil {
		return err
	}
	c := &comparison{next: other, size: int64(a.prompt) * int64(a.model.config.Vocab) * 4, used: &e.compared}
	a.comparison = c
	used := c.used.Add(c.size)
	if err = sameVocabulary(a.model, other); err == nil && other.config.Embeds() {
		err = errWritesNothing(other)
	}
	if err == nil {
		switch {
		case c.size > maxCompared:
			err = infer.Invalid("against", "comparing %d tokens of a vocabulary of %d needs a temporary file of %s, and at most %s are used: compare a shorter text",
				a.prompt, a.model.config.Vocab, units.ByteSize(c.size), units.ByteSize(maxCompared))
		case used > maxCompared:
			err = infer.Errorf(infer.CodeQueueFull, "other comparisons use %s of the %s for temporary files; try again later", units.ByteSize(used-c.size), units.ByteSize(maxCompared))
		default:
			c.rows, err = temporaryFile()
		}
	}
	if err != nil {
		a.comparison.close(e.models)
	}
	return err
}

// sameVocabulary returns an error that names the first token that two models do not share.
func sameVocabulary(a, b *openModel) error {
	refuse := func(why string, args ...any) error {
		return infer.Invalid("against", "%s and %s have different vocabularies, so that their probabilities cannot be compared: %s", a.info.Name, b.info.Name, fmt.Sprintf(why, args...))
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

func temporaryFile() (*os.File, error) {
	f, err := os.CreateTemp("", "m40-llm-rows-")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		return nil, infer.Errorf(infer.CodeInternal, "cannot make a temporary file for the rows of the first model: %s", err)
	}
	return f, nil
}

// close releases what the comparison still has.
func (c *comparison) close(models *openModels) {
	if c == nil {
		return
	}
	c.used.Add(-c.size)
	if c.next != nil {
		models.release(c.next)
	}
	if c.rows != nil {
		c.rows.Close() // nothing of it is needed any more
	}
}

// save appends a row of the first model.
func (c *comparison) save(row []float32) error {
	var err error
	if c.raw, err = binary.Append(c.raw[:0], binary.LittleEndian, row); err == nil {
		_, err = c.rows.Write(c.raw)
	}
	if err != nil {
		return &comparisonError{fmt.Errorf("the logits of the first model could not be written to the temporary folder %s: %w", os.TempDir(), err)}
	}
	return nil
}

// load reads row i of the first model.
func (c *comparison) load(i, vocab int) ([]float32, error) {
	row, size := make([]float32, vocab), 4*vocab
	c.raw = append(c.raw[:0], make([]byte, size)...)
	if _, err := c.rows.ReadAt(c.raw, int64(i)*int64(size)); err != nil && !errors.Is(err, io.EOF) {
		return nil, &comparisonError{fmt.Errorf("the logits of the first model cannot be read any more: %w", err)}
	}
	for id := range row {
		row[id] = math.Float32frombits(binary.LittleEndian.Uint32(c.raw[4*id:]))
	}
	return row, nil
}

// comparisonError is the error of the file of a comparison.
type comparisonError struct{ error }

// compare scores the next token of the prompt, with the first or with the second model.
func (a *answer) compare(r sample.Row) error {
	row, err := r.All()
	if err != nil {
		return err
	}
	first := a.scored - 1
	c, err := a.scoreNext(sample.RowOf(row))
	if err != nil {
		return err
	}
	if !a.comparison.isSecond() {
		a.echoToken(c)
		return a.comparison.save(row)
	}
	reference, err := a.comparison.load(first, len(row))
	if err != nil {
		return err
	}
	kl, err := sample.Divergence(reference, row)
	a.echo[first+1].Token.Compared = &infer.Compared{KL: kl, LogProb: c.LogProb, Rank: c.Rank}
	return err
}

// scoreWithNext lets the second model score the prompt of an answer.
func (l *loop) scoreWithNext(a *answer) {
	client, sibling, audience := a.client, a.sibling, a.audience
	l.sched.remove(a.sequence, true)
	delete(l.answers, a.sequence)
	l.models.release(a.model)
	a.model, a.comparison.next = a.comparison.next, nil
	a.sequence = newSequence(a.model.key(), a.tokens, true)
	a.client, a.sibling, a.audience, a.reused = client, sibling, audience, 0
	l.answers[a.sequence] = a
	l.sched.add(a.sequence)
	if a.modelKey == l.sched.model {
		l.fit(a)
	}
}
