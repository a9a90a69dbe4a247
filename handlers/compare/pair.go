package compare

import (
	"context"
	"strings"

	"m40-llm/handlers/access"
	"m40-llm/handlers/choice"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Contestant is what writes one of two answers: a preset, and a model.
type Contestant struct {
	Preset string `json:"preset"` // id
	Model  string `json:"model"`  // empty: the one that is loaded
}

// NewPair asks for two answers to one text, or to a question of a chat, whose contestants are not named until the person has voted.
type NewPair struct {
	Text      string     `json:"text"`
	Chat      string     `json:"chat,omitempty"`     // id, in place of Text
	Question  int64      `json:"question,omitempty"` // id, of the branch that the chat shows; with Chat
	MaxTokens int        `json:"max_tokens"`         // of each answer
	First     Contestant `json:"first"`
	Second    Contestant `json:"second"`
}

// MaxPairTokens is the highest limit of tokens of an answer of a pair.
const MaxPairTokens = 2048

// Pair is a blind comparison: two answers, with the same seed, in random order. It is in memory
// only; the vote is stored. Everybody has one at a time.
type Pair struct {
	group
	Text     string
	Chat     string    // id of the chat whose question it answers; empty: none
	OneByOne bool      // they are of two models, so which one begins tells which is loaded
	names    [2]string // of the contestants, the first and the second
	swapped  bool      // cell 0 is that of the second
	vote     Side      // guarded by mu; empty: the person has not voted
}

// Side is what a person votes for: one of the two answers as they are shown, or neither.
type Side string

const (
	SideA   Side = "a"
	SideB   Side = "b"
	SideTie Side = "tie"
	SideBad Side = "bad" // neither is good
)

// Read returns a reader of the two answers.
func (p *Pair) Read() *CellReader { return p.read() }

// Names returns the names of what wrote answers A and B, and the vote; they are empty before the vote.
func (p *Pair) Names() (a, b string, vote Side) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.vote == "" {
		return "", "", ""
	}
	if p.swapped {
		return p.names[1], p.names[0], p.vote
	}
	return p.names[0], p.names[1], p.vote
}

// StartPair begins to write a pair. It takes the place of the last one of who, and fails with a *owned.Conflict
// while that is being written.
func (s *Service) StartPair(ctx context.Context, who live.Principal, n NewPair) error {
	if err := owned.Authorize(who, access.ActionAsk, access.Object{Kind: access.KindChat, Owner: who.Owner}); err != nil {
		return err
	}
	if err := owned.Authorize(who, access.ActionChange, access.Object{Kind: access.KindSetting, Owner: who.Owner}); err != nil {
		return err // the vote is stored
	}
	if err := n.validate(); err != nil {
		return err
	}
	draw := s.chats.DrawSeed()
	p := &Pair{group: group{owner: who.Owner, chat: n.Chat}, Text: n.Text, Chat: n.Chat, swapped: draw&1 == 1, OneByOne: n.First.Model != n.Second.Model}
	var settings [2]setting.Settings
	var systems [2]string
	contestants := [2]Contestant{n.First, n.Second}
	for i := range contestants {
		contestant := &contestants[i]
		preset, err := s.presets.Get(ctx, who, contestant.Preset)
		if err != nil {
			return err
		}
		if contestant.Model, err = s.contestantModel(*contestant, n); err != nil {
			return err
		}
		p.names[i] = strings.TrimSuffix(preset.Name+" · "+contestant.Model, " · ")
		systems[i], settings[i] = preset.System, preset.Settings
		settings[i].MaxTokens, settings[i].Seed = n.MaxTokens, draw
	}
	if p.names[0] == p.names[1] {
		return fault.Invalid("second", "both answers would be of %s: choose two presets, or two models", p.names[0])
	}
	var ways [2]live.Way // as they are shown
	for place := range 2 {
		i := place
		if p.swapped {
			i = 1 - i
		}
		ways[place] = live.Way{Model: contestants[i].Model, System: systems[i], Settings: settings[i]}
	}
	if err := s.addAnswers(ctx, who, p, n.Question, ways); err != nil {
		return err
	}
	return put(s, &s.pairs, p, "compare two answers")
}

// addAnswers adds the answers of a pair to its text, or to a question of its chat.
func (s *Service) addAnswers(ctx context.Context, who live.Principal, p *Pair, question int64, ways [2]live.Way) error {
	if p.Chat == "" {
		for place, w := range ways {
			attempt, err := s.chats.Attempt(who, p.Text, w.Model, w.System, w.Settings, place)
			if err != nil {
				return err
			}
			p.add(attempt)
		}
		return nil
	}
	c, err := s.chats.Chat(ctx, who, p.Chat)
	if err != nil {
		return err
	}
	text, attempts, err := c.AttemptsBy(who, question, ways[:]...)
	p.Text = text
	p.add(attempts...)
	return err
}

