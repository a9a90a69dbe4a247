package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nhooyr.io/websocket"

	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown"
	"m40-llm/handlers/markdown/markdowntest"
	"m40-llm/handlers/stream"
	"m40-llm/infer"
)

// socketClient is a page without a screen.
type socketClient struct {
	t        testing.TB
	conn     *websocket.Conn
	ref      int64
	chat     string
	seq      int64
	title    string
	branch   []int64          // ids of the messages shown
	messages map[int64]string // texts of questions
	versions map[int64]stream.Versions
	answers  map[int64]*shownAnswer
	engine   map[string]any
	resumed  int // how often no snapshot was needed
	replay   *stream.Replay
	panel    stream.Event // the last that told of one
	keyboard *stream.Keyboard
	authors  map[string]string // of questions, by their text
}

// shownAnswer is an answer as a page has it.
type shownAnswer struct {
	text, reasoning, tail string
	html                  string
	state                 live.AnswerState
	end                   *stream.Answer
}

// frame is any message to the page.
type frame struct {
	Type   string
	Ref    int64
	Seq    int64
	Chat   json.RawMessage
	Error  *stream.Error
	Engine map[string]any
	Events []stream.Event

	Keyboard *stream.Keyboard

	Before   int64
	Messages []stream.Message
	More     bool
}

func dialSocket(t testing.TB, server *httptest.Server, options ...func(*websocket.DialOptions)) *socketClient {
	t.Helper()
	o := &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {server.URL}}, HTTPClient: server.Client()}
	for _, option := range options {
		option(o)
	}
	conn, _, err := websocket.Dial(context.Background(), server.URL+"/ws", o)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(64 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &socketClient{t: t, conn: conn, answers: map[int64]*shownAnswer{}, messages: map[int64]string{}, versions: map[int64]stream.Versions{}, authors: map[string]string{}}
}

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

func (c *socketClient) send(kind string, fields map[string]any) int64 {
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
	if err := c.conn.Write(context.Background(), websocket.MessageText, data); err != nil {
		c.t.Fatal(err)
	}
	return c.ref
}

// read takes one message and applies it.
func (c *socketClient) read() (frame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	_, data, err := c.conn.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		c.t.Fatalf("the message %.200q: %v", data, err)
	}
	switch f.Type {
	case "engine":
		c.engine = f.Engine
	case "snapshot":
		var chat stream.Chat
		if err := json.Unmarshal(f.Chat, &chat); err != nil {
			c.t.Fatal(err)
		}
		c.seq, c.chat, c.title = f.Seq, chat.ID, chat.Title
		c.cut(0)
		for _, m := range chat.Messages {
			c.add(&m)
		}
	case "resumed":
		c.resumed++
	case "keyboard":
		c.keyboard = f.Keyboard
	}
	for _, e := range f.Events {
		c.apply(e)
	}
	return f, nil
}

// cut takes away what follows a message; everything, if the page lacks it.
func (c *socketClient) cut(after int64) {
	at := slices.Index(c.branch, after) + 1
	for _, id := range c.branch[at:] {
		delete(c.answers, id)
	}
	c.branch = c.branch[:at]
}

// add puts a message where the protocol says.
func (c *socketClient) add(m *stream.Message) {
	if !slices.Contains(c.branch, m.ID) {
		c.cut(m.Parent)
		c.branch = append(c.branch, m.ID)
	}
	c.messages[m.ID], c.versions[m.ID] = m.Text, m.Versions
	if m.Author != "" {
		c.authors[m.Text] = m.Author
	}
	if m.Answer != nil {
		c.answers[m.ID] = &shownAnswer{text: m.Text, reasoning: m.Reasoning, tail: m.Tail, html: strings.Join(m.HTML, ""), state: m.Answer.State, end: m.Answer}
	}
}

