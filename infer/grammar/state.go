package grammar

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"unsafe"
)

// state is the set of positions of a text in a grammar: the instructions that can read
// next, each with the calls that are open there. It is immutable.
type state struct {
	positions []position // at opcodeByte, opcodeRanges and opcodeToken only, sorted
	accepts   bool       // the text is complete
	key       key
}

type position struct {
	at    int32
	frame *frame
}

// frame is the set of positions to which a call returns; several in an ambiguous grammar.
// Calls of one rule at one place of the text share a frame, so that ambiguity does not
// multiply. A call at the end of a rule gets the returns of that rule, so that right
// recursion does not grow the frames. It is immutable.
type frame struct {
	returns []position // sorted; at is atEnd for the end of the grammar
	depth   int32      // open calls
	key     key
}

// atEnd is where the root rule returns to.
const atEnd = -1

// key identifies a frame, a state or a mask. It is a keyed hash of the content: two that
// differ have the same key with a probability of 2^-128.
type key [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func keyOf(positions []position, accepts bool, buffer *[]byte) (k key) {
	b := (*buffer)[:0]
	for _, p := range positions {
		b = binary.LittleEndian.AppendUint32(b, uint32(p.at))
		if p.frame != nil {
			b = binary.LittleEndian.AppendUint64(b, p.frame.key[0])
			b = binary.LittleEndian.AppendUint64(b, p.frame.key[1])
		}
	}
	if accepts {
		b = append(b, 1)
	}
	*buffer = b
	return hash(b)
}

func keyOfMask(mask []uint64, buffer *[]byte) key {
	b := (*buffer)[:0]
	for _, word := range mask {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	*buffer = b
	return hash(b)
}

func hash(b []byte) (k key) {
	for i, seed := range seeds {
		k[i] = maphash.Bytes(seed, b)
	}
	return k
}

func comparePositions(a, b position) int {
	if c := cmp.Compare(a.at, b.at); c != 0 || a.frame == nil || b.frame == nil {
		return c
	}
	return cmp.Or(cmp.Compare(a.frame.key[0], b.frame.key[0]), cmp.Compare(a.frame.key[1], b.frame.key[1]))
}

// unique sorts positions and removes duplicates.
func unique(positions []position) []position {
	slices.SortFunc(positions, comparePositions)
	return slices.CompactFunc(positions, func(a, b position) bool { return comparePositions(a, b) == 0 })
}

// stepper computes states. It reuses its buffers and counts its work.
type stepper struct {
	*program
	work       int // instructions visited
	frameBytes int // of the frames that were created

	seen           map[visit]struct{}
	todo           []position
	found          []position
	accepts        bool
	pendingReturns map[int32][]position // by rule that is called and not entered: where its calls return
	pendingRules   []int32              // those rules, in descending order
	buffer         []byte
}

// visit is a position as the key of a map.
type visit struct {
	at  int32
	key key
}

func newStepper(p *program) *stepper {
	return &stepper{program: p, seen: map[visit]struct{}{}, pendingReturns: map[int32][]position{}}
}

// start returns the state before anything is read.
func (s *stepper) start() *state {
	s.pendingReturns[s.root] = []position{{at: atEnd}}
	s.pendingRules = append(s.pendingRules, s.root)
	return s.closure()
}

// readByte returns the state after a byte; nil if the grammar does not allow it.
func (s *stepper) readByte(from *state, b byte) *state {
	for _, p := range from.positions {
		s.work++
		if out := s.after(&s.code[p.at], b); out >= 0 {
			s.todo = append(s.todo, position{out, p.frame})
		}
	}
	return s.closure()
}

// readToken returns the state after a token that the grammar names; nil if it does not
// name the token here.
func (s *stepper) readToken(from *state, id int32) *state {
	for _, p := range from.positions {
		s.work++
		if in := &s.code[p.at]; in.opcode == opcodeToken && in.arg == id {
			s.todo = append(s.todo, position{in.out, p.frame})
		}
	}
	return s.closure()
}

// merge returns the union of the states a and b, of which either may be nil.
func (s *stepper) merge(a, b *state) *state {
	for _, from := range []*state{a, b} {
		if from != nil {
			s.todo = append(s.todo, from.positions...)
			s.accepts = s.accepts || from.accepts
		}
	}
	return s.closure()
}

// closure follows the instructions that read nothing, from todo and the pending calls, and
// returns the resulting state; nil if it is empty or exceeds a limit.
func (s *stepper) closure() *state {
	s.follow()
	for len(s.pendingRules) > 0 {
		// All calls of a rule are known before it is entered, because the rules that can call
		// it before they read anything come first.
		called := s.pendingRules[len(s.pendingRules)-1]
		s.pendingRules = s.pendingRules[:len(s.pendingRules)-1]
		returns := unique(slices.Clone(s.pendingReturns[called]))
		delete(s.pendingReturns, called)
		s.work += len(returns)
		if len(returns) > maxPositions || s.exhausted() {
			s.found = s.found[:0]
			s.accepts = false
			s.pendingRules = s.pendingRules[:0]
			clear(s.pendingReturns)
			break
		}
		s.todo = append(s.todo, position{s.rules[called].start, s.newFrame(returns)})
		s.follow()
	}
	clear(s.seen)
	found, accepts := s.found, s.accepts
	s.found, s.accepts = s.found[:0], false
	if len(found) == 0 && !accepts || len(found) > maxPositions || s.exhausted() {
		return nil
	}
	positions := unique(slices.Clone(found))
	s.work += len(positions)
	return &state{positions: positions, accepts: accepts, key: keyOf(positions, accepts, &s.buffer)}
}

func (s *stepper) newFrame(returns []position) *frame {
	f := &frame{returns: returns, key: keyOf(returns, false, &s.buffer)}
	for _, r := range returns {
		if r.frame != nil {
			f.depth = max(f.depth, r.frame.depth+1)
		}
	}
	s.frameBytes += int(unsafe.Sizeof(*f)) + len(returns)*int(unsafe.Sizeof(position{}))
	return f
}

// exhausted reports whether the work exceeds the limit of one token. States computed then
// are incomplete and must not be cached.
func (s *stepper) exhausted() bool { return s.work > maxWork }

// follow continues from todo to the instructions that read something, and records the calls
// on the way. It drops positions that need more than maxDepth open calls to end, so that the
// end can be reached from every position of a state.
func (s *stepper) follow() {
	for len(s.todo) > 0 {
		if s.exhausted() {
			s.todo = s.todo[:0]
			return
		}
		p := s.todo[len(s.todo)-1]
		s.todo = s.todo[:len(s.todo)-1]
		s.work++
		in := &s.code[p.at]
		if in.minDepth > maxDepth-p.frame.depth {
			continue
		}
		v := visit{p.at, p.frame.key}
		if _, seen := s.seen[v]; seen {
			continue
		}
		s.seen[v] = struct{}{}
		switch in.opcode {
		case opcodeByte, opcodeRanges, opcodeToken:
			s.found = append(s.found, p)
		case opcodeSplit:
			for _, out := range s.splitOuts(in) {
				s.todo = append(s.todo, position{out, p.frame})
			}
		case opcodeEnd:
			for _, r := range p.frame.returns {
				if r.at == atEnd {
					s.accepts = true
				} else {
					s.todo = append(s.todo, r)
				}
			}
		case opcodeCall:
			s.call(in, p.frame)
		}
	}
}

// call records a call of a rule from frame f. If the rule is nullable, it also continues
// after the call.
func (s *stepper) call(in *instruction, f *frame) {
	called := &s.rules[in.arg]
	depth := f.depth
	if !in.tail {
		depth++
	}
	tailCall := visit{-1 - in.arg, f.key} // negative, so that it differs from positions
	if _, seen := s.seen[tailCall]; seen && in.tail {
		// The same tail call may be at the end of many alternatives.
	} else if called.minDepth <= maxDepth-depth && s.code[in.out].minDepth <= maxDepth-f.depth {
		if _, waits := s.pendingReturns[in.arg]; !waits {
			at, _ := slices.BinarySearchFunc(s.pendingRules, called.order, func(rule, order int32) int {
				return cmp.Compare(order, s.rules[rule].order) // descending
			})
			s.pendingRules = slices.Insert(s.pendingRules, at, in.arg)
		}
		if in.tail {
			s.seen[tailCall] = struct{}{}
			s.work += len(f.returns)
			s.pendingReturns[in.arg] = append(s.pendingReturns[in.arg], f.returns...)
		} else {
			s.pendingReturns[in.arg] = append(s.pendingReturns[in.arg], position{in.out, f})
		}
	}
	if called.nullable {
		s.todo = append(s.todo, position{in.out, f})
	}
}
