package sample

import (
	"errors"
	"fmt"
	"math"
)

// Row is what is known of one row of logits: either all of it (see RowOf), or what
// a device has reduced it to, which is all that most settings need.
type Row struct {
	logits []float32 // all of them

	IDs    []int32   // the likeliest tokens in canonical order, as many as were looked for or all that are not masked
	Logits []float32 // theirs

	Max   float32 // the largest logit
	Mass  float64 // sum over the vocabulary of exp(logit - Max)
	Dot   float64 // sum over the vocabulary of exp(logit - Max) * (logit - Max), where a token of no weight adds nothing
	Count int     // logits that are not -Inf
	Bad   bool    // a logit is NaN or +Inf, and the rest of the Row means nothing

	// Whole returns all logits, which must stay as they are until the call that the
	// Row was given to returns. It is called at most once, and only if the settings
	// need tokens that are not among IDs.
	Whole func() ([]float32, error)
}

// RowOf returns a row of which all logits are known.
func RowOf(logits []float32) Row { return Row{logits: logits} }

// table is a row that is being worked on: it gives the tokens in canonical order, as
// many as somebody needs.
type table struct {
	logits []float32 // of the whole vocabulary; nil: not known, or not yet
	keys   []uint64  // of the likeliest tokens, where a device gave them
	count  int       // tokens that are not masked
	vocab  int
	whole  func() ([]float32, error)
	err    error // of whole
}

// open takes up a row and returns its softmax. Rows that are no distribution are
// ErrNotFinite.
func (t *table) open(r Row, vocab int) (d distribution, err error) {
	*t = table{logits: r.logits, keys: t.keys[:0], vocab: vocab, whole: r.Whole}
	if r.Whole == nil {
		if len(r.logits) != vocab {
			return d, fmt.Errorf("got %d logits for a vocabulary of %d tokens", len(r.logits), vocab)
		}
		d, err = softmax(r.logits)
	} else {
		d, err = t.openReduced(r)
	}
	t.count = d.count
	return d, err
}

func (t *table) openReduced(r Row) (d distribution, err error) {
	switch {
	case r.Bad:
		return d, fmt.Errorf("%w: NaN or +Inf is among them", ErrNotFinite)
	case r.Count == 0:
		return d, fmt.Errorf("%w: the largest is %v", ErrNotFinite, math.Inf(-1))
	}
	n := len(r.IDs)
	sound := n > 0 && n == len(r.Logits) && n <= r.Count && r.Count <= t.vocab && r.Logits[0] == r.Max &&
		r.Mass > 0.999 && r.Mass < float64(r.Count)*1.001 && r.Dot <= 0 && !math.IsInf(r.Dot, 0) // false for NaN
	for i := range r.IDs {
		if !sound {
			break
		}
		key := rankKey(r.Logits[i], r.IDs[i])
		sound = r.IDs[i] >= 0 && int(r.IDs[i]) < t.vocab && (i == 0 || key < t.keys[i-1])
		t.keys = append(t.keys, key)
	}
	if !sound || math.IsInf(float64(r.Logits[n-1]), 0) || math.IsInf(float64(r.Max), 0) {
		return d, errors.New("what the device found out about the logits contradicts itself")
	}
	// The likeliest token alone has a mass of 1, but for what a device's exp may be off.
	return distribution{max: float64(r.Max), mass: math.Max(1, r.Mass), dot: r.Dot, count: r.Count}, nil
}

// all returns the whole row, or nil after an error.
func (t *table) all() []float32 {
	if t.logits != nil || t.err != nil {
		return t.logits
	}
	logits, err := t.whole()
	if err == nil && len(logits) != t.vocab {
		err = fmt.Errorf("got %d logits for a vocabulary of %d tokens", len(logits), t.vocab)
	}
	if err == nil {
		err = t.verify(logits)
	}
	if t.err = err; err != nil {
		return nil
	}
	t.logits = logits
	return logits
}

// verify holds a whole row against what is known of it already.
func (t *table) verify(logits []float32) error {
	count := 0
	for id, logit := range logits {
		if logit-logit == 0 {
			count++
		} else if !math.IsInf(float64(logit), -1) {
			return fmt.Errorf("%w: the one of token %d is %v", ErrNotFinite, id, logit)
		}
	}
	if count != t.count {
		return fmt.Errorf("a device counted %d logits that are not masked, but there are %d", t.count, count)
	}
	return nil
}

// best returns the keys of at least the first n tokens in canonical order, or of all
// that are not masked where those are fewer; after an error, those that are known.
// The result is valid until the next call with the same ranker.
func (t *table) best(n int, r *ranker) []uint64 {
	if t.logits == nil && (n <= len(t.keys) || len(t.keys) == t.count) || t.all() == nil {
		return t.keys
	}
	return r.best(t.logits, n)
}
