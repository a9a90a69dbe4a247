package engine

import (
	"context"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/reply"
)

// An answer that a request continues resumes from the tokens that the model wrote, if they are
// known: its text may encode to other ones. Those that delimit its reasoning are then kept as the
// model wrote them, and with a seed the answer is as if it had not ended.

// resume returns the prompt of a request that continues a message in its own tokens. The prompt
// is empty if the request has no such tokens, or if they are not the model's or do not spell the
// message.
func (m *openModel) resume(ctx context.Context, r infer.Request, now time.Time) prompt {
	n := len(r.Messages) - 1
	if len(r.Begun) == 0 || n == 0 || inVocabulary("begun", r.Begun, m.tokenizer.VocabSize()) != nil {
		return prompt{}
	}
	opening := r
	opening.Messages, opening.Continue = r.Messages[:n], false
	text, tokens, err := m.conversation(ctx, opening, now)
	if err != nil {
		return prompt{}
	}
	begun := m.readBegun(r, text)
	if begun == nil {
		return prompt{}
	}
	return prompt{text, append(tokens, r.Begun...), begun}
}

// readBegun decodes and parses the tokens of the message that r continues, and returns the reader
// after them; nil if they do not spell the message.
func (m *openModel) readBegun(r infer.Request, prompt string) *reader {
	parser, err := m.parser(r, prompt)
	if err != nil {
		return nil // newAnswer reports it
	}
	read := &reader{model: m, text: newTextBuffer(r.Stop, nil), parser: parser}
	var said, reasoning strings.Builder
	calls := false
	add := func(d reply.Delta) {
		said.WriteString(d.Content)
		reasoning.WriteString(d.Reasoning)
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
		return said.String() == last.Content && reasoning.String() == last.ReasoningContent && !calls
	}
	if !says() { // an answer that had ended sent what the buffers held
		if rest := read.text.flush(); parser == nil {
			add(reply.Delta{Content: rest})
		} else {
			add(parser.Text(rest))
			add(parser.Flush())
		}
		read.text = newTextBuffer(r.Stop, nil)
	}
	if !says() {
		return nil
	}
	return read
}
