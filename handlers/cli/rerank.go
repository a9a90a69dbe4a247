package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// RerankLines prints the lines of in that fit best, the best first: the score, the number of the line from 1, and the line, with tabs between
// them. It prints the top best, all if top is 0, and passes up to batch lines to rank at a time. Empty lines are left out. Bytes that are not
// UTF-8 count as in Tokenize.
func RerankLines(in io.Reader, out io.Writer, top, batch int, rank func(documents []string) ([]float64, error)) error {
	type line struct {
		number int
		text   string
		score  float64
	}
	var lines []line
	err := everyLine(in, func(number int, text []byte) error {
		if len(text) > 0 {
			lines = append(lines, line{number: number, text: validText(string(text))})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(lines, batch) {
		var documents []string
		for _, l := range some {
			documents = append(documents, l.text)
		}
		scores, err := rank(documents)
		if err != nil {
			return fmt.Errorf("lines %d to %d: %w", some[0].number, some[len(some)-1].number, err)
		}
		for i := range some {
			some[i].score = scores[i]
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(b.score, a.score) })
	if top > 0 {
		lines = lines[:min(top, len(lines))]
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(out, "%.6f\t%d\t%s\n", l.score, l.number, l.text); err != nil {
			return err
		}
	}
	return nil
}
