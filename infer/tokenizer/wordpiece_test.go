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
		{"line feeds and tabs separate words, other control characters do not", "pl\va\fy pl\u0085a\x1cy pla\ty", []int32{3, 3, 4, 0}},
		{"spaces of all kinds separate words", "play\u00a0play\u2028play", []int32{3, 3, 3}},
		{"a ▁ in the text is not the beginning of a word", "a▁play ▁play", []int32{0, 0}},
		{"an ideograph is a word", "play中play", []int32{3, 9, 3}},
		{"a word that the tokens do not cover is unknown as a whole", "playx", []int32{0}},
		{"the text of a special token is ordinary text", "[SEP]", []int32{0, 0, 0}},
		{"a word of more than a hundred letters is unknown", "pla" + strings.Repeat("y", 97) + " pla" + strings.Repeat("y", 98), append(append([]int32{3}, slices.Repeat([]int32{12}, 96)...), 0)},
		{"white space has no tokens", " \n\u3000", nil},
		{"a byte that is not UTF-8 is removed as U+FFFD is", "pl\xffay pl\xe2\x82ay", []int32{3, 3}},
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

func TestWordPieceSpellsWordMarksOfTheTextByTokensOfTheirOwn(t *testing.T) {
	texts := []string{"[UNK]", "[CLS]", "[SEP]", "▁a", "▁the", "the", "▁", "▁▁", "b"} // in BERT's file: a, the, ##the, ##▁, ▁, ##b
	tok := mustNew(t, wordPieceFile().with(keyTokens, texts).with(keyTypes, []int32{3, 3, 3, 1, 1, 1, 1, 1, 1}))
	for text, want := range map[string][]int32{
		"a▁the": {3, 6, 5}, "a▁": {3, 6}, "▁": {7}, "▁b": {7, 8}, "▁the": {7, 5}, "bb": {0},
	} {
		if got := encode(t, tok, text, Options{}); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
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

// The defaults are those of llama.cpp; what the keys do is what BERT's normaliser does with
// the options of the same names.
func TestWordPieceNormalisesTextAsTheFileSays(t *testing.T) {
	texts := []string{"[UNK]", "[CLS]", "[SEP]", "▁cafe", "▁Cafe", "▁café", "▁Café", "▁CAFÉ", "▁CAFE"}
	types := []int32{3, 3, 3, 1, 1, 1, 1, 1, 1}
	file := metadata{keyModel: "bert", keyTokens: texts, keyTypes: types, keyUnknown: uint64(0), keyBOS: uint64(1), keySeparator: uint64(2)}
	for name, c := range map[string]struct {
		file metadata
		want []int32 // of "Café CAFÉ"
	}{
		"a file without options is for a model without capitals and accents": {file, []int32{3, 3}},
		"lower-cased and stripped":   {file.with(keyLowercase, true).with(keyStripAccents, true), []int32{3, 3}},
		"lower-cased, with accents":  {file.with(keyLowercase, true).with(keyStripAccents, false), []int32{5, 5}},
		"with capitals and accents":  {file.with(keyLowercase, false), []int32{6, 7}},
		"with capitals and stripped": {file.with(keyLowercase, false).with(keyStripAccents, true), []int32{4, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := encode(t, mustNew(t, c.file), "Café CAFÉ", Options{}); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	if got := encode(t, mustNew(t, file.with(keyLowercase, false)), "Cafe\u0301", Options{}); !slices.Equal(got, []int32{0}) {
		t.Errorf("got %v for an accent of its own, want the unknown token: without stripping nothing is composed or decomposed", got)
	}
	if _, err := New(file.with(keyLowercase, uint64(1))); err == nil {
		t.Error("an option that is no bool was accepted")
	}
}

func TestWordPieceBeginsWithTheTokenForClassification(t *testing.T) {
	file := wordPieceFile()
	delete(file, keyBOS)
	for name, c := range map[string]struct {
		file metadata
		want []int32 // of "play"
	}{
		"which the file names":               {file.with(keyCLS, uint64(1)), []int32{1, 3, 2}},
		"unless it names a beginning":        {file.with(keyCLS, uint64(5)).with(keyBOS, uint64(1)), []int32{1, 3, 2}},
		"which is not in a vocabulary of 13": {file, []int32{3, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := encode(t, mustNew(t, c.file), "play", Options{AddSpecial: true}); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
