package fault

import "fmt"

// Part is a part of the prompt of a conversation.
type Part string

// Parts of a prompt.
const (
	PartSystem   Part = "system"   // the text of system prompts
	PartTools    Part = "tools"    // definitions of tools
	PartPictures Part = "pictures" // of all messages
	PartHistory  Part = "history"  // the messages before the last, and what the template writes
	PartMessage  Part = "message"  // the text of the last message
)

// Advice returns what to do about a prompt that is too long, of which the part has so many tokens.
func (p Part) Advice(tokens int) string {
	switch p {
	case PartSystem:
		return fmt.Sprintf("%d of them are the system prompt: shorten that", tokens)
	case PartTools:
		return fmt.Sprintf("%d of them are the definitions of the tools: offer fewer, or describe them in fewer words", tokens)
	case PartPictures:
		return fmt.Sprintf("%d of them are pictures: send fewer, or in low detail", tokens)
	case PartHistory:
		return fmt.Sprintf("%d of them are the messages before the last: leave out the oldest", tokens)
	}
	return "shorten it"
}
