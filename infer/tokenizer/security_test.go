package tokenizer

import (
	"context"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
)

// TestContentNeverBecomesControlTokens puts every special token of every vocabulary
// at the beginning, in the middle, at the end, twice over, cut in two spans and
// completed by the template into the content of a message, in the places where a
// template puts the content of each role.
func TestContentNeverBecomesControlTokens(t *testing.T) {
	for _, name := range append([]string{"guide"}, fixtureVocabularies...) {
		t.Run(name, func(t *testing.T) {
			tok := openNamed(t, name)
			checked, kept := 0, 0
			for id := range int32(tok.VocabSize()) {
				if !tok.vocab.parsedOnly(id) {
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

// checkContent encodes content between template text, the text behind beginning with
// follows, and compares with content that has no special token in it: none may be
// there that is not there either.
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
				if tok.vocab.parsedOnly(id) {
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

// openNamed opens the built-in model's vocabulary or that of a fixture.
func openNamed(t testing.TB, name string) *Tokenizer {
	t.Helper()
	if name == "guide" {
		return open(t, "../guide/guide-q8_0.gguf")
	}
	return openFixture(t, name)
}

func TestTheSpecialTokensOfTheBuiltInModel(t *testing.T) {
	tok := openNamed(t, "guide")
	if tok.VocabSize() != 4096 || tok.AddsBOS() {
		t.Errorf("%d tokens, BOS is added: %v", tok.VocabSize(), tok.AddsBOS())
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
		t.Errorf("%q came back as %q", prompt, got)
	}
	if got, want := tok.Decode(ids, false), "user\nHello, how are you?\nassistant\n"; got != want {
		t.Errorf("without control tokens it is %q, want %q", got, want)
	}
}

// TestTheBuiltInModelMergesByTheDefinition compares with the merges read from the
// file and applied one after the other, to real words.
func TestTheBuiltInModelMergesByTheDefinition(t *testing.T) {
	tok := openNamed(t, "guide")
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
		for _, s := range slowMerge(symbols, func(l, r string) (float64, bool) {
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

func TestPiecesOfFixtureTextsAreTheText(t *testing.T) {
	for _, name := range fixtureVocabularies {
		if name == "bert-bge" {
			continue // WordPiece does not keep the text
		}
		t.Run(name, func(t *testing.T) {
			tok := openNamed(t, name)
			var expect func(text string) (whole, pieces string)
			switch a := tok.algorithm.(type) {
			case *sentencePiece:
				expect = func(text string) (string, string) {
					text = strings.ReplaceAll(text, spaceMark, " ") // both are one to SentencePiece
					if text == "" {
						return "", ""
					}
					return text, " " + text
				}
			case *bytePair:
				expect = func(text string) (string, string) {
					var kept []byte
					for _, b := range []byte(text) {
						if a.bytes[b] >= 0 {
							kept = append(kept, b)
						}
					}
					return string(kept), string(kept)
				}
			}
			for _, c := range loadReference(t, name).Cases {
				if strings.Contains(c.Text, "</s>") && name == "phi-3" {
					continue // swallows the space behind it
				}
				ids := encode(t, tok, c.Text, Options{})
				var pieces []byte
				for _, id := range ids {
					pieces = append(pieces, tok.Piece(id, true)...)
				}
				wantText, wantPieces := expect(c.Text)
				if got := tok.Decode(ids, true); got != wantText {
					t.Errorf("%q came back as %q", c.Text, got)
				}
				if string(pieces) != wantPieces {
					t.Errorf("the pieces of %q are %q", c.Text, pieces)
				}
			}
		})
	}
}
