package sample

import (
	"errors"
	"fmt"
	"math"
)

// Row is a row of logits: either all of them (see RowOf), or a device's reduction of them,
// which is enough for most settings.
type Row struct {
	logits []float32 // the whole row, of RowOf

	IDs    []int32   // the likeliest tokens in canonical order, or all that are not masked
	Logits []float32 // of IDs

	Max       float32 // the largest logit
	Mass      float64 // sum over the vocabulary of exp(logit - Max)
	Dot       float64 // sum over the vocabulary of exp(logit - Max) * (logit - Max), without terms of weight 0
	Count     int     // logits that are not -Inf
	NotFinite bool    // a logit is NaN or +Inf; the other fields are then undefined

	// Fetch returns all logits, which must not change until the call that received the
	// Row returns. It is called at most once, and only if tokens outside IDs are needed.
	Fetch func() ([]float32, error)

	stored bool // of ParseRow
}

// RowOf returns a Row of all logits, which it does not copy.
func RowOf(logits []float32) Row { return Row{logits: logits} }

// All returns the logits of the whole row, which it fetches if a device has them. As with Fetch, they
// must not be used after the call that received the row.
func (r Row) All() ([]float32, error) {
	if r.Fetch == nil {
		return r.logits, nil
	}
	return r.Fetch()
}

// table gives access to a row: its tokens in canonical order, and all logits if needed.
type table struct {
	logits []float32 // of the whole vocabulary; nil: not fetched
	keys   []uint64  // of the likeliest tokens, if a device selected them
	count  int       // number of tokens that are not masked
	vocab  int
	fetch  func() ([]float32, error)
	err    error // of fetch
	stored bool  // only keys are known, of the likeliest tokens
}

// open resets the table to a row and returns its softmax, or ErrNotFinite if it has none.
func (t *table) open(r Row, vocab int) (d distribution, err error) {
	*t = table{logits: r.logits, keys: t.keys[:0], vocab: vocab, fetch: r.Fetch, stored: r.stored}
	if r.Fetch == nil {
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
	case r.NotFinite:
		return d, fmt.Errorf("%w: there is a NaN or +Inf", ErrNotFinite)
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
		return d, errors.New("the device returned inconsistent candidates or sums of the logits")
	}
	// The likeliest token alone has a mass of 1; the exp of a device may be inexact.
	return distribution{max: float64(r.Max), mass: math.Max(1, r.Mass), dot: r.Dot, count: r.Count}, nil
}

// all returns the whole row, which it fetches on the first call, or nil after an error.
func (t *table) all() []float32 {
	if t.logits != nil || t.err != nil {
		return t.logits
	}
	logits, err := t.fetch()
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

// verify checks fetched logits against the count of the reduced row.
func (t *table) verify(logits []float32) error {
	count := 0
	for id, logit := range logits {
		if logit-logit == 0 {
			count++
		} else if !math.IsInf(float64(logit), -1) {
			return fmt.Errorf("%w: that of token %d is %v", ErrNotFinite, id, logit)
		}
	}
	if count != t.count {
		return fmt.Errorf("the device counted %d logits that are not -Inf, but there are %d", t.count, count)
	}
	return nil
}

// best returns the keys of at least the first n tokens in canonical order, or of all that
// are not masked if those are fewer; after an error, those already known. The result is
// valid until the next call with the same ranker.
func (t *table) best(n int, r *ranker) []uint64 {
	if t.logits == nil && (n <= len(t.keys) || len(t.keys) == t.count) || t.all() == nil {
		return t.keys
	}
	return r.best(t.logits, n)
}
