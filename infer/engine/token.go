package engine

import (
	"errors"
	"math"
	"slices"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// The path of a token, from a row of logits to its event:
//
//	constrain  the grammar and the bans leave the tokens that may come
//	sample     the chain draws one of them
//	decode     its bytes become text: whole runes, nothing that may begin a stop string
//	ban        tokens that may be part of a banned string are buffered; a complete one is
//	           retracted, and its first token is sampled again
//	parse      what is released is content, reasoning or a call
//	send       the event goes to the mailbox
//
// next takes a token through the first four stages, release through the last two.

// next samples the next token from a row. done is set if it ends the answer. If a banned string
// that began in an earlier token is retracted, the answer gets shorter, and the row of its new
// last token is computed again.
func (a *answer) next(row sample.Row, now time.Time) (done *infer.Done, err error) {
	for pos := len(a.tokens); len(a.tokens) == pos; {
		c, done, err := a.draw(row)
		if done != nil || err != nil {
			return done, err
		}
		if a.first.IsZero() {
			a.first = now
		}
		a.last = now
		a.sendEcho()
		var before *textBuffer
		if !a.text.bans.empty() {
			before = a.text.clone()
		}
		done = a.take(c, before)
		if !a.text.banned {
			return done, nil
		}
		if a.retract(c.ID, before); a.rewinds > maxRewinds {
			return a.endBanned(), nil
		}
	}
	return nil, nil
}

// draw samples a token that the grammar and the bans allow. done is set if there is none, which
// ends the answer.
func (a *answer) draw(row sample.Row) (c sample.Choice, done *infer.Done, err error) {
	mask, err := a.constraint.allowed(a.length())
	if err != nil {
		return c, nil, err
	}
	if a.constraint.ends(a.length(), mask) {
		if done := ended(record.End{Reason: infer.FinishStop}, a.text.flush()); !a.text.banned {
			return c, done, nil
		}
		return c, a.endBanned(), nil
	}
	if mask = a.allow(mask); a.thoughtOver() {
		mask = a.markerMask()
	}
	c, err = a.chain.Next(sample.Input{Row: row, History: a.tokens, Pos: len(a.tokens), Top: a.request.Alternatives, Store: a.request.Rows, Follow: a.request.Follow, Mask: mask})
	if errors.Is(err, sample.ErrMasked) && a.forbidden() != nil {
		return c, a.endBanned(), nil
	}
	return c, nil, err
}

// take appends c to the tokens and releases what can no longer be retracted. before is the state
// of the text before c. a.text.banned is set afterwards if c completes a banned string.
func (a *answer) take(c sample.Choice, before *textBuffer) *infer.Done {
	if a.model.tokenizer.IsEnd(c.ID) && !a.request.IgnoreEOS {
		return ended(record.End{Reason: infer.FinishStop, EndToken: &c.ID, EndProb: math.Exp(c.LogProb)}, a.text.flush())
	}
	a.tokens = append(a.tokens, c.ID)
	t := a.model.token(c)
	text, stopString, stopped := a.decode(c.ID)
	t.Text = text
	a.buffer(t, before)
	if a.text.banned {
		return nil
	}
	a.release(a.prompt + a.text.firstOpenPiece())
	if !slices.Contains(a.request.Stop, stopString) {
		stopString = "" // a marker of the template, as an end token
	}
	if stopped || a.request.SingleCall && a.parser != nil && a.parser.Calls() > 0 {
		return ended(record.End{Reason: infer.FinishStop, StopString: stopString}, "")
	}
	if a.constraint.read(a.length()-1, c.ID) {
		return ended(record.End{Reason: infer.FinishStop}, a.text.flush())
	}
	return a.endIfFull()
}

// release parses and sends the buffered tokens whose positions are below end. They cannot be
// retracted any more.
func (a *answer) release(end int) {
	n := max(0, end-(len(a.tokens)-len(a.buffered)))
	if n == 0 {
		return
	}
	for _, b := range a.buffered[:n] {
		t, reasoning := b.event.Token, a.inReasoning()
		d := a.parse(t.ID, t.Text)
		if reasoning || a.inReasoning() || d.Reasoning != "" {
			a.reasoningTokens++
		}
		t.Text, t.Reasoning, t.Calls = d.Content, d.Reasoning, d.Calls
		a.mail.put(b.event)
	}
	a.buffered = slices.Delete(a.buffered, 0, n)
	a.rewinds = 0
	a.forbiddenAt = slices.DeleteFunc(a.forbiddenAt, func(b forbiddenTokens) bool { return b.pos < end })
}

// parseEnd parses the text that the end of the answer releases.
func (a *answer) parseEnd(e *infer.Done) {
	if a.parser == nil {
		return
	}
	var d reply.Delta
	if e.EndToken != nil {
		d = a.parse(*e.EndToken, e.Text)
	} else {
		d = a.parser.Text(e.Text)
	}
	d.Add(a.parser.End(e.Reason == infer.FinishStop && e.StopString == ""))
	e.Text, e.Reasoning, e.Calls = d.Content, d.Reasoning, d.Calls
	if e.Reason == infer.FinishStop && a.parser.Called() {
		e.Reason = infer.FinishCalls
	}
}

// endIfFull returns the end of an answer that has reached its limit, else nil.
func (a *answer) endIfFull() *infer.Done {
	if a.length() < a.limit {
		return nil
	}
	return ended(record.End{Reason: infer.FinishLength, ContextFull: a.contextFull}, a.text.flush())
}

// ended returns an end with the last text of the answer.
func ended(e record.End, text string) *infer.Done {
	return &infer.Done{Answer: record.Answer{End: e}, Text: text}
}

// token returns the event of c with the bytes of it and its alternatives.
func (m *openModel) token(c sample.Choice) *infer.Token {
	t := &infer.Token{Choice: c, Bytes: m.tokenizer.Piece(c.ID, true)}
	for _, top := range c.Top {
		t.Tops = append(t.Tops, m.tokenizer.Piece(top.ID, true))
	}
	return t
}

// reader decodes and parses the tokens of an answer.
type reader struct {
	model  *openModel
	format *chatformat.Format
	text   *textBuffer
	parser *reply.Parser // nil: the text is passed through unparsed
}

// decode returns the text that a token releases, and whether a stop string is complete. A control
// token that the parser interprets has no text and ends the text before it.
func (r *reader) decode(id int32) (text, stopString string, stopped bool) {
	if _, ok := r.format.Marker(id); ok && r.parser != nil {
		return r.text.endText(), "", false
	}
	return r.text.push(r.model.tokenizer.Piece(id, false))
}

// parse returns what the text released by a token is: content, reasoning or calls.
func (r *reader) parse(id int32, text string) reply.Delta {
	if r.parser == nil {
		return reply.Delta{Content: text}
	}
	d := r.parser.Text(text)
	if marker, ok := r.format.Marker(id); ok {
		d.Add(r.parser.Control(marker))
	}
	return d
}

// inReasoning reports whether the parser is inside reasoning.
func (r *reader) inReasoning() bool { return r.parser != nil && r.parser.InReasoning() }
