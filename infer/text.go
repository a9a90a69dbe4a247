package infer

import (
	"strings"
	"unicode/utf8"
)

// textEdge turns token bytes into text that may be shown: whole runes only, and
// nothing that may be the beginning of a stop string.
//
// Bytes that cannot become a rune turn into U+FFFD, one for each maximal subpart:
// the longest run that begins as a rune might (Unicode 15, section 3.9). The stop
// string found is the one that is complete first, for that is where an answer must
// not go on; of two that end at the same place it is the longer. So the text never
// depends on how the bytes are cut into tokens.
type textEdge struct {
	partial []byte // beginning of a rune, at most three bytes
	held    []byte // text that may be the beginning of a stop string
	matcher *stopMatcher
	stopped string
	done    bool
}

func newTextEdge(stops []string) *textEdge {
	return &textEdge{matcher: newStopMatcher(stops)}
}

// push takes the bytes of the next token and returns the text that they release.
// If ok, a stop string is complete: text is what comes before it, and everything
// after it is dropped, later pieces included.
func (e *textEdge) push(piece []byte) (text string, stopped string, ok bool) {
	for _, b := range piece {
		if e.done {
			break
		}
		e.pushByte(b)
	}
	return e.release(), e.stopped, e.done
}

// flush ends the answer and returns the text held back until now.
func (e *textEdge) flush() string {
	if len(e.partial) > 0 && !e.done {
		e.partial = e.partial[:0]
		e.emit(utf8.RuneError)
	}
	text := string(e.held)
	e.held = nil
	return text
}

// pushByte completes, prolongs or breaks the rune that is being read.
func (e *textEdge) pushByte(b byte) {
	if len(e.partial) > 0 && !continues(e.partial, b) {
		e.partial = e.partial[:0]
		e.emit(utf8.RuneError)
		if e.done {
			return
		}
	}
	e.partial = append(e.partial, b)
	if utf8.FullRune(e.partial) {
		r, _ := utf8.DecodeRune(e.partial) // RuneError where b cannot begin a rune
		e.partial = e.partial[:0]
		e.emit(r)
	}
}

// continues says whether a beginning of a rune goes on with b. The second byte of
// some runes has a narrower range, which keeps out overlong forms, surrogates and
// what lies beyond U+10FFFF.
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

// emit appends a rune to the held text, unless it completes a stop string: then
// only what precedes the string stays.
func (e *textEdge) emit(r rune) {
	from := len(e.held)
	e.held = utf8.AppendRune(e.held, r)
	for _, b := range e.held[from:] {
		if stop := e.matcher.step(b); stop != "" {
			e.held = e.held[:len(e.held)-len(stop)]
			e.stopped, e.done = stop, true
			return
		}
	}
}

// release returns the held text except what may be the beginning of a stop string.
func (e *textEdge) release() string {
	n := len(e.held)
	if !e.done {
		n -= e.matcher.pending()
	}
	text := string(e.held[:n])
	e.held = append(e.held[:0], e.held[n:]...)
	return text
}

// stopMatcher is the automaton of Aho and Corasick over the stop strings: a trie
// whose nodes also know where to go on when the text leaves it, so that each byte
// of text is looked at once, however many strings there are.
type stopMatcher struct {
	nodes []stopNode // the first is the root
	state int32
}

type stopNode struct {
	byte    byte
	child   int32  // first child; 0: none
	sibling int32  // next child of the parent; 0: none
	fail    int32  // node of the longest proper suffix that is in the trie
	depth   int    // length of what has been read, which is the beginning of a stop string
	stop    string // longest stop string that ends here
}

// newStopMatcher leaves out empty strings: they would end every answer before it
// begins. Stop strings are text too, so that a match never splits a rune.
func newStopMatcher(stops []string) *stopMatcher {
	m := &stopMatcher{nodes: make([]stopNode, 1)}
	for _, stop := range stops {
		stop = strings.ToValidUTF8(stop, string(utf8.RuneError))
		at := int32(0)
		for _, b := range []byte(stop) {
			next := m.child(at, b)
			if next == 0 {
				next = int32(len(m.nodes))
				m.nodes = append(m.nodes, stopNode{byte: b, sibling: m.nodes[at].child, depth: m.nodes[at].depth + 1})
				m.nodes[at].child = next
			}
			at = next
		}
		m.nodes[at].stop = stop
	}
	// Breadth first, so that what a node falls back to is complete before it.
	for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
		parent := queue[0]
		for id := m.nodes[parent].child; id != 0; id = m.nodes[id].sibling {
			node := &m.nodes[id]
			if parent != 0 {
				node.fail = m.next(m.nodes[parent].fail, node.byte)
			}
			if node.stop == "" {
				node.stop = m.nodes[node.fail].stop
			}
			queue = append(queue, id)
		}
	}
	return m
}

// child returns the child of a node by one byte, or 0.
func (m *stopMatcher) child(node int32, b byte) int32 {
	id := m.nodes[node].child
	for id != 0 && m.nodes[id].byte != b {
		id = m.nodes[id].sibling
	}
	return id
}

// next returns the node of the longest suffix that is in the trie, after b.
func (m *stopMatcher) next(node int32, b byte) int32 {
	for {
		if id := m.child(node, b); id != 0 || node == 0 {
			return id
		}
		node = m.nodes[node].fail
	}
}

// step reads a byte and returns the longest stop string that ends with it, or "".
func (m *stopMatcher) step(b byte) string {
	m.state = m.next(m.state, b)
	return m.nodes[m.state].stop
}

// pending returns how many of the last bytes are the beginning of a stop string.
func (m *stopMatcher) pending() int { return m.nodes[m.state].depth }
