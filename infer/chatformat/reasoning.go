package chatformat

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"m40-llm/infer/chat"
	"m40-llm/infer/jinja"
	"m40-llm/infer/reply"
)

// A chat template takes the reasoning of earlier answers in one of several forms. The form is
// detected by rendering sentinels. Most templates drop the reasoning of earlier turns and show
// that between calls. One without a form shows none.

// Sentinels of the conversations that detect the form.
const (
	probeReasoning = "probe reasoning"
	probeSaid      = "probe said"
)

var probeAnswer = chat.Message{Role: "assistant", Content: "probe answer"}

// reasoningOf returns the form in which the template takes the reasoning of messages, none if
// they have no reasoning.
func (f *Format) reasoningOf(messages []chat.Message) chat.ReasoningForm {
	if !slices.ContainsFunc(messages, func(m chat.Message) bool { return m.ReasoningContent != "" }) {
		return chat.ReasoningForm{}
	}
	return f.reasoning()
}

// reasoning detects the form in which the template takes reasoning. It returns a
// *jinja.LimitError if the template takes too long.
func (p probe) reasoning(ctx context.Context, style callStyle) (chat.ReasoningForm, error) {
	form, err := p.form(ctx, style)
	if err == nil {
		form.DropWithCalls = p.losesCall(ctx, style, form)
	}
	return form, err
}

// form returns the form in which the template shows reasoning or, for tags in the content, in
// which it interprets the tags.
func (p probe) form(ctx context.Context, style callStyle) (chat.ReasoningForm, error) {
	type candidate struct {
		form  chat.ReasoningForm
		shown func(prompt string) bool
	}
	var candidates []candidate
	for _, field := range chat.ReasoningFields {
		candidates = append(candidates, candidate{chat.ReasoningForm{Field: field}, func(prompt string) bool { return strings.Contains(prompt, probeReasoning) }})
	}
	candidates = append(candidates, candidate{chat.ReasoningForm{AsParts: true}, showsPart})
	for _, tag := range reply.Tags() {
		if strings.Contains(p.source, tag.Close) {
			candidates = append(candidates, candidate{chat.ReasoningForm{Open: tag.Open, Close: tag.Close}, func(prompt string) bool { return takesApart(prompt, tag) }})
		}
	}
	for _, c := range candidates {
		prompts, err := p.renderReasoning(ctx, style, c.form)
		if err != nil {
			return chat.ReasoningForm{}, err
		}
		if slices.ContainsFunc(prompts, c.shown) {
			return c.form, nil
		}
	}
	return chat.ReasoningForm{}, nil
}

// showsPart reports whether a prompt shows a part's reasoning, and not the part as data.
func showsPart(prompt string) bool {
	return strings.Contains(prompt, probeReasoning) && !strings.Contains(prompt, `'thinking'`) && !strings.Contains(prompt, `"thinking"`)
}

// takesApart reports whether a prompt shows the content, but not after the unchanged reasoning.
func takesApart(prompt string, tag reply.Tag) bool {
	return strings.Contains(prompt, probeSaid) && !strings.Contains(prompt, tag.Open+"\n"+probeReasoning+"\n"+tag.Close+"\n\n"+probeSaid)
}

// renderReasoning renders an answer with reasoning at the places where a template may show it:
// in an earlier turn, as the last message, and with a call whose result follows. It leaves out
// what the template refuses.
func (p probe) renderReasoning(ctx context.Context, style callStyle, form chat.ReasoningForm) (prompts []string, err error) {
	answer := chat.Message{Role: "assistant", Content: probeSaid, ReasoningContent: probeReasoning}
	conversations := [][]chat.Message{{probeQuestion, answer, probeQuestion, probeAnswer, probeQuestion}, {probeQuestion, answer}}
	if call, err := probeCall(style); err == nil && !style.unknown {
		conversations = append(conversations, []chat.Message{probeQuestion, {Role: "assistant", ReasoningContent: probeReasoning, ToolCalls: call}, probeResult})
	}
	for _, messages := range conversations {
		prompt, err := p.renderThinking(ctx, style, form, messages)
		if _, over := errors.AsType[*jinja.LimitError](err); over {
			return nil, err
		}
		if err == nil {
			prompts = append(prompts, prompt)
		}
	}
	return prompts, nil
}

// renderThinking renders messages with reasoning switched on.
func (p probe) renderThinking(ctx context.Context, style callStyle, form chat.ReasoningForm, messages []chat.Message) (string, error) {
	return p.render(ctx, chat.Input{
		Messages:            messages,
		Reasoning:           form,
		NullContent:         style.nullContent,
		AddGenerationPrompt: messages[len(messages)-1].Role != "assistant",
		Vars:                map[string]json.RawMessage{"enable_thinking": json.RawMessage("true"), "thinking": json.RawMessage("true")},
	})
}

// losesCall reports whether the template drops a call in a message with reasoning that it shows
// in one without.
func (p probe) losesCall(ctx context.Context, style callStyle, form chat.ReasoningForm) bool {
	call, err := probeCall(style)
	if err != nil || style.unknown {
		return false
	}
	shows := func(content, reasoning string) bool {
		answer := chat.Message{Role: "assistant", Content: content, ReasoningContent: reasoning, ToolCalls: call}
		prompt, err := p.renderThinking(ctx, style, form, []chat.Message{probeQuestion, answer, probeResult})
		return err == nil && showsProbe(prompt)
	}
	return slices.ContainsFunc([]string{"", probeSaid}, func(content string) bool {
		return shows(content, "") && !shows(content, probeReasoning)
	})
}
