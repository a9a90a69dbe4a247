package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"m40-llm/infer/fixtures"
)

const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	lineEnd      = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	anySpaces    = `|\s+(?!\S)|\s+`
	signsAndEnd  = `| ?[^\s\p{L}\p{N}]+[\r\n]*` + lineEnd
	gpt2Rule     = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+` + anySpaces
	llama3Rule   = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` + signsAndEnd
	qwen2Rule    = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + signsAndEnd
	casedWord1   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	casedWord2   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	casedWords   = casedWord1 + contractions + `?|` + casedWord2 + contractions + `?`
	slashesEnd   = `| ?[^\s\p{L}\p{N}]+[\r\n/]*` + lineEnd
	gpt4oRule    = casedWords + `|\p{N}{1,3}` + slashesEnd
	deepSeekRule = `[!-/:-@\[-` + "`" + `{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+`
	kimiUpper    = `[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]`
	kimiLower    = `[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]`
	bloomRule    = ` ?[^(\s|.,!?…。，、।۔،)]+`
)

// publishedRules holds the regular expressions that the model families publish for each
// list of rules. deepseek-llm is omitted because one of its expressions lists hundreds of
// letters.
var publishedRules = map[string][]string{
	"default":        {`[\p{P}$+<=>^~|]+`, gpt2Rule, `\p{N}+`, `[0-9][0-9][0-9]`},
	"falcon":         {`[\p{P}$+<=>^~|` + "`" + `]+`, gpt2Rule, `[0-9][0-9][0-9]`},
	"gpt-2":          {gpt2Rule},
	"smollm":         {`\p{N}`, gpt2Rule},
	"llama-bpe":      {llama3Rule},
	"dbrx":           {llama3Rule},
	"qwen2":          {qwen2Rule},
	"qwen35":         {contractions + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + lineEnd},
	"seed-coder":     {contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+` + lineEnd},
	"tekken":         {casedWord1 + `|` + casedWord2 + `|\p{N}` + slashesEnd},
	"gpt-4o":         {gpt4oRule},
	"kimi-k2":        {`[\p{Han}]+|[^\r\n\p{L}\p{N}]?` + kimiUpper + `*` + kimiLower + `+` + contractions + `?|[^\r\n\p{L}\p{N}]?` + kimiUpper + `+` + kimiLower + `*` + contractions + `?|\p{N}{1,3}` + signsAndEnd},
	"bloom":          {bloomRule},
	"viking":         {bloomRule, `\p{N}`},
	"deepseek-coder": {`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥\u0800-一가-\ud7ff]+`, `\p{N}`},
	"deepseek-v3":    {`\p{N}{1,3}`, `[一-龥\u3040-ゟ゠-ヿ]+`, deepSeekRule + `[\r\n]*` + lineEnd},
	"spark2_5":       {`\p{N}{1,3}`, `[一-龥\u3040-ゟ゠-ヿ]+`, deepSeekRule + `|[\r\n]` + anySpaces, `\p{N}`},
	"afmoe":          {`\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))`, `[一-鿿㐀-\u4dbf\uf900-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-\u109fꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+`, deepSeekRule + `[\r\n]*` + lineEnd},
	"superbpe":       {`\p{N}+`, `(?=(\d{3})+(?!\d))`},
	"tiny_aya":       {`\d{1,3}(?=(?:\d{3})*\b)`, gpt4oRule},
	"youtu":          {`[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+`, casedWords + `|\p{N}` + slashesEnd},
	"laguna":         {`[^\n]+|[\n]+`, qwen2Rule},
	"ufakzeka":       {`[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + signsAndEnd},
	"bailingmoe":     {`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]` + anySpaces},
	"exaone-moe":     {contractions + `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]` + anySpaces},
	"jais-2":         {contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`},
	"chameleon":      {`<sentinel:[0-9]+>`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`, "([\t\n]|    |  )", `\p{N}`, `[\p{P}!-/:-@\[-` + "`" + `{-~]`, gpt2Rule},
	"minicpm5":       {`\p{N}{1,3}`, contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+` + signsAndEnd},
}

// Compares the rules with a backtracking matcher of the regular expressions.
func TestPreTokenizersSplitAsTheirRegularExpressions(t *testing.T) {
	texts := textsForRules(150)
	if fixtures.Torture() {
		texts = textsForRules(5000)
	}
	for pre, sources := range publishedRules {
		t.Run(pre, func(t *testing.T) {
			var rules []node
			for _, s := range sources {
				rules = append(rules, parseRegexp(t, s))
			}
			for _, text := range texts {
				want := naiveSplit(rules, text)
				if got := splitText(t, preTokenizers[pre].split, text); !slices.Equal(got, want) {
					t.Fatalf("%q:\n got %q\nwant %q", text, got, want)
				}
			}
		})
	}
	for _, pre := range distinctPreTokenizers {
		if publishedRules[pre] == nil && pre != "deepseek-llm" {
			t.Errorf("publishedRules lacks %s", pre)
		}
	}
}

// textsForRules returns n random texts in which different alternatives of the rules meet.
func textsForRules(n int) []string {
	r := rand.New(rand.NewPCG(6, 6))
	fragments := slices.DeleteFunc(slices.Clone(oddTexts), func(s string) bool { return !utf8.ValidString(s) })
	fragments = append(fragments, "1", "23", "1234567", "²", "٣٤٥٦", "Ⅻ", "_", "x", " y", "Ab", "ABc", "\u0301", "a\u0301 b", "ǅ", "ʰ", "ㄅㄆ", "ᄀ", "ꧠ", "က", "\u0e80",
		"！", "、", "\ufe30", "。", "…", "،", "\v", "\u2028", "   ", strings.Repeat(" ", 23), "\t\t", " \r\n", "'", "'ll", "'Ve", "/", "<sentinel:4>", "<sentinel:", "IMGIMG", "CZ", "ABCDEZ", "//\n", "`", "$", "豈", "\u303f", "\ud7a4")
	var texts []string
	for range n {
		var b strings.Builder
		for range 1 + r.IntN(8) {
			b.WriteString(fragments[r.IntN(len(fragments))])
		}
		texts = append(texts, b.String())
	}
	return texts
}

// naiveSplit splits a text by the first rule, its pieces by the second, and so on.
func naiveSplit(rules []node, text string) []string {
	pieces := []string{text}
	for _, rule := range rules {
		var finer []string
		for _, piece := range pieces {
			runes := []rune(piece)
			gap := 0
			cut := func(end int) {
				if end > gap {
					finer = append(finer, string(runes[gap:end]))
					gap = end
				}
			}
			for at := 0; at < len(runes); {
				end := -1
				rule(runes, at, func(e int) bool { end = e; return true })
				if end < 0 {
					at++
					continue
				}
				cut(at)
				cut(end)
				at = max(end, at+1)
			}
			cut(len(runes))
		}
		pieces = finer
	}
	return pieces
}

// node matches text[at:] and calls then with each end it finds, in the order of preference
// of its expression, until then returns true.
type node func(text []rune, at int, then func(end int) bool) bool

func sequence(parts []node) node {
	return func(text []rune, at int, then func(int) bool) bool {
		if len(parts) == 0 {
			return then(at)
		}
		return parts[0](text, at, func(end int) bool { return sequence(parts[1:])(text, end, then) })
	}
}

func anyOf(parts []node) node {
	return func(text []rune, at int, then func(int) bool) bool {
		return slices.ContainsFunc(parts, func(p node) bool { return p(text, at, then) })
	}
}

func one(is func(rune) bool) node {
	return func(text []rune, at int, then func(int) bool) bool {
		return at < len(text) && is(text[at]) && then(at+1)
	}
}

// repeated matches x greedily, from least to most times.
func repeated(x node, least, most int) node {
	var from func(n int) node
	from = func(n int) node {
		return func(text []rune, at int, then func(int) bool) bool {
			if n < most && x(text, at, func(end int) bool { return end > at && from(n+1)(text, end, then) }) {
				return true
			}
			return n >= least && then(at)
		}
	}
	return from(0)
}

// first returns the end of the match that x prefers, -1 for none.
func first(x node, text []rune, at int) int {
	found := -1
	x(text, at, func(end int) bool { found = end; return true })
	return found
}

// possessive matches x without backtracking into it.
func possessive(x node) node {
	return func(text []rune, at int, then func(int) bool) bool {
		end := first(x, text, at)
		return end >= 0 && then(end)
	}
}

func lookahead(x node, want bool) node {
	return func(text []rune, at int, then func(int) bool) bool {
		return (first(x, text, at) >= 0) == want && then(at)
	}
}

// regexpParser parses the subset of regular expressions that publishedRules uses.
type regexpParser struct {
	t    *testing.T
	s    []rune
	at   int
	fold bool
}

func parseRegexp(t *testing.T, s string) node {
	p := &regexpParser{t: t, s: []rune(s)}
	n := p.alternatives()
	if p.at < len(p.s) {
		t.Fatalf("%s: unexpected %q", s, string(p.s[p.at:]))
	}
	return n
}

func (p *regexpParser) accept(s string) bool {
	r := []rune(s)
	if p.at+len(r) > len(p.s) || !slices.Equal(p.s[p.at:p.at+len(r)], r) {
		return false
	}
	p.at += len(r)
	return true
}

func (p *regexpParser) next() rune {
	if p.at >= len(p.s) {
		p.t.Fatalf("%s: unexpected end", string(p.s))
	}
	p.at++
	return p.s[p.at-1]
}

func (p *regexpParser) alternatives() node {
	var parts []node
	for {
		var seq []node
		for p.at < len(p.s) && p.s[p.at] != '|' && p.s[p.at] != ')' {
			seq = append(seq, p.quantified(p.atom()))
		}
		parts = append(parts, sequence(seq))
		if !p.accept("|") {
			return anyOf(parts)
		}
	}
}

func (p *regexpParser) atom() node {
	group := func() node {
		n := p.alternatives()
		if !p.accept(")") {
			p.t.Fatalf("%s: a group is not closed", string(p.s))
		}
		return n
	}
	switch {
	case p.accept("(?="):
		return lookahead(group(), true)
	case p.accept("(?!"):
		return lookahead(group(), false)
	case p.accept("(?i:"):
		was := p.fold
		p.fold = true
		n := group()
		p.fold = was
		return n
	case p.accept("(?:"), p.accept("("):
		return group()
	case p.accept(`\b`):
		isWord := func(text []rune, at int) bool {
			return at >= 0 && at < len(text) && (unicode.In(text[at], unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc))
		}
		return func(text []rune, at int, then func(int) bool) bool {
			return isWord(text, at-1) != isWord(text, at) && then(at)
		}
	case p.accept("$"):
		return func(text []rune, at int, then func(int) bool) bool { return at == len(text) && then(at) }
	}
	return one(p.set())
}

// set parses a character, an escape or a character class.
func (p *regexpParser) set() func(rune) bool {
	switch {
	case p.accept("[^"):
		is := p.class()
		return func(r rune) bool { return !is(r) }
	case p.accept("["):
		return p.class()
	}
	is, _ := p.single()
	return is
}

func (p *regexpParser) class() func(rune) bool {
	var parts []func(rune) bool
	for !p.accept("]") {
		switch {
		case p.s[p.at] == '[':
			parts = append(parts, p.set())
		case p.accept("&&"):
			left, right := parts, p.set()
			parts = []func(rune) bool{func(r rune) bool {
				return right(r) && slices.ContainsFunc(left, func(is func(rune) bool) bool { return is(r) })
			}}
		default:
			is, lo := p.single()
			if lo >= 0 && p.s[p.at] == '-' && p.s[p.at+1] != ']' {
				p.at++
				_, hi := p.single()
				is = func(r rune) bool { return lo <= r && r <= hi }
			}
			parts = append(parts, is)
		}
	}
	return func(r rune) bool {
		return slices.ContainsFunc(parts, func(is func(rune) bool) bool { return is(r) })
	}
}

// single parses a character or an escape; the rune is -1 if it matches more than one.
func (p *regexpParser) single() (func(rune) bool, rune) {
	table := func(want bool, tables ...*unicode.RangeTable) (func(rune) bool, rune) {
		return func(r rune) bool { return unicode.In(r, tables...) == want }, -1
	}
	c := p.next()
	if c == '\\' {
		switch c = p.next(); c {
		case 's', 'S':
			return table(c == 's', unicode.White_Space)
		case 'd':
			return table(true, unicode.Nd)
		case 'p', 'P':
			p.next()
			var name strings.Builder
			for r := p.next(); r != '}'; r = p.next() {
				name.WriteRune(r)
			}
			if name.String() == "Han" {
				return table(c == 'p', unicode.Han)
			}
			return table(c == 'p', unicode.Categories[name.String()])
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 'u':
			n, err := strconv.ParseUint(string(p.s[p.at:p.at+4]), 16, 16)
			if err != nil {
				p.t.Fatal(err)
			}
			c, p.at = rune(n), p.at+4
		}
	}
	if p.fold && 'a' <= c && c <= 'z' {
		return func(r rune) bool { return r == c || r == unicode.ToUpper(c) }, -1
	}
	return func(r rune) bool { return r == c }, c
}

func (p *regexpParser) quantified(n node) node {
	const unlimited = 1 << 30
	least, most := 1, 1
	number := func() int {
		k := 0
		for p.s[p.at] >= '0' && p.s[p.at] <= '9' {
			k = 10*k + int(p.next()-'0')
		}
		return k
	}
	switch {
	case p.accept("?"):
		least = 0
	case p.accept("*"):
		least, most = 0, unlimited
	case p.accept("+"):
		most = unlimited
	case p.accept("{"):
		least = number()
		most = least
		if p.accept(",") {
			most = number()
		}
		p.next()
	default:
		return n
	}
	if p.accept("+") {
		return possessive(repeated(n, least, most))
	}
	return repeated(n, least, most)
}
