package tokenizer

import (
	"slices"
	"strings"
	"testing"
)

// wordPieceFile returns a WordPiece vocabulary small enough to compute tokens by hand.
func wordPieceFile() metadata {
	texts := []string{"[UNK]", "[CLS]", "[SEP]", "▁play", "▁pla", "ing", "in", "g", "▁!", "▁中", "▁e", "▁$", "y"}
	types := make([]int32, len(texts))
	for i := range types {
		types[i] = int32(kindNormal)
		if i < 3 {
			types[i] = int32(kindControl)
		}
	}
	return metadata{
		keyModel: "bert", keyTokens: texts, keyTypes: types,
		keyUnknown: uint64(0), keyBOS: uint64(1), keySeparator: uint64(2),
	}
}

func TestWordPieceMatchesHandComputedTokens(t *testing.T) {
	tok := mustNew(t, wordPieceFile())
	for _, c := range []struct {
		why  string
		text string
		want []int32
	}{
		{"a word is split into the longest tokens from the left", "playing", []int32{3, 5}},
		{"a continuation token does not start a word", "play ing", []int32{3, 0}},
		{"capitals are lower-cased", "PLAY", []int32{3}},
		{"accents are removed, composed or not", "é e\u0301", []int32{10, 10}},
		{"control characters are removed", "pl\x00a\u200dy\ufffd", []int32{3}},
		{"a punctuation character is a word", "play!$", []int32{3, 8, 11}},
		{"an ideograph is a word", "play中play", []int32{3, 9, 3}},
		{"a word that the tokens do not cover is unknown as a whole", "playx", []int32{0}},
		{"the text of a special token is ordinary text", "[SEP]", []int32{0, 0, 0}},
		{"a word of more than a hundred letters is unknown", "pla" + strings.Repeat("y", 97) + " pla" + strings.Repeat("y", 98), append(append([]int32{3}, slices.Repeat([]int32{12}, 96)...), 0)},
		{"white space has no tokens", " \n\u3000", nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := encode(t, tok, c.text, Options{}); !slices.Equal(got, c.want) {
				t.Errorf("%q: got %v, want %v", c.text, got, c.want)
			}
		})
	}
	ids := encode(t, tok, "play! [SEP] PLAYING", Options{AddSpecial: true, ParseSpecial: true})
	if want := []int32{1, 3, 8, 2, 3, 5, 2}; !slices.Equal(ids, want) {
		t.Errorf("with special tokens got %v, want %v", ids, want)
	}
	if got, want := tok.Decode(ids, true), "[CLS]play ![SEP]playing[SEP]"; got != want {
		t.Errorf("decoded %q, want %q", got, want)
	}
	if _, err := New(wordPieceFile().with(keySeparator, uint64(13))); err == nil {
		t.Error("a separator outside the vocabulary was accepted")
	}
}

func TestWordPieceEncodesLongRuns(t *testing.T) {
	tok := mustNew(t, wordPieceFile())
	for name, text := range categoryRuns() {
		for _, id := range encode(t, tok, text, Options{}) {
			if !tok.valid(id) {
				t.Fatalf("%s: id %d is outside the vocabulary", name, id)
			}
		}
	}
	if got := encode(t, tok, repeatTo("y", mebibyte/8), Options{}); !slices.Equal(got, []int32{0}) {
		t.Errorf("one long word: got %d tokens, want the unknown token", len(got))
	}
}
