package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// answer is one running or waiting request. Its consumer reads mail; everything
// else belongs to the step loop.
type answer struct {
	*sequence
	reader
	retractable
	ctx     context.Context
	request infer.Request // with the seed that is used
	chain   *sample.Chain
	form    *constraint // nil: any
	mail    *mailbox

	limit       int           // most tokens of the answer
	contextFull bool          // limit is what the context leaves
	position    int           // in the queue, as the consumer was told; 0: nowhere yet
	reused      int           // tokens of the prompt found in the cache
	reasoned    int           // tokens of the thought, with ParseReply
	echo        []infer.Event // the prompt's tokens, sent when prefill has ended
	echoText    *textEdge

	submitted, began, first, last time.Time
	loading                       time.Duration // of the time before it began
}

// newAnswer returns an answer that goes on from p.
func newAnswer(ctx context.Context, r infer.Request, s *source, p prompt, log *slog.Logger) (*answer, error) {
	if r.Params.Seed < 0 {
		r.Params.Seed = sample.DrawSeed()
	}
	// The chain itself is made when the answer begins, in the buffers that all share.
	if _, err := sample.NewChain(r.Params, vocabulary{s}); err != nil {
		return nil, samplingError(err)
	}
	form, err := s.constrain(ctx, &r, p.text, log)
	if err != nil {
		return nil, err
	}
	r.Grammar, r.JSONSchema = "", nil // form has them
	a := &answer{
		sequence: newSequence(s.key(), p.tokens, r.PromptLogProb),
		ctx:      ctx,
		request:  r,
		form:     form,
		reader:   reader{source: s, text: newTextEdge(r.Stop, r.BannedStrings)},
		echoText: newTextEdge(nil, nil),
		mail:     newMailbox(),
	}
	a.client, a.sibling = r.Client, r.Sibling
	if form != nil && len(form.ignored) > 0 {
		a.mail.put(infer.Event{Type: infer.EventSchema, Schema: &infer.SchemaNotes{Ignored: form.ignored}})
	}
	if p.begun != nil {
		a.parser = p.begun.parser
		a.text.resume(p.begun.text)
	} else if a.parser, err = s.parser(r, s.opening(r, p.text)); err != nil {
		return nil, err
	}
	return a, nil
}

// parser returns what reads the answer to r behind a prompt; nil if the text is passed
// through unparsed.
func (s *source) parser(r infer.Request, prompt string) (*reply.Parser, error) {
	if !r.ParseReply {
		return nil, nil
	}
	tools, err := reply.ParseTools(r.Tools)
	if err != nil {
		return nil, infer.Invalid("tools", "%s", err)
	}
	if r.ToolChoice == infer.ToolChoiceNone {
		tools = nil
	}
	return s.format.Parser(reply.Options{Tools: tools, Prompt: prompt, BufferCalls: r.WholeCalls, Single: r.SingleCall}), nil
}

// maxScored bounds the alternatives of a scored prompt, of all its tokens together, which are sent
// at once: some 200 MB.
const maxScored = 4 << 20

// fit sets how long the answer may become in a context of n positions.
func (a *answer) fit(n int) error {
	left := n - a.prompt
	if left < 1 {
		err := infer.Errorf(infer.CodeContext, "maximum context length is %d tokens; the prompt has %d, which leaves no room for an answer: shorten it", n, a.prompt)
		err.PromptTokens, err.ContextLength, err.ContextTrain = a.prompt, n, a.source.config.ContextLength
		if err.ContextTrain > n {
			err.Message += ", or start with a larger --ctx"
		}
		return err
	}
	if all := a.request.Alternatives * a.prompt; a.request.PromptLogProb && all > maxScored {
		return infer.Invalid("alternatives", "alternatives is %d: must be from 0 to %d where a prompt of %d tokens is scored", a.request.Alternatives, maxScored/a.prompt, a.prompt)
	}
	a.limit, a.contextFull = left, true
	if m := a.request.MaxTokens; m >= 0 && m <= left {
		a.limit, a.contextFull = m, false
	}
	return nil
}

// length returns how many tokens the answer has.
func (a *answer) length() int { return len(a.tokens) - a.prompt }

// wants reports whether the logits of the row at position pos are needed.
func (a *answer) wants(pos int) bool {
	return a.scores(pos) || pos == len(a.tokens)-1 && a.length() < a.limit
}

// start notes that the answer runs for the first time. It samples in the buffers b.
func (a *answer) start(now time.Time, b *sample.Buffers) (err error) {
	a.began, a.reused = now, a.cached
	if a.chain, err = b.NewChain(a.request.Params, vocabulary{a.source}); err != nil {
		return samplingError(err)
	}
	if a.scoring {
		a.echoToken(sample.Choice{ID: a.tokens[0]})
	}
	a.prefilled()
	return nil
}

// prefilled tells how much of the prompt is computed, until the first token says
// that all of it is.
func (a *answer) prefilled() {
	if a.first.IsZero() {
		p := &infer.Prefill{Done: a.computed, Total: a.prompt, Cached: a.reused}
		a.mail.put(infer.Event{Type: infer.EventPrefill, Prefill: p})
	}
}

// score takes the row in front of the prompt's next unscored token.
func (a *answer) score(row sample.Row) error {
	c, err := sample.Score(row, a.source.config.Vocab, a.tokens[a.scored], a.request.Alternatives)
	if err != nil {
		return err
	}
	a.scored++
	a.echoToken(c)
	return nil
}

// echoToken keeps a token of the prompt until prefill has ended.
func (a *answer) echoToken(c sample.Choice) {
	t := a.token(c)
	t.Prompt = true
	t.Text, _, _ = a.echoText.push(a.source.tokenizer.Piece(c.ID, false))
	a.echo = append(a.echo, infer.Event{Type: infer.EventToken, Token: t})
	if len(a.echo) == a.prompt {
		t.Text += a.echoText.flush()
	}
}

// sendEcho sends the prompt's tokens, if there are any, in front of the first token
// of the answer or its end.
func (a *answer) sendEcho() {
	a.mail.put(a.echo...)
	a.echo = nil
}

// finish completes d and sends it as the answer's last event.
func (a *answer) finish(d *infer.Done, r record.Receipt, now time.Time) {
	r.Params = a.request.Params
	d.Receipt = r
	d.Usage = record.Usage{PromptTokens: a.prompt, CachedTokens: a.reused, CompletionTokens: a.length(), ReasoningTokens: a.reasoned}
	if a.first.IsZero() {
		a.first, a.last = now, now
	}
	d.Timings = record.Timings{
		Queue:   a.began.Sub(a.submitted) - a.loading,
		Load:    a.loading,
		Prefill: a.first.Sub(a.began),
		Decode:  a.last.Sub(a.first),
		First:   a.first.Sub(a.submitted),
	}
	a.sendEcho()
	a.release(len(a.tokens))
	a.parseEnd(d)
	a.mail.put(infer.Event{Type: infer.EventDone, Done: d})
	a.mail.end(nil)
}

func samplingError(err error) *infer.Error {
	var field *sample.FieldError
	switch {
	case errors.As(err, &field):
		return infer.Invalid(field.Field, "%s", field)
	case errors.Is(err, sample.ErrNotFinite):
		return infer.Errorf(infer.CodeNotFinite, "cannot go on: %s; the model file may be damaged, or its numbers overflow on this device", err)
	}
	if isConstraintError(err) {
		return infer.Errorf(infer.CodeGrammar, "the answer cannot go on as its grammar wants: %s", err)
	}
	return infer.Errorf(infer.CodeInternal, "sampling failed: %s", err)
}
