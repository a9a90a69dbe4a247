package tokenizer

import (
	"slices"
	"sort"
	"strings"
)

// tokenIndex finds tokens by their text.
type tokenIndex struct {
	sorted      []indexed  // by text; texts are unique
	firstByByte [257]int32 // [b]: index in sorted of the first text whose first byte is at least b
}

type indexed struct {
	text         string
	id           int32
	needsParsing bool // recognised in parsed text only
}

// newTokenIndex returns an index of tokens. Of tokens with the same text it keeps the last.
func newTokenIndex(tokens []indexed) *tokenIndex {
	slices.SortStableFunc(tokens, func(a, b indexed) int { return strings.Compare(a.text, b.text) })
	s := &tokenIndex{}
	for i, t := range tokens {
		if i+1 == len(tokens) || tokens[i+1].text != t.text {
			s.sorted = append(s.sorted, t)
		}
	}
	for _, t := range s.sorted {
		s.firstByByte[int(t.text[0])+1]++
	}
	for b := range 256 {
		s.firstByByte[b+1] += s.firstByByte[b]
	}
	return s
}

// nextCandidate returns the first offset from at on where a token can start, len(text) for
// none.
func (s *tokenIndex) nextCandidate(text string, at int) int {
	for at < len(text) && s.firstByByte[text[at]] == s.firstByByte[int(text[at])+1] {
		at++
	}
	return at
}

// match returns the longest token at text[at:] and its end; id is -1 for none. Tokens that
// need parsing match only up to parsedEnd.
func (s *tokenIndex) match(text string, at, parsedEnd int) (id int32, end int) {
	id = -1
	s.prefixes(text[at:], func(t indexed) {
		if e := at + len(t.text); !t.needsParsing || e <= parsedEnd {
			id, end = t.id, e
		}
	})
	return id, end
}

// prefixes calls f for the tokens that text begins with, the shortest first, and returns how many bytes it has read. text must not
// be empty.
func (s *tokenIndex) prefixes(text string, f func(t indexed)) (read int) {
	// same holds the tokens that begin with text[:read].
	same := s.sorted[s.firstByByte[text[0]]:s.firstByByte[int(text[0])+1]]
	for read = 1; len(same) > 0; read++ {
		if t := same[0]; len(t.text) == read {
			f(t)
			same = same[1:]
		}
		if read == len(text) {
			break
		}
		same = narrow(same, read, text[read])
	}
	return read
}

// narrow returns the tokens whose text has byte b at offset at. The texts must be longer
// than at, sorted, and equal up to at.
func narrow(tokens []indexed, at int, b byte) []indexed {
	if len(tokens) == 1 {
		if tokens[0].text[at] != b {
			return nil
		}
		return tokens
	}
	from := sort.Search(len(tokens), func(i int) bool { return tokens[i].text[at] >= b })
	tokens = tokens[from:]
	return tokens[:sort.Search(len(tokens), func(i int) bool { return tokens[i].text[at] > b })]
}
