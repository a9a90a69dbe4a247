package handlers_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
)

func TestLimitListener_ARefusedClientIsToldWhyAndWhenToComeBack(t *testing.T) {
	const maxLoopback = 256 // connections of this machine
	cfg := handlerstest.TestConfig(t, &handlerstest.FakeEngine{})
	s := httptest.NewUnstartedServer(nil)
	s.Config = handlers.NewServer(handlers.New(cfg), cfg.Logger)
	s.Listener = handlers.LimitListener(s.Listener, nil, nil)
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
		got := handlerstest.Post(t, s, "/v1/chat/completions", body, "Connection", "close")
		e := parseError(t, got)
		seconds := got.Header.Get("Retry-After")
		if got.Status != 503 || e.Code != "too_many_connections" || seconds == "" || !strings.Contains(e.Message, seconds+" seconds") {
			t.Fatalf("with a body of %d bytes: got %d, Retry-After %q: %s", len(body), got.Status, seconds, got.Body)
		}
		if got.Header.Get("Content-Security-Policy") == "" {
			t.Error("the response lacks the security headers")
		}
	}
	conns[0].Close()
	for status := 0; status != http.StatusOK; { // the server takes note of that at some time
		status = handlerstest.Call(t, s, "GET", "/health", "", "Connection", "close").Status
	}
}
