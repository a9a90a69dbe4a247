package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// oddText is what text is made of that has broken tokenizers before.
var oddText = []string{
	"", "a", "hello", "HELLO", "Hello world", "'s", "'LL", "don't", "I'VE", " ", "  ", "    ", "\n", "\r\n", "\n\n\n", "\t", " \n ", "\u3000", "\u00a0",
	"0", "12", "345", "6789", "½", "٣٤", "Ⅷ", "é", "e\u0301", "ß", "ΑΒγ", "Жук", "漢字", "々", "〇", "かな", "カナ", "한국어", "ไทย", "हिन्दी", "𐐀", "𝒜", "𠀀",
	"😀", "👨\u200d👩\u200d👧", "🇩🇪", "1\ufe0f\u20e3", "!?", "...", "://", "`|<=>^$+", "<|", "|>", "<|im_start|>", "<|im_end|>", "<think>", "<|user|>", "<s>", "</s>",
	"[TOOL]", "<0x41>", "▁", "Ġ", "_", "\x00", "\x7f", "\u00ad", "\ufeff", "\ufffd", "\uffff", "\U0010ffff", "\x80", "\xc3", "\xed\xa0\x80", "\xff\xfe", "\xf0\x9f\x98",
}

func randomText(r *rand.Rand, fragments int) string {
	var b strings.Builder
	for range r.IntN(fragments + 1) {
		b.WriteString(oddText[r.IntN(len(oddText))])
	}
	return b.String()
}

func TestByteLevelMergesFollowedByHand(t *testing.T) {
	// The merges are, in order: ll, he, hell, lo, llo.
	tok := mustNew(t, byteLevelFile())
	for _, c := range []struct {
		why  string
		text string
		want []int32
	}{
		{"ll, then he, then hell of the two; hell and o have no merge", "hello", []int32{tokHell, 'o'}},
		{"the left two of three l first; lo then, as ll and l have no merge", "lllo", []int32{tokLL, tokLo}},
		{"two pairs of l; the second and o then", "llllo", []int32{tokLL, tokLlo}},
		{"no merge crosses from a word to the next, which has its space", "hel lo", []int32{tokHe, 'l', ' ', tokLo}},
		{"no letter of these has a merge", "xyz", []int32{'x', 'y', 'z'}},
		{"é is its two bytes", "é", []int32{0xC3, 0xA9}},
		{"half a rune is its byte", "\xC3h", []int32{0xC3, 'h'}},
		{"nothing is nothing", "", nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := encode(t, tok, c.text, Options{}); !slices.Equal(got, c.want) {
				t.Errorf("%q is %v, want %v", c.text, got, c.want)
			}
		})
	}
}

func TestSentencePieceMergesFollowedByHand(t *testing.T) {
	// Scores: ▁a -0.4, ab -0.5, bb -0.6, ▁ -1, a -2, b -3, ▁ab -5.
	tok := mustNew(t, sentencePieceFile())
	for _, c := range []struct {
		why  string
		text string
		want []int32
	}{
		{"a space is put first; ▁a beats ab, and takes b for want of anything better", "ab", []int32{spmSpaceAB}},
		{"after ▁a, bb beats ▁ab", "abb", []int32{spmSpaceA, spmBB}},
		{"ab in a word", "bab", []int32{spmSpace, spmB, spmAB}},
		{"a space of the text's own stays beside the one put first", " a", []int32{spmSpace, spmSpaceA}},
		{"é is in no token and becomes its bytes", "é", []int32{spmSpace, spmByte0 + 0xC3, spmByte0 + 0xA9}},
		{"so does half of it", "\xC3", []int32{spmSpace, spmByte0 + 0xC3}},
		{"what spells a byte token is not one", "<0x41>", []int32{spmSpace, spmByte0 + '<', spmByte0 + '0', spmByte0 + 'x', spmByte0 + '4', spmByte0 + '1', spmByte0 + '>'}},
		{"a space is put behind a special token too", "a[TOOL]a", []int32{spmSpaceA, spmTool, spmSpaceA}},
		{"nothing is nothing", "", nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			got := encode(t, tok, c.text, Options{})
			if !slices.Equal(got, c.want) {
				t.Errorf("%q is %v, want %v", c.text, got, c.want)
			}
			if back := tok.Decode(got, false); back != c.text {
				t.Errorf("%q came back as %q", c.text, back)
			}
		})
	}
}

