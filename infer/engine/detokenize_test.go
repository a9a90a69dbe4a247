package engine

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/tokenizer"
)

// TestTheChunksOfAnAnswerAreItsDecodedWhole streams the tokens of the reference texts,
// and tokens drawn at random, of every vocabulary: what is shown token by token is
// whole runes and, put together, the bytes of the tokens, which is what decoding all
// of them gives, but for the spaces that SentencePiece and WordPiece put before words.
func TestTheChunksOfAnAnswerAreItsDecodedWhole(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(fixtures.Path(t, "tokenizers", "vocab"), "*.gguf"))
	if err != nil || len(files) < 25 {
		t.Fatalf("%d vocabularies, %v", len(files), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".gguf")
		t.Run(name, func(t *testing.T) {
			tok := openVocabulary(t, path)
			r := rand.New(rand.NewPCG(1, 2))
			sequences := referenceIDs(t, name)
			for range 40 {
				ids := make([]int32, r.IntN(80))
				for i := range ids {
					ids[i] = int32(r.IntN(tok.VocabSize()))
				}
				sequences = append(sequences, ids)
			}
			for _, ids := range sequences {
				checkChunks(t, tok, ids)
			}
		})
	}
}

func openVocabulary(t *testing.T, path string) *tokenizer.Tokenizer {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := tokenizer.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// referenceIDs are the ids of some texts of a fixture.
func referenceIDs(t *testing.T, name string) (sequences [][]int32) {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "tokenizers", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		Cases []struct {
			IDs  []int32 `json:"ids"`
			Full []int32 `json:"ids_full"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &reference); err != nil {
		t.Fatal(err)
	}
	for i, c := range reference.Cases {
		if i%4 == 0 || fixtures.Torture() {
			sequences = append(sequences, c.IDs, c.Full)
		}
	}
	return sequences
}

func checkChunks(t *testing.T, tok *tokenizer.Tokenizer, ids []int32) {
	t.Helper()
	edge := newTextBuffer(nil, nil)
	var shown strings.Builder
	var spelled []byte
	chunk := func(text string) {
		if !utf8.ValidString(text) {
			t.Fatalf("tokens %v: the chunk %q cuts a rune", ids, text)
		}
		shown.WriteString(text)
	}
	for _, id := range ids {
		piece := tok.Piece(id, false)
		spelled = append(spelled, piece...)
		text, _, _ := edge.push(piece)
		chunk(text)
	}
	chunk(edge.flush())
	want, rest := runes(spelled)
	if len(rest) > 0 {
		want += "\uFFFD"
	}
	if shown.String() != want {
		t.Fatalf("tokens %v: the chunks are %q, the bytes of the tokens read as %q", ids, shown.String(), want)
	}
	whole := []byte(tok.Decode(ids, false))
	bare := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(" "), nil) }
	if !bytes.Equal(bare(whole), bare(spelled)) || len(whole) > len(spelled) {
		t.Fatalf("tokens %v: decoded whole they are %q, one by one %q", ids, whole, spelled)
	}
}
