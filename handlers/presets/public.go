package presets

import (
	"context"
	"iter"

	"m40-llm/infer"
	"m40-llm/store"
)

// systemPrompts finds system prompts in presets: *store.Store.
type systemPrompts interface {
	HasSystemPrompt(ctx context.Context, owner, system string) (bool, error)
}

// WithPublicPrompts returns a function like generate that lets all people share the KV cache of the system prompts in
// presets of the server's owner. Where the presets cannot be read, such a prompt is shared as any other text.
func WithPublicPrompts(presets systemPrompts, generate func(context.Context, infer.Request) iter.Seq2[infer.Event, error]) func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
	return func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		if len(r.Messages) > 0 && r.Messages[0].IsSystem() {
			found, err := presets.HasSystemPrompt(ctx, store.OwnerID, r.Messages[0].Content)
			r.PublicSystem = err == nil && found && r.Messages[0].Content != ""
		}
		return generate(ctx, r)
	}
}
