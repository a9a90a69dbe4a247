package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/sample"
)

// spelled is what pieces read as, with the piece in which each byte's rune begins. An
// unfinished rune at the end reads as U+FFFD if ended is set, else as nothing.
func spelled(pieces [][]byte, ended bool) (text string, from []int) {
	var owner []int
	for i, piece := range pieces {
		owner = append(owner, slices.Repeat([]int{i}, len(piece))...)
	}
	text, starts, rest := located(bytes.Join(pieces, nil))
	if ended && len(rest) > 0 {
		text += "\uFFFD"
		starts = append(starts, slices.Repeat([]int{len(owner) - len(rest)}, 3)...)
	}
	for _, start := range starts {
		from = append(from, owner[start])
	}
	return text, from
}

// firstBanned returns the piece in which the banned string begins that is complete
// first, of several the longest.
func firstBanned(pieces [][]byte, bans []string, ended bool) (piece int, found bool) {
	text, from := spelled(pieces, ended)
	for end := range len(text) + 1 {
		longest := ""
		for _, ban := range bans {
			if strings.HasSuffix(text[:end], ban) && len(ban) > len(longest) {
				longest = ban
			}
		}
		if longest != "" {
			return from[end-len(longest)], true
		}
	}
	return 0, false
}

// mayBegin returns the first piece that may hold the beginning of a banned string.
func mayBegin(pieces [][]byte, bans []string) int {
	text, from := spelled(pieces, false)
	whole, _ := spelled(pieces, true)
	for n := len(text); n > 0; n-- {
		if slices.ContainsFunc(bans, func(ban string) bool { return len(ban) > n && ban[:n] == text[len(text)-n:] }) {
			return from[len(text)-n]
		}
	}
	if len(whole) > len(text) {
		_, from = spelled(pieces, true)
		return from[len(text)]
	}
	return len(pieces)
}

// without writes an answer of the toy as slowly as can be: after each token it spells
// all of them, and begins anew where a banned string is among them.
func without(t interface{ Fatal(...any) }, m *openModel, r infer.Request) (ids []int32, reason infer.FinishReason) {
	chain, err := sample.NewChain(r.Params, vocabulary{m})
	if err != nil {
		t.Fatal(err)
	}
	pieces := func(ids []int32) (list [][]byte) {
		for _, id := range ids {
			list = append(list, m.tokenizer.Piece(id, false))
		}
		return list
	}
	alone := map[int32]bool{} // tokens that spell a banned string
	for id := range int32(toyVocab) {
		_, alone[id] = firstBanned(pieces([]int32{id}), r.BannedStrings, false)
	}
	forbidden := map[string][]int32{} // by the tokens in front of them
	sent := 0                         // tokens that stay
	logits := make([]float32, toyVocab)
	for {
		tokens := slices.Concat(r.Tokens, ids)
		here := forbidden[spell(tokens)]
		mask := make(sample.Mask, (toyVocab+63)/64)
		for id := range int32(toyVocab) {
			if !slices.Contains(here, id) && !(alone[id] && len(here) >= forbidAllAfter) {
				mask[id/64] |= 1 << (id % 64)
			}
		}
		fillLogits(logits, historyOf(tokens))
		c, err := chain.Next(sample.Input{Row: sample.RowOf(logits), History: tokens, Pos: len(tokens), Mask: mask})
		if errors.Is(err, sample.ErrMasked) {
			return ids, infer.FinishBanned
		}
		if err != nil {
			t.Fatal(err)
		}
		ends := m.tokenizer.IsEnd(c.ID) && !r.IgnoreEOS
		longer := append(slices.Clone(ids), c.ID)
		if ends {
			longer = ids
		}
		full := len(longer) == r.MaxTokens
		if at, found := firstBanned(pieces(longer), r.BannedStrings, ends || full); found {
			ids = longer[:max(at, sent)]
			before := spell(slices.Concat(r.Tokens, ids))
			forbidden[before] = append(forbidden[before], append(longer, c.ID)[len(ids)])
			continue
		}
		ids = longer
		if ends {
			return ids, infer.FinishStop
		}
		if full {
			return ids, infer.FinishLength
		}
		sent = max(sent, mayBegin(pieces(ids), r.BannedStrings))
	}
}

