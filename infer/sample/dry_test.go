package sample

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSuffixMatches_EqualsComparingTokenByToken(t *testing.T) {
	var buffer []int32
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.Int32Range(1, 3).Draw(t, "tokens")
		window := rapid.SliceOfN(rapid.Int32Range(0, few), 0, 60).Draw(t, "window")
		buffer = suffixMatches(window, buffer)
		for back := range window {
			n := 0
			for back+n < len(window) && window[len(window)-1-n] == window[len(window)-1-back-n] {
				n++
			}
			if int(buffer[back]) != n {
				t.Fatalf("%v: %d tokens before the end: want %d matches, got %d", window, back, n, buffer[back])
			}
		}
		if len(buffer) != len(window) {
			t.Fatalf("got %d numbers for %d tokens", len(buffer), len(window))
		}
	})
}

// pieces is a Vocabulary with these texts.
type pieces []string

func (v pieces) Size() int             { return len(v) }
func (v pieces) Piece(id int32) []byte { return []byte(v[id]) }

func TestBreakers_EqualsSearchingTheWholeText(t *testing.T) {
	vocab := pieces{"", "a", "b", "ab", "ba", "aab", "abba", "c"}
	texts := rapid.StringOfN(rapid.SampledFrom([]rune("abc")), 1, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(texts, 0, 3).Draw(t, "texts")
		b := newBreakers(list, vocab)
		var history []int32
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			// The answer grows and is sometimes rewound.
			history = history[:rapid.IntRange(0, len(history)).Draw(t, "kept")]
			history = append(history, rapid.SliceOfN(rapid.Int32Range(1, 7), 0, 12).Draw(t, "new")...)
			got, err := b.tokensAfterLast(history)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for ; want < len(history); want++ {
				text := ""
				for _, id := range history[:len(history)-want] {
					text += vocab[id]
				}
				begin := len(text) - len(vocab[history[len(history)-want-1]])
				ends := func(breaker string) bool {
					at := strings.LastIndex(text, breaker)
					return at >= 0 && at+len(breaker) > begin
				}
				if slices.ContainsFunc(list, ends) {
					break
				}
			}
			if got != want {
				t.Fatalf("%q in %v: got %d tokens after it, want %d", list, history, got, want)
			}
		}
	})
}
