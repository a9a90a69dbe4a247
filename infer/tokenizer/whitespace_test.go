package tokenizer

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// The tokens that HuggingFace's tokenizers computes with the same vocabulary, merges, words and unknown token.
func TestSpacesSeparateWordsAndHaveNoTokens(t *testing.T) {
	merges := []string{"a b", "中 文", "ab c", "é a", "ab ab"}
	texts := []string{"<s>", "</s>", "<unk>"}
	for _, text := range append([]string{"a", "b", "c", "é", "中", "文", "!", "▁"}, merges...) {
		texts = append(texts, strings.ReplaceAll(text, " ", ""))
	}
	types := append([]int32{int32(kindControl), int32(kindControl), int32(kindUnknown)}, slices.Repeat([]int32{int32(kindNormal)}, len(texts)-3)...)
	file := metadata{
		keyModel: "whitespace", keyPre: "whitespace", keyTokens: texts, keyTypes: types, keyMerges: merges,
		keyBOS: uint64(0), keyEOS: uint64(1), keyUnknown: uint64(2), keyAddBOS: true, keyAddEOS: true,
	}
	lower := maps.Clone(file)
	lower[keyLowercase] = true
	for name, c := range map[string]struct {
		file metadata
		text string
		want []string
	}{
		"merges join the runes of a word":                 {file, "abc abab", []string{"<s>", "abc", "abab", "</s>"}},
		"spaces, line ends and wide spaces separate":      {file, " a\n\tb\u3000c ", []string{"<s>", "a", "b", "c", "</s>"}},
		"no merge crosses a space":                        {file, "a b 中 文", []string{"<s>", "a", "b", "中", "文", "</s>"}},
		"runes, not bytes, are the first symbols":         {file, "中文éa!", []string{"<s>", "中文", "éa", "!", "</s>"}},
		"a rune without a token is unknown":               {file, "aßb", []string{"<s>", "a", "<unk>", "b", "</s>"}},
		"upper case is not lower case":                    {file, "aB", []string{"<s>", "a", "<unk>", "</s>"}},
		"upper case is lower case where the file says so": {lower, "AB É", []string{"<s>", "ab", "é", "</s>"}},
		"the text of a control token is a word":           {file, "<s>", []string{"<s>", "<unk>", "<unk>", "<unk>", "</s>"}},
		"an empty text has the added tokens alone":        {file, " \n", []string{"<s>", "</s>"}},
	} {
		t.Run(name, func(t *testing.T) {
			tok := mustNew(t, c.file)
			var got []string
			for _, id := range encode(t, tok, c.text, Options{AddSpecial: true}) {
				got = append(got, tok.Text(id))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q: got %q, want %q", c.text, got, c.want)
			}
		})
	}
	delete(lower, keyMerges)
	if _, err := New(lower); err == nil {
		t.Error("a file without merges is not refused")
	}
}
