package chat

import (
	"encoding/json"
	"slices"
	"strings"

	"m40-llm/infer/jinja"
)

// Message is one message of a conversation, as a chat template sees it.
type Message struct {
	Role             string          `json:"role"` // system, user, assistant, tool
	Content          string          `json:"content"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	Name             string          `json:"name,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
	ToolCalls        json.RawMessage `json:"tool_calls,omitempty"` // array; the order of keys is kept

	// Pictures are files of pictures. Each belongs where Content has a PictureMark, in this order.
	Pictures [][]byte `json:"pictures,omitempty"`
	Details  []Detail `json:"details,omitempty"` // of each of Pictures; empty: Full of all
}

// Detail is in how much detail a model reads a picture. Where the size of pictures is fixed, it changes nothing.
type Detail string

// The details. How many tokens they are depends on the model: the number of Low is smaller than that of Medium.
const (
	Full   Detail = "" // as many tokens as the picture has by the rules of the model
	Low    Detail = "low"
	Medium Detail = "medium"
)

// IsKnown reports whether d is one of the details.
func (d Detail) IsKnown() bool { return d == Full || d == Low || d == Medium }

// AddPicture adds a picture to those of m. Its PictureMark in Content is the caller's.
func (m *Message) AddPicture(file []byte, d Detail) {
	if d != Full && len(m.Details) == 0 {
		m.Details = make([]Detail, len(m.Pictures))
	}
	if m.Pictures = append(m.Pictures, file); d != Full || len(m.Details) > 0 {
		m.Details = append(m.Details, d)
	}
}

// DetailOf returns the detail of picture i of m.
func (m *Message) DetailOf(i int) Detail {
	if i < len(m.Details) {
		return m.Details[i]
	}
	return Full
}

// PictureMark marks a picture in Content: U+FFFC, the object replacement character.
const PictureMark = "\uFFFC"

// WithoutPictureMarks returns a text with U+FFFD for each PictureMark that it has, which then marks no picture.
func WithoutPictureMarks(text string) string { return strings.ReplaceAll(text, PictureMark, "\uFFFD") }

// parts returns the content of m, whose texts are from the origin o, as a list of texts and pictures.
func (m Message) parts(o jinja.Origin) *jinja.List {
	parts := &jinja.List{}
	for i, s := range strings.Split(m.Content, PictureMark) {
		if i > 0 {
			d := jinja.NewDict()
			d.Set("type", jinja.Literal("image"))
			parts.Items = append(parts.Items, d)
		}
		if s != "" {
			parts.Items = append(parts.Items, contentPart("text", jinja.Marked(validText(s), o)))
		}
	}
	return parts
}

// textWith returns the content of m, whose texts are from the origin o, with a text of the template for each picture.
func (m Message) textWith(picture string, o jinja.Origin) (t jinja.Text) {
	for i, s := range strings.Split(m.Content, PictureMark) {
		if i > 0 {
			t = t.Append(picture, jinja.FromTemplate)
		}
		t = t.Append(validText(s), o)
	}
	return t
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
	Open, Close   string // instead, reasoning precedes the content, between these tags
	DropWithCalls bool   // omit reasoning from messages that would have both content and calls
}

// addTo adds the reasoning of m, whose content is from the origin o, to d.
func (t ReasoningForm) addTo(d *jinja.Dict, m Message, o jinja.Origin) {
	if m.ReasoningContent == "" || t.DropWithCalls && len(m.ToolCalls) > 0 && (m.Content != "" || t.Close != "") {
		return
	}
	reasoning := callerText(m.ReasoningContent)
	switch {
	case t.Close != "" && strings.Contains(m.ReasoningContent, t.Close):
		// The template would read what follows that tag as content.
	case t.AsParts:
		parts := &jinja.List{Items: []jinja.Value{contentPart("thinking", reasoning)}}
		if m.Content != "" {
			parts.Items = append(parts.Items, contentPart("text", jinja.Marked(validText(m.Content), o)))
		}
		d.Set("content", parts)
	case t.Close != "":
		d.Set("content", callerText(t.Open+"\n"+m.ReasoningContent+"\n"+t.Close+"\n\n").Append(validText(m.Content), o))
	case slices.Contains(ReasoningFields, t.Field):
		d.Set(t.Field, reasoning)
	default:
		d.Set(ReasoningFields[0], reasoning)
	}
}

// contentPart returns a part of a message's content.
func contentPart(kind string, t jinja.Text) *jinja.Dict {
	d := jinja.NewDict()
	d.Set("type", jinja.Literal(kind))
	d.Set(kind, t)
	return d
}
