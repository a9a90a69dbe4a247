package client

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"m40-llm/infer"
)

func TestWhatAServerMaySendIsBounded(t *testing.T) {
	token := func(bytes int) string {
		return `{"type":"token","token":{"text":"` + strings.Repeat("x", bytes) + `"}}` + "\n"
	}
	for _, c := range []struct {
		name, body string
		events     int // that are taken before the error
		long       bool
	}{
		{"short events", strings.Repeat(token(100), 50) + `{"type":"done","done":{}}`, 51, false},
		{"a long event", token(100) + token(5000), 1, true},
		{"more events than an answer has", strings.Repeat(token(500), 200), 18, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(c.body)) }))
			defer s.Close()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			events := 0
			err := New(Options{Transport: transport, Base: s.URL, MaxEvent: 2000, MaxAnswer: func(infer.Request) int64 { return 10_000 }}).Generate(t.Context(), infer.Request{}, func(infer.Event) bool {
				events++
				return true
			})
			if errors.Is(err, ErrTooLong) != c.long || events != c.events {
				t.Errorf("got %d events and %v", events, err)
			}
		})
	}
}

func TestMoreTextsMayHaveALongerResponse(t *testing.T) {
	vector := strings.Repeat("AAAA", 400)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"model":"m","vectors":["` + vector + `","` + vector + `"],"tokens":[1,1]}`))
	}))
	defer s.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	inputs := []infer.EmbedInput{{Text: "a"}, {Text: "b"}}
	for limit, long := range map[int64]bool{2000: false, 1000: true} {
		got, err := New(Options{Transport: transport, Base: s.URL, MaxBody: 100, MaxVector: limit}).Embed(t.Context(), infer.EmbedRequest{Inputs: inputs})
		if errors.Is(err, ErrTooLong) != long || !long && len(got.Vectors) != 2 {
			t.Errorf("with %d bytes for a vector: got %d vectors and %v", limit, len(got.Vectors), err)
		}
	}
}
