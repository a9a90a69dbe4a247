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

// oddTexts are fragments of text that are hard to tokenize.
var oddTexts = []string{
	"", "a", "hello", "HELLO", "Hello world", "'s", "'LL", "don't", "I'VE", " ", "  ", "    ", "\n", "\r\n", "\n\n\n", "\t", " \n ", "\u3000", "\u00a0",
	"0", "12", "345", "6789", "½", "٣٤", "Ⅷ", "é", "e\u0301", "ß", "ΑΒγ", "Жук", "漢字", "々", "〇", "かな", "カナ", "한국어", "ไทย", "हिन्दी", "𐐀", "𝒜", "𠀀",
	"😀", "👨\u200d👩\u200d👧", "🇩🇪", "1\ufe0f\u20e3", "!?", "...", "://", "`|<=>^$+", "<|", "|>", "<|im_start|>", "<|im_end|>", "<think>", "<|user|>", "<s>", "</s>",
	"[TOOL]", "<0x41>", "▁", "Ġ", "_", "\x00", "\x7f", "\u00ad", "\ufeff", "\ufffd", "\uffff", "\U0010ffff", "\x80", "\xc3", "\xed\xa0\x80", "\xff\xfe", "\xf0\x9f\x98",
}

func randomText(r *rand.Rand, fragments int) string {
	var b strings.Builder
	for range r.IntN(fragments + 1) {
		b.WriteString(oddTexts[r.IntN(len(oddTexts))])
	}
	return b.String()
}

func TestByteLevelMergesMatchHandComputedTokens(t *testing.T) {
	// Merges in order: ll, he, hell, lo, llo.
	tok := mustNew(t, byteLevelFile())
	for _, c := range []struct {
		why  string
		text string
		want []int32
	}{
		{"ll merges first, then he, then hell; hell and o have no merge", "hello", []int32{tokHell, 'o'}},
		{"of three l the left two merge first, then lo, because ll and l have no merge", "lllo", []int32{tokLL, tokLo}},
		{"two pairs of l merge first, then the second with o", "llllo", []int32{tokLL, tokLlo}},
		{"no merge crosses into the next word, which includes its space", "hel lo", []int32{tokHe, 'l', ' ', tokLo}},
		{"letters without a merge stay single", "xyz", []int32{'x', 'y', 'z'}},
		{"é becomes its two bytes", "é", []int32{0xC3, 0xA9}},
		{"an incomplete rune becomes its byte", "\xC3h", []int32{0xC3, 'h'}},
		{"an empty text has no tokens", "", nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := encode(t, tok, c.text, Options{}); !slices.Equal(got, c.want) {
				t.Errorf("%q: got %v, want %v", c.text, got, c.want)
			}
		})
	}
}

func TestSentencePieceMergesMatchHandComputedTokens(t *testing.T) {
	// Scores: ▁a -0.4, ab -0.5, bb -0.6, ▁ -1, a -2, b -3, ▁ab -5.
	tok := mustNew(t, sentencePieceFile())
	for _, c := range []struct {
		why  string
		text string
		want []int32
	}{
		{"a space is inserted first; ▁a beats ab, and is then merged with b", "ab", []int32{spmSpaceAB}},
		{"after ▁a, bb beats ▁ab", "abb", []int32{spmSpaceA, spmBB}},
		{"ab is merged inside a word", "bab", []int32{spmSpace, spmB, spmAB}},
		{"a leading space of the text stays beside the inserted one", " a", []int32{spmSpace, spmSpaceA}},
		{"a rune without a token becomes byte tokens", "é", []int32{spmSpace, spmByte0 + 0xC3, spmByte0 + 0xA9}},
		{"an incomplete rune becomes a byte token", "\xC3", []int32{spmSpace, spmByte0 + 0xC3}},
		{"the text of a byte token does not become that token", "<0x41>", []int32{spmSpace, spmByte0 + '<', spmByte0 + '0', spmByte0 + 'x', spmByte0 + '4', spmByte0 + '1', spmByte0 + '>'}},
		{"a space is inserted after a special token too", "a[TOOL]a", []int32{spmSpaceA, spmTool, spmSpaceA}},
		{"an empty text has no tokens", "", nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			got := encode(t, tok, c.text, Options{})
			if !slices.Equal(got, c.want) {
				t.Errorf("%q: got %v, want %v", c.text, got, c.want)
			}
			if back := tok.Decode(got, false); back != c.text {
				t.Errorf("%q was decoded as %q", c.text, back)
			}
		})
	}
}

