package commands

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"unicode/utf8"

	"m40-llm/handlers/cli"
	"m40-llm/infer/engine"
	"m40-llm/infer/perplexity"
)

// measurePerplexity is the command perplexity.
func measurePerplexity(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("perplexity", "[FILE]", `Measures how well a model predicts the text in a file, or what is piped in: lower is better. Each window
of --ctx tokens is predicted from its middle on, a text that fits into one window from its second token.`)
	flags := engineFlags{deviceFlags: addDeviceFlags(f), ctx: f.Int("ctx", 512, "tokens of a window; figures compare only at the same number")}
	model := f.String("model", guideName, "NAME|PATH", "model to measure")
	asJSON := f.Bool("json", "print a JSON object instead of a line")
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	if *flags.ctx < 2 {
		return cli.Usagef("--ctx %d must be at least 2", *flags.ctx)
	}
	text, err := readText(t, rest)
	if err != nil {
		return err
	}
	catalog, err := flags.models(t)
	if err != nil {
		return err
	}
	options, err := flags.options(catalog, *model, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	e, err := engine.Open(options)
	if err != nil {
		return err
	}
	defer e.Close()
	show, end := cli.PerplexityProgress(t)
	defer end()
	result, err := perplexity.Measure(ctx, e, options.Model, text, *flags.ctx, show)
	if err != nil {
		return err
	}
	end()
	return cli.Perplexity(t.Results(), result, *asJSON)
}

// readText reads the file that the only argument names, or what is piped in.
func readText(t *cli.Terminal, args []string) (string, error) {
	if len(args) == 0 && cli.IsTerminal(t.In) {
		return "", cli.Usagef("name a file with the text, or pipe a text in")
	}
	var text []byte
	var err error
	if len(args) == 1 {
		text, err = os.ReadFile(args[0])
	} else {
		text, err = io.ReadAll(t.In)
	}
	if err == nil && !utf8.Valid(text) {
		err = fmt.Errorf("the text is not UTF-8; convert it first")
	}
	return string(text), err
}
