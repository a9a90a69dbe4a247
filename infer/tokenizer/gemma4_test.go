package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Token ids in gemma4File, which begins with <pad>, <eos>, <bos>, <unk> and 256 byte tokens.
const (
	gemmaBOS   = 2
	gemmaByte0 = 4
)

// gemma4File returns a vocabulary in Gemma 4's format: runes, merges in an order that
// training would not produce, and a duplicate token.
func gemma4File(more ...string) metadata {
	texts := []string{"<pad>", "<eos>", "<bos>", "<unk>"}
	types := []int32{3, 3, 3, 2}
	for b := range 256 {
		texts, types = append(texts, fmt.Sprintf("<0x%02X>", b)), append(types, int32(kindByte))
	}
	merges := append([]string{"a b", "▁ a", "▁a b", "\n \n", "b a", "ab ab", "é a", "▁ ▁"}, more...)
	for _, text := range append([]string{"b", "▁", "a", "b", "\n", "é", "\n\n\n", "<|tool>"}, merges...) {
		texts, types = append(texts, strings.ReplaceAll(text, " ", "")), append(types, int32(kindNormal))
	}
	types[slices.Index(texts, "<|tool>")] = int32(kindUserDefined)
	return metadata{keyModel: "gemma4", keyTokens: texts, keyTypes: types, keyMerges: merges, keyBOS: uint64(gemmaBOS), keyEOS: uint64(1), keyAddBOS: false}
}

func gemmaID(m metadata, text string) int32 {
	texts := slices.Clone(m[keyTokens].([]string))
	slices.Reverse(texts)
	return int32(len(texts) - 1 - slices.Index(texts, text)) // of two equal texts the later counts
}

func TestGemma4MergesMatchHandComputedTokens(t *testing.T) {
	file := gemma4File()
	tok := mustNew(t, file)
	for _, c := range []struct {
		why  string
		text string
		want []string
	}{
		{"the first merge wins; no space is inserted", "ab", []string{"ab"}},
		{"a space is written ▁; ab comes before ▁a", "a ab", []string{"a", "▁", "ab"}},
		{"of two equal tokens the later is used", "b", []string{"b"}},
		{"a run of line ends that is a token is that token", "\n\n\n", []string{"\n\n\n"}},
		{"other runs of line ends are merged", "\n\n\n\n", []string{"\n\n", "\n\n"}},
		{"a rune without a token becomes byte tokens", "aß", []string{"a", "<0xC3>", "<0x9F>"}},
		{"a rune of two bytes is merged as one symbol", "éa", []string{"éa"}},
		{"an incomplete rune becomes a byte token", "\xC3a", []string{"<0xC3>", "a"}},
		{"the text of a byte token does not become that token", "<0x41>", []string{"<0x3C>", "<0x30>", "<0x78>", "<0x34>", "<0x31>", "<0x3E>"}},
		{"user-defined tokens are recognised first", "a<|tool>b", []string{"a", "<|tool>", "b"}},
		{"an empty text has no tokens", "", nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			var want []int32
			for _, text := range c.want {
				want = append(want, gemmaID(file, text))
			}
			got := encode(t, tok, c.text, Options{ParseSpecial: true})
			if !slices.Equal(got, want) {
				t.Errorf("%q: got %v, want %v", c.text, got, want)
			}
			if back := tok.Decode(got, true); back != c.text {
				t.Errorf("%q was decoded as %q", c.text, back)
			}
		})
	}
	if got := encode(t, tok, "a", Options{AddSpecial: true}); len(got) != 2 || got[0] != gemmaBOS {
		t.Errorf("got %v, want BOS first although add_bos_token is false", got)
	}
	bytewise := mustNew(t, file.with(keyModel, "gpt2").with(keyPre, "gemma4"))
	if got := encode(t, bytewise, "a ab", Options{}); !slices.Equal(got, encode(t, tok, "a ab", Options{})) {
		t.Errorf("with tokenizer.ggml.pre = gemma4 got %v", got)
	}
}

// Compares with naiveMerge on lines split by a regular expression.
func TestGemma4MergesMatchTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	line := regexp.MustCompile(`[^\n]+|\n+`)
	for name, file := range map[string]metadata{"words": gemma4File(), "tokens across words": gemma4File("b ▁", "a ▁a", "▁b ▁a", "b▁ b")} {
		t.Run(name, func(t *testing.T) {
			if name != "words" {
				file = file.with(keyTokens, append(slices.Clone(file[keyTokens].([]string)), "▁b")).with(keyTypes, append(slices.Clone(file[keyTypes].([]int32)), int32(kindNormal)))
			}
			texts, ranks := file[keyTokens].([]string), map[[2]string]float64{}
			for i, m := range file[keyMerges].([]string) {
				left, right, _ := strings.Cut(m, " ")
				ranks[[2]string{left, right}] = float64(i)
			}
			tok := mustNew(t, file)
			for range 1000 {
				var b strings.Builder
				for range r.IntN(40) {
					b.WriteString([]string{"a", "a", "b", "b", " ", "\n", "é", "ß", "▁"}[r.IntN(9)])
				}
				var want []int32
				for _, piece := range line.FindAllString(strings.ReplaceAll(b.String(), " ", "▁"), -1) {
					symbols := strings.Split(piece, "")
					if piece[0] == '\n' && slices.Contains(texts, piece) {
						symbols = []string{piece}
					}
					for _, s := range naiveMerge(symbols, func(l, r string) (float64, bool) {
						n, ok := ranks[[2]string{l, r}]
						return n, ok
					}) {
						if slices.Contains(texts, s) {
							want = append(want, gemmaID(file, s))
							continue
						}
						for _, c := range []byte(s) {
							want = append(want, gemmaByte0+int32(c))
						}
					}
				}
				if got := encode(t, tok, b.String(), Options{}); !slices.Equal(got, want) {
					t.Fatalf("%q: got %v, want %v", b.String(), got, want)
				}
			}
		})
	}
}
