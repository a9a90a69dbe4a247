package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nhooyr.io/websocket"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown"
	"m40-llm/handlers/stream"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
)

// smallBuffers makes a client that takes little into its buffers: those of loopback
// would hide that it does not read.
func smallBuffers(t testing.TB) func(*websocket.DialOptions) {
	dialer := &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if outer := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }); outer != nil {
			return outer
		}
		return err
	}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return func(o *websocket.DialOptions) { o.HTTPClient = &http.Client{Transport: transport} }
}

func TestSocket_AnAnswerIsWholeAfterManyReloads(t *testing.T) {
	engine := handlerstest.NewScript()
	server := handlerstest.Serve(t, engine)
	first := handlerstest.DialSocket(t, server)
	first.Do("send", map[string]any{"text": "go"})
	answer := engine.Next(t)
	first.Until("the chat", func() bool { return first.Chat != "" })

	reloads := 50
	if fixtures.Torture() {
		reloads = 500
	}
	words := []string{"word ", "two words ", "\n\n", "- item\n", "```\ncode\n```\n", "# head\n", "*em* "}
	random := rand.New(rand.NewPCG(1, 2))
	var whole strings.Builder
	seq, text, tail, html := int64(0), "", "", ""
	resumed := 0
	for reload := range reloads {
		c := handlerstest.DialSocket(t, server)
		fresh := reload%2 == 0 // a reload has nothing; a phone that slept has its page
		if fresh {
			c.Do("open", map[string]any{"chat": first.Chat})
		} else {
			c.Seq = seq
			c.Branch = []int64{1, 2}
			c.Answers[2] = &handlerstest.ShownAnswer{Text: text, Tail: tail, HTML: html, State: live.Writing}
			c.Do("open", map[string]any{"chat": first.Chat, "since": seq})
		}
		c.Until("the chat", func() bool { return c.Chat != "" || c.Resumed > 0 })
		for range random.IntN(20) {
			word := words[random.IntN(len(words))]
			whole.WriteString(word)
			answer.Write(word)
		}
		c.Until("what was written", func() bool { return c.Answers[2] != nil && len(c.Answers[2].Text) >= whole.Len()-random.IntN(20) })
		a := c.Answers[2]
		seq, text, tail, html = c.Seq, a.Text, a.Tail, a.HTML
		resumed += c.Resumed
		if !strings.HasPrefix(whole.String(), text) || !strings.HasSuffix(text, tail) {
			t.Fatalf("after reload %d the page has %q (tail %q), written was %q", reload, text, tail, whole.String())
		}
		_ = c.Conn.CloseNow()
	}
	answer.Finish()
	for _, since := range []int64{0, seq} {
		c := handlerstest.DialSocket(t, server)
		if since > 0 {
			c.Seq = seq
			c.Answers[2] = &handlerstest.ShownAnswer{Text: text, Tail: tail, HTML: html, State: live.Writing}
		}
		c.Do("open", map[string]any{"chat": first.Chat, "since": since})
		c.Until("the end", c.Ended)
		if got := c.Answers[2].Text; got != whole.String() {
			t.Errorf("opened since %d the answer has %d bytes, want %d", since, len(got), whole.Len())
		}
		if got, want := c.Answers[2].HTML, markdown.Answer(t.Context(), "", whole.String()); got != want {
			t.Errorf("opened since %d the answer reads\n%s\nwant\n%s", since, got, want)
		}
	}
	if resumed != reloads/2 {
		t.Errorf("%d of %d readers that came back were spared the snapshot", resumed, reloads/2)
	}
}

