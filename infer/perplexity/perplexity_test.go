package perplexity_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/perplexity"
	"m40-llm/infer/sample"
)

// scorer is an engine whose tokens are the bytes of a text, with 1000 before them if bos is
// set. The log-probability of a token is -(token mod 5) - 1/n for the n tokens before it.
type scorer struct {
	bos   bool
	short bool // it scores a token too few
	err   error
	asked [][]int32
}

func (s *scorer) Tokenize(_ context.Context, _, text string, addSpecial, parseSpecial bool) (tokens []int32, err error) {
	if parseSpecial {
		return nil, errors.New("special tokens in the text must stay text")
	}
	if addSpecial && s.bos {
		tokens = append(tokens, 1000)
	}
	for _, b := range []byte(text) {
		tokens = append(tokens, int32(b))
	}
	return tokens, nil
}

func logProb(window []int32, i int) float64 { return -float64(window[i]%5) - 1/float64(i) }

func (s *scorer) Generate(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		s.asked = append(s.asked, slices.Clone(r.Tokens))
		if s.err != nil {
			yield(infer.Event{}, s.err)
			return
		}
		if !yield(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: len(r.Tokens), Total: len(r.Tokens)}}, nil) {
			return
		}
		for i, token := range r.Tokens {
			if s.short && i == len(r.Tokens)-1 {
				return
			}
			c := sample.Choice{ID: token}
			if i > 0 {
				c.LogProb = logProb(r.Tokens, i)
			}
			if !yield(infer.Event{Type: infer.EventToken, Token: &infer.Token{Choice: c, Prompt: true}}, nil) {
				return
			}
		}
		yield(infer.Event{Type: infer.EventDone, Done: &infer.Done{}}, nil)
	}
}

func TestMeasure_PredictsTheSecondHalfOfEachWindow(t *testing.T) {
	for _, c := range []struct {
		name    string
		text    string
		bos     bool
		n       int
		windows [][]int32
		first   int
		skipped int
	}{
		{"a text that fits is predicted from its second token on", "abcd", false, 10, [][]int32{{97, 98, 99, 100}}, 1, 0},
		{"a text that just fits too", "abcd", false, 4, [][]int32{{97, 98, 99, 100}}, 1, 0},
		{"after BOS, the first token of a text is predicted", "ab", true, 10, [][]int32{{1000, 97, 98}}, 1, 0},
		{"a longer text is cut and its rest left out", "abcdefghij", false, 4, [][]int32{{97, 98, 99, 100}, {101, 102, 103, 104}}, 3, 2},
		{"windows of an odd number of tokens", "abcdefghij", false, 5, [][]int32{{97, 98, 99, 100, 101}, {102, 103, 104, 105, 106}}, 3, 0},
		{"each window begins with BOS in place of its first token", "abcdefgh", true, 3, [][]int32{{1000, 97, 98}, {1000, 100, 101}, {1000, 103, 104}}, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &scorer{bos: c.bos}
			var last perplexity.Progress
			got, err := perplexity.Measure(t.Context(), e, "m", c.text, c.n, func(p perplexity.Progress) { last = p })
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(e.asked, c.windows) {
				t.Errorf("scored %v, want %v", e.asked, c.windows)
			}
			var scores []float64
			for _, w := range c.windows {
				for i := c.first; i < len(w); i++ {
					scores = append(scores, logProb(w, i))
				}
			}
			mean, spread := 0.0, 0.0
			for _, x := range scores {
				mean += x / float64(len(scores))
			}
			for _, x := range scores {
				spread += (x - mean) * (x - mean)
			}
			deviation := 0.0
			if n := float64(len(scores)); n > 1 {
				deviation = math.Exp(-mean) * math.Sqrt(spread/(n-1)/n)
			}
			if math.Abs(got.LogProb-mean) > 1e-6 || math.Abs(got.Perplexity/math.Exp(-mean)-1) > 1e-6 || math.Abs(got.Error-deviation) > 1e-4*deviation {
				t.Errorf("got %+v, want a mean of %g and an error of %g", got, mean, deviation)
			}
			if got.Predicted != len(scores) || got.Windows != len(c.windows) || got.Context != len(c.windows[0]) || got.Skipped != c.skipped || got.Model != "m" {
				t.Errorf("got %+v", got)
			}
			if last.Done != last.Total || last.Total != len(c.windows)*len(c.windows[0]) {
				t.Errorf("the last progress is %+v", last)
			}
		})
	}
}

func TestMeasure_RefusesWhatCannotBePredicted(t *testing.T) {
	broken := errors.New("out of memory")
	for _, c := range []struct {
		name   string
		engine *scorer
		text   string
		n      int
		err    string
	}{
		{"an empty text", &scorer{}, "", 8, "the text has 0 tokens"},
		{"an empty text after BOS", &scorer{bos: true}, "", 8, "the text has 1 tokens"},
		{"a window of one token", &scorer{}, "abc", 1, "a window of 1 tokens"},
		{"an engine that fails", &scorer{err: broken}, "abc", 8, "out of memory"},
		{"an engine that scores too few tokens", &scorer{short: true}, "abc", 8, "of 3 tokens of the text, the model scored 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := perplexity.Measure(t.Context(), c.engine, "", c.text, c.n, nil); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
