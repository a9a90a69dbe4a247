package tokenizer

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// preTokenizer splits text into pieces whose ends no merge crosses. It is a list of rules:
// the first splits the text, each later one splits the pieces of the rule before and does
// not see beyond its piece.
type preTokenizer []rule

// rule matches at text[at:], at < len(text). If match is true, text[at:end] is a piece. If
// not, no match starts in text[at:end]; the text between two matches is a piece too. end is
// always greater than at. Rules implement the regular expressions that the model families
// publish as loops, which read each rune a bounded number of times.
type rule func(text string, at int) (end int, match bool)

// split calls emit with each piece of text, from the left, and addSteps with the number of
// bytes read. It returns the first error of either.
func (p preTokenizer) split(text string, addSteps func(bytes int) error, emit func(piece string) error) error {
	if len(p) == 0 {
		return emit(text)
	}
	at, gap := 0, 0
	for at < len(text) {
		next, match := p[0](text, at)
		if err := addSteps(next - at); err != nil {
			return err
		}
		if match {
			if gap < at {
				if err := p[1:].split(text[gap:at], addSteps, emit); err != nil {
					return err
				}
			}
			if err := p[1:].split(text[at:next], addSteps, emit); err != nil {
				return err
			}
			gap = next
		}
		at = next
	}
	if gap < at {
		return p[1:].split(text[gap:], addSteps, emit)
	}
	return nil
}

// bytePairRules is the meaning of a value of tokenizer.ggml.pre.
type bytePairRules struct {
	split       preTokenizer
	wholeTokens bool // a piece whose text is a token becomes that token without merging
	addBOS      bool // default of tokenizer.ggml.add_bos_token
}

// preTokenizers maps every supported value of tokenizer.ggml.pre to its rules.
var preTokenizers = declarePreTokenizers()

