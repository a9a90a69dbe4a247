package api

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
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
		return "", fault.Invalid(where, "the model cannot %s: remove %s", what, where)
	}
	if !textParts[p.Type] {
		return "", fault.Invalid(where+".type", "%s.type must be text, not %q", where, httpio.Shorten(p.Type))
	}
	return cmp.Or(p.Text, p.Refusal), nil
}

// seenContent collects the texts and the pictures of a message.
type seenContent struct {
	texts    []string
	marked   strings.Builder // the texts with a mark for each picture
	pictures chat.Message    // no text
	text     bool            // what came last is text
}

func (s *seenContent) addText(text string) {
	s.texts = append(s.texts, text)
	if s.text {
		s.marked.WriteByte('\n')
	}
	s.marked.WriteString(chat.WithoutPictureMarks(text))
	s.text = true
}

func (s *seenContent) addPicture(p infer.Picture) {
	s.text = false
	s.marked.WriteString(chat.PictureMark)
	s.pictures.AddPicture(p.File, p.Detail)
}

// message returns a message with the texts as lines. Where there are pictures, each has a mark.
func (s *seenContent) message() chat.Message {
	if len(s.pictures.Pictures) == 0 {
		return chat.Message{Content: strings.Join(s.texts, "\n")}
	}
	m := s.pictures
	m.Content = s.marked.String()
	return m
}

// parseSeen reads the content of a message that may have pictures, which have marks in the text.
func parseSeen(raw json.RawMessage, param string) (chat.Message, error) {
	return parsePictures(raw, param, pictureOf, plainPart)
}

// parsePictures reads the content of a message: picture reads the parts that are pictures, and text all others.
func parsePictures(raw json.RawMessage, param string, picture func(json.RawMessage, string) (infer.Picture, bool, error), text func(json.RawMessage, string) (string, error)) (chat.Message, error) {
	if firstByte(raw) != '[' {
		content, err := joinParts(raw, param, text)
		return chat.Message{Content: content}, err
	}
	var parts []json.RawMessage
	if err := httpio.DecodeJSON(raw, param, &parts); err != nil {
		return chat.Message{}, err
	}
	var seen seenContent
	for i, part := range parts {
		where := fmt.Sprintf("%s[%d]", param, i)
		shown, is, err := picture(part, where)
		if err != nil {
			return chat.Message{}, err
		}
		if is {
			seen.addPicture(shown)
			continue
		}
		said, err := text(part, where)
		if err != nil {
			return chat.Message{}, err
		}
		seen.addText(said)
	}
	return seen.message(), nil
}

// details are the values of OpenAI's field detail. It has no word for what is between low and high.
var details = map[string]chat.Detail{"": chat.Full, "auto": chat.Full, "high": chat.Full, "original": chat.Full, "medium": chat.Medium, "low": chat.Low}

func parseDetail(name, param string) (chat.Detail, error) {
	d, known := details[name]
	if !known {
		return d, fault.Invalid(param, "%s must be low, medium, high or auto, not %q", param, httpio.Shorten(name))
	}
	return d, nil
}

// pictureOf returns the picture of a part that is one: image_url of OpenAI's chat completions, input_image of its
// responses, image of Anthropic's messages.
func pictureOf(raw json.RawMessage, where string) (shown infer.Picture, is bool, err error) {
	var p struct {
		contentPart
		Detail string          `json:"detail"`
		FileID string          `json:"file_id"`
		Source json.RawMessage `json:"source"`
	}
	if json.Unmarshal(raw, &p) != nil {
		return shown, false, nil
	}
	switch p.Type {
	case "image_url", "input_image":
		if p.FileID != "" {
			return shown, true, fault.Invalid(where+".file_id", "%s.file_id is not supported, because this server stores no files: send the picture itself as a data: URL in image_url", where)
		}
		if shown, err = p.picture(where + ".image_url"); err == nil && p.Type == "input_image" {
			shown.Detail, err = parseDetail(p.Detail, where+".detail")
		}
		return shown, true, err
	case "image":
		shown.File, err = pictureSource(p.Source, where+".source")
		return shown, true, err
	}
	return shown, false, nil
}

// pictureSource returns the file of the source of an image of Anthropic's API.
func pictureSource(raw json.RawMessage, param string) ([]byte, error) {
	var source struct {
		Type string `json:"type"`
		Data string `json:"data"`
		URL  string `json:"url"`
	}
	if err := httpio.DecodeJSON(raw, param, &source); err != nil {
		return nil, err
	}
	switch source.Type {
	case "base64":
		return pictureFile(source.Data, param+".data")
	case "url":
		return dataURL(source.URL, param+".url")
	}
	return nil, fault.Invalid(param+".type", "%s.type must be base64 or url, not %q", param, httpio.Shorten(source.Type))
}

// picture returns the picture of an image_url.
func (p *contentPart) picture(param string) (shown infer.Picture, err error) {
	var url string
	if firstByte(p.ImageURL) == '{' {
		var object struct {
			URL    string `json:"url"`
			Detail string `json:"detail"`
		}
		if err := httpio.DecodeJSON(p.ImageURL, param, &object); err != nil {
			return shown, err
		}
		if shown.Detail, err = parseDetail(object.Detail, param+".detail"); err != nil {
			return shown, err
		}
		url, param = object.URL, param+".url"
	} else if err := httpio.DecodeJSON(p.ImageURL, param, &url); err != nil {
		return shown, err
	}
	shown.File, err = dataURL(url, param)
	return shown, err
}

// dataURL returns the file in a data: URL; of an http or https address the address itself, which showPictures replaces.
func dataURL(url, param string) ([]byte, error) {
	head, encoded, ok := strings.Cut(url, ",")
	switch {
	case isAddress(url):
		return []byte(url), nil
	case !strings.HasPrefix(head, "data:"):
		return nil, fault.Invalid(param, "%s must be a data: URL with the picture itself, or an https address", param)
	case !ok || !strings.HasSuffix(head, ";base64"):
		return nil, fault.Invalid(param, "%s must have the picture in base64: data:image/png;base64,…", param)
	}
	return pictureFile(encoded, param)
}

// pictureFile returns the file that a text has in base64.
func pictureFile(encoded, param string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fault.Invalid(param, "%s is not valid base64: %s", param, err)
	}
	return data, nil
}

// parseSeenResult reads the result of a call, which may have pictures. A program made it, so parts of other types and pictures
// that cannot be read are not refused: they become text that says what was there.
func parseSeenResult(raw json.RawMessage, param string) (chat.Message, error) {
	picture := func(part json.RawMessage, where string) (infer.Picture, bool, error) {
		shown, is, err := pictureOf(part, where)
		return shown, is && err == nil, nil
	}
	return parsePictures(raw, param, picture, resultPart)
}

// parseDocument reads the parts of a document as lines. It reads no documents in it: each level would
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
		return "", fault.Invalid(param, "%s must be a string, null or an array of parts", param)
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
