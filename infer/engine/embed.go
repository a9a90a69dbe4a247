package engine

import (
	"context"
	"math"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/device"
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
	if err := r.Validate(); err != nil {
		return result, err
	}
	texts, err := e.computeTexts(ctx, r.Client, r.Model, func(ctx context.Context, m *openModel) (texts []*answer, err error) {
		if m.config.Ranks() {
			return nil, infer.Errorf(infer.CodeNotSupported, "the model %q ranks documents and computes no embeddings; choose an embedding model, or use /v1/rerank", m.info.Name)
		}
		if !m.config.Embeds() {
			return nil, infer.Errorf(infer.CodeNotSupported, "the model %q does not compute embeddings: its file names no pooling; use an embedding model, such as one that m40-llm pull nomic-embed-text gets", m.info.Name)
		}
		result.Model = m.info.Name
		for i, input := range r.Inputs {
			a, err := newText(ctx, m, r, i, input)
			if err != nil {
				return nil, err
			}
			texts = append(texts, a)
		}
		return texts, nil
	})
	if err != nil {
		return infer.Embeddings{}, err
	}
	for _, a := range texts {
		result.Vectors = append(result.Vectors, a.embedding.vector)
		result.Tokens = append(result.Tokens, a.prompt)
		result.LoadMS = max(result.LoadMS, record.Milliseconds(a.loading))
	}
	if r.KeepAliveS != nil {
		return result, e.Keep(ctx, r.KeepAliveS)
	}
	return result, nil
}

// computeTexts computes the vectors of the texts that build returns for the model called name, and returns them when all have ended. If one
// fails, the others are cancelled.
func (e *Engine) computeTexts(ctx context.Context, client, name string, build func(context.Context, *openModel) ([]*answer, error)) (texts []*answer, err error) {
	submitted := e.options.Now()
	if err := e.inbox.enter(client); err != nil {
		return nil, err
	}
	added := false // then the loop gives the place in the queue back
	defer func() {
		if !added {
			e.inbox.leave(client)
		}
	}()
	ctx, cancel := context.WithCancel(ctx) // ends the other texts when one has failed
	defer cancel()
	err = e.use(ctx, name, func(m *openModel) (err error) {
		if texts, err = build(ctx, m); err != nil || len(texts) == 0 {
			return err
		}
		left := len(texts)
		for i, a := range texts {
			a.client, a.submitted, a.sibling, a.embedding.left = client, submitted, i, &left
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
		return nil, err
	}
	for _, a := range texts {
		if err := a.mail.wait(ctx); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// embedding is what an answer has if it is a text to embed.
type embedding struct {
	pooling  model.Pooling
	number   int  // of the text in its request, from 1
	document bool // the text is a query with a document
	truncate bool // if it is too long
	ending   int  // tokens at its end that stay when it is truncated
	frame    int  // tokens that stay when it is truncated, ending included
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
	return answerOfText(ctx, m, tokens, embedding{number: i + 1, truncate: r.Truncate, ending: ending, frame: ending}), nil
}

// answerOfText returns a text as an answer.
func answerOfText(ctx context.Context, m *openModel, tokens []int32, e embedding) *answer {
	e.pooling = m.config.Pooling
	a := &answer{
		sequence:  newSequence(m.key(), tokens, false),
		ctx:       ctx,
		reader:    reader{model: m, format: m.format, text: newTextBuffer(nil, nil)},
		mail:      newMailbox(),
		embedding: &e,
	}
	a.unshared, a.whole = true, m.config.IsBidirectional()
	return a
}

// fitText truncates a text that has more than n tokens, or returns an error if that is not wanted.
func (a *answer) fitText(n int) error {
	e := a.embedding
	if a.prompt <= n {
		return nil
	}
	if !e.truncate || e.frame >= n {
		err := e.tooLong(a.prompt, n)
		err.PromptTokens, err.ContextLength, err.ContextTrain = a.prompt, n, a.model.config.ContextLength
		if err.ContextTrain > n {
			err.Message += "; a larger --ctx takes longer texts"
		}
		return err
	}
	a.tokens = slices.Delete(a.tokens, n-e.ending, a.prompt-e.ending)
	a.prompt = n
	return nil
}

// tooLong returns the error for a text of so many tokens in a context of n.
func (e *embedding) tooLong(tokens, n int) *infer.Error {
	param, format := "input", "text %d has %d tokens: shorten it, split it, or have it truncated"
	switch {
	case e.document && e.frame >= n:
		return queryTooLong(e.frame, n)
	case e.document:
		param, format = "documents", "document %d with the query has %d tokens: shorten it, split it, or have it truncated"
	}
	err := infer.Errorf(infer.CodeContext, "maximum context length is %d tokens; "+format, n, e.number, tokens)
	err.Param = param
	return err
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
		return infer.Errorf(infer.CodeNotFinite, "the vector of text %d is not finite; the model file may be damaged, or its numbers overflow on this device", e.number)
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
		s := limits(placement.StepLimitsOf(l.options.Parallel, l.options.ChunkRows))
		s.Rows = max(s.Rows, m.pictureRows()+l.options.Parallel)
		return s
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

// cacheOf returns the format of m's KV cache. Encoders and rankers have few positions in it at a
// time, and lose nothing to rounding.
func (l *loop) cacheOf(m *openModel) device.CacheType {
	if m.config.Ranks() || m.config.Embeds() && m.config.IsBidirectional() {
		return device.CacheOf(gguf.F32)
	}
	return l.cache
}

// errWritesNothing refuses to generate with a model that computes embeddings or ranks documents.
func errWritesNothing(m *openModel) error {
	if m.config.Ranks() {
		return infer.Errorf(infer.CodeNotSupported, "the model %q ranks documents and cannot write text; choose another model to chat, or use /v1/rerank", m.info.Name)
	}
	return infer.Errorf(infer.CodeNotSupported, "the model %q computes embeddings and cannot write text; choose another model to chat, or use /v1/embeddings", m.info.Name)
}
