package chat

import (
	"encoding/json"
	"slices"
	"strings"
)

// Message is one message of a conversation, as a chat template sees it.
type Message struct {
	Role             string          `json:"role"` // system, user, assistant, tool
	Content          string          `json:"content"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	Name             string          `json:"name,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
	ToolCalls        json.RawMessage `json:"tool_calls,omitempty"` // array; the order of keys is kept

	// Pictures are files of pictures. Each stands where Content has a PictureMark, in this order.
	Pictures [][]byte `json:"pictures,omitempty"`
}

// PictureMark stands in Content for a picture: U+FFFC, the object replacement character.
const PictureMark = "\uFFFC"

// WithoutPictureMarks returns a text with U+FFFD for each PictureMark that it has, which then stands for no picture.
func WithoutPictureMarks(text string) string { return strings.ReplaceAll(text, PictureMark, "\uFFFD") }

// parts returns the content of m, whose texts are from the origin o, as a list of texts and pictures.
func (m Message) parts(o origin) *list {
	parts := &list{}
	for i, s := range strings.Split(m.Content, PictureMark) {
		if i > 0 {
			d := newDict()
			d.setName("type", literal("image"))
			parts.items = append(parts.items, d)
		}
		if s != "" {
			parts.items = append(parts.items, contentPart("text", marked(validText(s), o)))
		}
	}
	return parts
}

// IsSystem reports whether m is a system prompt.
func (m Message) IsSystem() bool { return m.Role == "system" || m.Role == "developer" }

// ReasoningFields are the fields of a message in which templates look for its reasoning.
var ReasoningFields = []string{"reasoning_content", "thinking", "reasoning"}

// ReasoningForm is how a template takes the reasoning of an assistant's message. The zero
// value is the most common form, the field reasoning_content.
type ReasoningForm struct {
	Field         string // one of ReasoningFields
	AsParts       bool   // instead, content is a list of parts: one of type thinking, one of type text
	Open, Close   string // instead, reasoning stands before the content, between these tags
	DropWithCalls bool   // omit reasoning from messages that would have both content and calls
}

// addTo adds the reasoning of m to d.
func (t ReasoningForm) addTo(d *dict, m Message) {
	if m.ReasoningContent == "" || t.DropWithCalls && len(m.ToolCalls) > 0 && (m.Content != "" || t.Close != "") {
		return
	}
	reasoning := callerText(m.ReasoningContent)
	switch {
	case t.Close != "" && strings.Contains(m.ReasoningContent, t.Close):
		// The template would read what follows that tag as content.
	case t.AsParts:
		parts := &list{items: []value{contentPart("thinking", reasoning)}}
		if m.Content != "" {
			parts.items = append(parts.items, contentPart("text", callerText(m.Content)))
		}
		d.setName("content", parts)
	case t.Close != "":
		d.setName("content", callerText(t.Open+"\n"+m.ReasoningContent+"\n"+t.Close+"\n\n"+m.Content))
	case slices.Contains(ReasoningFields, t.Field):
		d.setName(t.Field, reasoning)
	default:
		d.setName(ReasoningFields[0], reasoning)
	}
}

// contentPart returns a part of a message's content.
func contentPart(kind string, t text) *dict {
	d := newDict()
	d.setName("type", literal(kind))
	d.setName(kind, t)
	return d
}
