package chatformat

import (
	"context"
	"errors"
	"fmt"
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

// Prompt is a rendered and encoded conversation.
type Prompt struct {
	Text   string
	Tokens []int32
	Notes  []string // what was changed of the conversation because the template requires it; see adapt
}

// Pictures is how a prompt shows the pictures of a conversation.
type Pictures struct {
	Placeholder string   // what templates write for a picture
	Texts       []string // what the model reads in its place, for each picture
}

// shownIn returns how many pictures a prompt shows.
func (p Pictures) shownIn(prompt chat.Prompt) (n int) {
	for _, span := range prompt {
		if !span.Content {
			n += strings.Count(span.Text, p.Placeholder)
		}
	}
	return n
}

// expand replaces the placeholders that the template wrote.
func (p Pictures) expand(prompt chat.Prompt) (chat.Prompt, error) {
	if len(p.Texts) == 0 {
		return prompt, nil
	}
	prompt, shown := slices.Clone(prompt), 0
	for i, span := range prompt {
		if span.Content {
			continue
		}
		var b strings.Builder
		for k, text := range strings.Split(span.Text, p.Placeholder) {
			if k > 0 {
				if shown++; shown <= len(p.Texts) {
					b.WriteString(p.Texts[shown-1])
				}
			}
			b.WriteString(text)
		}
		prompt[i].Text = b.String()
	}
	if shown != len(p.Texts) {
		return nil, &TemplateError{fmt.Errorf("the chat template shows %d of %d pictures", shown, len(p.Texts))}
	}
	return prompt, nil
}

// Prompt renders and encodes a conversation. The text of messages is data: only the template's
// own text can become special tokens. The caller sets Messages, Tools, Continue, Vars and Now
// of in; Prompt sets the other fields.
func (f *Format) Prompt(ctx context.Context, in chat.Input, pictures Pictures) (Prompt, error) {
	rendered, err := f.withPictures(ctx, in, pictures)
	if err != nil {
		return Prompt{}, err
	}
	if f.chosen() {
		rendered.notes = slices.Insert(rendered.notes, 0, NoTemplate)
	}
	if rendered.prompt, err = pictures.expand(rendered.prompt); err != nil {
		return Prompt{}, err
	}
	tokens, err := f.encode(ctx, rendered.prompt)
	return Prompt{rendered.prompt.String(), tokens, rendered.notes}, err
}

// withPictures renders a conversation. If the template does not show its pictures, it gets them as lines of messages.
func (f *Format) withPictures(ctx context.Context, in chat.Input, pictures Pictures) (adapted, error) {
	rendered, err := f.conversation(ctx, in)
	_, failed := errors.AsType[*TemplateError](err)
	if n := len(pictures.Texts); n == 0 || err != nil && !failed || err == nil && pictures.shownIn(rendered.prompt) == n {
		return rendered, err
	}
	in.Picture = pictures.Placeholder + "\n"
	if inLines, err := f.conversation(ctx, in); err == nil && pictures.shownIn(inLines.prompt) == len(pictures.Texts) {
		return inLines, nil
	}
	return rendered, err
}

// conversation renders a conversation.
func (f *Format) conversation(ctx context.Context, in chat.Input) (adapted, error) {
	if f.probe.template == nil {
		return adapted{}, noTemplate{f.notice}
	}
	messages, style, err := f.toolMessages(in.Messages)
	if err != nil {
		return adapted{}, &MessageError{err}
	}
	in.Messages, in.NullContent, in.Reasoning = messages, style.nullContent, f.reasoningOf(messages)
	in.AddGenerationPrompt = string(in.Vars["add_generation_prompt"]) != "false" // Continue goes before it
	in.Tools = completeTools(in.Tools)
	if len(in.Tools) > 0 && f.traits().printsNone {
		in.Tools = describeNulls(in.Tools)
	}
	if len(in.Tools) > 0 && !f.traits().showsTools {
		in = describeTools(in)
	}
	rendered, err := f.adapt(ctx, in)
	if isRefusal(err) && len(in.Tools) > 0 { // perhaps because of the tools
		if accepted := f.acceptedTools(ctx, in.Tools); accepted != nil {
			in.Tools = accepted
		} else {
			in = describeTools(in)
		}
		rendered, err = f.adapt(ctx, in)
	}
	if err != nil && ctx.Err() == nil {
		err = &TemplateError{err}
	}
	return rendered, err
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
// the template has written that. It returns what the prompt shows of each message.
func (f *Format) render(ctx context.Context, in chat.Input) (chat.Prompt, []chat.Shown, error) {
	last := in.Messages[len(in.Messages)-1]
	inReasoning := in.Continue && strings.TrimSpace(last.Content) == "" && strings.TrimSpace(last.ReasoningContent) != ""
	if !inReasoning || in.Reasoning.Close == "" { // between tags it would have ended
		prompt, shown, err := f.probe.renderShown(ctx, in)
		if !inReasoning || !errors.Is(err, chat.ErrNotContinued) {
			return prompt, shown, err
		}
	}
	n := len(in.Messages) - 1
	in.Messages, in.Continue, in.AddGenerationPrompt = in.Messages[:n], false, true
	prompt, shown, err := f.probe.renderShown(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	if f.syntax.OpenedBy(prompt.String()) == "" {
		prompt = append(prompt, chat.Span{Text: f.syntax.Tag.Open + "\n"})
	}
	return append(prompt, chat.Span{Text: last.ReasoningContent, Content: true}), append(shown, chat.Shown{Content: true, Calls: true}), nil
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