// TestSocket_AStalledReaderHoldsUpNobody lets one reader stall where no write ever times
// out, so that whoever waited for it would wait for good; and another one where writes do,
// through a server of its own, since a busy machine makes any reader as slow.
func TestSocket_AStalledReaderHoldsUpNobody(t *testing.T) {
	engine := handlerstest.NewScript()
	log := slog.New(slog.DiscardHandler)
	chats := live.New(engine, live.Options{})
	serveWith := func(timeout time.Duration) *httptest.Server {
		s := httptest.NewServer(handlers.New(handlers.Config{Engine: engine, Live: chats, Logger: log, WriteTimeout: timeout}))
		t.Cleanup(s.Close)
		return s
	}
	server, strict := serveWith(time.Hour), serveWith(2*time.Second)
	t.Cleanup(chats.Close)

	const readers, rounds, tokens = 16, 30, 10 // tokens of each round
	clients := make([]*handlerstest.SocketClient, readers)
	answers := make([]*handlerstest.ScriptedAnswer, readers)
	for i := range clients {
		clients[i] = handlerstest.DialSocket(t, server)
		clients[i].Do("send", map[string]any{"text": fmt.Sprint("chat ", i)})
		clients[i].Until("the chat", func() bool { return clients[i].Chat != "" })
		answers[i] = engine.Next(t)
	}
	stalled := []*handlerstest.SocketClient{handlerstest.DialSocket(t, server, smallBuffers(t)), handlerstest.DialSocket(t, strict, smallBuffers(t))}
	for _, c := range stalled {
		c.Do("open", map[string]any{"chat": clients[0].Chat})
	}

	var all sync.WaitGroup
	piece := strings.Repeat("x", 1023) + " "
	for i := range clients {
		size := 1 // the chat that the stalled readers follow gets 5 MiB in all
		if i == 0 {
			size = 16
		}
		all.Go(func() {
			c := clients[i]
			received := func() int {
				if a := c.Last(); a != nil {
					return len(a.Text)
				}
				return 0
			}
			for round := range rounds {
				for range tokens {
					answers[i].Write(strings.Repeat(piece, size))
				}
				for received() < (round+1)*tokens*size*len(piece) {
					if _, err := c.Read(); err != nil {
						t.Errorf("reader %d, round %d: %v", i, round, err)
						return
					}
				}
			}
			answers[i].Finish()
			for !c.Ended() {
				if _, err := c.Read(); err != nil {
					t.Errorf("reader %d, at the end: %v", i, err)
					return
				}
			}
			if got := c.Last().End.Tokens; got != rounds*tokens {
				t.Errorf("reader %d was told of %d tokens, want %d", i, got, rounds*tokens)
			}
		})
	}
	all.Wait()
	for _, c := range stalled {
		if _, err := io.Copy(io.Discard, endlessReader{c}); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stalled reader was not cut off: %v", err)
		}
		if a := c.Last(); a != nil && !a.State.Running() {
			t.Error("a stalled reader got everything, so it was never stalled")
		}
	}
}

// endlessReader reads messages until the connection ends.
type endlessReader struct{ *handlerstest.SocketClient }

func (r endlessReader) Read([]byte) (int, error) {
	_, err := r.SocketClient.Read()
	return 0, err
}

func TestSocket_OriginMustBePresentAndEqual(t *testing.T) {
	server := handlerstest.Serve(t, handlerstest.NewScript())
	for _, c := range []struct {
		name   string
		origin []string
		host   string
		want   int
	}{
		{"its own origin is let in", []string{server.URL}, "", http.StatusSwitchingProtocols},
		{"no origin is refused", nil, "", http.StatusForbidden},
		{"another site is refused", []string{"http://evil.example"}, "", http.StatusForbidden},
		{"another port is refused", []string{"http://127.0.0.1:1"}, "", http.StatusForbidden},
		{"another scheme is refused", []string{strings.Replace(server.URL, "http:", "https:", 1)}, "", http.StatusForbidden},
		{"null is refused", []string{"null"}, "", http.StatusForbidden},
		{"a file is refused", []string{"file://"}, "", http.StatusForbidden},
		{"two origins are refused", []string{server.URL, server.URL}, "", http.StatusForbidden},
		{"a name that was pointed here is refused", []string{"http://evil.example"}, "evil.example", http.StatusMisdirectedRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, response, err := websocket.Dial(context.Background(), server.URL+"/ws", &websocket.DialOptions{
				HTTPHeader: http.Header{"Origin": c.origin}, Host: c.host, HTTPClient: server.Client(),
			})
			if conn != nil {
				_ = conn.CloseNow()
			}
			if response == nil || response.StatusCode != c.want {
				t.Errorf("got %v (%v), want %d", response, err, c.want)
			}
		})
	}
	t.Run("a plain request is told what is missing", func(t *testing.T) {
		r, err := http.NewRequest(http.MethodGet, server.URL+"/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", server.URL)
		if got := handlerstest.Do(t, server, r).Status; got != http.StatusUpgradeRequired {
			t.Errorf("got %d", got)
		}
	})
}

func TestSocket_AbuseEndsTheConnection(t *testing.T) {
	server := handlerstest.Serve(t, handlerstest.NewScript())
	for _, c := range []struct {
		name  string
		abuse func(*handlerstest.SocketClient)
		want  websocket.StatusCode
	}{
		{"too many commands", func(c *handlerstest.SocketClient) {
			for range 10 * stream.Burst {
				c.Ref++
				_ = c.Conn.Write(context.Background(), websocket.MessageText, fmt.Appendf(nil, `{"type":"ping","ref":%d}`, c.Ref))
			}
		}, websocket.StatusPolicyViolation},
		{"a message that is too large", func(c *handlerstest.SocketClient) {
			_ = c.Conn.Write(context.Background(), websocket.MessageText, []byte(strings.Repeat(" ", stream.ReadLimit+1)))
		}, websocket.StatusMessageTooBig},
		{"a message that is not text", func(c *handlerstest.SocketClient) {
			_ = c.Conn.Write(context.Background(), websocket.MessageBinary, []byte("{}"))
		}, websocket.StatusUnsupportedData},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := handlerstest.DialSocket(t, server)
			c.abuse(client)
			if got := client.Farewell(); got != c.want {
				t.Errorf("the connection ended with %d, want %d", got, c.want)
			}
		})
	}
}

