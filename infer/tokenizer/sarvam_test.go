package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The tokens that HuggingFace's tokenizers computes with the same vocabulary and byte fallback.
func TestSarvamMergesRunesAndKnowsByteTokensByTheirText(t *testing.T) {
	var texts []string
	for b := range 256 {
		texts = append(texts, fmt.Sprintf("<0x%02X>", b))
	}
	merges := []string{"▁ a", "a b", "▁ ▁", "\n \n", "b ▁", "▁a b"}
	for _, text := range append([]string{"a", "b", "▁", "\n", "c", "\n\n\n"}, merges...) {
		texts = append(texts, strings.ReplaceAll(text, " ", ""))
	}
	tok := mustNew(t, metadata{keyModel: "gpt2", keyPre: "sarvam-moe", keyTokens: texts, keyTypes: slices.Repeat([]int32{int32(kindNormal)}, len(texts)), keyMerges: merges})
	for _, c := range []struct {
		text string
		want []string
	}{
		{"ab ab  a", []string{"ab", "▁a", "b▁", "▁a"}},
		{"a\n\n\nb\né", []string{"a", "\n\n", "\n", "b", "\n", "<0xC3>", "<0xA9>"}},
		{"b a b\n", []string{"b", "▁a", "▁", "b", "\n"}},
	} {
		var got []string
		ids := encode(t, tok, c.text, Options{AddSpecial: true})
		for _, id := range ids {
			got = append(got, tok.Text(id))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
		if back := tok.Decode(ids, false); back != c.text {
			t.Errorf("%q was decoded as %q", c.text, back)
		}
	}
}
