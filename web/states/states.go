// Package states has the storybook: each state of the page's components, rendered by the components
// themselves with fixed data. Only make dev serves it, and tests compare what it shows.
package states

import (
	"bytes"
	_ "embed"
	"html"
	"net/http"
	"regexp"
	"strings"

	"github.com/a-h/templ"

	"m40-llm/web"
)

// Path is the address of the storybook; that of a state follows it and a slash.
const Path = "/dev/states"

// State is a state of a component.
type State struct {
	Name      string // of its address and its pictures
	Component templ.Component
	Script    bool // states.js shows it in the page of Component, by the scripts of the page
}

//go:embed states.js
var script []byte

// All returns all states: first those that the server renders, then those that scripts show.
func All() []State {
	list := rendered()
	for _, name := range scripted {
		list = append(list, State{Name: name, Component: web.Playground(chat()), Script: true})
	}
	return list
}

var scriptOfPage = regexp.MustCompile(`<script type="module" src="[^"]*"></script>`)

// Page returns the page of a state. The scripts that would connect it to a server are left out.
func (s State) Page(r *http.Request) ([]byte, error) {
	var page bytes.Buffer
	if err := s.Component.Render(r.Context(), &page); err != nil {
		return nil, err
	}
	with := ""
	if s.Script {
		with = `<script type="module" src="` + Path + `/states.js"></script>`
	}
	return scriptOfPage.ReplaceAll(page.Bytes(), []byte(with)), nil
}

// Handler serves the list of the states, and each state.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) { send(w, "text/html; charset=utf-8", index()) })
	mux.HandleFunc("GET "+Path+"/states.js", func(w http.ResponseWriter, _ *http.Request) { send(w, "text/javascript; charset=utf-8", script) })
	for _, s := range All() {
		mux.HandleFunc("GET "+Path+"/"+s.Name, func(w http.ResponseWriter, r *http.Request) {
			page, err := s.Page(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			send(w, "text/html; charset=utf-8", page)
		})
	}
	return mux
}

func send(w http.ResponseWriter, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body) // a client that is gone needs nothing
}

// index is the list of all states.
func index() []byte {
	var list strings.Builder
	list.WriteString(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>States</title>` +
		`<link rel="stylesheet" href="` + web.AssetPath("tokens.css") + `"><link rel="stylesheet" href="` + web.AssetPath("app.css") + `"></head><body><main class="lone"><h1>States</h1><ul>`)
	for _, s := range All() {
		name := html.EscapeString(s.Name)
		list.WriteString(`<li><a href="` + Path + `/` + name + `">` + name + `</a></li>`)
	}
	list.WriteString(`</ul></main></body></html>`)
	return []byte(list.String())
}
