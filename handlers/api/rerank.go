package api

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/gate"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// RerankRequest is the body of POST /v1/rerank in the forms of Jina, Cohere and llama-server, and of text-embeddings-inference, which has
// texts in place of documents.
type RerankRequest struct {
	Model     string          `json:"model"`
	Query     json.RawMessage `json:"query" schema:"string|$document"`
	Documents json.RawMessage `json:"documents" schema:"[string|$document]"`
	TopN      *int            `json:"top_n"`            // the best of them; default all
	Return    bool            `json:"return_documents"` // results have their documents
	Normalize bool            `json:"normalize"`        // scores from 0 to 1: the sigmoid of those that are logits
	MaxTokens *int            `json:"max_tokens_per_doc"`
	Truncate  bool            `json:"truncate"` // cut documents that do not fit into the context

	Texts      json.RawMessage `json:"texts" schema:"[string]"`
	ReturnText bool            `json:"return_text"`
	Raw        *bool           `json:"raw_scores"` // false: as normalize
}

// rankedText is a query or a document as an object.
type rankedText struct {
	Text string `json:"text" schema:"required"`
}

// Reranked is the response to POST /v1/rerank: the best documents, the best first.
type Reranked struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Model   string         `json:"model"`
	Results []RerankResult `json:"results"`
	Usage   struct {
		PromptTokens int `json:"prompt_tokens"`
		TotalTokens  int `json:"total_tokens"`
	} `json:"usage"`
	Meta RerankMeta `json:"meta"`
}

// RerankResult is a document that has a place.
type RerankResult struct {
	Index    int         `json:"index"` // in the request
	Score    float64     `json:"relevance_score"`
	Document *rankedText `json:"document,omitempty"`
}

// RerankMeta is what Cohere says about a request.
type RerankMeta struct {
	APIVersion struct {
		Version string `json:"version"`
	} `json:"api_version"`
	Billed struct {
		SearchUnits int `json:"search_units"`
	} `json:"billed_units"`
	Tokens struct {
		Input int `json:"input_tokens"`
	} `json:"tokens"`
}

// TEIRank is an element of the response to a request with texts.
type TEIRank struct {
	Index int     `json:"index"`
	Score float64 `json:"score"`
	Text  *string `json:"text,omitempty"`
}

// rank asks the engine for the scores of documents on behalf of the client of c.
func (api *API) rank(c echo.Context, r infer.RankRequest) (infer.Ranking, error) {
	n := int64(len(r.Documents))
	bytes := int64(len(r.Query))
	for _, document := range r.Documents {
		bytes += int64(len(document))
	}
	pairs := min(4*n*int64(len(r.Query)), 4*infer.MaxRankTokens) // the tokens of the query in each pair
	if err := gate.Charge(c, gate.TextCost*bytes+pairs+scoreCost*n); err != nil {
		return infer.Ranking{}, err
	}
	if !api.gate.Trusted() {
		r.Client = api.gate.Client(c)
	}
	return api.engine.Rank(c.Request().Context(), r)
}

// scoreCost is the memory that the score of a document takes until the response is written, in bytes: the vector of a large model.
const scoreCost = 32 << 10

// rankDocuments answers POST /v1/rank, whose body is an infer.RankRequest, for servers.
func (api *API) rankDocuments(c echo.Context) error {
	var r infer.RankRequest
	if err := httpio.ReadStrictJSON(c, &r); err != nil {
		return err
	}
	result, err := api.rank(c, r)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, result)
}

// rerank answers POST /v1/rerank.
func (api *API) rerank(c echo.Context) error {
	var body RerankRequest
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	return api.answerRerank(c, body, "1")
}

// cohereTokens is to how many tokens Cohere's second version cuts documents by default.
const cohereTokens = 4096

// cohereRerank answers POST /v2/rerank, which cuts documents that are too long.
func (api *API) cohereRerank(c echo.Context) error {
	var body RerankRequest
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	if body.Truncate = true; body.MaxTokens == nil {
		most := cohereTokens
		body.MaxTokens = &most
	}
	return api.answerRerank(c, body, "2")
}

