package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// embeds answers requests for embeddings: text number n, counted over all requests, has the vector [n, 1].
func embeds() func(http.ResponseWriter, *http.Request, map[string]any) {
	n := 0
	return func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		var data []any
		inputs := body["input"].([]any)
		for i := range inputs {
			var vector any = []float32{float32(n), 1}
			if n%2 == 1 {
				vector = infer.Vector{float32(n), 1}.Base64()
			}
			data = append([]any{map[string]any{"index": i, "embedding": vector}}, data...) // the last text first
			n++
		}
		json.NewEncoder(w).Encode(map[string]any{"data": data, "usage": map[string]int{"prompt_tokens": 3 * len(inputs)}})
	}
}

func texts(n int) (list []infer.EmbedInput) {
	for i := range n {
		list = append(list, infer.EmbedInput{Text: fmt.Sprint("text ", i)})
	}
	return list
}

func TestEmbeddingsOfAnotherEngineComeInOrderAndInSeveralRequests(t *testing.T) {
	s := newStandIn(t, embeds())
	r := routerTo(t, s)
	const n = 2*maxTexts + 3
	got, err := r.Embed(t.Context(), infer.EmbedRequest{Model: "m", Client: "me", Inputs: texts(n)})
	if err != nil || len(got.Vectors) != n || got.Model != "m" || s.count() != 3 {
		t.Fatalf("got %d vectors of %s after %d requests: %v", len(got.Vectors), got.Model, s.count(), err)
	}
	sum := 0
	for i, v := range got.Vectors {
		if !reflect.DeepEqual(v, infer.Vector{float32(i), 1}) {
			t.Errorf("text %d has %v", i, v)
		}
		sum += got.Tokens[i]
	}
	if want := map[string]any{"model": "m", "input": []any{"text 64", "text 65", "text 66"}}; sum != 3*n || !reflect.DeepEqual(s.last(), want) {
		t.Errorf("%d tokens were counted, and %v was asked last", sum, s.last())
	}
	if _, err := r.Embed(t.Context(), infer.EmbedRequest{Model: "m", Inputs: []infer.EmbedInput{{Tokens: []int32{1, 2}}, {Tokens: []int32{3}}}}); err != nil || !reflect.DeepEqual(s.last()["input"], []any{[]any{1.0, 2.0}, []any{3.0}}) {
		t.Errorf("tokens were asked for as %v: %v", s.last(), err)
	}
	before := s.count()
	if got, err := r.Embed(t.Context(), infer.EmbedRequest{Model: "m"}); err != nil || len(got.Vectors) != 0 {
		t.Errorf("no text has %+v, %v", got, err)
	}
	mixed := []infer.EmbedInput{{Text: "a"}, {Tokens: []int32{3}}}
	if _, err := r.Embed(t.Context(), infer.EmbedRequest{Model: "m", Inputs: mixed}); err == nil || !strings.Contains(err.Error(), "texts and tokens") {
		t.Errorf("texts and tokens together: %v", err)
	}
	if got, err := r.Embed(t.Context(), infer.EmbedRequest{Model: "guide", Inputs: mixed}); err != nil || got.Model != "guide" {
		t.Errorf("a model of this machine: %+v, %v", got, err)
	}
	if s.count() != before {
		t.Error("a request that cannot be answered was sent")
	}
}

func TestEmbeddingsThatAreNoneAreFailures(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		code       fault.Code
		says       string
		tries      int
	}{
		{"one too few", `{"data":[{"index":0,"embedding":[1]}]}`, 200, fault.CodeUpstream, "number", 4},
		{"one twice", `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`, 200, fault.CodeUpstream, "was not asked for", 4},
		{"one too many", `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1]},{"index":2,"embedding":[1]}]}`, 200, fault.CodeUpstream, "was not asked for", 4},
		{"of several dimensions", `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}`, 200, fault.CodeUpstream, "dimensions", 4},
		{"of none", `{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}`, 200, fault.CodeUpstream, "dimensions", 4},
		{"not finite", `{"data":[{"index":0,"embedding":"AADAfw=="},{"index":1,"embedding":"AADAfw=="}]}`, 200, fault.CodeUpstream, "not finite", 4},
		{"too large", `{"data":[{"index":0,"embedding":[1e99]},{"index":1,"embedding":[1]}]}`, 200, fault.CodeUpstream, "did not send the JSON", 4},
		{"half a number", `{"data":[{"index":0,"embedding":"AAAA"},{"index":1,"embedding":"AAAA"}]}`, 200, fault.CodeUpstream, "did not send the JSON", 4},
		{"a page", `<html>`, 200, fault.CodeUpstream, "did not send the JSON", 4},
		{"of a model that has none", `{"error":{"message":"chat only"}}`, 501, fault.CodeNotSupported, "chat only", 1},
		{"of a server without the route", `{"detail":"Not Found"}`, 404, fault.CodeNotSupported, "does not have this route: “Not Found”", 1},
		{"of a text that is too long", `{"error":{"message":"maximum context length is 512"}}`, 400, fault.CodeContext, "512", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			_, err := routerTo(t, s).Embed(t.Context(), infer.EmbedRequest{Model: "m", Inputs: texts(2)})
			known, ok := errors.AsType[*fault.Error](err)
			if !ok || known.Code != c.code || !strings.Contains(known.Message, c.says) || s.count() != c.tries {
				t.Errorf("got %v after %d requests", err, s.count())
			}
		})
	}
}