func declarePreTokenizers() map[string]bytePairRules {
	var (
		gpt2    = bytePairRules{split: preTokenizer{gpt2Words}}
		digits1 = bytePairRules{split: preTokenizer{runs(number, 1), gpt2Words}}
		lines3  = bytePairRules{split: preTokenizer{lineWords{contraction: true, letters: letter, digits: 3, trailing: "\r\n"}.match}}
		lines1  = bytePairRules{split: preTokenizer{lineWords{contraction: true, letters: letter, digits: 1, trailing: "\r\n"}.match}}
		llama3  = bytePairRules{split: lines3.split, wholeTokens: true, addBOS: true}
		gpt4o   = bytePairRules{split: preTokenizer{lineWords{contractionSuffix: true, cased: true, letters: letter, digits: 3, trailing: "\r\n/"}.match}}
		bloom   = bytePairRules{split: preTokenizer{bloomWords}}
		deep3   = bytePairRules{split: preTokenizer{runs(number, 3), runsOf(cjkKana), deepSeekWords{trailing: true}.match}}
		youtu   = lineWords{contractionSuffix: true, cased: true, letters: letter, digits: 1, trailing: "\r\n/"}
	)
	declared := map[string]bytePairRules{}
	for _, e := range []struct {
		names string
		rules bytePairRules
	}{
		{"default", bytePairRules{split: preTokenizer{punctuation("$+<=>^~|"), gpt2Words, runs(number, 0), threeDigits}}},
		{"falcon", bytePairRules{split: preTokenizer{punctuation("$+<=>^~|`"), gpt2Words, threeDigits}}},
		{"gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat mellum modern-bert a.x-4.0 jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es roberta-bpe", gpt2},
		{"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", digits1},
		{"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", llama3},
		{"dbrx smaug-bpe chatglm-bpe glm4", lines3},
		{"glm5", bytePairRules{split: lines3.split, wholeTokens: true}},
		{"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo f2llmv2 bailingmoe bailingmoe2 llada-moe", lines1},
		{"laguna", bytePairRules{split: append(preTokenizer{lines}, lines1.split...)}},
		{"ufakzeka", bytePairRules{split: preTokenizer{lineWords{letters: letter, digits: 1, trailing: "\r\n"}.match}}},
		{"exaone-moe", bytePairRules{split: preTokenizer{lineWords{contraction: true, phrases: true, letters: letter, digits: 1, trailing: "\r\n/", trailingOne: true}.match}}},
		{"jais-2", bytePairRules{split: append(lines3.split[:1:1], spaceBlocks)}},
		{"minicpm5", bytePairRules{split: append(preTokenizer{runs(number, 3)}, lines3.split...), wholeTokens: true}},
		{"qwen35", bytePairRules{split: preTokenizer{lineWords{contraction: true, letters: letter | mark, digits: 1, trailing: "\r\n"}.match}}},
		{"seed-coder", bytePairRules{split: preTokenizer{lineWords{contraction: true, letters: letter, digits: 1}.match}}},
		{"tekken", bytePairRules{split: preTokenizer{lineWords{cased: true, letters: letter, digits: 1, trailing: "\r\n/"}.match}, wholeTokens: true, addBOS: true}},
		{"gpt-4o llama4 kanana2 minimax-m2 talkie", gpt4o},
		{"granite-embed-multi-97m", bytePairRules{split: gpt4o.split, wholeTokens: true}},
		{"chameleon", bytePairRules{split: preTokenizer{sentinels, imageTokens, indents, runs(number, 1), eachPunctuation, gpt2Words}, addBOS: true}},
		{"tiny_aya cohere2moe", bytePairRules{split: append(preTokenizer{digitGroups(decimal, word)}, gpt4o.split...)}},
		{"youtu", bytePairRules{split: preTokenizer{runsOf(hangul, widePunctuation, bopomofo, cjkKana), youtu.match}, wholeTokens: true}},
		{"kimi-k2", bytePairRules{split: preTokenizer{lineWords{contractionSuffix: true, cased: true, noHan: true, letters: letter, digits: 3, trailing: "\r\n"}.match}}},
		{"bloom gpt3-finnish poro-chat", bloom},
		{"viking", bytePairRules{split: preTokenizer{bloomWords, runs(number, 1)}}},
		{"deepseek-llm", bytePairRules{split: preTokenizer{lineBreak, withSpaceBefore(oldCasedLetters), withSpaceBefore(asciiAndWidePunctuation), spaceAtEnd, runsOf(cjkHangul), runs(number, 0)}}},
		{"deepseek-coder", bytePairRules{split: preTokenizer{lineBreak, withSpaceBefore(isLetter), withSpaceBefore(isPunct), runsOf(cjkHangul), runs(number, 1)}}},
		{"deepseek-v3 hunyuan-dense hy_v4 joyai-llm", deep3},
		{"spark2_5", bytePairRules{split: preTokenizer{runs(number, 3), runsOf(cjkKana), deepSeekWords{}.match, runs(number, 1)}}},
		{"afmoe", bytePairRules{split: preTokenizer{digitGroups(number, 0), runsOf(asian), deepSeekWords{trailing: true}.match}}},
		{"superbpe", bytePairRules{split: preTokenizer{runs(number, 0), digitGroupStarts}}},
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
	names = slices.AppendSeq(names, maps.Keys(spacedBytePairs))
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// gpt2Words implements GPT-2's expression:
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
		return skipSpaces(text, at), true
	case c&letter != 0:
		return skip(text, start, letter), true
	case c&number != 0:
		return skip(text, start, number), true
	default:
		return skipNot(text, start, space|letter|number), true
	}
}

