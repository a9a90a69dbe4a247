package engine

import (
	"context"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/fault"
	"m40-llm/infer/reply"
)

// An answer that a request continues resumes from the tokens that the model wrote, if they are
// known: its text may encode to other ones. Those that delimit its reasoning then stay as the
// model wrote them, and with a seed the answer is as if it had not ended.

// resume returns the prompt of a request that continues a message in its own tokens. The prompt
// is empty if the request has no such tokens, or if they are not the model's or do not spell the
// message.
func (m *openModel) resume(ctx context.Context, r infer.Request, now time.Time) prompt {
	if len(r.ContinuedTokens) == 0 || inVocabulary("begun", r.ContinuedTokens, m.tokenizer.VocabSize()) != nil {
		return prompt{}
	}
	opened, err := m.openContinued(ctx, r, now)
	if err != nil {
		return prompt{}
	}
	continued := m.readContinued(r, opened.Text)
	if continued == nil {
		return prompt{}
	}
	return prompt{text: opened.Text, tokens: append(opened.Tokens, r.ContinuedTokens...), notes: opened.Notes, continued: continued}
}

// openContinued renders and encodes the messages before the one that r continues.
func (m *openModel) openContinued(ctx context.Context, r infer.Request, now time.Time) (chatformat.Prompt, error) {
	n := len(r.Messages) - 1
	if n < 1 {
		return chatformat.Prompt{}, fault.Invalid("begun", "begun has the tokens of a message that nothing precedes")
	}
	r.Messages, r.Continue = r.Messages[:n], false
	return m.conversation(ctx, r, now)
}

// spellContinued returns the message that the tokens of r spell: without what the buffers hold after the
// last of them, such as a part of a character, which comes with the token that completes it. It returns
// nil if they are not the model's, or complete a stop string.
func (m *openModel) spellContinued(ctx context.Context, r infer.Request, now time.Time) *chat.Message {
	if len(r.ContinuedTokens) == 0 || inVocabulary("begun", r.ContinuedTokens, m.tokenizer.VocabSize()) != nil {
		return nil
	}
	opened, err := m.openContinued(ctx, r, now)
	if err != nil {
		return nil
	}
	_, said, err := m.decodeContinued(r, opened.Text)
	if err != nil {
		return nil
	}
	return &chat.Message{Role: "assistant", Content: said.content.String(), ReasoningContent: said.reasoning.String()}
}

// continuedText is what the tokens of a message spell.
type continuedText struct {
	content, reasoning strings.Builder
	calls              bool // and a tool call
}

func (s *continuedText) add(d reply.Delta) {
	s.content.WriteString(d.Content)
	s.reasoning.WriteString(d.Reasoning)
	s.calls = s.calls || len(d.Calls) > 0
}

// decodeContinued decodes and parses the tokens of the message that r continues, and returns the reader
// after them and what they spell.
func (m *openModel) decodeContinued(r infer.Request, prompt string) (read *reader, said *continuedText, err error) {
	parser, err := m.parser(r, prompt)
	if err != nil {
		return nil, nil, err
	}
	said = &continuedText{}
	read = &reader{model: m, format: m.formatOf(r), text: newTextBuffer(m.stops(r), nil), parser: parser}
	for i, id := range r.ContinuedTokens {
		if m.tokenizer.IsEnd(id) && !r.IgnoreEOS {
			return nil, nil, fault.Invalid("begun", "token %d of begun ends an answer", i+1)
		}
		text, stopString, stopped := read.decode(id)
		if said.add(read.parse(id, text)); stopped {
			return nil, nil, fault.Invalid("begun", "token %d of begun completes the stop string %q", i+1, stopString)
		}
	}
	return read, said, nil
}

// readContinued returns the reader after the tokens of the message that r continues; nil if they do not
// spell the message.
func (m *openModel) readContinued(r infer.Request, prompt string) *reader {
	read, said, err := m.decodeContinued(r, prompt)
	if err != nil {
		return nil // newAnswer reports what is wrong with r
	}
	last := r.Messages[len(r.Messages)-1]
	says := func() bool {
		return said.content.String() == last.Content && said.reasoning.String() == last.ReasoningContent && !said.calls
	}
	if !says() { // an answer that had ended sent what the buffers held
		if rest := read.text.flush(); read.parser == nil {
			said.add(reply.Delta{Content: rest})
		} else {
			said.add(read.parser.Text(rest))
			said.add(read.parser.Flush())
		}
		read.text = newTextBuffer(m.stops(r), nil)
	}
	if !says() {
		return nil
	}
	return read
}
