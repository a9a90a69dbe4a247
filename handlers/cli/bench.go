package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"m40-llm/infer/bench"
	"m40-llm/infer/units"
)

// Bench prints the result of a benchmark as a table, or as a JSON object.
func Bench(w io.Writer, r bench.Result, asJSON bool) error {
	if asJSON {
		return writeJSON(w, r)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what, format string, args ...any) {
		fmt.Fprintf(table, "%s\t"+format+"\n", append([]any{what}, args...)...)
	}
	row("model", "%s", Line(r.Model))
	row("device", "%s, %s", r.Device, r.Path)
	if r.Notice != "" {
		row("", "%s", r.Notice)
	}
	row("memory", "%.1f GB/s read", r.ReadGBs)
	row("load", "%.2f s, then %.2f s to the first token", r.LoadSeconds, r.PrepareSeconds)
	speeds := r.Lengths
	if speeds == nil {
		speeds = []bench.Speed{r.Speed}
	}
	for _, s := range speeds {
		row("prefill", "%s tok/s, prompt of %d", units.TokenRate(s.PrefillTokS), s.Prompt)
		row("decode", "%s tok/s, spread %.0f %%", units.TokenRate(s.DecodeTokS), 100*s.Spread)
		row("", "%s per token, %.1f GB/s, %.0f %% of the memory bandwidth", units.ByteSize(s.DecodeBytesPerToken), s.DecodeGBs, 100*s.DecodeShare)
	}
	for _, c := range r.Contexts {
		row("context", "%s tok/s behind %d tokens, %.1f GB/s, %.0f %% of the memory bandwidth", units.TokenRate(c.DecodeTokS), c.Context, c.DecodeGBs, 100*c.DecodeShare)
		if c.Context > 0 {
			row("", "%.2f s to the first token after %d more, %.1f %% of a prefill of the context", c.TurnSeconds, bench.TurnTokens, 100*c.TurnSeconds/c.PrefillSeconds)
		}
	}
	for _, p := range r.Parallel {
		row("", "%s tok/s, %d answers together", units.TokenRate(p.DecodeTokS), p.Answers)
	}
	row("logits", "%s", r.LogitsHash)
	return table.Flush()
}

// BenchProgress returns show, which shows on a terminal what the benchmark is doing, and
// end, which removes that line.
func BenchProgress(t *Terminal) (show func(what string, done, total int64), end func()) {
	p := newProgress(t.Err)
	show = func(what string, done, total int64) {
		if total > 0 {
			p.line(fmt.Sprintf("%s: %d %%", what, percent(done, total)))
			return
		}
		p.line(what)
	}
	return show, p.clear
}
