package grammar

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// Errors of a Matcher, after which the answer cannot be continued.
var (
	// ErrNoToken is returned if the vocabulary cannot spell what the grammar requires next.
	ErrNoToken = errors.New("the grammar allows no token of this model's vocabulary here")

	// ErrTooComplex is returned if the work for one token exceeds its limit.
	ErrTooComplex = errors.New("the grammar is too ambiguous to be followed: too many of its alternatives are possible at once")
)

// Matcher constrains answers to a grammar, in the tokens of one vocabulary. All answers
// share its cache, whose size is limited and does not affect results. It is safe for
// concurrent use.
type Matcher struct {
	program *program
	vocab   *Vocabulary

	mu      sync.Mutex
	stepper *stepper

	// The known states form an automaton: row i of table has the transitions of states[i],
	// one for each class of bytes.
	states []*state
	index  map[key]int32
	table  []transition
	path   []int32 // buffer of fill
	call   uint32  // number of the current call of a method

	masks    map[key][]uint64 // by state
	distinct map[key][]uint64 // by their bits, because many states have the same mask
	spare    []uint64         // a mask that can be reused
	weight   int              // bytes of states, table and masks
}

// transition is the effect of a byte of a class in a state.
type transition struct {
	next int32  // unknown, dead, or the row of the next state + alive
	work int32  // that computing it takes
	call uint32 // the last call that counted the work
}

const (
	unknown = 0 // not computed
	dead    = 1 // the grammar does not allow the byte
	alive   = 2
)

// State is the state of one answer. It is immutable, so that an answer can be resumed from
// an earlier token.
type State struct{ s *state }

// NewMatcher returns a matcher of g for the tokens of v. It returns an error if g names a
// token that v does not have.
func NewMatcher(g *Grammar, v *Vocabulary) (*Matcher, error) {
	for _, in := range g.program.code {
		if in.opcode == opcodeToken && int(in.arg) >= v.size {
			return nil, fmt.Errorf("the grammar names token %d, but the model has %d tokens", in.arg, v.size)
		}
	}
	m := &Matcher{program: g.program, vocab: v, stepper: newStepper(g.program)}
	m.reset()
	return m, nil
}

func (m *Matcher) reset() {
	m.states, m.table, m.weight, m.stepper.frameBytes = nil, nil, 0, 0
	m.index = map[key]int32{}
	m.masks = map[key][]uint64{}
	m.distinct = map[key][]uint64{}
}

// beginCall starts counting the work of a call, and clears a cache that is too large.
func (m *Matcher) beginCall() {
	if m.call++; m.weight > maxCached || m.call == 0 {
		m.reset()
	}
	m.stepper.work = 0
}

// Bytes returns the approximate memory of the matcher: its grammar and its cache, without
// the vocabulary.
func (m *Matcher) Bytes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return matcherBytes + m.program.bytes() + m.weight
}

// matcherBytes is the approximate memory of an empty matcher without its grammar.
const matcherBytes = 1 << 10

// Start returns the state before the first token.
func (m *Matcher) Start() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beginCall()
	return State{m.stepper.start()}
}

// Complete reports whether the text may end here and nothing can follow.
func (s State) Complete() bool { return s.s.accepts && len(s.s.positions) == 0 }

// Accepts reports whether the text may end here.
func (s State) Accepts() bool { return s.s.accepts }

// Next returns the state after a token. It returns an error for a token that Mask does not
// allow, for an end token that the grammar does not name, or ErrTooComplex.
func (m *Matcher) Next(s State, token int32) (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beginCall()
	next := m.readToken(s.s, token)
	if err := m.workError(); err != nil {
		return State{}, err
	}
	if next == nil {
		return State{}, fmt.Errorf("the grammar does not allow token %d here", token)
	}
	return State{next}, nil
}

// textChunk is how many bytes of a text count as one token for the limit of work.
const textChunk = 64

// NextText returns the state after the bytes of a text, which need not end where a token does. It returns an error that
// names the byte from which the grammar does not allow it, or ErrTooComplex.
func (m *Matcher) NextText(s State, text string) (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for from := 0; from < len(text); from += textChunk {
		m.beginCall()
		chunk := text[from:min(len(text), from+textChunk)]
		next := m.readText(s.s, chunk)
		if err := m.workError(); err != nil {
			return State{}, err
		}
		if next == nil {
			return State{}, m.mismatch(s.s, chunk, from)
		}
		s.s = next
	}
	return s, nil
}

// mismatch returns the error of a text that the grammar does not allow after s; before is how many bytes came before it.
func (m *Matcher) mismatch(s *state, text string, before int) error {
	n := 1
	for n < len(text) && m.readText(s, text[:n]) != nil {
		n++
	}
	return fmt.Errorf("the grammar does not allow byte %d, %q", before+n, text[n-1:n])
}

func (m *Matcher) readToken(s *state, token int32) *state {
	if token < 0 || int(token) >= m.vocab.size {
		return nil
	}
	named := m.stepper.readToken(s, token)
	spelled := m.readText(s, m.vocab.pieces[token])
	switch {
	case named == nil:
		return spelled
	case spelled == nil:
		return named
	}
	return m.stepper.merge(named, spelled)
}

