package upstream

import (
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

func TestScoresOfAnotherEngineComeInTheOrderOfTheDocuments(t *testing.T) {
	s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		io.WriteString(w, `{"results":[{"index":1,"relevance_score":2.5,"document":{"text":"b"}},{"index":0,"relevance_score":-1}],"usage":{"total_tokens":9}}`)
	})
	r := routerTo(t, s)
	got, err := r.Rank(t.Context(), infer.RankRequest{Model: "m", Client: "me", Query: "q", Documents: []string{"a", "b"}, Truncate: true})
	if err != nil || got.Model != "m" || !slices.Equal(got.Scores, []float64{-1, 2.5}) || !slices.Equal(got.Tokens, []int{9, 0}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if want := map[string]any{"model": "m", "query": "q", "documents": []any{"a", "b"}, "top_n": 2.0, "return_documents": false}; !reflect.DeepEqual(s.last(), want) {
		t.Errorf("asked %v, want %v", s.last(), want)
	}
	if _, err := got.Normalized(); err == nil || !strings.Contains(err.Error(), "leave normalize out") {
		t.Errorf("scores of unknown kind are normalized: %v", err)
	}
	before := s.count()
	if got, err := r.Rank(t.Context(), infer.RankRequest{Model: "guide", Query: "q", Documents: []string{"a"}}); err != nil || got.Model != "guide" {
		t.Errorf("a model of this machine: %+v, %v", got, err)
	}
	if _, err := r.Rank(t.Context(), infer.RankRequest{Model: "m", Query: "q"}); err == nil || s.count() != before {
		t.Errorf("a request that cannot be answered was sent: %v", err)
	}
}

func TestScoresThatAreNoneAreFailures(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		code       fault.Code
		says       string
		tries      int
	}{
		{"one too few", `{"results":[{"index":0,"relevance_score":1}]}`, 200, fault.CodeUpstream, "no score of a document", 4},
		{"one twice", `{"results":[{"index":0,"relevance_score":1},{"index":0,"relevance_score":1}]}`, 200, fault.CodeUpstream, "was not asked for", 4},
		{"of a document that is not", `{"results":[{"index":0,"relevance_score":1},{"index":2,"relevance_score":1}]}`, 200, fault.CodeUpstream, "was not asked for", 4},
		{"too large", `{"results":[{"index":0,"relevance_score":1e999},{"index":1,"relevance_score":1}]}`, 200, fault.CodeUpstream, "did not send the JSON", 4},
		{"of a server that does not rank", `{"error":{"message":"start it with --reranking"}}`, 501, fault.CodeNotSupported, "--reranking", 1},
		{"of a server without the route", `{"detail":"Not Found"}`, 404, fault.CodeNotSupported, "does not have this route", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			_, err := routerTo(t, s).Rank(t.Context(), infer.RankRequest{Model: "m", Query: "q", Documents: []string{"a", "b"}})
			known, ok := errors.AsType[*fault.Error](err)
			if !ok || known.Code != c.code || !strings.Contains(known.Message, c.says) || s.count() != c.tries {
				t.Errorf("got %v after %d requests", err, s.count())
			}
		})
	}
}
