package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"
	"nhooyr.io/websocket"

	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/web"
)

const (
	streamReadLimit  = 256 << 10             // bytes of one command
	streamRate       = 20                    // commands a second
	streamBurst      = 40                    // commands at once
	streamFlush      = 40 * time.Millisecond // events are gathered for so long
	streamPing       = 20 * time.Second
	streamPong       = 10 * time.Second
	streamStatus     = 250 * time.Millisecond // how often the engine is looked at
	streamReplyQueue = streamBurst
)

// socket answers GET /ws; protocol.go describes what goes over it.
func (h *Handlers) socket(c echo.Context) error {
	r := c.Request()
	// Checked for every route before; a websocket opened by a foreign page would
	// be worth a second lock.
	if own, _ := c.Get(originKey).(string); !sameOrigin(r.Header.Get("Origin"), own) {
		return forbidden("a websocket needs an Origin of this server")
	}
	if !isWebSocket(r) {
		c.Response().Header().Set("Upgrade", "websocket")
		return httpErrorf(http.StatusUpgradeRequired, "websocket_only", "this address answers websockets only")
	}
	conn, err := websocket.Accept(c.Response(), r, &websocket.AcceptOptions{
		CompressionMode:    websocket.CompressionDisabled,
		InsecureSkipVerify: true, // the check above is the stricter one
	})
	if err != nil {
		return nil // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(streamReadLimit)
	s := &streamSession{
		live:         h.Live,
		models:       h.Models,
		conn:         conn,
		writeTimeout: h.WriteTimeout,
		limiter:      rate.NewLimiter(streamRate, streamBurst),
		replies:      make(chan reply, streamReplyQueue),
	}
	s.serve(r.Context())
	return nil
}

// Reasons for which a session ends.
var (
	errTooFast  = errors.New("too many commands")
	errNotText  = errors.New("commands are text")
	errStopping = errors.New("the server stops")
)

// closeCode is the farewell for the error that ended a session; 0 where the
// connection is gone or has had its farewell.
func closeCode(err error) (websocket.StatusCode, string) {
	switch {
	case errors.Is(err, live.ErrSlow):
		return websocket.StatusTryAgainLater, "too far behind; open the chat again"
	case errors.Is(err, live.ErrGone):
		return websocket.StatusNormalClosure, "the chat is not here any more"
	case errors.Is(err, errTooFast):
		return websocket.StatusPolicyViolation, err.Error()
	case errors.Is(err, errNotText):
		return websocket.StatusUnsupportedData, err.Error()
	case errors.Is(err, errStopping):
		return websocket.StatusServiceRestart, err.Error()
	}
	return 0, ""
}

// streamSession is one websocket. Three goroutines share it: one reads commands,
// one writes everything, one pings. What ends one ends all. Reads and writes get
// the connection's context, not the session's: one that is cancelled on its way
// closes the connection without a farewell.
type streamSession struct {
	live         *live.Service
	models       *models.Service
	conn         *websocket.Conn
	writeTimeout time.Duration
	limiter      *rate.Limiter
	replies      chan reply
	chat         *live.Chat // open; touched by the reader alone
}

// reply goes from the reader to the writer, which sends the frames in order and
// from then on follows the subscription, if there is one.
type reply struct {
	frames       []wireFrame
	chat         string // for the ack, if not the open one
	subscription *live.Subscription
}

func (s *streamSession) serve(connected context.Context) {
	ctx, cancel := context.WithCancelCause(connected)
	defer cancel(nil)
	done := make(chan struct{}, 2)
	read := func(ctx context.Context) error { return s.read(connected, ctx) }
	for _, work := range []func(context.Context) error{read, s.ping} {
		go func() {
			defer func() {
				if v := recover(); v != nil {
					cancel(panicError(v))
				}
				done <- struct{}{}
			}()
			cancel(work(ctx))
		}()
	}
	cancel(s.write(connected, ctx))
	if code, reason := closeCode(context.Cause(ctx)); code != 0 {
		_ = s.conn.Close(code, reason)
	}
	_ = s.conn.CloseNow() // ends a read that still waits
	<-done
	<-done
}

// read takes commands until the connection ends. Someone must always be reading:
// that is how pongs and the other side's farewell are seen.
func (s *streamSession) read(connected, session context.Context) error {
	for {
		kind, frame, err := s.conn.Read(connected)
		switch {
		case err != nil:
			return err
		case kind != websocket.MessageText:
			return errNotText
		case !s.limiter.Allow():
			return errTooFast
		}
		r := s.handle(frame)
		select {
		case s.replies <- r:
		case <-session.Done():
			if r.subscription != nil {
				r.subscription.Close()
			}
			return session.Err()
		}
	}
}

func (s *streamSession) handle(frame []byte) reply {
	command, err := decodeCommand(frame)
	var r reply
	if err == nil {
		r, err = s.execute(command)
	}
	if err != nil {
		r.frames = append(r.frames, wireFrame{Type: "error", Ref: command.Ref, Error: toWireError(err)})
		return r
	}
	ack := wireFrame{Type: "ack", Ref: command.Ref}
	switch {
	case r.chat != "":
		ack.Chat = r.chat
	case s.chat != nil:
		ack.Chat = s.chat.ID()
	}
	r.frames = append([]wireFrame{ack}, r.frames...)
	return r
}

// execute carries out one command.
func (s *streamSession) execute(c wireCommand) (reply, error) {
	switch c.Type {
	case "ping":
		return reply{}, nil
	case "open":
		chat, err := s.live.Chat(c.Chat)
		if err != nil {
			return reply{}, err
		}
		return s.follow(chat, c.Since)
	case "send":
		question := live.Question{Text: c.Text, System: c.System, Settings: *c.Settings, Model: c.Model, Raw: c.Raw, Preset: c.Preset}
		if s.chat != nil {
			return reply{}, s.chat.Send(question)
		}
		chat, err := s.live.Start(question, c.Temporary)
		if err != nil {
			return reply{}, err
		}
		return s.follow(chat, 0)
	}
	if s.chat == nil {
		return reply{}, invalidf("chat", "no chat is open on this connection")
	}
	return s.change(c)
}

// change carries out one command on the open chat.
func (s *streamSession) change(c wireCommand) (reply, error) {
	chat := s.chat
	switch c.Type {
	case "stop":
		return reply{}, chat.Stop(c.Answer)
	case "regenerate":
		return reply{}, chat.Regenerate(c.Answer, c.System, *c.Settings)
	case "edit":
		return reply{}, chat.Edit(c.Message, live.Question{Text: c.Text, System: c.System, Settings: *c.Settings})
	case "rewrite":
		return reply{}, chat.Rewrite(c.Answer, c.Text)
	case "continue":
		return reply{}, chat.Continue(c.Answer, *c.Settings)
	case "panel":
		return reply{}, chat.Keep(live.Panel{Settings: *c.Settings, Preset: c.Preset}, c.System)
	case "select":
		return reply{}, chat.Select(c.Message, c.Version)
	case "fork":
		id, err := s.live.Fork(chat, c.Message)
		return reply{chat: id}, err
	case "older":
		messages, more, err := chat.Older(c.Before)
		if err != nil {
			return reply{}, err
		}
		frame := wireFrame{Type: "older", Ref: c.Ref, Before: c.Before, Messages: toWireMessages(messages), More: more}
		return reply{frames: []wireFrame{frame}}, nil
	}
	return reply{}, invalidf("type", "there is no command %q", c.Type)
}

// follow makes chat the open one and reads it after event since.
func (s *streamSession) follow(chat *live.Chat, since int64) (reply, error) {
	subscription, snapshot, err := chat.Subscribe(since)
	if err != nil {
		return reply{}, err
	}
	s.chat = chat
	frame := wireFrame{Type: "resumed", Seq: since}
	if snapshot != nil {
		frame = wireFrame{Type: "snapshot", Seq: snapshot.Seq, Chat: toWireChat(snapshot)}
	}
	return reply{frames: []wireFrame{frame}, subscription: subscription}, nil
}

// ping ends the session if the other side is silent.
func (s *streamSession) ping(ctx context.Context) error {
	ticker := time.NewTicker(streamPing)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		pongCtx, cancel := context.WithTimeout(ctx, streamPong)
		err := s.conn.Ping(pongCtx)
		cancel()
		if err != nil {
			return err
		}
	}
}

