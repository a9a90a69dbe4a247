package engine

import (
	"context"
	"math"
	"slices"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
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
			return nil, fault.Errorf(fault.CodeNotSupported, "the model %q ranks documents and computes no embeddings; choose an embedding model, or use /v1/rerank", m.info.Name)
		}
		if !m.config.Embeds() {
			return nil, fault.Errorf(fault.CodeNotSupported, "the model %q does not compute embeddings: its file names no pooling; use an embedding model, such as one that m40-llm pull nomic-embed-text gets", m.info.Name)
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
		result.Vectors = append(result.Vectors, a.kind.(*embedding).vector)
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
			a.client, a.submitted, a.sibling, a.kind.(*embedding).left = client, submitted, i, &left
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

// embedding is the kind of a text to embed, which has no chain and no events.
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

func (e *embedding) close() (isLast bool) {
	*e.left--
	return *e.left == 0
}

func (e *embedding) drafts() bool { return false }

func (e *embedding) needs(a *answer, pos int) bool { return e.pooling.Needs(pos, a.prompt) }

func (e *embedding) start(*answer, *sample.Buffers) error { return nil }

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
		return nil, fault.Invalid("input", "input: text %d has no tokens", i+1)
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
		sequence: newSequence(m.key(), tokens, false),
		ctx:      ctx,
		reader:   reader{model: m, format: m.format, text: newTextBuffer(nil, nil)},
		mail:     newMailbox(),
		kind:     &e,
	}
	a.unshared, a.whole = true, m.config.IsBidirectional()
	return a
}

// fit truncates a text that has more than n tokens, or returns an error if that is not wanted.
func (e *embedding) fit(a *answer, n int) error {
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
func (e *embedding) tooLong(tokens, n int) *fault.Error {
	param, format := "input", "text %d has %d tokens: shorten it, split it, or have it truncated"
	switch {
	case e.document && e.frame >= n:
		return queryTooLong(e.frame, n)
	case e.document:
		param, format = "documents", "document %d with the query has %d tokens: shorten it, split it, or have it truncated"
	}
	err := fault.Errorf(fault.CodeContext, "maximum context length is %d tokens; "+format, n, e.number, tokens)
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
		return fault.Errorf(fault.CodeNotFinite, "the vector of text %d is not finite; the model file may be damaged, or its numbers overflow on this device", e.number)
	}
	return nil
}

// deliver ends a text when it is complete.
func (e *embedding) deliver(l *loop, a *answer, _ scheduled, results []model.Result, _ time.Time, _ settledStep) (accepted int, err error) {
	if len(results) > 0 {
		dim := a.model.config.VectorDim()
		l.vectors = slices.Grow(l.vectors[:0], len(results)*dim)[:len(results)*dim]
		if err := l.loaded.forward.Vectors(l.vectors, results[0].Row); err != nil {
			return 0, err
		}
		if results[0].Pos == 0 { // the beginning, or that again after its memory was lost
			e.sum, e.pooled = nil, 0
		}
		e.pool(l.vectors, dim)
	}
	if a.missing() == 0 {
		l.end(a, e.finish(), false)
	}
	return 0, nil
}

// setupOf returns with what m is planned.
func (l *loop) setupOf(m *openModel) placement.Setup {
	asked := placement.Setup{Context: l.options.ContextLength, Answers: l.options.Parallel, Cache: l.cache}
	s := asked.Of(m.config, l.options.ChunkRows)
	if !m.config.Embeds() {
		s.Steps.Rows = max(s.Steps.Rows, m.pictureRows()+l.options.Parallel)
	}
	return s
}

// cacheOf returns the format of m's KV cache.
func (l *loop) cacheOf(m *openModel) device.CacheType { return l.setupOf(m).Cache }

// errWritesNothing refuses to generate with a model that computes embeddings or ranks documents.
func errWritesNothing(m *openModel) error {
	if m.config.Ranks() {
		return fault.Errorf(fault.CodeNotSupported, "the model %q ranks documents and cannot write text; choose another model to chat, or use /v1/rerank", m.info.Name)
	}
	return fault.Errorf(fault.CodeNotSupported, "the model %q computes embeddings and cannot write text; choose another model to chat, or use /v1/embeddings", m.info.Name)
}
