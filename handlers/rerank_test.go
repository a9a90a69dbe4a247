package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/engine"
	"m40-llm/infer/gguf/gguftest"
)

func TestRerank_EachAPIGetsItsShape(t *testing.T) {
	const documents = `"documents":["abcd","abcdef",{"text":"a"}]` // with the scores 0, 2 and -3
	id := regexp.MustCompile(`"id":"rerank-\w+"`)
	wrap := func(version, results string) string {
		return `{"id":"","object":"list","model":"guide","results":[` + results + `],"usage":{"prompt_tokens":17,"total_tokens":17},` +
			`"meta":{"api_version":{"version":"` + version + `"},"billed_units":{"search_units":1},"tokens":{"input_tokens":17}}}`
	}
	all := `{"index":1,"relevance_score":2},{"index":0,"relevance_score":0},{"index":2,"relevance_score":-3}`
	for _, c := range []struct{ name, path, body, want string }{
		{"Jina", "/v1/rerank", `{"model":"m","query":"qq",` + documents + `}`, wrap("1", all)},
		{"llama-server", "/rerank", `{"query":"qq",` + documents + `}`, wrap("1", all)},
		{"llama-server's other name", "/reranking", `{"query":"qq",` + documents + `,"top_n":null}`, wrap("1", all)},
		{"more than there are", "/v1/reranking", `{"query":"qq","top_n":9,` + documents + `}`, wrap("1", all)},
		{"a query as an object", "/v1/rerank", `{"query":{"text":"qq"},` + documents + `}`, wrap("1", all)},
		{"Cohere, the best two with their documents", "/v2/rerank", `{"query":"qq","top_n":2,"return_documents":true,` + documents + `}`,
			wrap("2", `{"index":1,"relevance_score":2,"document":{"text":"abcdef"}},{"index":0,"relevance_score":0,"document":{"text":"abcd"}}`)},
		{"probabilities", "/v1/rerank", `{"query":"qq","normalize":true,"top_n":2,` + documents + `}`,
			wrap("1", `{"index":1,"relevance_score":0.8807970779778823},{"index":0,"relevance_score":0.5}`)},
		{"text-embeddings-inference", "/rerank", `{"query":"q","texts":["abcd","abcdef"]}`, `[{"index":1,"score":2},{"index":0,"score":0}]`},
		{"that with texts and probabilities", "/rerank", `{"query":"q","texts":["abcd"],"raw_scores":false,"return_text":true}`, `[{"index":0,"score":0.5,"text":"abcd"}]`},
		{"equal scores", "/rerank", `{"query":"q","texts":["abcd","efgh","i"]}`, `[{"index":0,"score":0},{"index":1,"score":0},{"index":2,"score":-3}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), c.path, c.body)
			if body := id.ReplaceAllString(strings.TrimSpace(got.Body), `"id":""`); got.Status != http.StatusOK || body != c.want {
				t.Errorf("got %d: %s, want %s", got.Status, body, c.want)
			}
		})
	}
}

func TestRerank_DocumentsAreCutWhereTheAPISaysSo(t *testing.T) {
	for request, want := range map[string]infer.RankRequest{
		`/v1/rerank {}`:                        {},
		`/v1/rerank {"truncate":true}`:         {Truncate: true},
		`/v1/rerank {"max_tokens_per_doc":50}`: {MaxTokens: 50},
		`/v2/rerank {}`:                        {Truncate: true, MaxTokens: 4096},
		`/v2/rerank {"max_tokens_per_doc":50}`: {Truncate: true, MaxTokens: 50},
	} {
		var asked infer.RankRequest
		e := &handlerstest.FakeEngine{OnRank: func(_ context.Context, r infer.RankRequest) (infer.Ranking, error) {
			asked = r
			return infer.Ranking{Scores: []float64{1}, Tokens: []int{1}}, nil
		}}
		path, fields, _ := strings.Cut(request, " ")
		body := strings.Replace(`{"query":"q","documents":["d"],`+fields[1:], ",}", "}", 1)
		got := handlerstest.Post(t, handlerstest.Server(t, e), path, body)
		if got.Status != http.StatusOK || asked.Truncate != want.Truncate || asked.MaxTokens != want.MaxTokens || asked.Client == "" {
			t.Errorf("%s: asked %+v: %s", request, asked, got.Body)
		}
	}
}

func TestRerank_WhatIsInvalidIsRefusedByItsField(t *testing.T) {
	many := strings.Repeat(`"d",`, infer.MaxRankDocuments) + `"d"`
	for body, want := range map[string]string{
		`{"documents":["d"]}`:                                             "query is empty",
		`{"query":"","documents":["d"]}`:                                  "query is empty",
		`{"query":["q"],"documents":["d"]}`:                               "query: ",
		`{"query":"q"}`:                                                   "documents is empty",
		`{"query":"q","documents":[]}`:                                    "documents is empty",
		`{"query":"q","documents":"d"}`:                                   "documents must be an array",
		`{"query":"q","documents":["d",1]}`:                               "documents: 1 is neither",
		`{"query":"q","documents":[null]}`:                                "documents: null is neither",
		`{"query":"q","documents":[{"title":"d"}]}`:                       "is neither a string nor an object with a text",
		`{"query":"q","documents":[` + many + `]}`:                        "at most 2048",
		`{"query":"q","texts":{}}`:                                        "texts must be an array",
		`{"query":"q","documents":["d"],"top_n":0}`:                       "top_n is 0",
		`{"query":"q","documents":["d"],"max_tokens_per_doc":-1}`:         "max_tokens_per_doc is -1",
		`{"query":"q","documents":["d"],"model":"m","normalize":"maybe"}`: "normalize",
	} {
		got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/v1/rerank", body)
		if e := parseError(t, got); got.Status != http.StatusBadRequest || !strings.Contains(e.Message, want) {
			t.Errorf("%.80s: got %d: %.300s, want it to mention %q", body, got.Status, got.Body, want)
		}
	}
}

// openRanker returns the engine of a small model that ranks documents, alongside one that computes embeddings.
func openRanker(t *testing.T) *engine.Engine {
	t.Helper()
	return openModels(t, "ranker", map[string][]byte{
		"ranker":   gguftest.TinyBERT(gguftest.BERT{Dim: 16, FFN: 16, Layers: 1, Context: 32, Ranks: true}),
		"embedder": gguftest.TinyBERT(gguftest.BERT{Dim: 16, FFN: 16, Layers: 1, Context: 32}),
	})
}

func TestRerank_ARankerIsOneWhereverModelsAreListed(t *testing.T) {
	s := handlerstest.Server(t, openRanker(t))
	get := func(path string) string { return handlerstest.Call(t, s, http.MethodGet, path, "").Body }
	if body := get("/v1/models/ranker"); !strings.Contains(body, `"ranks":true`) || strings.Contains(body, `"embedding":`) {
		t.Errorf("/v1/models has %s", body)
	}
	var shown struct{ Capabilities []string }
	if err := json.Unmarshal([]byte(handlerstest.Post(t, s, "/api/show", `{"model":"ranker"}`).Body), &shown); err != nil || !slices.Equal(shown.Capabilities, []string{"rerank"}) {
		t.Errorf("/api/show says that it can do %v: %v", shown.Capabilities, err)
	}
	page := handlerstest.Call(t, s, http.MethodGet, "/models", "", "Accept", handlerstest.BrowserAccept).Body
	if !strings.Contains(page, "ranks documents for programs") {
		t.Error("the page Models does not say that the model ranks")
	}
	if chat := handlerstest.Call(t, s, http.MethodGet, "/", "", "Accept", handlerstest.BrowserAccept).Body; strings.Contains(chat, `value="ranker"`) {
		t.Error("the menu of models offers a ranker for a chat")
	}
}

func TestRerank_ModelsAreRefusedForWhatTheyCannotDo(t *testing.T) {
	s := handlerstest.Server(t, openRanker(t))
	for request, want := range map[string]string{
		`/v1/rerank {"model":"embedder","query":"q","documents":["d"]}`:                              "cannot rank documents",
		`/v1/embeddings {"model":"ranker","input":"a"}`:                                              "ranks documents and computes no embeddings",
		`/v1/chat/completions {"model":"ranker","messages":[{"role":"user","content":"Hi"}]}`:        "ranks documents and cannot write text",
		`/v1/rerank {"model":"ranker","query":"q","documents":["` + strings.Repeat("d ", 40) + `"]}`: "document 1 with the query has 44 tokens",
	} {
		path, body, _ := strings.Cut(request, " ")
		got := handlerstest.Post(t, s, path, body)
		if e := parseError(t, got); got.Status != http.StatusBadRequest || !strings.Contains(e.Message, want) {
			t.Errorf("%.60s: got %d: %s", request, got.Status, got.Body)
		}
	}
	if got := handlerstest.Post(t, s, "/v1/rerank", `{"model":"none","query":"q","documents":["d"]}`); got.Status != http.StatusNotFound {
		t.Errorf("an unknown model: %d %s", got.Status, got.Body)
	}
	long := fmt.Sprintf(`{"model":"ranker","query":"q","documents":[%q]}`, strings.Repeat("d ", 40))
	if got := handlerstest.Post(t, s, "/v2/rerank", long); got.Status != http.StatusOK || !strings.Contains(got.Body, `"input_tokens":32`) {
		t.Errorf("a long document of /v2/rerank: %d %s", got.Status, got.Body)
	}
}