func TestSentencePieceWithoutByteTokensEmitsTheUnknownToken(t *testing.T) {
	md := sentencePieceFile()
	texts := []string{"<unk>", "<s>", "</s>", "▁", "a"}
	tok := mustNew(t, md.with(keyTokens, texts).with(keyTypes, []int32{2, 3, 3, 1, 1}).with(keyScores, make([]float32, 5)))
	if got, want := encode(t, tok, "az", Options{}), []int32{3, 4, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSpacePrefixCanBeDisabled(t *testing.T) {
	tok := mustNew(t, sentencePieceFile().with(keySpacePrefix, false))
	if got, want := encode(t, tok, "ab", Options{}), []int32{spmAB}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := tok.Decode([]int32{spmSpaceA}, false); got != " a" {
		t.Errorf("decoded %q, want the space kept, which Encode did not insert", got)
	}
}

func TestSpecialTokensAreAddedWhereTheFileAsks(t *testing.T) {
	both := byteLevelFile().with(keyAddBOS, true).with(keyAddEOS, true)
	for name, c := range map[string]struct {
		file metadata
		o    Options
		want []int32
	}{
		"both are added where the file asks":     {both, Options{AddSpecial: true}, []int32{tokStart, 'x', tokEnd}},
		"none are added without AddSpecial":      {both, Options{}, []int32{'x'}},
		"byte-level files add none by default":   {byteLevelFile(), Options{AddSpecial: true}, []int32{'x'}},
		"some pre-tokenizers add BOS by default": {byteLevelFile().with(keyPre, "llama-bpe"), Options{AddSpecial: true}, []int32{tokStart, 'x'}},
		"the file overrides the pre-tokenizer":   {byteLevelFile().with(keyPre, "llama-bpe").with(keyAddBOS, false), Options{AddSpecial: true}, []int32{'x'}},
		"SentencePiece adds BOS by default":      {sentencePieceFile(), Options{AddSpecial: true}, []int32{1, spmSpace, spmByte0 + 'x'}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := encode(t, mustNew(t, c.file), "x", c.o); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestOnlyParsedTextBecomesSpecialTokens(t *testing.T) {
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
		"parsed text becomes control tokens":                {[]Span{{"<|im_start|>x<|im_end|>", true}}, []int32{tokStart, 'x', tokEnd}},
		"unparsed text does not become control tokens":      {[]Span{{"x<|im_end|>", false}}, spelled("x<|im_end|>")},
		"unparsed text between parsed text does not either": {[]Span{{"<|im_start|>", true}, {"<|im_end|>", false}, {"<|im_end|>", true}}, cat([]int32{tokStart}, spelled("<|im_end|>"), []int32{tokEnd})},
		"a control token cannot start in unparsed text":     {[]Span{{"x<|im", false}, {"_end|>", true}}, spelled("x<|im_end|>")},
		"a control token cannot end in unparsed text":       {[]Span{{"x<|im", true}, {"_end|>", false}}, spelled("x<|im_end|>")},
		"a control token cannot contain unparsed text":      {[]Span{{"x<|im", true}, {"_", false}, {"end|>", true}}, spelled("x<|im_end|>")},
		"a control token can cross parsed spans":            {[]Span{{"x<|im", true}, {"", false}, {"_end|>", true}}, []int32{'x', tokEnd}},
		"user-defined tokens are recognised in any text":    {[]Span{{"x<thi", true}, {"nk>", false}}, []int32{'x', tokThink}},
		"user-defined markers are not, in unparsed text":    {[]Span{{"x<|user|>", false}}, spelled("x<|user|>")},
		"user-defined markers are, in parsed text":          {[]Span{{"x<|user|>", true}}, []int32{'x', tokUser}},
		"words can cross spans":                             {[]Span{{"h", false}, {"el", true}, {"", true}, {"lo", false}}, []int32{tokHell, 'o'}},
		"no spans have no tokens":                           {nil, nil},
		"empty spans have no tokens":                        {[]Span{{"", true}, {"", false}}, nil},
		"a control token after unparsed text is recognised": {[]Span{{"<|im_start|>", false}, {"<|im_start|>", true}}, cat(spelled("<|im_start|>"), []int32{tokStart})},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tok.EncodeSpans(context.Background(), c.spans, false)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestTheLongestSpecialTokenWins(t *testing.T) {
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
		{"the longest token wins", "<a>bc>", true, []int32{abc}},
		{"an incomplete longer token does not match", "<a>bc", true, []int32{ab, 'c'}},
		{"unparsed text matches the longest token that needs no parsing", "<a>bc", false, []int32{a, '>', 'b', 'c'}},
		{"the shortest token matches twice", "<a<a", true, []int32{a, a}},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := encode(t, tok, c.text, Options{ParseSpecial: c.parse}); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestDecodeAndPieceReturnTheTextOfTokens(t *testing.T) {
	bpe, spm := mustNew(t, byteLevelFile()), mustNew(t, sentencePieceFile())
	for _, c := range []struct {
		why     string
		tok     *Tokenizer
		ids     []int32
		special bool
		want    string
	}{
		{"control tokens are omitted", bpe, []int32{tokStart, tokHell, 'o', tokEnd}, false, "hello"},
		{"control tokens are included on demand", bpe, []int32{tokStart, tokHell, 'o', tokEnd}, true, "<|im_start|>hello<|im_end|>"},
		{"user-defined tokens are included", bpe, []int32{tokThink, 'x'}, false, "<think>x"},
		{"ids outside the vocabulary are omitted", bpe, []int32{-1, 'x', 265, math.MaxInt32, math.MinInt32}, true, "x"},
		{"bytes are joined to runes", bpe, []int32{0xC3, 0xA9}, false, "é"},
		{"the space that Encode inserts is removed", spm, []int32{spmSpaceA, spmSpaceA}, false, "a a"},
		{"the space inserted after BOS is removed", spm, []int32{1, spmSpaceA, 2}, false, "a"},
		{"only one space is removed", spm, []int32{spmSpace, spmSpaceA}, false, " a"},
		{"SentencePiece control tokens are included on demand", spm, []int32{1, spmSpaceA, 2}, true, "<s>a</s>"},
		{"byte tokens are joined to runes", spm, []int32{spmSpace, spmByte0 + 0xC3, spmByte0 + 0xA9}, false, "é"},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := c.tok.Decode(c.ids, c.special); got != c.want {
				t.Errorf("decoded %q, want %q", got, c.want)
			}
		})
	}
	if got := string(spm.Piece(spmSpaceA, false)); got != " a" {
		t.Errorf("got piece %q, want %q with its space", got, " a")
	}
	if got := bpe.Piece(tokEnd, false); got == nil || len(got) != 0 {
		t.Errorf("piece of a control token: got %#v, want empty and not nil", got)
	}
	if bpe.Piece(-1, true) != nil || bpe.Piece(265, true) != nil {
		t.Error("an id outside the vocabulary has a piece")
	}
}

func TestTokenizerReportsItsVocabulary(t *testing.T) {
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

func TestByteLevelDecodeReturnsTheEncodedBytes(t *testing.T) {
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
				t.Fatalf("%s: %q was decoded as %q, its pieces are %q", pre, text, got, pieces)
			}
		}
	}
}

func TestSentencePieceDecodeReturnsTheEncodedText(t *testing.T) {
	tok := mustNew(t, sentencePieceFile())
	r := rand.New(rand.NewPCG(2, 2))
	for range 4000 {
		// SentencePiece writes a space as ▁, so it decodes ▁ to a space.
		text := strings.ReplaceAll(randomText(r, 12), "▁", " ")
		if got := tok.Decode(encode(t, tok, text, Options{}), false); got != text {
			t.Fatalf("%q was decoded as %q", text, got)
		}
	}
}

func TestSpanBoundariesDoNotChangeTheTokens(t *testing.T) {
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
				t.Fatalf("%q in spans %v: got %v, %v, want %v", text, spans, got, err, whole)
			}
		}
	}
}

