package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/stream"
)

// eventClient is a page without a screen that has no websocket.
type eventClient struct {
	t       testing.TB
	server  *httptest.Server
	session string
	body    *bufio.Reader
	ref     int64
}

func openEvents(t testing.TB, server *httptest.Server, query string) *eventClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), handlerstest.Hang)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("got %d, %q", response.StatusCode, got)
	}
	c := &eventClient{t: t, server: server, body: bufio.NewReader(response.Body)}
	var first struct{ Type, Session string }
	if err := json.Unmarshal(c.line(), &first); err != nil || first.Session == "" {
		t.Fatalf("the first frame is %+v, %v", first, err)
	}
	c.session = first.Session
	return c
}

// line returns the next frame as it came.
func (c *eventClient) line() []byte {
	c.t.Helper()
	for {
		line, err := c.body.ReadString('\n')
		if err != nil {
			c.t.Fatalf("the stream ended: %v", err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return []byte(data)
		}
	}
}

// until returns the first frame of a type, and with what it holds if that is not nil.
func (c *eventClient) until(kind string, holds func(f handlerstest.Frame) bool) handlerstest.Frame {
	c.t.Helper()
	for {
		var f handlerstest.Frame
		if err := json.Unmarshal(c.line(), &f); err != nil {
			c.t.Fatal(err)
		}
		if f.Type == kind && (holds == nil || holds(f)) {
			return f
		}
	}
}

func (c *eventClient) send(kind string, fields map[string]any) handlerstest.Response {
	c.t.Helper()
	c.ref++
	command := map[string]any{"type": kind, "ref": c.ref}
	for name, value := range fields {
		command[name] = value
	}
	data, err := json.Marshal(command)
	if err != nil {
		c.t.Fatal(err)
	}
	return handlerstest.Post(c.t, c.server, "/command", string(data), "Origin", c.server.URL, stream.SessionHeader, c.session)
}

// texts are what events say an answer has grown by.
func texts(f handlerstest.Frame) (text string) {
	for _, e := range f.Events {
		if e.Type == live.EventText {
			text += e.Text
		}
	}
	return text
}

func TestEvents_CarryWhatTheWebsocketCarries(t *testing.T) {
	engine := handlerstest.NewScript()
	server := handlerstest.Serve(t, engine)
	c := openEvents(t, server, "")
	c.until("engine", nil)
	if got := c.send("send", map[string]any{"text": "Hello"}); got.Status != http.StatusAccepted {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	ack := c.until("ack", nil)
	snapshot := c.until("snapshot", nil)
	var chat string
	if err := json.Unmarshal(ack.Chat, &chat); err != nil || chat == "" || snapshot.Seq == 0 {
		t.Fatalf("the ack is %s, the snapshot of event %d", ack.Chat, snapshot.Seq)
	}
	answer := engine.Next(t)
	answer.Write("One")
	seq := c.until("events", func(f handlerstest.Frame) bool { return texts(f) == "One" }).Events
	since := seq[len(seq)-1].Seq

	late := openEvents(t, server, fmt.Sprintf("?chat=%s&since=%d", chat, since))
	if f := late.until("resumed", nil); f.Seq != since {
		t.Errorf("resumed at %d, want %d", f.Seq, since)
	}
	answer.Write(" two")
	if f := late.until("events", nil); texts(f) != " two" || f.Events[0].Seq != since+1 {
		t.Errorf("after event %d came %+v", since, f.Events)
	}
	if late.send("stop", nil); late.until("ack", nil).Ref != 1 {
		t.Error("the stop was not acknowledged")
	}
	c.until("events", func(f handlerstest.Frame) bool {
		return slices.ContainsFunc(f.Events, func(e stream.Event) bool { return e.Type == live.EventEnd && e.Answer.State == live.Stopped })
	})
	c.send("nonsense", nil)
	if f := c.until("error", nil); f.Error == nil || f.Error.Param != "type" {
		t.Errorf("nonsense got %+v", f.Error)
	}
}

func TestEvents_CommandsBelongToASessionOfThePage(t *testing.T) {
	server := handlerstest.Serve(t, handlerstest.NewScript())
	c := openEvents(t, server, "")
	const ping = `{"type":"ping","ref":7}`
	for name, try := range map[string]struct {
		body, origin, session string
		status                int
	}{
		"a ping":                {ping, server.URL, c.session, http.StatusAccepted},
		"another site's":        {ping, "http://evil.example", c.session, http.StatusForbidden},
		"an unknown session's":  {ping, server.URL, strings.ToLower(c.session), http.StatusGone},
		"one without a session": {ping, server.URL, "", http.StatusGone},
		"one that is too large": {`{"type":"send","text":"` + strings.Repeat("x", stream.ReadLimit) + `"}`, server.URL, c.session, http.StatusRequestEntityTooLarge},
	} {
		if got := handlerstest.Post(t, server, "/command", try.body, "Origin", try.origin, stream.SessionHeader, try.session); got.Status != try.status {
			t.Errorf("%s: got %d, want %d: %.100s", name, got.Status, try.status, got.Body)
		}
	}
	if got := handlerstest.Post(t, server, "/command", ping, stream.SessionHeader, c.session); got.Status != http.StatusForbidden {
		t.Errorf("a program without an origin: got %d", got.Status)
	}
	if got := handlerstest.Call(t, server, http.MethodGet, "/events", "", "Origin", "http://evil.example"); got.Status != http.StatusForbidden {
		t.Errorf("another site reads the stream: got %d", got.Status)
	}
	if got := handlerstest.Call(t, server, http.MethodGet, "/events?chat=x&since=y", "", "Accept", "application/json"); got.Status != http.StatusBadRequest {
		t.Errorf("since=y: got %d", got.Status)
	}
	gone := openEvents(t, server, "?chat=nowhere")
	if f := gone.until("error", nil); f.Error == nil || f.Error.Code != "chat_not_found" {
		t.Errorf("a chat that is not there: got %+v", f.Error)
	}
}

func TestEvents_EndWithAReason(t *testing.T) {
	engine := handlerstest.NewScript()
	chats := live.New(engine, live.Options{})
	server := httptest.NewServer(handlers.New(handlers.Config{Engine: engine, Live: chats, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	farewell := func(c *eventClient) (f stream.Frame) {
		t.Helper()
		for f.Type != "close" {
			if err := json.Unmarshal(c.line(), &f); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	fast := openEvents(t, server, "")
	for range 10 * stream.Burst { // further ones are allowed while these are sent
		if fast.send("ping", nil).Status == http.StatusGone {
			break
		}
	}
	if f := farewell(fast); f.Code != 1008 {
		t.Errorf("too many commands: %+v", f)
	}
	c := openEvents(t, server, "")
	c.until("engine", nil)
	chats.Close()
	if f := farewell(c); f.Code != 1012 {
		t.Errorf("at the end: %+v", f)
	}
	if _, err := io.ReadAll(c.body); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	if got := c.send("ping", nil); got.Status != http.StatusGone {
		t.Errorf("afterwards a command got %d", got.Status)
	}
}
