// Package perplexity measures how well a model predicts a text.
//
// The text is cut into windows of as many tokens as the context has. Of each window the model
// predicts the second half, so that it has at least half a window before every token; tokens
// that do not fill the last window are left out. Where the model's file asks for it, every window
// begins with BOS in place of its first token. This is how llama.cpp measures, so its figures
// compare. A text that fits into one window is predicted whole, but for its first token.
package perplexity

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"m40-llm/infer"
)

// Engine is what computes.
type Engine interface {
	Tokenize(ctx context.Context, model, text string, addSpecial, parseSpecial bool) ([]int32, error)
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
}

// Result is a measurement, or a part of it.
type Result struct {
	Model      string  `json:"model"`
	Perplexity float64 `json:"perplexity"` // exp(-LogProb): 1 is best
	Error      float64 `json:"error"`      // standard error of Perplexity
	LogProb    float64 `json:"logprob"`    // mean natural logarithm of the probabilities of the predicted tokens
	Predicted  int     `json:"predicted"`  // tokens
	Windows    int     `json:"windows"`
	Context    int     `json:"context"` // tokens of a window, or of the text if it is shorter
	Skipped    int     `json:"skipped"` // tokens at the end of the text that fill no window
}

// Progress says how far a measurement is.
type Progress struct {
	Done, Total int    // tokens
	SoFar       Result // zero until the first window is done
}

// Measure returns the perplexity of text in windows of n tokens. The engine's context must have
// n tokens. progress, which may be nil, is called in this goroutine. An empty model is the loaded
// one.
func Measure(ctx context.Context, e Engine, model, text string, n int, progress func(Progress)) (Result, error) {
	if n < 2 {
		return Result{}, fmt.Errorf("a window of %d tokens has nothing to predict: it takes 2 at least", n)
	}
	tokens, err := e.Tokenize(ctx, model, text, true, false)
	if err != nil {
		return Result{}, err
	}
	plain, err := e.Tokenize(ctx, model, text, false, false)
	if err != nil {
		return Result{}, err
	}
	if len(tokens) < 2 {
		return Result{}, fmt.Errorf("the text has %d tokens: nothing of it can be predicted", len(tokens))
	}
	hasBOS := len(plain) == 0 || tokens[0] != plain[0]
	list, first := windows(tokens, n, hasBOS)
	m := &measurement{engine: e, model: model, first: first, progress: progress, total: len(list) * len(list[0])}
	if m.progress == nil {
		m.progress = func(Progress) {}
	}
	for _, w := range list {
		if err := m.add(ctx, w); err != nil {
			return Result{}, err
		}
	}
	r := m.result()
	r.Skipped = len(tokens) - m.total
	return r, nil
}

// Generator is the part of an Engine that scores.
type Generator interface {
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
}

// Score returns the tokens of r with what the model predicts in their places. Of r, Model and Tokens
// must be set; Rows, Against, AgainstDevice and Client may be. each is called with the events before
// the tokens, in this goroutine.
func Score(ctx context.Context, g Generator, r infer.Request, each func(infer.Event)) (tokens []infer.Token, err error) {
	r.Params, r.PromptLogProb, r.MaxTokens = infer.DefaultRequest().Params, true, 0
	for event, err := range g.Generate(ctx, r) {
		switch {
		case err != nil:
			return nil, err
		case event.Token == nil:
			each(event)
		case event.Token.Prompt:
			tokens = append(tokens, *event.Token)
		}
	}
	if len(tokens) != len(r.Tokens) {
		return nil, fmt.Errorf("of %d tokens of the text, the model scored %d", len(r.Tokens), len(tokens))
	}
	return tokens, nil
}

// windows cuts tokens into windows of n. first is the index in a window of the first token that
// is predicted.
func windows(tokens []int32, n int, hasBOS bool) (list [][]int32, first int) {
	if len(tokens) <= n {
		return [][]int32{tokens}, 1
	}
	for len(tokens) >= n {
		w := slices.Clone(tokens[:n])
		if hasBOS && len(list) > 0 {
			w[0] = list[0][0]
		}
		list, tokens = append(list, w), tokens[n:]
	}
	return list, n/2 + 1
}

// measurement sums the log-probabilities of windows.
type measurement struct {
	engine   Engine
	model    string
	first    int // as of windows
	progress func(Progress)
	total    int // tokens

	count, windows, length int
	sum, squares           float64
}

// add scores a window.
func (m *measurement) add(ctx context.Context, window []int32) error {
	tokens, err := Score(ctx, m.engine, infer.Request{Model: m.model, Tokens: window}, func(e infer.Event) {
		if e.Prefill != nil {
			m.progress(Progress{Done: m.windows*len(window) + e.Prefill.Done, Total: m.total, SoFar: m.result()})
		}
	})
	if err != nil {
		return err
	}
	for _, token := range tokens[m.first:] {
		x := token.LogProb
		m.count++
		m.sum += x
		m.squares += x * x
	}
	m.windows++
	m.length = len(window)
	return nil
}

func (m *measurement) result() Result {
	if m.count == 0 {
		return Result{}
	}
	n := float64(m.count)
	r := Result{Model: m.model, LogProb: m.sum / n, Predicted: m.count, Windows: m.windows, Context: m.length}
	r.Perplexity = math.Exp(-r.LogProb)
	if m.count > 1 {
		variance := (m.squares - m.sum*m.sum/n) / (n - 1)
		r.Error = r.Perplexity * math.Sqrt(max(variance, 0)/n)
	}
	return r
}
