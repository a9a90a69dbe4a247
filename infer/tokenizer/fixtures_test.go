package tokenizer

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// referenceCase is a text with the ids that the model family's own library and llama.cpp
// return. Where these differ, either is accepted.
type referenceCase struct {
	Text       string   `json:"text"`
	IDs        []int32  `json:"ids"`
	Full       []int32  `json:"ids_full"`
	Library    []int32  `json:"ids_hf"`
	Normalised []int32  `json:"ids_nfc"`
	OtherBuild []int32  `json:"ids_other_build"`
	Pieces     []string `json:"pieces"`
}

// libraryFull returns the library's equivalent of Full, which the fixture lacks: Library
// between the first and the last token of Full. It is nil if Full is not IDs with one token
// added at each end.
func (c referenceCase) libraryFull() []int32 {
	at := len(c.Full) - len(c.IDs) - 1
	if c.Library == nil || at != 1 || !slices.Equal(c.Full[1:len(c.Full)-1], c.IDs) {
		return nil
	}
	return slices.Concat(c.Full[:1], c.Library, c.Full[len(c.Full)-1:])
}

type reference struct {
	Cases   []referenceCase `json:"cases"`
	Vectors []referenceCase `json:"vectors"`
}

func loadReference(t testing.TB, name string) reference {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "tokenizers", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t testing.TB, path string) *Tokenizer {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func openFixture(t testing.TB, name string) *Tokenizer {
	t.Helper()
	return open(t, fixtures.Path(t, "tokenizers", "vocab", name+".gguf"))
}

func encode(t testing.TB, tok *Tokenizer, text string, o Options) []int32 {
	t.Helper()
	ids, err := tok.Encode(context.Background(), text, o)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// fixtureVocabularies names the fixtures that have a vocabulary file and expected ids.
var fixtureVocabularies = []string{
	"gpt-2", "llama-spm", "phi-3", "baichuan", "gpt-neox", "mpt", "falcon", "refact", "starcoder", "deepseek-llm", "deepseek-coder",
	"pre-default", "pre-llama-bpe", "pre-qwen2", "pre-smollm", "pre-bloom", "pre-chatglm-bpe", "pre-command-r", "pre-dbrx",
	"pre-deepseek-v3", "pre-exaone", "pre-gpt-4o", "pre-kimi-k2", "pre-olmo", "pre-seed-coder", "pre-smaug-bpe", "pre-stablelm2",
	"pre-tekken", "pre-viking", "bert-bge",
}

func TestEncodeMatchesTheReferenceIDs(t *testing.T) {
	for _, name := range fixtureVocabularies {
		t.Run(name, func(t *testing.T) {
			ref, tok := loadReference(t, name), openFixture(t, name)
			passed, total := 0, 0
			check := func(what string, text string, got []int32, accepted ...[]int32) {
				t.Helper()
				total++
				for _, want := range accepted {
					if want != nil && slices.Equal(got, want) {
						passed++
						return
					}
				}
				t.Errorf("%s of %q:\n got %v\nwant %v", what, text, got, accepted)
			}
			for _, c := range ref.Cases {
				got := encode(t, tok, c.Text, Options{})
				check("ids", c.Text, got, c.IDs, c.Library, c.Normalised, c.OtherBuild)
				full := encode(t, tok, c.Text, Options{AddSpecial: true, ParseSpecial: true})
				check("ids_full", c.Text, full, c.Full, c.libraryFull())
			}
			for _, c := range ref.Vectors {
				check("vector", c.Text, encode(t, tok, c.Text, Options{}), c.IDs, c.Library)
			}
			fixtures.Row(t, "tokenizer ids", name, passed, total)
		})
	}
}

func TestPreTokenizersSplitAsTheReferences(t *testing.T) {
	for _, name := range fixtureVocabularies {
		pre, ok := strings.CutPrefix(name, "pre-")
		if !ok || pre == "default" { // its fixture has no pieces
			continue
		}
		t.Run(pre, func(t *testing.T) {
			passed, total := 0, 0
			for _, c := range loadReference(t, name).Cases {
				got := splitText(t, preTokenizers[pre].split, c.Text)
				total++
				if slices.Equal(got, c.Pieces) {
					passed++
				} else {
					t.Errorf("%q:\n got %q\nwant %q", c.Text, got, c.Pieces)
				}
			}
			fixtures.Row(t, "pre-tokenizer pieces", pre, passed, total)
		})
	}
}

func splitText(t testing.TB, p preTokenizer, text string) []string {
	t.Helper()
	pieces := []string{}
	err := p.split(text, func(int) error { return nil }, func(piece string) error {
		pieces = append(pieces, piece)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pieces
}
