package live

import (
	"context"
	"slices"
	"strings"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/attached"
	"m40-llm/handlers/setting"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Next is what a person puts in the place of a token: another token, or a text that the model's tokenizer
// encodes. The zero value leaves the choice to the model.
type Next struct {
	Token *int32
	Text  string
}

// tokens returns the tokens that a model has for n.
func (n Next) tokens(ctx context.Context, engine Engine, model string) ([]int32, error) {
	if n.Token != nil && n.Text != "" {
		return nil, fault.Invalid("token", "give a token or a text, not both")
	}
	if n.Token != nil {
		return []int32{*n.Token}, nil
	}
	if n.Text == "" {
		return nil, nil
	}
	if err := fault.CheckUTF8("text", n.Text); err != nil {
		return nil, err
	}
	if len(n.Text) > maxNext {
		return nil, fault.Invalid("text", "the text has %d bytes, and at most %d can be put in place of a token; edit the answer instead", len(n.Text), maxNext)
	}
	ids, err := engine.Tokenize(ctx, model, n.Text, false, false)
	if err != nil {
		return nil, err
	}
	pieces, err := engine.Pieces(ctx, model, ids)
	if err == nil && strings.Join(pieces, "") != n.Text {
		err = fault.Invalid("text", "the tokenizer of this model encodes %q as %q: begin the text as its tokens do, or edit the answer instead", n.Text, strings.Join(pieces, ""))
	}
	return ids, err
}

// maxNext bounds the text that a person puts in the place of a token, in bytes.
const maxNext = 1024

// Rewind adds a version of an answer of the branch that has its first tokens and then next, and goes on
// from there with other settings. If the answer is being written, it is stopped first. With a negative
// seed the version has that of the answer.
func (c *Chat) Rewind(ctx context.Context, who Principal, answer int64, keep int, next Next, s setting.Settings) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := c.stopAnswer(ctx, who, answer); err != nil {
		return err
	}
	stored, err := c.StoredTokens(ctx, who, answer, nil)
	if err != nil {
		return err
	}
	added, err := next.tokens(ctx, c.service.engine, stored.Model)
	if err != nil {
		return err
	}
	at, done, err := c.commandOn(ctx, who, access.ActionAsk, "rewind an answer", "answer", answer, RoleModel)
	if err != nil {
		return err
	}
	defer done()
	old := c.branch[at]
	if keep < 0 || keep >= len(stored.IDs) {
		return fault.Invalid("keep", "keep is %d, but message %d has %d tokens, of which some must go", keep, old.ID, len(stored.IDs))
	}
	if s.Seed < 0 {
		s.Seed = old.Answer.Settings.Seed
	}
	panel := Panel{s, c.panel.Preset}
	panel.Seed = c.panel.Seed
	t := c.newAnswer(old.Answer.System, s)
	if len(added) > 0 && t.Answer.Receipt.Model != stored.Model {
		return fault.Invalid("token", "message %d was written by %s, and the next answer is written by %s: choose that model to go on with another of its tokens", old.ID, stored.Model, t.Answer.Receipt.Model)
	}
	t.ids = append(slices.Clone(stored.IDs[:keep]), added...)
	continued, err := c.spell(ctx, at, t.ids, added, stored.IDs[keep:], s)
	if err != nil {
		return err
	}
	t.inherit(old, continued)
	if len(t.ids) > 0 {
		t.inheritRows(stored.Rows, len(added))
	}
	return c.addAnswer(ctx, t, old.Parent, panel, c.metadata.System)
}

// inheritRows takes the rows of the tokens of t from those of the answer that t begins with, whose tokens
// they share but for the last ones, which are added ones: the candidates in the place of the first of
// these were the same.
func (t *turn) inheritRows(rows []store.TokenRow, added int) {
	t.rows.list = slices.Clone(rows[:min(len(rows), len(t.ids)-max(0, added-1))])
	for len(t.rows.list) < len(t.ids) {
		t.rows.list = append(t.rows.list, store.TokenRow{})
	}
	a := t.Answer
	for i, id := range t.ids {
		if choice, _ := ScoreToken(id, t.rows.list[i], 0); choice != nil {
			a.LogProb += choice.LogProb
			a.Scored++
		}
	}
}