// skipSpaces implements \s+(?!\S)|\s+ for text[at:] that begins with white space: it skips
// the whole run at the end of the text; elsewhere it leaves the last rune to the next word,
// unless the run is that rune alone.
func skipSpaces(text string, at int) int {
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

// skipLineSpaces implements \s*[\r\n]+|\s+(?!\S)|\s+ for text[at:] that begins with white
// space.
func skipLineSpaces(text string, at int) int {
	end := skip(text, at, space)
	if i := strings.LastIndexAny(text[at:end], "\r\n"); i >= 0 {
		return at + i + 1
	}
	return skipSpaces(text, at)
}

// contraction returns the length of 's 't 're 've 'm 'll or 'd at the start of text, 0 for
// none.
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

// lineWords is GPT-4's expression and its variants in other families:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// In the cased variants a word is, after the same optional first rune,
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ or else the same with + and *
// exchanged.
type lineWords struct {
	contraction       bool   // a contraction is a piece
	phrases           bool   // a piece may hold several words separated by single spaces, and marks
	contractionSuffix bool   // a contraction is part of the word before it
	cased             bool   // a word ends after its lower-case letters
	noHan             bool   // a run of Han runes is a piece; words contain none
	letters           class  // classes of the runes in words, unless cased
	digits            int    // most runes in a piece of numbers
	trailing          string // bytes that may follow a run of punctuation
	trailingOne       bool   // at most one of them
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
		if w.contractionSuffix {
			end += contraction(text[end:], true)
		}
		return end, true
	}
	if c&number != 0 {
		return skipUpTo(text, at, number, w.digits), true
	}
	punctuation := at
	if text[at] == ' ' {
		punctuation++
	}
	if end := skipNot(text, punctuation, space|w.letters|number); end > punctuation {
		for end < len(text) && strings.IndexByte(w.trailing, text[end]) >= 0 {
			end++
			if w.trailingOne {
				break
			}
		}
		return end, true
	}
	if c&space != 0 {
		return skipLineSpaces(text, at), true
	}
	return at + size, false
}

