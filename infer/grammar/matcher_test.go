package grammar

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/tokenizer"
)

// A small vocabulary: single bytes, parts of characters, longer pieces, two tokens with the
// same text, and tokens without text.
const (
	toyControl  = 0
	toyEnd      = 1
	toyControl2 = 2
	toyFirst    = 3
)

var toyPieces = []string{
	"", "", "", "a", "b", "c", "ab", "abc", "ba", "aa", "a", "(", ")", "()", "((", "é", "\xc3", "\xa9", "a\xc3", "\xa9b",
	"x", "y", "xy", "yx", `"`, `",`, "1", "12", "-", "0", "\xf0\x9f", "\x98\x80", "c)", ".", "abcabcabc", "\xff", " ", "\n",
}

func toyVocabulary() *Vocabulary {
	return NewVocabulary(len(toyPieces), func(id int32) []byte { return []byte(toyPieces[id]) }, func(id int32) bool { return id == toyEnd })
}

// symbolsOf returns tokens as the symbols that the reference reads.
func symbolsOf(tokens []int32) (text []symbol, spans map[int]span) {
	spans = map[int]span{}
	for _, id := range tokens {
		if toyPieces[id] == "" {
			text = append(text, 256+symbol(id))
			continue
		}
		from := len(text)
		text = append(text, symbols(toyPieces[id])...)
		spans[from] = span{id, len(text)}
	}
	return text, spans
}

// randomGrammar returns a grammar of a few rules. It may be left-recursive or never end,
// which Parse refuses.
func randomGrammar(random *rand.Rand) string {
	rules := []string{"root", "a", "b", "c"}
	var item func(depth int) string
	sequence := func(depth int) string {
		items := []string{`""`}
		for range random.IntN(4) {
			items = append(items, item(depth))
		}
		return strings.Join(items, " ")
	}
	alternatives := func(depth int) string {
		list := []string{sequence(depth)}
		for range random.IntN(3) {
			list = append(list, sequence(depth))
		}
		return strings.Join(list, " | ")
	}
	item = func(depth int) string {
		var s string
		switch random.IntN(8) {
		case 0, 1:
			s = Literal(toyPieces[toyFirst+random.IntN(12)])
		case 2:
			s = []string{"[a-c]", "[^a]", ".", "[é-ê]", "[xy]", "[^a-zA-Z\\x00-\\x7f]"}[random.IntN(6)]
		case 3, 4, 5:
			s = rules[random.IntN(len(rules))]
		case 6:
			s = []string{"<[0]>", "<[2]>", "<[3]>"}[random.IntN(3)]
		default:
			if s = "[b]"; depth < 3 {
				s = "(" + alternatives(depth+1) + ")"
			}
		}
		return s + []string{"", "", "", "", "?", "*", "+", "{2}", "{1,2}", "{,3}", "{4,6}", "{2,}"}[random.IntN(12)]
	}
	var b strings.Builder
	for _, rule := range rules {
		fmt.Fprintf(&b, "%s ::= %s\n", rule, alternatives(0))
	}
	return b.String()
}

// TestMasksAgreeWithTheReference writes random answers to random grammars with their masks.
// Each mask must be the tokens that Next accepts; the reference must agree where an answer
// may end; and every text that the reference accepts must be possible.
func TestMasksAgreeWithTheReference(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	v := toyVocabulary()
	var walks, accepted, refused, grammars, tooComplex int
	enough := 100
	if fixtures.Torture() {
		enough = 3000
	}
	for grammars < enough {
		text := randomGrammar(random)
		s, err := parse(text)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		g, err := Parse(context.Background(), text)
		if err != nil {
			if !strings.Contains(err.Error(), "left-recursive") && !strings.Contains(err.Error(), "can never end") {
				t.Fatalf("%v in:\n%s", err, text)
			}
			refused++
			continue
		}
		grammars++
		m, err := NewMatcher(g, v)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			walks++
			ends, err := walk(t, m, s, text, random)
			if accepted += ends; errors.Is(err, ErrTooComplex) {
				tooComplex++
			}
		}
		// Texts that follow nothing.
		for range 10 {
			var tokens []int32
			for range random.IntN(5) {
				tokens = append(tokens, int32(random.IntN(len(toyPieces))))
			}
			checkText(t, m, s, text, slices.DeleteFunc(tokens, func(id int32) bool { return id == toyEnd }))
		}
	}
	t.Logf("%d grammars, %d refused, %d walks, %d too ambiguous to go on, %d places where a text may end", grammars, refused, walks, tooComplex, accepted)
	if accepted < walks/2 {
		t.Error("the walks hardly ever came to a place where the text may end")
	}
	if tooComplex > walks/1000 {
		t.Errorf("%d of %d walks were too ambiguous to go on", tooComplex, walks)
	}
}