// stopAnswer stops an answer if it is being written, and waits until it is stored.
func (c *Chat) stopAnswer(ctx context.Context, who Principal, answer int64) error {
	if err := c.may(who, access.ActionAsk); err != nil {
		return err
	}
	c.mu.Lock()
	r := c.answer.run
	if r == nil || r.turn.ID != answer {
		c.mu.Unlock()
		return nil
	}
	r.stop()
	c.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inherit makes t, which has the first tokens of old, go on from them: continued is what they spell.
func (t *turn) inherit(old *turn, continued chat.Message) {
	a, was := t.Answer, old.Answer
	a.Prefix, a.ReasoningPrefix, a.Edited = was.Prefix, was.ReasoningPrefix, was.Edited
	a.Usage, a.Timings = was.Usage, was.Timings
	share := float64(len(t.ids)) / float64(max(1, was.Usage.CompletionTokens))
	a.Usage.CompletionTokens = len(t.ids)
	a.Usage.ReasoningTokens = min(a.Usage.ReasoningTokens, len(t.ids))
	a.Timings.Decode = time.Duration(min(1, share) * float64(was.Timings.Decode)) // ≈: that of each token is not stored
	if was.Pace != nil {
		pace := was.Pace.First(len(t.ids))
		a.Pace = &pace
	}
	for _, end := range was.Receipt.BannedEnds {
		if end < len(t.ids) {
			a.Receipt.BannedEnds = append(a.Receipt.BannedEnds, end)
		}
	}
	t.text.WriteString(continued.Content)
	t.reasoning.WriteString(continued.ReasoningContent)
	if a.Receipt.Model != was.Receipt.Model { // they are no tokens of this model
		t.ids, a.Prefix, a.ReasoningPrefix, a.Receipt.BannedEnds = nil, t.text.Len(), t.reasoning.Len(), nil
	}
	t.reopen()
}

// spell returns what the first tokens of answer number at of the branch spell, with the beginning that
// a person wrote; the last of them may be added ones. rest are the answer's other tokens.
func (c *Chat) spell(ctx context.Context, at int, first, added, rest []int32, s setting.Settings) (continued chat.Message, err error) {
	t := c.branch[at]
	model := t.Answer.Receipt.Model
	if !c.metadata.Raw && t.Answer.Prefix+t.Answer.ReasoningPrefix == 0 {
		if len(first) == 0 {
			return answerMessage("", ""), nil
		}
		r := c.request(c.branch[:at], t.request(), t.Answer.System)
		r.Model, r.ContinuedTokens = model, first
		s.Apply(&r)
		r.Messages = attached.Outline(r.Messages, c.branch[:at].pictures())
		var spelled *chat.Message
		err = c.commit(ctx, func(ctx context.Context) error {
			view, err := c.service.engine.Render(ctx, r)
			spelled = view.Continued
			return err
		})
		if err == nil && spelled == nil && len(added) > 0 {
			err = fault.Invalid("token", "nothing can follow this token: it ends an answer, or completes a stop string")
		} else if err == nil && spelled == nil {
			err = fault.Invalid("keep", "the first %d tokens of message %d cannot be read by the model any more", len(first), t.ID)
		}
		if err != nil {
			return continued, err
		}
		return *spelled, nil
	}
	var pieces, more []string
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		if pieces, err = c.service.engine.Pieces(ctx, model, rest); err == nil && len(added) > 0 {
			more, err = c.service.engine.Pieces(ctx, model, added)
		}
		return err
	})
	if err != nil {
		return continued, err
	}
	// What a person began is not among the tokens: the text of the others is cut off.
	continued = t.request()
	text := &continued.Content
	if *text == "" {
		text = &continued.ReasoningContent
	}
	before, ok := strings.CutSuffix(*text, strings.Join(pieces, ""))
	if !ok {
		return continued, fault.Invalid("keep", "the last %d tokens of message %d are not the end of its text; edit the answer instead", len(rest), t.ID)
	}
	*text = before + strings.ToValidUTF8(strings.Join(more, ""), "")
	return continued, nil
}
