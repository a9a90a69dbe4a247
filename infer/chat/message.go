package chat

import (
	"encoding/json"
	"slices"
	"strings"
)

// Message is one turn of a conversation, as a chat template sees it.
type Message struct {
	Role             string          `json:"role"` // system, user, assistant, tool
	Content          string          `json:"content"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	Name             string          `json:"name,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
	ToolCalls        json.RawMessage `json:"tool_calls,omitempty"` // array, key order kept
}

// ThoughtFields are the fields of a message in which templates look for its thought.
var ReasoningFields = []string{"reasoning_content", "thinking", "reasoning"}

// Thoughts is how a template takes the thought of an assistant's message. The zero value
// is what most take: the field reasoning_content.
type ReasoningForm struct {
	Field         string // the field, of ThoughtFields
	AsParts       bool   // instead: content is parts, one of type thinking and one of type text
	Open, Close   string // instead: in front of the content, between these
	DropWithCalls bool   // not in a message that would have both content and calls
}

// give puts the thought of m into d.
func (t ReasoningForm) addTo(d *dict, m Message) {
	if m.ReasoningContent == "" || t.DropWithCalls && len(m.ToolCalls) > 0 && (m.Content != "" || t.Close != "") {
		return
	}
	thought := callerText(m.ReasoningContent)
	switch {
	case t.Close != "" && strings.Contains(m.ReasoningContent, t.Close):
		// The template would take the rest of it for what was said.
	case t.AsParts:
		parts := &list{items: []value{contentPart("thinking", thought)}}
		if m.Content != "" {
			parts.items = append(parts.items, contentPart("text", callerText(m.Content)))
		}
		d.setName("content", parts)
	case t.Close != "":
		d.setName("content", callerText(t.Open+"\n"+m.ReasoningContent+"\n"+t.Close+"\n\n"+m.Content))
	case slices.Contains(ReasoningFields, t.Field):
		d.setName(t.Field, thought)
	default:
		d.setName(ReasoningFields[0], thought)
	}
}

// part is one of the parts of a message's content.
func contentPart(kind string, t text) *dict {
	d := newDict()
	d.setName("type", literal(kind))
	d.setName(kind, t)
	return d
}
