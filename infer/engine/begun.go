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

// reading is the state of those who read an answer.
type reading struct {
	text   *textEdge
	parser *reply.Parser // nil: the text is told as it is
}

// goOn returns the prompt of a message that is continued in its own tokens. It has none if
// there are none, if they are not the model's or if they say something else than the
// message.
func (s *source) goOn(ctx context.Context, r infer.Request, now time.Time) prompt {
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
func (s *source) readBegun(r infer.Request, prompt string) *reading {
	parser, err := s.parser(r, prompt)
	if err != nil {
		return nil // which the request's own parser will say
	}
	text := newTextEdge(r.Stop, nil)
	var said, thought strings.Builder
	calls := false
	add := func(d reply.Delta) {
		said.WriteString(d.Content)
		thought.WriteString(d.Reasoning)
		calls = calls || len(d.Calls) > 0
	}
	hear := func(text string) {
		if parser == nil {
			add(reply.Delta{Content: text})
		} else {
			add(parser.Text(text))
		}
	}
	for _, id := range r.Begun {
		if marker, ok := s.format.Marker(id); ok && parser != nil {
			hear(text.cut())
			add(parser.Control(marker))
			continue
		}
		piece, _, stopped := text.push(s.tokenizer.Piece(id, false))
		if hear(piece); stopped {
			return nil
		}
	}
	last := r.Messages[len(r.Messages)-1]
	says := func() bool {
		return said.String() == last.Content && thought.String() == last.ReasoningContent && !calls
	}
	if !says() { // what is held back has been told, if the answer had ended
		hear(text.flush())
		if parser != nil {
			add(parser.Flush())
		}
		text = newTextEdge(r.Stop, nil)
	}
	if !says() {
		return nil
	}
	return &reading{text, parser}
}