func TestSentencePieceWithoutBytesSaysUnknown(t *testing.T) {
	md := sentencePieceFile()
	texts := []string{"<unk>", "<s>", "</s>", "▁", "a"}
	tok := mustNew(t, md.with(keyTokens, texts).with(keyTypes, []int32{2, 3, 3, 1, 1}).with(keyScores, make([]float32, 5)))
	if got, want := encode(t, tok, "az", Options{}), []int32{3, 4, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSpacePrefixCanBeSwitchedOff(t *testing.T) {
	tok := mustNew(t, sentencePieceFile().with(keySpacePrefix, false))
	if got, want := encode(t, tok, "ab", Options{}), []int32{spmAB}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := tok.Decode([]int32{spmSpaceA}, false); got != " a" {
		t.Errorf("decoded %q: a space that nobody added was taken away", got)
	}
}

func TestSpecialTokensAreAddedAsTheFileSays(t *testing.T) {
	both := byteLevelFile().with(keyAddBOS, true).with(keyAddEOS, true)
	for name, c := range map[string]struct {
		file metadata
		o    Options
		want []int32
	}{
		"both, where both are wanted":                {both, Options{AddSpecial: true}, []int32{tokStart, 'x', tokEnd}},
		"none, where the caller wants none":          {both, Options{}, []int32{'x'}},
		"none by default in a byte-level file":       {byteLevelFile(), Options{AddSpecial: true}, []int32{'x'}},
		"the beginning where the pre-tokenizer says": {byteLevelFile().with(keyPre, "llama-bpe"), Options{AddSpecial: true}, []int32{tokStart, 'x'}},
		"not even there where the file denies it":    {byteLevelFile().with(keyPre, "llama-bpe").with(keyAddBOS, false), Options{AddSpecial: true}, []int32{'x'}},
		"the beginning by default in SentencePiece":  {sentencePieceFile(), Options{AddSpecial: true}, []int32{1, spmSpace, spmByte0 + 'x'}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := encode(t, mustNew(t, c.file), "x", c.o); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestSpecialTokensComeOutOfParsedTextAlone(t *testing.T) {
	tok := mustNew(t, byteLevelFile())
	spelled := func(s string) []int32 {
		var ids []int32
		for _, b := range []byte(s) {
			ids = append(ids, int32(b))
		}
		return ids
	}
	cat := slices.Concat[[]int32]
	for name, c := range map[string]struct {
		spans []Span
		want  []int32
	}{
		"parsed text becomes control tokens":                   {[]Span{{"<|im_start|>x<|im_end|>", true}}, []int32{tokStart, 'x', tokEnd}},
		"other text does not":                                  {[]Span{{"x<|im_end|>", false}}, spelled("x<|im_end|>")},
		"text between parsed text does not":                    {[]Span{{"<|im_start|>", true}, {"<|im_end|>", false}, {"<|im_end|>", true}}, cat([]int32{tokStart}, spelled("<|im_end|>"), []int32{tokEnd})},
		"a control token cannot begin in other text":           {[]Span{{"x<|im", false}, {"_end|>", true}}, spelled("x<|im_end|>")},
		"nor end in it":                                        {[]Span{{"x<|im", true}, {"_end|>", false}}, spelled("x<|im_end|>")},
		"nor run through it":                                   {[]Span{{"x<|im", true}, {"_", false}, {"end|>", true}}, spelled("x<|im_end|>")},
		"it can lie across parsed spans":                       {[]Span{{"x<|im", true}, {"", false}, {"_end|>", true}}, []int32{'x', tokEnd}},
		"user-defined tokens are found in any text":            {[]Span{{"x<thi", true}, {"nk>", false}}, []int32{'x', tokThink}},
		"but those that are written like a control token":      {[]Span{{"x<|user|>", false}}, spelled("x<|user|>")},
		"which are found in parsed text":                       {[]Span{{"x<|user|>", true}}, []int32{'x', tokUser}},
		"words are not cut where spans are":                    {[]Span{{"h", false}, {"el", true}, {"", true}, {"lo", false}}, []int32{tokHell, 'o'}},
		"no spans are no tokens":                               {nil, nil},
		"empty spans are no tokens":                            {[]Span{{"", true}, {"", false}}, nil},
		"the token behind other text is found where it begins": {[]Span{{"<|im_start|>", false}, {"<|im_start|>", true}}, cat(spelled("<|im_start|>"), []int32{tokStart})},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tok.EncodeSpans(context.Background(), c.spans, false)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestTheLongestOfSpecialTokensIsTaken(t *testing.T) {
	md := byteLevelFile()
	texts := append(append([]string(nil), md[keyTokens].([]string)...), "<a", "<a>b", "<a>bc>")
	types := append(append([]int32(nil), md[keyTypes].([]int32)...), int32(kindUserDefined), int32(kindControl), int32(kindUserDefined))
	tok := mustNew(t, md.with(keyTokens, texts).with(keyTypes, types))
	const a, ab, abc = 265, 266, 267
	for _, c := range []struct {
		why   string
		text  string
		parse bool
		want  []int32
	}{
		{"the longest", "<a>bc>", true, []int32{abc}},
		{"the longest that is all there", "<a>bc", true, []int32{ab, 'c'}},
		{"the longest that need not be parsed", "<a>bc", false, []int32{a, '>', 'b', 'c'}},
		{"the shortest", "<a<a", true, []int32{a, a}},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := encode(t, tok, c.text, Options{ParseSpecial: c.parse}); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestDecodeAndPieces(t *testing.T) {
	bpe, spm := mustNew(t, byteLevelFile()), mustNew(t, sentencePieceFile())
	for _, c := range []struct {
		why     string
		tok     *Tokenizer
		ids     []int32
		special bool
		want    string
	}{
		{"control tokens spell nothing", bpe, []int32{tokStart, tokHell, 'o', tokEnd}, false, "hello"},
		{"unless they are asked to", bpe, []int32{tokStart, tokHell, 'o', tokEnd}, true, "<|im_start|>hello<|im_end|>"},
		{"user-defined tokens are text", bpe, []int32{tokThink, 'x'}, false, "<think>x"},
		{"ids outside the vocabulary spell nothing", bpe, []int32{-1, 'x', 265, math.MaxInt32, math.MinInt32}, true, "x"},
		{"bytes become runes", bpe, []int32{0xC3, 0xA9}, false, "é"},
		{"the space that encoding put first is taken away", spm, []int32{spmSpaceA, spmSpaceA}, false, "a a"},
		{"behind BOS too", spm, []int32{1, spmSpaceA, 2}, false, "a"},
		{"one space, no more", spm, []int32{spmSpace, spmSpaceA}, false, " a"},
		{"control tokens of SentencePiece when asked", spm, []int32{1, spmSpaceA, 2}, true, "<s>a</s>"},
		{"byte tokens", spm, []int32{spmSpace, spmByte0 + 0xC3, spmByte0 + 0xA9}, false, "é"},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := c.tok.Decode(c.ids, c.special); got != c.want {
				t.Errorf("decoded %q, want %q", got, c.want)
			}
		})
	}
	if got := string(spm.Piece(spmSpaceA, false)); got != " a" {
		t.Errorf("a piece is %q, want it whole whatever stands before it: %q", got, " a")
	}
	if got := bpe.Piece(tokEnd, false); got == nil || len(got) != 0 {
		t.Errorf("the piece of a control token is %#v, want empty and not nil", got)
	}
	if bpe.Piece(-1, true) != nil || bpe.Piece(265, true) != nil {
		t.Error("an id outside the vocabulary has a piece")
	}
}

func TestTokenizerDescribesItsVocabulary(t *testing.T) {
	tok := mustNew(t, byteLevelFile())
	if id, ok := tok.BOS(); id != tokStart || !ok {
		t.Errorf("BOS is %d, %v", id, ok)
	}
	if id, ok := tok.EOS(); id != tokEnd || !ok {
		t.Errorf("EOS is %d, %v", id, ok)
	}
	if _, ok := mustNew(t, byteLevelFile().with(keyBOS, nil)).BOS(); ok {
		t.Error("a file without BOS has one")
	}
	if n := tok.VocabSize(); n != 265 {
		t.Errorf("%d tokens, want 265", n)
	}
	if got := tok.Text(' '); got != "Ġ" {
		t.Errorf("the vocabulary spells a space %q, want Ġ", got)
	}
	if got := tok.Text(-1) + tok.Text(265); got != "" {
		t.Errorf("ids outside the vocabulary are spelled %q", got)
	}
	for id, want := range map[int32]bool{tokStart: true, tokEnd: true, tokThink: false, 'a': false, -1: false, 265: false} {
		if tok.IsControl(id) != want {
			t.Errorf("IsControl(%d) is %v", id, !want)
		}
	}
}

func TestTextComesBackByteForByte(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, pre := range distinctPreTokenizers {
		tok := mustNew(t, byteLevelFile().with(keyPre, pre))
		for range 400 {
			text := randomText(r, 12)
			ids := encode(t, tok, text, Options{ParseSpecial: r.IntN(2) == 0})
			var pieces []byte
			for _, id := range ids {
				pieces = append(pieces, tok.Piece(id, true)...)
			}
			if got := tok.Decode(ids, true); got != text || string(pieces) != text {
				t.Fatalf("%s: %q came back as %q, its pieces as %q", pre, text, got, pieces)
			}
		}
	}
}

func TestSentencePieceTextComesBack(t *testing.T) {
	tok := mustNew(t, sentencePieceFile())
	r := rand.New(rand.NewPCG(2, 2))
	for range 4000 {
		// ▁ is how SentencePiece writes a space: it comes back as one.
		text := strings.ReplaceAll(randomText(r, 12), "▁", " ")
		if got := tok.Decode(encode(t, tok, text, Options{}), false); got != text {
			t.Fatalf("%q came back as %q", text, got)
		}
	}
}

func TestWhereSpansAreCutMakesNoDifference(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, tok := range []*Tokenizer{mustNew(t, byteLevelFile()), mustNew(t, byteLevelFile().with(keyPre, "llama-bpe")), mustNew(t, sentencePieceFile())} {
		for range 2000 {
			text := randomText(r, 10)
			var spans []Span
			for rest := text; rest != ""; {
				n := 1 + r.IntN(len(rest))
				spans = append(spans, Span{rest[:n], false})
				rest = rest[n:]
			}
			whole := encode(t, tok, text, Options{})
			got, err := tok.EncodeSpans(context.Background(), spans, false)
			if err != nil || !slices.Equal(got, whole) {
				t.Fatalf("%q is %v whole, but %v, %v as %v", text, whole, got, err, spans)
			}
		}
	}
}

// slowMerge is the definition of both kinds of merge, taken at its word: look at all
// pairs, join the best and leftmost, begin again.
func slowMerge(symbols []string, rank func(left, right string) (float64, bool)) []string {
	for {
		best, at := math.Inf(1), -1
		for i := 0; i+1 < len(symbols); i++ {
			if n, ok := rank(symbols[i], symbols[i+1]); ok && n < best {
				best, at = n, i
			}
		}
		if at < 0 {
			return symbols
		}
		symbols = slices.Replace(symbols, at, at+2, symbols[at]+symbols[at+1])
	}
}

func TestMergesAreThoseOfTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	letters := func(alphabet string, limit int) string {
		var b strings.Builder
		for range r.IntN(limit) {
			b.WriteByte(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}
	t.Run("byte-level", func(t *testing.T) {
		file := byteLevelFile()
		ranks := map[[2]string]float64{}
		for i, m := range file[keyMerges].([]string) {
			left, right, _ := strings.Cut(m, " ")
			ranks[[2]string{left, right}] = float64(i)
		}
		tok := mustNew(t, file)
		for range 3000 {
			text := letters("hello", 60)
			var want []int32
			for _, s := range slowMerge(strings.Split(text, ""), func(l, r string) (float64, bool) {
				n, ok := ranks[[2]string{l, r}]
				return n, ok
			}) {
				want = append(want, int32(slices.Index(file[keyTokens].([]string), s)))
			}
			if got := encode(t, tok, text, Options{}); !slices.Equal(got, want) {
				t.Fatalf("%q is %v, want %v", text, got, want)
			}
		}
	})
	spm := sentencePieceFile()
	for name, file := range map[string]metadata{"SentencePiece": spm, "SentencePiece across words": withToken(spm, "b▁", -0.45), "SentencePiece without order": spm.with(keyScores, make([]float32, len(spm[keyTokens].([]string))))} {
		t.Run(name, func(t *testing.T) {
			texts, scores := file[keyTokens].([]string), file[keyScores].([]float32)
			tok := mustNew(t, file)
			for range 1500 {
				text := letters("aabb ", 60)
				var want []int32
				if text != "" {
					for _, s := range slowMerge(strings.Split("▁"+strings.ReplaceAll(text, " ", "▁"), ""), func(l, r string) (float64, bool) {
						id := slices.Index(texts, l+r)
						if id < 0 {
							return 0, false
						}
						return -float64(scores[id]), true
					}) {
						want = append(want, int32(slices.Index(texts, s)))
					}
				}
				if got := encode(t, tok, text, Options{}); !slices.Equal(got, want) {
					t.Fatalf("%q is %v, want %v", text, got, want)
				}
			}
		})
	}
}

// A text long enough that its pairs lie in bins.
func TestMergesOfALongWordAreThoseOfTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	// All pairs of letters and more, in no order that learning would give: a token may be
	// better than its parts.
	known := []string{"a", "b", "c", "d", "e"}
	var merges []string
	for _, left := range known {
		for _, right := range known[:5] {
			merges = append(merges, left+" "+right)
		}
	}
	for _, m := range merges {
		known = append(known, strings.ReplaceAll(m, " ", ""))
	}
	for len(merges) < 400 {
		left, right := known[r.IntN(len(known))], known[r.IntN(len(known))]
		if len(left+right) > 12 || slices.Contains(merges, left+" "+right) {
			continue
		}
		merges = append(merges, left+" "+right)
		if !slices.Contains(known, left+right) {
			known = append(known, left+right)
		}
	}
	r.Shuffle(len(merges), func(i, j int) { merges[i], merges[j] = merges[j], merges[i] })
	ranks := map[[2]string]float64{}
	for i, m := range merges {
		left, right, _ := strings.Cut(m, " ")
		ranks[[2]string{left, right}] = float64(i)
	}
	tok := mustNew(t, metadata{keyModel: "gpt2", keyPre: "gpt-2", keyTokens: known, keyMerges: merges})
	for _, n := range []int{fewKeys - 1, fewKeys + 2, 1000, 1500} {
		word := make([]string, n)
		for i := range word {
			word[i] = string('a' + r.Int32N(5))
		}
		text := strings.Join(word, "")
		var want []int32
		for _, s := range slowMerge(word, func(l, r string) (float64, bool) {
			n, ok := ranks[[2]string{l, r}]
			return n, ok
		}) {
			want = append(want, int32(slices.Index(known, s)))
		}
		if got := encode(t, tok, text, Options{}); !slices.Equal(got, want) {
			t.Fatalf("%q is %v, want %v", text, got, want)
		}
	}
}

// withToken returns a SentencePiece file with one more token.
func withToken(m metadata, text string, score float32) metadata {
	return m.with(keyTokens, append(slices.Clone(m[keyTokens].([]string)), text)).
		with(keyTypes, append(slices.Clone(m[keyTypes].([]int32)), int32(kindNormal))).
		with(keyScores, append(slices.Clone(m[keyScores].([]float32)), score))
}

func TestATokenizerIsSafeForConcurrentUse(t *testing.T) {
	tok := mustNew(t, byteLevelFile())
	r := rand.New(rand.NewPCG(5, 5))
	var texts []string
	var want [][]int32
	for range 200 {
		texts = append(texts, randomText(r, 20))
		want = append(want, encode(t, mustNew(t, byteLevelFile()), texts[len(texts)-1], Options{ParseSpecial: true}))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i, text := range texts {
				got, err := tok.Encode(context.Background(), text, Options{ParseSpecial: true})
				if err != nil || !slices.Equal(got, want[i]) {
					t.Errorf("%q is %v, %v, want %v", text, got, err, want[i])
				}
			}
		})
	}
	wg.Wait()
}

func TestTheCacheGivesWhatWasPutForThePiece(t *testing.T) {
	c := newPieceCache()
	kept := 0
	for i := range 3 * cachedPieces {
		piece := fmt.Sprint(i)
		if _, ok := c.get(piece); ok {
			t.Fatalf("%q is there before it was put", piece)
		}
		c.put(piece, []int32{int32(i)})
		if ids, ok := c.get(piece); !ok || !slices.Equal(ids, []int32{int32(i)}) {
			t.Fatalf("%q is %v, %v", piece, ids, ok)
		}
	}
	for i := range 3 * cachedPieces {
		ids, ok := c.get(fmt.Sprint(i))
		if ok && !slices.Equal(ids, []int32{int32(i)}) {
			t.Fatalf("%d is %v", i, ids)
		}
		if ok {
			kept++
		}
	}
	if kept == 0 || kept > cachedPieces {
		t.Errorf("%d pieces are kept, the limit is %d", kept, cachedPieces)
	}
	for name, c2 := range map[string]struct {
		piece string
		ids   []int32
	}{
		"a long piece":           {strings.Repeat("a", cachedPieceBytes+1), []int32{1}},
		"a piece of many tokens": {"b", make([]int32, cachedPieceIDs+1)},
	} {
		c.put(c2.piece, c2.ids)
		if _, ok := c.get(c2.piece); ok {
			t.Errorf("%s is kept", name)
		}
	}
}

// lookCounter is a context that counts how often it is looked at and ends at the
// look after the last.
type lookCounter struct {
	context.Context
	looks, last int
}

func (c *lookCounter) Err() error {
	c.looks++
	if c.looks > c.last {
		return context.Canceled
	}
	return nil
}

func TestEncodeLooksAtItsContextEvery64KiB(t *testing.T) {
	texts := map[string]string{
		"words":       strings.Repeat("hello lol ", 1<<18/10),
		"one word":    strings.Repeat("hel", 1<<18/3),
		"begin signs": strings.Repeat("<", 1<<18),
	}
	for model, file := range map[string]metadata{"byte-level": byteLevelFile(), "SentencePiece": sentencePieceFile()} {
		tok := mustNew(t, file)
		for name, text := range texts {
			t.Run(model+", "+name, func(t *testing.T) {
				encode(t, tok, text, Options{}) // fills the cache, which saves a few steps
				ctx := &lookCounter{Context: context.Background(), last: math.MaxInt}
				if _, err := tok.Encode(ctx, text, Options{}); err != nil {
					t.Fatal(err)
				}
				if want := len(text) >> 16; ctx.looks < want {
					t.Errorf("looked %d times in %d bytes, want at least %d", ctx.looks, len(text), want)
				}
				for _, last := range []int{0, 1, ctx.looks / 2, ctx.looks - 1} {
					early := &lookCounter{Context: context.Background(), last: last}
					ids, err := tok.Encode(early, text, Options{})
					if !errors.Is(err, context.Canceled) || ids != nil {
						t.Errorf("ended after %d looks with %d tokens and error %v", last, len(ids), err)
					}
					if early.looks != last+1 {
						t.Errorf("looked %d times more after the end", early.looks-last-1)
					}
				}
			})
		}
	}
}
