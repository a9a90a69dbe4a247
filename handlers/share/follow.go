package share

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/handlers/view"
	"m40-llm/infer/fault"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// holder returns the principal for the link of a request.
func (h *Handlers) holder(c echo.Context) (live.Principal, error) {
	return h.Live.Links.Follower(c.Request().Context(), c.Param("token"))
}

// reader is holder for responses without forms: browsers send the forms of a page that has no
// referrer with an Origin that is refused.
func (h *Handlers) reader(c echo.Context) (live.Principal, error) {
	c.Response().Header().Set("Referrer-Policy", "no-referrer")
	return h.holder(c)
}

// follow subscribes to the chat of the link in a request.
func (h *Handlers) follow(c echo.Context) (who live.Principal, f *guest.Following, shown *guest.SharedChat, err error) {
	var before int64
	if text := c.QueryParam("before"); text != "" {
		if before, err = strconv.ParseInt(text, 10, 64); err != nil {
			return who, nil, nil, fault.Invalid("before", "before is %q, but must be the number of a message", httpio.Shorten(text))
		}
	}
	if who, err = h.reader(c); err != nil {
		return who, nil, nil, err
	}
	f, shown, err = h.Guests.Follow(c.Request().Context(), who, before)
	return who, f, shown, err
}

// page handles GET /s/:token with the current chat. With ?grow=1 its HTML continues while the
// chat does, for browsers without scripts.
func (h *Handlers) page(c echo.Context) error {
	who, following, shown, err := h.follow(c)
	if errors.Is(err, links.ErrNotShared) {
		return NotShared(c)
	}
	if err != nil {
		return err
	}
	defer following.Close()
	ctx := c.Request().Context()
	p := sharedView(ctx, shown, pathOf(c))
	p.WriteAccess = h.accessOf(ctx, who, h.Guests.Asker(who, secretOf(c))).view
	p.Token, p.Grows, p.Before = c.Param("token"), c.QueryParam("grow") != "" && shown.Live, c.QueryParam("before") != ""
	if p.Grows && c.Request().Method == http.MethodGet {
		return h.growingPage(c, who, p, shown, following)
	}
	return httpio.Render(c, http.StatusOK, web.SharedPage(p))
}

// NotShared responds to every request for something that is not shared in the same way.
func NotShared(c echo.Context) error {
	return httpio.Render(c, http.StatusNotFound, web.NotShared())
}

// picture handles GET /s/:token/pictures/:hash with a picture of a message that the link shows.
func (h *Handlers) picture(c echo.Context) error {
	who, err := h.reader(c)
	if err != nil {
		return NotShared(c)
	}
	p, err := h.Guests.Picture(c.Request().Context(), who, c.Param("hash"))
	if errors.Is(err, links.ErrNotShared) || errors.Is(err, live.ErrNoPicture) {
		return NotShared(c)
	}
	if err != nil {
		return err
	}
	return httpio.Picture(c, p.Hash, p.Type, p.Data)
}

// frame is a message of the stream of a link. Types are
//
//	turns  html replaces all messages after message id; id 0: all messages
//	text   text is appended to message id; with thinking, to its reasoning
//	block  html replaces the first chars UTF-16 units of the unrendered text of message id
//	turn   html replaces message id
//	wait   text is what message id waits for
//	title  text is the new title of the chat
//	keyboard  the state of the reader's request to write, and who is typing; this frame alone is not the same for all readers
//	over   the link has ended, and no frames follow
type frame struct {
	Type     string  `json:"type"`
	ID       int64   `json:"id,omitempty"`
	HTML     string  `json:"html,omitempty"`
	Text     string  `json:"text,omitempty"`
	Thinking bool    `json:"thinking,omitempty"`
	Chars    int     `json:"chars,omitempty"`
	Tokens   int     `json:"tokens,omitempty"`
	Rate     float64 `json:"rate,omitempty"` // tokens per second

	WriteAccess *web.WriteAccess `json:"keyboard,omitempty"`
}

