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
	"m40-llm/infer/placement"
)

// benchmark executes the command bench.
func benchmark(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("bench", "[MODEL]", `Measures how fast a model runs on this machine. With --shape it needs no model file: it measures
random weights with the tensor shapes of a known model.`)
	flags := addDeviceFlags(f)
	name := f.String("model", "", "NAME|PATH", "model to measure (default "+guideName+")")
	shape := f.String("shape", "", strings.Join(bench.Shapes(), "|"), "measure random weights with the shapes of this model instead")
	quant := f.String("quant", "q4_0", strings.Join(bench.Quants(), "|"), "format of the random weights")
	lengths := f.String("p", "512", "N,…", "tokens of the prompt; several lengths are measured one after another")
	contexts := f.String("ctx", "", "N,…", "also measure the answer, and a next turn of 32 tokens, after contexts of so many tokens; 0: an empty one")
	answer := f.Int("n", 128, "tokens of the answer")
	repeat := f.Int("r", 5, "repetitions; the median is reported")
	parallel := f.Int("parallel", 1, "also measure up to N answers at once")
	kernels := f.Bool("kernels", "also measure each kernel that a GPU launches for a token of the answer")
	draft := f.Bool("draft", "also measure steps that check drafted tokens: how much longer they take, how fast they are if all tokens are right, and how fast an answer is whose drafts are right with a given probability")
	ahead := f.Bool("ahead", "also measure an answer that is sampled: if each step waits for the sampler, and if the GPU draws tokens itself and computes steps ahead")
	asJSON := f.Bool("json", "print a JSON object instead of a table")
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	named := f.OnLine("model") || len(rest) > 0 // the model of the environment or the configuration is ignored with --shape
	kind, err := flags.kind(*parallel)
	prompts, invalid := parseLengths("-p", *lengths, 1)
	var depths []int
	if *contexts != "" && invalid == nil {
		depths, invalid = parseLengths("--ctx", *contexts, 0)
	}
	switch {
	case err != nil:
		return err
	case invalid != nil:
		return invalid
	case min(*answer, *repeat, *parallel) < 1:
		return cli.Usagef("-n, -r and --parallel must be at least 1")
	case *shape != "" && named:
		return cli.Usagef("a model and --shape exclude each other")
	}
	if len(rest) > 0 {
		if *name, err = modelArgument(f, *name, rest[0]); err != nil {
			return err
		}
	}
	caches, err := placement.ParseCache(*flags.kv)
	if err != nil || len(caches) > 1 {
		return cli.Usagef("--kv %s: bench measures with one format of the KV cache; name it", *flags.kv)
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
	result, err := measure(ctx, kind, flags.host(), file, *name, bench.Options{
		Prompts: prompts, Contexts: depths, Answer: *answer, Repeat: *repeat, Parallel: *parallel, Cache: caches[0], Drafts: *draft, Ahead: *ahead, Kernels: *kernels, Progress: show,
	})
	if err != nil {
		return err
	}
	end()
	return cli.Bench(t.Results(), result, *asJSON)
}

// modelArgument returns the model that an argument names. flag is the value of --model, which must not name
// another one on the command line.
func modelArgument(f *cli.Flags, flag, argument string) (string, error) {
	if f.OnLine("model") && flag != argument {
		return "", cli.Usagef("--model %s and the argument %q name two models", flag, argument)
	}
	return argument, nil
}

// parseLengths parses the list of a flag, such as 128,512,4096, of numbers from least on.
func parseLengths(flag, list string, least int) (lengths []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < least {
			return nil, cli.Usagef("%s %q is not a list of numbers of tokens, such as 512 or 128,512,4096", flag, list)
		}
		lengths = append(lengths, n)
	}
	return lengths, nil
}

// measure opens a device of the given kind and runs the benchmark on it with the model in
// file.
func measure(ctx context.Context, kind deviceKind, host cpu.Options, file *gguf.File, name string, o bench.Options) (result bench.Result, err error) {
	dev, err := kind.open(file, host, slog.New(slog.DiscardHandler))
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
