package sample

import (
	"bytes"
	"fmt"
	"math"
)

// dry is the stage that penalises the tokens which would go on with a repetition:
// where the last n >= allowed tokens stand earlier in the window too, the token that
// followed there loses multiplier * base^(n-allowed). The longest n counts. No
// repetition goes across a breaker, and a token that has a breaker in it is not
// penalised.
type dry struct {
	multiplier, base float64
	allowed, lastN   int
	vocab            int
	breakers         *breakers

	matches []int32 // of the tokens counted from the end: how long a repetition of the end ends there
	longest []int32 // by token: length of the longest repetition it would go on with, plus 1; lent for a call, all zero before and after it
	touched []int32 // tokens that are penalised
}

// newDry returns nil where nothing can be penalised.
func newDry(p Params, v Vocabulary) *dry {
	if p.DryMultiplier == 0 || p.DryPenaltyLastN == 0 {
		return nil
	}
	return &dry{
		multiplier: p.DryMultiplier,
		base:       p.DryBase,
		allowed:    p.DryAllowedLength,
		lastN:      p.DryPenaltyLastN,
		vocab:      v.Size(),
		breakers:   newBreakers(p.DryBreakers, v),
	}
}

// find fills touched and longest. The time is linear in the length of the window.
func (d *dry) find(history []int32) error {
	d.touched = d.touched[:0]
	window := history
	if d.lastN >= 0 {
		window = history[max(0, len(history)-d.lastN):]
	}
	limit, err := d.breakers.after(history)
	if err != nil {
		return err
	}
	if limit < d.allowed {
		return nil
	}
	d.matches = matches(window, d.matches)
	for back, n := range d.matches {
		n = min(n, int32(limit))
		if back == 0 || int(n) < d.allowed {
			continue
		}
		next := window[len(window)-back]
		if d.longest[next] == 0 {
			if d.breakers.within(next) {
				continue
			}
			d.touched = append(d.touched, next)
		}
		d.longest[next] = max(d.longest[next], n+1)
	}
	return nil
}

// penalise returns the logit of a token after its penalty.
func (d *dry) penalise(id int32, logit float64) float64 {
	if d.longest[id] == 0 {
		return logit
	}
	return logit - d.multiplier*math.Pow(d.base, float64(int(d.longest[id])-1-d.allowed))
}

func (d *dry) apply(p *pool, history []int32) (moved float64, err error) {
	if err := d.find(history); err != nil {
		return 0, err
	}
	moved, err = p.edit(d.touched, d.penalise)
	for _, id := range d.touched {
		d.longest[id] = 0
	}
	return moved, err
}

// matches returns, for each number of tokens back from the end, how many tokens that
// end there are the same as at the end itself: the Z function of the reversed
// window. It is written into z, if that is long enough.
func matches(window []int32, z []int32) []int32 {
	n := len(window)
	if cap(z) < n {
		z = make([]int32, n, 2*n)
	}
	z = z[:n]
	at := func(i int) int32 { return window[n-1-i] }
	// The match of the beginning that reaches farthest is at [left, right).
	left, right := 0, 0
	for i := range z {
		if i == 0 {
			z[0] = int32(n)
			continue
		}
		length := 0
		if i < right {
			length = min(right-i, int(z[i-left]))
		}
		for i+length < n && at(length) == at(i+length) {
			length++
		}
		if i+length > right {
			left, right = i, i+length
		}
		z[i] = int32(length)
	}
	return z
}

// breakers finds the last place of a history where one of some texts ends. It
// remembers what it has seen of the history, so that a token costs little.
type breakers struct {
	texts [][]byte
	vocab Vocabulary
	reach int // bytes before a token that can be part of a text which ends in it

	seen   []int32        // tokens
	last   []int32        // of each: the last token up to it in which a text ends, or -1
	whole  map[int32]bool // tokens asked about: those that have a text in them
	buffer []byte
}

func newBreakers(texts []string, v Vocabulary) *breakers {
	b := &breakers{vocab: v, whole: map[int32]bool{}}
	for _, text := range texts {
		b.texts = append(b.texts, []byte(text))
		b.reach = max(b.reach, len(text)-1)
	}
	return b
}

// after returns how many tokens of a history come after the last one in which a text
// ends, or all of them where there is none.
func (b *breakers) after(history []int32) (int, error) {
	same := 0
	for same < min(len(b.seen), len(history)) && b.seen[same] == history[same] {
		same++
	}
	b.seen, b.last = b.seen[:same], b.last[:same]
	for i := same; i < len(history); i++ {
		id := history[i]
		if id < 0 || int(id) >= b.vocab.Size() {
			return 0, fmt.Errorf("token %d of the history is not in the vocabulary of %d tokens", id, b.vocab.Size())
		}
		last := int32(-1)
		if i > 0 {
			last = b.last[i-1]
		}
		b.seen = append(b.seen, id)
		if b.endsIn(i) {
			last = int32(i)
		}
		b.last = append(b.last, last)
	}
	if len(history) == 0 {
		return 0, nil
	}
	return len(history) - 1 - int(b.last[len(history)-1]), nil
}

// endsIn reports whether a text ends in token i of those seen.
func (b *breakers) endsIn(i int) bool {
	if b.within(b.seen[i]) {
		return true
	}
	if b.reach == 0 {
		return false
	}
	// No farther back than reach tokens: many that spell nothing would cost too much.
	from, before := i, 0
	for from > 0 && i-from < b.reach && before < b.reach {
		from--
		before += len(b.vocab.Piece(b.seen[from]))
	}
	b.buffer = b.buffer[:0]
	for _, id := range b.seen[from : i+1] {
		b.buffer = append(b.buffer, b.vocab.Piece(id)...)
	}
	for _, text := range b.texts {
		if bytes.Contains(b.buffer[max(0, before-len(text)+1):], text) {
			return true
		}
	}
	return false
}

// within reports whether a token has a whole text in it.
func (b *breakers) within(id int32) bool {
	found, known := b.whole[id]
	if !known {
		piece := b.vocab.Piece(id)
		for _, text := range b.texts {
			found = found || bytes.Contains(piece, text)
		}
		b.whole[id] = found
	}
	return found
}
