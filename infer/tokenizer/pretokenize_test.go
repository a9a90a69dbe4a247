package tokenizer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"m40-llm/infer/fixtures"
)

// distinctPreTokenizers has one name for each different list of rules.
var distinctPreTokenizers = []string{
	"default", "falcon", "gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "dbrx", "seed-coder", "tekken", "gpt-4o", "kimi-k2",
	"bloom", "viking", "deepseek-llm", "deepseek-coder", "deepseek-v3", "spark2_5", "afmoe", "superbpe", "tiny_aya", "youtu", "laguna",
	"ufakzeka", "exaone-moe", "jais-2", "minicpm5", "chameleon",
}

func TestPreTokenizersMatchHandSplitTexts(t *testing.T) {
	for _, c := range []struct {
		pre, text string
		want      []string
	}{
		{"gpt-2", "I'll say 'S 12345!", []string{"I", "'ll", " say", " '", "S", " 12345", "!"}},
		{"gpt-2", "a  \n b", []string{"a", "  \n", " b"}},
		{"gpt-2", "a\nb ", []string{"a", "\n", "b", " "}},
		{"smollm", "a 123", []string{"a", " ", "1", "2", "3"}},
		{"default", "a,b 1234", []string{"a", ",", "b", " ", "123", "4"}},
		{"falcon", "`x` 12345", []string{"`", "x", "`", " ", "123", "45"}},
		{"llama-bpe", "I'LL\"quote 12345", []string{"I", "'LL", "\"quote", " ", "123", "45"}},
		{"llama-bpe", "x;\n\n  y", []string{"x", ";\n\n", " ", " y"}},
		{"llama-bpe", "x  \n \t y", []string{"x", "  \n", " \t", " y"}},
		{"qwen2", "12", []string{"1", "2"}},
		{"qwen2", "a\u0301b", []string{"a", "\u0301b"}},
		{"qwen35", "a\u0301b", []string{"a\u0301b"}},
		{"seed-coder", "x;\ny", []string{"x", ";", "\n", "y"}},
		{"gpt-4o", "HelloWorld isn't http://x", []string{"Hello", "World", " isn't", " http", "://", "x"}},
		{"gpt-4o", "漢ABC", []string{"漢", "ABC"}}, // 漢 (Lo) matches the upper-case and the lower-case part, so it is a word
		{"tekken", "isn't 12", []string{"isn", "'t", " ", "1", "2"}},
		{"kimi-k2", "ab漢字cd", []string{"ab", "漢字", "cd"}},
		{"bloom", "a. b|c", []string{"a", ".", " b", "|", "c"}},
		{"viking", "a12", []string{"a", "1", "2"}},
		{"deepseek-llm", "one 漢字 12  ", []string{"one", " ", "漢字", " ", "12", "  "}},
		{"deepseek-coder", "a, b12\n", []string{"a", ",", " b", "1", "2", "\n"}},
		{"deepseek-v3", "x .foo 1234かな!", []string{"x", " .", "foo", " ", "123", "4", "かな", "!"}},
		{"deepseek-v3", "\x01\x02a", []string{"\x01", "\x02a"}},
		{"spark2_5", "a!\n\n b12", []string{"a", "!", "\n", "\n", " b", "1", "2"}},
		{"afmoe", "x 1234567漢かな한", []string{"x", " ", "1", "234", "567", "漢かな한"}},
		{"superbpe", "all one piece, but 1234567 ²345", []string{"all one piece, but ", "1", "234", "567", " ", "²", "345"}},
		{"tiny_aya", "12345 12345x", []string{"12", "345", " ", "123", "45", "x"}},
		{"youtu", "한국、漢字isn't 12", []string{"한국", "、", "漢字", "isn't", " ", "1", "2"}},
		{"laguna", "x;\n\ny", []string{"x", ";", "\n\n", "y"}},
		{"ufakzeka", "Ankara'da", []string{"Ankara", "'da"}},
		{"bailingmoe", "I'LL 12", []string{"I", "'LL", " ", "1", "2"}},
		{"exaone-moe", "two words are one //\n", []string{"two words are one", " //\n"}},
		{"jais-2", "x" + strings.Repeat(" ", 12) + "y", []string{"x", strings.Repeat(" ", 8), "  ", " ", " y"}},
		{"minicpm5", "a1234 b", []string{"a", "123", "4", " b"}},
		{"chameleon", "<sentinel:12>IMGIMGABCZ IMGIMGZ", []string{"<", "sentinel", ":", "1", "2", ">", "IMGIMGABCZ", " IMGIMGZ"}},
		{"chameleon", "\t     x  12, 'll", []string{"\t", "    ", " x", "  ", "1", "2", ",", " ", "'", "ll"}},
		{"chameleon", "<sentinel:x> IMGIMGABCDEZ", []string{"<", "sentinel", ":", "x", ">", " IMGIMGABCDEZ"}},
	} {
		t.Run(c.pre+" of "+c.text, func(t *testing.T) {
			if got := splitText(t, preTokenizers[c.pre].split, c.text); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestClassesMatchUnicode(t *testing.T) {
	for class, tables := range map[class][]*unicode.RangeTable{
		letter: {unicode.L}, number: {unicode.N}, mark: {unicode.M}, punct: {unicode.P}, symbol: {unicode.S}, space: {unicode.White_Space},
		upper: {unicode.Lu, unicode.Lt}, lower: {unicode.Ll}, han: {unicode.Han}, decimal: {unicode.Nd},
		word: {unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc},
	} {
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if r > 0x20000 && !fixtures.Torture() {
				r += 30 // above commonClasses there are few and long ranges
			}
			if got := classOf(r)&class != 0; got != unicode.In(r, tables...) {
				t.Fatalf("%U: class %b is %v, want %v", r, class, got, !got)
			}
		}
	}
	if c, size := classAt("\xff", 0); c != 0 || size != 1 {
		t.Errorf("a byte that is not UTF-8 has class %b and length %d", c, size)
	}
}

const mebibyte = 1 << 20

// repeatTo repeats s to at least n bytes. With M40_LLM_TORTURE=1 it is at least a mebibyte,
// which takes minutes under the race detector.
func repeatTo(s string, n int) string {
	if fixtures.Torture() {
		n = max(n, mebibyte)
	}
	return strings.Repeat(s, (n+len(s)-1)/len(s))
}

// categoryRuns returns a long run of each general category of Unicode, of unassigned code
// points and of bytes that are not UTF-8.
func categoryRuns() map[string]string {
	const categoryRun = mebibyte / 32
	runs := map[string]string{"unassigned": repeatTo("\u0378\U0003ffff", categoryRun), "not UTF-8": repeatTo("\xff\xc3\xed\xa0\x80", categoryRun)}
	for _, name := range slices.Sorted(maps.Keys(unicode.Categories)) {
		table := unicode.Categories[name]
		if len(name) != 2 || name == "Cs" || name == "Cn" || name == "LC" {
			continue // unions of other categories, and surrogates, which UTF-8 cannot encode
		}
		var b []byte
		for _, r := range table.R16 {
			b = utf8.AppendRune(b, rune(r.Lo))
		}
		for _, r := range table.R32 {
			b = utf8.AppendRune(b, rune(r.Lo))
		}
		runs[name] = repeatTo(string(b), categoryRun)
	}
	return runs
}

func TestLongRunsOfAnyCategoryAreSplit(t *testing.T) {
	runs := categoryRuns()
	if len(runs) != 30 {
		t.Fatalf("%d categories, want 30", len(runs))
	}
	for _, pre := range distinctPreTokenizers {
		t.Run(pre, func(t *testing.T) {
			for category, text := range runs {
				checkSplit(t, pre, category, text)
			}
		})
	}
}

// TestBacktrackingTextIsSplitInOnePass has texts on which a backtracking regular expression
// takes quadratic time or worse.
func TestBacktrackingTextIsSplitInOnePass(t *testing.T) {
	run := func(s string) string { return repeatTo(s, mebibyte/8) }
	for _, pre := range distinctPreTokenizers {
		t.Run(pre, func(t *testing.T) {
			for name, text := range map[string]string{
				"spaces before a letter":               run(" ") + "x",
				"line breaks before a letter":          run("\r\n") + "x",
				"one line break, then spaces":          "\n" + run(" ") + "x",
				"spaces that do not end in a line end": run(" \t") + "x",
				"wide spaces, which are punctuation":   run("\u3000") + "x",
				"capitals after a letter without case": "漢" + run("A"),
				"each capital after one without case":  run("漢A"),
				"capitals after a mark":                "\u0301" + run("A") + "!",
				"marks":                                run("\u0301"),
				"lower and upper case in alternation":  run("aB"),
				"apostrophes":                          run("'"),
				"halves of contractions":               run("'l'r'v"),
				"two digits, then a letter":            run("12a"),
				"punctuation":                          run("!/"),
				"punctuation and line breaks":          run("!\n"),
				"spaces and punctuation":               run(" !"),
				"controls that may start a word":       run("\x01"),
			} {
				checkSplit(t, pre, name, text)
			}
		})
	}
}

func checkSplit(t *testing.T, pre, name, text string) {
	t.Helper()
	read, at := 0, 0
	tick := func(n int) error { read += n; return nil }
	err := preTokenizers[pre].split.split(text, tick, func(piece string) error {
		if piece == "" || at+len(piece) > len(text) || text[at:at+len(piece)] != piece {
			return fmt.Errorf("the piece at %d is %q, which is not the text there", at, piece)
		}
		at += len(piece)
		return nil
	})
	if err != nil || at != len(text) {
		t.Errorf("%s: %v; the pieces cover %d of %d bytes", name, err, at, len(text))
	}
	if want := len(text) * len(preTokenizers[pre].split); read != want {
		t.Errorf("%s: the rules read %d bytes, want %d, one pass each", name, read, want)
	}
}

func TestEveryPreTokenizerEncodesALongWord(t *testing.T) {
	for _, pre := range distinctPreTokenizers {
		t.Run(pre, func(t *testing.T) {
			tok := mustNew(t, byteLevelFile().with(keyPre, pre))
			text := repeatTo("hel", mebibyte/32)
			if got := tok.Decode(encode(t, tok, text, Options{}), false); got != text {
				t.Errorf("%d bytes were decoded as %d different ones", len(text), len(got))
			}
		})
	}
}

// countSteps returns the steps of encoding a text.
func countSteps(t *testing.T, tok *Tokenizer, text string, parse bool) int {
	t.Helper()
	e := encoder{Tokenizer: tok, ctx: context.Background()}
	if err := e.encode([]Span{{text, parse}}); err != nil {
		t.Fatal(err)
	}
	return e.steps
}

// TestStepsGrowAlmostLinearlyWithTheText counts steps instead of time: n log n grows by a
// factor of 2.12 from 2^16 to 2^17.
func TestStepsGrowAlmostLinearlyWithTheText(t *testing.T) {
	for model, file := range map[string]metadata{"byte-level": byteLevelFile(), "SentencePiece": sentencePieceFile(), "Gemma 4": gemma4File()} {
		for name, unit := range map[string]string{
			"one letter": "l", "a word without end": "hello", "words": "hello lol ", "no merges": "xyz", "spaces": " ", "pairs": "ab", "beginnings of special tokens": "<|im_",
		} {
			t.Run(model+", "+name, func(t *testing.T) {
				tok := mustNew(t, file)
				steps := func(n int) float64 { return float64(countSteps(t, tok, strings.Repeat(unit, n/len(unit)), true)) }
				steps(1 << 10) // fills the cache
				before := steps(1 << 14)
				for n := 1 << 15; n <= len(repeatTo("x", 1<<17)); n *= 2 {
					after := steps(n)
					if after > 2.3*before {
						t.Errorf("twice %d bytes take %.2f times the steps", n/2, after/before)
					}
					before = after
				}
			})
		}
	}
}

// Steps do not include the runes that a rule reads ahead; BenchmarkLinearTime measures those.
func TestStepsGrowAlmostLinearlyForEveryCategory(t *testing.T) {
	encoders := map[string]metadata{"SentencePiece": sentencePieceFile(), "Gemma 4": gemma4File(), "WordPiece": wordPieceFile(), "unigram": unigramModels(t)[0].file()}
	for _, pre := range distinctPreTokenizers {
		encoders[pre] = byteLevelFile().with(keyPre, pre)
	}
	runs := categoryRuns()
	for name, file := range encoders {
		t.Run(name, func(t *testing.T) {
			tok := mustNew(t, file)
			for category, text := range runs {
				steps := func(text string) int { return countSteps(t, tok, text, false) }
				const n = 2 << 10
				steps(text[:n]) // fills the cache, which would favour the longer text
				if half, whole := steps(text[:n]), steps(text[:2*n]); 10*whole > 23*half {
					t.Errorf("%s: twice %d bytes take %d steps instead of %d", category, n, whole, half)
				}
			}
		})
	}
}

func TestModelsWithTheSameWordsShareTheirRules(t *testing.T) {
	for _, c := range []struct {
		names, like string
		wholeTokens bool
	}{
		{"jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es roberta-bpe", "gpt-2", false},
		{"jina-v5-nano", "llama-bpe", true},
		{"glm5", "glm4", true},
		{"granite-embed-multi-97m", "gpt-4o", true},
	} {
		for name := range strings.FieldsSeq(c.names) {
			rules, ok := preTokenizers[name]
			if !ok || rules.wholeTokens != c.wholeTokens {
				t.Errorf("%s: declared %v, whole tokens %v", name, ok, rules.wholeTokens)
			}
			const text = "I'll sayThe 12345, \n\n\t a\u0301b/ \r\n"
			if got, want := splitText(t, rules.split, text), splitText(t, preTokenizers[c.like].split, text); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	}
}
