package engine

import (
	"context"
	"math"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/record"
	"m40-llm/infer/tokenizer"
)

// Embed computes the embeddings of texts. Each text is a sequence of its own: the scheduler divides
// the device fairly between texts and their clients, and puts many short ones into a step. None
// leaves anything in the KV cache. A failure is an *Error, or the error of ctx.
func (e *Engine) Embed(ctx context.Context, r infer.EmbedRequest) (result infer.Embeddings, err error) {
	submitted := e.options.Now()
	if err := r.Validate(); err != nil {
		return result, err
	}
	if err := e.inbox.enter(r.Client); err != nil {
		return result, err
	}
	added := false // then the loop gives the place in the queue back
	defer func() {
		if !added {
			e.inbox.leave(r.Client)
		}
	}()
	ctx, cancel := context.WithCancel(ctx) // ends the other texts when one has failed
	defer cancel()
	var texts []*answer
	left := 0 // of the texts, those that the loop has not ended
	err = e.use(ctx, r.Model, func(m *openModel) error {
		if !m.config.Embeds() {
			return infer.Errorf(infer.CodeNotSupported, "the model %q does not compute embeddings: its file names no pooling; use an embedding model, such as one that m40-llm pull nomic-embed-text gets", m.info.Name)
		}
		result.Model = m.info.Name
		if len(r.Inputs) == 0 {
			return nil
		}
		for i, input := range r.Inputs {
			a, err := newText(ctx, m, r, i, input)
			if err != nil {
				return err
			}
			a.submitted, a.embedding.left = submitted, &left
			texts = append(texts, a)
		}
		left = len(texts)
		for range texts {
			e.models.retain(m) // until the loop ends the text
		}
		if err := e.inbox.add(texts...); err != nil {
			for range texts {
				e.models.release(m)
			}
			return err
		}
		added = true
		return nil
	})
	if err != nil {
		return infer.Embeddings{}, err
	}
	for _, a := range texts {
		if err := a.mail.wait(ctx); err != nil {
			return infer.Embeddings{}, err
		}
		result.Vectors = append(result.Vectors, a.embedding.vector)
		result.Tokens = append(result.Tokens, a.prompt)
		result.LoadMS = max(result.LoadMS, record.Milliseconds(a.loading))
	}
	return result, nil
}

// embedding is what an answer has if it is a text to embed.
type embedding struct {
	pooling  model.Pooling
	number   int  // of the text in its request, from 1
	truncate bool // if it is too long
	ending   int  // tokens at its end that stay when it is truncated
	left     *int // texts of its request that have not ended; the loop's

	sum    []float64 // of the vectors that are pooled
	pooled int       // how many these are
	vector infer.Vector
}

// isLast records that a text has ended, and reports whether it was the last one of its request. An answer
// is the only one of its request.
func (e *embedding) isLast() bool {
	if e == nil {
		return true
	}
	*e.left--
	return *e.left == 0
}

// newText returns text number i of r as an answer.
func newText(ctx context.Context, m *openModel, r infer.EmbedRequest, i int, input infer.EmbedInput) (*answer, error) {
	tokens, ending := slices.Clone(input.Tokens), 0
	if len(tokens) == 0 {
		var err error
		if tokens, err = m.tokenizer.Encode(ctx, input.Text, tokenizer.Options{AddSpecial: true, ParseSpecial: true}); err != nil {
			return nil, err
		}
		ending = m.tokenizer.Suffixes()
	}
	if len(tokens) == 0 {
		return nil, infer.Invalid("input", "input: text %d has no tokens", i+1)
	}
	if err := inVocabulary("input", tokens, m.config.Vocab); err != nil {
		return nil, err
	}
	a := &answer{
		sequence:  newSequence(m.key(), tokens, false),
		ctx:       ctx,
		reader:    reader{model: m, format: m.format, text: newTextBuffer(nil, nil)},
		mail:      newMailbox(),
		embedding: &embedding{pooling: m.config.Pooling, number: i + 1, truncate: r.Truncate, ending: ending},
	}
	a.client, a.sibling, a.unshared, a.whole = r.Client, i, true, m.config.IsBidirectional()
	return a, nil
}

