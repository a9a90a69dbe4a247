package sample

import (
	"fmt"
	"maps"
	"slices"
)

// bias is the stage that adds to the logits of some tokens.
type bias struct {
	ids []int32 // ascending
	add map[int32]float64
}

// newBias returns nil where there is none. A bias for a token outside the vocabulary
// is a *FieldError.
func newBias(p Params, vocab int) (*bias, error) {
	if len(p.LogitBias) == 0 {
		return nil, nil
	}
	b := &bias{ids: slices.Sorted(maps.Keys(p.LogitBias)), add: p.LogitBias}
	if last := b.ids[len(b.ids)-1]; int(last) >= vocab {
		return nil, &FieldError{"logit_bias", last, fmt.Sprintf("the model has no such token; ids end at %d", vocab-1)}
	}
	return b, nil
}

func (b *bias) change(id int32, logit float64) float64 { return logit + b.add[id] }

// penalties is the stage that makes tokens less likely which stand in the last tokens
// of the history.
type penalties struct {
	repeat  float64
	present float64
	freq    float64
	lastN   int // -1: the whole history

	counts  []int32 // of each token in the window; lent for a call, all zero before and after it
	touched []int32 // tokens of the window in order of appearance
}

// newPenalties returns nil where nothing can change a logit.
func newPenalties(p Params) *penalties {
	if p.RepeatLastN == 0 || p.RepeatPenalty == 1 && p.PresencePenalty == 0 && p.FrequencyPenalty == 0 {
		return nil
	}
	return &penalties{
		repeat:  p.RepeatPenalty,
		present: p.PresencePenalty,
		freq:    p.FrequencyPenalty,
		lastN:   p.RepeatLastN,
	}
}

func (s *penalties) apply(p *pool, history []int32) (moved float64, err error) {
	if err := s.count(history); err != nil {
		return 0, err
	}
	moved, err = p.edit(s.touched, s.penalise)
	for _, id := range s.touched {
		s.counts[id] = 0
	}
	return moved, err
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
	s.touched = s.touched[:0]
	for _, id := range window {
		if s.counts[id] == 0 {
			s.touched = append(s.touched, id)
		}
		s.counts[id]++
	}
	return nil
}

func (s *penalties) penalise(id int32, logit float64) float64 {
	return penalise(logit, int(s.counts[id]), s.repeat, s.present, s.freq)
}
