package models

import (
	"context"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/placement"
)

// listing is an engine with these models.
type listing struct {
	models []infer.ModelInfo
	loaded string
}

func (l listing) Models(context.Context) ([]infer.ModelInfo, error) { return l.models, nil }
func (l listing) Status() infer.Status                              { return infer.Status{Model: infer.ModelInfo{Name: l.loaded}} }

func TestChatsBeginWithTheModelOfTheFlagElseWithTheBestThatCanChat(t *testing.T) {
	demo := infer.ModelInfo{Name: "guide", Parameters: 1e6, Demo: true}
	small := infer.ModelInfo{Name: "small", Parameters: 1e9, Fit: &placement.Fit{Context: 4096}}
	large := infer.ModelInfo{Name: "large", Parameters: 8e9, Fit: &placement.Fit{Context: 4096}}
	twin := infer.ModelInfo{Name: "twin", Parameters: 8e9, Fit: &placement.Fit{Context: 4096}}
	huge := infer.ModelInfo{Name: "huge", Parameters: 400e9, Fit: &placement.Fit{}}
	slow := infer.ModelInfo{Name: "slow", Parameters: 30e9, Fit: &placement.Fit{Context: 4096, InFile: true}}
	base := infer.ModelInfo{Name: "base", Parameters: 9e9, Continues: true}
	embeds := infer.ModelInfo{Name: "minilm", Parameters: 500e9, Embedding: 384}
	broken := infer.ModelInfo{Name: "broken", Parameters: 500e9, Error: "truncated"}
	remote := infer.ModelInfo{Name: "remote", Upstream: &infer.Upstream{}}
	gone := infer.ModelInfo{Name: "gone", Upstream: &infer.Upstream{Problem: "refused"}}
	for name, c := range map[string]struct {
		models []infer.ModelInfo
		flag   string
		loaded string
		want   string
	}{
		"the model of the flag is before a larger one":                          {[]infer.ModelInfo{demo, small, large}, "small", "large", "small"},
		"the demo is used if the flag names it":                                 {[]infer.ModelInfo{demo, small}, "guide", "small", "guide"},
		"a model for embeddings that a program loaded is not used":              {[]infer.ModelInfo{embeds, small}, "", "minilm", "small"},
		"a model for embeddings is not used though the flag names it":           {[]infer.ModelInfo{embeds, small}, "minilm", "minilm", "small"},
		"a smaller model that a program loaded is not used":                     {[]infer.ModelInfo{demo, small, large}, "", "small", "large"},
		"a file that cannot be used or was deleted is not used":                 {[]infer.ModelInfo{broken, small}, "deleted", "", "small"},
		"a model that does not fit is behind one that does":                     {[]infer.ModelInfo{huge, small}, "", "huge", "small"},
		"a model whose weights stay in the file is behind a smaller one":        {[]infer.ModelInfo{slow, large}, "", "", "large"},
		"a model without a template is behind one with a template":              {[]infer.ModelInfo{base, small}, "", "base", "small"},
		"the demo is behind all others":                                         {[]infer.ModelInfo{demo, base}, "", "guide", "base"},
		"a model of another engine is before the demo":                          {[]infer.ModelInfo{demo, remote}, "", "guide", "remote"},
		"a model of an engine that cannot be reached is behind the demo":        {[]infer.ModelInfo{demo, gone}, "", "", "guide"},
		"the loaded one of two that are as good is used":                        {[]infer.ModelInfo{large, twin}, "", "twin", "twin"},
		"nothing is used if nothing can chat, so the page says what is missing": {[]infer.ModelInfo{embeds, broken}, "", "minilm", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{Engine: listing{c.models, c.loaded}, First: func() string { return c.flag }})
			defer s.Close()
			if got := s.First(t.Context(), ""); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheChatsOfAPersonBeginWithTheirModelWhileItCanChat(t *testing.T) {
	flag, far, embeds := infer.ModelInfo{Name: "flag"}, infer.ModelInfo{Name: "far", Upstream: &infer.Upstream{Problem: "refused"}}, infer.ModelInfo{Name: "minilm", Embedding: 384}
	s := New(Options{Engine: listing{[]infer.ModelInfo{flag, far, embeds}, ""}, First: func() string { return "flag" }})
	defer s.Close()
	for chosen, want := range map[string]string{"far": "far", "minilm": "flag", "deleted": "flag", "": "flag"} {
		if got := s.First(t.Context(), chosen); got != want {
			t.Errorf("with %q chosen, chats begin with %q, want %q", chosen, got, want)
		}
	}
}