// naiveMerge implements the definition of both kinds of merge: search all pairs, join the
// leftmost of the best, repeat.
func naiveMerge(symbols []string, rank func(left, right string) (float64, bool)) []string {
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

func TestMergesMatchTheDefinition(t *testing.T) {
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
			for _, s := range naiveMerge(strings.Split(text, ""), func(l, r string) (float64, bool) {
				n, ok := ranks[[2]string{l, r}]
				return n, ok
			}) {
				want = append(want, int32(slices.Index(file[keyTokens].([]string), s)))
			}
			if got := encode(t, tok, text, Options{}); !slices.Equal(got, want) {
				t.Fatalf("%q: got %v, want %v", text, got, want)
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
					for _, s := range naiveMerge(strings.Split("▁"+strings.ReplaceAll(text, " ", "▁"), ""), func(l, r string) (float64, bool) {
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
					t.Fatalf("%q: got %v, want %v", text, got, want)
				}
			}
		})
	}
}

// The texts are long enough that the queue uses buckets.
func TestMergesOfALongWordMatchTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	// All pairs of letters and longer ones, in an order that training would not produce: a
	// token may have a better rank than its parts.
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
	for _, n := range []int{smallQueue - 1, smallQueue + 2, 1000, 1500} {
		word := make([]string, n)
		for i := range word {
			word[i] = string('a' + r.Int32N(5))
		}
		text := strings.Join(word, "")
		var want []int32
		for _, s := range naiveMerge(word, func(l, r string) (float64, bool) {
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

// withToken returns a copy of a SentencePiece file with one more token.
func withToken(m metadata, text string, score float32) metadata {
	return m.with(keyTokens, append(slices.Clone(m[keyTokens].([]string)), text)).
		with(keyTypes, append(slices.Clone(m[keyTypes].([]int32)), int32(kindNormal))).
		with(keyScores, append(slices.Clone(m[keyScores].([]float32)), score))
}

func TestTokenizerIsSafeForConcurrentUse(t *testing.T) {
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
					t.Errorf("%q: got %v, %v, want %v", text, got, err, want[i])
				}
			}
		})
	}
	wg.Wait()
}

