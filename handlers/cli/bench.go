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
	switch {
	case r.DecodeReason != "":
		row("steps", "%s: %s", r.Decode, r.DecodeReason)
	case r.Decode != "":
		row("steps", "%s", r.Decode)
	}
	row("memory", "%.1f GB/s read", r.ReadGBs)
	row("load", "%.2f s, then %.2f s to the first token", r.LoadSeconds, r.PrepareSeconds)
	if r.PackSeconds > 0.005 {
		row("", "then %.2f s for copies of the weights that are faster to read, which a server makes between steps", r.PackSeconds)
	}
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
		row("context", "%s tok/s after %d tokens, %.1f GB/s, %.0f %% of the memory bandwidth", units.TokenRate(c.DecodeTokS), c.Context, c.DecodeGBs, 100*c.DecodeShare)
		if c.Context > 0 {
			row("", "%.2f s to the first token after %d more, %.1f %% of a prefill of the context", c.TurnSeconds, bench.TurnTokens, 100*c.TurnSeconds/c.PrefillSeconds)
		}
	}
	for _, p := range r.Parallel {
		row("", "%s tok/s, %d answers together", units.TokenRate(p.DecodeTokS), p.Answers)
	}
	for _, d := range r.Drafts {
		row("draft", "%s tok/s if all of %d drafted tokens are accepted, a step takes %.2f times as long", units.TokenRate(d.DecodeTokS), d.Tokens, d.Cost)
		for _, a := range d.Accepting {
			row("", "%.2f times as fast as without drafts if each is right by %.0f %%, %s tok/s", a.Gain, 100*a.Probability, units.TokenRate(a.DecodeTokS))
		}
	}
	if a := r.Ahead; a != nil {
		row("sampled", "%s tok/s, %.0f µs of the CPU per token, if each step waits for the sampler", units.TokenRate(a.WaitTokS), a.WaitCPU)
		row("", "%s tok/s, %.0f µs, with steps ahead; %.2f %% of the tokens were wrong", units.TokenRate(a.TokS), a.CPU, 100*a.Missed)
	}
	row("logits", "%s", r.LogitsHash)
	if err := table.Flush(); err != nil || len(r.Kernels) == 0 {
		return err
	}
	return kernels(w, r.Kernels)
}

// kernels prints the kernels of a step, the sum last.
func kernels(w io.Writer, list []bench.Kernel) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\nlaunches\tblocks\tread\tµs\tGB/s\tof memory\tof step\t kernel\n")
	launches, us := 0, 0.0
	for _, k := range list {
		read, rate, share := "", "", ""
		if k.Bytes > 0 {
			read, rate, share = units.ByteSize(k.Bytes), fmt.Sprintf("%.3g", k.GBs), fmt.Sprintf("%.0f %%", 100*k.Share)
		}
		fmt.Fprintf(table, "%d\t%d\t%s\t%.1f\t%s\t%s\t%.0f %%\t %s\n", k.Launches, k.Grid[0]*k.Grid[1]*k.Grid[2], read, k.Microseconds, rate, share, 100*k.OfStep, k.Kernel)
		launches, us = launches+k.Launches, us+float64(k.Launches)*k.Microseconds
	}
	fmt.Fprintf(table, "%d\t\t\t%.1f\t\t\t\t all of a step\n", launches, us)
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