// walk takes random tokens of the masks, and returns at how many places the text may end.
// It returns the error at which it stopped, if any.
func walk(t *testing.T, m *Matcher, s *syntax, text string, random *rand.Rand) (accepted int, _ error) {
	var tokens []int32
	at := m.Start()
	for len(tokens) < 8 {
		if at.Accepts() != s.has(symbolsOf(tokens)) {
			t.Fatalf("%v: accepted %v in\n%s", tokens, at.Accepts(), text)
		}
		if at.Accepts() {
			accepted++
		}
		mask, err := m.Mask(at)
		if errors.Is(err, ErrNoToken) || errors.Is(err, ErrTooComplex) {
			return accepted, err
		}
		if err != nil {
			t.Fatal(err)
		}
		allowed := allowedBy(t, m, at, mask, text)
		if at.Complete() && len(allowed) > 0 {
			t.Fatalf("%v is complete, but may go on with %v in\n%s", tokens, allowed, text)
		}
		if len(allowed) == 0 {
			return accepted, nil
		}
		id := allowed[random.IntN(len(allowed))]
		if at, err = m.Next(at, id); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, id)
	}
	return accepted, nil
}

// allowedBy returns the tokens of a mask without end tokens, and compares the mask with
// trying each token.
func allowedBy(t *testing.T, m *Matcher, at State, mask []uint64, what string) (allowed []int32) {
	t.Helper()
	for id := range int32(m.vocab.size) {
		_, err := m.Next(at, id)
		got, want := mask[id/64]>>(id%64)&1 == 1, err == nil
		if slices.Contains(m.vocab.ends, id) {
			want = want || at.Accepts() // a grammar may name it, too
		} else if want {
			allowed = append(allowed, id)
		}
		if got != want {
			t.Fatalf("the mask says %v of token %d, trying it %v (%v), in\n%s", got, id, want, err, what)
		}
	}
	return allowed
}

// checkText compares the matcher with the reference on any tokens.
func checkText(t *testing.T, m *Matcher, s *syntax, text string, tokens []int32) {
	at, ok := m.Start(), true
	for _, id := range tokens {
		next, err := m.Next(at, id)
		if err != nil {
			ok = false
			break
		}
		at = next
	}
	if got, want := ok && at.Accepts(), s.has(symbolsOf(tokens)); got != want {
		t.Fatalf("%v: accepted %v, want %v, in\n%s", tokens, got, want, text)
	}
}

