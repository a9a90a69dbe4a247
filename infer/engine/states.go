package engine

import "slices"

// states allocates the slots of recurrent state, and records which slots are snapshots. A sequence
// that has memory has a slot: the state after its last computed position. A step overwrites it, so
// a sequence can begin with a prefix of another, or go back, only to a position with a snapshot; what
// is after that is computed again. Snapshots are at multiples of every positions, after the last
// whole block of each prompt, and, of sequences that generate, after their last two blocks. Where
// slots run out, the snapshot that was used least recently is overwritten.
//
// states decides what is copied. The device copies in the order of copies, before the next step.
type states struct {
	every  int         // positions between snapshots of a prompt, a multiple of a block
	block  int         // positions in a block
	slots  []stateSlot // by slot
	clock  int64       // counts uses
	copies []stateCopy // that the device has to do
}

// stateSlot is what a slot holds.
type stateSlot struct {
	live     bool     // a sequence has it
	tokens   []int32  // of a snapshot: those that the state is after; nil: the slot holds none
	audience audience // of a snapshot: who may go on from it
	passing  bool     // of a snapshot: it is given up when the sequence that made it has two later ones
	used     int64
}

type stateCopy struct{ to, from int32 }

// noSlot is the slot of a sequence without recurrent state.
const noSlot = -1

// newStates returns count slots for sequences of up to context positions.
func newStates(count, context, block int) *states {
	every := max(8*block, (2*context/count+block-1)/block*block)
	return &states{every: every, block: block, slots: make([]stateSlot, count)}
}

// snapshot returns the slot with the longest snapshot after a prefix of tokens from which sequences of scope
// may go on, and the length of that prefix; noSlot and 0 if there is none.
func (s *states) snapshot(tokens []int32, scope string) (slot int32, length int) {
	slot = noSlot
	for i := range s.slots {
		of, by := s.slots[i].tokens, s.slots[i].audience
		if by.scope != scope && len(of) > by.public {
			continue
		}
		if len(of) > length && len(of) <= len(tokens) && slices.Equal(of, tokens[:len(of)]) {
			slot, length = int32(i), len(of)
		}
	}
	return slot, length
}

// reusable returns the prefix of tokens after which a sequence of scope can go on: all of them if s is nil,
// for a model without recurrent state.
func (s *states) reusable(tokens []int32, scope string) []int32 {
	if s == nil {
		return tokens
	}
	_, length := s.snapshot(tokens, scope)
	return tokens[:length]
}

// worthStoring returns the blocks of tokens of a sequence of scope, of which the first are those of a prompt, after which there are
// snapshots that a later prompt may go on from: the last one, after an answer, and the last of the prompt, for a
// template that writes the answer in other words into the next prompt.
func (s *states) worthStoring(tokens []int32, prompt int, scope string) (list []int) {
	for _, end := range []int{min(len(tokens), s.last(prompt)), len(tokens)} {
		if slot, length := s.snapshot(tokens[:end], scope); slot != noSlot && !slices.Contains(list, length/s.block-1) {
			list = append(list, length/s.block-1)
		}
	}
	return list
}

// add returns a slot for a snapshot after tokens, which the caller writes; noSlot if there is one, or if
// sequences have all slots.
func (s *states) add(tokens []int32, audience audience) (slot int32) {
	if twin, length := s.snapshot(tokens, audience.scope); length == len(tokens) {
		s.use(twin)
		return noSlot
	}
	if slot = s.free(); slot != noSlot {
		s.slots[slot] = stateSlot{tokens: slices.Clone(tokens), audience: audience}
		s.use(slot)
	}
	return slot
}

// take returns a slot for a sequence that goes on after snapshot from, or begins if that is noSlot.
// It returns noSlot if sequences have all slots.
func (s *states) take(from int32) int32 {
	if from != noSlot {
		s.use(from) // it is overwritten only if there is no other
	}
	slot := s.free()
	if slot == noSlot {
		return noSlot
	}
	if from != noSlot && slot != from {
		s.copies = append(s.copies, stateCopy{slot, from})
	}
	s.slots[slot] = stateSlot{live: true}
	return slot
}

// free returns a slot without a state, or the snapshot that was used least recently.
func (s *states) free() (slot int32) {
	slot = noSlot
	for i := range s.slots {
		switch x := &s.slots[i]; {
		case x.live:
		case x.tokens == nil:
			return int32(i)
		case slot == noSlot || x.used < s.slots[slot].used:
			slot = int32(i)
		}
	}
	return slot
}

// idle returns how many slots no sequence has.
func (s *states) idle() (n int) {
	for i := range s.slots {
		if !s.slots[i].live {
			n++
		}
	}
	return n
}

func (s *states) use(slot int32) {
	s.clock++
	s.slots[slot].used = s.clock
}

// release frees the slot of a sequence.
func (s *states) release(slot int32) { s.slots[slot] = stateSlot{} }

// restore sets the slot of a sequence to a snapshot.
func (s *states) restore(slot, snapshot int32) {
	if snapshot != noSlot {
		s.use(snapshot)
		s.copies = append(s.copies, stateCopy{slot, snapshot})
	}
}

// until returns the position at which the next step of a prompt has to end, so that a snapshot can
// be made there, if it computes positions from computed on.
func (s *states) until(computed, tokens int) int {
	end := computed - computed%s.every + s.every
	if last := s.last(tokens); computed < last {
		end = min(end, last)
	}
	return end
}

// last returns the end of the last whole block of tokens before the last token.
func (s *states) last(tokens int) int { return (tokens - 1) / s.block * s.block }

// save makes a snapshot of the slot of a sequence after tokens, if one is due there and slots are left. A
// passing one takes the place of the last but one of the same sequence.
func (s *states) save(slot int32, tokens []int32, audience audience, passing bool) {
	n := len(tokens)
	if n%s.block != 0 {
		return
	}
	if passing = passing && n%s.every != 0; passing {
		s.giveUp(tokens[:max(0, n-2*s.block)], audience.scope)
	}
	if twin, length := s.snapshot(tokens, audience.scope); length == n {
		s.use(twin)
		s.slots[twin].passing = s.slots[twin].passing && passing
		return
	}
	if to := s.free(); to != noSlot {
		s.copies = append(s.copies, stateCopy{to, slot})
		s.slots[to] = stateSlot{tokens: slices.Clone(tokens), audience: audience, passing: passing}
		s.use(to)
	}
}

// giveUp drops the snapshot of scope after tokens if it is passing.
func (s *states) giveUp(tokens []int32, scope string) {
	if slot, length := s.snapshot(tokens, scope); slot != noSlot && length == len(tokens) && s.slots[slot].passing {
		s.slots[slot] = stateSlot{}
	}
}

// discard drops the snapshots after prefixes of tokens of a sequence of scope, which must not reach another.
func (s *states) discard(tokens []int32, scope string) {
	for slot, length := s.snapshot(tokens, scope); slot != noSlot; slot, length = s.snapshot(tokens[:length], scope) {
		s.slots[slot] = stateSlot{}
	}
}

// takeCopies returns what the device has to copy before the next step, in order.
func (s *states) takeCopies() []stateCopy {
	copies := s.copies
	s.copies = nil
	return copies
}
