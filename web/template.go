package web

import (
	"net/url"

	"github.com/a-h/templ"
)

// ChatTemplate is the page on which the chat template of a model is edited.
type ChatTemplate struct {
	Name   string // of the model, in requests
	Source string // as it is edited
	Own    string // path of the file that replaces the template of the model's file; empty: none does
	Fixed  string // why it cannot be changed here, as a sentence; empty: it can

	Chats []Fact // chats to preview it on: title and id
	Chat  string // id of the one that is shown; empty: a short conversation

	Preview string // the prompt that it makes
	Tokens  string // of Preview, with their unit
	Notes   []string
	Problem string // why there is no preview, or nothing was saved
	Saved   bool
}

// TemplateAddress is the address of the page for the model called name.
func TemplateAddress(name string) templ.SafeURL {
	return templ.SafeURL("/models/template?name=" + url.QueryEscape(name))
}
