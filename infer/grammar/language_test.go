package grammar

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Each group doubles the number of ways through the pattern; all of them share what follows.
func TestSchemaRules_APatternOfManyLookaheadsTakesNoMoreThanItsBudget(t *testing.T) {
	var pattern strings.Builder
	for i := range 32 {
		fmt.Fprintf(&pattern, "(?:(?=.*a%d)|(?=.*b%d))", i, i)
	}
	schema := fmt.Appendf(nil, `{"type":"string","pattern":%q}`, pattern.String())
	if _, _, err := SchemaRules(t.Context(), "json", schema, true); err == nil {
		t.Error("the schema is accepted, although its automaton has 3 to the power of 32 states")
	}
}

func TestLanguages_ReturnTheErrorOfASpentBudget(t *testing.T) {
	spent := errors.New("spent")
	p, err := parsePattern("a(?!b)*c")
	if err != nil {
		t.Fatal(err)
	}
	for budget := range 200 {
		left := budget
		l := newLanguages(func(n int) error {
			if left -= n; left < 0 {
				return spent
			}
			return nil
		})
		a, _ := l.pattern(p)
		if _, err := l.automaton(a); err != nil && !errors.Is(err, spent) {
			t.Errorf("with a budget of %d: got %v, want %v", budget, err, spent)
		}
		if _, err := l.contains(a, "ac"); budget == 0 && !errors.Is(err, spent) {
			t.Errorf("without a budget: got %v, want %v", err, spent)
		}
	}
}