// events handles GET /s/:token/events with a stream of lists of frames. The first list has the whole
// current chat, so that a reader who reconnects misses nothing.
func (h *Handlers) events(c echo.Context) error {
	who, err := h.reader(c)
	if err == nil {
		err = h.stream(c, who)
	}
	if errors.Is(err, links.ErrNotShared) {
		return NotShared(c)
	}
	return err
}

// stream sends what the feed of a link has for a reader, until the link ends. It returns
// links.ErrNotShared only if nothing was sent.
func (h *Handlers) stream(c echo.Context, who live.Principal) error {
	ctx := c.Request().Context()
	seat, err := h.Live.Links.Seat(ctx, who)
	if err != nil {
		return err
	}
	defer seat.Close()
	r, err := h.feeds.join(ctx, h.Guests, who, pathOf(c))
	if err != nil {
		return err
	}
	defer h.feeds.leave(r)
	sse, err := httpio.OpenSSE(c)
	if err != nil {
		return err
	}
	silence := time.NewTicker(h.PingInterval)
	defer silence.Stop()
	asker := h.Guests.Asker(who, secretOf(c))
	held := h.accessOf(ctx, who, asker)
	if err = r.send(sse); err == nil {
		err = sse.Send([]frame{held.frame()})
	}
	for err == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.Live.Closing():
			return owned.ErrClosed
		case <-seat.Ended():
			err = links.ErrNotShared
		case <-held.changed:
			before := held.view
			if held = h.accessOf(ctx, who, asker); !reflect.DeepEqual(held.view, before) {
				err = sse.Send([]frame{held.frame()})
			}
		case <-silence.C:
			err = sse.Comment("ping")
		case <-r.ready:
			err = r.send(sse)
		}
	}
	if errors.Is(err, links.ErrNotShared) {
		return sse.Send([]frame{{Type: "over"}})
	}
	return err
}

// framesOf renders events.
func framesOf(ctx context.Context, at link, events []live.Event) (frames []frame, err error) {
	for i := range events {
		e := &events[i]
		f := frame{ID: e.ID}
		switch e.Type {
		case live.EventBranch:
			if f, err = turnsFrame(ctx, at, *e); err != nil {
				return nil, err
			}
		case live.EventText:
			f.Type, f.Text, f.Thinking, f.Tokens = "text", e.Text, e.Thinking, e.Tokens
			if e.Decode > 0 && e.Tokens > 1 {
				f.Rate = float64(e.Tokens-1) / e.Decode.Seconds()
			}
		case live.EventBlock:
			if at.raw {
				continue
			}
			f.Type, f.HTML, f.Chars = "block", markdown.Block(ctx, e), markdown.UTF16Length(e.Text)
			if e.Thinking {
				f.Chars = 0
			}
		case live.EventEnd:
			f.Type = "turn"
			if f.HTML, err = render(ctx, web.SharedTurns([]web.SharedTurn{turnView(ctx, e.Message, at)})); err != nil {
				return nil, err
			}
		case live.EventProgress:
			f.Type, f.Text = "wait", waitsFor(ctx, e.Progress)
		case live.EventTitle:
			f.Type, f.Text = "title", e.Text
		}
		frames = append(frames, f)
	}
	return frames, nil
}

// turnsFrame renders the messages of a branch.
func turnsFrame(ctx context.Context, at link, e live.Event) (frame, error) {
	f := frame{Type: "turns", ID: e.ID}
	if e.ID == 0 && len(e.Messages) == 0 {
		html, err := render(ctx, web.SharedElsewhere())
		f.HTML = html
		return f, err
	}
	turns := make([]web.SharedTurn, len(e.Messages))
	for i := range e.Messages {
		turns[i] = turnView(ctx, &e.Messages[i], at)
	}
	html, err := render(ctx, web.SharedTurns(turns))
	f.HTML = html
	return f, err
}

func render(ctx context.Context, component templ.Component) (string, error) {
	var b bytes.Buffer
	err := component.Render(ctx, &b)
	return b.String(), err
}