func (n NewPair) validate() error {
	if n.Chat == "" {
		if err := live.CheckQuestion(n.Text); err != nil {
			return err
		}
	}
	if n.MaxTokens < 1 || n.MaxTokens > MaxPairTokens {
		return fault.Invalid("max_tokens", "max_tokens is %d, but it must be from 1 to %d", n.MaxTokens, MaxPairTokens)
	}
	return nil
}

// contestantModel returns the model that writes a contestant's answer; empty: the same one for both, whichever
// is loaded.
func (s *Service) contestantModel(c Contestant, n NewPair) (string, error) {
	if err := choice.Check(c.Model); err != nil {
		return "", err
	}
	if c.Model != "" || n.First.Model == n.Second.Model {
		return c.Model, nil
	}
	model := s.chats.LoadedModel()
	if model == "" {
		return "", fault.Invalid("model", "no model is loaded; choose one by its name")
	}
	return model, nil
}

// Pair returns the pair that who has; nil if there is none.
func (s *Service) Pair(who live.Principal) (*Pair, error) {
	if err := owned.Authorize(who, access.ActionRead, access.Object{Kind: access.KindChat, Owner: who.Owner}); err != nil {
		return nil, err
	}
	p, _ := s.pairs.of(who.Owner)
	return p, nil
}

var errNoPair = fault.Invalid("", "there are no two answers to vote on any more; write them again")

// StopPair ends the answers of the pair of who.
func (s *Service) StopPair(who live.Principal) error {
	p, err := s.Pair(who)
	if err != nil {
		return err
	}
	if p == nil {
		return errNoPair
	}
	return p.stop(-1)
}

// Vote stores which answer of the pair of who is better. It returns the pair, whose names can be read then.
func (s *Service) Vote(ctx context.Context, who live.Principal, side Side) (*Pair, error) {
	p, err := s.Pair(who)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errNoPair
	}
	result, err := p.choose(side)
	if err != nil {
		return nil, err
	}
	if s.votes == nil {
		return p, nil
	}
	err = s.votes.AddVote(ctx, who.Owner, store.Vote{First: p.names[0], Second: p.names[1], Result: result})
	if err != nil {
		p.unchoose()
		return nil, owned.StoreError(err)
	}
	return p, nil
}

// KeepOfPair makes one of the two answers of the pair of who, which they have voted on, a version of the answer to the question
// of its chat, and shows it. It returns the chat and the message.
func (s *Service) KeepOfPair(ctx context.Context, who live.Principal, side Side) (chat string, message int64, err error) {
	p, err := s.Pair(who)
	if err != nil {
		return "", 0, err
	}
	if p == nil {
		return "", 0, errNoPair
	}
	made, err := p.voted(side)
	if err != nil {
		return "", 0, err
	}
	c, err := s.chats.Chat(ctx, who, p.Chat)
	if err != nil {
		return "", 0, err
	}
	message, err = c.Keep(ctx, who, made)
	return p.Chat, message, err
}

// voted returns an answer of a pair of a chat that has been voted on.
func (p *Pair) voted(side Side) (*live.Attempt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.Chat == "":
		return nil, fault.Invalid("side", "these answers belong to no chat, so none can be kept; compare from the menu of a message")
	case p.vote == "":
		return nil, fault.Invalid("side", "vote first: an answer that is kept has a name")
	case side == SideA:
		return p.cells[0].Attempt, nil
	case side == SideB:
		return p.cells[1].Attempt, nil
	}
	return nil, fault.Invalid("side", "side is %q, but it must be a or b", shortened(string(side)))
}

// choose notes a vote, and returns what it says of the contestants.
func (p *Pair) choose(side Side) (store.VoteResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case side != SideA && side != SideB && side != SideTie && side != SideBad:
		return "", fault.Invalid("vote", "vote is %q, but it must be a, b, tie or bad", shortened(string(side)))
	case p.running():
		return "", fault.Invalid("vote", "an answer is still being written: wait until both have ended")
	case p.vote != "":
		return "", fault.Invalid("vote", "you have voted on these answers; write others to vote again")
	}
	for _, c := range p.cells {
		if c.isEmpty() {
			return "", fault.Invalid("vote", "one of the answers has no text: write them again")
		}
	}
	p.vote = side
	switch {
	case side == SideTie:
		return store.VoteTie, nil
	case side == SideBad:
		return store.VoteBad, nil
	case (side == SideA) != p.swapped:
		return store.VoteFirst, nil
	}
	return store.VoteSecond, nil
}

// unchoose takes a vote back that could not be stored.
func (p *Pair) unchoose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.vote = ""
}
