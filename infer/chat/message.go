package chat

import "encoding/json"

// Message is one turn of a conversation, as a chat template sees it.
type Message struct {
	Role             string          `json:"role"` // system, user, assistant, tool
	Content          string          `json:"content"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	Name             string          `json:"name,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
	ToolCalls        json.RawMessage `json:"tool_calls,omitempty"` // array, key order kept
}
