package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// answer is one running or waiting request. Its consumer reads mail; the step loop owns
// everything else, but for what a comparison gives to its goroutine.
type answer struct {
	kind kind
	*sequence
	reader
	retractable
	ctx        context.Context
	request    infer.Request // with the seed drawn, if it had none
	chain      *sample.Chain // of an answer that is being written
	constraint *constraint   // nil: none
	proposal   *proposal     // how the device draws its tokens; nil: it does not
	mail       *mailbox
	done       *infer.Done // its last event, from finish on
	notes      []string    // how the prompt differs from the conversation

	limit           int          // maximum tokens of the answer
	contextFull     bool         // limit is what the context leaves, not MaxTokens
	queue           infer.Queued // as last reported; zero: not queued
	reused          int          // tokens of the prompt that were in the KV cache
	reasoningTokens int          // with ParseReply
	thoughtEnd      thoughtEnd
	echo            []infer.Event // token events of the prompt, sent when prefill ends
	echoText        *textBuffer
	second          bool // the model of Against scores

	reads record.Reads // of the device's memory, in decode
	step  int          // the last step that gave it a token

	submitted, began, first, last time.Time
	loading                       time.Duration // the part of the time before began in which the model was loaded
}

// shortPrompt is from how many tokens on a prompt is computed in the way of prompts, where a model has one (sequence.answerRows): copying weights
// takes longer than computing a few rows as those of an answer.
const shortPrompt = 64

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
	form, err := m.constrain(ctx, &r, p, log)
	if err != nil {
		return nil, err
	}
	r.Grammar, r.JSONSchema = "", nil // compiled in form
	a := &answer{
		kind:       writing{},
		sequence:   newSequence(m.key(), p.tokens, r.PromptLogProb),
		ctx:        ctx,
		request:    r,
		constraint: form,
		reader:     reader{model: m, format: m.formatOf(r), text: newTextBuffer(m.stops(r), r.BannedStrings)},
		echoText:   newTextBuffer(nil, nil),
		mail:       newMailbox(),
		notes:      p.notes,
	}
	a.sampled = 1 + len(r.Answered) // the row of the last token gives the first of the answer
	if p.continued != nil {
		a.sampled += len(r.ContinuedTokens)
	}
	if a.prompt-a.sampled < shortPrompt {
		a.sampled = a.prompt
	}
	if len(r.Answered) > 0 {
		a.scored = a.prompt - len(r.Answered)
	}
	a.client, a.sibling, a.pictures = r.Client, r.Sibling, p.pictures
	a.audience = audience{scope: r.CacheScope, public: p.public}
	if form != nil && len(form.ignored) > 0 {
		a.mail.put(infer.Event{Type: infer.EventSchema, Schema: &infer.SchemaNotes{Ignored: form.ignored}})
	}
	if len(p.notes) > 0 {
		a.mail.put(infer.Event{Type: infer.EventPrompt, Prompt: &infer.PromptNotes{Notes: p.notes}})
	}
	if p.continued != nil {
		a.parser = p.continued.parser
		a.text.resume(p.continued.text)
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
		return nil, fault.Invalid("tools", "%s", err)
	}
	if r.ToolChoice == infer.ToolChoiceNone {
		tools = nil
	}
	return m.formatOf(r).Parser(reply.Options{Tools: tools, Prompt: prompt, BufferCalls: r.WholeCalls, Single: r.SingleCall, Required: r.ForcesCall()}), nil
}

// length returns how many tokens the answer has.
func (a *answer) length() int { return len(a.tokens) - a.prompt }

// start is called when the answer runs for the first time. It samples in the buffers b.
func (a *answer) start(now time.Time, b *sample.Buffers) error {
	a.began, a.reused = now, a.cached
	return a.kind.start(a, b)
}

// reportPrefill sends how much of the prompt is computed, until the first token has been sampled.
func (a *answer) reportPrefill() {
	if a.first.IsZero() {
		p := &infer.Prefill{Done: a.computed, Total: a.prompt, Cached: a.reused, Against: a.second}
		a.mail.put(infer.Event{Type: infer.EventPrefill, Prefill: p})
	}
}

// echoToken buffers a token of the prompt, which model m scored, until prefill has ended.
func (a *answer) echoToken(m *openModel, c sample.Choice) {
	t := m.token(c)
	t.Prompt = true
	t.Text, _, _ = a.echoText.push(m.tokenizer.Piece(c.ID, false))
	a.echo = append(a.echo, infer.Event{Type: infer.EventToken, Token: t})
}

// sendEcho sends the buffered tokens of the prompt, before the first token of the answer or its
// end.
func (a *answer) sendEcho() {
	if n := len(a.echo); n > 0 {
		a.echo[n-1].Token.Text += a.echoText.flush()
	}
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

func samplingError(err error) *fault.Error {
	var field *sample.FieldError
	switch {
	case errors.As(err, &field):
		return fault.Invalid(field.Field, "%s", field)
	case errors.Is(err, sample.ErrNotFinite):
		return fault.Errorf(fault.CodeNotFinite, "the answer cannot continue: %s; the model file may be damaged, or its numbers overflow on this device", err)
	}
	if _, ok := errors.AsType[*comparisonError](err); ok {
		return fault.Errorf(fault.CodeInternal, "the models cannot be compared: %s", err)
	}
	if isConstraintError(err) {
		return fault.Errorf(fault.CodeGrammar, "no token continues the answer as its grammar requires: %s", err)
	}
	return fault.Errorf(fault.CodeInternal, "sampling failed: %s", err)
}
