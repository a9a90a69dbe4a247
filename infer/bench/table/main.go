// Command table prints the tables of docs/performance.md: the CPU's speed on random weights for
// formats, sizes, contexts and chats, alongside that of llama-bench if there is one; and that of a GPU for the table in
// docs/gpu.md. It runs both programs in turn, each time in a new process. The machine should be quiet.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"m40-llm/infer/bench"
)

func main() {
	t := table{out: os.Stdout}
	flag.StringVar(&t.ours, "m40", "./m40-llm", "this program's binary")
	peer := flag.String("peer", "", "llama-bench to compare with, as a command: env LD_PRELOAD=… llama-bench")
	types := flag.String("types", "q4_0,q4_k,q5_k,q6_k,q8_0,f16,q2_k,q3_k,q5_0,iq4_xs,iq4_nl,iq3_s,iq2_xxs,mxfp4", "formats of weights")
	tables := flag.String("tables", "formats,small,contexts,disturbed,load", "tables to print; also gpu")
	flag.StringVar(&t.shape, "shape", "llama-1b", "model that the formats are measured with")
	flag.StringVar(&t.large, "large", "llama-3b", "model that loading is measured with")
	flag.IntVar(&t.rounds, "r", 3, "rounds, of which the median is printed")
	flag.IntVar(&t.prompt, "p", 512, "tokens of the prompt")
	prompts := flag.String("prompts", "512,2048,7800", "tokens of the prompts of the table gpu")
	flag.IntVar(&t.answer, "n", 32, "tokens of the answer")
	flag.IntVar(&t.context, "ctx", 4096, "tokens of the long context")
	flag.IntVar(&t.threads, "threads", runtime.NumCPU(), "threads of both programs")
	spin := flag.Int("spin", -1, "")
	flag.Parse()
	if *spin >= 0 {
		occupy(*spin)
	}
	t.peer, t.prompts = strings.Fields(*peer), strings.Split(*prompts, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := t.run(ctx, strings.Split(*tables, ","), strings.Split(*types, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

// table measures and prints.
type table struct {
	ours         string
	peer         []string // command; empty: none
	shape, large string

	rounds, prompt, answer, context, threads int

	prompts []string // tokens, of the table gpu

	out io.Writer
	dir string // of model files
}

// run prints tables. A model's file exists only while it is measured.
func (t *table) run(ctx context.Context, tables, types []string) (err error) {
	print := map[string]func(context.Context) error{
		"formats":   func(ctx context.Context) error { return t.formats(ctx, types) },
		"small":     t.small,
		"contexts":  t.contexts,
		"disturbed": t.disturbed,
		"load":      t.load,
		"gpu":       func(ctx context.Context) error { return t.gpu(ctx, types) },
	}
	for _, name := range tables {
		if print[name] == nil {
			return fmt.Errorf("there is no table %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(print)), ", "))
		}
	}
	if t.dir, err = os.MkdirTemp("", "m40-llm-bench"); err != nil {
		return err
	}
	defer os.RemoveAll(t.dir)
	for _, name := range tables {
		err = errors.Join(err, print[name](ctx))
	}
	return err
}

// start starts a table with a title and the names of its columns.
func (t *table) start(title string, columns ...string) (row func(cells ...string), end func()) {
	fmt.Fprintf(t.out, "\n%s\n\n", title)
	w := tabwriter.NewWriter(t.out, 0, 0, 1, ' ', 0)
	row = func(cells ...string) { fmt.Fprintf(w, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	row(columns...)
	row(slices.Repeat([]string{"---"}, len(columns))...)
	return row, func() { w.Flush() }
}

// measurement is what one run of a program measured. Speeds are in tokens a second, 0 where unknown.
type measurement struct {
	bench.Result
	prefill, decode float64
}

// model writes a random model, calls measure with its path and removes it.
func (t *table) model(shape, quant string, measure func(path string) error) error {
	data, err := bench.SyntheticFile(shape, quant, 1, 0)
	if err != nil {
		return err
	}
	path := filepath.Join(t.dir, shape+"-"+quant+".gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	data = nil
	runtime.GC() // the measured programs need the memory
	return measure(path)
}

// measure runs this program's bench on the CPU with more arguments.
func (t *table) measure(ctx context.Context, path string, more ...string) (measurement, error) {
	return t.measureOn(ctx, path, append([]string{"--device", "cpu", "--threads", strconv.Itoa(t.threads)}, more...)...)
}

// measureOn runs this program's bench with more arguments, of which some name the device.
func (t *table) measureOn(ctx context.Context, path string, more ...string) (measurement, error) {
	args := append([]string{"bench", "--json", "--model", path, "-r", "1", "-n", strconv.Itoa(t.answer)}, more...)
	var r measurement
	err := output(ctx, &r.Result, t.ours, args...)
	r.prefill, r.decode = r.PrefillTokS, r.DecodeTokS
	return r, err
}

// measurePeer runs llama-bench on the CPU, which repacks weights if repack is 1.
func (t *table) measurePeer(ctx context.Context, path string, repack int) (measurement, error) {
	return t.measurePeerOn(ctx, path, "-t", strconv.Itoa(t.threads), "-rtr", strconv.Itoa(repack), "-fa", "0", "-p", strconv.Itoa(t.prompt))
}

// measurePeerOn runs llama-bench with more arguments.
func (t *table) measurePeerOn(ctx context.Context, path string, more ...string) (r measurement, err error) {
	args := slices.Concat(t.peer[1:], []string{"-m", path, "-n", strconv.Itoa(t.answer), "-r", "1", "-o", "json"}, more)
	var tests []struct {
		Prompt int     `json:"n_prompt"`
		Answer int     `json:"n_gen"`
		Speed  float64 `json:"avg_ts"`
	}
	err = output(ctx, &tests, t.peer[0], args...)
	for _, test := range tests {
		if test.Prompt > 0 && test.Answer == 0 {
			r.prefill = test.Speed
		} else if test.Answer > 0 && test.Prompt == 0 {
			r.decode = test.Speed
		}
	}
	return r, err
}

// output runs a program and decodes the JSON that it prints.
func output(ctx context.Context, to any, name string, args ...string) error {
	fmt.Fprintf(os.Stderr, "%s %s\n", filepath.Base(name), strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, name, args...)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(failure.String())
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, text[strings.LastIndexByte(text, '\n')+1:])
	}
	if i := bytes.IndexAny(out, "[{"); i > 0 { // some builds of llama-bench print lines before it
		out = out[i:]
	}
	return json.Unmarshal(out, to)
}

// alternate runs both programs in turn, after choosing whether the peer repacks. Without a peer, or
// if it cannot run the model, theirs is nil.
func (t *table) alternate(ctx context.Context, path string, more ...string) (ours, theirs []measurement, err error) {
	repack := -1
	if len(t.peer) > 0 {
		var plain, packed measurement
		if plain, err = t.measurePeer(ctx, path, 0); err == nil {
			packed, err = t.measurePeer(ctx, path, 1)
			repack = 0
			if packed.decode*packed.prefill > plain.decode*plain.prefill {
				repack = 1
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "not compared:", err)
			repack = -1
		}
	}
	for range t.rounds {
		r, err := t.measure(ctx, path, more...)
		if err != nil {
			return nil, nil, err
		}
		ours = append(ours, r)
		if repack >= 0 {
			if r, err = t.measurePeer(ctx, path, repack); err != nil {
				return nil, nil, err
			}
			theirs = append(theirs, r)
		}
	}
	return ours, theirs, ctx.Err()
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func column(runs []measurement, value func(measurement) float64) (list []float64) {
	for _, r := range runs {
		list = append(list, value(r))
	}
	return list
}

func decode(r measurement) float64  { return r.decode }
func prefill(r measurement) float64 { return r.prefill }

// spread formats the median of values with their minimum and maximum.
func spread(format string, values []float64) string {
	return fmt.Sprintf(format+" ("+format+" to "+format+")", median(values), slices.Min(values), slices.Max(values))
}

// compared returns the cells ours, theirs and ratio of one speed.
func compared(ours, theirs []measurement, value func(measurement) float64) []string {
	cell := func(v float64) string { return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Log10(v))), 64) }
	a := column(ours, value)
	if theirs == nil {
		return []string{cell(median(a)), "-", "-"}
	}
	b := column(theirs, value)
	var ratios []float64
	for i := range a {
		ratios = append(ratios, a[i]/b[i])
	}
	return []string{cell(median(a)), cell(median(b)), spread("%.2f", ratios)}
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// formats prints one row for each format of weights.
func (t *table) formats(ctx context.Context, types []string) error {
	row, end := t.start(fmt.Sprintf("%s, %d threads, prompt of %d and answer of %d tokens, tok/s", t.shape, t.threads, t.prompt, t.answer),
		"weights", "decode", "peer", "ratio", "share of read bandwidth", "peer", "prefill", "peer", "ratio", "8 answers", "of one", "read GB/s", "load s")
	defer end()
	for _, quant := range types {
		err := t.model(t.shape, quant, func(path string) error {
			ours, theirs, err := t.alternate(ctx, path, "-p", strconv.Itoa(t.prompt), "--parallel", "8")
			if err != nil {
				return err
			}
			share, theirShare := column(ours, func(r measurement) float64 { return r.DecodeShare }), "-"
			if theirs != nil {
				var shares []float64
				for i, r := range theirs {
					shares = append(shares, r.decode*float64(ours[i].DecodeBytesPerToken)/1e9/ours[i].ReadGBs)
				}
				theirShare = percent(median(shares))
			}
			eight := func(r measurement) float64 { return r.Parallel[len(r.Parallel)-1].DecodeTokS }
			read := column(ours, func(r measurement) float64 { return r.ReadGBs })
			cells := append([]string{quant}, compared(ours, theirs, decode)...)
			cells = append(append(cells, percent(median(share)), theirShare), compared(ours, theirs, prefill)...)
			row(append(cells, fmt.Sprintf("%.0f", median(column(ours, eight))),
				fmt.Sprintf("%.1f", median(column(ours, func(r measurement) float64 { return eight(r) / r.decode }))),
				fmt.Sprintf("%.1f to %.1f", slices.Min(read), slices.Max(read)),
				fmt.Sprintf("%.2f", median(column(ours, func(r measurement) float64 { return r.LoadSeconds }))))...)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", quant, err)
		}
	}
	return nil
}

// small prints the decode speeds of small models.
func (t *table) small(ctx context.Context) error {
	row, end := t.start("Small models, q8_0, tok/s", "model", "decode", "peer", "ratio", "share of read bandwidth", "read GB/s")
	defer end()
	for _, shape := range []string{"qwen-0.5b", "llama-110m", "llama-15m"} {
		err := t.model(shape, "q8_0", func(path string) error {
			ours, theirs, err := t.alternate(ctx, path, "-p", strconv.Itoa(t.prompt), "-n", "128")
			if err != nil {
				return err
			}
			read := column(ours, func(r measurement) float64 { return r.ReadGBs })
			row(append(append([]string{shape}, compared(ours, theirs, decode)...), percent(median(column(ours, func(r measurement) float64 { return r.DecodeShare }))),
				fmt.Sprintf("%.1f to %.1f", slices.Min(read), slices.Max(read)))...)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", shape, err)
		}
	}
	return nil
}

// contexts prints decode after a long context and the time of a next turn, with Q4_0 and Q8_0.
func (t *table) contexts(ctx context.Context) error {
	row, end := t.start(fmt.Sprintf("Contexts, %s; time of a token relative to that of an empty context, without the bytes of the cache", t.shape),
		"weights", "context", "decode tok/s", "time / bytes", fmt.Sprintf("first token of a next turn of %d, s", bench.TurnTokens), "of a cold prefill")
	defer end()
	for _, quant := range []string{"q4_0", "q8_0"} {
		err := t.model(t.shape, quant, func(path string) error {
			lists := map[int][]measurement{}
			for range t.rounds {
				r, err := t.measure(ctx, path, "-p", "8", "--ctx", fmt.Sprintf("0,2048,%d", t.context))
				if err != nil {
					return err
				}
				for i := range r.Contexts {
					lists[i] = append(lists[i], r)
				}
			}
			for i := range len(lists) {
				get := func(value func(c, empty bench.Context) float64) []float64 {
					return column(lists[i], func(r measurement) float64 { return value(r.Contexts[i], r.Contexts[0]) })
				}
				turn, share := "", ""
				if i > 0 {
					turn = fmt.Sprintf("%.2f", median(get(func(c, _ bench.Context) float64 { return c.TurnSeconds })))
					share = spread("%.1f %%", get(func(c, _ bench.Context) float64 { return 100 * c.TurnSeconds / c.PrefillSeconds }))
				}
				row(quant, strconv.Itoa(lists[i][0].Contexts[i].Context), fmt.Sprintf("%.1f", median(get(func(c, _ bench.Context) float64 { return c.DecodeTokS }))),
					spread("%.2f", get(func(c, empty bench.Context) float64 {
						return empty.DecodeTokS / c.DecodeTokS * float64(empty.DecodeBytesPerToken) / float64(c.DecodeBytesPerToken)
					})), turn, share)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("contexts, %s: %w", quant, err)
		}
	}
	return nil
}

// occupy keeps one core busy until the process is killed.
func occupy(core int) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
	for {
	}
}

// disturbed prints how much of the decode speed remains while another process takes one core.
func (t *table) disturbed(ctx context.Context) error {
	row, end := t.start(fmt.Sprintf("One of %d cores taken by another process, %s q4_0, decode tok/s", runtime.NumCPU(), t.shape), "program", "undisturbed", "disturbed", "kept")
	defer end()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return err
	}
	last := 0
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			last = cpu
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return t.model(t.shape, "q4_0", func(path string) error {
		measure := func(name string, one func() (measurement, error)) error {
			var quiet, busy, kept []float64
			for range t.rounds {
				a, err := one()
				if err != nil {
					return err
				}
				other := exec.CommandContext(ctx, self, "-spin", strconv.Itoa(last))
				if err := other.Start(); err != nil {
					return err
				}
				b, err := one()
				_ = other.Process.Kill()
				_ = other.Wait() // killed
				if err != nil {
					return err
				}
				quiet, busy, kept = append(quiet, a.decode), append(busy, b.decode), append(kept, 100*b.decode/a.decode)
			}
			row(name, fmt.Sprintf("%.1f", median(quiet)), fmt.Sprintf("%.1f", median(busy)), spread("%.0f %%", kept))
			return nil
		}
		if err := measure("m40-llm", func() (measurement, error) { return t.measure(ctx, path, "-p", "32") }); err != nil || len(t.peer) == 0 {
			return err
		}
		return measure("peer", func() (measurement, error) { return t.measurePeer(ctx, path, 1) })
	})
}

// load prints how long a large file takes to its first token, next to one read of it.
func (t *table) load(ctx context.Context) error {
	row, end := t.start("Loading a file in the page cache", "file", "GB", "one read, s", "first token, s", "ratio", "peak memory, GB", "beyond the weights, MB")
	defer end()
	const quant = "q8_0"
	return t.model(t.large, quant, func(path string) error {
		var size int64
		var reads, firsts, ratios, peaks []float64
		for i := range t.rounds + 1 {
			begin := time.Now()
			var err error
			if size, err = readAll(path); err != nil {
				return err
			}
			if i == 0 {
				continue // fills the page cache
			}
			read := time.Since(begin).Seconds()
			r, err := t.measure(ctx, path, "-p", "1", "-n", "1")
			if err != nil {
				return err
			}
			first := r.LoadSeconds + r.PrepareSeconds
			reads, firsts, ratios, peaks = append(reads, read), append(firsts, first), append(ratios, first/read), append(peaks, float64(r.PeakRSSMB)*(1<<20))
		}
		row(t.large+" "+quant, fmt.Sprintf("%.2f", float64(size)/1e9), fmt.Sprintf("%.2f", median(reads)), fmt.Sprintf("%.2f", median(firsts)), spread("%.2f", ratios),
			fmt.Sprintf("%.2f", median(peaks)/1e9), fmt.Sprintf("%.0f", (median(peaks)-float64(size))/1e6))
		return nil
	})
}

// readAll reads a file once and returns its size.
func readAll(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 1<<20))
}
