package handlerstest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"nhooyr.io/websocket"

	"m40-llm/handlers/live"
	"m40-llm/handlers/stream"
)

// SocketClient is a page without a screen.
type SocketClient struct {
	t           testing.TB
	Conn        *websocket.Conn
	Ref         int64
	Chat        string
	Seq         int64
	Title       string
	Branch      []int64          // ids of the messages shown
	Messages    map[int64]string // texts of questions
	Versions    map[int64]stream.Versions
	Answers     map[int64]*ShownAnswer
	Engine      map[string]any
	Resumed     int // how often no snapshot was needed
	replay      *stream.Replay
	Panel       stream.Event        // the last that told of one
	WriteAccess *stream.WriteAccess `json:"keyboard"`
	Authors     map[string]string   // of questions, by their text
	Left        string              // what may still be used today
}

// ShownAnswer is an answer as a page has it.
type ShownAnswer struct {
	Text, Reasoning, Tail string
	HTML                  string
	State                 live.AnswerState
	End                   *stream.Answer
}

// Frame is any message to the page.
type Frame struct {
	Type   string
	Ref    int64
	Seq    int64
	Chat   json.RawMessage
	Error  *stream.Error
	Engine map[string]any
	Events []stream.Event

	WriteAccess *stream.WriteAccess `json:"keyboard"`
	HTML        string              // of activity
	Left        string

	Before   int64
	Messages []stream.Message
	More     bool
}

// DialSocket connects a page to a server until the test ends.
func DialSocket(t testing.TB, server *httptest.Server, options ...func(*websocket.DialOptions)) *SocketClient {
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
	return &SocketClient{t: t, Conn: conn, Answers: map[int64]*ShownAnswer{}, Messages: map[int64]string{}, Versions: map[int64]stream.Versions{}, Authors: map[string]string{}}
}

// Send sends a command and returns its number.
func (c *SocketClient) Send(kind string, fields map[string]any) int64 {
	c.t.Helper()
	c.Ref++
	command := map[string]any{"type": kind, "ref": c.Ref}
	for name, value := range fields {
		command[name] = value
	}
	data, err := json.Marshal(command)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.Conn.Write(context.Background(), websocket.MessageText, data); err != nil {
		c.t.Fatal(err)
	}
	return c.Ref
}

// Read takes one message and applies it.
func (c *SocketClient) Read() (Frame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Hang)
	defer cancel()
	_, data, err := c.Conn.Read(ctx)
	if err != nil {
		return Frame{}, err
	}
	var f Frame
	if err := json.Unmarshal(data, &f); err != nil {
		c.t.Fatalf("the message %.200q: %v", data, err)
	}
	switch f.Type {
	case "engine":
		c.Engine = f.Engine
	case "snapshot":
		var chat stream.Chat
		if err := json.Unmarshal(f.Chat, &chat); err != nil {
			c.t.Fatal(err)
		}
		c.Seq, c.Chat, c.Title = f.Seq, chat.ID, chat.Title
		c.cut(0)
		for _, m := range chat.Messages {
			c.add(&m)
		}
	case "left":
		c.Left = f.Left
	case "resumed":
		c.Resumed++
	case "keyboard":
		c.WriteAccess = f.WriteAccess
	}
	for _, e := range f.Events {
		c.apply(e)
	}
	return f, nil
}

// cut takes away what follows a message; everything, if the page lacks it.
func (c *SocketClient) cut(after int64) {
	at := slices.Index(c.Branch, after) + 1
	for _, id := range c.Branch[at:] {
		delete(c.Answers, id)
	}
	c.Branch = c.Branch[:at]
}

// add puts a message where the protocol says.
func (c *SocketClient) add(m *stream.Message) {
	if !slices.Contains(c.Branch, m.ID) {
		c.cut(m.Parent)
		c.Branch = append(c.Branch, m.ID)
	}
	c.Messages[m.ID], c.Versions[m.ID] = m.Text, m.Versions
	if m.Author != "" {
		c.Authors[m.Text] = m.Author
	}
	if m.Answer != nil {
		c.Answers[m.ID] = &ShownAnswer{Text: m.Text, Reasoning: m.Reasoning, Tail: m.Tail, HTML: strings.Join(m.HTML, ""), State: m.Answer.State, End: m.Answer}
	}
}

