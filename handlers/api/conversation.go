package api

import (
	"slices"
	"strings"

	"m40-llm/infer/chat"
)

// conversation collects messages of APIs in which reasoning, text and calls of one message are items
// of their own, or system prompts come from several fields.
type conversation struct {
	messages []chat.Message
	open     *chat.Message // the assistant's message that grows; nil: none
	calls    []oneCall     // of open
}

// add adds a message. A system message at the beginning joins the one before it, because many
// templates accept one only, and the assistant's text joins its reasoning.
func (c *conversation) add(m chat.Message) {
	last := len(c.messages) - 1
	switch {
	case m.Role == "system" && last == 0 && c.open == nil && c.messages[0].Role == "system":
		c.messages[0].Content += "\n\n" + m.Content
	case m.Role == "assistant":
		if c.open != nil && (c.open.Content != "" || len(c.calls) > 0) {
			c.close()
		}
		c.opened().Content = m.Content
	default:
		c.close()
		c.messages = append(c.messages, m)
	}
}

// addText adds text to the assistant's message, or begins one.
func (c *conversation) addText(text string) {
	c.opened().Content += text
}

// addThought adds reasoning, which begins a message of the assistant.
func (c *conversation) addThought(text string) {
	if c.open != nil && (c.open.Content != "" || len(c.calls) > 0) {
		c.close()
	}
	if text == "" {
		return
	}
	if m := c.opened(); m.ReasoningContent != "" {
		m.ReasoningContent += "\n" + text
	} else {
		m.ReasoningContent = text
	}
}

// addCall adds a call to the assistant's message.
func (c *conversation) addCall(id, name, arguments string) {
	c.opened()
	call := oneCall{ID: id, Type: "function"}
	call.Function.Name, call.Function.Arguments = name, mustMarshal(arguments)
	c.calls = append(c.calls, call)
}

func (c *conversation) opened() *chat.Message {
	if c.open == nil {
		c.open = &chat.Message{Role: "assistant"}
	}
	return c.open
}

// close ends the assistant's message.
func (c *conversation) close() {
	if c.open == nil {
		return
	}
	if len(c.calls) > 0 {
		c.open.ToolCalls = mustMarshal(c.calls)
	}
	c.messages = append(c.messages, *c.open)
	c.open, c.calls = nil, nil
}

// end returns the messages.
func (c *conversation) end() []chat.Message {
	c.close()
	return c.messages
}

// billingHeader begins a line that Claude Code places before its system prompt. It is for Anthropic's
// accounts, and different in each request: a prompt that began with it would share no prefix with
// those before it.
const billingHeader = "x-anthropic-billing-header:"

// withoutBilling returns a system prompt without such lines at its beginning.
func withoutBilling(system string) string {
	for strings.HasPrefix(system, billingHeader) {
		_, system, _ = strings.Cut(system, "\n")
	}
	return system
}

// asksSomething reports whether a conversation has more than system messages.
func asksSomething(messages []chat.Message) bool {
	return slices.ContainsFunc(messages, func(m chat.Message) bool { return m.Role != "system" })
}
