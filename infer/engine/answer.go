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

// answer is one running or waiting request. Its consumer reads mail; the step loop owns
// everything else.
type answer struct {
	*sequence
	reader
	retractable
	ctx        context.Context
	request    infer.Request // with the seed drawn, if it had none
	chain      *sample.Chain
	constraint *constraint // nil: none
	proposal   *proposal   // how the device draws its tokens; nil: it does not
	mail       *mailbox
	done       *infer.Done // its last event, from finish on
	notes      []string    // how the prompt differs from the conversation

	limit           int           // maximum tokens of the answer
	contextFull     bool          // limit is what the context leaves, not MaxTokens
	queue           infer.Queued  // as last reported; zero: not queued
	reused          int           // tokens of the prompt that were in the KV cache
	reasoningTokens int           // with ParseReply
	echo            []infer.Event // token events of the prompt, sent when prefill ends
	echoText        *textBuffer
	comparison      *comparison // with Against; else nil
	embedding       *embedding  // of a text to embed, which has no chain and no events; else nil

	reads record.Reads // of the device's memory, in decode
	step  int          // the last step that gave it a token

	submitted, began, first, last time.Time
	loading                       time.Duration // the part of the time before began in which the model was loaded
}

// newAnswer returns an answer to r that continues prompt p.
func newAnswer(ctx context.Context, r infer.Request, m *openModel, p prompt, log *slog.Logger) (*answer, error) {
	if r.Params.Seed < 0 {
		r.Params.Seed = sample.DrawSeed()
	}
	// newAnswer checks the parameters only: the chain is created when the answer starts, in
	// buffers that all answers share.
	if _, err := sample.NewChain(r.Params, vocabulary{m}); err != nil {
		return nil, samplingError(err)
	}
	form, err := m.constrain(ctx, &r, p.text, log)
	if err != nil {
		return nil, err
	}
	r.Grammar, r.JSONSchema = "", nil // compiled in form
	a := &answer{
		sequence:   newSequence(m.key(), p.tokens, r.PromptLogProb),
		ctx:        ctx,
		request:    r,
		constraint: form,
		reader:     reader{model: m, format: m.formatOf(r), text: newTextBuffer(m.stops(r), r.BannedStrings)},
		echoText:   newTextBuffer(nil, nil),
		mail:       newMailbox(),
		notes:      p.notes,
	}
	a.client, a.sibling, a.pictures = r.Client, r.Sibling, p.pictures
	a.audience = audience{scope: r.CacheScope, public: p.public}
	if form != nil && len(form.ignored) > 0 {
		a.mail.put(infer.Event{Type: infer.EventSchema, Schema: &infer.SchemaNotes{Ignored: form.ignored}})
	}
	if len(p.notes) > 0 {
		a.mail.put(infer.Event{Type: infer.EventPrompt, Prompt: &infer.PromptNotes{Notes: p.notes}})
	}
	if p.begun != nil {
		a.parser = p.begun.parser
		a.text.resume(p.begun.text)
	} else if a.parser, err = m.parser(r, m.opening(r, p.text)); err != nil {
		return nil, err
	}
	return a, nil
}

// parser returns the parser of the answer to r; nil if the text is passed through unparsed.
func (m *openModel) parser(r infer.Request, prompt string) (*reply.Parser, error) {
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
	return m.formatOf(r).Parser(reply.Options{Tools: tools, Prompt: prompt, BufferCalls: r.WholeCalls, Single: r.SingleCall, Required: r.ForcesCall()}), nil
}

// maxEchoed bounds the alternatives of all tokens of a scored prompt together. They are sent at
// once: some 200 MB.
const maxEchoed = 4 << 20

// fit sets the maximum length of the answer in a context of n positions.
func (a *answer) fit(n int) error {
	if a.embedding != nil {
		return a.fitText(n)
	}
	left := n - a.prompt
	if left < 1 && !(left == 0 && a.request.MaxTokens == 0) {
		err := infer.Errorf(infer.CodeContext, "maximum context length is %d tokens; the prompt has %d, which leaves no room for an answer: shorten it", n, a.prompt)
		err.PromptTokens, err.ContextLength, err.ContextTrain = a.prompt, n, a.model.config.ContextLength
		if err.ContextTrain > n {
			err.Message += ", or start with a larger --ctx"
		}
		return err
	}
	if most := maxEchoed / sample.StoredCandidates; a.request.PromptLogProb && a.request.Rows && a.prompt > most {
		return infer.Invalid("rows", "the prompt has %d tokens: the likeliest tokens of at most %d can be stored", a.prompt, most)
	}
	if all := a.request.Alternatives * a.prompt; a.request.PromptLogProb && all > maxEchoed {
		return infer.Invalid("alternatives", "alternatives is %d: must be from 0 to %d where a prompt of %d tokens is scored", a.request.Alternatives, maxEchoed/a.prompt, a.prompt)
	}
	a.limit, a.contextFull = left, true
	if m := a.request.MaxTokens; m >= 0 && m <= left {
		a.limit, a.contextFull = m, false
	}
	return nil
}

