package main

import (
	"context"
	"fmt"
)

// gpu prints one row for each format of weights on a GPU: prompts of several lengths, and an answer to the first of them.
func (t *table) gpu(ctx context.Context, types []string) error {
	columns := []string{"weights"}
	for _, n := range t.prompts {
		columns = append(columns, "prompt of "+n, "peer", "ratio")
	}
	row, end := t.start(fmt.Sprintf("%s on a GPU, answers of %d tokens, tok/s", t.shape, t.answer), append(columns, "decode", "peer", "ratio")...)
	defer end()
	for _, quant := range types {
		err := t.model(t.shape, quant, func(path string) error {
			cells := []string{quant}
			var answer []string
			for i, prompt := range t.prompts {
				ours, theirs, err := t.alternateOnGPU(ctx, path, prompt)
				if err != nil {
					return err
				}
				if cells = append(cells, compared(ours, theirs, prefill)...); i == 0 {
					answer = compared(ours, theirs, decode)
				}
			}
			row(append(cells, answer...)...)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", quant, err)
		}
	}
	return nil
}

// alternateOnGPU runs both programs in turn, with all layers on the GPU. Without a peer theirs is nil.
func (t *table) alternateOnGPU(ctx context.Context, path, prompt string) (ours, theirs []measurement, err error) {
	for range t.rounds {
		r, err := t.measureOn(ctx, path, "--device", "cuda", "-p", prompt)
		if err != nil {
			return nil, nil, err
		}
		if ours = append(ours, r); len(t.peer) == 0 {
			continue
		}
		if r, err = t.measurePeerOn(ctx, path, "-ngl", "99", "-fa", "1", "-p", prompt); err != nil {
			return nil, nil, err
		}
		theirs = append(theirs, r)
	}
	return ours, theirs, ctx.Err()
}
