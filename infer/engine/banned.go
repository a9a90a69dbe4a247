package engine

import (
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
)

// Banned strings. An answer is written as without them until one is complete. Then
// the token in which it begins is taken back, with all that follow it; it must not
// come at that position, and sampling goes on from there. So an answer in which none
// would have come is the same as without them, and one with a seed is the same
// whoever shares its steps.
//
// Tokens that may be taken back are buffered, not sent. That a position
// forbids a token holds as long as the tokens in front of it stay, so that the search
// comes to an end; bounds see to it that it does so soon.

const (
	// maxRewinds is how often tokens are taken back before one is released. After that
	// the answer ends in front of the banned string.
	maxRewinds = 256

	// patience is how many tokens are tried and forbidden at one position before all
	// that spell a banned string by themselves are. Not at once: that would change
	// what a seed draws where none of them would have come.
	patience = 8
)

// bufferedToken is a token of the answer that may be taken back.
type bufferedToken struct {
	event infer.Event
	text  *textEdge // as it was before the token
}

// barrier says which tokens must not come at a position.
type barrier struct {
	pos int
	ids []int32
}

// retractable is the end of an answer that may be taken back.
type retractable struct {
	buffered []bufferedToken // the last tokens
	barriers []barrier       // by position
	rewinds  int             // since a token was released
	spelling []int32         // tokens that spell a banned string by themselves, once they are looked for
}

// buffer keeps the newest token, before which the text was as given.
func (a *answer) buffer(t *infer.Token, before *textEdge) {
	a.buffered = append(a.buffered, bufferedToken{infer.Event{Type: infer.EventToken, Token: t}, before})
}

// takeBack takes the text back to where the banned string begins that it holds, and
// forbids the token in which it begins. Where that one was released, because it began
// none in the light of a token that was taken back since, it is the first that was not.
// id is the newest token, before which the text was as given.
func (a *answer) takeBack(id int32, before *textEdge) {
	pos := max(a.prompt+a.text.bannedAt, len(a.tokens)-len(a.buffered))
	if pos < len(a.tokens) {
		i := len(a.buffered) - (len(a.tokens) - pos)
		id, before = a.tokens[pos], a.buffered[i].text
		a.buffered, a.tokens = a.buffered[:i], a.tokens[:pos]
	}
	a.text = before
	a.form.rewind()
	a.rewinds++
	a.barriers = slices.DeleteFunc(a.barriers, func(b barrier) bool { return b.pos > pos })
	if n := len(a.barriers); n == 0 || a.barriers[n-1].pos < pos {
		a.barriers = append(a.barriers, barrier{pos: pos})
	}
	here := &a.barriers[len(a.barriers)-1]
	here.ids = append(here.ids, id)
}

// forbidden returns the tokens that must not come next.
func (a *answer) forbidden() []int32 {
	n := len(a.barriers)
	if n == 0 || a.barriers[n-1].pos != len(a.tokens) {
		return nil
	}
	ids := a.barriers[n-1].ids
	if len(ids) < patience {
		return ids
	}
	if a.spelling == nil {
		a.spelling = a.source.spelling(a.request.BannedStrings)
	}
	return slices.Concat(ids, a.spelling)
}

// spelling returns the tokens that spell one of bans by themselves.
func (s *source) spelling(bans []string) []int32 {
	ids, edge := []int32{}, newTextEdge(nil, bans)
	for id := range int32(s.tokenizer.VocabSize()) {
		if e := *edge; e.spells(s.tokenizer.Piece(id, false)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// allow returns the tokens that may come next: those of mask without forbidden ones.
func (a *answer) allow(mask sample.Mask) sample.Mask {
	ids := a.forbidden()
	if len(ids) == 0 {
		return mask
	}
	if mask = slices.Clone(mask); mask == nil {
		mask = make(sample.Mask, (a.source.config.Vocab+63)/64)
		for i := range mask {
			mask[i] = ^uint64(0)
		}
	}
	for _, id := range ids {
		if word := int(id / 64); word < len(mask) {
			mask[word] &^= 1 << (id % 64)
		}
	}
	return mask
}

// blocked ends an answer that can only go on with a banned string.
func (a *answer) blocked() *infer.Done {
	for {
		before := a.text.clone()
		text := a.text.flush()
		switch {
		case !a.text.banned:
			return ended(record.End{Reason: infer.FinishBanned}, text)
		case len(a.buffered) == 0: // half a rune is one: it is left out
			return ended(record.End{Reason: infer.FinishBanned}, string(before.held))
		}
		a.takeBack(0, nil)
	}
}
