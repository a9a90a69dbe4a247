package api

import (
	"context"
	"errors"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/chat"
)

const (
	seenBelow = "[picture, shown in the next message]"
	unseen    = "[image: left out, the model cannot see images]"
)

// showPictures prepares the pictures of a request for its model. Templates show the pictures of people's messages alone, so
// those of results of tools come into the next one. If the model is known to see none, results have a text in their
// place, because a program made them, and a picture of a person is an error that names a model which sees.
func (api *API) showPictures(ctx context.Context, r *infer.Request) error {
	if api.gate.Trusted() || !slices.ContainsFunc(r.Messages, hasPictures) {
		return nil
	}
	blind := api.list.Sight(ctx, api.modelName(r.Model))
	var list []chat.Message
	var below [][]byte // pictures for the next message of a person
	for _, m := range r.Messages {
		if m.Role == "tool" {
			if hasPictures(m) {
				text := seenBelow
				if blind != nil {
					text = unseen
				} else {
					below = append(below, m.Pictures...)
				}
				m.Content, m.Pictures = strings.ReplaceAll(m.Content, chat.PictureMark, text), nil
			}
			list = append(list, m)
			continue
		}
		if hasPictures(m) && blind != nil {
			var known *infer.Error
			if errors.As(blind, &known) {
				known.Param = "messages"
			}
			return blind
		}
		if len(below) > 0 {
			if m.Role != "user" {
				list = append(list, withPictures(chat.Message{Role: "user"}, below))
			} else {
				m = withPictures(m, below)
			}
			below = nil
		}
		list = append(list, m)
	}
	if len(below) > 0 {
		list = append(list, withPictures(chat.Message{Role: "user"}, below))
	}
	r.Messages = list
	return nil
}

func hasPictures(m chat.Message) bool { return len(m.Pictures) > 0 }

// withPictures returns m with pictures before what it has.
func withPictures(m chat.Message, pictures [][]byte) chat.Message {
	if !hasPictures(m) {
		m.Content = chat.WithoutPictureMarks(m.Content)
	}
	m.Content = strings.Repeat(chat.PictureMark, len(pictures)) + m.Content
	m.Pictures = slices.Concat(pictures, m.Pictures)
	return m
}
