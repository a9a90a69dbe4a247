package engine

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf/gguftest"
)

func TestRank_PairsAndScoresEqualTheReference(t *testing.T) {
	for _, name := range []string{"bert_cross_encoder", "modernbert", "qwen3_reranker", "xlm_roberta"} {
		t.Run(name, func(t *testing.T) {
			dir := fixtures.Path(t, "rerank", name)
			var golden struct {
				Queries, Documents []string
				Cases              []struct {
					Query, Document int
					IDs             []int32
					Score           float64
				}
				Ranking [][]int
			}
			data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(data, &golden); err != nil {
				t.Fatal(err)
			}
			file, err := os.ReadFile(filepath.Join(dir, "f32.gguf"))
			if err != nil {
				t.Fatal(err)
			}
			b := openReference(t, file, nil)
			tolerance := 1e-4
			m, err := b.models.acquire(t.Context(), "m", "")
			if err != nil {
				t.Fatal(err)
			}
			defer b.models.release(m)
			if m.classifier.GivesProbabilities() {
				tolerance = 1e-5
			}
			for q, query := range golden.Queries {
				got, err := b.Rank(t.Context(), infer.RankRequest{Query: query, Documents: golden.Documents})
				if err != nil {
					t.Fatal(err)
				}
				best := []int{0, 1, 2}
				slices.SortFunc(best, func(i, j int) int { return -compareFloats(got.Scores[i], got.Scores[j]) })
				if !slices.Equal(best, golden.Ranking[q]) {
					t.Errorf("query %d: the order is %v, want %v", q, best, golden.Ranking[q])
				}
				encoder, err := m.pairEncoder(t.Context(), query)
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range golden.Cases {
					if c.Query != q {
						continue
					}
					if ids, err := encoder.Encode(t.Context(), golden.Documents[c.Document]); err != nil || !slices.Equal(ids, c.IDs) {
						t.Errorf("query %d, document %d: got tokens %v (%v), want %v", q, c.Document, ids, err, c.IDs)
					}
					if difference := math.Abs(got.Scores[c.Document] - c.Score); !(difference <= tolerance) || got.Tokens[c.Document] != len(c.IDs) {
						t.Errorf("query %d, document %d: got %g of %d tokens, want %g of %d", q, c.Document, got.Scores[c.Document], got.Tokens[c.Document], c.Score, len(c.IDs))
					}
				}
			}
		})
	}
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// ranker returns a model that ranks documents in a context of 64 tokens, one token for each letter.
func ranker() []byte { return gguftest.TinyBERT(gguftest.BERT{Context: 64, Ranks: true}) }

func (b *bench) rank(query string, documents ...string) (infer.Ranking, error) {
	return b.Rank(b.t.Context(), infer.RankRequest{Model: "m", Query: query, Documents: documents})
}

func TestRank_ADocumentHasTheSameScoreWhateverSharesItsSteps(t *testing.T) {
	b := openReference(t, ranker(), func(o *Options) { o.ChunkRows = 130 })
	var documents []string
	for i := range 12 {
		documents = append(documents, strings.Repeat("doc", 1+i))
	}
	together, err := b.rank("what?", documents...)
	if err != nil || len(together.Scores) != 12 || together.Model != "m" || together.Probabilities {
		t.Fatalf("got %+v, %v", together, err)
	}
	for i, document := range documents {
		if alone, err := b.rank("what?", document); err != nil || alone.Scores[0] != together.Scores[i] || alone.Tokens[0] != together.Tokens[i] {
			t.Errorf("document %d alone has the score %v, among others %v: %v", i, alone.Scores, together.Scores[i], err)
		}
	}
	if notice := b.Status().Notice; notice != "" {
		t.Errorf("the notice of a model that has no conversations is %q", notice)
	}
	if s := b.Status(); s.Running != 0 || s.Queued != 0 {
		t.Errorf("%d pairs run and %d wait", s.Running, s.Queued)
	}
}

func TestRank_WhatCannotBeRankedIsRefused(t *testing.T) {
	b := openReference(t, ranker(), nil)
	b.files["text"] = gguftest.TinyLlama(gguftest.Llama{})
	b.files["embedder"] = gguftest.TinyBERT(gguftest.BERT{})
	b.files["long"] = gguftest.TinyBERT(gguftest.BERT{Context: 8192, Ranks: true, Dim: 16, FFN: 16, Layers: 1})
	long := strings.Repeat("a", 70)
	many := slices.Repeat([]string{"a"}, infer.MaxRankDocuments)
	for name, c := range map[string]struct {
		request     infer.RankRequest
		code        fault.Code
		param, want string
	}{
		"a text model":        {infer.RankRequest{Model: "text", Query: "q", Documents: []string{"a"}}, fault.CodeNotSupported, "", `"text" cannot rank documents`},
		"an embedding model":  {infer.RankRequest{Model: "embedder", Query: "q", Documents: []string{"a"}}, fault.CodeNotSupported, "", `"embedder" cannot rank documents`},
		"an unknown model":    {infer.RankRequest{Model: "none", Query: "q", Documents: []string{"a"}}, fault.CodeNotFound, "", "none"},
		"no query":            {infer.RankRequest{Documents: []string{"a"}}, fault.CodeInvalid, "query", "query is empty"},
		"no documents":        {infer.RankRequest{Query: "q"}, fault.CodeInvalid, "documents", "documents is empty"},
		"too many documents":  {infer.RankRequest{Query: "q", Documents: append(slices.Clone(many), "a")}, fault.CodeInvalid, "documents", "at most 2048"},
		"a negative maximum":  {infer.RankRequest{Query: "q", Documents: []string{"a"}, MaxTokens: -1}, fault.CodeInvalid, "max_tokens", "max_tokens is -1"},
		"a long document":     {infer.RankRequest{Query: "q", Documents: []string{"a", long}}, fault.CodeContext, "documents", "document 2 with the query has 74 tokens"},
		"a long query":        {infer.RankRequest{Query: long, Documents: []string{"a"}, Truncate: true}, fault.CodeContext, "query", "the query alone has 73"},
		"many tokens for all": {infer.RankRequest{Model: "long", Query: strings.Repeat("a ", 8000), Documents: many}, fault.CodeInvalid, "documents", "give fewer documents"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.Rank(t.Context(), c.request)
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Code != c.code || e.Param != c.param && c.param != "" || !strings.Contains(e.Message, c.want) {
				t.Errorf("got %v, want %s of %s with %q", err, c.code, c.param, c.want)
			}
		})
	}
	if got := b.ask(request([]int32{5}, 3)); got.err == nil || !strings.Contains(got.err.Error(), "ranks documents and cannot write text") {
		t.Errorf("a ranker was asked to write and said %v", got.err)
	}
	if _, err := b.embed("a"); err == nil || !strings.Contains(err.Error(), "ranks documents and computes no embeddings") {
		t.Errorf("a ranker was asked for an embedding and said %v", err)
	}
}

