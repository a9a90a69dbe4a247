package sample

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// penalties is the first stage of the chain: logit bias, then the penalties of
// tokens that stand in the last tokens of the history. It alone works on the whole
// row, for it can lift any token to any rank.
type penalties struct {
	biased  []int32 // ascending
	bias    []float64
	repeat  float64
	present float64
	freq    float64
	lastN   int // 0: the penalties are off, -1: the whole history

	row     []float32
	counts  []int32 // of each token in the window; all zero between calls
	touched []int32 // tokens whose logit changes: the biased ones first, then those of the window in order of appearance
}

// newPenalties returns nil where nothing can change a logit.
func newPenalties(p Params, vocab int) *penalties {
	lastN := p.RepeatLastN
	if p.RepeatPenalty == 1 && p.PresencePenalty == 0 && p.FrequencyPenalty == 0 {
		lastN = 0
	}
	if lastN == 0 && len(p.LogitBias) == 0 {
		return nil
	}
	s := &penalties{
		biased:  slices.Sorted(maps.Keys(p.LogitBias)),
		repeat:  p.RepeatPenalty,
		present: p.PresencePenalty,
		freq:    p.FrequencyPenalty,
		lastN:   lastN,
		row:     make([]float32, vocab),
		counts:  make([]int32, vocab),
		touched: make([]int32, 0, vocab),
	}
	for _, id := range s.biased {
		s.bias = append(s.bias, p.LogitBias[id])
	}
	return s
}

// apply returns the row after bias and penalties, its softmax and the probability
// that has passed from some tokens to others. The row is valid until the next call.
// PRECOND: before is the softmax of logits, and count has been called.
func (s *penalties) apply(logits []float32, before distribution) (row []float32, after distribution, moved float64, err error) {
	copy(s.row, logits)
	for i, id := range s.touched {
		logit := float64(logits[id])
		if i < len(s.bias) {
			logit += s.bias[i]
		}
		s.row[id] = clampFinite(penalise(logit, int(s.counts[id]), s.repeat, s.present, s.freq))
		s.counts[id] = 0
	}
	if after, err = softmax(s.row); err != nil {
		return nil, after, 0, err
	}
	// The untouched tokens all gain or all lose, by renormalisation. So either what
	// was gained or what was lost is entirely among the touched.
	var gained, lost float64
	for _, id := range s.touched {
		change := after.weight(s.row[id])/after.mass - before.weight(logits[id])/before.mass
		gained += math.Max(0, change)
		lost += math.Max(0, -change)
	}
	return s.row, after, math.Max(gained, lost), nil
}

// count fills touched and counts.
func (s *penalties) count(history []int32) error {
	window := history
	if s.lastN >= 0 {
		window = history[max(0, len(history)-s.lastN):]
	}
	for _, id := range window {
		if id < 0 || int(id) >= len(s.counts) {
			return fmt.Errorf("token %d of the history is not in the vocabulary of %d tokens", id, len(s.counts))
		}
	}
	s.touched = append(s.touched[:0], s.biased...)
	for _, id := range window {
		if s.counts[id] == 0 {
			if _, biased := slices.BinarySearch(s.biased, id); !biased {
				s.touched = append(s.touched, id)
			}
		}
		s.counts[id]++
	}
	return nil
}
