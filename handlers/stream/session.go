package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"m40-llm/handlers/activity"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/view"
	"m40-llm/web"
)

const (
	ReadLimit        = 256 << 10             // bytes of one command
	streamRate       = 20                    // commands a second
	Burst            = 40                    // commands at once
	streamFlush      = 40 * time.Millisecond // events are gathered for so long
	streamPing       = 20 * time.Second
	streamPong       = 10 * time.Second
	streamCandidates = 100 * time.Millisecond // candidates are sent at most so often
	streamStatus     = 250 * time.Millisecond // how often the engine is looked at
	streamReplyQueue = Burst
)

// transport carries the frames of one session. There are two, the websocket and, where
// something on the way blocks those, events and requests. One goroutine reads, one
// writes and one pings, at the same time.
type transport interface {
	read(ctx context.Context) (frame []byte, err error)
	write(ctx context.Context, frame []byte) error
	ping(ctx context.Context) error // an error if the other side is gone
	close(code int, reason string)  // sends the close frame
	drop()                          // ends a read that waits; may be called more than once
}

// Codes with which a session ends: those of RFC 6455 and its registry.
const (
	closeNormal      = 1000
	closeNotText     = 1003
	closePolicy      = 1008
	closeRestart     = 1012
	closeFailed      = 1011
	closeTryAgain    = 1013
	closeUnannounced = 0
)

// Reasons for which a session ends.
var (
	errTooFast  = errors.New("too many commands")
	errNotText  = errors.New("commands are text")
	errStopping = errors.New("the server stops")
	errPanicked = errors.New("a part of the session panicked")
)

// closeCode is the close code for the error that ended a session; closeUnannounced where
// the connection is gone or was closed already.
func closeCode(err error) (code int, reason string) {
	switch {
	case errors.Is(err, live.ErrSlow):
		return closeTryAgain, "too far behind; open the chat again"
	case errors.Is(err, owned.ErrGone):
		return closeNormal, "the chat is not here any more"
	case errors.Is(err, errTooFast):
		return closePolicy, err.Error()
	case errors.Is(err, errNotText):
		return closeNotText, err.Error()
	case errors.Is(err, errStopping):
		return closeRestart, err.Error()
	case errors.Is(err, errPanicked):
		return closeFailed, "the server failed inside; its log says where"
	}
	return closeUnannounced, ""
}

// session is one page that is connected. Three goroutines share it: one reads commands,
// one writes everything, one pings. What ends one ends all. Reads and writes get
// the connection's context, not the session's: a websocket's that is cancelled on its way
// closes the connection without a close frame.
type session struct {
	live         *live.Service
	inspect      *inspect.Service
	guests       *guest.Service
	who          live.Principal
	models       *models.Service
	log          *slog.Logger
	transport    transport
	writeTimeout time.Duration
	limiter      *rate.Limiter
	replies      chan reply
	chat         *live.Chat // open; touched by the reader alone
	activity     *activity.Service
	left         func(ctx context.Context, who live.Principal) string
	watches      atomic.Bool // the page shows the activity
}

func (h *Handlers) newSession(who live.Principal, t transport) *session {
	return &session{
		live:         h.Live,
		inspect:      h.Inspect,
		guests:       h.Guests,
		who:          who,
		models:       h.Models,
		activity:     h.Activity,
		left:         h.Left,
		log:          h.Log,
		transport:    t,
		writeTimeout: h.WriteTimeout,
		limiter:      rate.NewLimiter(streamRate, Burst),
		replies:      make(chan reply, streamReplyQueue),
	}
}

// reply goes from the reader to the writer, which sends the frames in order and
// from then on follows the subscription, if there is one.
type reply struct {
	frames       []Frame
	chat         string // for the ack, if not the open one
	seq          int64  // for the ack
	subscription *live.Subscription
	opened       *live.Chat // with subscription
}

func (s *session) serve(connected context.Context) {
	ctx, cancel := context.WithCancelCause(connected)
	defer cancel(nil)
	done := make(chan struct{}, 2)
	read := func(ctx context.Context) error { return s.read(connected, ctx) }
	write := func(ctx context.Context) error { return s.write(connected, ctx) }
	for _, work := range []func(context.Context) error{read, s.ping} {
		go func() {
			cancel(s.contain(ctx, work))
			done <- struct{}{}
		}()
	}
	cancel(s.contain(ctx, write))
	if code, reason := closeCode(context.Cause(ctx)); code != closeUnannounced {
		// Chromium does not tell pages the code of a websocket whose two ends send their close frames
		// at the same time.
		_ = s.send(connected, Frame{Type: "close", Code: code})
		s.transport.close(code, reason)
	}
	s.transport.drop()
	<-done
	<-done
}