func (api *API) answerRerank(c echo.Context, body RerankRequest, version string) error {
	r, err := body.request()
	if err != nil {
		return err
	}
	ranking, err := api.rank(c, r)
	if err != nil {
		return err
	}
	scores := ranking.Scores
	if body.Normalize || body.Raw != nil && !*body.Raw {
		if scores, err = ranking.Normalized(); err != nil {
			return err
		}
	}
	order := best(scores, body.TopN)
	if body.ofTEI() {
		list := []TEIRank{}
		for _, i := range order {
			rank := TEIRank{Index: i, Score: scores[i]}
			if body.ReturnText {
				rank.Text = &r.Documents[i]
			}
			list = append(list, rank)
		}
		return c.JSON(http.StatusOK, list)
	}
	answer := Reranked{ID: "rerank-" + rand.Text(), Object: "list", Model: ranking.Model, Results: []RerankResult{}}
	for _, i := range order {
		result := RerankResult{Index: i, Score: scores[i]}
		if body.Return {
			result.Document = &rankedText{r.Documents[i]}
		}
		answer.Results = append(answer.Results, result)
	}
	for _, n := range ranking.Tokens {
		answer.Usage.PromptTokens += n
	}
	answer.Usage.TotalTokens, answer.Meta.Tokens.Input = answer.Usage.PromptTokens, answer.Usage.PromptTokens
	answer.Meta.APIVersion.Version, answer.Meta.Billed.SearchUnits = version, 1
	return c.JSON(http.StatusOK, answer)
}

// best returns the indexes of the top highest scores, the highest first and equal ones in their order; of all if top is nil.
func best(scores []float64, top *int) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
	if top != nil {
		order = order[:min(*top, len(order))]
	}
	return order
}

// ofTEI reports whether the request has the form of text-embeddings-inference.
func (r *RerankRequest) ofTEI() bool { return isMissing(r.Documents) && !isMissing(r.Texts) }

func isMissing(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// request returns the engine's request.
func (r *RerankRequest) request() (request infer.RankRequest, err error) {
	if r.TopN != nil && *r.TopN < 1 {
		return request, fault.Invalid("top_n", "top_n is %d: must be 1 or more", *r.TopN)
	}
	request = infer.RankRequest{Model: r.Model, Truncate: r.Truncate}
	if r.MaxTokens != nil {
		if request.MaxTokens = *r.MaxTokens; request.MaxTokens < 1 {
			return request, fault.Invalid("max_tokens_per_doc", "max_tokens_per_doc is %d: must be 1 or more", request.MaxTokens)
		}
	}
	if !isMissing(r.Query) {
		if request.Query, err = rankedTextOf(r.Query, "query"); err != nil {
			return request, err
		}
	}
	raw, name := r.Documents, "documents"
	if r.ofTEI() {
		raw, name = r.Texts, "texts"
	}
	if isMissing(raw) {
		return request, nil // the engine says what is missing
	}
	var list []json.RawMessage
	if firstByte(raw) != '[' {
		return request, fault.Invalid(name, "%s must be an array of strings, or of objects with a text", name)
	}
	if err := httpio.DecodeJSON(raw, name, &list); err != nil {
		return request, err
	}
	if len(list) > infer.MaxRankDocuments {
		return request, fault.Invalid(name, "%s has %d texts: give at most %d, and the others in further requests", name, len(list), infer.MaxRankDocuments)
	}
	for _, one := range list {
		document, err := rankedTextOf(one, name)
		if err != nil {
			return request, err
		}
		request.Documents = append(request.Documents, document)
	}
	return request, nil
}

// rankedTextOf returns a text that is a string or an object with a text.
func rankedTextOf(raw json.RawMessage, name string) (string, error) {
	if firstByte(raw) == '"' {
		var text string
		err := httpio.DecodeJSON(raw, name, &text)
		return text, err
	}
	var object struct {
		Text *string `json:"text"`
	}
	if firstByte(raw) == '{' {
		if err := httpio.DecodeJSON(raw, name, &object); err != nil {
			return "", err
		}
	}
	if object.Text == nil {
		return "", fault.Invalid(name, "%s: %s is neither a string nor an object with a text", name, httpio.Shorten(string(raw)))
	}
	return *object.Text, nil
}