func (c *socketClient) apply(e stream.Event) {
	first := e.First
	if first == 0 {
		first = e.Seq
	}
	if first != c.seq+1 {
		c.t.Fatalf("after event %d came %d", c.seq, first)
	}
	c.seq = e.Seq
	a := c.answers[e.ID]
	switch e.Type {
	case live.EventMessage:
		c.add(e.Message)
	case live.EventText:
		a.text += e.Text
		a.tail += e.Text
		a.reasoning += e.Reasoning
		a.state = live.Writing
	case live.EventBlock:
		a.html += *e.HTML
		a.tail = a.tail[e.Chars:] // the texts of these tests are ASCII
	case live.EventEnd:
		if e.HTML != nil {
			a.html = *e.HTML
		} else {
			a.html += e.Rest
		}
		a.tail, a.state, a.end = "", e.Answer.State, e.Answer
	case live.EventReplay:
		c.replay = e.Replay
	case live.EventTitle:
		c.title = e.Text
	case live.EventPanel:
		c.panel = e
	case live.EventBranch:
		c.cut(e.ID)
		for _, m := range e.Messages {
			c.add(&m)
		}
	}
}

// reply reads until the reply to ref.
func (c *socketClient) reply(ref int64) frame {
	c.t.Helper()
	for {
		f, err := c.read()
		if err != nil {
			c.t.Fatalf("no reply to command %d: %v", ref, err)
		}
		if (f.Type == "ack" || f.Type == "error") && f.Ref == ref {
			return f
		}
	}
}

func (c *socketClient) do(kind string, fields map[string]any) {
	c.t.Helper()
	if f := c.reply(c.send(kind, fields)); f.Type != "ack" {
		c.t.Fatalf("%s was refused: %+v", kind, f.Error)
	}
}

