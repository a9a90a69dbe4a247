package tokenizer

import (
	"context"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// compileCharsMap builds the trie of the rules as SentencePiece does: breadth first, with
// the children of each node at the first unused base where all of their slots are free.
func compileCharsMap(rules map[string]string) []byte {
	texts, places := "", map[string]int{}
	for _, from := range slices.Sorted(maps.Keys(rules)) {
		places[from] = len(texts)
		texts += rules[from] + "\x00"
	}
	units, used, bases := make([]uint32, 1<<16), map[int]bool{0: true}, map[int]bool{}
	type node struct {
		at     int
		prefix string
	}
	last := 0
	for queue := []node{{0, ""}}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		next := map[byte]bool{}
		_, ends := rules[n.prefix]
		for from := range rules {
			if len(from) > len(n.prefix) && strings.HasPrefix(from, n.prefix) {
				next[from[len(n.prefix)]] = true
			}
		}
		labels := slices.Sorted(maps.Keys(next))
		if ends {
			labels = append([]byte{0}, labels...)
		}
		if len(labels) == 0 {
			continue
		}
		base := 256
		for bases[base] || slices.ContainsFunc(labels, func(c byte) bool { return used[base^int(c)] }) {
			base++
		}
		bases[base] = true // bases are unique, because a child stores its byte but not its parent
		units[n.at] |= uint32(n.at^base) << 10
		if n.at == 0 {
			units[0] = uint32(base) << 10
		}
		for _, c := range labels {
			at := base ^ int(c)
			used[at] = true
			last = max(last, at)
			if c == 0 {
				units[n.at] |= 1 << 8
				units[at] = 1<<31 | uint32(places[n.prefix])
				continue
			}
			units[at] = uint32(c)
			queue = append(queue, node{at, n.prefix + string([]byte{c})})
		}
	}
	data := binary.LittleEndian.AppendUint32(nil, uint32(4*(last+1)))
	for _, u := range units[:last+1] {
		data = binary.LittleEndian.AppendUint32(data, u)
	}
	return append(data, texts...)
}

func ints(data []byte) []int32 {
	list := make([]int32, len(data))
	for i, b := range data {
		list[i] = int32(int8(b)) // files store signed or unsigned bytes
	}
	return list
}

var normalizationRules = map[string]string{
	"ﬁ": "fi", "Ａ": "A", "ｂ": "b", "㍿": "株式会社", "\t": " ", "\u00a0": " ", "\u200b": "", "e\u0301": "é", "e": "e", "e\u0301\u0302": "ế", "ㄱ": "ᄀ",
}

// naiveNormalize replaces the longest sequence at each position.
func naiveNormalize(text string) string {
	var b strings.Builder
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		with, longest := string(r), 0
		for from, to := range normalizationRules {
			if strings.HasPrefix(text, from) && len(from) > longest {
				with, n, longest = to, len(from), len(from)
			}
		}
		b.WriteString(with)
		text = text[n:]
	}
	return b.String()
}

func TestCharsMapReplacesTheLongestSequences(t *testing.T) {
	m, err := parseCharsMap(compileCharsMap(normalizationRules))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(8, 8))
	parts := append(slices.Sorted(maps.Keys(normalizationRules)), "x", " ", "\u0301", "\u0302", "\x00", "\xff", "\xe2", "漢", "😀")
	for range 3000 {
		text := ""
		for range r.IntN(12) {
			text += parts[r.IntN(len(parts))]
		}
		got, err := m.normalize(&encoder{ctx: context.Background(), nextCheck: stepsPerCheck}, text)
		if want := naiveNormalize(text); err != nil || got != want {
			t.Fatalf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestSentencePieceAppliesTheNormalisationOfTheFile(t *testing.T) {
	file := sentencePieceFile().with(keyCharsMap, ints(compileCharsMap(normalizationRules)))
	for name, c := range map[string]struct {
		file metadata
		text string
		want []int32
	}{
		"sequences are replaced":                 {file, "aｂ", []int32{spmSpaceAB}},
		"a deleted rune leaves no trace":         {file, "a\u200bb", []int32{spmSpaceAB}},
		"a text of deleted runes is empty":       {file, "\u200b", nil},
		"runs of spaces are kept by default":     {file, "a  b", []int32{spmSpaceA, spmSpace, spmSpace, spmB}},
		"runs of spaces are collapsed on demand": {file.with(keyCollapseSpaces, true), " a \t b ", []int32{spmSpaceA, spmSpace, spmB}},
		"user-defined tokens are not normalised": {file, "[TOOL]ｂ", []int32{spmTool, spmSpace, spmB}},
		"without a map nothing is replaced":      {sentencePieceFile(), "ｂ", []int32{spmSpace, spmByte0 + 0xEF, spmByte0 + 0xBD, spmByte0 + 0x82}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := encode(t, mustNew(t, c.file), c.text, Options{}); !slices.Equal(got, c.want) {
				t.Errorf("%q: got %v, want %v", c.text, got, c.want)
			}
		})
	}
}

func TestNewRejectsAMalformedCharsMap(t *testing.T) {
	good := compileCharsMap(normalizationRules)
	for name, c := range map[string]struct {
		data any
		want string
	}{
		"no size":                     {ints([]byte{1, 2}), "2 bytes, too few"},
		"a size beyond the end":       {ints([]byte{0xff, 0xff, 0xff, 0x7f, 0}), "does not fit"},
		"an odd size":                 {ints([]byte{3, 0, 0, 0, 1, 2, 3}), "does not fit"},
		"no trie":                     {ints([]byte{0, 0, 0, 0, 1, 2, 3}), "does not fit"},
		"an unterminated replacement": {ints(append(slices.Clone(good), 'x')), "does not end within 64 bytes"},
		"a replacement of 4000 bytes": {ints(append(slices.Clone(good), (strings.Repeat("x", 4000) + "\x00")...)), "does not end within 64 bytes"},
		"numbers that are not bytes":  {[]int32{4, 0, 0, 0, 256}, "element 4 is 256"},
		"a string":                    {"good", keyCharsMap},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(sentencePieceFile().with(keyCharsMap, c.data))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func FuzzCharsMap(f *testing.F) {
	f.Add(compileCharsMap(normalizationRules), "aｂe\u0301 ﬁ")
	f.Add([]byte{8, 0, 0, 0, 0, 1, 0, 0, 'a', 1, 0, 0, 'x', 0}, "aaaa")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		m, err := parseCharsMap(data)
		if err != nil {
			return
		}
		got, err := m.normalize(&encoder{ctx: context.Background(), nextCheck: stepsPerCheck}, text)
		if err != nil || len(got) > maxReplacement*len(text) {
			t.Fatalf("%d bytes were normalised to %d, error %v", len(text), len(got), err)
		}
	})
}
