package engine

import (
	"context"
	"errors"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/tokenizer"
)

// largest returns which part of the conversation of r has most of the total tokens of its prompt, and how many; none if r
// has no messages. It renders the prompt again, so it is for prompts that are refused.
func (m *openModel) largest(ctx context.Context, r infer.Request, total int, now time.Time) (part fault.Part, tokens int) {
	if len(r.Messages) == 0 {
		return "", 0
	}
	sizes := map[fault.Part]int{}
	for i, message := range r.Messages {
		switch {
		case i == len(r.Messages)-1:
			sizes[fault.PartMessage] += m.textTokens(ctx, message)
		case message.IsSystem():
			sizes[fault.PartSystem] += m.textTokens(ctx, message)
		}
	}
	if pictures, err := m.pictureSizes(&r); err == nil {
		for _, size := range pictures {
			sizes[fault.PartPictures] += size.Tokens
		}
	}
	if len(r.Tools) > 0 && r.ToolChoice != infer.ToolChoiceNone {
		without := r
		without.Tools, without.ToolChoice = nil, ""
		if prompt, err := m.conversation(ctx, without, now); err == nil {
			sizes[fault.PartTools] = total - len(prompt.Tokens)
		}
	}
	rest := total
	for _, n := range sizes {
		rest -= n
	}
	if len(r.Messages) > 1 {
		sizes[fault.PartHistory] = rest
	}
	part = fault.PartMessage
	for _, p := range []fault.Part{fault.PartHistory, fault.PartTools, fault.PartPictures, fault.PartSystem} {
		if sizes[p] > sizes[part] {
			part = p
		}
	}
	return part, sizes[part]
}

// textTokens returns how many tokens the text of a message has.
func (m *openModel) textTokens(ctx context.Context, message chat.Message) int {
	tokens, err := m.tokenizer.Encode(ctx, chat.WithoutPictureMarks(message.Content), tokenizer.Options{})
	if err != nil {
		return 0
	}
	return len(tokens)
}

// tooLong returns the error for a prompt that leaves no room for an answer in a context of n tokens; part, with its tokens,
// is its largest one.
func tooLong(m *openModel, prompt, n int, part fault.Part, tokens int) *fault.Error {
	err := fault.Errorf(fault.CodeContext, "maximum context length is %d tokens; the prompt has %d, which leaves no room for an answer: %s", n, prompt, part.Advice(tokens))
	err.PromptTokens, err.ContextLength, err.ContextTrain, err.Largest, err.LargestTokens = prompt, n, m.config.ContextLength, part, tokens
	if err.ContextTrain > n {
		err.Message += ", or start with a larger --ctx"
	}
	return err
}

// blamed returns err, and if it says that the prompt of r is too long, names the largest part. This is not for the step loop, which
// must not wait for a prompt to be rendered.
func (e *Engine) blamed(ctx context.Context, r infer.Request, err error) error {
	long, ok := errors.AsType[*fault.Error](err)
	if !ok || long.Code != fault.CodeContext || len(r.Messages) == 0 {
		return err
	}
	_ = e.use(ctx, r.Model, func(m *openModel) error {
		part, tokens := m.largest(ctx, r, long.PromptTokens, e.options.Now())
		err = tooLong(m, long.PromptTokens, long.ContextLength, part, tokens)
		return nil
	})
	return err
}
