// Package handlers turns HTTP into calls of the engine and of the chats, and
// their results into responses. It is the only importer of echo; stream.go is the
// only importer of the websocket package.
package handlers

import (
	"context"
	"iter"

	"m40-llm/infer"
)

// Engine is what the routes need of the inference engine.
type Engine interface {
	// Generate streams one answer. A failure is an *infer.Error, or the
	// context's own error after a cancel; nothing follows it.
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
	// Models lists what can be asked for.
	Models(ctx context.Context) ([]infer.ModelInfo, error)
	// Status is a snapshot; it never waits for the engine.
	Status() infer.Status
	// Tokenize and Detokenize use the tokenizer of the model called name, or of
	// the resident one if name is empty.
	Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error)
	Detokenize(ctx context.Context, name string, ids []int32) (string, error)
	// Render shows a request as the model would get it.
	Render(ctx context.Context, r infer.Request) (infer.Rendered, error)
}
