package engine

import (
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
)

// Banned strings. Tokens are sampled freely until their text completes a banned string. Then the
// token in which the string begins is retracted, with all that follow it; it is forbidden at that
// position, and sampling continues from there. So bans change nothing in an answer in which no
// banned string would have come, and an answer with a seed stays the same whatever other answers
// share its steps.
//
// Tokens that may be retracted are buffered, not sent. A token stays forbidden at its position as
// long as the tokens before it stay, so the search terminates; the bounds below keep it short.

const (
	// maxRewinds is how often tokens are retracted before one is released. After that the answer
	// ends before the banned string.
	maxRewinds = 256

	// forbidAllAfter is how many tokens are forbidden one by one at a position before all tokens
	// that spell a banned string by themselves are. Not at once: that would change what a seed
	// draws where none of them would have come.
	forbidAllAfter = 8
)

// bufferedToken is a token of the answer that may be retracted.
type bufferedToken struct {
	event infer.Event
	text  *textBuffer // as it was before the token
}

// forbiddenTokens are the tokens that must not come at a position.
type forbiddenTokens struct {
	pos int
	ids []int32
}

// retractable holds the tokens at the end of an answer that may be retracted.
type retractable struct {
	buffered    []bufferedToken   // the last tokens
	forbiddenAt []forbiddenTokens // in order of position
	rewinds     int               // since the last token was released
	banTokens   []int32           // tokens that spell a banned string by themselves; nil: not computed yet
}

// buffer adds the newest token. before is the state of the text before it.
func (a *answer) buffer(t *infer.Token, before *textBuffer) {
	a.buffered = append(a.buffered, bufferedToken{infer.Event{Type: infer.EventToken, Token: t}, before})
}

// retract removes the tokens from the one in which the completed banned string begins, and
// forbids that one at its position. If that token was released already, because it began no
// banned string before a token after it was retracted, the first buffered token takes its place.
// id is the newest token, before the state of the text before it.
func (a *answer) retract(id int32, before *textBuffer) {
	pos := max(a.prompt+a.text.bannedAt, len(a.tokens)-len(a.buffered))
	if pos < len(a.tokens) {
		i := len(a.buffered) - (len(a.tokens) - pos)
		id, before = a.tokens[pos], a.buffered[i].text
		a.buffered, a.tokens = a.buffered[:i], a.tokens[:pos]
	}
	a.text = before
	a.constraint.rewind()
	a.rewinds++
	a.forbiddenAt = slices.DeleteFunc(a.forbiddenAt, func(b forbiddenTokens) bool { return b.pos > pos })
	if n := len(a.forbiddenAt); n == 0 || a.forbiddenAt[n-1].pos < pos {
		a.forbiddenAt = append(a.forbiddenAt, forbiddenTokens{pos: pos})
	}
	here := &a.forbiddenAt[len(a.forbiddenAt)-1]
	here.ids = append(here.ids, id)
}

// forbidden returns the tokens that must not come next.
func (a *answer) forbidden() []int32 {
	var ends []int32
	if slices.Contains(a.request.BannedEnds, a.length()) {
		ends = a.model.tokenizer.Ends()
	}
	n := len(a.forbiddenAt)
	if n == 0 || a.forbiddenAt[n-1].pos != len(a.tokens) {
		return ends
	}
	ids := slices.Concat(ends, a.forbiddenAt[n-1].ids)
	if len(a.forbiddenAt[n-1].ids) < forbidAllAfter {
		return ids
	}
	if a.banTokens == nil {
		a.banTokens = a.model.banTokens(a.request.BannedStrings)
	}
	return append(ids, a.banTokens...)
}

// banTokens returns the tokens that spell one of bans by themselves.
func (m *openModel) banTokens(bans []string) []int32 {
	ids, edge := []int32{}, newTextBuffer(nil, bans)
	for id := range int32(m.tokenizer.VocabSize()) {
		if e := *edge; e.spells(m.tokenizer.Piece(id, false)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// allow returns mask without the forbidden tokens.
func (a *answer) allow(mask sample.Mask) sample.Mask {
	ids := a.forbidden()
	if len(ids) == 0 {
		return mask
	}
	if mask = slices.Clone(mask); mask == nil {
		mask = make(sample.Mask, (a.model.config.Vocab+63)/64)
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

// endBanned ends an answer that every token would continue with a banned string.
func (a *answer) endBanned() *infer.Done {
	for {
		before := a.text.clone()
		text := a.text.flush()
		switch {
		case !a.text.banned:
			return ended(record.End{Reason: infer.FinishBanned}, text)
		case len(a.buffered) == 0: // the incomplete rune completes the banned string: drop it
			return ended(record.End{Reason: infer.FinishBanned}, string(before.held))
		}
		a.retract(0, nil)
	}
}
