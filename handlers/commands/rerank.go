package commands

import (
	"context"
	"io"
	"os"

	"m40-llm/handlers/cli"
	"m40-llm/infer"
)

// rerankBatch is how many lines are ranked at a time.
const rerankBatch = 256

// rerank is the command rerank.
func rerank(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("rerank", "MODEL QUERY FILE|-", `Prints the lines of a file, or of the standard input, in the order in which they fit a query: the score by a
model that ranks documents, the number of the line, and the line, with tabs between them.`)
	flags := engineFlags{deviceFlags: addDeviceFlags(f), ctx: f.Int("ctx", 0, "longest query and line in tokens (default the model's own context, at most 2048 for encoders such as BERT and 8192 for others)")}
	top := f.Int("top", 0, "lines to print, the best ones (default all)")
	normalize := f.Bool("normalize", "print scores from 0 to 1")
	truncate := f.Bool("truncate", "cut lines that are too long, instead of failing")
	rest, err := f.Parse(t, args, 3)
	switch {
	case err != nil:
		return err
	case len(rest) < 3:
		return cli.Usagef("give a model that ranks documents, a query, and a file with a document on each line, or - for the standard input")
	case *top < 0:
		return cli.Usagef("--top cannot be negative")
	case rest[2] == "-" && cli.IsTerminal(t.In):
		return cli.Usagef("pipe lines in, or name a file")
	}
	in := io.Reader(t.In)
	if rest[2] != "-" {
		file, err := os.Open(rest[2])
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	catalog, err := flags.models(t)
	if err != nil {
		return err
	}
	e, model, err := flags.open(catalog, rest[0])
	if err != nil {
		return err
	}
	defer e.Close()
	return cli.RerankLines(in, t.Results(), *top, rerankBatch, func(documents []string) ([]float64, error) {
		result, err := e.Rank(ctx, infer.RankRequest{Model: model, Query: rest[1], Documents: documents, Truncate: *truncate})
		if err != nil || !*normalize {
			return result.Scores, err
		}
		return result.Normalized()
	})
}
