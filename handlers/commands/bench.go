package commands

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"m40-llm/handlers/cli"
	"m40-llm/infer/bench"
	"m40-llm/infer/cpu"
	"m40-llm/infer/gguf"
	"m40-llm/infer/hub"
)

// benchmark is the command bench.
func benchmark(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("bench", "", `Measures how fast a model runs on this machine, or would: --shape draws random weights in the shape
of a model that is not here.`)
	flags := addDeviceFlags(f)
	name := f.String("model", "", "NAME|PATH", "model to measure (default "+guideName+")")
	shape := f.String("shape", "", strings.Join(bench.Shapes(), "|"), "measure random weights in this shape instead")
	quant := f.String("quant", "q4_0", strings.Join(bench.Quants(), "|"), "format of the random weights")
	lengths := f.String("p", "512", "N,…", "tokens of the prompt; several lengths are measured in turn")
	answer := f.Int("n", 128, "tokens of the answer")
	repeat := f.Int("r", 5, "rounds, of which the median counts")
	parallel := f.Int("parallel", 1, "measure up to N answers at once too")
	asJSON := f.Bool("json", "print a JSON object instead of a table")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	kind, err := flags.kind(*parallel)
	prompts, invalid := parseLengths(*lengths)
	switch {
	case err != nil:
		return err
	case invalid != nil:
		return invalid
	case min(*answer, *repeat, *parallel) < 1:
		return cli.Usagef("-n, -r and --parallel are at least 1")
	case *shape != "" && *name != "" && *name != t.Env(cli.EnvName("model")): // which is for other commands
		return cli.Usagef("--model and --shape exclude each other")
	}
	show, end := cli.BenchProgress(t)
	defer end()
	var file *gguf.File
	if *shape != "" {
		show("drawing weights", 0, 0)
		*name = fmt.Sprintf("random %s %s", *shape, *quant)
		file, err = bench.Synthetic(*shape, *quant, 1, cpu.FreeMemory())
	} else {
		var catalog *hub.Hub
		if catalog, err = flags.catalog(t, kind.types); err == nil {
			*name = cmp.Or(*name, guideName)
			file, err = openFile(catalog, *name)
		}
	}
	if err != nil {
		return err
	}
	defer file.Close()
	cache := gguf.F16
	if *flags.kv == "f32" {
		cache = gguf.F32
	}
	result, err := measure(ctx, kind, *flags.threads, file, *name, bench.Options{
		Prompts: prompts, Answer: *answer, Repeat: *repeat, Parallel: *parallel, Cache: cache, Progress: show,
	})
	if err != nil {
		return err
	}
	end()
	return cli.Bench(t.Results(), result, *asJSON)
}

// parseLengths reads a list such as 128,512,4096.
func parseLengths(list string) (lengths []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			return nil, cli.Usagef("-p is %q; it takes numbers of tokens of at least 1, such as 512 or 128,512,4096", list)
		}
		lengths = append(lengths, n)
	}
	return lengths, nil
}

// measure runs the benchmark with the model in file on a device of its own.
func measure(ctx context.Context, kind deviceKind, threads int, file *gguf.File, name string, o bench.Options) (result bench.Result, err error) {
	dev, err := kind.open(file, threads, slog.New(slog.DiscardHandler))
	if err != nil {
		return bench.Result{}, err
	}
	defer dev.Close()
	if err := fits(file, dev); err != nil {
		return bench.Result{}, err
	}
	err = file.Guard(func() (err error) {
		result, err = bench.Run(ctx, file, name, dev, o)
		return err
	})
	return result, err
}
