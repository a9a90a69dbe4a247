package api

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/infer/chat"
)

// This file reads the content of messages, which is text in several forms.

// contentPart is one element of a content array.
type contentPart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`

	ImageURL json.RawMessage `json:"image_url" schema:"string|object"` // {"url":"data:…"}, or the URL alone
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
	return joinParts(raw, param, plainPart)
}

// plainPart returns the text of a part that must be text.
func plainPart(part json.RawMessage, where string) (string, error) {
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
}

// parseSeen reads the content of a message that may have pictures, which have marks in the text.
func parseSeen(raw json.RawMessage, param string) (content string, pictures [][]byte, err error) {
	var parts []json.RawMessage
	if firstByte(raw) == '[' {
		if err := httpio.DecodeJSON(raw, param, &parts); err != nil {
			return "", nil, err
		}
	}
	var b strings.Builder
	text := false // the last part is text
	for i, part := range parts {
		where := fmt.Sprintf("%s[%d]", param, i)
		var p contentPart
		if json.Unmarshal(part, &p) == nil && p.Type == "image_url" {
			data, err := p.picture(where + ".image_url")
			if err != nil {
				return "", nil, err
			}
			pictures, text = append(pictures, data), false
			b.WriteString(chat.PictureMark)
			continue
		}
		s, err := plainPart(part, where)
		if err != nil {
			return "", nil, err
		}
		if text {
			b.WriteByte('\n')
		}
		b.WriteString(chat.WithoutPictureMarks(s))
		text = true
	}
	if len(pictures) == 0 {
		content, err = parseContent(raw, param)
		return content, nil, err
	}
	return b.String(), pictures, nil
}

// picture returns the file of the picture of an image_url.
func (p *contentPart) picture(param string) ([]byte, error) {
	var url string
	if firstByte(p.ImageURL) == '{' {
		var object struct {
			URL string `json:"url"`
		}
		if err := httpio.DecodeJSON(p.ImageURL, param, &object); err != nil {
			return nil, err
		}
		url, param = object.URL, param+".url"
	} else if err := httpio.DecodeJSON(p.ImageURL, param, &url); err != nil {
		return nil, err
	}
	head, encoded, ok := strings.Cut(url, ",")
	switch {
	case !strings.HasPrefix(head, "data:"):
		return nil, failure.Invalid(param, "%s must be a data: URL with the picture itself; this server does not fetch pictures from other addresses", param)
	case !ok || !strings.HasSuffix(head, ";base64"):
		return nil, failure.Invalid(param, "%s must have the picture in base64: data:image/png;base64,…", param)
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, failure.Invalid(param, "%s is not valid base64: %s", param, err)
	}
	return data, nil
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
