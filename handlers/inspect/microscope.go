package inspect

import (
	"context"
	"errors"
	"slices"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

// Source says where the way of a token through the samplers comes from.
type Source string

const (
	SourceStored Source = "stored" // recomputed from the stored candidates
	SourceModel  Source = "model"  // one step of the model
)

// Microscope shows how the samplers made a token of an answer out of the model's distribution.
type Microscope struct {
	Source   Source         // empty: Reason says why there is no Choice
	Reason   string         // with a Choice: why it is another token than the seed draws; then Drawn has no part of the probability
	NeedsAsk bool           // one step of the model shows it
	Loaded   bool           // with NeedsAsk: the model is loaded
	Choice   *sample.Choice // of the token, with Followed and Drawn
	IDs      []int32        // tokens that Choice.Followed is of
	Texts    []string       // their bytes
	Params   sample.Params
}

// shownRaw and shownChanged are how many of the likeliest tokens the microscope shows, before and after
// changes of logits.
const (
	shownRaw     = 12
	shownChanged = 6
)

const (
	rowMissing     = "The candidates of this token are not stored: they are too old, or the answer was written before they were stored."
	rowTooShort    = "The stored candidates do not suffice: these settings need the logits of other tokens too."
	promptDiffers  = "The prompt cannot be made again as it was, since the model, its template or the date is another now."
	mirostatUnseen = "Mirostat depends on all tokens before this one, and the candidates of some of them do not suffice."
	drawnOtherwise = "The seed draws another token here. A person chose this one, or a banned text was taken back, or the model or the device is another now."
)

// Microscope shows how token at of an answer came about, from its stored candidates. With ask, one step
// of the model computes what is not stored.
func (s *Service) Microscope(ctx context.Context, who live.Principal, c *live.Chat, answer int64, at int, ask bool) (*Microscope, error) {
	action := access.ActionRead
	if ask {
		action = access.ActionAsk
	}
	if err := owned.Authorize(who, action, c.Object()); err != nil {
		return nil, err
	}
	a, err := s.storedTokens(ctx, who, c, answer)
	if err != nil {
		return nil, err
	}
	if at < 0 || at >= len(a.IDs) {
		return nil, fault.Invalid("index", "the answer has no token %d: it has %d", at, len(a.IDs))
	}
	m := &Microscope{Params: a.Settings.Params, IDs: followed(a, at)}
	if ask {
		err = s.askMicroscope(ctx, who, c, m, answer, a, at)
	} else {
		err = s.storedMicroscope(ctx, who, c, m, answer, a, at)
	}
	if err != nil {
		return nil, err
	}
	if m.Choice != nil && m.Choice.ID != a.IDs[at] { // what the samplers left of the token is the same
		m.Choice.ID, m.Reason = a.IDs[at], drawnOtherwise
		m.Choice.Drawn = &sample.Drawn{U: m.Choice.Drawn.U, Of: m.Choice.Drawn.Of}
	}
	m.Texts, err = s.engine.Pieces(ctx, a.Model, m.IDs)
	return m, err
}

// followed returns the tokens that the microscope shows for token at.
func followed(a *live.StoredAnswer, at int) []int32 {
	ids := []int32{a.IDs[at]}
	add := func(stored []byte, n int) {
		row, _ := sample.ParseRow(stored)
		for _, id := range row.IDs[:min(n, len(row.IDs))] {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	add(a.Rows[at].Row, shownRaw)
	add(a.Rows[at].Changed, shownChanged)
	return ids
}

// storedMicroscope runs the samplers on the stored row.
func (s *Service) storedMicroscope(ctx context.Context, who live.Principal, c *live.Chat, m *Microscope, answer int64, a *live.StoredAnswer, at int) error {
	status := s.engine.Status()
	m.NeedsAsk = a.Settings.Mirostat == 0
	loaded := status.Of(a.Model)
	m.Loaded = loaded != nil && loaded.State == infer.StateReady
	if a.Rows[at].Row == nil {
		m.Reason = rowMissing
		return nil
	}
	j, err := s.judgeOf(ctx, who, c, answer, a, a.Settings.Params)
	if err != nil {
		return err
	}
	if j == nil {
		m.Reason, m.NeedsAsk = promptDiffers, false
		return nil
	}
	first := at
	if a.Settings.Mirostat != 0 {
		first = 0 // its state follows from all tokens
	}
	for i := first; i <= at; i++ {
		in, err := j.traced(i)
		if i == at {
			in.Follow = m.IDs
		}
		var choice sample.Choice
		if err == nil {
			choice, err = j.chain.Next(in)
		}
		switch {
		case err == nil && i == at:
			m.Source, m.Choice, m.NeedsAsk = SourceStored, &choice, false
		case errors.Is(err, sample.ErrNotStored) && first == at:
			m.Reason = rowTooShort
			return nil
		case err != nil || choice.ID != a.IDs[i]:
			m.Reason = mirostatUnseen
			return nil
		}
	}
	return nil
}

// traced returns what the samplers got for token i.
func (j *judge) traced(i int) (in sample.Input, err error) {
	stored := j.answer.Rows[i]
	in = sample.Input{Pos: j.answer.Prompt + i, History: j.before(i)}
	if in.Row, err = sample.ParseRow(stored.Row); err != nil || stored.Changed == nil {
		return in, err
	}
	changed, err := sample.ParseRow(stored.Changed)
	in.Changed = &changed
	return in, err
}

// askMicroscope computes one step of the model.
func (s *Service) askMicroscope(ctx context.Context, who live.Principal, c *live.Chat, m *Microscope, answer int64, a *live.StoredAnswer, at int) error {
	r, prompt, err := s.prompt(ctx, who, c, answer, a)
	if err != nil {
		return err
	}
	if prompt == nil || a.Settings.Mirostat != 0 {
		m.Reason = promptDiffers
		if prompt != nil {
			m.Reason = mirostatUnseen
		}
		return nil
	}
	r.Answered, r.Params, r.MaxTokens, r.Follow = a.IDs[:at], a.Settings.Params, 1, m.IDs
	ctx = activity.With(ctx, activity.Origin{Person: who.Owner, Chat: c.ID(), Replay: true})
	return s.chats.Contain(func() error {
		for e, err := range s.engine.Generate(ctx, r) {
			if err != nil {
				return err
			}
			if e.Token != nil && !e.Token.Prompt {
				m.Source, m.Choice = SourceModel, &e.Token.Choice
			}
		}
		return nil
	})
}
