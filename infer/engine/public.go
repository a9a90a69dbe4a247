package engine

import (
	"context"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/device"
)

// publicTokens returns how many of tokens, the prompt of the messages of r, say nothing of the request: those
// with which a prompt of the same template and a public system prompt, and nothing else of r, begins too.
func (m *openModel) publicTokens(ctx context.Context, r infer.Request, tokens []int32, now time.Time) int {
	if len(tokens) < device.BlockSize { // less is not shared
		return 0
	}
	known := chat.Message{Role: "user", Content: "x"}
	public := infer.Request{Messages: []chat.Message{known}}
	if first := r.Messages[0]; first.IsSystem() {
		if !r.PublicSystem {
			first = chat.Message{Role: first.Role, Content: "x"}
		}
		public.Messages = []chat.Message{first, known}
	}
	others, err := m.conversation(ctx, public, now)
	if err != nil {
		return 0
	}
	return commonPrefix(tokens, others.Tokens)
}
