package commands

import (
	"testing"

	"m40-llm/handlers/visitors"
)

func TestVisitorsOf_ReadsAnswersAndMaybeTokens(t *testing.T) {
	before := visitors.Settings{Answers: 5, Tokens: 700}
	for _, tc := range []struct {
		value string
		want  visitors.Settings // without Open: it is refused
	}{
		{"30", visitors.Settings{Open: true, Answers: 30, Tokens: 700}},
		{"30,20000", visitors.Settings{Open: true, Answers: 30, Tokens: 20_000}},
		{"0", visitors.Settings{}},
		{"-1", visitors.Settings{}},
		{"30,", visitors.Settings{}},
		{"30,0", visitors.Settings{}},
		{"30,20000,1", visitors.Settings{}},
		{"30 answers", visitors.Settings{}},
		{"2000000000", visitors.Settings{}},
	} {
		got, err := visitorsOf(tc.value, before)
		if (err == nil) != tc.want.Open || err == nil && got != tc.want {
			t.Errorf("%q: got %+v, %v", tc.value, got, err)
		}
	}
}