// apply changes the page as the protocol says, and fails the test if events are missing before e.
func (c *SocketClient) apply(e stream.Event) {
	first := e.First
	if first == 0 {
		first = e.Seq
	}
	if first != c.Seq+1 {
		c.t.Fatalf("after event %d came %d", c.Seq, first)
	}
	c.Seq = e.Seq
	a := c.Answers[e.ID]
	switch e.Type {
	case live.EventMessage:
		c.add(e.Message)
	case live.EventText:
		a.Text += e.Text
		a.Tail += e.Text
		a.Reasoning += e.Reasoning
		a.State = live.Writing
	case live.EventBlock:
		a.HTML += *e.HTML
		a.Tail = a.Tail[e.Chars:] // the texts of these tests are ASCII
	case live.EventEnd:
		if e.HTML != nil {
			a.HTML = *e.HTML
		} else {
			a.HTML += e.Rest
		}
		a.Tail, a.State, a.End = "", e.Answer.State, e.Answer
	case live.EventReplay:
		c.replay = e.Replay
	case live.EventTitle:
		c.Title = e.Text
	case live.EventPanel:
		c.Panel = e
	case live.EventBranch:
		c.cut(e.ID)
		for _, m := range e.Messages {
			c.add(&m)
		}
	}
}

// Reply reads until the reply to ref.
func (c *SocketClient) Reply(ref int64) Frame {
	c.t.Helper()
	for {
		f, err := c.Read()
		if err != nil {
			c.t.Fatalf("no reply to command %d: %v", ref, err)
		}
		if (f.Type == "ack" || f.Type == "error") && f.Ref == ref {
			return f
		}
	}
}

// Do sends a command and waits until it is carried out.
func (c *SocketClient) Do(kind string, fields map[string]any) {
	c.t.Helper()
	if f := c.Reply(c.Send(kind, fields)); f.Type != "ack" {
		c.t.Fatalf("%s was refused: %+v", kind, f.Error)
	}
}

// Until reads until a condition holds.
func (c *SocketClient) Until(what string, holds func() bool) {
	c.t.Helper()
	for !holds() {
		if _, err := c.Read(); err != nil {
			c.t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

// Last returns the answer with the largest id; nil if the page has none.
func (c *SocketClient) Last() *ShownAnswer {
	var last int64
	for id := range c.Answers {
		last = max(last, id)
	}
	return c.Answers[last]
}

// Ended reports whether the last answer has ended.
func (c *SocketClient) Ended() bool { return c.Last() != nil && !c.Last().State.Running() }

// Farewell reads until the connection ends and returns how.
func (c *SocketClient) Farewell() websocket.StatusCode {
	for {
		if _, err := c.Read(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// ActivityWith reads until a frame about activity comes that holds a text, and returns its HTML.
func (c *SocketClient) ActivityWith(text string) string {
	c.t.Helper()
	for {
		f, err := c.Read()
		if err != nil {
			c.t.Fatalf("no activity with %q: %v", text, err)
		}
		if f.Type == "activity" && strings.Contains(f.HTML, text) {
			return f.HTML
		}
	}
}

// ReplayOf lets an answer be written once more; 0: the last one.
func (c *SocketClient) ReplayOf(answer int64) *stream.Replay {
	c.t.Helper()
	c.replay = nil
	c.Do("replay", map[string]any{"answer": answer})
	c.Until("the end of the replay", func() bool { return c.replay != nil && c.replay.State != live.ReplayRunning })
	return c.replay
}

// PanelOf opens a chat anew and returns what it keeps for the next answer.
func PanelOf(t testing.TB, c *SocketClient, chat string) stream.Chat {
	t.Helper()
	c.Send("open", map[string]any{"chat": chat})
	for {
		f, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		if f.Type != "snapshot" {
			continue
		}
		var shown stream.Chat
		if err := json.Unmarshal(f.Chat, &shown); err != nil {
			t.Fatal(err)
		}
		return shown
	}
}
