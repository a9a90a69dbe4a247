package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/record"
	"m40-llm/infer/tokenizer"
)

// Rank scores documents for a query. Each pair of the query and a document is computed as a text to embed is; the model's classifier makes a
// score of its vector. A failure is an *Error, or the error of ctx.
func (e *Engine) Rank(ctx context.Context, r infer.RankRequest) (result infer.Ranking, err error) {
	if err := r.Validate(); err != nil {
		return result, err
	}
	var classifier *model.Classifier
	texts, err := e.computeTexts(ctx, r.Client, r.Model, func(ctx context.Context, m *openModel) ([]*answer, error) {
		if classifier = m.classifier; classifier == nil {
			return nil, fault.Errorf(fault.CodeNotSupported, "the model %q cannot rank documents: its file has no classifier for a query and a document; use a reranker, such as bge-reranker-v2-m3 or Qwen3-Reranker", m.info.Name)
		}
		result.Model, result.Probabilities = m.info.Name, classifier.GivesProbabilities()
		return m.pairsOf(ctx, r)
	})
	if err != nil {
		return infer.Ranking{}, err
	}
	for i, a := range texts {
		score := classifier.Score(a.kind.(*embedding).vector)
		if math.IsNaN(score) || math.IsInf(score, 0) {
			return infer.Ranking{}, fault.Errorf(fault.CodeNotFinite, "the score of document %d is not finite; the model file may be damaged", i+1)
		}
		result.Scores = append(result.Scores, score)
		result.Tokens = append(result.Tokens, a.prompt)
		result.LoadMS = max(result.LoadMS, record.Milliseconds(a.loading))
	}
	return result, nil
}

// pairsOf returns the pairs of a request as texts.
func (m *openModel) pairsOf(ctx context.Context, r infer.RankRequest) (texts []*answer, err error) {
	encoder, err := m.pairEncoder(ctx, r.Query)
	if err != nil {
		return nil, err
	}
	frame, suffix := encoder.Frame()
	if n := m.config.ContextLength; frame >= n {
		return nil, queryTooLong(frame, n)
	}
	all := 0
	for i, document := range r.Documents {
		tokens, err := encoder.Encode(ctx, document)
		if err != nil {
			return nil, err
		}
		if cut := len(tokens) - frame - r.MaxTokens; r.MaxTokens > 0 && cut > 0 {
			tokens = slices.Delete(tokens, len(tokens)-suffix-cut, len(tokens)-suffix)
		}
		if all += len(tokens); all > infer.MaxRankTokens {
			return nil, fault.Invalid("documents", "the query with the first %d documents has more than %d tokens: give fewer documents, and the others in further requests", i+1, infer.MaxRankTokens)
		}
		if len(tokens) == 0 {
			return nil, fault.Invalid("documents", "documents: the query with number %d has no tokens", i+1)
		}
		if err := inVocabulary("documents", tokens, m.config.Vocab); err != nil {
			return nil, err
		}
		texts = append(texts, answerOfText(ctx, m, tokens, embedding{number: i + 1, document: true, truncate: r.Truncate, ending: suffix, frame: frame}))
	}
	return texts, nil
}

// queryTooLong returns the error for a query that leaves no room for documents: it has so many tokens with what is around both.
func queryTooLong(tokens, n int) *fault.Error {
	err := fault.Errorf(fault.CodeContext, "maximum context length is %d tokens; the query alone has %d, which leaves no room for documents: shorten it", n, tokens)
	err.Param = "query"
	return err
}

// pairEncoder returns the tokens of a query with documents.
type pairEncoder interface {
	// Frame returns how many tokens of a pair are not the document's, and how many of these are after it.
	Frame() (tokens, suffix int)
	Encode(ctx context.Context, document string) ([]int32, error)
}

func (m *openModel) pairEncoder(ctx context.Context, query string) (pairEncoder, error) {
	if m.rankParts == nil {
		return m.tokenizer.PairWith(ctx, query)
	}
	p := &templatePair{tokenizer: m.tokenizer, parts: m.rankParts, query: query}
	framed, err := p.Encode(ctx, "")
	if err != nil {
		return nil, err
	}
	last := 0
	for i, part := range m.rankParts {
		if part.field == "{document}" {
			last = i + 1
		}
	}
	suffix, err := m.tokenizer.EncodeSpans(ctx, p.spans(m.rankParts[last:], ""), false)
	if err != nil {
		return nil, err
	}
	p.frame, p.suffix = len(framed), len(suffix)
	return p, nil
}

// readRanker reads the classifier and the template of a model that ranks documents.
func (m *openModel) readRanker() error {
	err := m.file.Guard(func() (err error) {
		m.classifier, err = model.ReadClassifier(m.file, m.config)
		return err
	})
	if err != nil {
		return err
	}
	const key = "tokenizer.chat_template.rerank"
	source, err := gguf.Optional(m.file.Str, key, "")
	if err != nil || source == "" {
		return err
	}
	m.rankParts, err = rankPartsOf(source)
	if err != nil {
		err = fmt.Errorf("%s: %w", key, err)
	}
	return err
}

// rankPart is a part of a template for a query and a document: text of the template, or a field, {query} or {document}.
type rankPart struct{ text, field string }

// rankPartsOf returns the parts of a template. It fails if a field is missing.
func rankPartsOf(source string) (parts []rankPart, err error) {
	has := map[string]bool{}
	for source != "" {
		at, field := len(source), ""
		for _, name := range []string{"{query}", "{document}"} {
			if i := strings.Index(source, name); i >= 0 && i < at {
				at, field = i, name
			}
		}
		has[field] = true
		parts = append(parts, rankPart{source[:at], field})
		source = source[at+len(field):]
	}
	if !has["{query}"] || !has["{document}"] {
		return nil, fmt.Errorf("the template lacks {query} or {document}")
	}
	return parts, nil
}

// templatePair is pairs of a query with documents, by a template. Control tokens are recognised in the text of the template alone.
type templatePair struct {
	tokenizer     *tokenizer.Tokenizer
	parts         []rankPart
	query         string
	frame, suffix int
}

func (p *templatePair) Frame() (tokens, suffix int) { return p.frame, p.suffix }

func (p *templatePair) Encode(ctx context.Context, document string) ([]int32, error) {
	return p.tokenizer.EncodeSpans(ctx, p.spans(p.parts, document), false)
}

// spans returns parts with their fields filled in.
func (p *templatePair) spans(parts []rankPart, document string) (spans []tokenizer.Span) {
	for _, part := range parts {
		spans = append(spans, tokenizer.Span{Text: part.text, ParseSpecial: true})
		switch part.field {
		case "{query}":
			spans = append(spans, tokenizer.Span{Text: p.query})
		case "{document}":
			spans = append(spans, tokenizer.Span{Text: document})
		}
	}
	return spans
}
