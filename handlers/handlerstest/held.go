package handlerstest

import (
	"context"
	"iter"
	"sync/atomic"

	"m40-llm/infer"
	"m40-llm/infer/engine"
)

// HeldEngine scores Left prompts with a part of a picture left out. Later ones wait until Open is closed or they are cancelled.
type HeldEngine struct {
	*engine.Engine
	Left    atomic.Int64
	Open    chan struct{}
	Waiting atomic.Int32 // prompts that wait
}

// Generate implements handlers.Engine.
func (e *HeldEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	if r.LeftOut != nil && e.Left.Add(-1) < 0 {
		e.Waiting.Add(1)
		select {
		case <-ctx.Done():
		case <-e.Open:
		}
		e.Waiting.Add(-1)
	}
	return e.Engine.Generate(ctx, r)
}