// write sends replies at once, events gathered for streamFlush, and what is new of the
// engine and of downloads.
func (s *streamSession) write(connected, session context.Context) error {
	var (
		subscription *live.Subscription
		ready        <-chan struct{}
		flush        <-chan time.Time
		flushed      time.Time
		engine       web.Engine
		news         = web.News{Version: -1}
		chats        = s.live.Changes()
	)
	defer func() {
		if subscription != nil {
			subscription.Close()
		}
	}()
	status := time.NewTicker(streamStatus)
	defer status.Stop()
	show := func() error {
		if now := engineView(s.live.Status()); now != engine {
			engine = now
			if err := s.send(connected, wireFrame{Type: "engine", Engine: &now}); err != nil {
				return err
			}
		}
		now := newsView(s.models)
		if now.Version == news.Version && slices.Equal(now.Downloads, news.Downloads) {
			return nil
		}
		news = now
		return s.send(connected, wireFrame{Type: "models", Models: &now})
	}
	if err := show(); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-session.Done():
			return session.Err()
		case <-s.live.Closing():
			return errStopping
		case r := <-s.replies:
			if r.subscription != nil {
				if subscription != nil {
					subscription.Close()
				}
				subscription, ready, flush = r.subscription, r.subscription.Ready(), nil
			}
			for _, frame := range r.frames {
				if err = s.send(connected, frame); err != nil {
					return err
				}
			}
		case <-ready:
			ready, flush = nil, time.After(streamFlush-time.Since(flushed)) // at once after a pause
		case <-flush:
			ready, flush, flushed = subscription.Ready(), nil, time.Now()
			err = s.flush(connected, subscription)
		case <-chats:
			chats = s.live.Changes()
			err = s.send(connected, wireFrame{Type: "chats"})
		case <-status.C:
			err = show()
		}
		if err != nil {
			return err
		}
	}
}

// flush sends what a subscription has gathered.
func (s *streamSession) flush(ctx context.Context, subscription *live.Subscription) error {
	events, ended := subscription.Take()
	if len(events) > 0 {
		frame := wireFrame{Type: "events", Events: make([]wireEvent, len(events))}
		for i := range events {
			frame.Events[i] = toWireEvent(&events[i])
		}
		if err := s.send(ctx, frame); err != nil {
			return err
		}
	}
	return ended
}

// send writes one frame. A client that does not take it in time loses the
// connection.
func (s *streamSession) send(ctx context.Context, frame wireFrame) error {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(frame); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.writeTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, buf.Bytes())
}