// sharedView converts a shared chat for the page.
func sharedView(ctx context.Context, shown *guest.SharedChat, path string) web.SharedChat {
	p := web.SharedChat{Title: shown.Title, System: shown.System, Raw: shown.Raw, Live: shown.Live, Elsewhere: shown.Elsewhere, Ends: shown.Expires}
	for i := range shown.Messages {
		p.Turns = append(p.Turns, turnView(ctx, &shown.Messages[i], link{path, shown.Raw}))
	}
	if shown.More && len(p.Turns) > 0 {
		p.Earlier = p.Turns[0].ID
	}
	return p
}

// link is where the messages of a shared chat are shown.
type link struct {
	path string // of the page, /s/TOKEN
	raw  bool   // the chat is raw
}

func pathOf(c echo.Context) string { return "/s/" + c.Param("token") }

// turnView converts a message for the page.
func turnView(ctx context.Context, m *live.Message, at link) web.SharedTurn {
	t := web.SharedTurn{ID: m.ID, You: m.Role != live.RoleModel, Result: m.Role == live.RoleTool, Author: m.Author, At: m.At, Text: m.Text}
	a := m.Answer
	if a == nil {
		t.Pictures = view.Pictures(at.path, m.Pictures)
		return t
	}
	t.Speaker, t.Running = view.Speaker(ctx, a), a.State.Running()
	switch {
	case at.raw:
	case t.Running:
		t.Text = m.Text[a.Blocks:]
		if !a.Thinking {
			t.HTML = markdown.Reasoning(ctx, m.Reasoning)
		}
		t.Thinking = a.Thinking
		for _, block := range m.FinishedBlocks() {
			t.HTML += markdown.Text(ctx, block)
		}
	default:
		t.Text, t.HTML = "", markdown.Message(ctx, m)
	}
	if a.Progress != nil {
		t.Wait = waitsFor(ctx, a.Progress)
	}
	if a.Error != nil {
		t.Error = failure.For(ctx, a.Error).Text
	}
	if !t.Running {
		t.Notes = notes(ctx, a)
	}
	return t
}

// notes returns the line below an answer.
func notes(ctx context.Context, a *live.Answer) string {
	tokens, rate, sampling := "", "", "" // a link that does not show the sampling leaves out the device too
	if n := a.Usage.CompletionTokens; n > 0 {
		tokens = lang.N(ctx, n, "%s token", "%s tokens", lang.Count(ctx, n))
		if d := a.Timings.Decode; d > 0 && n > 1 {
			rate = lang.Figure(ctx, fmt.Sprintf("%.1f tok/s", float64(n-1)/d.Seconds()))
		}
		if a.Receipt.Device != "" {
			sampling = samplingOf(a.Settings)
		}
	}
	end := ""
	if e := view.EndForReaders(ctx, a); e != nil && e.Kind != "finished" {
		end = e.String()
	}
	return view.Joined(" · ", end, tokens, rate, sampling)
}

// samplingOf lists the settings that differ from the defaults, and the seed.
func samplingOf(s setting.Settings) string {
	fields := func(s setting.Settings) (m map[string]json.RawMessage) {
		data, err := json.Marshal(s)
		if err == nil {
			_ = json.Unmarshal(data, &m) // it is an object
		}
		return m
	}
	own, standard := fields(s), fields(setting.Default())
	parts := []string{"seed " + string(own["seed"])}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if key != "seed" && key != "tools" && !bytes.Equal(own[key], standard[key]) {
			parts = append(parts, strings.ReplaceAll(key, "_", " ")+" "+string(own[key]))
		}
	}
	return strings.Join(parts, ", ")
}

// waitsFor says what an answer waits for.
func waitsFor(ctx context.Context, p *live.Progress) string {
	switch {
	case p == nil:
		return ""
	case p.Pictures != nil:
		return view.Looking(ctx, p.Pictures)
	case p.Queued != nil:
		return lang.T(ctx, "Waiting for other answers") + view.Wait(ctx, *p.Queued)
	case p.Loading != nil:
		return lang.T(ctx, "Loading the model") + view.LoadTime(ctx, *p.Loading)
	}
	return lang.T(ctx, "Reading the prompt")
}
