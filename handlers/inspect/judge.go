package inspect

import (
	"context"
	"errors"
	"math"
	"slices"

	"m40-llm/handlers/access"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// Verdict says what other settings would have made of an answer, each token judged after those that
// came before it. Before and After have an element for each token, unless Unknown says why there is none.
type Verdict struct {
	Before   []float64 `json:"before"`   // probability of the token when it was drawn; -1: not known
	After    []float64 `json:"after"`    // the same with the other settings; 0: they remove the token
	Diverges int       `json:"diverges"` // the first token that the answer's seed would not have drawn; -1: none, as far as is known
	Unknown  string    `json:"unknown,omitempty"`
}

const (
	mirostatNeedsModel = "Only a new answer can show what Mirostat would do."
	otherPrompt        = "Only a new answer can show what penalties would do: its prompt has changed since."
)

// Judge says what settings would have made of an answer, from the stored rows of its tokens, without the model.
func (s *Service) Judge(ctx context.Context, who live.Principal, c *live.Chat, answer int64, settings setting.Settings) (*Verdict, error) {
	if err := owned.Authorize(who, access.ActionRead, c.Object()); err != nil {
		return nil, err
	}
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	a, err := s.storedTokens(ctx, who, c, answer)
	if err != nil {
		return nil, err
	}
	settings.LogitBias = settings.BiasFor(a.Model)
	if settings.Mirostat != 0 || a.Settings.Mirostat != 0 {
		return &Verdict{Unknown: mirostatNeedsModel}, nil
	}
	before, err := s.newJudge(ctx, who, c, answer, a, a.Settings.Params)
	if err != nil {
		return nil, err
	}
	after, err := s.newJudge(ctx, who, c, answer, a, settings.Params)
	if err != nil {
		return nil, err
	}
	if before == nil || after == nil {
		return &Verdict{Unknown: otherPrompt}, nil
	}
	v := &Verdict{Diverges: -1}
	for i := range a.IDs {
		_, p := before.token(i)
		drawn, q := after.token(i)
		v.Before, v.After = append(v.Before, p), append(v.After, q)
		if v.Diverges < 0 && q >= 0 && drawn != a.IDs[i] {
			v.Diverges = i
		}
	}
	return v, nil
}

// judge runs the samplers of one setting on the stored rows of an answer.
type judge struct {
	answer  *live.StoredAnswer
	chain   *sample.Chain
	changed bool    // the chain begins after the stages that change logits, as the answer's settings did that
	history []int32 // of prompt and answer; nil: no stage depends on it
}

// newJudge returns a judge of samplers, with the seed of the answer; nil if they depend on tokens of the
// prompt that are not known any more.
func (s *Service) newJudge(ctx context.Context, who live.Principal, c *live.Chat, answer int64, a *live.StoredAnswer, p sample.Params) (*judge, error) {
	if cuts, ok := p.Cuts(); ok && a.Settings.SameChanges(p) {
		j, err := s.judgeOf(ctx, who, c, answer, a, cuts)
		if j != nil {
			j.changed = true
		}
		return j, err
	}
	return s.judgeOf(ctx, who, c, answer, a, p)
}

// judgeOf returns a judge that runs the whole chain of p.
func (s *Service) judgeOf(ctx context.Context, who live.Principal, c *live.Chat, answer int64, a *live.StoredAnswer, p sample.Params) (*judge, error) {
	j := &judge{answer: a}
	var words sample.Vocabulary = anyVocabulary{}
	if p.NeedsHistory() {
		_, prompt, err := s.prompt(ctx, who, c, answer, a)
		if prompt == nil || err != nil {
			return nil, err
		}
		j.history = append(slices.Clip(prompt.Tokens), a.IDs...)
		if words, err = s.vocabulary(ctx, a, j.history); err != nil {
			return nil, err
		}
	}
	p.Seed = a.Settings.Seed
	var err error
	j.chain, err = sample.NewChain(p, words)
	return j, err
}

// token returns what the seed draws in the place of token i, and the probability of that token; -1 if
// its row is not stored, or does not suffice.
func (j *judge) token(i int) (drawn int32, probability float64) {
	stored := j.answer.Rows[i]
	if !j.changed && masked(stored) {
		return 0, -1
	}
	at := stored.Row
	if j.changed {
		at = live.CutRow(stored)
	}
	row, err := sample.ParseRow(at)
	if err != nil {
		return 0, -1
	}
	in := sample.Input{Row: row, Pos: j.answer.Prompt + i, History: j.before(i)}
	choice, err := j.chain.Next(in)
	if err != nil {
		return 0, -1
	}
	p, err := j.chain.Probability(j.answer.IDs[i])
	if err != nil {
		return 0, -1
	}
	return choice.ID, p
}

// before returns the tokens before token i, if a stage depends on them.
func (j *judge) before(i int) []int32 {
	if j.history == nil {
		return nil
	}
	return j.history[:j.answer.Prompt+i]
}

// masked reports whether the token was drawn from fewer tokens than the model has, for a text is banned.
func masked(r store.TokenRow) bool {
	if r.Changed == nil {
		return false
	}
	model, err := sample.ParseRow(r.Row)
	changed, wrong := sample.ParseRow(r.Changed)
	return err != nil || wrong != nil || model.Count != changed.Count
}

// prompt returns the request of an answer, for tokens after it that are neither parsed nor constrained, and its prompt, which is nil if
// that is not the one any more that the answer was written after.
func (s *Service) prompt(ctx context.Context, who live.Principal, c *live.Chat, answer int64, a *live.StoredAnswer) (infer.Request, *infer.Rendered, error) {
	r, err := c.Recipe(ctx, who, answer)
	if err != nil {
		return r, nil, err
	}
	rendered, err := s.engine.Render(ctx, r)
	if err != nil || len(rendered.Tokens) != a.Prompt {
		return r, nil, err
	}
	r.ParseReply, r.Grammar, r.JSONSchema, r.Stop, r.BannedStrings, r.BannedEnds, r.IgnoreEOS = false, "", nil, nil, nil, nil, true
	if r.ForcesCall() {
		r.ToolChoice = ""
	}
	return r, &rendered, nil
}

// vocabulary returns as much of a model's as the stored rows of an answer, and samplers that look at the
// tokens before them, need.
func (s *Service) vocabulary(ctx context.Context, a *live.StoredAnswer, history []int32) (*vocabulary, error) {
	ids := slices.Clone(history)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	list, err := s.engine.Pieces(ctx, a.Model, ids)
	if err != nil {
		return nil, err
	}
	if len(list) != len(ids) {
		return nil, errors.New("the engine returned the bytes of other tokens than it was asked for")
	}
	v := &vocabulary{pieces: map[int32][]byte{}}
	for i, id := range ids {
		v.pieces[id], v.size = []byte(list[i]), max(v.size, int(id)+1)
	}
	for _, stored := range a.Rows {
		if row, err := sample.ParseRow(stored.Row); err == nil {
			v.size = max(v.size, row.Count, int(slices.Max(row.IDs))+1)
		}
	}
	return v, nil
}

// vocabulary is the part of a model's vocabulary that samplers look at.
type vocabulary struct {
	size   int
	pieces map[int32][]byte
}

func (v *vocabulary) Size() int             { return v.size }
func (v *vocabulary) Piece(id int32) []byte { return v.pieces[id] }

// anyVocabulary has all ids. Samplers that remove candidates do not look at texts.
type anyVocabulary struct{}

func (anyVocabulary) Size() int          { return math.MaxInt32 }
func (anyVocabulary) Piece(int32) []byte { return nil }
