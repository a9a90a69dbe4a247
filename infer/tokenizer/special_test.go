package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestMatchReturnsTheLongestSpecialToken(t *testing.T) {
	s := newTokenIndex([]indexed{{"<a", 1, false}, {"<ab>", 2, true}, {"<ab>c", 3, false}, {"b", 4, false}, {"<a", 5, false}, {"\xff\xff", 6, false}})
	for _, c := range []struct {
		text      string
		at        int
		parsedEnd int
		id        int32
		end       int
	}{
		{"<abx", 0, 4, 5, 2},
		{"<ab>", 0, 4, 2, 4},
		{"<ab>", 0, 3, 5, 2},
		{"<ab>c", 0, 5, 3, 5},
		{"<ab>c", 0, 0, 3, 5},
		{"<", 0, 1, -1, 0},
		{"<b", 1, 2, 4, 2},
		{"x\xff\xff", 1, 0, 6, 3},
		{"\xff", 0, 1, -1, 0},
		{"a", 0, 1, -1, 0},
	} {
		if id, end := s.match(c.text, c.at, c.parsedEnd); id != c.id || end != c.end {
			t.Errorf("%q at %d, parsed up to %d: got token %d up to %d, want %d up to %d", c.text, c.at, c.parsedEnd, id, end, c.id, c.end)
		}
	}
	if at := s.nextCandidate("xx<", 0); at != 2 {
		t.Errorf("got candidate %d, want 2", at)
	}
	if at := newTokenIndex(nil).nextCandidate("xx", 0); at != 2 {
		t.Errorf("without tokens got candidate %d, want 2", at)
	}
}

// TestMatchAgreesWithALinearSearch uses random tokens of few letters, which share prefixes.
func TestMatchAgreesWithALinearSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(most int) string {
		b := make([]byte, 1+r.IntN(most))
		for i := range b {
			b[i] = "ab\xff"[r.IntN(3)]
		}
		return string(b)
	}
	for range 300 {
		var tokens []indexed
		for id := range int32(1 + r.IntN(20)) {
			tokens = append(tokens, indexed{word(6), id, r.IntN(2) == 0})
		}
		s := newTokenIndex(slices.Clone(tokens))
		text := word(30)
		for at := range len(text) {
			parsedEnd := r.IntN(len(text) + 1)
			wantID, wantEnd := int32(-1), 0
			last := map[string]indexed{}
			for _, tok := range tokens {
				last[tok.text] = tok
			}
			for _, tok := range last {
				if end := at + len(tok.text); strings.HasPrefix(text[at:], tok.text) && end > wantEnd && (!tok.needsParsing || end <= parsedEnd) {
					wantID, wantEnd = tok.id, end
				}
			}
			if id, end := s.match(text, at, parsedEnd); id != wantID || end != wantEnd {
				t.Fatalf("%q at %d, parsed up to %d, of %v: token %d up to %d, want %d up to %d", text, at, parsedEnd, tokens, id, end, wantID, wantEnd)
			}
		}
	}
}

func TestLongSpecialTokensTakeLittleMoreMemoryThanTheirTexts(t *testing.T) {
	const n = 20_000
	tokens := make([]indexed, n)
	for i := range tokens {
		name := fmt.Sprintf("<|%d|", i)
		tokens[i] = indexed{name + strings.Repeat("x", maxSpecialBytes-len(name)), int32(i), true}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := newTokenIndex(tokens)
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(n*maxSpecialBytes/2); got > most {
		t.Errorf("%d bytes were allocated for %d bytes of text, want at most %d", got, n*maxSpecialBytes, most)
	}
	if id, _ := s.match(tokens[777].text, 0, maxSpecialBytes); id != tokens[777].id {
		t.Errorf("got token %d", id)
	}
}
