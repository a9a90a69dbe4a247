package api

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"m40-llm/handlers/httpio"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
)

// This file reads the pictures of llama-server's prompts, which are no messages: a mark in the text says where each is.

// mediaMarker marks a picture in a prompt. GET /props has it, because llama-server makes up another one at each start.
const mediaMarker = "<__media__>"

// mediaPrompt is a prompt with pictures, in llama-server's form.
type mediaPrompt struct {
	Text *string         `json:"prompt_string"`
	Data json.RawMessage `json:"multimodal_data"`
}

// parse returns the prompt, called name in errors.
func (m *mediaPrompt) parse(name string) (p completionPrompt, err error) {
	if m.Text == nil {
		return p, fault.Invalid(name+".prompt_string", "%s.prompt_string is missing: give the text of the prompt", name)
	}
	var list []string
	if given(m.Data) {
		if err := httpio.DecodeJSON(m.Data, name+".multimodal_data", &list); err != nil {
			return p, err
		}
	}
	p.text = *m.Text
	if len(list) == 0 {
		return p, nil
	}
	if n := strings.Count(p.text, mediaMarker); n != len(list) {
		return p, fault.Invalid(name, "%s.multimodal_data has %d files, and %s.prompt_string has %d marks %s of where they stand: give one for each", name, len(list), name, n, mediaMarker)
	}
	for i, encoded := range list {
		data, err := encodedPicture(encoded, fmt.Sprintf("%s.multimodal_data[%d]", name, i))
		if err != nil {
			return p, err
		}
		p.pictures = append(p.pictures, data)
	}
	p.marked = strings.ReplaceAll(chat.WithoutPictureMarks(p.text), mediaMarker, chat.PictureMark)
	return p, nil
}

// encodedPicture returns the file that a text has in base64, alone or as a data: URL.
func encodedPicture(encoded, param string) ([]byte, error) {
	if strings.HasPrefix(encoded, "data:") {
		return dataURL(encoded, param)
	}
	return pictureFile(encoded, param)
}

// numberedPicture is a picture of image_data, the form that llama-server had before multimodal_data.
type numberedPicture struct {
	Data string `json:"data"`
	ID   *int   `json:"id"`
}

// pictureNumber is how a prompt shows a numberedPicture.
var pictureNumber = regexp.MustCompile(`\[img-(\d{1,9})\]`)

// withImageData returns the prompt with the pictures of the field image_data. Each has one or more places in the text.
func (p completionPrompt) withImageData(raw json.RawMessage) (completionPrompt, error) {
	var list []numberedPicture
	if given(raw) {
		if err := httpio.DecodeJSON(raw, "image_data", &list); err != nil {
			return p, err
		}
	}
	switch {
	case len(list) == 0:
		return p, nil
	case p.tokens != nil:
		return p, fault.Invalid("image_data", "image_data needs a prompt that is text with marks such as [img-1], not tokens")
	case p.pictures != nil:
		return p, fault.Invalid("image_data", "image_data and prompt.multimodal_data exclude each other: give one of them")
	}
	files := map[string][]byte{}
	for i, one := range list {
		where := fmt.Sprintf("image_data[%d]", i)
		if one.ID == nil || *one.ID < 0 {
			return p, fault.Invalid(where+".id", "%s.id must be the number by which prompt names the picture, 0 or more", where)
		}
		mark := "[img-" + strconv.Itoa(*one.ID) + "]"
		if files[mark] != nil {
			return p, fault.Invalid(where+".id", "%s.id is %d, which another picture has, too", where, *one.ID)
		}
		if !strings.Contains(p.text, mark) {
			return p, fault.Invalid(where, "%s has no place in prompt: write %s where it stands", where, mark)
		}
		data, err := encodedPicture(one.Data, where+".data")
		if err != nil {
			return p, err
		}
		files[mark] = data
	}
	marked, unknown := chat.WithoutPictureMarks(p.text), ""
	p.marked = pictureNumber.ReplaceAllStringFunc(marked, func(mark string) string {
		data := files[mark]
		if data == nil {
			unknown = mark
			return mark
		}
		p.pictures = append(p.pictures, data)
		return chat.PictureMark
	})
	if unknown != "" {
		return p, fault.Invalid("prompt", "prompt shows %s, and image_data has no picture of this id", unknown)
	}
	return p, nil
}
