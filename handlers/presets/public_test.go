package presets_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"m40-llm/handlers/presets"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/store"
)

// ownersPrompts finds a system prompt in the presets of the server's owner.
type ownersPrompts string

func (p ownersPrompts) HasSystemPrompt(_ context.Context, owner, system string) (bool, error) {
	if p == "" {
		return true, errors.New("the store is closed")
	}
	return owner == store.OwnerID && system == string(p), nil
}

func TestWithPublicPrompts(t *testing.T) {
	message := func(role, content string) chat.Message { return chat.Message{Role: role, Content: content} }
	for _, tc := range []struct {
		name     string
		presets  ownersPrompts
		messages []chat.Message
		public   bool
	}{
		{"the system prompt of a preset of the owner is public", "house", []chat.Message{message("system", "house"), message("user", "a")}, true},
		{"also as a developer's message", "house", []chat.Message{message("developer", "house"), message("user", "a")}, true},
		{"another system prompt is not", "house", []chat.Message{message("system", "house."), message("user", "a")}, false},
		{"nor a user's message with that text", "house", []chat.Message{message("user", "house")}, false},
		{"nor a later one", "house", []chat.Message{message("user", "a"), message("system", "house")}, false},
		{"nor any while the presets cannot be read", "", []chat.Message{message("system", "house"), message("user", "a")}, false},
		{"a prompt without messages has none", "house", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got infer.Request
			generate := presets.WithPublicPrompts(tc.presets, func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
				got = r
				return func(func(infer.Event, error) bool) {}
			})
			for range generate(t.Context(), infer.Request{Messages: tc.messages}) {
			}
			if got.PublicSystem != tc.public {
				t.Errorf("public is %v, want %v", got.PublicSystem, tc.public)
			}
		})
	}
}