// length returns how many tokens the answer has.
func (a *answer) length() int { return len(a.tokens) - a.prompt }

// needsLogits reports whether the logits of the row at position pos are needed, or its vector.
func (a *answer) needsLogits(pos int) bool {
	if a.embedding != nil {
		return a.embedding.pooling.Needs(pos, a.prompt)
	}
	return a.scores(pos) || pos == len(a.tokens)-1 && a.length() < a.limit
}

// start is called when the answer runs for the first time. It samples in the buffers b.
func (a *answer) start(now time.Time, b *sample.Buffers) (err error) {
	a.began, a.reused = now, a.cached
	if a.embedding != nil {
		return nil
	}
	if a.chain, err = b.NewChain(a.request.Params, vocabulary{a.model}); err != nil {
		return samplingError(err)
	}
	if a.scoring {
		a.echoToken(sample.Choice{ID: a.tokens[0]})
	}
	a.reportPrefill()
	return nil
}

// reportPrefill sends how much of the prompt is computed, until the first token has been sampled.
func (a *answer) reportPrefill() {
	if a.first.IsZero() {
		p := &infer.Prefill{Done: a.computed, Total: a.prompt, Cached: a.reused, Against: a.comparison.isSecond()}
		a.mail.put(infer.Event{Type: infer.EventPrefill, Prefill: p})
	}
}

// score scores the next unscored token of the prompt with the row of logits before it.
func (a *answer) score(row sample.Row) error {
	if a.comparison != nil {
		return a.compare(row)
	}
	c, err := a.scoreNext(row)
	if err == nil {
		a.echoToken(c)
	}
	return err
}

func (a *answer) scoreNext(row sample.Row) (sample.Choice, error) {
	c, err := sample.Score(row, a.model.config.Vocab, a.tokens[a.scored], a.request.Alternatives, a.request.Rows)
	a.scored++
	return c, err
}

// echoToken buffers a token of the prompt until prefill has ended.
func (a *answer) echoToken(c sample.Choice) {
	t := a.token(c)
	t.Prompt = true
	t.Text, _, _ = a.echoText.push(a.model.tokenizer.Piece(c.ID, false))
	a.echo = append(a.echo, infer.Event{Type: infer.EventToken, Token: t})
	if len(a.echo) == a.prompt {
		t.Text += a.echoText.flush()
	}
}

// sendEcho sends the buffered tokens of the prompt, before the first token of the answer or its
// end.
func (a *answer) sendEcho() {
	a.mail.put(a.echo...)
	a.echo = nil
}

// finish completes d, which the end of the answer sends as its last event.
func (a *answer) finish(d *infer.Done, r record.Receipt, now time.Time) {
	r.Params, r.BannedEnds = a.request.Params, a.request.BannedEnds
	r.TemplateHash = a.format.TemplateHash()
	d.Receipt = r
	d.Usage = record.Usage{PromptTokens: a.prompt, CachedTokens: a.reused, CompletionTokens: a.length(), ReasoningTokens: a.reasoningTokens}
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
	d.Reads, d.Notes = a.reads, a.notes
	if a.drafts != nil {
		d.Lookup = a.drafts.record()
	}
	a.sendEcho()
	a.release(len(a.tokens))
	a.parseEnd(d)
	a.done = d
}

func samplingError(err error) *infer.Error {
	var field *sample.FieldError
	switch {
	case errors.As(err, &field):
		return infer.Invalid(field.Field, "%s", field)
	case errors.Is(err, sample.ErrNotFinite):
		return infer.Errorf(infer.CodeNotFinite, "the answer cannot continue: %s; the model file may be damaged, or its numbers overflow on this device", err)
	}
	if _, ok := errors.AsType[*comparisonError](err); ok {
		return infer.Errorf(infer.CodeInternal, "the models cannot be compared: %s", err)
	}
	if isConstraintError(err) {
		return infer.Errorf(infer.CodeGrammar, "no token continues the answer as its grammar requires: %s", err)
	}
	return infer.Errorf(infer.CodeInternal, "sampling failed: %s", err)
}