// contain turns a panic of a part of the session into its end, and logs where it was.
func (s *session) contain(ctx context.Context, work func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.log.ErrorContext(ctx, "a session panicked", "error", failure.OfPanic(v))
			err = errPanicked
		}
	}()
	return work(ctx)
}

// read takes commands until the connection ends. Someone must always be reading:
// that is how pongs and the other side's close frame are seen.
func (s *session) read(connected, ended context.Context) error {
	for {
		frame, err := s.transport.read(connected)
		switch {
		case err != nil:
			return err
		case !s.limiter.Allow():
			return errTooFast
		}
		r := s.handle(ended, frame)
		select {
		case s.replies <- r:
		case <-ended.Done():
			if r.subscription != nil {
				r.subscription.Close()
			}
			return ended.Err()
		}
	}
}

func (s *session) handle(ctx context.Context, frame []byte) reply {
	command, err := decodeCommand(frame)
	var r reply
	if err == nil {
		r, err = s.execute(ctx, command)
	}
	if err != nil {
		s.logFailure(command, err)
		r.frames = append(r.frames, Frame{Type: "error", Ref: command.Ref, Error: newError(ctx, err)})
		return r
	}
	ack := Frame{Type: "ack", Ref: command.Ref, Seq: r.seq}
	switch {
	case r.chat != "":
		ack.Chat = r.chat
	case s.chat != nil:
		ack.Chat = s.chat.ID()
	}
	r.frames = append([]Frame{ack}, r.frames...)
	return r
}

// logFailure logs what is the server's fault.
func (s *session) logFailure(c Command, err error) {
	if failure.Describe(err).Status < http.StatusInternalServerError || errors.Is(err, owned.ErrClosed) || errors.Is(err, live.ErrFull) {
		return
	}
	chat := c.Chat
	if s.chat != nil {
		chat = s.chat.ID()
	}
	s.log.Error("a command failed", "command", c.Type, "chat", chat, "error", err)
}

// follow makes chat the open one and reads it after event since, or without that from
// the messages around at on.
func (s *session) follow(ctx context.Context, chat *live.Chat, since, at int64) (reply, error) {
	read := func() (*live.Subscription, *live.Snapshot, error) { return chat.Subscribe(ctx, s.who, since) }
	if since == 0 && at != 0 {
		read = func() (*live.Subscription, *live.Snapshot, error) { return chat.SubscribeAt(ctx, s.who, at) }
	}
	subscription, snapshot, err := read()
	if err != nil {
		return reply{}, err
	}
	s.chat = chat
	frame := Frame{Type: "resumed", Seq: since}
	if snapshot != nil {
		frame = Frame{Type: "snapshot", Seq: snapshot.Seq, Chat: newChat(ctx, snapshot)}
	}
	return reply{frames: []Frame{frame}, subscription: subscription, opened: chat}, nil
}

// ping ends the session if the other side is silent.
func (s *session) ping(ctx context.Context) error {
	ticker := time.NewTicker(streamPing)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		pongCtx, cancel := context.WithTimeout(ctx, streamPong)
		err := s.transport.ping(pongCtx)
		cancel()
		if err != nil {
			return err
		}
	}
}

// status is what the page was sent last of the engine, the disk, the limits of the day, downloads and the activity.
type status struct {
	engine   web.Engine
	space    string
	left     string
	news     web.News
	activity string
}

// sendStatus sends what differs from what the page was sent.
func (s *session) sendStatus(ctx context.Context, sent *status) error {
	if now := view.Engine(ctx, s.live.Status()); now != sent.engine {
		sent.engine = now
		if err := s.send(ctx, Frame{Type: "engine", Engine: &now}); err != nil {
			return err
		}
	}
	if now := view.Space(ctx, s.live.Disk.Space()); now != sent.space {
		sent.space = now
		if err := s.send(ctx, Frame{Type: "space", Space: &now}); err != nil {
			return err
		}
	}
	if now := s.left(ctx, s.who); now != sent.left {
		sent.left = now
		if err := s.send(ctx, Frame{Type: "left", Left: &now}); err != nil {
			return err
		}
	}
	if now := view.News(ctx, s.models); now.Version != sent.news.Version || !slices.Equal(now.Downloads, sent.news.Downloads) {
		sent.news = now
		if err := s.send(ctx, Frame{Type: "models", Models: &now}); err != nil {
			return err
		}
	}
	return s.sendActivity(ctx, sent)
}