// fitText truncates a text that has more than n tokens, or returns an error if that is not wanted.
func (a *answer) fitText(n int) error {
	e := a.embedding
	if a.prompt <= n {
		return nil
	}
	if !e.truncate || e.ending >= n {
		err := infer.Errorf(infer.CodeContext, "maximum context length is %d tokens; text %d has %d: shorten it, split it, or have it truncated", n, e.number, a.prompt)
		err.Param, err.PromptTokens, err.ContextLength, err.ContextTrain = "input", a.prompt, n, a.model.config.ContextLength
		if err.ContextTrain > n {
			err.Message += "; a larger --ctx takes longer texts"
		}
		return err
	}
	a.tokens = slices.Delete(a.tokens, n-e.ending, a.prompt-e.ending)
	a.prompt = n
	return nil
}

// pool adds the vectors of a step, rows of dim elements, to those of the text.
func (e *embedding) pool(vectors []float32, dim int) {
	if e.sum == nil {
		e.sum = make([]float64, dim)
	}
	for i, x := range vectors {
		e.sum[i%dim] += float64(x)
	}
	e.pooled += len(vectors) / dim
}

// finish sets vector. It fails if that has no finite length.
func (e *embedding) finish() error {
	e.vector = make(infer.Vector, len(e.sum))
	length := 0.0
	for i, x := range e.sum {
		e.vector[i] = float32(x / float64(e.pooled))
		length += float64(e.vector[i]) * float64(e.vector[i])
	}
	if math.IsNaN(length) || math.IsInf(length, 0) {
		return infer.Errorf(infer.CodeNotFinite, "the embedding of text %d is not finite; the model file may be damaged, or its numbers overflow on this device", e.number)
	}
	return nil
}

// deliverVectors gives a text its results of the step, and ends it when it is complete. It returns the
// errors of the device.
func (l *loop) deliverVectors(a *answer, results []model.Result) error {
	if len(results) > 0 {
		dim := a.model.config.VectorDim()
		l.vectors = slices.Grow(l.vectors[:0], len(results)*dim)[:len(results)*dim]
		if err := l.loaded.forward.Vectors(l.vectors, results[0].Row); err != nil {
			return err
		}
		if results[0].Pos == 0 { // the beginning, or that again after its memory was lost
			a.embedding.sum, a.embedding.pooled = nil, 0
		}
		a.embedding.pool(l.vectors, dim)
	}
	if a.missing() > 0 {
		return nil
	}
	l.end(a, a.embedding.finish(), false)
	return nil
}

// Defaults for models that compute embeddings.
const (
	wholeContext   = 2048 // longest text that is computed in one step
	chunkedContext = 8192 // longest text that is computed in chunks
)

// contextOf returns the context to plan for m; 0: as for every model.
func (l *loop) contextOf(m *openModel) int {
	switch c := &m.config; {
	case l.options.ContextLength > 0 || !c.Embeds():
		return l.options.ContextLength
	case c.IsBidirectional():
		return min(c.ContextLength, wholeContext)
	default:
		return min(c.ContextLength, chunkedContext)
	}
}

// limitsOf returns the limits of steps of m.
func (l *loop) limitsOf(m *openModel) limits {
	if !m.config.Embeds() {
		return limits(placement.StepLimitsOf(l.options.Parallel, l.options.ChunkRows))
	}
	whole := 0
	if m.config.IsBidirectional() {
		whole = min(l.contextOf(m), m.config.ContextLength)
	}
	return limits(placement.EmbedLimitsOf(whole, l.options.ChunkRows))
}

// answersOf returns how many answers of common length the KV cache of m should have room for.
func (l *loop) answersOf(m *openModel) int {
	if !m.config.Embeds() {
		return l.options.Parallel
	}
	return placement.EmbedAnswers(min(l.contextOf(m), m.config.ContextLength), placement.StepLimits(l.limitsOf(m)))
}

// cacheOf returns the format of m's KV cache, and its name. Encoders have few positions in it at a
// time, and lose nothing to rounding.
func (l *loop) cacheOf(m *openModel) (gguf.Type, string) {
	if m.config.Embeds() && m.config.IsBidirectional() {
		return gguf.F32, strings.ToLower(gguf.F32.String())
	}
	return l.cache, l.options.CacheType
}

// errEmbeds refuses to generate with a model that computes embeddings.
func errEmbeds(m *openModel) error {
	return infer.Errorf(infer.CodeNotSupported, "the model %q computes embeddings and cannot write text; choose another model to chat, or use /v1/embeddings", m.info.Name)
}
