package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/infer/fault"
)

// Where websockets are blocked, the page has what goes over them in two parts: GET
// /events is a stream of the same frames, and POST /command takes the same commands.
// The first frame is {"type":"session","session":"…"}; commands carry that in the
// header X-Session. /events?chat=ID&since=N opens a chat at once.

// SessionHeader says which stream the answer to a command shall go to. Who has not read
// that stream does not know.
const SessionHeader = "X-Session"

// events answers GET /events.
func (h *Handlers) events(c echo.Context) error {
	var open *openCommand
	if chat := c.QueryParam("chat"); chat != "" {
		since, err := strconv.ParseInt(c.QueryParam("since"), 10, 64)
		if err != nil && c.QueryParam("since") != "" {
			return fault.Invalid("since", "since is %q, but must be the number of an event", httpio.Shorten(c.QueryParam("since")))
		}
		open = &openCommand{Type: "open", Chat: chat, Since: since}
	}
	sse, err := httpio.OpenSSE(c)
	if err != nil {
		return err
	}
	who := access.PrincipalOf(c.Request().Context())
	t := &eventTransport{who: who, sse: sse, commands: make(chan []byte), dropped: make(chan struct{})}
	id := h.sessions.add(t)
	defer h.sessions.remove(id)
	if err := sse.Send(sessionFrame{Type: "session", Session: id}); err != nil {
		return err
	}
	var opening sync.WaitGroup
	if open != nil {
		opening.Go(func() {
			frame, _ := json.Marshal(open) // it is two texts and a number
			_ = t.command(c.Request().Context(), frame)
		})
	}
	h.newSession(who, t).serve(c.Request().Context())
	opening.Wait()
	return nil
}

type openCommand struct {
	Type  string `json:"type"`
	Chat  string `json:"chat"`
	Since int64  `json:"since"`
}

// sessionFrame is what there is apart from the frames of protocol.go.
type sessionFrame struct {
	Type    string `json:"type"`
	Session string `json:"session"`
}

// command answers POST /command. What came of the command goes over the stream.
func (h *Handlers) command(c echo.Context) error {
	t := h.sessions.find(c.Request().Header.Get(SessionHeader))
	if t == nil || t.who != access.PrincipalOf(c.Request().Context()) {
		return errSessionGone
	}
	frame, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	if err := t.command(c.Request().Context(), frame); err != nil {
		return err
	}
	return c.NoContent(http.StatusAccepted)
}

var errSessionGone = fault.Errorf(fault.CodeSessionGone, "the stream that this command belongs to has ended; open GET /events again")

// eventTransport is a session's stream of events, to which requests bring the commands.
type eventTransport struct {
	who      live.Principal
	commands chan []byte
	dropped  chan struct{}
	drops    sync.Once

	mu  sync.Mutex // of sse
	sse httpio.SSE
}

// command hands a command to the session, when that takes it.
func (t *eventTransport) command(ctx context.Context, frame []byte) error {
	select {
	case t.commands <- frame:
		return nil
	case <-t.dropped:
		return errSessionGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *eventTransport) read(ctx context.Context) ([]byte, error) {
	select {
	case frame := <-t.commands:
		return frame, nil
	case <-t.dropped:
		return nil, errors.New("the stream has ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write needs no context: each write has its own deadline.
func (t *eventTransport) write(_ context.Context, frame []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sse.Data(frame)
}

func (t *eventTransport) ping(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sse.Comment("ping")
}

// close has nothing to add: the stream ends with its response.
func (t *eventTransport) close(int, string) {}

func (t *eventTransport) drop() { t.drops.Do(func() { close(t.dropped) }) }

// sessions are the streams that take commands, by the secret of each.
type sessions struct {
	mu   sync.Mutex
	open map[string]*eventTransport
}

func (s *sessions) add(t *eventTransport) (id string) {
	id = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]*eventTransport{}
	}
	s.open[id] = t
	return id
}

func (s *sessions) find(id string) *eventTransport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

func (s *sessions) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}