func TestEngine_BannedStringsAgainstASlowTwin(t *testing.T) {
	m := toySource(t)
	b := newBench(t, nil)
	rewound, ends := 0, map[infer.FinishReason]int{}
	rapid.Check(t, func(t *rapid.T) {
		r := request(span(10, rapid.Int32Range(11, 75).Draw(t, "prompt")), rapid.IntRange(1, 30).Draw(t, "tokens"))
		r.Params.TopK, r.Params.TopP, r.Params.MinP, r.Params.Seed = 0, 1, 0, rapid.Int64Range(0, 1000).Draw(t, "seed")
		r.Params.Temperature = rapid.SampledFrom([]float64{0, 1, 4}).Draw(t, "temperature") // 4: bytes that are no text, and the end token
		plain := b.ask(r)
		if plain.err != nil {
			t.Fatal(plain.err)
		}
		// Parts of what would be written are what is sure to be in the way.
		letters := []rune(plain.text)
		for range rapid.IntRange(0, 4).Draw(t, "bans") {
			if len(letters) == 0 {
				break
			}
			from := rapid.IntRange(0, len(letters)-1).Draw(t, "from")
			to := min(len(letters), from+rapid.IntRange(1, 5).Draw(t, "length"))
			r.BannedStrings = append(r.BannedStrings, string(letters[from:to]))
		}
		r.BannedStrings = append(r.BannedStrings, rapid.SampledFrom([]string{"qqq", "e", "th", "\uFFFD", "\uFFFDa"}).Draw(t, "another"))
		a := b.ask(r)
		if a.err != nil {
			t.Fatal(a.err)
		}
		ids, reason := without(t, m, r)
		if !slices.Equal(a.ids(), ids) || a.done.Reason != reason {
			t.Fatalf("without %q: %v, %s; want %v, %s", r.BannedStrings, a.ids(), a.done.Reason, ids, reason)
		}
		if slices.Equal(a.ids(), plain.ids()) && a.text != plain.text {
			t.Fatalf("the text is %q, want %q", a.text, plain.text)
		}
		for _, ban := range r.BannedStrings {
			if strings.Contains(a.text, ban) {
				t.Fatalf("%q contains %q", a.text, ban)
			}
		}
		if !slices.ContainsFunc(r.BannedStrings, func(ban string) bool { return strings.Contains(plain.text, ban) }) && !reflect.DeepEqual(a.tokens, plain.tokens) {
			t.Fatalf("nothing banned would have come, but %v became %v", plain.ids(), a.ids())
		}
		if !slices.Equal(a.ids(), plain.ids()) {
			rewound++
		}
		ends[a.done.Reason]++
	})
	if rewound < 20 || ends[infer.FinishLength] < 20 {
		t.Errorf("%d answers changed, ends %v: too few to test anything", rewound, ends)
	}
}

func TestEngine_BannedStringsInCrowdedMemory(t *testing.T) {
	// Answers to one prompt share blocks, give way to each other and take back tokens
	// across the ends of blocks.
	m := toySource(t)
	var requests []infer.Request
	for i := range 12 {
		r := request(span(10, int32(36+i%3)), 70)
		r.Params.Temperature, r.Params.TopK, r.Params.TopP, r.Params.MinP, r.Params.Seed = 1.5, 0, 1, 0, int64(i/2)
		r.IgnoreEOS = true
		r.BannedStrings = []string{"e", "an", "tz"}
		requests = append(requests, r)
	}
	b := newBench(t, func(b *bench, o *Options) {
		o.Parallel, o.ChunkRows, o.ContextLength = 6, 40, 128
		b.memory = memoryFor(t, *o, 12)
	})
	for round := range 2 { // the second one begins in what the first one left in the cache
		var wg sync.WaitGroup
		for i, r := range requests {
			wg.Go(func() {
				a := b.ask(r)
				if want, _ := without(t, m, r); a.err != nil || !slices.Equal(a.ids(), want) {
					t.Errorf("round %d, request %d: %v, %v; want %v", round, i, a.ids(), a.err, want)
				}
			})
		}
		wg.Wait()
	}
}

func TestEngine_BannedStrings(t *testing.T) {
	prompt := span(10, 20)
	plain := newBench(t, nil).ask(request(prompt, 30))
	text := plain.text
	tests := []struct {
		name   string
		set    func(*infer.Request)
		check  func(a outcome) bool
		wanted string
	}{
		{"one that does not come changes nothing", func(r *infer.Request) { r.BannedStrings = []string{"QQ", "\uFFFD"} },
			func(a outcome) bool { return reflect.DeepEqual(a.tokens, plain.tokens) }, "the plain answer"},
		{"case counts", func(r *infer.Request) { r.BannedStrings = []string{strings.ToUpper(text[4:6])} },
			func(a outcome) bool { return a.text == text }, "the plain answer"},
		{"what comes before it stays", func(r *infer.Request) { r.BannedStrings = []string{text[8:14]} },
			func(a outcome) bool {
				return strings.HasPrefix(a.text, text[:7]) && !strings.Contains(a.text, text[8:14])
			}, "another text from character 8 on"},
		{"a stop string that is complete before it ends the answer", func(r *infer.Request) {
			r.Stop, r.BannedStrings = []string{text[8:11]}, []string{text[8:14]}
		}, func(a outcome) bool { return a.done.StopString == text[8:11] && a.text == text[:8] }, "the text in front of the stop string"},
		{"one that is complete before a stop string is taken back", func(r *infer.Request) {
			r.Stop, r.BannedStrings = []string{text[8:14]}, []string{text[8:11]}
		}, func(a outcome) bool { return a.done.StopString == "" && !strings.Contains(a.text, text[8:11]) }, "no stop"},
		{"where every token is in the way the answer ends in front of it", func(r *infer.Request) {
			r.BannedStrings = []string{"\uFFFD"}
			for c := range 128 {
				r.BannedStrings = append(r.BannedStrings, string(rune(c)))
			}
			// What spells nothing is in nobody's way: here it cannot come.
			r.Params.LogitBias = map[int32]float64{0: -1000, 1: -1000, 2: -1000}
			r.MaxTokens = 3
		}, func(a outcome) bool { return a.text == "" }, "no text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := request(prompt, 30)
			tt.set(&r)
			if a := newBench(t, nil).ask(r); a.err != nil || !tt.check(a) {
				t.Errorf("%q, %+v, %v; want %s", a.text, a.done, a.err, tt.wanted)
			}
		})
	}
}