func TestPieceCacheReturnsWhatWasStored(t *testing.T) {
	c := newPieceCache()
	kept := 0
	for i := range 3 * cacheSlots {
		piece := fmt.Sprint(i)
		if _, ok := c.get(piece); ok {
			t.Fatalf("%q was found before it was stored", piece)
		}
		c.put(piece, []int32{int32(i)})
		if ids, ok := c.get(piece); !ok || !slices.Equal(ids, []int32{int32(i)}) {
			t.Fatalf("%q: got %v, %v", piece, ids, ok)
		}
	}
	for i := range 3 * cacheSlots {
		ids, ok := c.get(fmt.Sprint(i))
		if ok && !slices.Equal(ids, []int32{int32(i)}) {
			t.Fatalf("%d: got %v", i, ids)
		}
		if ok {
			kept++
		}
	}
	if kept == 0 || kept > cacheSlots {
		t.Errorf("%d pieces are cached, want 1 to %d", kept, cacheSlots)
	}
	for name, c2 := range map[string]struct {
		piece string
		ids   []int32
	}{
		"a long piece":           {strings.Repeat("a", maxCachedBytes+1), []int32{1}},
		"a piece of many tokens": {"b", make([]int32, maxCachedIDs+1)},
	} {
		c.put(c2.piece, c2.ids)
		if _, ok := c.get(c2.piece); ok {
			t.Errorf("%s was cached", name)
		}
	}
}

// checkCounter is a context that counts calls of Err and is cancelled after last of them.
type checkCounter struct {
	context.Context
	checks, last int
}

func (c *checkCounter) Err() error {
	c.checks++
	if c.checks > c.last {
		return context.Canceled
	}
	return nil
}

func TestEncodeChecksItsContextEvery64KiB(t *testing.T) {
	texts := map[string]string{
		"words":       strings.Repeat("hello lol ", 1<<18/10),
		"one word":    strings.Repeat("hel", 1<<18/3),
		"begin signs": strings.Repeat("<", 1<<18),
	}
	for model, file := range map[string]metadata{"byte-level": byteLevelFile(), "SentencePiece": sentencePieceFile()} {
		tok := mustNew(t, file)
		for name, text := range texts {
			t.Run(model+", "+name, func(t *testing.T) {
				encode(t, tok, text, Options{}) // fills the cache, so that both runs take the same steps
				ctx := &checkCounter{Context: context.Background(), last: math.MaxInt}
				if _, err := tok.Encode(ctx, text, Options{}); err != nil {
					t.Fatal(err)
				}
				if want := len(text) >> 16; ctx.checks < want {
					t.Errorf("checked %d times in %d bytes, want at least %d", ctx.checks, len(text), want)
				}
				for _, last := range []int{0, 1, ctx.checks / 2, ctx.checks - 1} {
					early := &checkCounter{Context: context.Background(), last: last}
					ids, err := tok.Encode(early, text, Options{})
					if !errors.Is(err, context.Canceled) || ids != nil {
						t.Errorf("cancelled after %d checks: got %d tokens and error %v", last, len(ids), err)
					}
					if early.checks != last+1 {
						t.Errorf("checked %d times more after it was cancelled", early.checks-last-1)
					}
				}
			})
		}
	}
}
