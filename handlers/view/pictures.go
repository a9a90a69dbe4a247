package view

import (
	"m40-llm/store"
	"m40-llm/web"
)

// Pictures describes the pictures of a message of the chat at a path, such as /c/ID.
func Pictures(path string, list []store.Picture) (pictures []web.Picture) {
	for _, p := range list {
		pictures = append(pictures, web.Picture{URL: path + "/pictures/" + p.Hash, Width: p.Width, Height: p.Height, Detail: p.Detail})
	}
	return pictures
}
