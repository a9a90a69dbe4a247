package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
)

const (
	seenBelow = "[picture, shown in the next message]"
	unseen    = "[image: left out, the model cannot see images]"
)

// showPictures prepares the pictures of a request for its model. Templates show the pictures of people's messages alone, so
// those of results of tools come into the next one. If the model is known to see none, results have a text in their
// place, because a program made them, and a picture of a person is an error that names a model which sees.
func (api *API) showPictures(ctx context.Context, r *infer.Request) error {
	pictures, field := r.AllPictures()
	if api.gate.Trusted() || len(pictures) == 0 {
		return nil
	}
	blind := api.list.Sight(ctx, api.modelName(r.Model))
	if known, ok := errors.AsType[*fault.Error](blind); ok {
		known.Param = field
	}
	if len(r.Messages) == 0 {
		return blind
	}
	var list []chat.Message
	var below []infer.Picture // for the next message of a person
	for _, m := range r.Messages {
		if m.Role == "tool" {
			if hasPictures(m) {
				text := seenBelow
				if blind != nil {
					text = unseen
				} else {
					below = append(below, picturesOf(m)...)
				}
				m.Content, m.Pictures, m.Details = strings.ReplaceAll(m.Content, chat.PictureMark, text), nil, nil
			}
			list = append(list, m)
			continue
		}
		if hasPictures(m) && blind != nil {
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
	return api.fetchPictures(ctx, list)
}

// Limits of the pictures that are fetched for a request.
const (
	maxFetched   = 16
	fetchedBytes = 40 << 20 // of all
	fetchedFile  = 20 << 20
	fetchTime    = 30 * time.Second // of all
)

// isAddress reports whether what is given as a picture is where it lies. No picture file begins so.
func isAddress[T string | []byte](picture T) bool {
	head := strings.ToLower(string(picture[:min(len(picture), len("https://"))]))
	return strings.HasPrefix(head, "http://") || head == "https://"
}

// fetchPictures replaces addresses of pictures by their files.
func (api *API) fetchPictures(ctx context.Context, list []chat.Message) error {
	limited, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	number, left := 0, fetchedBytes
	for i := range list {
		if slices.ContainsFunc(list[i].Pictures, isAddress) {
			list[i].Pictures = slices.Clone(list[i].Pictures)
		}
		for k, picture := range list[i].Pictures {
			if !isAddress(picture) {
				continue
			}
			if number++; api.fetch == nil {
				return fault.Invalid("messages", "the picture at %s is not fetched, because this server asks no other addresses: send the picture itself as a data: URL or in base64, or start the server with --image-urls", httpio.Shorten(string(picture)))
			}
			if number > maxFetched {
				return fault.Invalid("messages", "the messages have more than %d addresses of pictures: send pictures themselves as data: URLs or in base64", maxFetched)
			}
			file, err := api.fetch(limited, string(picture), int64(min(left, fetchedFile)))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if limited.Err() != nil {
				return fault.Invalid("messages", "the picture at %s did not come within %s: send the picture itself as a data: URL or in base64", httpio.Shorten(string(picture)), fetchTime)
			}
			if err != nil {
				return fault.Invalid("messages", "the picture at %s cannot be fetched: %s", httpio.Shorten(string(picture)), err)
			}
			list[i].Pictures[k] = file
			left -= len(file)
		}
	}
	return nil
}

func hasPictures(m chat.Message) bool { return len(m.Pictures) > 0 }

// picturesOf returns the pictures of a message.
func picturesOf(m chat.Message) []infer.Picture {
	list, _ := (&infer.Request{Messages: []chat.Message{m}}).AllPictures()
	return list
}

// withPictures returns m with pictures before what it has.
func withPictures(m chat.Message, pictures []infer.Picture) chat.Message {
	if !hasPictures(m) {
		m.Content = chat.WithoutPictureMarks(m.Content)
	}
	var all chat.Message
	for _, p := range slices.Concat(pictures, picturesOf(m)) {
		all.AddPicture(p.File, p.Detail)
	}
	m.Content = strings.Repeat(chat.PictureMark, len(pictures)) + m.Content
	m.Pictures, m.Details = all.Pictures, all.Details
	return m
}
