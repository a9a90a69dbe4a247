package handlerstest

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/page"
	"m40-llm/handlers/people"
)

// Submit sends a form as a browser does.
func Submit(t testing.TB, server *httptest.Server, path string, fields url.Values) Response {
	t.Helper()
	return Post(t, server, path, fields.Encode(), "Origin", server.URL, "Content-Type", "application/x-www-form-urlencoded")
}

// ChatOf is the chat that a form has led to.
func ChatOf(t testing.TB, r Response) string {
	t.Helper()
	chat, _, found := strings.Cut(strings.TrimPrefix(r.Header.Get("Location"), "/c/"), "?follow=1#end")
	if r.Status != http.StatusSeeOther || !found {
		t.Fatalf("got %d to %q: %.300s", r.Status, r.Header.Get("Location"), r.Body)
	}
	return chat
}

// PostForm posts the fields of a page's own form.
func PostForm(t testing.TB, server *httptest.Server, path, body string) Response {
	t.Helper()
	return Post(t, server, path, body, "Origin", server.URL, "Content-Type", "application/x-www-form-urlencoded", "Accept", BrowserAccept)
}

// PostScripted posts JSON as the page's scripts do.
func PostScripted(t testing.TB, server *httptest.Server, path, body string) Response {
	t.Helper()
	return Post(t, server, path, body, "Origin", server.URL, "Content-Type", "application/json", "Accept", "application/json")
}

// PresetsOf returns the presets as the page lists them.
func PresetsOf(t testing.TB, server *httptest.Server) (list []page.Preset) {
	t.Helper()
	got := Call(t, server, http.MethodGet, "/presets", "", "Accept", "application/json")
	var body struct{ Presets []page.Preset }
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
		t.Fatalf("%v: %s", err, got.Body)
	}
	return body.Presets
}

// LogIn lets a new device of a person in by the form, and returns its cookie.
func LogIn(t *testing.T, s *httptest.Server, known *people.Service, person string, elsewhere []string) (cookie string) {
	t.Helper()
	made, err := known.Invite(t.Context(), access.Local, person)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"key": {made.Code}}.Encode()
	got := Post(t, s, "/login", form, append(elsewhere, "Content-Type", "application/x-www-form-urlencoded")...)
	set, err := http.ParseSetCookie(got.Header.Get("Set-Cookie"))
	if err != nil || got.Status != http.StatusSeeOther {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	return set.Name + "=" + set.Value
}

// BrowserAccept is the Accept header with which browsers ask for pages.
const BrowserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// FromAddress has all requests to a server come from an address, and over TLS if encrypted.
func FromAddress(s *httptest.Server, address string, encrypted bool) {
	inner := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = address
		if encrypted {
			r.TLS = &tls.ConnectionState{}
		}
		inner.ServeHTTP(w, r)
	})
}
