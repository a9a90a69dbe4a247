package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// maxResultBody is the most bytes of a document's result in a response, without the document.
const maxResultBody = 1 << 10

// Rank returns the scores of documents, by a model of this machine or of another server.
func (r *Router) Rank(ctx context.Context, request infer.RankRequest) (result infer.Ranking, err error) {
	m := r.find(request.Model)
	if m == nil {
		result, err := r.Engine.Rank(ctx, request)
		return result, r.unknown(err)
	}
	if err := request.Validate(); err != nil {
		return infer.Ranking{}, err
	}
	request.Model, request.Client = m.id, ""
	err = r.attempt(ctx, m, 0, func(ctx context.Context, s *server, _ func() bool) (bool, error) {
		result, err = s.rank(ctx, m, request)
		return false, err
	})
	if err != nil {
		return infer.Ranking{}, err
	}
	result.Model = m.name
	return result, nil
}

// rank has the server score documents. An error is a *failure, a *fault.Error or that of ctx.
func (s *server) rank(ctx context.Context, m *model, r infer.RankRequest) (result infer.Ranking, err error) {
	if m.exact {
		if result, err = s.native.Rank(ctx, r); err != nil {
			return result, s.failure(err)
		}
	} else if result, err = s.rerank(ctx, r); err != nil {
		return result, err
	}
	if problem := checkRanking(result, len(r.Documents)); problem != "" {
		return result, s.breach("sent scores that are none: %s", problem)
	}
	return result, nil
}

// checkRanking returns what is wrong with the scores of n documents; empty if nothing is.
func checkRanking(r infer.Ranking, n int) string {
	switch {
	case len(r.Scores) != n || len(r.Tokens) != n:
		return "their number is not that of the documents"
	case !(r.LoadMS >= 0 && r.LoadMS < math.MaxInt32) || slices.ContainsFunc(r.Tokens, func(t int) bool { return t != tokens(t) }):
		return "what they cost is impossible"
	case slices.ContainsFunc(r.Scores, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }):
		return "they are not finite"
	}
	return ""
}

// rerank asks a server that has Jina's route for the scores of documents. It cuts none: servers have no common field for that.
func (s *server) rerank(ctx context.Context, r infer.RankRequest) (result infer.Ranking, err error) {
	body, err := json.Marshal(map[string]any{
		"model": r.Model, "query": r.Query, "documents": r.Documents, "top_n": len(r.Documents), "return_documents": false,
	})
	if err != nil {
		return result, fault.Errorf(fault.CodeInvalid, "the documents cannot be written as JSON: %s", err)
	}
	var answer struct {
		Results listed[struct {
			Index int     `json:"index"`
			Score float64 `json:"relevance_score"`
		}] `json:"results"`
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		} `json:"usage"`
	}
	limit := int64(maxModelBody + len(r.Documents)*maxResultBody + 8*len(body)) // some send the documents back
	if err := s.exchange(ctx, http.MethodPost, "/v1/rerank", bytes.NewReader(body), s.o.Silence, limit, &answer); err != nil {
		return result, err
	}
	result = infer.Ranking{Scores: make([]float64, len(r.Documents)), Tokens: make([]int, len(r.Documents)), Raw: true}
	known := make([]bool, len(r.Documents))
	for _, one := range answer.Results {
		if one.Index < 0 || one.Index >= len(known) || known[one.Index] {
			return result, s.breach("sent the score of a document that it was not asked for")
		}
		known[one.Index], result.Scores[one.Index] = true, one.Score
	}
	if slices.Contains(known, false) {
		return result, s.breach("sent no score of a document")
	}
	result.Tokens[0] = tokens(max(answer.Usage.Prompt, answer.Usage.Total))
	return result, nil
}