func TestEngine_BannedStringsInAnAnswerThatIsHeldToAGrammar(t *testing.T) {
	b := newBench(t, nil)
	changed := 0
	for seed := range int64(40) {
		r := request(span(10, 20), 40)
		r.Params.Temperature, r.Params.TopK, r.Params.TopP, r.Params.MinP, r.Params.Seed = 2, 0, 1, 0, seed
		r.Grammar = `root ::= [abc]{12} "." | [abc]{5} "a!"`
		plain := b.ask(r)
		r.BannedStrings = []string{"ab", "ca", "ccc", "!"}
		a := b.ask(r)
		if a.err != nil || a.done.Reason != infer.FinishStop || !regexp.MustCompile(`^[abc]{12}\.$`).MatchString(a.text) {
			t.Fatalf("seed %d: %q, %+v, %v", seed, a.text, a.done, a.err)
		}
		for _, ban := range r.BannedStrings {
			if strings.Contains(a.text, ban) {
				t.Errorf("seed %d: %q contains %q", seed, a.text, ban)
			}
		}
		if plain.text != a.text {
			changed++
		}
	}
	if changed < 20 {
		t.Errorf("%d answers changed: too few to test anything", changed)
	}
}

func TestEngine_TheSearchForAnAnswerWithoutBannedStringsEnds(t *testing.T) {
	steps := 0
	b := newBench(t, func(b *bench, o *Options) {
		b.onStep = func(step int, _ *device.Batch) error { steps = step; return nil }
		b.onLogits = func(logits []float32, _ int32) {
			for id := range logits {
				if id != letterA && id != letterA+1 {
					logits[id] = float32(math.Inf(-1))
				}
			}
		}
	})
	// Only a and b can come, and whatever is made of them is banned once it is long.
	r := request(span(10, 20), 100)
	for i := range 256 {
		r.BannedStrings = append(r.BannedStrings, strings.Map(func(c rune) rune { return 'a' + c - '0' }, fmt.Sprintf("%08b", i)))
	}
	a := b.ask(r)
	if a.err != nil || a.done.Reason != infer.FinishBanned || len(a.text) > 7 {
		t.Fatalf("%q, %+v, %v; want an end in front of eight letters", a.text, a.done, a.err)
	}
	if steps > 10*maxRewinds {
		t.Errorf("it took %d steps", steps)
	}
}

func TestTextEdge_TellsInWhichPieceABannedStringBegins(t *testing.T) {
	for name, tt := range map[string]struct {
		bans   []string
		pieces []string
		at     int // -1: none
		open   int // after the last piece
	}{
		"none":                                    {[]string{"ab"}, []string{"x", "ba"}, -1, 1},
		"within a piece":                          {[]string{"ab"}, []string{"x", "xaby"}, 1, 0},
		"over three pieces":                       {[]string{"abc"}, []string{"xa", "b", "cd"}, 0, 0},
		"behind a piece that spells nothing":      {[]string{"ab"}, []string{"x", "", "ab"}, 2, 0},
		"of two that end together the longer":     {[]string{"c", "abc"}, []string{"a", "b", "c"}, 0, 0},
		"a beginning inside a beginning":          {[]string{"aab"}, []string{"a", "a", "a", "b"}, 1, 0},
		"a beginning that comes to nothing":       {[]string{"abc"}, []string{"a", "b", "x", "a"}, -1, 3},
		"a rune that is split":                    {[]string{"é!"}, []string{"a", "\xc3", "\xa9!"}, 1, 0},
		"half a rune may be the beginning of one": {[]string{"é!"}, []string{"a", "\xc3"}, -1, 1},
		"bytes that are no text":                  {[]string{"\uFFFDa"}, []string{"\xe2", "\x82", "a"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTextBuffer(nil, tt.bans)
			for _, piece := range tt.pieces {
				e.push([]byte(piece))
			}
			if e.banned != (tt.at >= 0) || e.banned && e.bannedAt != tt.at || !e.banned && e.firstOpenPiece() != tt.open {
				t.Errorf("found %v at piece %d, open from %d; want piece %d, open from %d", e.banned, e.bannedAt, e.firstOpenPiece(), tt.at, tt.open)
			}
		})
	}
}