// until reads until a condition holds.
func (c *socketClient) until(what string, holds func() bool) {
	c.t.Helper()
	for !holds() {
		if _, err := c.read(); err != nil {
			c.t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

func (c *socketClient) last() *shownAnswer {
	var last int64
	for id := range c.answers {
		last = max(last, id)
	}
	return c.answers[last]
}

func (c *socketClient) ended() bool { return c.last() != nil && !c.last().state.Running() }

// farewell reads until the connection ends and returns how.
func (c *socketClient) farewell() websocket.StatusCode {
	for {
		if _, err := c.read(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func TestSocket_AnAnswerIsWholeAfterManyReloads(t *testing.T) {
	engine := newScript()
	server := serve(t, engine)
	first := dialSocket(t, server)
	first.do("send", map[string]any{"text": "go"})
	answer := engine.next(t)
	first.until("the chat", func() bool { return first.chat != "" })

	reloads := 50
	if markdowntest.Torture() {
		reloads = 500
	}
	words := []string{"word ", "two words ", "\n\n", "- item\n", "```\ncode\n```\n", "# head\n", "*em* "}
	random := rand.New(rand.NewPCG(1, 2))
	var whole strings.Builder
	seq, text, tail, html := int64(0), "", "", ""
	resumed := 0
	for reload := range reloads {
		c := dialSocket(t, server)
		fresh := reload%2 == 0 // a reload has nothing; a phone that slept has its page
		if fresh {
			c.do("open", map[string]any{"chat": first.chat})
		} else {
			c.seq = seq
			c.branch = []int64{1, 2}
			c.answers[2] = &shownAnswer{text: text, tail: tail, html: html, state: live.Writing}
			c.do("open", map[string]any{"chat": first.chat, "since": seq})
		}
		c.until("the chat", func() bool { return c.chat != "" || c.resumed > 0 })
		for range random.IntN(20) {
			word := words[random.IntN(len(words))]
			whole.WriteString(word)
			answer.write(word)
		}
		c.until("what was written", func() bool { return c.answers[2] != nil && len(c.answers[2].text) >= whole.Len()-random.IntN(20) })
		a := c.answers[2]
		seq, text, tail, html = c.seq, a.text, a.tail, a.html
		resumed += c.resumed
		if !strings.HasPrefix(whole.String(), text) || !strings.HasSuffix(text, tail) {
			t.Fatalf("after reload %d the page has %q (tail %q), written was %q", reload, text, tail, whole.String())
		}
		_ = c.conn.CloseNow()
	}
	answer.finish()
	for _, since := range []int64{0, seq} {
		c := dialSocket(t, server)
		if since > 0 {
			c.seq = seq
			c.answers[2] = &shownAnswer{text: text, tail: tail, html: html, state: live.Writing}
		}
		c.do("open", map[string]any{"chat": first.chat, "since": since})
		c.until("the end", c.ended)
		if got := c.answers[2].text; got != whole.String() {
			t.Errorf("opened since %d the answer has %d bytes, want %d", since, len(got), whole.Len())
		}
		if got, want := c.answers[2].html, markdown.Answer("", whole.String()); got != want {
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
	engine := newScript()
	log := slog.New(slog.DiscardHandler)
	chats := live.New(engine, live.Options{})
	serveWith := func(timeout time.Duration) *httptest.Server {
		s := httptest.NewServer(New(Config{Engine: engine, Live: chats, Logger: log, WriteTimeout: timeout}))
		t.Cleanup(s.Close)
		return s
	}
	server, strict := serveWith(time.Hour), serveWith(2*time.Second)
	t.Cleanup(chats.Close)

	const readers, rounds, tokens = 16, 30, 10 // tokens of each round
	clients := make([]*socketClient, readers)
	answers := make([]*scriptedAnswer, readers)
	for i := range clients {
		clients[i] = dialSocket(t, server)
		clients[i].do("send", map[string]any{"text": fmt.Sprint("chat ", i)})
		clients[i].until("the chat", func() bool { return clients[i].chat != "" })
		answers[i] = engine.next(t)
	}
	stalled := []*socketClient{dialSocket(t, server, smallBuffers(t)), dialSocket(t, strict, smallBuffers(t))}
	for _, c := range stalled {
		c.do("open", map[string]any{"chat": clients[0].chat})
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
				if a := c.last(); a != nil {
					return len(a.text)
				}
				return 0
			}
			for round := range rounds {
				for range tokens {
					answers[i].write(strings.Repeat(piece, size))
				}
				for received() < (round+1)*tokens*size*len(piece) {
					if _, err := c.read(); err != nil {
						t.Errorf("reader %d, round %d: %v", i, round, err)
						return
					}
				}
			}
			answers[i].finish()
			for !c.ended() {
				if _, err := c.read(); err != nil {
					t.Errorf("reader %d, at the end: %v", i, err)
					return
				}
			}
			if got := c.last().end.Tokens; got != rounds*tokens {
				t.Errorf("reader %d was told of %d tokens, want %d", i, got, rounds*tokens)
			}
		})
	}
	all.Wait()
	for _, c := range stalled {
		if _, err := io.Copy(io.Discard, endlessReader{c}); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stalled reader was not cut off: %v", err)
		}
		if a := c.last(); a != nil && !a.state.Running() {
			t.Error("a stalled reader got everything, so it was never stalled")
		}
	}
}

// endlessReader reads messages until the connection ends.
type endlessReader struct{ *socketClient }

func (r endlessReader) Read([]byte) (int, error) {
	_, err := r.read()
	return 0, err
}

func TestSocket_OriginMustBePresentAndEqual(t *testing.T) {
	server := serve(t, newScript())
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
		if got := do(t, server, r).status; got != http.StatusUpgradeRequired {
			t.Errorf("got %d", got)
		}
	})
}

func TestSocket_AbuseEndsTheConnection(t *testing.T) {
	server := serve(t, newScript())
	for _, c := range []struct {
		name  string
		abuse func(*socketClient)
		want  websocket.StatusCode
	}{
		{"too many commands", func(c *socketClient) {
			for range 10 * stream.Burst {
				c.ref++
				_ = c.conn.Write(context.Background(), websocket.MessageText, fmt.Appendf(nil, `{"type":"ping","ref":%d}`, c.ref))
			}
		}, websocket.StatusPolicyViolation},
		{"a message that is too large", func(c *socketClient) {
			_ = c.conn.Write(context.Background(), websocket.MessageText, []byte(strings.Repeat(" ", stream.ReadLimit+1)))
		}, websocket.StatusMessageTooBig},
		{"a message that is not text", func(c *socketClient) {
			_ = c.conn.Write(context.Background(), websocket.MessageBinary, []byte("{}"))
		}, websocket.StatusUnsupportedData},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := dialSocket(t, server)
			c.abuse(client)
			if got := client.farewell(); got != c.want {
				t.Errorf("the connection ended with %d, want %d", got, c.want)
			}
		})
	}
}

