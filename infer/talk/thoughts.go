package talk

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"m40-llm/infer/chat"
	"m40-llm/infer/reply"
)

// A chat template takes the thoughts of earlier answers in one of several forms, which
// rendering sentinels finds out. What becomes of them is the template's choice: most drop those
// of earlier turns and show those between calls. One that takes them in no form drops them all.

// Sentinels of the conversations that find out the form.
const (
	probeThought = "probe thought"
	probeSaid    = "probe said"
)

var probeAnswer = chat.Message{Role: "assistant", Content: "probe answer"}

// thoughtsOf returns how the template takes the thoughts of messages.
func (f *Format) thoughtsOf(messages []chat.Message) chat.ReasoningForm {
	if !slices.ContainsFunc(messages, func(m chat.Message) bool { return m.ReasoningContent != "" }) {
		return chat.ReasoningForm{}
	}
	return f.thoughts()
}

// thoughts finds the form in which the template takes thoughts. It fails with a
// *chat.LimitError where the template takes too long to tell.
func (p probe) thoughts(ctx context.Context, style callStyle) (chat.ReasoningForm, error) {
	form, err := p.form(ctx, style)
	if err == nil {
		form.DropWithCalls = p.losesCall(ctx, style, form)
	}
	return form, err
}

// form is the one in which the template shows a thought, or, between tags in the content,
// in which it does not leave the tags as they are.
func (p probe) form(ctx context.Context, style callStyle) (chat.ReasoningForm, error) {
	type candidate struct {
		form  chat.ReasoningForm
		shown func(prompt string) bool
	}
	var candidates []candidate
	for _, field := range chat.ReasoningFields {
		candidates = append(candidates, candidate{chat.ReasoningForm{Field: field}, func(prompt string) bool { return strings.Contains(prompt, probeThought) }})
	}
	candidates = append(candidates, candidate{chat.ReasoningForm{AsParts: true}, showsPart})
	for _, tag := range reply.Tags() {
		if strings.Contains(p.source, tag.Close) {
			candidates = append(candidates, candidate{chat.ReasoningForm{Open: tag.Open, Close: tag.Close}, func(prompt string) bool { return takesApart(prompt, tag) }})
		}
	}
	for _, c := range candidates {
		prompts, err := p.withThought(ctx, style, c.form)
		if err != nil {
			return chat.ReasoningForm{}, err
		}
		if slices.ContainsFunc(prompts, c.shown) {
			return c.form, nil
		}
	}
	return chat.ReasoningForm{}, nil
}

// showsPart reports whether a prompt shows a part's thought, and not the part as data.
func showsPart(prompt string) bool {
	return strings.Contains(prompt, probeThought) && !strings.Contains(prompt, `'thinking'`) && !strings.Contains(prompt, `"thinking"`)
}

// takesApart reports whether a prompt has what was said, but not behind the thought as it
// was given.
func takesApart(prompt string, tag reply.Tag) bool {
	return strings.Contains(prompt, probeSaid) && !strings.Contains(prompt, tag.Open+"\n"+probeThought+"\n"+tag.Close+"\n\n"+probeSaid)
}

// withThought renders an answer with a thought where a template may show it: in an
// earlier turn, as the last message, and with a call whose result follows. What the
// template refuses is left out.
func (p probe) withThought(ctx context.Context, style callStyle, form chat.ReasoningForm) (prompts []string, err error) {
	answer := chat.Message{Role: "assistant", Content: probeSaid, ReasoningContent: probeThought}
	conversations := [][]chat.Message{{probeQuestion, answer, probeQuestion, probeAnswer, probeQuestion}, {probeQuestion, answer}}
	if call, err := probeCall(style); err == nil && !style.unknown {
		conversations = append(conversations, []chat.Message{probeQuestion, {Role: "assistant", ReasoningContent: probeThought, ToolCalls: call}, probeResult})
	}
	for _, messages := range conversations {
		prompt, err := p.withThoughts(ctx, style, form, messages)
		if _, over := errors.AsType[*chat.LimitError](err); over {
			return nil, err
		}
		if err == nil {
			prompts = append(prompts, prompt)
		}
	}
	return prompts, nil
}

// withThoughts renders messages for a model that is told to think.
func (p probe) withThoughts(ctx context.Context, style callStyle, form chat.ReasoningForm, messages []chat.Message) (string, error) {
	return p.render(ctx, chat.Input{
		Messages:            messages,
		Reasoning:           form,
		NullContent:         style.nullContent,
		AddGenerationPrompt: messages[len(messages)-1].Role != "assistant",
		Vars:                map[string]json.RawMessage{"enable_thinking": json.RawMessage("true"), "thinking": json.RawMessage("true")},
	})
}

// losesCall reports whether a call that the template shows, with content or without, is not
// shown any more beside a thought.
func (p probe) losesCall(ctx context.Context, style callStyle, form chat.ReasoningForm) bool {
	call, err := probeCall(style)
	if err != nil || style.unknown {
		return false
	}
	shows := func(content, thought string) bool {
		answer := chat.Message{Role: "assistant", Content: content, ReasoningContent: thought, ToolCalls: call}
		prompt, err := p.withThoughts(ctx, style, form, []chat.Message{probeQuestion, answer, probeResult})
		return err == nil && showsProbe(prompt)
	}
	return slices.ContainsFunc([]string{"", probeSaid}, func(content string) bool {
		return shows(content, "") && !shows(content, probeThought)
	})
}
