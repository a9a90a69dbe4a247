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

// compileCharsMap lays out a trie of sequences as SentencePiece does: breadth first, each
// node's children at the first base of no other node where all of their places are free.
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
		bases[base] = true // of one node only: a child knows its byte, not its parent
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
		list[i] = int32(int8(b)) // as files hold them, signed or not
	}
	return list
}

var foldRules = map[string]string{
	"ﬁ": "fi", "Ａ": "A", "ｂ": "b", "㍿": "株式会社", "\t": " ", "\u00a0": " ", "\u200b": "", "e\u0301": "é", "e": "e", "e\u0301\u0302": "ế", "ㄱ": "ᄀ",
}

// slowFold replaces the longest of the sequences at each place.
func slowFold(text string) string {
	var b strings.Builder
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		with, longest := string(r), 0
		for from, to := range foldRules {
			if strings.HasPrefix(text, from) && len(from) > longest {
				with, n, longest = to, len(from), len(from)
			}
		}
		b.WriteString(with)
		text = text[n:]
	}
	return b.String()
}

func TestACharsMapReplacesTheLongestSequences(t *testing.T) {
	m, err := parseCharsMap(compileCharsMap(foldRules))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(8, 8))
	parts := append(slices.Sorted(maps.Keys(foldRules)), "x", " ", "\u0301", "\u0302", "\x00", "\xff", "\xe2", "漢", "😀")
	for range 3000 {
		text := ""
		for range r.IntN(12) {
			text += parts[r.IntN(len(parts))]
		}
		got, err := m.normalize(&encoder{ctx: context.Background(), look: stepsPerLook}, text)
		if want := slowFold(text); err != nil || got != want {
			t.Fatalf("%q is %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestSentencePieceNormalisesAsTheFileSays(t *testing.T) {
	file := sentencePieceFile().with(keyCharsMap, ints(compileCharsMap(foldRules)))
	for name, c := range map[string]struct {
		file metadata
		text string
		want []int32
	}{
		"sequences are replaced":                 {file, "aｂ", []int32{spmSpaceAB}},
		"what is left out leaves no mark":        {file, "a\u200bb", []int32{spmSpaceAB}},
		"text of nothing else is no text":        {file, "\u200b", nil},
		"spaces stay":                            {file, "a  b", []int32{spmSpaceA, spmSpace, spmSpace, spmB}},
		"unless the file says that they are one": {file.with(keyMergeSpaces, true), " a \t b ", []int32{spmSpaceA, spmSpace, spmB}},
		"user-defined tokens are left alone":     {file, "[TOOL]ｂ", []int32{spmTool, spmSpace, spmB}},
		"without a map nothing is replaced":      {sentencePieceFile(), "ｂ", []int32{spmSpace, spmByte0 + 0xEF, spmByte0 + 0xBD, spmByte0 + 0x82}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := encode(t, mustNew(t, c.file), c.text, Options{}); !slices.Equal(got, c.want) {
				t.Errorf("%q is %v, want %v", c.text, got, c.want)
			}
		})
	}
}

func TestAHostileCharsMapIsRefused(t *testing.T) {
	good := compileCharsMap(foldRules)
	for name, c := range map[string]struct {
		data any
		says string
	}{
		"no size":                         {ints([]byte{1, 2}), "2 bytes, too few"},
		"a size beyond the end":           {ints([]byte{0xff, 0xff, 0xff, 0x7f, 0}), "does not fit"},
		"an odd size":                     {ints([]byte{3, 0, 0, 0, 1, 2, 3}), "does not fit"},
		"no trie":                         {ints([]byte{0, 0, 0, 0, 1, 2, 3}), "does not fit"},
		"a replacement without its end":   {ints(append(slices.Clone(good), 'x')), "does not end within 64 bytes"},
		"a replacement as long as a page": {ints(append(slices.Clone(good), (strings.Repeat("x", 4000) + "\x00")...)), "does not end within 64 bytes"},
		"numbers that are no bytes":       {[]int32{4, 0, 0, 0, 256}, "element 4 is 256"},
		"a string":                        {"good", keyCharsMap},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(sentencePieceFile().with(keyCharsMap, c.data))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
		})
	}
}

func FuzzCharsMap(f *testing.F) {
	f.Add(compileCharsMap(foldRules), "aｂe\u0301 ﬁ")
	f.Add([]byte{8, 0, 0, 0, 0, 1, 0, 0, 'a', 1, 0, 0, 'x', 0}, "aaaa")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		m, err := parseCharsMap(data)
		if err != nil {
			return
		}
		got, err := m.normalize(&encoder{ctx: context.Background(), look: stepsPerLook}, text)
		if err != nil || len(got) > maxReplacement*len(text) {
			t.Fatalf("%d bytes became %d, %v", len(text), len(got), err)
		}
	})
}
