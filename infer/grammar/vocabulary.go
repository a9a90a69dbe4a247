package grammar

import (
	"slices"
	"strings"
)

// Vocabulary is a trie of the tokens of a model. It is immutable; matchers share it.
type Vocabulary struct {
	size   int
	pieces []string // by id; "" for tokens without text and for end tokens
	ends   []int32  // end tokens
	nodes  []node   // in depth-first order
	tokens []int32  // in the order of their nodes
}

// node is one byte of the trie.
type node struct {
	skip  int32 // the next node that is not below this one
	first int32 // the tokens that end here are tokens[first:next node's first]
	depth int32 // bytes of the text up to this node
	byte  byte
}

// NewVocabulary returns the vocabulary of the tokens 0 to size-1. piece returns the bytes of
// a token, none for a control token and an unused id; end reports whether a token ends an
// answer.
func NewVocabulary(size int, piece func(id int32) []byte, end func(id int32) bool) *Vocabulary {
	v := &Vocabulary{size: size, pieces: make([]string, size)}
	for id := range int32(size) {
		if end(id) {
			v.ends = append(v.ends, id)
		} else if p := piece(id); len(p) > 0 {
			v.pieces[id] = string(p)
			v.tokens = append(v.tokens, id)
		}
	}
	slices.SortFunc(v.tokens, func(a, b int32) int { return strings.Compare(v.pieces[a], v.pieces[b]) })
	var path []int32 // nodes of the previous piece
	before := ""
	for i, id := range v.tokens {
		piece := v.pieces[id]
		common := 0
		for common < min(len(piece), len(before)) && piece[common] == before[common] {
			common++
		}
		v.closePath(path[common:])
		path = path[:common]
		for ; common < len(piece); common++ {
			path = append(path, int32(len(v.nodes)))
			v.nodes = append(v.nodes, node{first: int32(i), depth: int32(common + 1), byte: piece[common]})
		}
		before = piece
	}
	v.closePath(path)
	v.nodes = append(v.nodes, node{first: int32(len(v.tokens))}) // its first is the end of the last node's tokens
	return v
}

// closePath sets skip of the nodes of a path, below which no more nodes follow.
func (v *Vocabulary) closePath(path []int32) {
	for _, n := range path {
		v.nodes[n].skip = int32(len(v.nodes))
	}
}

// Size returns the number of tokens.
func (v *Vocabulary) Size() int { return v.size }
