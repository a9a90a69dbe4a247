package talk

import (
	"context"
	"errors"
	"slices"
	"strings"

	"m40-llm/infer/chat"
	"m40-llm/infer/reply"
	"m40-llm/infer/tokenizer"
)

// MessageError is the error of a message that is invalid for every template.
type MessageError struct{ Err error }

func (e *MessageError) Error() string { return e.Err.Error() }
func (e *MessageError) Unwrap() error { return e.Err }

// TemplateError is the error of a conversation that the template refuses or fails on.
type TemplateError struct{ Err error }

func (e *TemplateError) Error() string { return e.Err.Error() }
func (e *TemplateError) Unwrap() error { return e.Err }

// ErrNoTemplate is returned, for errors.Is, if the template of the model cannot be used.
var ErrNoTemplate = errors.New("the chat template cannot be used")

// noTemplate is ErrNoTemplate with the reason.
type noTemplate struct{ notice string }

func (e noTemplate) Error() string        { return e.notice }
func (e noTemplate) Is(target error) bool { return target == ErrNoTemplate }

// Prompt renders and encodes a conversation. The text of messages is data: only the template's
// own text can become special tokens. The caller sets Messages, Tools, Continue, Vars and Now
// of in; Prompt sets the other fields.
func (f *Format) Prompt(ctx context.Context, in chat.Input) (text string, tokens []int32, err error) {
	if f.template == nil {
		return "", nil, noTemplate{f.notice}
	}
	messages, style, err := f.toolMessages(in.Messages)
	if err != nil {
		return "", nil, &MessageError{err}
	}
	in.Messages = messages
	in.AddGenerationPrompt = string(in.Vars["add_generation_prompt"]) != "false" // Continue goes before it
	in.NullContent = style.nullContent
	in.Reasoning = f.reasoningOf(messages)
	in.BOSToken, in.EOSToken = f.special(f.tokenizer.BOS()), f.special(f.tokenizer.EOS())
	describe := len(in.Tools) > 0 && !f.template.Uses("tools")
	if describe {
		in.Messages = withToolPrompt(messages, "system", toolPrompt(in.Tools))
	}
	parts, err := f.render(ctx, in)
	if _, raised := errors.AsType[*chat.RaisedError](err); raised && describe {
		in.Messages = withToolPrompt(messages, "user", toolPrompt(in.Tools))
		parts, err = f.render(ctx, in)
	}
	if err != nil {
		if ctx.Err() == nil {
			err = &TemplateError{err}
		}
		return "", nil, err
	}
	tokens, err = f.encode(ctx, parts)
	return parts.String(), tokens, err
}

func (f *Format) encode(ctx context.Context, parts chat.Prompt) ([]int32, error) {
	spans := make([]tokenizer.Span, len(parts))
	for i, part := range parts {
		spans[i] = tokenizer.Span{Text: part.Text, ParseSpecial: !part.Content}
	}
	tokens, err := f.tokenizer.EncodeSpans(ctx, spans, false)
	if err != nil {
		return nil, err
	}
	// Some templates leave the first token to the tokenizer, others write it.
	if bos, _ := f.tokenizer.BOS(); f.tokenizer.AddsBOS() && (len(tokens) == 0 || tokens[0] != bos) {
		tokens = slices.Insert(tokens, 0, bos)
	}
	return tokens, nil
}

// render renders a conversation. If the template does not show the reasoning that is to be
// continued, render appends it to the generation prompt, after the family's opening tag unless
// the template has written that.
func (f *Format) render(ctx context.Context, in chat.Input) (chat.Prompt, error) {
	last := in.Messages[len(in.Messages)-1]
	inReasoning := in.Continue && strings.TrimSpace(last.Content) == "" && strings.TrimSpace(last.ReasoningContent) != ""
	if !inReasoning || in.Reasoning.Close == "" { // between tags it would have ended
		prompt, err := f.template.Render(ctx, in)
		if !inReasoning || !errors.Is(err, chat.ErrNotContinued) {
			return prompt, err
		}
	}
	n := len(in.Messages) - 1
	in.Messages, in.Continue, in.AddGenerationPrompt = in.Messages[:n], false, true
	prompt, err := f.template.Render(ctx, in)
	if err != nil {
		return nil, err
	}
	if f.syntax.OpenedBy(prompt.String()) == "" {
		prompt = append(prompt, chat.Span{Text: f.syntax.Tag.Open + "\n"})
	}
	return append(prompt, chat.Span{Text: last.ReasoningContent, Content: true}), nil
}

// Continued returns reply.Options.Prompt for a prompt that ends in last, a message that is
// continued: the prompt, or, if the message ends in reasoning, the text up to its opening tag.
func (f *Format) Continued(last chat.Message, prompt string) string {
	if reasoning := strings.TrimSpace(last.ReasoningContent); reasoning != "" && strings.TrimSpace(last.Content) == "" {
		before := strings.TrimSuffix(strings.TrimSpace(prompt), reasoning)
		switch {
		case f.syntax.OpenedBy(before) != "":
			return before
		case f.syntax.Tag.Open != "":
			return f.syntax.Tag.Open
		}
	}
	if tag, rest, found := reply.Opening(last.Content); found && !strings.Contains(rest, tag.Close) {
		return tag.Open
	}
	return prompt
}