func TestAnswersCanBeResumedFromEarlierStates(t *testing.T) {
	g, err := Parse(context.Background(), `root ::= "(" root ")" root | "a" | ""`)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatcher(g, toyVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	id := func(piece string) int32 { return int32(slices.Index(toyPieces, piece)) }
	path := []State{m.Start()}
	masks := [][]uint64{}
	for _, piece := range []string{"((", ")", "a", ")", "()"} {
		mask, err := m.Mask(path[len(path)-1])
		if err != nil {
			t.Fatal(err)
		}
		masks = append(masks, slices.Clone(mask))
		next, err := m.Next(path[len(path)-1], id(piece))
		if err != nil {
			t.Fatal(err)
		}
		path = append(path, next)
	}
	m.reset() // nothing that is remembered may matter
	for i := len(masks) - 1; i >= 0; i-- {
		mask, err := m.Mask(path[i])
		if err != nil || !slices.Equal(mask, masks[i]) {
			t.Errorf("the mask after %d tokens changed: %v", i, err)
		}
	}
}

func TestManyAnswersShareAMatcher(t *testing.T) {
	g, err := Parse(context.Background(), `root ::= ("(" root ")" | [a-c])+`)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatcher(g, toyVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	s, _ := mustParse(t, `root ::= ("(" root ")" | [a-c])+`)
	var all sync.WaitGroup
	for seed := range uint64(4) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 20 {
				if _, err := walk(t, m, s, "the shared grammar", random); errors.Is(err, ErrTooComplex) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestControlTokensAreAllowedOnlyByTheirIDs(t *testing.T) {
	g, err := Parse(context.Background(), `root ::= .* <[2]> "a"?`)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatcher(g, toyVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	at := m.Start()
	mask, err := m.Mask(at)
	if err != nil {
		t.Fatal(err)
	}
	if mask[0]&(1<<toyControl|1<<toyEnd|1<<toyControl2) != 1<<toyControl2 {
		t.Errorf("before the token: %b", mask[0])
	}
	if at, err = m.Next(at, toyControl2); err != nil {
		t.Fatal(err)
	}
	if mask, err = m.Mask(at); err != nil {
		t.Fatal(err)
	}
	a, other := slices.Index(toyPieces, "a"), slices.Index(toyPieces, "a")+7
	if want := uint64(1<<toyEnd | 1<<a | 1<<other); mask[0] != want {
		t.Errorf("after the token: %b, want %b", mask[0], want)
	}
}

func TestGrammarsThatCannotBeUsedAreErrors(t *testing.T) {
	for _, c := range []struct{ name, grammar, want string }{
		{"nothing", "", "no rule root"},
		{"no root", `a ::= "b"`, "no rule root"},
		{"a rule that is not there", "root ::= \"a\"\n  | other", "line 2: the rule other is not defined"},
		{"two definitions", "root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule root is defined twice"},
		{"no arrow", "root = \"a\"", "expected ::= after root"},
		{"a literal without end", "root ::= \"a\n", "line 1: a literal or class is not closed"},
		{"a class without end", "root ::= [a", "not closed"},
		{"a group without end", "root ::= (\"a\"", "expected )"},
		{"a group that is closed twice", "root ::= \"a\")", "expected the end of rule root, not ')'"},
		{"an unknown escape", `root ::= "\q"`, `escape \q`},
		{"half an escape", `root ::= "\u12"`, "hexadecimal"},
		{"a surrogate", `root ::= "\ud800"`, "not a character"},
		{"a reversed range", `root ::= [b-a]`, "reversed"},
		{"a reversed repetition", `root ::= "a"{3,2}`, "reversed"},
		{"no repetition", `root ::= "a"{,}`, "a repetition is"},
		{"a huge repetition", `root ::= "a"{99999999999}`, "a repetition is"},
		{"a token by its text", `root ::= <think>`, "by its id"},
		{"a token without number", `root ::= <[x]>`, "by its id"},
		{"not UTF-8", "root ::= \"\xff\"", "UTF-8"},
		{"left recursion", "root ::= root \"a\" | \"b\"", "rule root is left-recursive"},
		{"left recursion of two", "root ::= \"x\" a\na ::= b \"y\" | \"z\"\nb ::= a", "rule a is left-recursive"},
		{"left recursion behind nothing", "root ::= empty root \"a\" | \"b\"\nempty ::= \"x\"?", "rule root is left-recursive"},
		{"no end", "root ::= \"a\" b\nb ::= \"c\" b", "rule root can never end"},
		{"no characters", "root ::= []", "rule root can never end"},
		{"deep groups", "root ::= " + strings.Repeat("(", 200) + strings.Repeat(")", 200), "nested more than"},
		{"too long", "root ::= \"a\"" + strings.Repeat(" ", maxText), "the limit is"},
		{"too large", "root ::= " + strings.Repeat(`("abcdefghijklmnopqrstuvwxyz" | "b"{9000})`, 20), "too large"},
		{"too deep", deepRules(200), "nested"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(context.Background(), c.grammar)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
	t.Run("a token that the vocabulary does not have", func(t *testing.T) {
		g, err := Parse(context.Background(), `root ::= <[38]>`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewMatcher(g, toyVocabulary()); err == nil || !strings.Contains(err.Error(), "token 38, but the model has 38 tokens") {
			t.Errorf("got error %v", err)
		}
	})
	t.Run("a caller who has gone", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := Parse(ctx, `root ::= "a"`); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v", err)
		}
	})
}

func deepRules(n int) string {
	var b strings.Builder
	b.WriteString("root ::= r0\n")
	for i := range n {
		fmt.Fprintf(&b, "r%d ::= \"(\" r%d \")\"\n", i, i+1)
	}
	fmt.Fprintf(&b, "r%d ::= \"a\"\n", n)
	return b.String()
}

func TestHostileGrammarsAreBounded(t *testing.T) {
	for _, c := range []struct{ name, grammar, text string }{
		{"everything is ambiguous", "root ::= a a a a a a a a\na ::= [a]* [a]* | a2 a2 | [a] a\na2 ::= [a]* | [a] a", strings.Repeat("a", 300)},
		{"nested repetitions", `root ::= ((([a]*)*)*){0,9}`, strings.Repeat("a", 300)},
		{"palindromes", `root ::= "a" root "a" | "b" root "b" | ""`, strings.Repeat("ab", 60)},
		{"sums that may be read in many ways", "root ::= \"a\" | \"a\" root root | \"a\" root", strings.Repeat("a", 300)},
		{"a hundred alternatives", "root ::= (" + strings.Repeat(`[a]{0,500} | `, 100) + `"b")`, strings.Repeat("a", 400)},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := Parse(context.Background(), c.grammar)
			if err != nil {
				t.Fatal(err)
			}
			m, err := NewMatcher(g, toyVocabulary())
			if err != nil {
				t.Fatal(err)
			}
			at := m.Start()
			a := int32(slices.Index(toyPieces, "a"))
			b := int32(slices.Index(toyPieces, "b"))
			for i := range len(c.text) {
				if _, err = m.Mask(at); err != nil {
					break
				}
				id := a
				if c.text[i] == 'b' {
					id = b
				}
				if at, err = m.Next(at, id); err != nil {
					break
				}
				if n := len(at.s.positions); n > maxPositions {
					t.Fatalf("after %d bytes there are %d places", i, n)
				}
				if m.stepper.work > 2*maxWork {
					t.Fatalf("after %d bytes one token took %d", i, m.stepper.work)
				}
				for _, p := range at.s.positions {
					if p.frame.depth > maxDepth {
						t.Fatalf("after %d bytes %d rules are open", i, p.frame.depth)
					}
				}
			}
			if err != nil && !errors.Is(err, ErrTooComplex) && !strings.Contains(err.Error(), "the grammar does not allow token") {
				t.Error(err)
			}
		})
	}
}

// TestWhetherAGrammarIsTooAmbiguousDoesNotDependOnTheCache asks for a mask twice, and
// for the masks of a walk in both directions.
func TestWhetherAGrammarIsTooAmbiguousDoesNotDependOnTheCache(t *testing.T) {
	many := "root ::= (" + strings.Repeat("[a-c]{0,50} [b-d]{0,9} | ", 900) + `"b")`
	refused := 0
	for _, text := range []string{many, "root ::= a a a a\na ::= [a-c]* [a-c]* | [a] a", `root ::= [a-c]{0,900} "."`} {
		g, err := Parse(context.Background(), text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewMatcher(g, manyLetters())
		if err != nil {
			t.Fatal(err)
		}
		path := []State{m.Start()}
		for range 3 {
			next, err := m.Next(path[len(path)-1], 1)
			if err != nil {
				break
			}
			path = append(path, next)
		}
		cold := make([]error, len(path))
		for i, at := range path {
			m.reset()
			_, cold[i] = m.Mask(at)
			if errors.Is(cold[i], ErrTooComplex) {
				refused++
			}
			if _, again := m.Mask(at); again != cold[i] {
				t.Errorf("%.40s, after %d tokens: got error %v, then %v", text, i, cold[i], again)
			}
		}
		for i := len(path) - 1; i >= 0; i-- {
			if _, warm := m.Mask(path[i]); warm != cold[i] {
				t.Errorf("%.40s, after %d tokens: got error %v where others are remembered, %v alone", text, i, warm, cold[i])
			}
		}
	}
	if refused == 0 {
		t.Error("no mask was too ambiguous")
	}
}

// manyLetters is a vocabulary of the texts of up to five of the letters a to d; token 0 ends.
func manyLetters() *Vocabulary {
	pieces := []string{""}
	for from := 0; len(pieces[from]) < 5; from++ {
		for _, letter := range "abcd" {
			pieces = append(pieces, pieces[from]+string(letter))
		}
	}
	return NewVocabulary(len(pieces), func(id int32) []byte { return []byte(pieces[id]) }, func(id int32) bool { return id == 0 })
}

func TestAMatcherReportsItsMemory(t *testing.T) {
	g, err := Parse(context.Background(), `root ::= [a-c]{0,2000}`)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatcher(g, manyLetters())
	if err != nil {
		t.Fatal(err)
	}
	empty := m.Bytes()
	if most := 4000 * 24; empty > most || empty < 4000*16 {
		t.Errorf("4000 instructions take %d bytes, want about %d", empty, most)
	}
	at, masks := m.Start(), map[*uint64]bool{}
	for range 1000 {
		mask, err := m.Mask(at)
		if err != nil {
			t.Fatal(err)
		}
		masks[&mask[0]] = true
		if at, err = m.Next(at, 1); err != nil {
			t.Fatal(err)
		}
	}
	if len(masks) != 1 {
		t.Errorf("%d masks are held where all are the same", len(masks))
	}
	if full := m.Bytes(); full-empty < 1000*100 || full > maxCached+empty {
		t.Errorf("1000 states take %d bytes", full-empty)
	}
}

func TestNestingIsLimited(t *testing.T) {
	_, p := schemaProgram(t, []byte(`true`))
	s := newStepper(p)
	at, depth := s.start(), 0
	for ; depth < 1000; depth++ {
		next := s.readByte(at, '[')
		if next == nil {
			break
		}
		at = next
	}
	if depth < 60 || depth > maxDepth {
		t.Errorf("JSON nests %d deep", depth)
	}
	for range depth {
		if at = s.readByte(at, ']'); at == nil {
			t.Fatal("what was opened cannot be closed")
		}
	}
	if !at.accepts {
		t.Error("the end is not one")
	}
}

// vocabularyOf reads the vocabulary of a fixture.
func vocabularyOf(t testing.TB, name string) (*Vocabulary, *tokenizer.Tokenizer) {
	t.Helper()
	f, err := gguf.Open(fixtures.Path(t, "tokenizers", "vocab", name+".gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := tokenizer.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return NewVocabulary(tok.VocabSize(), func(id int32) []byte { return tok.Piece(id, false) }, tok.IsEnd), tok
}

// TestAnswersInRealVocabulariesAreValid constrains answers to schemas: they must be valid, and
// each mask must agree with trying all tokens.
func TestAnswersInRealVocabulariesAreValid(t *testing.T) {
	schemas := readSchemas(t)
	for _, name := range []string{"llama-spm", "pre-qwen2"} {
		t.Run(name, func(t *testing.T) {
			v, tok := vocabularyOf(t, name)
			random := rand.New(rand.NewPCG(5, 6))
			ended, split := 0, 0
			for _, c := range schemas {
				rules, _, err := SchemaRules(context.Background(), "root", c.Schema, true)
				if err != nil {
					t.Fatal(err)
				}
				g, err := Parse(context.Background(), rules)
				if err != nil {
					t.Fatal(err)
				}
				m, err := NewMatcher(g, v)
				if err != nil {
					t.Fatal(err)
				}
				var ids []int32
				at := m.Start()
				for len(ids) < 50 && !at.Complete() {
					mask, err := m.Mask(at)
					if err != nil {
						t.Fatalf("%s, after %q: %v", c.Name, tok.Decode(ids, true), err)
					}
					allowed := tokensOf(mask)
					for range 20 {
						id := int32(random.IntN(v.size))
						_, err := m.Next(at, id)
						if want := err == nil || tok.IsEnd(id) && at.Accepts(); (mask[id/64]>>(id%64)&1 == 1) != want {
							t.Fatalf("%s, after %q: the mask says %v of token %d", c.Name, tok.Decode(ids, true), !want, id)
						}
					}
					id := allowed[random.IntN(len(allowed))]
					if tok.IsEnd(id) {
						break
					}
					if tok.IsControl(id) {
						t.Fatalf("%s: control token %d may come", c.Name, id)
					}
					if at, err = m.Next(at, id); err != nil {
						t.Fatal(err)
					}
					if p := tok.Piece(id, false); len(p) == 1 && p[0] >= 0x80 {
						split++
					}
					ids = append(ids, id)
				}
				if !at.Accepts() {
					continue // cut
				}
				ended++
				var text []byte
				for _, id := range ids {
					text = append(text, tok.Piece(id, false)...)
				}
				doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
				if err == nil {
					err = validator(t, c.Schema).Validate(doc)
				}
				if err != nil {
					t.Errorf("%s: %s: %v", c.Name, text, err)
				}
			}
			t.Logf("%d of %d answers ended; %d tokens were parts of runes", ended, len(schemas), split)
			if ended < len(schemas)/3 || split == 0 {
				t.Errorf("only %d answers ended, %d tokens were parts of runes", ended, split)
			}
		})
	}
}

// tokensOf lists the tokens of a mask.
func tokensOf(mask []uint64) (ids []int32) {
	for i, word := range mask {
		for ; word != 0; word &= word - 1 {
			ids = append(ids, int32(64*i+bits.TrailingZeros64(word)))
		}
	}
	return ids
}

func TestCharactersCanBeSplitOverByteTokens(t *testing.T) {
	v, tok := vocabularyOf(t, "llama-spm")
	g, err := Parse(context.Background(), `root ::= [\U0001F600-\U0001F64F]`)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatcher(g, v)
	if err != nil {
		t.Fatal(err)
	}
	at := m.Start()
	for i, b := range []byte("😅") {
		id := int32(slices.IndexFunc(v.pieces, func(p string) bool { return p == string([]byte{b}) }))
		mask, err := m.Mask(at)
		if err != nil {
			t.Fatal(err)
		}
		for id := range int32(v.size) {
			if mask[id/64]>>(id%64)&1 == 1 && len(tok.Piece(id, false)) > 4-i {
				t.Errorf("before byte %d token %q may come", i, tok.Piece(id, false))
			}
		}
		if at, err = m.Next(at, id); err != nil {
			t.Fatal(err)
		}
	}
	if !at.Complete() {
		t.Error("the rune is not complete")
	}
}

func TestAVocabularyThatCannotSpellTheGrammarIsAnError(t *testing.T) {
	g, err := Parse(context.Background(), `root ::= "a" "z"`)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatcher(g, toyVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	at, err := m.Next(m.Start(), int32(slices.Index(toyPieces, "a")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Mask(at); !errors.Is(err, ErrNoToken) {
		t.Errorf("got error %v", err)
	}
}

func TestMatcher_ResumesBehindAText(t *testing.T) {
	long := strings.Repeat("ab", 100)
	for _, c := range []struct{ name, grammar, text, wrong string }{
		{"nothing is the start", `root ::= "a"`, "", ""},
		{"a text may end within a token", `root ::= "abcabcabc" "x"`, "abca", ""},
		{"a text may be longer than a chunk", `root ::= "ab"{100} "x"`, long, ""},
		{"a text may end within a character", `root ::= "é" "x"`, "\xc3", ""},
		{"the first byte may be wrong", `root ::= "a"`, "b", `byte 1, "b"`},
		{"a later byte may be wrong", `root ::= "abc"`, "abx", `byte 3, "x"`},
		{"a byte behind a chunk may be wrong", `root ::= "ab"{100} "x"`, long + "y", `byte 201, "y"`},
		{"a text behind the end is wrong", `root ::= "a"`, "ab", `byte 2, "b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := Parse(context.Background(), c.grammar)
			if err != nil {
				t.Fatal(err)
			}
			m, err := NewMatcher(g, toyVocabulary())
			if err != nil {
				t.Fatal(err)
			}
			at, err := m.NextText(m.Start(), c.text)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("got %v, want an error about %s", err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rest, err := Parse(context.Background(), c.grammar)
			if err != nil {
				t.Fatal(err)
			}
			whole, _ := NewMatcher(rest, toyVocabulary())
			want := whole.Start()
			for i := range len(c.text) { // byte by byte
				if want, err = whole.NextText(want, c.text[i:i+1]); err != nil {
					t.Fatal(err)
				}
			}
			got, err := m.Mask(at)
			if err != nil {
				t.Fatal(err)
			}
			if mask, err := whole.Mask(want); err != nil || !slices.Equal(got, mask) {
				t.Errorf("the masks behind %q differ: %v", c.text, err)
			}
		})
	}
}