func TestSocket_CommandsThatAreRefused(t *testing.T) {
	engine := newScript()
	server := serve(t, engine)
	client := dialSocket(t, server)
	refused := func(name, kind string, fields map[string]any, code, param string) {
		t.Run(name, func(t *testing.T) {
			f := client.reply(client.send(kind, fields))
			if f.Error == nil || f.Error.Code != code || f.Error.Param != param || f.Error.Title == "" || f.Error.Message == "" {
				t.Errorf("got %+v", f.Error)
			}
		})
	}
	invalid := string(infer.CodeInvalid)
	refused("an unknown command", "fly", nil, invalid, "chat")
	refused("an unknown field", "ping", map[string]any{"colour": "red"}, invalid, "")
	refused("a field of the wrong kind", "send", map[string]any{"text": 7}, invalid, "text")
	refused("a setting of the wrong kind", "send", map[string]any{"text": "a", "settings": map[string]any{"top_k": "many"}}, invalid, "top_k")
	refused("a setting out of range", "send", map[string]any{"text": "a", "settings": map[string]any{"temperature": 101}}, invalid, "temperature")
	refused("an empty message", "send", map[string]any{"text": " "}, invalid, "text")
	refused("a chat that is not there", "open", map[string]any{"chat": "nowhere"}, "chat_not_found", "")
	refused("a command without a chat", "stop", nil, invalid, "chat")
	client.do("send", map[string]any{"text": "go"})
	answer := engine.next(t)
	refused("a question while an answer is written", "send", map[string]any{"text": "more"}, "conflict", "")
	refused("stopping another answer", "stop", map[string]any{"answer": 99}, "conflict", "")
	refused("an unknown command in a chat", "fly", nil, invalid, "type")
	answer.write("Hi")
	client.do("stop", map[string]any{"answer": 2})
	client.until("the end", client.ended)
	if a := client.last(); a.text != "Hi" || a.state != live.Stopped {
		t.Errorf("after the stop the answer is %q, %s", a.text, a.state)
	}
	client.do("regenerate", map[string]any{"settings": map[string]any{"seed": 7}})
	client.until("the new answer", func() bool { return client.answers[3] != nil })
	answer = engine.next(t)
	if answer.request.Params.Seed != 7 {
		t.Errorf("the seed is %d, want 7", answer.request.Params.Seed)
	}
	answer.fail(errors.New("secret path /root"))
	client.until("the end", client.ended)
	if message := client.last().end.Error.Message; strings.Contains(message, "secret") {
		t.Errorf("the page was told %q", message)
	}
}

func TestSocket_AnAnswerGoesOnWhenEverybodyLeaves(t *testing.T) {
	engine := newScript()
	server := serve(t, engine)
	client := dialSocket(t, server)
	client.do("send", map[string]any{"text": "go"})
	client.until("the chat", func() bool { return client.chat != "" })
	answer := engine.next(t)
	answer.write("before ")
	_ = client.conn.CloseNow()
	answer.write("after")
	answer.finish()
	back := dialSocket(t, server)
	back.do("open", map[string]any{"chat": client.chat})
	back.until("the end", back.ended)
	if got := back.last().text; got != "before after" {
		t.Errorf("the answer is %q", got)
	}
}

func TestSocket_TheEngineIsShownWhenItChanges(t *testing.T) {
	engine := newScript()
	client := dialSocket(t, serve(t, engine))
	client.until("the engine", func() bool { return client.engine["state_text"] == "ready" })
	engine.set(func(s *infer.Status) { s.State, s.Loading = infer.StateLoading, infer.Loading{Done: 1, Total: 4} })
	client.until("a quarter", func() bool { return client.engine["state_text"] == "loading, 25 %" })
}

func TestSocket_ShutdownSaysSo(t *testing.T) {
	engine := newScript()
	log := slog.New(slog.DiscardHandler)
	chats := live.New(engine, live.Options{})
	server := httptest.NewServer(New(Config{Engine: engine, Live: chats, Logger: log}))
	t.Cleanup(server.Close)
	client := dialSocket(t, server)
	client.do("ping", nil)
	chats.Close()
	if got := client.farewell(); got != websocket.StatusServiceRestart {
		t.Errorf("the connection ended with %d", got)
	}
}
