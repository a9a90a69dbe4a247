// Package stream is what keeps an open page up to date: a websocket, or where those are
// blocked a stream of events with a request for each command. socket.go is the only importer
// of the websocket package; protocol.go describes the messages.
package stream

import (
	"context"
	"log/slog"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"

	"github.com/labstack/echo/v4"
	"nhooyr.io/websocket"
)

// Handlers serves the streams. All fields must be set.
type Handlers struct {
	Live         *live.Service
	Inspect      *inspect.Service
	Guests       *guest.Service
	Models       *models.Service
	Activity     *activity.Service
	Log          *slog.Logger
	Left         func(ctx context.Context, who live.Principal) string // what a person may still use today; empty: there is no limit
	WriteTimeout time.Duration                                        // longest wait for a client to take a frame

	sessions sessions
}

// Routes adds the routes of the streams to e.
func (h *Handlers) Routes(e *echo.Echo) {
	e.GET("/ws", h.socket)
	e.GET("/events", h.events)
	e.POST("/command", h.command)
}

// socket answers GET /ws; protocol.go describes what goes over it.
func (h *Handlers) socket(c echo.Context) error {
	r := c.Request()
	if err := gate.CheckWebSocket(c); err != nil {
		return err
	}
	conn, err := websocket.Accept(c.Response(), r, &websocket.AcceptOptions{
		CompressionMode:    websocket.CompressionDisabled,
		InsecureSkipVerify: true, // the check above is the stricter one
	})
	if err != nil {
		return nil // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(ReadLimit)
	h.newSession(access.PrincipalOf(r.Context()), socketTransport{conn}).serve(r.Context())
	return nil
}

// socketTransport is a session's websocket.
type socketTransport struct{ conn *websocket.Conn }

func (t socketTransport) read(ctx context.Context) ([]byte, error) {
	kind, frame, err := t.conn.Read(ctx)
	if err == nil && kind != websocket.MessageText {
		err = errNotText
	}
	return frame, err
}

func (t socketTransport) write(ctx context.Context, frame []byte) error {
	return t.conn.Write(ctx, websocket.MessageText, frame)
}

func (t socketTransport) ping(ctx context.Context) error { return t.conn.Ping(ctx) }

func (t socketTransport) close(code int, reason string) {
	_ = t.conn.Close(websocket.StatusCode(code), reason)
}

func (t socketTransport) drop() { _ = t.conn.CloseNow() }