// sendActivity sends the activity to a page that shows it.
func (s *session) sendActivity(ctx context.Context, sent *status) error {
	if !s.watches.Load() {
		sent.activity = ""
		return nil
	}
	list, err := s.activity.List(ctx, s.who)
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := web.ActivityList(view.Activity(ctx, list, s.live.Status())).Render(ctx, &html); err != nil {
		return err
	}
	if sent.activity == html.String() {
		return nil
	}
	sent.activity = html.String()
	return s.send(ctx, Frame{Type: "activity", HTML: sent.activity})
}

// feed is the chat that the writer follows, and when its events are due.
type feed struct {
	subscription *live.Subscription // nil: no chat is open
	ready        <-chan struct{}    // events wait; nil while they are gathered
	due          <-chan time.Time   // the events gathered are to be sent
	sent         time.Time
	candidates   time.Time // when candidates were sent
}

// follow takes the place of the chat that was followed, if there was one.
func (f *feed) follow(next *live.Subscription) {
	f.close()
	f.subscription, f.ready, f.due = next, next.Ready(), nil
}

// gather lets events come together for streamFlush; after a pause they are due at once.
func (f *feed) gather() { f.ready, f.due = nil, time.After(streamFlush-time.Since(f.sent)) }

// next waits for further events.
func (f *feed) next() { f.ready, f.due, f.sent = f.subscription.Ready(), nil, time.Now() }

func (f *feed) close() {
	if f.subscription != nil {
		f.subscription.Close()
	}
}

// accessFeed is what the page was sent last about write access to the chat that is open.
type accessFeed struct {
	chat    *live.Chat
	changed <-chan struct{} // nil: no chat is open
	sent    WriteAccess
}

// sendWriteAccess sends write access of the open chat if it differs from what the page was sent.
func (s *session) sendWriteAccess(ctx context.Context, k *accessFeed) error {
	held, changed, err := s.guests.WriteAccess(ctx, s.who, k.chat)
	if err != nil {
		return err
	}
	k.changed = changed
	now := newWriteAccess(held)
	if reflect.DeepEqual(now, k.sent) {
		return nil
	}
	k.sent = now
	return s.send(ctx, Frame{Type: "keyboard", WriteAccess: &now})
}

// write sends replies at once, events gathered for streamFlush, and what is new of the
// engine and of downloads.
func (s *session) write(connected, ended context.Context) error {
	var chat feed
	defer chat.close()
	var held accessFeed
	sent := status{news: web.News{Version: -1}}
	chats := s.live.List.Changes(s.who)
	ticker := time.NewTicker(streamStatus)
	defer ticker.Stop()
	if err := s.sendStatus(connected, &sent); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ended.Done():
			return ended.Err()
		case <-s.live.Closing():
			return errStopping
		case r := <-s.replies:
			if r.subscription != nil {
				chat.follow(r.subscription)
			}
			for _, frame := range r.frames {
				if err = s.send(connected, frame); err != nil {
					return err
				}
			}
			if r.opened != nil {
				held = accessFeed{chat: r.opened}
				err = s.sendWriteAccess(connected, &held)
			}
		case <-held.changed:
			err = s.sendWriteAccess(connected, &held)
		case <-chat.ready:
			chat.gather()
		case <-chat.due:
			chat.next()
			err = s.flush(connected, &chat)
		case <-chats:
			chats = s.live.List.Changes(s.who)
			err = s.send(connected, Frame{Type: "chats"})
		case <-ticker.C:
			err = s.sendStatus(connected, &sent)
		}
		if err != nil {
			return err
		}
	}
}

// flush sends what the subscription of a feed has gathered.
func (s *session) flush(ctx context.Context, f *feed) error {
	events, ended := f.subscription.Take()
	if len(events) > 0 {
		frame := Frame{Type: "events", Events: make([]Event, len(events))}
		for i := range events {
			frame.Events[i] = newEvent(ctx, &events[i])
			if row := events[i].Row; row != nil && (events[i].Type == live.EventEnd || time.Since(f.candidates) >= streamCandidates) {
				frame.Events[i].Candidates, f.candidates = view.CandidatesOf(row), time.Now()
			}
		}
		if err := s.send(ctx, frame); err != nil {
			return err
		}
	}
	return ended
}

// send writes one frame. A client that does not take it in time loses the
// connection.
func (s *session) send(ctx context.Context, frame Frame) error {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(frame); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.writeTimeout)
	defer cancel()
	return s.transport.write(ctx, bytes.TrimRight(buf.Bytes(), "\n"))
}
