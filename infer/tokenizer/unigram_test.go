package tokenizer

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// unigramModel is a model of testdata/unigram.json, which SentencePiece has trained, with the ids that it gives some texts.
type unigramModel struct {
	Name             string
	Prefix, Collapse bool
	CharsMap, Types  []int32
	Tokens           []string
	Scores           []float32
	Cases            []struct {
		Text string
		IDs  []int32
	}
}

func (m unigramModel) file() metadata {
	return metadata{
		keyModel: "t5", keyTokens: m.Tokens, keyTypes: m.Types, keyScores: m.Scores, keyCharsMap: m.CharsMap,
		keySpacePrefix: m.Prefix, keyCollapseSpaces: m.Collapse, keyUnknown: uint64(0), keyBOS: uint64(1), keyEOS: uint64(2), keyAddBOS: true, keyAddEOS: true,
	}
}

func unigramModels(t testing.TB) (models []unigramModel) {
	t.Helper()
	data, err := os.ReadFile("testdata/unigram.json")
	if err == nil {
		err = json.Unmarshal(data, &models)
	}
	if err != nil || len(models) == 0 {
		t.Fatalf("%d models, %v", len(models), err)
	}
	return models
}

func TestUnigramGivesTheIDsOfSentencePiece(t *testing.T) {
	for _, m := range unigramModels(t) {
		t.Run(m.Name, func(t *testing.T) {
			tok := mustNew(t, m.file())
			for _, c := range m.Cases {
				if got := encode(t, tok, c.Text, Options{}); !slices.Equal(got, c.IDs) {
					t.Errorf("%q: got %v, want %v", c.Text, got, c.IDs)
				}
			}
		})
	}
}

// slowUnigram tries every way to spell a word that has only ordinary runes.
func slowUnigram(m unigramModel, word string) (best float64) {
	if word == "" {
		return 0
	}
	best = math.Inf(-1)
	for id, text := range m.Tokens {
		if rest, ok := strings.CutPrefix(word, text); ok && m.Types[id] == int32(kindNormal) {
			best = max(best, float64(m.Scores[id])+slowUnigram(m, rest))
		}
	}
	return best
}

func TestUnigramSpellsEachWordByTheBestScore(t *testing.T) {
	m := unigramModels(t)[0]
	tok := mustNew(t, m.file())
	var runes []string
	for id, text := range m.Tokens {
		if m.Types[id] == int32(kindNormal) && utf8.RuneCountInString(text) == 1 && text != spaceMark {
			runes = append(runes, text)
		}
	}
	rng := rand.New(rand.NewPCG(3, 5))
	for range 500 {
		word := ""
		for range 1 + rng.IntN(9) {
			text := m.Tokens[rng.IntN(len(m.Tokens))]
			if !strings.Contains(text, spaceMark) && !strings.HasPrefix(text, "<") && rng.IntN(2) == 0 {
				word += text
			} else {
				word += runes[rng.IntN(len(runes))]
			}
		}
		ids, score := encode(t, tok, word, Options{}), 0.0
		for _, id := range ids {
			score += float64(m.Scores[id])
		}
		if want := slowUnigram(m, spaceMark+word); math.Abs(score-want) > 1e-9 {
			t.Errorf("%q: the tokens %v have the score %g, the best have %g", word, ids, score, want)
		}
		if got := tok.Decode(ids, true); got != word {
			t.Errorf("%q was decoded as %q", word, got)
		}
	}
}

func TestUnigramKeepsSpecialTokensApart(t *testing.T) {
	tok := mustNew(t, unigramModels(t)[0].file())
	lamp := encode(t, tok, "the lamp", Options{})
	if got, want := encode(t, tok, "the lamp", Options{AddSpecial: true}), slices.Concat([]int32{1}, lamp, []int32{2}); !slices.Equal(got, want) {
		t.Errorf("with special tokens got %v, want %v", got, want)
	}
	if got, want := encode(t, tok, "</s>the lamp<s>the lamp", Options{ParseSpecial: true}), slices.Concat([]int32{2}, lamp, []int32{1}, lamp); !slices.Equal(got, want) {
		t.Errorf("parsed: got %v, want %v", got, want)
	}
	if got := encode(t, tok, "<s>", Options{}); slices.Contains(got, 1) {
		t.Errorf("the text of a control token became the token: %v", got)
	}
	for name, file := range map[string]metadata{
		"scores that are missing": {keyModel: "t5", keyTokens: []string{"a"}},
		"a byte token":            {keyModel: "t5", keyTokens: []string{"a", "<0x00>"}, keyScores: []float32{0, 0}, keyTypes: []int32{1, 6}},
	} {
		if _, err := New(file); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if got := encode(t, mustNew(t, metadata{keyModel: "t5", keyTokens: []string{"a"}, keyScores: []float32{0}, keyAddEOS: false}), "xax", Options{}); !slices.Equal(got, []int32{0}) {
		t.Errorf("a vocabulary without an unknown token: got %v, want the known one", got)
	}
}

func TestUnigramTakesStepsInProportionToTheText(t *testing.T) {
	tok := mustNew(t, unigramModels(t)[0].file())
	for name, text := range map[string]string{"one word": "lamp", "words": "the lamp ", "unknown": "☃", "invalid bytes": "\xff"} {
		countSteps(t, tok, repeatTo(text, 1<<12), false) // fills the cache
		if once, twice := countSteps(t, tok, repeatTo(text, 1<<16), false), countSteps(t, tok, repeatTo(text, 1<<17), false); twice > once*21/10 {
			t.Errorf("%s: %d steps for 64 KiB, %d for 128 KiB", name, once, twice)
		}
	}
}
