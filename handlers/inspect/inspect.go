// Package inspect looks into answers of chats: the candidates of their tokens, how the samplers chose
// among them, what other settings would have made of them, what a model predicts for a prompt, how many tokens a prompt has, and
// whether an answer can be made again from its receipt. It changes no chat. It knows no HTTP.
package inspect

import (
	"context"

	"m40-llm/handlers/live"
)

// Service inspects the answers of a server's chats.
type Service struct {
	chats  *live.Service
	engine live.Engine
	rows   rowsCache
	scored rowsCache // rows of prompts that were scored, by the answer after them
	looks  looks
	counts counts
}

// New returns a Service for the answers of chats.
func New(chats *live.Service) *Service {
	s := &Service{chats: chats, engine: chats.Engine()}
	chats.AddHooks(live.Hooks{DropCaches: func(chat string) {
		s.rows.forget(chat)
		s.scored.forget(chat)
		s.looks.forget(chat)
		s.counts.forget(chat)
	}})
	return s
}

// storedTokens returns what is stored of the tokens of an answer.
func (s *Service) storedTokens(ctx context.Context, who live.Principal, c *live.Chat, answer int64) (*live.StoredAnswer, error) {
	return c.StoredTokens(ctx, who, answer, &s.rows)
}
