package tokenizer

import (
	"context"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
)

// TestMessageContentNeverBecomesSpecialTokens puts the text of every special token of every
// vocabulary into the content of a message of each role: at the start, in the middle, at
// the end, twice, split into two spans, and with the template text completing it.
func TestMessageContentNeverBecomesSpecialTokens(t *testing.T) {
	for _, name := range append([]string{"guide"}, fixtureVocabularies...) {
		t.Run(name, func(t *testing.T) {
			tok := openVocabulary(t, name)
			checked, kept := 0, 0
			for id := range int32(tok.VocabSize()) {
				if !tok.vocab.needsParsing(id) {
					continue
				}
				special := tok.Text(id)
				half := len(special) / 2
				for _, content := range [][]string{
					{special + " tail"}, {"head " + special + " tail"}, {"head" + special}, {special + special},
					{special[:half], special[half:]}, {special[:half]},
				} {
					checked++
					if checkContent(t, tok, special[half:], content) {
						kept++
					}
				}
			}
			fixtures.Row(t, "special tokens as text", name, kept, checked)
		})
	}
}

// checkContent encodes content between template text, of which the part after the content
// begins with follows, and reports whether the result has as many special tokens as with
// harmless content.
func checkContent(t *testing.T, tok *Tokenizer, follows string, content []string) bool {
	t.Helper()
	for _, role := range []string{"system", "user", "assistant", "tool"} {
		opening, closing := role+"\n", follows+"\n"
		count := func(content ...string) int {
			spans := []Span{{opening, true}}
			for _, c := range content {
				spans = append(spans, Span{c, false})
			}
			ids, err := tok.EncodeSpans(context.Background(), append(spans, Span{closing, true}), false)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, id := range ids {
				if tok.vocab.needsParsing(id) {
					n++
				}
			}
			return n
		}
		if got, want := count(content...), count("harmless"); got != want {
			t.Errorf("content %q of role %s: %d special tokens, want %d", content, role, got, want)
			return false
		}
	}
	return true
}

// openVocabulary opens the vocabulary of the built-in model ("guide") or of a fixture.
func openVocabulary(t testing.TB, name string) *Tokenizer {
	t.Helper()
	if name == "guide" {
		return open(t, "../guide/guide-q8_0.gguf")
	}
	return openFixture(t, name)
}

func TestTheBuiltInModelHasItsSpecialTokens(t *testing.T) {
	tok := openVocabulary(t, "guide")
	if tok.VocabSize() != 4096 || tok.AddsBOS() {
		t.Errorf("got %d tokens, AddsBOS %v, want 4096, false", tok.VocabSize(), tok.AddsBOS())
	}
	for id, text := range []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"} {
		id := int32(id)
		if tok.Text(id) != text || !tok.IsControl(id) || tok.IsEnd(id) != (text != "<|im_start|>") {
			t.Errorf("token %d is %q, control %v, end %v", id, tok.Text(id), tok.IsControl(id), tok.IsEnd(id))
		}
	}
	prompt := "<|im_start|>user\nHello, how are you?<|im_end|>\n<|im_start|>assistant\n"
	ids := encode(t, tok, prompt, Options{AddSpecial: true, ParseSpecial: true})
	var control []int32
	for _, id := range ids {
		if tok.IsControl(id) {
			control = append(control, id)
		}
	}
	if want := []int32{1, 2, 1}; !slices.Equal(control, want) {
		t.Errorf("the control tokens are %v, want %v", control, want)
	}
	if got := tok.Decode(ids, true); got != prompt {
		t.Errorf("%q was decoded as %q", prompt, got)
	}
	if got, want := tok.Decode(ids, false), "user\nHello, how are you?\nassistant\n"; got != want {
		t.Errorf("without control tokens got %q, want %q", got, want)
	}
}

// TestMergesOfTheBuiltInModelMatchTheDefinition compares with naiveMerge on real words.
func TestMergesOfTheBuiltInModelMatchTheDefinition(t *testing.T) {
	tok := openVocabulary(t, "guide")
	ranks := map[[2]string]float64{}
	for _, m := range tok.algorithm.(*bytePair).merges.slots {
		if m.pair != freeSlot {
			ranks[[2]string{tok.Text(int32(m.pair >> 32)), tok.Text(int32(uint32(m.pair)))}] = float64(m.rank)
		}
	}
	text := `Sampling with a low temperature makes the playground's answers more predictable; don't expect 1,234 of them to differ.
	Übung macht den Meister — 練習は完璧を作る 😀.`
	var want []int32
	for _, piece := range splitText(t, preTokenizers["smollm"].split, text) {
		var symbols []string
		for _, b := range []byte(piece) {
			symbols = append(symbols, string(byteRunes[b]))
		}
		for _, s := range naiveMerge(symbols, func(l, r string) (float64, bool) {
			rank, ok := ranks[[2]string{l, r}]
			return rank, ok
		}) {
			want = append(want, int32(slices.Index(tok.vocab.texts, s)))
		}
	}
	if got := encode(t, tok, text, Options{}); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestPiecesOfFixtureTextsConcatenateToTheText(t *testing.T) {
	for _, name := range fixtureVocabularies {
		if name == "bert-bge" {
			continue // WordPiece does not keep the text
		}
		t.Run(name, func(t *testing.T) {
			tok := openVocabulary(t, name)
			var expect func(text string) (whole, pieces string)
			switch a := tok.algorithm.(type) {
			case *sentencePiece:
				expect = func(text string) (string, string) {
					text = strings.ReplaceAll(text, spaceMark, " ") // SentencePiece writes both the same
					if text == "" {
						return "", ""
					}
					return text, " " + text
				}
			case *bytePair:
				expect = func(text string) (string, string) {
					var kept []byte
					for _, b := range []byte(text) {
						if a.byteTokens[b] >= 0 {
							kept = append(kept, b)
						}
					}
					return string(kept), string(kept)
				}
			}
			for _, c := range loadReference(t, name).Cases {
				if strings.Contains(c.Text, "</s>") && name == "phi-3" {
					continue // </s> includes the space after it
				}
				ids := encode(t, tok, c.Text, Options{})
				var pieces []byte
				for _, id := range ids {
					pieces = append(pieces, tok.Piece(id, true)...)
				}
				wantText, wantPieces := expect(c.Text)
				if got := tok.Decode(ids, true); got != wantText {
					t.Errorf("%q was decoded as %q", c.Text, got)
				}
				if string(pieces) != wantPieces {
					t.Errorf("the pieces of %q are %q", c.Text, pieces)
				}
			}
		})
	}
}
