// Package compare has answers to one question written at the same time, to compare them: contact sheets,
// whose answers have other settings, and blind pairs, whose answers are voted on. They are written as
// answers of chats are, and are in no chat: they are in memory only, until one is saved in its chat. It
// knows no HTTP.
package compare

import (
	"context"
	"sync"

	"m40-llm/handlers/live"
	"m40-llm/handlers/presets"
	"m40-llm/store"
)

// Votes is where the votes of people are stored: *store.Store.
type Votes interface {
	AddVote(ctx context.Context, person string, v store.Vote) error
	Votes(ctx context.Context, person string) ([]store.Vote, error)
	DeleteVotes(ctx context.Context, person string) error
}

// Service holds the contact sheets and blind pairs of a server.
type Service struct {
	chats   *live.Service
	presets *presets.Service
	votes   Votes // nil: no vote is stored
	writing sync.WaitGroup
	sheets  groups[*Sheet]
	pairs   groups[*Pair]
}

// New returns a Service for questions of chats, answered with settings of presets; nil votes: no vote is stored. It ends with chats.
func New(chats *live.Service, presets *presets.Service, votes Votes) *Service {
	s := &Service{chats: chats, presets: presets, votes: votes}
	chats.AddHooks(live.Hooks{
		ChatDeleted:   func(chat string) { s.end(func(g *group) bool { return g.chat == chat }) },
		PersonRemoved: func(owner string) { s.end(func(g *group) bool { return g.owner == owner }) },
		Tick:          s.unload,
		Closed: func() {
			s.end(func(*group) bool { return true }) // a barrier too: no group begins afterwards
			s.writing.Wait()
		},
	})
	return s
}
