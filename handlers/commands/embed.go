package commands

import (
	"context"
	"slices"

	"m40-llm/handlers/cli"
	"m40-llm/infer"
)

// embedBatch is how many lines are embedded at a time, so that those of a long input are printed soon.
const embedBatch = 256

// embed is the command embed.
func embed(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("embed", "--model NAME [TEXT…]", `Prints the embedding of each text as a JSON array, one per line; without a TEXT, of each line that is
piped in. The vectors have length 1.`)
	flags := engineFlags{deviceFlags: addDeviceFlags(f), ctx: f.Int("ctx", 0, "longest text in tokens (default the model's own context, at most 2048 for encoders such as BERT and 8192 for others)")}
	model := f.String("model", "", "NAME|PATH", "model that computes embeddings")
	dimensions := f.Int("dimensions", 0, "numbers of each vector, for models that are trained to be cut (default all)")
	truncate := f.Bool("truncate", "cut texts that are too long, instead of failing")
	texts, err := f.Parse(t, args, 1<<20)
	switch {
	case err != nil:
		return err
	case *model == "":
		return cli.Usagef("choose a model that computes embeddings with --model, such as one that m40-llm pull nomic-embed-text gets")
	case *dimensions < 0:
		return cli.Usagef("--dimensions cannot be negative")
	case len(texts) == 0 && cli.IsTerminal(t.In):
		return cli.Usagef("give a text, or pipe lines in")
	}
	catalog, err := flags.models(t)
	if err != nil {
		return err
	}
	e, name, err := flags.open(catalog, *model)
	if err != nil {
		return err
	}
	defer e.Close()
	compute := func(texts []string) ([]infer.Vector, error) {
		r := infer.EmbedRequest{Model: name, Truncate: *truncate}
		for _, text := range texts {
			r.Inputs = append(r.Inputs, infer.EmbedInput{Text: text})
		}
		result, err := e.Embed(ctx, r)
		if err != nil {
			return nil, err
		}
		for i, v := range result.Vectors {
			if *dimensions > len(v) {
				return nil, cli.Usagef("--dimensions %d is more than the %d that the model computes", *dimensions, len(v))
			}
			result.Vectors[i] = v.Normalized(*dimensions)
		}
		return result.Vectors, nil
	}
	if len(texts) == 0 {
		return cli.EmbedLines(t.In, t.Results(), embedBatch, compute)
	}
	for some := range slices.Chunk(texts, embedBatch) {
		if err := cli.EmbedTexts(t.Results(), some, compute); err != nil {
			return err
		}
	}
	return nil
}
