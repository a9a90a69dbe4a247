package share

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/growing"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// growingPage responds with the page of a shared chat and appends HTML to it as the chat continues.
func (h *Handlers) growingPage(c echo.Context, who live.Principal, p web.SharedChat, shown *guest.SharedChat, following *guest.Following) error {
	ctx := c.Request().Context()
	seat, err := h.Live.Links.Seat(ctx, who)
	if errors.Is(err, links.ErrNotShared) {
		return NotShared(c)
	}
	if err != nil {
		return err
	}
	defer seat.Close()
	var page bytes.Buffer
	if err := web.SharedPage(p).Render(ctx, &page); err != nil {
		return err
	}
	before, after, found := bytes.Cut(page.Bytes(), []byte(web.GrowingAnswerMark))
	if !found {
		return c.HTMLBlob(http.StatusOK, page.Bytes())
	}
	g := &growth{Page: growing.Begin(c), path: pathOf(c), raw: shown.Raw}
	for _, m := range shown.Messages {
		g.last = m.ID
	}
	g.Write(string(before))
	g.Flush()
	err = h.each(ctx, seat, following, func(events []live.Event) error {
		for i := range events {
			if err := g.add(c, &events[i]); err != nil {
				return err
			}
		}
		g.Flush()
		return g.Err
	}, func() error {
		g.Write("<!-- -->")
		g.Flush()
		return g.Err
	})
	switch {
	case errors.Is(err, links.ErrNotShared):
		g.Note(lang.T(ctx, "This link has ended."))
	case errors.Is(err, owned.ErrClosed):
		g.Note(lang.T(ctx, "The server is stopping. Load the page again later."))
	case errors.Is(err, live.ErrSlow):
		g.Note(lang.T(ctx, "This page could not keep up. Load it again for the rest."))
	}
	g.Write(string(after))
	return g.Err
}

// each calls take with the events of a shared chat in batches, and ping whenever there was no event
// for PingInterval. It returns the error of take or ping, ErrNotShared when the link ends, ErrClosed
// when the server stops, or the error of the context or of following.
func (h *Handlers) each(ctx context.Context, seat *links.Seat, following *guest.Following, take func([]live.Event) error, ping func() error) error {
	silence := time.NewTicker(h.PingInterval)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.Live.Closing():
			return owned.ErrClosed
		case <-seat.Ended():
			return links.ErrNotShared
		case <-silence.C:
			if err := ping(); err != nil {
				return err
			}
		case <-following.Ready():
			time.Sleep(flush)
			events, err := following.Take()
			if taken := take(events); taken != nil {
				return taken
			}
			if err != nil {
				return err
			}
		}
	}
}

// growth appends messages to the page of a shared chat.
type growth struct {
	*growing.Page
	path string
	raw  bool
	last int64  // id of the last message
	wait string // phase of waiting shown last
}

// add appends the HTML for an event.
func (g *growth) add(c echo.Context, e *live.Event) error {
	ctx := c.Request().Context()
	g.Add(e, g.raw)
	switch e.Type {
	case live.EventBranch:
		return g.turns(c, e)
	case live.EventProgress:
		text := waitsFor(ctx, e.Progress)
		if phase, _, _ := strings.Cut(text, ","); phase != g.wait { // the estimate after the comma changes too often to append each
			g.wait = phase
			g.Passing(text + ".")
		}
	case live.EventEnd:
		return web.SharedEnd(turnView(ctx, e.Message, link{g.path, g.raw})).Render(ctx, c.Response())
	}
	return nil
}

// turns appends new messages.
func (g *growth) turns(c echo.Context, e *live.Event) error {
	ctx := c.Request().Context()
	g.Close()
	g.wait = ""
	if e.ID != g.last {
		g.Note(lang.T(ctx, "The chat goes on in another way from here."))
	}
	for i := range e.Messages {
		t := turnView(ctx, &e.Messages[i], link{g.path, g.raw})
		g.last = t.ID
		if err := web.SharedTurns([]web.SharedTurn{t}).Render(ctx, c.Response()); err != nil {
			return err
		}
	}
	return nil
}
