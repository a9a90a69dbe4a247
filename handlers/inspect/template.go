package inspect

import (
	"context"

	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/chat"
)

// sampleConversation is what a chat template is tried on without a chat.
var sampleConversation = []chat.Message{
	{Role: "system", Content: "You are a helpful assistant."},
	{Role: "user", Content: "What is the capital of France?"},
	{Role: "assistant", Content: "Paris."},
	{Role: "user", Content: "And of Italy?"},
}

// PreviewTemplate returns the prompt that a chat template makes of the chat called id, for the next answer of model; of
// a short conversation if id is empty. An empty template is the model's own.
func (s *Service) PreviewTemplate(ctx context.Context, who live.Principal, id, model, template string) (infer.Rendered, error) {
	if err := owned.MayManageModels(who); err != nil {
		return infer.Rendered{}, err
	}
	messages := sampleConversation
	if id != "" {
		c, err := s.chats.Chat(ctx, who, id)
		if err != nil {
			return infer.Rendered{}, err
		}
		if messages, err = c.Conversation(who); err != nil {
			return infer.Rendered{}, err
		}
	}
	r := infer.DefaultRequest()
	r.Model, r.Messages, r.ChatTemplate = model, messages, template
	return s.engine.Render(ctx, r)
}
