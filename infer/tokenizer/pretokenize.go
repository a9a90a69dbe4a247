package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A preTokenizer cuts text into the pieces that merges never cross. It is a list
// of rules: the first cuts the text, each further one cuts the pieces of the one
// before and sees nothing outside its piece.
type preTokenizer []rule

// A rule looks at text[at:], at < len(text). With match, text[at:end] is a piece.
// Without, nothing in text[at:end] begins a match, and what lies between two
// matches is a piece. Either way end > at. The rules are the regular expressions
// that the model families publish, written out as loops: a rule reads a rune a
// bounded number of times, whatever the text.
type rule func(text string, at int) (end int, match bool)

// cut hands the pieces of text to use, from the left, each as soon as it is found. tick
// is told how many bytes were read. Either may end the work by an error.
func (p preTokenizer) cut(text string, tick func(bytes int) error, use func(piece string) error) error {
	if len(p) == 0 {
		return use(text)
	}
	at, gap := 0, 0
	for at < len(text) {
		next, match := p[0](text, at)
		if err := tick(next - at); err != nil {
			return err
		}
		if match {
			if gap < at {
				if err := p[1:].cut(text[gap:at], tick, use); err != nil {
					return err
				}
			}
			if err := p[1:].cut(text[at:next], tick, use); err != nil {
				return err
			}
			gap = next
		}
		at = next
	}
	if gap < at {
		return p[1:].cut(text[gap:], tick, use)
	}
	return nil
}

// bytePairRules is what a value of tokenizer.ggml.pre stands for.
type bytePairRules struct {
	split       preTokenizer
	wholeTokens bool // a piece that is a token is that token, whatever the merges say
	addBOS      bool // unless the file says otherwise
}

// preTokenizers holds every supported value of tokenizer.ggml.pre.
var preTokenizers = declarePreTokenizers()

func declarePreTokenizers() map[string]bytePairRules {
	var (
		gpt2    = bytePairRules{split: preTokenizer{gpt2Words}}
		digits1 = bytePairRules{split: preTokenizer{runs(number, 1), gpt2Words}}
		lines3  = bytePairRules{split: preTokenizer{lineWords{contraction: true, letters: letter, digits: 3, tail: "\r\n"}.match}}
		lines1  = bytePairRules{split: preTokenizer{lineWords{contraction: true, letters: letter, digits: 1, tail: "\r\n"}.match}}
		llama3  = bytePairRules{split: lines3.split, wholeTokens: true, addBOS: true}
		gpt4o   = bytePairRules{split: preTokenizer{lineWords{suffix: true, cased: true, letters: letter, digits: 3, tail: "\r\n/"}.match}}
		bloom   = bytePairRules{split: preTokenizer{bloomWords}}
		deep3   = bytePairRules{split: preTokenizer{runs(number, 3), runsOf(cjkKana), deepSeekWords{tail: true}.match}}
		youtu   = lineWords{suffix: true, cased: true, letters: letter, digits: 1, tail: "\r\n/"}
	)
	declared := map[string]bytePairRules{}
	for _, e := range []struct {
		names string
		rules bytePairRules
	}{
		{"default", bytePairRules{split: preTokenizer{punctuation("$+<=>^~|"), gpt2Words, runs(number, 0), threeDigits}}},
		{"falcon", bytePairRules{split: preTokenizer{punctuation("$+<=>^~|`"), gpt2Words, threeDigits}}},
		{"gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat mellum modern-bert a.x-4.0", gpt2},
		{"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", digits1},
		{"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", llama3},
		{"dbrx smaug-bpe chatglm-bpe glm4", lines3},
		{"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo f2llmv2 bailingmoe bailingmoe2 llada-moe", lines1},
		{"laguna", bytePairRules{split: append(preTokenizer{lines}, lines1.split...)}},
		{"ufakzeka", bytePairRules{split: preTokenizer{lineWords{letters: letter, digits: 1, tail: "\r\n"}.match}}},
		{"exaone-moe", bytePairRules{split: preTokenizer{lineWords{contraction: true, phrases: true, letters: letter, digits: 1, tail: "\r\n/", shortTail: true}.match}}},
		{"jais-2", bytePairRules{split: append(lines3.split[:1:1], spaceSteps)}},
		{"minicpm5", bytePairRules{split: append(preTokenizer{runs(number, 3)}, lines3.split...), wholeTokens: true}},
		{"qwen35", bytePairRules{split: preTokenizer{lineWords{contraction: true, letters: letter | mark, digits: 1, tail: "\r\n"}.match}}},
		{"seed-coder", bytePairRules{split: preTokenizer{lineWords{contraction: true, letters: letter, digits: 1}.match}}},
		{"tekken", bytePairRules{split: preTokenizer{lineWords{cased: true, letters: letter, digits: 1, tail: "\r\n/"}.match}, wholeTokens: true, addBOS: true}},
		{"gpt-4o llama4 kanana2 minimax-m2 talkie", gpt4o},
		{"tiny_aya cohere2moe", bytePairRules{split: append(preTokenizer{thousands(decimal, word)}, gpt4o.split...)}},
		{"youtu", bytePairRules{split: preTokenizer{runsOf(hangul, widePunctuation, bopomofo, cjkKana), youtu.match}, wholeTokens: true}},
		{"kimi-k2", bytePairRules{split: preTokenizer{lineWords{suffix: true, cased: true, noHan: true, letters: letter, digits: 3, tail: "\r\n"}.match}}},
		{"bloom gpt3-finnish poro-chat", bloom},
		{"viking", bytePairRules{split: preTokenizer{bloomWords, runs(number, 1)}}},
		{"deepseek-llm", bytePairRules{split: preTokenizer{lineBreak, spaced(oldCasedLetters), spaced(asciiAndWidePunctuation), finalSpace, runsOf(cjkHangul), runs(number, 0)}}},
		{"deepseek-coder", bytePairRules{split: preTokenizer{lineBreak, spaced(isLetter), spaced(isPunct), runsOf(cjkHangul), runs(number, 1)}}},
		{"deepseek-v3 hunyuan-dense hy_v4 joyai-llm", deep3},
		{"spark2_5", bytePairRules{split: preTokenizer{runs(number, 3), runsOf(cjkKana), deepSeekWords{}.match, runs(number, 1)}}},
		{"afmoe", bytePairRules{split: preTokenizer{thousands(number, 0), runsOf(asian), deepSeekWords{tail: true}.match}}},
		{"superbpe", bytePairRules{split: preTokenizer{runs(number, 0), thousandsBegin}}},
	} {
		for _, name := range strings.Fields(e.names) {
			declared[name] = e.rules
		}
	}
	return declared
}

