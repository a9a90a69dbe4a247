package cli

import (
	"fmt"
	"io"

	"m40-llm/infer/perplexity"
)

// Perplexity prints a measurement as a line, or as a JSON object.
func Perplexity(w io.Writer, r perplexity.Result, asJSON bool) error {
	if asJSON {
		return writeJSON(w, r)
	}
	line := fmt.Sprintf("perplexity %.4f ± %.4f: %d tokens predicted in ", r.Perplexity, r.Error, r.Predicted)
	if r.Windows == 1 {
		line += fmt.Sprintf("one window of %d", r.Context)
	} else {
		line += fmt.Sprintf("%d windows of %d", r.Windows, r.Context)
	}
	if r.Skipped > 0 {
		line += fmt.Sprintf("; the last %d fill no window", r.Skipped)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// PerplexityProgress returns a function that shows on a terminal how far a measurement is, and
// one that takes the line away.
func PerplexityProgress(t *Terminal) (show func(perplexity.Progress), end func()) {
	p := newProgress(t.Err)
	show = func(now perplexity.Progress) {
		line := fmt.Sprintf("reading the text: %d %%", percent(int64(now.Done), int64(now.Total)))
		if now.SoFar.Predicted > 0 {
			line += fmt.Sprintf(", perplexity so far %.2f ± %.2f", now.SoFar.Perplexity, now.SoFar.Error)
		}
		p.line(line)
	}
	return show, p.clear
}