func TestRank_DocumentsAreCutWhereTheRequestSaysSo(t *testing.T) {
	b := openReference(t, ranker(), nil)
	ranked := func(r infer.RankRequest) infer.Ranking {
		t.Helper()
		r.Query = "query"
		got, err := b.Rank(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	letters := func(n int) string { return strings.Repeat("a", n) }
	fits := ranked(infer.RankRequest{Documents: []string{letters(56), letters(10)}}) // [CLS] query [SEP] document [SEP]
	cut := ranked(infer.RankRequest{Documents: []string{letters(90), letters(10)}, Truncate: true})
	if !slices.Equal(cut.Scores, fits.Scores) || cut.Tokens[0] != 64 || cut.Tokens[1] != 18 {
		t.Errorf("got %+v, want %+v", cut, fits)
	}
	short := ranked(infer.RankRequest{Documents: []string{letters(90), letters(10), letters(3)}, MaxTokens: 10})
	if short.Scores[0] != fits.Scores[1] || short.Scores[1] != fits.Scores[1] || !slices.Equal(short.Tokens, []int{18, 18, 11}) {
		t.Errorf("got %+v, want the score %v of 10 letters twice", short, fits.Scores[1])
	}
}

func TestRank_TextsAreData(t *testing.T) {
	b := openReference(t, ranker(), nil)
	got, err := b.rank("[SEP]", "[CLS]")
	if err != nil || got.Tokens[0] != 3+5+5 {
		t.Errorf("control tokens in texts: %+v, %v", got, err)
	}
}

func TestRank_ATemplateIsFilledInOnce(t *testing.T) {
	join := func(parts []rankPart, query, document string) string {
		p := templatePair{parts: parts, query: query}
		text := ""
		for _, span := range p.spans(parts, document) {
			text += span.Text
		}
		return text
	}
	for template, want := range map[string]string{
		"<{query}|{document}>":             "<{document}|{query}>",
		"{document} for {query}, {query}!": "{query} for {document}, {document}!",
		"{query}{document}":                "{document}{query}",
	} {
		parts, err := rankPartsOf(template)
		if err != nil || join(parts, "{document}", "{query}") != want {
			t.Errorf("%s: got %q, %v", template, join(parts, "{document}", "{query}"), err)
		}
	}
	for _, template := range []string{"", "{query}", "a {document}", "{Query}{document}"} {
		if _, err := rankPartsOf(template); err == nil {
			t.Errorf("the template %q is accepted", template)
		}
	}
}