// word returns the end of the word at text[at:], at for none. It tries to match with the
// optional first rune before it tries without, as a regular expression does.
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
		if end := w.lowercaseEnd(text, start); end > start {
			return end
		}
	}
	for _, start := range starts {
		if end := w.skipUppercase(text, start); end > start {
			return w.skipLowercase(text, end)
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

// skipUppercase skips [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*.
func (w lineWords) skipUppercase(text string, at int) int { return w.skipCased(text, at, lower) }

// skipLowercase skips [\p{Ll}\p{Lm}\p{Lo}\p{M}]*.
func (w lineWords) skipLowercase(text string, at int) int { return w.skipCased(text, at, upper) }

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

// lowercaseEnd matches skipUppercase followed by at least one rune of skipLowercase. If the
// first leaves none for the second, it backtracks to the last rune that both match: only
// capitals follow it, so the match ends there.
func (w lineWords) lowercaseEnd(text string, at int) int {
	head := w.skipUppercase(text, at)
	if end := w.skipLowercase(text, head); end > head {
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

// skipUpTo is like skip but stops after limit runes.
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

// runs matches runs of a class in pieces of at most limit runes; 0 means no limit.
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

// runsOf matches runs of each of the sets, which must be disjoint.
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

// withSpaceBefore matches runs of a set, each with one preceding white space if there is
// one.
func withSpaceBefore(in func(rune) bool) rule {
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

// punctuation matches runs of \p{P} and the given ASCII characters.
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

// digitGroups matches runs of a class in groups of three, counted from the right:
//
//	\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))
//
// A run followed by a rune of class not does not match.
func digitGroups(in, not class) rule {
	return func(text string, at int) (int, bool) {
		if gap := skipNot(text, at, in); gap > at {
			return gap, false
		}
		if classBefore(text, at)&in != 0 { // inside a run: the rest of it is a multiple of three runes long
			return skipUpTo(text, at, in, 3), true
		}
		end := skip(text, at, in)
		if c, _ := classAt(text, end); c&not != 0 {
			return end, false
		}
		return skipUpTo(text, at, in, (utf8.RuneCountInString(text[at:end])+2)%3+1), true
	}
}

// digitGroupStarts splits before each group of three digits, counted from the right:
//
//	(?=(\d{3})+(?!\d))
func digitGroupStarts(text string, at int) (int, bool) {
	end := at
	if classBefore(text, at)&decimal != 0 { // in a run, where a group begins
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

// classBefore returns the class of the rune before text[at:], 0 at the start.
func classBefore(text string, at int) class {
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

// spaceBlocks splits a piece of white space that does not end with a line break:
//
//	\s{512}|\s{256}|\s{128}|\s{64}|\s{32}|\s{16}|\s{8}|\s{4}|\s{1,2}
func spaceBlocks(text string, at int) (int, bool) {
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

// sentinels matches <sentinel:[0-9]+>
func sentinels(text string, at int) (int, bool) {
	const before = "<sentinel:"
	i := strings.Index(text[at:], before)
	if i != 0 {
		return endOfGap(text, at, i), false
	}
	digits := at + len(before)
	end := digits
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	if end == digits || end == len(text) || text[end] != '>' {
		return end, false
	}
	return end + 1, true
}

// imageTokens matches IMGIMG[A-I]{1,4}Z
func imageTokens(text string, at int) (int, bool) {
	const before = "IMGIMG"
	i := strings.Index(text[at:], before)
	if i != 0 {
		return endOfGap(text, at, i), false
	}
	letters := at + len(before)
	end := letters
	for end < len(text) && end < letters+4 && 'A' <= text[end] && text[end] <= 'I' {
		end++
	}
	if end == letters || end == len(text) || text[end] != 'Z' {
		return at + 1, false
	}
	return end + 1, true
}

// endOfGap returns where the next match begins, i bytes after at; -1: there is none.
func endOfGap(text string, at, i int) int {
	if i < 0 {
		return len(text)
	}
	return at + i
}

// indents matches [\t\n], four spaces, or else two.
func indents(text string, at int) (int, bool) {
	switch rest := text[at:]; {
	case rest[0] == '\t', rest[0] == '\n':
		return at + 1, true
	case strings.HasPrefix(rest, "    "):
		return at + 4, true
	case strings.HasPrefix(rest, "  "):
		return at + 2, true
	}
	return at + 1, false
}

// eachPunctuation matches one rune of \p{P} or one ASCII sign.
func eachPunctuation(text string, at int) (int, bool) {
	c, size := classAt(text, at)
	return at + size, c&punct != 0 || text[at] < utf8.RuneSelf && c&symbol != 0
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

// spaceAtEnd matches \s+$.
func spaceAtEnd(text string, at int) (int, bool) {
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

// deepSeekWords implements the last expression of DeepSeek V3:
//
//	[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// Without trailing the alternatives after the words are  ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+
type deepSeekWords struct{ trailing bool }

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
	punctuation := at
	if text[at] == ' ' {
		punctuation++
	}
	if end := skip(text, punctuation, punct|symbol); end > punctuation {
		for w.trailing && end < len(text) && (text[end] == '\r' || text[end] == '\n') {
			end++
		}
		return end, true
	}
	switch {
	case c&space == 0:
		return at + size, false
	case w.trailing:
		return skipLineSpaces(text, at), true
	case text[at] == '\r' || text[at] == '\n':
		return at + 1, true
	}
	return skipSpaces(text, at), true
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

// asian is AFMoE's set of scripts: CJK, kana, radicals, Thai, Lao, Khmer, Myanmar with its
// extensions, and Hangul.
func asian(r rune) bool {
	return 0x4E00 <= r && r <= 0x9FFF || 0x3400 <= r && r <= 0x4DBF || 0xF900 <= r && r <= 0xFAFF ||
		0x3040 <= r && r <= 0x30FF || 0xFF65 <= r && r <= 0xFF9F || 0x2F00 <= r && r <= 0x2FDF ||
		0x0E40 <= r && r <= 0x0EFF || 0x1780 <= r && r <= 0x17FF || 0x1000 <= r && r <= 0x109F ||
		0xAA60 <= r && r <= 0xAA7F || 0xA9E0 <= r && r <= 0xA9FF || 0xAC00 <= r && r <= 0xD7AF || 0x1100 <= r && r <= 0x11FF
}

// cjkHangul is [一-龥ࠀ-一가-\uD7FF]; its middle range includes Indic scripts and kana.
func cjkHangul(r rune) bool { return 0x0800 <= r && r <= 0x9FA5 || 0xAC00 <= r && r <= 0xD7FF }

// asciiAndWidePunctuation is [!-/:-~！-／：-～‘-‟\u3000-。]; its ranges that start at : and ：
// include the letters.
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
