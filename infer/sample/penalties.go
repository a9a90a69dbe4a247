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

// newBias returns nil if there is no bias, and a *FieldError if a token is outside the
// vocabulary.
func newBias(p Params, vocab int) (*bias, error) {
	if len(p.LogitBias) == 0 {
		return nil, nil
	}
	b := &bias{ids: slices.Sorted(maps.Keys(p.LogitBias)), add: p.LogitBias}
	if last := b.ids[len(b.ids)-1]; int(last) >= vocab {
		return nil, &FieldError{"logit_bias", last, fmt.Sprintf("the model has no such token; its last id is %d", vocab-1)}
	}
	return b, nil
}

func (b *bias) change(id int32, logit float64) float64 { return logit + b.add[id] }

func (b *bias) lowers(id int32) bool { return b.add[id] <= 0 }

// penalties is the stage that makes tokens of the recent history less likely.
type penalties struct {
	repeat  float64
	present float64
	freq    float64
	lastN   int // -1: the whole history

	counts []int32 // by token, in the window; memory of Buffers, all zero between calls
	seen   []int32 // distinct tokens of the window in order of appearance
}

// newPenalties returns nil if the stage is off.
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
	moved, err = p.edit(s.seen, s.penalise, s.lowers)
	for _, id := range s.seen {
		s.counts[id] = 0
	}
	return moved, err
}

// count sets seen and counts.
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
	s.seen = s.seen[:0]
	for _, id := range window {
		if s.counts[id] == 0 {
			s.seen = append(s.seen, id)
		}
		s.counts[id]++
	}
	return nil
}

func (s *penalties) lowers(id int32) bool {
	return s.repeat >= 1 && s.present+float64(s.counts[id])*s.freq >= 0
}

func (s *penalties) penalise(id int32, logit float64) float64 {
	return penalise(logit, int(s.counts[id]), s.repeat, s.present, s.freq)
}
