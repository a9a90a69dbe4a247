package engine

import (
	"context"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/reply"
)

// An answer that is continued goes on in the tokens that the model wrote, if they are
// known: with those that open and close its thoughts, whatever its family writes for them,
// and with a seed as if it had not ended. Its text as tokens may be other ones.

// resume returns the prompt of a message that is continued in its own tokens. It has none if
// there are none, if they are not the model's or if they say something else than the
// message.
func (s *source) resume(ctx context.Context, r infer.Request, now time.Time) prompt {
	n := len(r.Messages) - 1
	if len(r.Begun) == 0 || n == 0 || inVocabulary("begun", r.Begun, s.tokenizer.VocabSize()) != nil {
		return prompt{}
	}
	opening := r
	opening.Messages, opening.Continue = r.Messages[:n], false
	text, tokens, err := s.conversation(ctx, opening, now)
	if err != nil {
		return prompt{}
	}
	begun := s.readBegun(r, text)
	if begun == nil {
		return prompt{}
	}
	return prompt{text, append(tokens, r.Begun...), begun}
}

// readBegun reads the tokens of a message that is continued, which stand behind a prompt,
// and returns the state behind them; nil if they do not say what the message does.
func (s *source) readBegun(r infer.Request, prompt string) *reader {
	parser, err := s.parser(r, prompt)
	if err != nil {
		return nil // which the request's own parser will say
	}
	read := &reader{source: s, text: newTextEdge(r.Stop, nil), parser: parser}
	var said, thought strings.Builder
	calls := false
	add := func(d reply.Delta) {
		said.WriteString(d.Content)
		thought.WriteString(d.Reasoning)
		calls = calls || len(d.Calls) > 0
	}
	for _, id := range r.Begun {
		text, _, stopped := read.decode(id)
		if add(read.parse(id, text)); stopped {
			return nil
		}
	}
	last := r.Messages[len(r.Messages)-1]
	says := func() bool {
		return said.String() == last.Content && thought.String() == last.ReasoningContent && !calls
	}
	if !says() { // what is held back was sent, if the answer had ended
		if rest := read.text.flush(); parser == nil {
			add(reply.Delta{Content: rest})
		} else {
			add(parser.Text(rest))
			add(parser.Flush())
		}
		read.text = newTextEdge(r.Stop, nil)
	}
	if !says() {
		return nil
	}
	return read
}
