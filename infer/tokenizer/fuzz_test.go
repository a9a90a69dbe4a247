package tokenizer

import (
	"context"
	"slices"
	"strings"
	"testing"
)

func FuzzEncodeDecode(f *testing.F) {
	for _, text := range oddTexts {
		f.Add(text, 0, false)
		f.Add(strings.Repeat(text+" ", 3), len(text), true)
	}
	var toks []*Tokenizer
	for _, pre := range distinctPreTokenizers {
		toks = append(toks, mustNew(f, byteLevelFile().with(keyPre, pre)))
	}
	spm, gemma := mustNew(f, sentencePieceFile()), mustNew(f, gemma4File())
	f.Fuzz(func(t *testing.T, text string, cut int, parse bool) {
		for i, tok := range append(toks, spm, gemma) {
			ids := encode(t, tok, text, Options{ParseSpecial: parse})
			got := tok.Decode(ids, true)
			if tok == spm && parse {
				continue // a space after a special token cannot be told from the inserted one
			}
			want := text
			if tok == spm || tok == gemma {
				want = strings.ReplaceAll(text, spaceMark, " ")
			}
			if got != want {
				t.Fatalf("tokenizer %d: %q was decoded as %q", i, text, got)
			}
			at := max(0, min(cut, len(text)))
			cutIDs, err := tok.EncodeSpans(context.Background(), []Span{{text[:at], parse}, {text[at:], parse}}, false)
			if err != nil || !slices.Equal(cutIDs, ids) {
				t.Fatalf("tokenizer %d: %q in two spans split at %d: got %v, %v, want %v", i, text, at, cutIDs, err, ids)
			}
		}
	})
}

// FuzzVocabulary builds a model file from lines of text, and encodes and decodes with it if
// New accepts it.
func FuzzVocabulary(f *testing.F) {
	bpe, spm := byteLevelFile(), sentencePieceFile()
	lines := func(m metadata, key string) string { return strings.Join(m[key].([]string), "\n") }
	f.Add("gpt2", "gpt-2", lines(bpe, keyTokens), lines(bpe, keyMerges), "", uint64(0), uint64(1), "hello <|im_end|>")
	f.Add("gpt2", "llama-bpe", "a\nb\nab\n<|end|>", "a b", "\x01\x01\x01\x03", uint64(3), uint64(3), "abab<|end|>\xff")
	f.Add("llama", "", lines(spm, keyTokens), "", "\x02\x03\x03", uint64(1), uint64(2), "ab é")
	f.Add("llama", "", "<unk>\n<s>\n</s>\n<0x-1>\n▁\na", "", "\x02\x03\x03\x06\x01\x01", uint64(1), uint64(2), "a a")
	f.Add("llama", "", "a\n\n\na b", "", "\x04\x04\x00\x05", uint64(1<<63), uint64(9), "a b")
	f.Add("gemma4", "", lines(gemma4File(), keyTokens), lines(gemma4File(), keyMerges), "\x03\x03\x03\x02", uint64(2), uint64(1), "a ab\n\né<pad>")
	f.Add("t5", "", "<unk>\n<s>\n</s>\n▁\na\n▁a\nab\né", "", "\x02\x03\x03\x01\x01\x01", uint64(1), uint64(2), "a ab é ☃☃")
	f.Add("gpt2", "default", "Ġ\nĠĠ\nĠ Ġ", "Ġ Ġ", "\x01\x01\x04", uint64(0), uint64(0), "    ")
	f.Fuzz(func(t *testing.T, model, pre, tokens, merges, types string, bos, eos uint64, text string) {
		md := metadata{
			keyModel: model, keyPre: pre, keyTokens: strings.Split(tokens, "\n"), keyMerges: strings.Split(merges, "\n"),
			keyBOS: bos, keyEOS: eos, keyAddBOS: true, keyName: pre,
		}
		scores := make([]float32, len(md[keyTokens].([]string)))
		kinds := make([]int32, len(scores))
		for i := range scores {
			kinds[i] = int32(kindNormal)
			if i < len(types) {
				kinds[i] = int32(types[i])
				scores[i] = float32(int8(types[i])) / 3
			}
		}
		md[keyScores], md[keyTypes] = scores, kinds
		tok, err := New(md)
		if err != nil {
			return
		}
		for _, parse := range []bool{false, true} {
			ids := encode(t, tok, text, Options{AddSpecial: true, ParseSpecial: parse})
			for i, id := range ids {
				if !tok.valid(id) {
					t.Fatalf("token %d has id %d, vocabulary size is %d", i, id, tok.VocabSize())
				}
				if i > 0 && !parse && tok.vocab.needsParsing(id) && id != tok.vocab.unknown {
					t.Fatalf("plain text %q became special token %d %q", text, id, tok.Text(id))
				}
				tok.Piece(id, parse)
			}
			tok.Decode(ids, parse)
		}
	})
}
