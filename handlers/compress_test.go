package handlers_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

func TestPagesAndJSONTravelCompressed(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	for _, c := range []struct {
		name, path string
		header     []string
		compressed bool
	}{
		{"a page", "/", []string{"Accept-Encoding", "gzip, deflate, br"}, true},
		{"the page of presets", "/presets", []string{"Accept-Encoding", "gzip"}, true},
		{"JSON", "/presets", []string{"Accept-Encoding", "gzip", "Accept", "application/json"}, true},
		{"whatever the client takes", "/", []string{"Accept-Encoding", "*;q=0.5"}, true},
		{"a link of the page itself", "/", []string{"Accept-Encoding", "gzip", "Sec-Fetch-Site", "same-origin"}, true},
		{"a typed address", "/", []string{"Accept-Encoding", "gzip", "Sec-Fetch-Site", "none"}, true},
		{"a client that takes none", "/", []string{"Accept-Encoding", "identity"}, false},
		{"a client that refuses it", "/", []string{"Accept-Encoding", "gzip;q=0, *"}, false},
		{"a page that another site leads to", "/?q=secret", []string{"Accept-Encoding", "gzip", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, false},
		{"a page that a site of the same domain leads to", "/", []string{"Accept-Encoding", "gzip", "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, false},
		{"what is small", "/health", []string{"Accept-Encoding", "gzip"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			response, body := get(t, server.URL+c.path, c.header...)
			if response.StatusCode != http.StatusOK {
				t.Fatalf("got %d", response.StatusCode)
			}
			got := response.Header.Get("Content-Encoding") == "gzip"
			if got != c.compressed {
				t.Fatalf("compressed is %v, want %v: %v", got, c.compressed, response.Header)
			}
			if !got {
				return
			}
			if vary := strings.Join(response.Header.Values("Vary"), ","); !strings.Contains(vary, "Accept-Encoding") {
				t.Errorf("Vary is %q", vary)
			}
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			whole, err := io.ReadAll(z)
			if err != nil || len(whole) < 3*len(body)/2 || !(bytes.HasSuffix(bytes.TrimSpace(whole), []byte("</html>")) || bytes.HasSuffix(bytes.TrimSpace(whole), []byte("}"))) {
				t.Errorf("%d bytes became %d: %v", len(body), len(whole), err)
			}
		})
	}
}

func TestErrorsAndEmptyResponsesKeepTheirStatus(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	for path, want := range map[string]int{"/nowhere": http.StatusNotFound, "/c/nowhere": http.StatusNotFound, "/static/x/y.css": http.StatusNotFound} {
		if response, _ := get(t, server.URL+path, "Accept-Encoding", "gzip"); response.StatusCode != want {
			t.Errorf("%s: got %d, want %d", path, response.StatusCode, want)
		}
	}
	head, err := http.NewRequest(http.MethodHead, server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := handlerstest.Do(t, server, head, "Accept-Encoding", "gzip"); got.Status != http.StatusOK || got.Body != "" {
		t.Errorf("HEAD: got %d, %q", got.Status, got.Body)
	}
	if got := handlerstest.Post(t, server, "/presets", "from=precise", "Origin", server.URL, "Content-Type", "application/x-www-form-urlencoded", "Accept-Encoding", "gzip"); got.Status != http.StatusSeeOther {
		t.Errorf("a form: got %d", got.Status)
	}
}

// TestStreamsAreNotCompressed reads a page that grows, and events, byte by byte: each part
// is there before the next one is written.
func TestStreamsAreNotCompressed(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	chat := handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/", url.Values{"text": {"one"}}))
	a := engine.Next(t)
	page := followed(t, server, chat) // Go's client takes gzip, and would take it apart
	for _, word := range []string{"first ", "second ", "third "} {
		a.Write(word)
		page.until(word)
	}
	a.Finish()
	page.until("</html>")
	for _, path := range []string{"/events", "/c/" + chat + "?follow=1"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", "gzip")
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if path == "/events" && response.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is sent as %q", path, response.Header.Get("Content-Encoding"))
		}
	}
}