func supportedPreTokenizers() string {
	var names []string
	for name := range preTokenizers {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// gpt2Words is the rule of GPT-2:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2Words(text string, at int) (int, bool) {
	if n := contraction(text[at:], false); n > 0 {
		return at + n, true
	}
	start := at
	if text[at] == ' ' {
		start++
	}
	switch c, size := classAt(text, start); {
	case size == 0 || c&space != 0:
		return spaces(text, at), true
	case c&letter != 0:
		return skip(text, start, letter), true
	case c&number != 0:
		return skip(text, start, number), true
	default:
		return skipNot(text, start, space|letter|number), true
	}
}

// spaces is \s+(?!\S)|\s+ where text[at:] begins with white space: the whole run at
// the end of the text, else all but its last rune, which goes with the word behind
// it, unless that rune is all there is.
func spaces(text string, at int) int {
	end := skip(text, at, space)
	if end == len(text) {
		return end
	}
	_, size := utf8.DecodeLastRuneInString(text[at:end])
	if end-size > at {
		return end - size
	}
	return end
}

// lineSpaces is \s*[\r\n]+|\s+(?!\S)|\s+ where text[at:] begins with white space.
func lineSpaces(text string, at int) int {
	end := skip(text, at, space)
	if i := strings.LastIndexAny(text[at:end], "\r\n"); i >= 0 {
		return at + i + 1
	}
	return spaces(text, at)
}

// contraction returns the length of 's 't 're 've 'm 'll or 'd at the beginning of
// text, 0 if it has none.
func contraction(text string, anyCase bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	fold := func(b byte) byte {
		if anyCase && 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	first := fold(text[1])
	if strings.IndexByte("stmd", first) >= 0 {
		return 2
	}
	if len(text) < 3 {
		return 0
	}
	switch second := fold(text[2]); {
	case second == 'e' && (first == 'r' || first == 'v'), second == 'l' && first == 'l':
		return 3
	}
	return 0
}

// lineWords is the family of rules that GPT-4 began, by what its members differ in:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// In the cased ones a word is, after the same optional first rune,
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ or, failing that, the
// same with + and *.
type lineWords struct {
	contraction bool   // a contraction is a piece
	phrases     bool   // a word goes on behind a blank, and with marks on its letters
	suffix      bool   // a contraction belongs to the word before it
	cased       bool   // a word ends where its small letters end
	noHan       bool   // a run of Han runes is a piece, and no word holds one
	letters     class  // what words are made of, if not cased
	digits      int    // longest run of numbers
	tail        string // bytes that may follow a run of signs
	shortTail   bool   // only one of them
}

func (w lineWords) match(text string, at int) (int, bool) {
	c, size := classAt(text, at)
	if w.noHan && c&han != 0 {
		return skip(text, at, han), true
	}
	if w.contraction {
		if n := contraction(text[at:], true); n > 0 {
			return at + n, true
		}
	}
	if end := w.word(text, at); end > at {
		if w.suffix {
			end += contraction(text[end:], true)
		}
		return end, true
	}
	if c&number != 0 {
		return skipUpTo(text, at, number, w.digits), true
	}
	signs := at
	if text[at] == ' ' {
		signs++
	}
	if end := skipNot(text, signs, space|w.letters|number); end > signs {
		for end < len(text) && strings.IndexByte(w.tail, text[end]) >= 0 {
			end++
			if w.shortTail {
				break
			}
		}
		return end, true
	}
	if c&space != 0 {
		return lineSpaces(text, at), true
	}
	return at + size, false
}

// word returns the end of the word at text[at:], at if there is none. The optional
// first rune is tried first, as a regular expression does.
func (w lineWords) word(text string, at int) int {
	c, size := classAt(text, at)
	starts := []int{at + size, at}
	if c&(letter|number) != 0 || text[at] == '\r' || text[at] == '\n' {
		starts = starts[1:]
	}
	if !w.cased {
		run := skip
		if w.phrases {
			run = skipPhrase
		}
		for _, start := range starts {
			if end := run(text, start, w.letters); end > start {
				return end
			}
		}
		return at
	}
	for _, start := range starts {
		if end := w.endsSmall(text, start); end > start {
			return end
		}
	}
	for _, start := range starts {
		if end := w.headRun(text, start); end > start {
			return w.tailRun(text, end)
		}
	}
	return at
}

// skipPhrase skips (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+
func skipPhrase(text string, at int, letters class) int {
	end := skip(text, at, letters)
	if end == at {
		return at
	}
	for {
		end = skip(text, end, letters|mark)
		if end == len(text) || text[end] != ' ' {
			return end
		}
		if c, _ := classAt(text, end+1); c&letters == 0 {
			return end
		}
		end++
	}
}

// headRun skips [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*.
func (w lineWords) headRun(text string, at int) int { return w.skipCased(text, at, lower) }

// tailRun skips [\p{Ll}\p{Lm}\p{Lo}\p{M}]*.
func (w lineWords) tailRun(text string, at int) int { return w.skipCased(text, at, upper) }

func (w lineWords) skipCased(text string, at int, without class) int {
	if w.noHan {
		without |= han
	}
	for {
		c, size := classAt(text, at)
		if c&(letter|mark) == 0 || c&without != 0 {
			return at
		}
		at += size
	}
}

// endsSmall matches headRun then tailRun, the latter not empty: where the head
// leaves nothing, it gives back runes up to the last that a tail can begin with,
// and only capitals follow that one.
func (w lineWords) endsSmall(text string, at int) int {
	head := w.headRun(text, at)
	if end := w.tailRun(text, head); end > head {
		return end
	}
	for end := head; end > at; {
		r, size := utf8.DecodeLastRuneInString(text[at:end])
		if classOf(r)&upper == 0 {
			return end
		}
		end -= size
	}
	return at
}

// skipUpTo is skip for at most limit runes.
func skipUpTo(text string, at int, any class, limit int) int {
	for range limit {
		c, size := classAt(text, at)
		if c&any == 0 {
			break
		}
		at += size
	}
	return at
}

// runs matches runs of a class, cut into pieces of at most limit runes; 0 is no
// limit.
func runs(in class, limit int) rule {
	return func(text string, at int) (int, bool) {
		gap := skipNot(text, at, in)
		if gap > at {
			return gap, false
		}
		if limit == 0 {
			return skip(text, at, in), true
		}
		return skipUpTo(text, at, in, limit), true
	}
}

// runsOf matches runs of each of some sets that have no rune in common.
func runsOf(sets ...func(rune) bool) rule {
	return func(text string, at int) (int, bool) {
		for _, in := range sets {
			if end := skipSet(text, at, in); end > at {
				return end, true
			}
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		return at + size, false
	}
}

// spaced matches runs of a set with one white space before them, if there is one.
func spaced(in func(rune) bool) rule {
	return func(text string, at int) (int, bool) {
		c, size := classAt(text, at)
		if c&space != 0 {
			if end := skipSet(text, at+size, in); end > at+size {
				return end, true
			}
		}
		if end := skipSet(text, at, in); end > at {
			return end, true
		}
		return at + size, false
	}
}

func skipSet(text string, at int, in func(rune) bool) int {
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		if !in(r) {
			break
		}
		at += size
	}
	return at
}

// punctuation matches runs of \p{P} and the given signs.
func punctuation(signs string) rule {
	return runsOf(func(r rune) bool {
		return isPunct(r) || r < utf8.RuneSelf && strings.IndexByte(signs, byte(r)) >= 0
	})
}

// threeDigits matches [0-9][0-9][0-9].
func threeDigits(text string, at int) (int, bool) {
	end := at
	for end < len(text) && end < at+3 && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	return max(end, at+1), end == at+3
}

// thousands matches runs of a class in groups of three, counted from the right:
//
//	\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))
//
// A run that a rune of class not follows is left as it is.
func thousands(in, not class) rule {
	return func(text string, at int) (int, bool) {
		if gap := skipNot(text, at, in); gap > at {
			return gap, false
		}
		if behind(text, at)&in != 0 { // the rest of a run, whose length is a multiple of three
			return skipUpTo(text, at, in, 3), true
		}
		end := skip(text, at, in)
		if c, _ := classAt(text, end); c&not != 0 {
			return end, false
		}
		return skipUpTo(text, at, in, (utf8.RuneCountInString(text[at:end])+2)%3+1), true
	}
}

// thousandsBegin cuts before each group of three digits, counted from the right:
//
//	(?=(\d{3})+(?!\d))
func thousandsBegin(text string, at int) (int, bool) {
	end := at
	if behind(text, at)&decimal != 0 { // in a run, where a group begins
		if end = skipUpTo(text, at, decimal, 3); end == len(text) {
			return end, true
		}
		if c, _ := classAt(text, end); c&decimal != 0 {
			return end, true
		}
	}
	for end < len(text) {
		run := skipNot(text, end, decimal)
		end = skip(text, run, decimal)
		n := utf8.RuneCountInString(text[run:end])
		switch {
		case n < 3:
		case n%3 == 0 && run > at:
			return run, true
		case n > 3:
			return skipUpTo(text, run, decimal, (n+2)%3+1), true
		}
	}
	return end, true
}

// behind returns the class of the rune before text[at:], 0 at the beginning.
func behind(text string, at int) class {
	r, size := utf8.DecodeLastRuneInString(text[:at])
	if r == utf8.RuneError && size <= 1 {
		return 0
	}
	return classOf(r)
}

// lines matches [^\n]+|[\n]+
func lines(text string, at int) (int, bool) {
	end := at
	for end < len(text) && (text[end] == '\n') == (text[at] == '\n') {
		end++
	}
	return end, true
}

// spaceSteps cuts a piece that is white space without a line break at its end:
//
//	\s{512}|\s{256}|\s{128}|\s{64}|\s{32}|\s{16}|\s{8}|\s{4}|\s{1,2}
func spaceSteps(text string, at int) (int, bool) {
	if at == 0 {
		last := text[len(text)-1]
		if last == '\r' || last == '\n' || skip(text, 0, space) < len(text) {
			return len(text), true
		}
	}
	for step := 512; ; step /= 2 {
		end := skipUpTo(text, at, space, step)
		if step == 1 || utf8.RuneCountInString(text[at:end]) == step {
			return end, true
		}
	}
}

// lineBreak matches [\r\n].
func lineBreak(text string, at int) (int, bool) {
	i := strings.IndexAny(text[at:], "\r\n")
	switch i {
	case -1:
		return len(text), false
	case 0:
		return at + 1, true
	}
	return at + i, false
}

// finalSpace matches \s+$.
func finalSpace(text string, at int) (int, bool) {
	end := skip(text, at, space)
	if end > at {
		return end, end == len(text)
	}
	return skipNot(text, at, space), false
}

// bloomWords matches  ?[^(\s|.,!?…。，、।۔،)]+
func bloomWords(text string, at int) (int, bool) {
	start := at
	if text[at] == ' ' {
		start++
	}
	if end := skipSet(text, start, inBloomWord); end > start {
		return end, true
	}
	_, size := utf8.DecodeRuneInString(text[at:])
	return at + size, false
}

func inBloomWord(r rune) bool {
	return classOf(r)&space == 0 && !strings.ContainsRune("(|.,!?…。，、।۔،)", r)
}

// deepSeekWords is the last rule of DeepSeek V3:
//
//	[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// Without a tail its end is  ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+
type deepSeekWords struct{ tail bool }

func (w deepSeekWords) match(text string, at int) (int, bool) {
	c, size := classAt(text, at)
	if text[at] < utf8.RuneSelf && c&(punct|symbol) != 0 {
		if end := skipSet(text, at+1, isASCIILetter); end > at+1 {
			return end, true
		}
	}
	if c&(letter|punct|symbol) == 0 && text[at] != '\r' && text[at] != '\n' {
		if end := skip(text, at+size, letter|mark); end > at+size {
			return end, true
		}
	}
	if end := skip(text, at, letter|mark); end > at {
		return end, true
	}
	signs := at
	if text[at] == ' ' {
		signs++
	}
	if end := skip(text, signs, punct|symbol); end > signs {
		for w.tail && end < len(text) && (text[end] == '\r' || text[end] == '\n') {
			end++
		}
		return end, true
	}
	switch {
	case c&space == 0:
		return at + size, false
	case w.tail:
		return lineSpaces(text, at), true
	case text[at] == '\r' || text[at] == '\n':
		return at + 1, true
	}
	return spaces(text, at), true
}

func isLetter(r rune) bool      { return classOf(r)&letter != 0 }
func isPunct(r rune) bool       { return classOf(r)&punct != 0 }
func isASCIILetter(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' }

// cjkKana is [一-龥\u3040-ゟ゠-ヿ].
func cjkKana(r rune) bool { return 0x4E00 <= r && r <= 0x9FA5 || 0x3040 <= r && r <= 0x30FF }

// hangul is [가-힣ㄱ-ㆎ].
func hangul(r rune) bool { return 0xAC00 <= r && r <= 0xD7A3 || 0x3131 <= r && r <= 0x318E }

// bopomofo is [ㄅ-ㄯ].
func bopomofo(r rune) bool { return 0x3105 <= r && r <= 0x312F }

// widePunctuation is [！…“”‘’—：；，、-〿︰-﹏].
func widePunctuation(r rune) bool {
	return 0x3001 <= r && r <= 0x303F || 0xFE30 <= r && r <= 0xFE4F || strings.ContainsRune("！…“”‘’—：；，", r)
}

// asian is the set of scripts without blanks between words that AFMoE lists: CJK, kana,
// radicals, Thai, Lao, Khmer, Myanmar and its extensions, Hangul.
func asian(r rune) bool {
	return 0x4E00 <= r && r <= 0x9FFF || 0x3400 <= r && r <= 0x4DBF || 0xF900 <= r && r <= 0xFAFF ||
		0x3040 <= r && r <= 0x30FF || 0xFF65 <= r && r <= 0xFF9F || 0x2F00 <= r && r <= 0x2FDF ||
		0x0E40 <= r && r <= 0x0EFF || 0x1780 <= r && r <= 0x17FF || 0x1000 <= r && r <= 0x109F ||
		0xAA60 <= r && r <= 0xAA7F || 0xA9E0 <= r && r <= 0xA9FF || 0xAC00 <= r && r <= 0xD7AF || 0x1100 <= r && r <= 0x11FF
}

// cjkHangul is [一-龥ࠀ-一가-\uD7FF], whose middle range holds Indic scripts and kana.
func cjkHangul(r rune) bool { return 0x0800 <= r && r <= 0x9FA5 || 0xAC00 <= r && r <= 0xD7FF }

// asciiAndWidePunctuation is [!-/:-~！-／：-～‘-‟\u3000-。]; its ranges from : and ：
// run on over the letters.
func asciiAndWidePunctuation(r rune) bool {
	return '!' <= r && r <= '/' || ':' <= r && r <= '~' ||
		0xFF01 <= r && r <= 0xFF0F || 0xFF1A <= r && r <= 0xFF5E ||
		0x2018 <= r && r <= 0x201F || 0x3000 <= r && r <= 0x3002
}

// oldCasedLetters is the set of letters with case that DeepSeek LLM lists.
func oldCasedLetters(r rune) bool { return unicode.Is(deepSeekLetters, r) }

var deepSeekLetters = &unicode.RangeTable{
	LatinOffset: 5,
	R16: []unicode.Range16{
		{0x0041, 0x005A, 1}, {0x0061, 0x007A, 1}, {0x00B5, 0x00B5, 1}, {0x00C0, 0x00D6, 1}, {0x00D8, 0x00F6, 1}, {0x00F8, 0x01BA, 1},
		{0x01BC, 0x01BF, 1}, {0x01C4, 0x0293, 1}, {0x0295, 0x02AF, 1}, {0x0370, 0x0373, 1}, {0x0376, 0x0377, 1}, {0x037B, 0x037D, 1},
		{0x037F, 0x037F, 1}, {0x0386, 0x0386, 1}, {0x0388, 0x038A, 1}, {0x038C, 0x038C, 1}, {0x038E, 0x03A1, 1}, {0x03A3, 0x03F5, 1},
		{0x03F7, 0x0481, 1}, {0x048A, 0x052F, 1}, {0x0531, 0x0556, 1}, {0x10A0, 0x10C5, 1}, {0x13A0, 0x13F5, 1}, {0x13F8, 0x13FD, 1},
		{0x1C90, 0x1CBA, 1}, {0x1CBD, 0x1CBF, 1}, {0x1D00, 0x1D2B, 1}, {0x1D6B, 0x1D77, 1}, {0x1D79, 0x1D9A, 1}, {0x1E00, 0x1F15, 1},
		{0x1F18, 0x1F1D, 1}, {0x1F20, 0x1F45, 1}, {0x1F48, 0x1F4D, 1}, {0x1F50, 0x1F57, 1}, {0x1F59, 0x1F59, 1}, {0x1F5B, 0x1F5B, 1},
		{0x1F5D, 0x1F5D, 1}, {0x1F5F, 0x1F7D, 1}, {0x1F80, 0x1FB4, 1}, {0x1FB6, 0x1FBC, 1}, {0x1FBE, 0x1FBE, 1}, {0x1FC2, 0x1FC4, 1},
		{0x1FC6, 0x1FCC, 1}, {0x1FD0, 0x1FD3, 1}, {0x1FD6, 0x1FDB, 1}, {0x1FE0, 0x1FEC, 1}, {0x1FF2, 0x1FF4, 1}, {0x1FF6, 0x1FFC, 1},
		{0x2102, 0x2102, 1}, {0x2107, 0x2107, 1}, {0x210A, 0x2113, 1}, {0x2115, 0x2115, 1}, {0x2119, 0x211D, 1}, {0x2124, 0x2124, 1},
		{0x2126, 0x2126, 1}, {0x2128, 0x2128, 1}, {0x212A, 0x212D, 1}, {0x212F, 0x2134, 1}, {0x2139, 0x2139, 1}, {0x213C, 0x213F, 1},
		{0x2145, 0x2149, 1}, {0x214E, 0x214E, 1}, {0x2183, 0x2184, 1}, {0x2C00, 0x2C7B, 1}, {0x2C7E, 0x2CE4, 1}, {0x2CEB, 0x2CEE, 1},
		{0x2CF2, 0x2CF3, 1}, {0xA640, 0xA66D, 1}, {0xA680, 0xA69B, 1}, {0xA722, 0xA76F, 1}, {0xA771, 0xA787, 1}, {0xA78B, 0xA78E, 1},
		{0xAB70, 0xABBF, 1}, {0xFB00, 0xFB06, 1}, {0xFB13, 0xFB17, 1}, {0xFF21, 0xFF3A, 1}, {0xFF41, 0xFF5A, 1},
	},
	R32: []unicode.Range32{
		{0x10400, 0x1044F, 1}, {0x104B0, 0x104D3, 1}, {0x104D8, 0x104FB, 1}, {0x10C80, 0x10CB2, 1}, {0x10CC0, 0x10CF2, 1}, {0x118A0, 0x118DF, 1},
		{0x1E900, 0x1E943, 1},
	},
}
