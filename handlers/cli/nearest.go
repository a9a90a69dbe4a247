package cli

import (
	"slices"
	"strings"
)

// Nearest returns up to three of names that word may be a misspelling of, the most similar
// first: they begin with word, or it with them, or they differ from it in up to a third of its letters; not in the first letter and
// another one.
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
		case len(word) >= 3 && strings.HasPrefix(lower, word) || len(lower) >= 3 && strings.HasPrefix(word, lower):
			d = 1
		case d > max(1, (len([]rune(word))+1)/3), d > 1 && !strings.HasPrefix(lower, word[:min(1, len(word))]):
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

// distance returns how many letters of a are replaced, inserted, left out or swapped with the next one
// to get b.
func distance(a, b []rune) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
			}
		}
	}
	return rows[len(a)][len(b)]
}

// DidYouMean returns a hint that suggests names, each after prefix; "" if there are none.
func DidYouMean(prefix string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (did you mean " + prefix + strings.Join(names, " or "+prefix) + "?)"
}
