package engine

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// textBuffer turns the bytes of tokens into text that may be released: whole runes, and nothing
// that may be the beginning of a stop string.
//
// Bytes that cannot become a rune turn into U+FFFD, one for each maximal subpart: the longest run
// that begins as a rune might (Unicode 15, section 3.9). The stop string found is the one that is
// complete first, since an answer must not continue after it; of two that end at the same byte it
// is the longer. So the text does not depend on how the bytes are split into tokens.
//
// It also finds banned strings, and the piece in which one begins. One that is complete no later
// than a stop string counts: released pieces together never spell one.
type textBuffer struct {
	partial []byte // beginning of a rune, at most three bytes
	held    []byte // text that may be the beginning of a stop string
	stops   matcher
	stopped string
	done    bool

	bans      matcher
	pieces    int   // pushed so far
	partialAt int   // piece in which partial begins
	origins   []int // for each of the last bytes of text that may be the beginning of a banned string, the piece in which its rune begins
	banned    bool  // a banned string is complete
	bannedAt  int   // piece in which it begins
}

func newTextBuffer(stops, bans []string) *textBuffer {
	return &textBuffer{stops: newMatcher(stops), bans: newMatcher(bans)}
}

// clone returns an independent copy.
func (e *textBuffer) clone() *textBuffer {
	twin := *e
	twin.partial, twin.held, twin.origins = slices.Clone(e.partial), slices.Clone(e.held), slices.Clone(e.origins)
	return &twin
}

// resume takes over the text that the buffer of the text before this one still holds.
func (e *textBuffer) resume(before *textBuffer) {
	e.partial, e.held, e.stops = before.partial, before.held, before.stops
}

// firstOpenPiece returns the first piece that may be a part of a banned string; the number of
// pieces if none may.
func (e *textBuffer) firstOpenPiece() int {
	switch {
	case e.bans.empty():
	case len(e.origins) > 0:
		return e.origins[0]
	case len(e.partial) > 0:
		return e.partialAt
	}
	return e.pieces
}

// push takes the bytes of the next token and returns the text that it releases. If ok, a stop
// string is complete: text is what comes before it, and everything after it is dropped, later
// pieces included.
func (e *textBuffer) push(piece []byte) (text string, stopped string, ok bool) {
	for _, b := range piece {
		if e.done {
			break
		}
		e.pushByte(b)
	}
	e.pieces++
	return e.release(), e.stopped, e.stopped != ""
}

// endText counts as an empty piece that ends the text before it: the text held is returned, and
// no stop string continues across it.
func (e *textBuffer) endText() string {
	if len(e.partial) > 0 && !e.done {
		e.partial = e.partial[:0]
		e.emit(utf8.RuneError)
	}
	e.stops.state = 0
	e.pieces++
	return e.release()
}

// spells reports whether a piece completes a banned string.
func (e *textBuffer) spells(piece []byte) bool {
	e.push(piece)
	return e.banned
}

// flush ends the answer and returns the text still held.
func (e *textBuffer) flush() string {
	if len(e.partial) > 0 && !e.done {
		e.partial = e.partial[:0]
		e.emit(utf8.RuneError)
	}
	text := string(e.held)
	e.held = nil
	return text
}

// pushByte completes, extends or breaks the rune in partial.
func (e *textBuffer) pushByte(b byte) {
	if len(e.partial) > 0 && !continues(e.partial, b) {
		e.partial = e.partial[:0]
		e.emit(utf8.RuneError)
		if e.done {
			return
		}
	}
	if len(e.partial) == 0 {
		e.partialAt = e.pieces
	}
	e.partial = append(e.partial, b)
	if utf8.FullRune(e.partial) {
		r, _ := utf8.DecodeRune(e.partial) // RuneError where b cannot begin a rune
		e.partial = e.partial[:0]
		e.emit(r)
	}
}

// continues reports whether b continues the beginning of a rune. The second byte of some runes
// has a narrower range, which excludes overlong forms, surrogates and code points beyond
// U+10FFFF.
func continues(partial []byte, b byte) bool {
	low, high := byte(0x80), byte(0xbf)
	if len(partial) == 1 {
		switch partial[0] {
		case 0xe0:
			low = 0xa0
		case 0xed:
			high = 0x9f
		case 0xf0:
			low = 0x90
		case 0xf4:
			high = 0x8f
		}
	}
	return low <= b && b <= high
}