// readText returns the state after the bytes of a token; nil if the grammar does not allow
// them or there are none.
func (m *Matcher) readText(s *state, text string) *state {
	if text == "" {
		return nil
	}
	at := m.row(s)
	for i := range len(text) {
		if at = m.step(at, m.program.classOf[text[i]]); at < 0 {
			return nil
		}
	}
	return m.states[at]
}

func (m *Matcher) workError() error {
	if m.stepper.exhausted() {
		return ErrTooComplex
	}
	return nil
}

// row returns the row of s in the table, and adds it if it is new.
func (m *Matcher) row(s *state) int32 {
	at, ok := m.index[s.key]
	if !ok {
		at = int32(len(m.states))
		m.index[s.key] = at
		m.states = append(m.states, s)
		m.table = append(m.table, make([]transition, len(m.program.classByte))...)
		m.weight += len(m.program.classByte)*int(unsafe.Sizeof(transition{})) + stateBytes + len(s.positions)*int(unsafe.Sizeof(position{})) + m.stepper.frameBytes
		m.stepper.frameBytes = 0
	}
	return at
}

// stateBytes is the approximate memory of a state and its index entry, without positions.
const stateBytes = 120

// step returns the row of the state after a byte of a class; -1 if the byte is not allowed
// or the work is exhausted. A call counts the work of each transition once, even if it is
// cached, so that the limit does not depend on the cache.
func (m *Matcher) step(at int32, class uint8) int32 {
	entry := int(at)*len(m.program.classByte) + int(class)
	t := &m.table[entry]
	if t.call == m.call {
		return t.next - alive
	}
	if t.next == unknown {
		t = m.computeTransition(at, class, entry)
	} else {
		m.stepper.work += int(t.work)
	}
	if m.stepper.exhausted() {
		return -1
	}
	t.call = m.call
	return t.next - alive
}

// computeTransition computes an entry of the table. The entry stays unknown if the work of
// the call is exhausted.
func (m *Matcher) computeTransition(at int32, class uint8, entry int) *transition {
	before := m.stepper.work
	m.stepper.work += len(m.program.classByte)
	next := int32(dead)
	s := m.stepper.readByte(m.states[at], m.program.classByte[class])
	if s != nil {
		next = m.row(s) + alive // may reallocate the table
	}
	t := &m.table[entry]
	if !m.stepper.exhausted() {
		t.next, t.work = next, int32(m.stepper.work-before)
	}
	return t
}

// CachedMask returns the mask of s, as Mask does, if it is cached.
func (m *Matcher) CachedMask(s State) (mask []uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mask, ok = m.masks[s.s.key]
	return mask, ok
}

// Mask returns the mask of the tokens that may come next: token i is bit i%64 of element
// i/64. End tokens are allowed where the text may end. The mask is shared: the caller must
// not write to it. Mask returns ErrTooComplex, or ErrNoToken if no token is allowed and the
// text may not end.
func (m *Matcher) Mask(s State) ([]uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beginCall()
	if mask, ok := m.masks[s.s.key]; ok {
		return mask, nil
	}
	mask := m.spare
	if m.spare = nil; mask == nil {
		mask = make([]uint64, (m.vocab.size+63)/64)
	}
	clear(mask)
	any, err := m.fill(mask, s.s)
	switch {
	case err != nil:
		return nil, err
	case !any && !s.s.accepts:
		return nil, ErrNoToken
	}
	return m.cacheMask(s.s, mask), nil
}

// cacheMask caches the mask of s and returns it, or an equal mask that is cached already.
func (m *Matcher) cacheMask(s *state, mask []uint64) []uint64 {
	k := keyOfMask(mask, &m.stepper.buffer)
	if same, ok := m.distinct[k]; ok {
		m.spare, mask = mask, same
	} else {
		m.distinct[k] = mask
		m.weight += len(mask) * 8
	}
	m.masks[s.key] = mask
	m.weight += int(unsafe.Sizeof(key{}) + unsafe.Sizeof(mask))
	return mask
}

// fill sets the bits of the tokens that may follow s.
func (m *Matcher) fill(mask []uint64, s *state) (any bool, err error) {
	allow := func(id int32) {
		mask[id/64] |= 1 << (id % 64)
		any = true
	}
	for _, p := range s.positions {
		in := &m.program.code[p.at]
		if in.opcode == opcodeToken {
			allow(in.arg)
		}
	}
	if s.accepts {
		for _, id := range m.vocab.ends {
			allow(id)
		}
	}
	nodes, tokens := m.vocab.nodes, m.vocab.tokens
	path := append(m.path[:0], m.row(s)) // states by depth
	for at := int32(0); int(at) < len(nodes)-1; {
		n := nodes[at]
		next := m.step(path[n.depth-1], m.program.classOf[n.byte])
		if next < 0 {
			if err := m.workError(); err != nil {
				return false, err
			}
			at = n.skip
			continue
		}
		path = append(path[:n.depth], next)
		at++
		for _, id := range tokens[n.first:nodes[at].first] {
			allow(id)
		}
	}
	m.path = path
	return any, m.workError()
}
