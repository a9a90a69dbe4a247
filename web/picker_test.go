package web

import "testing"

func TestPicker_AModelIsMissingOnlyIfItNeitherIsListedNorAnswers(t *testing.T) {
	for _, c := range []struct {
		name           string
		chosen, loaded string
		problem        string
		want           bool
	}{
		{"a model that is gone", "gone", "listed", "", true},
		{"a model that is listed", "listed", "other", "", false},
		{"a model that is loaded, of whatever folder", "elsewhere", "elsewhere", "", false},
		{"where none is chosen the loaded one answers", "", "elsewhere", "", false},
		{"while the list cannot be read nothing is known", "gone", "listed", "unreadable", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Picker{Rows: []ModelRow{{Name: "listed"}}, Problem: c.problem, Chosen: c.chosen, Loaded: c.loaded}
			if got := p.missing(); got != c.want {
				t.Errorf("missing: %v, want %v", got, c.want)
			}
		})
	}
}
