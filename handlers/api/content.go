package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
)

// This file reads the content of messages, which is text in several forms.

// contentPart is one element of a content array.
type contentPart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// textParts are the kinds of content that are text, those of the Responses API included.
var textParts = map[string]bool{"text": true, "input_text": true, "output_text": true, "refusal": true}

// unsupportedParts are the kinds of content that a text model cannot take.
var unsupportedParts = map[string]string{
	"audio":       "hear audio",
	"document":    "read files",
	"file":        "read files",
	"image":       "see images",
	"image_url":   "see images",
	"input_audio": "hear audio",
	"input_file":  "read files",
	"input_image": "see images",
	"video":       "see videos",
	"video_url":   "see videos",
}

// parseContent reads a message's content: a string, null, or an array of text
// parts, which become lines.
func parseContent(raw json.RawMessage, param string) (string, error) {
	return joinParts(raw, param, func(part json.RawMessage, where string) (string, error) {
		var p contentPart
		if err := httpio.DecodeJSON(part, where, &p); err != nil {
			return "", err
		}
		if what, ok := unsupportedParts[p.Type]; ok {
			return "", failure.Invalid(where, "the model cannot %s: remove %s", what, where)
		}
		if !textParts[p.Type] {
			return "", failure.Invalid(where+".type", "%s.type must be text, not %q", where, httpio.Shorten(p.Type))
		}
		return cmp.Or(p.Text, p.Refusal), nil
	})
}

// parseResult reads the result of a call. A program made it, so parts of other types are not refused: they become
// text that says what was there.
func parseResult(raw json.RawMessage, param string) (string, error) {
	return joinParts(raw, param, resultPart)
}

// parseDocument reads the parts of a document as parseResult does. It reads no documents in it: each level would
// hold another copy of those below.
func parseDocument(raw json.RawMessage, param string) (string, error) {
	return joinParts(raw, param, documentPart)
}

// joinParts reads a string, null or an array, whose elements part reads, as lines.
func joinParts(raw json.RawMessage, param string, part func(raw json.RawMessage, where string) (string, error)) (string, error) {
	switch firstByte(raw) {
	case 0, 'n':
		return "", nil
	case '"':
		var text string
		err := httpio.DecodeJSON(raw, param, &text)
		return text, err
	case '[':
	default:
		return "", failure.Invalid(param, "%s must be a string, null or an array of parts", param)
	}
	var parts []json.RawMessage
	if err := httpio.DecodeJSON(raw, param, &parts); err != nil {
		return "", err
	}
	texts := make([]string, len(parts))
	for i := range parts {
		var err error
		if texts[i], err = part(parts[i], fmt.Sprintf("%s[%d]", param, i)); err != nil {
			return "", err
		}
	}
	return strings.Join(texts, "\n"), nil
}

// resultPart returns a part of a result as text.
func resultPart(raw json.RawMessage, where string) (string, error) {
	var b anthropicBlock
	if json.Unmarshal(raw, &b) == nil {
		if text, ok, err := b.document(where); ok || err != nil {
			return text, err
		}
	}
	return documentPart(raw, where)
}

// documentPart returns a part of a document as text.
func documentPart(raw json.RawMessage, where string) (string, error) {
	var p contentPart
	if err := httpio.DecodeJSON(raw, where, &p); err != nil {
		return "", err
	}
	if textParts[p.Type] {
		return cmp.Or(p.Text, p.Refusal), nil
	}
	if what, ok := unsupportedParts[p.Type]; ok {
		return fmt.Sprintf("[%s: left out, the model cannot %s]", p.Type, what), nil
	}
	return unknownPart(p.Type, raw), nil
}

// maxUnknown bounds in bytes what a text shows of a part of an unknown type.
const maxUnknown = 4 << 10

// unknownPart returns a part of a type that this server does not know as text that says so.
func unknownPart(kind string, raw json.RawMessage) string {
	if len(raw) > maxUnknown {
		return fmt.Sprintf("[%s: left out, this server does not know this type, and it has %d bytes]", httpio.Shorten(kind), len(raw))
	}
	return fmt.Sprintf("[%s: this server does not know this type, so this is its JSON: %s]", httpio.Shorten(kind), raw)
}