func TestSocket_CommandsThatAreRefused(t *testing.T) {
	engine := handlerstest.NewScript()
	server := handlerstest.Serve(t, engine)
	client := handlerstest.DialSocket(t, server)
	refused := func(name, kind string, fields map[string]any, code fault.Code, param string) {
		t.Run(name, func(t *testing.T) {
			f := client.Reply(client.Send(kind, fields))
			if f.Error == nil || f.Error.Code != code || f.Error.Param != param || f.Error.Title == "" || f.Error.Message == "" {
				t.Errorf("got %+v", f.Error)
			}
		})
	}
	invalid := fault.CodeInvalid
	refused("an unknown command", "fly", nil, invalid, "chat")
	refused("an unknown field", "ping", map[string]any{"colour": "red"}, invalid, "")
	refused("a field of the wrong kind", "send", map[string]any{"text": 7}, invalid, "text")
	refused("a setting of the wrong kind", "send", map[string]any{"text": "a", "settings": map[string]any{"top_k": "many"}}, invalid, "top_k")
	refused("a setting out of range", "send", map[string]any{"text": "a", "settings": map[string]any{"temperature": 101}}, invalid, "temperature")
	refused("an empty message", "send", map[string]any{"text": " "}, invalid, "text")
	refused("a chat that is not there", "open", map[string]any{"chat": "nowhere"}, "chat_not_found", "")
	refused("a command without a chat", "stop", nil, invalid, "chat")
	client.Do("send", map[string]any{"text": "go"})
	answer := engine.Next(t)
	refused("a question while an answer is written", "send", map[string]any{"text": "more"}, "conflict", "")
	refused("stopping another answer", "stop", map[string]any{"answer": 99}, "conflict", "")
	refused("an unknown command in a chat", "fly", nil, invalid, "type")
	answer.Write("Hi")
	client.Do("stop", map[string]any{"answer": 2})
	client.Until("the end", client.Ended)
	if a := client.Last(); a.Text != "Hi" || a.State != live.Stopped {
		t.Errorf("after the stop the answer is %q, %s", a.Text, a.State)
	}
	client.Do("regenerate", map[string]any{"settings": map[string]any{"seed": 7}})
	client.Until("the new answer", func() bool { return client.Answers[3] != nil })
	answer = engine.Next(t)
	if answer.Request.Params.Seed != 7 {
		t.Errorf("the seed is %d, want 7", answer.Request.Params.Seed)
	}
	answer.Fail(errors.New("secret path /root"))
	client.Until("the end", client.Ended)
	if message := client.Last().End.Error.Message; strings.Contains(message, "secret") {
		t.Errorf("the page was told %q", message)
	}
}

func TestSocket_AnAnswerGoesOnWhenEverybodyLeaves(t *testing.T) {
	engine := handlerstest.NewScript()
	server := handlerstest.Serve(t, engine)
	client := handlerstest.DialSocket(t, server)
	client.Do("send", map[string]any{"text": "go"})
	client.Until("the chat", func() bool { return client.Chat != "" })
	answer := engine.Next(t)
	answer.Write("before ")
	_ = client.Conn.CloseNow()
	answer.Write("after")
	answer.Finish()
	back := handlerstest.DialSocket(t, server)
	back.Do("open", map[string]any{"chat": client.Chat})
	back.Until("the end", back.Ended)
	if got := back.Last().Text; got != "before after" {
		t.Errorf("the answer is %q", got)
	}
}

func TestSocket_TheEngineIsShownWhenItChanges(t *testing.T) {
	engine := handlerstest.NewScript()
	client := handlerstest.DialSocket(t, handlerstest.Serve(t, engine))
	client.Until("the engine", func() bool { return client.Engine["state_text"] == "ready" })
	engine.Set(func(s *infer.Status) { s.State, s.Loading = infer.StateLoading, infer.Loading{Done: 1, Total: 4} })
	client.Until("a quarter", func() bool { return client.Engine["state_text"] == "loading, 25 %" })
}

func TestSocket_ShutdownSaysSo(t *testing.T) {
	engine := handlerstest.NewScript()
	log := slog.New(slog.DiscardHandler)
	chats := live.New(engine, live.Options{})
	server := httptest.NewServer(handlers.New(handlers.Config{Engine: engine, Live: chats, Logger: log}))
	t.Cleanup(server.Close)
	client := handlerstest.DialSocket(t, server)
	client.Do("ping", nil)
	chats.Close()
	if got := client.Farewell(); got != websocket.StatusServiceRestart {
		t.Errorf("the connection ended with %d", got)
	}
}
