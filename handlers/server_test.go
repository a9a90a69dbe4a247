package handlers

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLimitListener_ARefusedClientIsToldWhyAndWhenToComeBack(t *testing.T) {
	const maxLoopback = 256 // connections of this machine
	cfg := testConfig(&fakeEngine{})
	s := httptest.NewUnstartedServer(nil)
	s.Config = NewServer(New(cfg), cfg.Logger)
	s.Listener = LimitListener(s.Listener, nil, nil)
	s.Start()
	t.Cleanup(s.Close)
	conns := make([]net.Conn, maxLoopback)
	for i := range conns {
		conns[i] = dial(t, s.Listener.Addr().String(), "GET /health HTTP/1.1\nHost: localhost\n\n")
		if _, err := conns[i].Read(make([]byte, 1)); err != nil { // it is accepted
			t.Fatal(err)
		}
	}
	for _, body := range []string{"", hello, strings.Repeat("x", 100_000)} {
		got := post(t, s, "/v1/chat/completions", body, "Connection", "close")
		e := parseError(t, got)
		seconds := got.header.Get("Retry-After")
		if got.status != 503 || e.Code != "too_many_connections" || seconds == "" || !strings.Contains(e.Message, seconds+" seconds") {
			t.Fatalf("with a body of %d bytes: got %d, Retry-After %q: %s", len(body), got.status, seconds, got.body)
		}
		if got.header.Get("Content-Security-Policy") == "" {
			t.Error("the response lacks the security headers")
		}
	}
	conns[0].Close()
	for status := 0; status != http.StatusOK; { // the server takes note of that at some time
		status = call(t, s, "GET", "/health", "", "Connection", "close").status
	}
}
