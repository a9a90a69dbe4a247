package cli

import (
	"slices"
	"strings"
)

// Nearest returns up to three of names that word may be a misspelling of, the most similar
// first: they begin with word, or differ from it in up to a third of its letters.
func Nearest(word string, names []string) []string {
	const most = 3
	type near struct {
		name     string
		distance int
	}
	var found []near
	word = strings.ToLower(word)
	for _, name := range names {
		lower := strings.ToLower(name)
		d := distance([]rune(word), []rune(lower))
		switch {
		case len(word) >= 3 && strings.HasPrefix(lower, word):
			d = 1
		case d > max(1, (len([]rune(word))+1)/3):
			continue
		}
		found = append(found, near{name, d})
	}
	slices.SortStableFunc(found, func(a, b near) int { return a.distance - b.distance })
	var nearest []string
	for _, n := range found[:min(most, len(found))] {
		nearest = append(nearest, n.name)
	}
	return nearest
}

// distance returns the Levenshtein distance of a and b.
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j, y := range b {
			d := diagonal
			if x != y {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// didYouMean returns a hint that suggests names, each after prefix; "" if there are none.
func didYouMean(prefix string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (did you mean " + prefix + strings.Join(names, " or "+prefix) + "?)"
}
