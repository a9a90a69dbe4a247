package sample

import (
	"bytes"
	"fmt"
	"math"
)

// dry is the stage that penalises tokens which would continue a repetition: if the last
// n >= allowed tokens also occur earlier in the window, the logit of the token that followed
// there is reduced by multiplier * base^(n-allowed). The longest n counts. A repetition does
// not cross a breaker, and a token that contains a breaker is not penalised.
type dry struct {
	multiplier, base float64
	allowed, lastN   int
	vocab            int
	breakers         *breakers

	matches   []int32 // result of suffixMatches
	longest   []int32 // by token: 1 + length of the longest repetition it would continue; memory of Buffers, all zero between calls
	penalised []int32 // tokens to penalise
}

// newDry returns nil if the stage is off.
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

// find sets penalised and longest, in time linear in the length of the window.
func (d *dry) find(history []int32) error {
	d.penalised = d.penalised[:0]
	window := history
	if d.lastN >= 0 {
		window = history[max(0, len(history)-d.lastN):]
	}
	limit, err := d.breakers.tokensAfterLast(history)
	if err != nil {
		return err
	}
	if limit < d.allowed {
		return nil
	}
	d.matches = suffixMatches(window, d.matches)
	for back, n := range d.matches {
		n = min(n, int32(limit))
		if back == 0 || int(n) < d.allowed {
			continue
		}
		next := window[len(window)-back]
		if d.longest[next] == 0 {
			if d.breakers.isWithin(next) {
				continue
			}
			d.penalised = append(d.penalised, next)
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

func (d *dry) lowers(int32) bool { return d.multiplier > 0 }

func (d *dry) apply(p *pool, history []int32) (moved float64, err error) {
	if err := d.find(history); err != nil {
		return 0, err
	}
	moved, err = p.edit(d.penalised, d.penalise, d.lowers)
	for _, id := range d.penalised {
		d.longest[id] = 0
	}
	return moved, err
}

// suffixMatches returns for each i the length of the longest common suffix of the window and
// the window without its last i tokens: the Z function of the reversed window. It uses the
// memory of z if it is large enough.
func suffixMatches(window []int32, z []int32) []int32 {
	n := len(window)
	if cap(z) < n {
		z = make([]int32, n, 2*n)
	}
	z = z[:n]
	at := func(i int) int32 { return window[n-1-i] }
	// [left, right) is the match found so far that ends farthest right.
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

// breakers finds the last token of a history in which one of some texts ends. It keeps its
// results for the tokens of the last history, so that only new tokens are searched.
type breakers struct {
	texts    [][]byte
	vocab    Vocabulary
	lookback int // bytes before a token that may belong to a text which ends in the token

	history  []int32        // of the last call
	lastEnd  []int32        // for each token of history: index of the last token up to it in which a text ends, or -1
	contains map[int32]bool // results of isWithin
	buffer   []byte
}

func newBreakers(texts []string, v Vocabulary) *breakers {
	b := &breakers{vocab: v, contains: map[int32]bool{}}
	for _, text := range texts {
		b.texts = append(b.texts, []byte(text))
		b.lookback = max(b.lookback, len(text)-1)
	}
	return b
}

// tokensAfterLast returns the number of tokens after the last one in which a text ends, or
// len(history) if there is none.
func (b *breakers) tokensAfterLast(history []int32) (int, error) {
	same := 0
	for same < min(len(b.history), len(history)) && b.history[same] == history[same] {
		same++
	}
	b.history, b.lastEnd = b.history[:same], b.lastEnd[:same]
	for i := same; i < len(history); i++ {
		id := history[i]
		if id < 0 || int(id) >= b.vocab.Size() {
			return 0, fmt.Errorf("token %d of the history is not in the vocabulary of %d tokens", id, b.vocab.Size())
		}
		last := int32(-1)
		if i > 0 {
			last = b.lastEnd[i-1]
		}
		b.history = append(b.history, id)
		if b.endsIn(i) {
			last = int32(i)
		}
		b.lastEnd = append(b.lastEnd, last)
	}
	if len(history) == 0 {
		return 0, nil
	}
	return len(history) - 1 - int(b.lastEnd[len(history)-1]), nil
}

// endsIn reports whether a text ends in history[i].
func (b *breakers) endsIn(i int) bool {
	if b.isWithin(b.history[i]) {
		return true
	}
	if b.lookback == 0 {
		return false
	}
	// At most lookback tokens, because a long run of empty tokens would take too long.
	from, before := i, 0
	for from > 0 && i-from < b.lookback && before < b.lookback {
		from--
		before += len(b.vocab.Piece(b.history[from]))
	}
	b.buffer = b.buffer[:0]
	for _, id := range b.history[from : i+1] {
		b.buffer = append(b.buffer, b.vocab.Piece(id)...)
	}
	for _, text := range b.texts {
		if bytes.Contains(b.buffer[max(0, before-len(text)+1):], text) {
			return true
		}
	}
	return false
}

// isWithin reports whether a token contains a whole text.
func (b *breakers) isWithin(id int32) bool {
	found, known := b.contains[id]
	if !known {
		piece := b.vocab.Piece(id)
		for _, text := range b.texts {
			found = found || bytes.Contains(piece, text)
		}
		b.contains[id] = found
	}
	return found
}
