package infer

import (
	"math"

	"m40-llm/infer/fault"
)

// Limits of a RankRequest.
const (
	MaxRankDocuments = 2048
	MaxRankTokens    = 4 << 20 // of all pairs together: each has the query's
)

// RankRequest asks how well documents fit a query. It is a plain value as Request is (POST /v1/rank).
type RankRequest struct {
	Model     string   `json:"model,omitempty"`  // empty: the model that is loaded
	Client    string   `json:"client,omitempty"` // as in Request
	Query     string   `json:"query"`
	Documents []string `json:"documents"` // 1 to MaxRankDocuments

	MaxTokens int  `json:"max_tokens,omitempty"` // documents are cut to so many tokens; 0: they are not
	Truncate  bool `json:"truncate,omitempty"`   // cut documents that do not fit into the context with the query, instead of refusing them
}

// Ranking is the scores of the documents of a RankRequest, in their order.
type Ranking struct {
	Model         string    `json:"model"`                   // that computed them
	Scores        []float64 `json:"scores"`                  // as the model computes them: a higher one is of a document that fits better
	Probabilities bool      `json:"probabilities,omitempty"` // Scores are probabilities; else logits of them
	Raw           bool      `json:"raw,omitempty"`           // it is not known whether Scores are probabilities: another engine computed them
	Tokens        []int     `json:"tokens"`                  // of each pair of query and document; of other engines as in Embeddings
	LoadMS        float64   `json:"load_ms"`                 // time in which the model was loaded
}

// Normalized returns the scores as probabilities, which takes the sigmoid of logits. It fails if it is not known what they are.
func (r *Ranking) Normalized() ([]float64, error) {
	switch {
	case r.Raw:
		return nil, fault.Errorf(fault.CodeNotSupported, "scores of the model %q cannot be normalized: its engine does not say whether they are probabilities already; leave normalize out", r.Model)
	case r.Probabilities:
		return r.Scores, nil
	}
	list := make([]float64, len(r.Scores))
	for i, x := range r.Scores {
		list[i] = 1 / (1 + math.Exp(-x))
	}
	return list, nil
}

// Validate returns an error that names the first field that is invalid for every model.
func (r *RankRequest) Validate() error {
	switch {
	case len(r.Documents) > MaxRankDocuments:
		return fault.Invalid("documents", "documents has %d texts: give at most %d, and the others in further requests", len(r.Documents), MaxRankDocuments)
	case len(r.Documents) == 0:
		return fault.Invalid("documents", "documents is empty: give the texts to rank")
	case r.Query == "":
		return fault.Invalid("query", "query is empty: give the text that the documents are ranked for")
	case r.MaxTokens < 0:
		return fault.Invalid("max_tokens", "max_tokens is %d: must be 0 or more", r.MaxTokens)
	}
	return nil
}
