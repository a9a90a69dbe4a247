package engine

import (
	"errors"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/model"
	"m40-llm/infer/sample"
)

// kind is what an answer makes of the results of its rows, with the state that this needs. A writing makes text of
// them, and scores of the prompt; a comparison makes scores by two models; an embedding makes a vector.
type kind interface {
	// fit sets the maximum length of a in a context of n positions, or returns why it does not fit.
	fit(a *answer, n int) error
	// needs reports whether the result of the row at position pos is needed.
	needs(a *answer, pos int) bool
	// start is called when a runs for the first time. It samples in the buffers b.
	start(a *answer, b *sample.Buffers) error
	// drafts reports whether the next tokens of the answer can be drafted, and drawn by the device.
	drafts() bool
	// deliver gives a its results of a step, whose last rows are those of the draft of part; accepted is how many
	// tokens of that were right. It returns the errors of the device.
	deliver(l *loop, a *answer, part scheduled, results []model.Result, now time.Time, took settledStep) (accepted int, err error)
	// close releases what only this kind has. isLast reports whether the request has no other answer left.
	close() (isLast bool)
}

// writing is the kind of an answer that is sampled after its prompt, whose tokens may be scored before.
type writing struct{}

func (writing) drafts() bool { return true }

func (writing) close() (isLast bool) { return true }

// maxEchoed bounds the alternatives of all tokens of a scored prompt together. They are sent at
// once: some 200 MB.
const maxEchoed = 4 << 20

func (writing) fit(a *answer, n int) error {
	left := n - a.prompt
	if left < 1 && !(left == 0 && a.request.MaxTokens == 0) {
		return tooLong(a.model, a.prompt, n, "", 0)
	}
	if most := maxEchoed / sample.StoredCandidates; a.request.PromptLogProb && a.request.Rows && a.prompt > most {
		return fault.Invalid("rows", "the prompt has %d tokens: the likeliest tokens of at most %d can be stored", a.prompt, most)
	}
	if all := a.request.Alternatives * a.prompt; a.request.PromptLogProb && all > maxEchoed {
		return fault.Invalid("alternatives", "alternatives is %d: must be from 0 to %d where a prompt of %d tokens is scored", a.request.Alternatives, maxEchoed/a.prompt, a.prompt)
	}
	a.limit, a.contextFull = left, true
	if m := a.request.MaxTokens; m >= 0 && m <= left {
		a.limit, a.contextFull = m, false
	}
	return nil
}

func (writing) needs(a *answer, pos int) bool {
	return a.scores(pos) || pos == len(a.tokens)-1 && a.length() < a.limit
}

func (writing) start(a *answer, b *sample.Buffers) (err error) {
	if a.chain, err = b.NewChain(a.request.Params, vocabulary{a.model}); err != nil {
		return samplingError(err)
	}
	if a.scoring && len(a.request.Answered) == 0 {
		a.echoToken(a.model, sample.Choice{ID: a.tokens[0]})
	}
	a.reportPrefill()
	return nil
}

// deliver ends this answer alone if its logits are not finite; the cache then drops what it computed.
func (writing) deliver(l *loop, a *answer, part scheduled, results []model.Result, now time.Time, took settledStep) (accepted int, err error) {
	a.reportPrefill()
	var done *infer.Done
	draft := part.draft
	before, drafted := a.last, len(a.tokens)
	for _, result := range results {
		if i := int(result.Pos) - drafted; i >= 0 {
			if done != nil || len(a.tokens) != int(result.Pos)+1 || a.tokens[result.Pos] != draft[i] {
				break
			}
			accepted++
		}
		known, err := l.loaded.row(result.Row)
		if err != nil {
			return 0, err
		}
		if a.scores(int(result.Pos)) {
			err = a.score(known)
		} else {
			done, err = a.next(known, now)
		}
		if unread, ok := errors.AsType[*readError](err); ok {
			return 0, unread.error
		}
		if err != nil {
			l.end(a, samplingError(err), false)
			return 0, nil
		}
	}
	l.countReads(a, before, now)
	if a.drafts != nil && took.without > 0 {
		a.drafts.settle(len(a.tokens)-drafted, took)
	}
	if len(draft) > 0 {
		l.sched.accept(part, accepted)
		l.options.onDraft(drafted, draft, accepted)
	}
	l.sched.rewind(a.sequence)
	if done == nil && a.missing() == 0 {
		done = a.endIfFull()
	}
	if done != nil {
		l.finish(a, done, l.loaded.receipt, now)
	}
	return accepted, nil
}

// score scores the next token of the prompt with the row of logits before it.
func (a *answer) score(row sample.Row) error {
	c, err := sample.Score(row, a.model.config.Vocab, a.tokens[a.scored], a.request.Alternatives, a.request.Rows)
	a.scored++
	if err == nil {
		a.echoToken(a.model, c)
	}
	return err
}
