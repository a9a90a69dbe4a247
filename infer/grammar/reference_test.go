package grammar

import (
	"context"
	"testing"
	"unicode/utf8"
)

// symbol is a byte, or a token that the grammar names: 256 + its id.
type symbol int

func symbols(text string) (list []symbol) {
	for i := range len(text) {
		list = append(list, symbol(text[i]))
	}
	return list
}

// reference decides by the definition whether a grammar has a text: it tries all
// derivations. It uses the parsed rules only, not instructions, frames or limits.
type reference struct {
	*syntax
	text  []symbol
	spans map[int]span // where an ordinary token begins
	known map[referenceCall]map[int]bool
}

type referenceCall struct {
	e    *expr
	from int
}

// span is a token in a text; end is the offset after it.
type span struct {
	id  int32
	end int
}

func (s *syntax) has(text []symbol, spans map[int]span) bool {
	t := &reference{s, text, spans, map[referenceCall]map[int]bool{}}
	return t.ends(s.bodies[s.root], 0)[len(text)]
}

// ends returns the offsets at which e can end if it begins at from.
func (t *reference) ends(e *expr, from int) map[int]bool {
	call := referenceCall{e, from}
	ends, ok := t.known[call]
	if !ok {
		ends = t.find(e, from)
		t.known[call] = ends
	}
	return ends
}

func (t *reference) find(e *expr, from int) map[int]bool {
	ends := map[int]bool{}
	switch e.op {
	case opLiteral:
		for i := range len(e.literal) {
			if from+i >= len(t.text) || t.text[from+i] != symbol(e.literal[i]) {
				return ends
			}
		}
		ends[from+len(e.literal)] = true
	case opSet:
		var bytes []byte
		for i := from; i < min(len(t.text), from+utf8.UTFMax) && t.text[i] < 256; i++ {
			bytes = append(bytes, byte(t.text[i]))
		}
		c, size := utf8.DecodeRune(bytes)
		if c == utf8.RuneError && size <= 1 {
			return ends
		}
		for _, r := range e.set {
			if r.low <= c && c <= r.high {
				ends[from+size] = true
			}
		}
	case opToken:
		if from < len(t.text) && t.text[from] == 256+symbol(e.token) {
			ends[from+1] = true
		}
		if s, ok := t.spans[from]; ok && s.id == e.token {
			ends[s.end] = true
		}
	case opRule:
		return t.ends(t.bodies[e.rule], from)
	case opSequence:
		ends[from] = true
		for _, item := range e.list {
			ends = t.each(ends, item)
		}
	case opAlternatives:
		for _, item := range e.list {
			for end := range t.ends(item, from) {
				ends[end] = true
			}
		}
	case opRepeat:
		at := map[int]bool{from: true}
		if e.min == 0 {
			ends[from] = true
		}
		most := e.max
		if most < 0 {
			most = e.min + len(t.text) + 1
		}
		for times := 1; times <= most && len(at) > 0; times++ {
			at = t.each(at, e.list[0])
			if times >= e.min {
				for end := range at {
					ends[end] = true
				}
			}
		}
	}
	return ends
}

// each returns the offsets at which e can end if it begins at one of the places.
func (t *reference) each(places map[int]bool, e *expr) map[int]bool {
	ends := map[int]bool{}
	for from := range places {
		for end := range t.ends(e, from) {
			ends[end] = true
		}
	}
	return ends
}

// read reports whether a program accepts a text.
func (p *program) read(text []symbol) bool {
	s := newStepper(p)
	at := s.start()
	for _, c := range text {
		if at == nil {
			return false
		}
		if c < 256 {
			at = s.readByte(at, byte(c))
		} else {
			at = s.readToken(at, int32(c-256))
		}
	}
	return at != nil && at.accepts
}

func mustParse(t testing.TB, text string) (*syntax, *program) {
	t.Helper()
	s, err := parse(text)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	p, err := compile(context.Background(), s)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return s, p
}

func TestGrammarsAcceptWhatTheyDescribe(t *testing.T) {
	for _, c := range []struct {
		name, grammar string
		yes, no       []string
	}{
		{"a literal", `root ::= "yes"`, []string{"yes"}, []string{"", "y", "yess", "no"}},
		{"alternatives over lines", "root ::= \"a\" |\n  \"b\"\n  | \"c\" # or\n\n", []string{"a", "b", "c"}, []string{"", "ab", "d"}},
		{"an empty alternative", `root ::= "a" |`, []string{"a", ""}, []string{"aa"}},
		{"groups over lines", "root ::= (\n \"a\"\n # comment\n \"b\"?\n)+", []string{"a", "ab", "aab"}, []string{"", "b", "abb"}},
		{"repetitions", `root ::= "a"{2} "b"{1,} "c"{,2} "d"{0} [xy]{1,2}`, []string{"aabx", "aabbbccxy"}, []string{"abx", "aax", "aabcccx", "aabdx", "aabxxx"}},
		{"many times", `root ::= ("ab" | "c"){3,600}`, []string{"abcc", "ccccccabab"}, []string{"abc", "cc", "abca"}},
		{"repeated nothing", `root ::= ("a"?)* "b" (""){5}`, []string{"b", "aab"}, []string{"", "a"}},
		{"right recursion", `root ::= [a-c] root | "."`, []string{".", "abc."}, []string{"abc", "d."}},
		{"nesting", `root ::= "(" root ")" root | ""`, []string{"", "()", "(())()"}, []string{"(", ")(", "(()"}},
		{"ambiguity", `root ::= "a" root "a" | "a" root | "a"`, []string{"a", "aa", "aaaa"}, []string{"", "ab"}},
		{"escapes", `root ::= "\x41\u00e9\U0001F600\n\t\r\\\"\[\]"`, []string{"Aé😀\n\t\r\\\"[]"}, []string{"A"}},
		{"classes", `root ::= [a\-\]\x30-9^-]+`, []string{"a-]059^"}, []string{"b", "\\"}},
		{"negated classes", `root ::= [^"\\é]*`, []string{"", "abcè\U0010ffff\x00\n"}, []string{"a\"", "é", "\xff", "\xed\xa0\x80", "\xc0\x80"}},
		{"any character", `root ::= .`, []string{"a", "\n", "é", "€", "😀"}, []string{"", "ab", "\x80", "\xf4\x90\x80\x80"}},
		{"ranges of several lengths", `root ::= [\x7e-\u0801]`, []string{"~", "\x7f", "\u0080", "ߺ", "\u0800", "\u0801"}, []string{"}", "\u0802", "ࠡ"}},
		{"ranges within a lead byte", `root ::= [\u0915-\u0939\U00010400-\U0001044F]`, []string{"क", "ह", "𐐀", "𐑏"}, []string{"औ", "ऺ", "𐑐"}},
		{"names", "root ::= a-1 B_2\na-1 ::= \"x\"\nB_2 ::= \"y\"", []string{"xy"}, []string{"x"}},
		{"an unused rule", "root ::= \"x\"\nloop ::= loop", []string{"x"}, []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, p := mustParse(t, c.grammar)
			for _, text := range c.yes {
				if !p.read(symbols(text)) {
					t.Errorf("%q is not accepted", text)
				}
			}
			for _, text := range c.no {
				if p.read(symbols(text)) {
					t.Errorf("%q is accepted", text)
				}
			}
		})
	}
}