// emit appends a rune to the held text. If it completes a stop string, only the text before the
// string stays.
func (e *textBuffer) emit(r rune) {
	from := len(e.held)
	e.held = utf8.AppendRune(e.held, r)
	for _, b := range e.held[from:] {
		if e.stepBans(b); e.banned {
			e.done = true
			return
		}
		if stop := e.stops.step(b); stop != "" {
			e.held = e.held[:len(e.held)-len(stop)]
			e.stopped, e.done = stop, true
			return
		}
	}
}

// stepBans looks for banned strings that end with b, a byte of the rune that begins in piece
// partialAt.
func (e *textBuffer) stepBans(b byte) {
	if e.bans.empty() {
		return
	}
	found := e.bans.step(b)
	e.origins = append(e.origins, e.partialAt)
	if e.banned = found != ""; e.banned {
		e.bannedAt = e.origins[len(e.origins)-len(found)]
	}
	e.origins = e.origins[len(e.origins)-e.bans.pending():]
}

// release returns the held text except what may be the beginning of a stop string.
func (e *textBuffer) release() string {
	n := len(e.held)
	if !e.done {
		n -= e.stops.pending()
	}
	text := string(e.held[:n])
	e.held = append(e.held[:0], e.held[n:]...)
	return text
}

// matcher is the automaton of Aho and Corasick over a list of strings: a trie whose nodes also
// know where to continue when the text leaves it, so that each byte of text is read once, however
// many strings there are. Copies share the nodes and have a state of their own.
type matcher struct {
	nodes []matchNode // the first is the root; immutable
	state int32
}

type matchNode struct {
	byte    byte
	child   int32  // first child; 0: none
	sibling int32  // next child of the parent; 0: none
	fail    int32  // node of the longest proper suffix that is in the trie
	depth   int    // bytes from the root
	found   string // longest string that ends here
}

// newMatcher leaves out empty strings: they would end every answer before it begins. The strings
// are made valid UTF-8, as the text is, so that a match never splits a rune.
func newMatcher(list []string) matcher {
	m := matcher{nodes: make([]matchNode, 1)}
	for _, text := range list {
		text = strings.ToValidUTF8(text, string(utf8.RuneError))
		at := int32(0)
		for _, b := range []byte(text) {
			next := m.child(at, b)
			if next == 0 {
				next = int32(len(m.nodes))
				m.nodes = append(m.nodes, matchNode{byte: b, sibling: m.nodes[at].child, depth: m.nodes[at].depth + 1})
				m.nodes[at].child = next
			}
			at = next
		}
		m.nodes[at].found = text
	}
	// Breadth first: the node that fail refers to is then complete.
	for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
		parent := queue[0]
		for id := m.nodes[parent].child; id != 0; id = m.nodes[id].sibling {
			node := &m.nodes[id]
			if parent != 0 {
				node.fail = m.next(m.nodes[parent].fail, node.byte)
			}
			if node.found == "" {
				node.found = m.nodes[node.fail].found
			}
			queue = append(queue, id)
		}
	}
	return m
}

// empty reports whether there is nothing to find.
func (m *matcher) empty() bool { return len(m.nodes) == 1 }

// child returns the child of a node by one byte, or 0.
func (m *matcher) child(node int32, b byte) int32 {
	id := m.nodes[node].child
	for id != 0 && m.nodes[id].byte != b {
		id = m.nodes[id].sibling
	}
	return id
}

// next returns the node of the longest suffix that is in the trie, after b.
func (m *matcher) next(node int32, b byte) int32 {
	for {
		if id := m.child(node, b); id != 0 || node == 0 {
			return id
		}
		node = m.nodes[node].fail
	}
}

// step reads a byte and returns the longest string that ends with it, or "".
func (m *matcher) step(b byte) string {
	m.state = m.next(m.state, b)
	return m.nodes[m.state].found
}

// pending returns how many of the last bytes are the beginning of a string.
func (m *matcher) pending() int { return m.nodes[m.state].depth }
