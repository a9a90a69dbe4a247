package grammar

import (
	"slices"
	"strings"
)

// Vocabulary is the tokens of a model, as a trie of what they spell. It does not
// change, and grammars share it.
type Vocabulary struct {
	size   int
	pieces []string // by id; "" for tokens that spell nothing and for end tokens
	ends   []int32
	nodes  []node  // in depth-first order
	tokens []int32 // in the order of their nodes
}

// node is one byte of the trie.
type node struct {
	skip  int32 // the next node that does not lie below
	first int32 // tokens[first:] up to first of the next node end here
	depth int32 // bytes up to here
	byte  byte
}

// NewVocabulary builds the trie of size tokens. piece returns what a token spells,
// nothing for a control token and for an id that the vocabulary does not have; end
// reports whether a token ends an answer.
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
	var path []int32 // nodes of the piece before
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
	v.nodes = append(v.nodes, node{first: int32(len(v.tokens))}) // ends the tokens of the last node
	return v
}

// leave notes where the nodes of a path end.
func (v *Vocabulary) closePath(path []int32) {
	for _, n := range path {
		v.nodes[n].skip = int32(len(v.nodes))
	}
}

// Size returns the number of tokens.
func (v *Vocabulary) Size() int { return v.size }
