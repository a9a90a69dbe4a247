package grammar

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// lookingGroups returns a pattern of n groups. Each doubles the number of ways through the pattern; all of them share what follows.
func lookingGroups(n int) string {
	var pattern strings.Builder
	for i := range n {
		fmt.Fprintf(&pattern, "(?:(?=.*a%d)|(?=.*b%d))", i, i)
	}
	return pattern.String()
}

func TestBoundaries_VisitsWhatManyWaysShareOnce(t *testing.T) {
	p, err := parsePattern(lookingGroups(10))
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	l := newLanguages(func(n int) error { steps += n; return nil })
	a, _ := l.pattern(p)
	most := 0
	for _, node := range l.nodes {
		most += 2 + len(node.set)
	}
	steps = 0
	if l.boundaries(a, map[rune]struct{}{}, map[*language]struct{}{}); steps > most {
		t.Errorf("the boundaries of %d languages take %d steps, want at most %d", len(l.nodes), steps, most)
	}
}

func TestSchemaRules_APatternOfManyLookaheadsTakesNoMoreThanItsBudget(t *testing.T) {
	schema := fmt.Appendf(nil, `{"type":"string","pattern":%q}`, lookingGroups(32))
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
