package commands

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"m40-llm/handlers/cli"
	"m40-llm/infer/hub"
	"m40-llm/infer/perplexity"
	"m40-llm/infer/readtext"
)

// measurePerplexity is the command perplexity.
func measurePerplexity(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("perplexity", "[MODEL] [FILE]", `Measures how well a model predicts the text in a file, or what is piped in: lower is better. Each window
of --ctx tokens is predicted from its middle on, a text that fits into one window from its second token.`)
	flags := engineFlags{deviceFlags: addDeviceFlags(f), ctx: f.Int("ctx", 512, "tokens of a window; figures compare only at the same number")}
	model := f.String("model", guideName, "NAME|PATH", "model to measure")
	asJSON := f.Bool("json", "print a JSON object instead of a line")
	rest, err := f.Parse(t, args, 2)
	if err != nil {
		return err
	}
	if *flags.ctx < 2 {
		return cli.Usagef("--ctx %d must be at least 2", *flags.ctx)
	}
	catalog, err := flags.models(t)
	if err != nil {
		return err
	}
	if len(rest) == 2 || len(rest) == 1 && isModel(catalog, rest[0]) {
		if *model, err = modelArgument(f, *model, rest[0]); err != nil {
			return err
		}
		rest = rest[1:]
	}
	text, err := readText(t, rest)
	if err != nil {
		return err
	}
	e, name, err := flags.open(catalog, *model)
	if err != nil {
		return err
	}
	defer e.Close()
	show, end := cli.PerplexityProgress(t)
	defer end()
	result, err := perplexity.Measure(ctx, e, name, text, *flags.ctx, show)
	if err != nil {
		return err
	}
	end()
	return cli.Perplexity(t.Results(), result, *asJSON)
}

// isModel reports whether the only argument is a model: a file of models, or the name of one and no file.
func isModel(catalog *hub.Hub, arg string) bool {
	if _, err := os.Stat(arg); err == nil {
		return strings.EqualFold(filepath.Ext(arg), ".gguf")
	}
	_, err := catalog.Name(arg)
	return err == nil
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
	if err != nil {
		return "", err
	}
	if text, err = readtext.Clean(text); err != nil {
		return "", fmt.Errorf("the text cannot be used, %w; convert it first", err)
	}
	return string(text), nil
}
