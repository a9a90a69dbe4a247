package web

import (
	"strings"
	"testing"
)

// Whoever has models comes for these; whoever has none, or looks one up, comes for another one.
func TestModelsPage_ModelsThatAreHereComeFirst(t *testing.T) {
	guide, own := ModelRow{Name: "guide"}, ModelRow{Name: "qwen3-8b"}
	for _, tc := range []struct {
		name string
		page Models
		own  bool
	}{
		{"the built-in model alone", Models{Manages: true, Rows: []ModelRow{guide}}, false},
		{"another model", Models{Manages: true, Rows: []ModelRow{guide, own}}, true},
		{"a model that is looked up", Models{Manages: true, Rows: []ModelRow{guide, own}, Find: Find{Query: "llama3.2:1b"}}, false},
	} {
		var html strings.Builder
		if err := ModelsPage(tc.page).Render(t.Context(), &html); err != nil {
			t.Fatal(err)
		}
		list, find := strings.Index(html.String(), `<table class="models"`), strings.Index(html.String(), `id="find"`)
		if list < 0 || find < 0 || (list < find) != tc.own {
			t.Errorf("%s: the list is at %d, and the search at %d", tc.name, list, find)
		}
	}
}
