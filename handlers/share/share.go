// Package share serves shared chats: the page on which the owner creates and ends links, the page
// of a link, its stream, and the listeners at which other machines reach it. A link allows
// reading. Who has one can also ask the owner to write; the owner's permission belongs to one browser
// and is checked with every request.
package share

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/infer/fault"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// Handlers serves shared chats. All exported fields must be set.
type Handlers struct {
	Live         *live.Service
	Guests       *guest.Service
	Reach        *Reach
	PingInterval time.Duration // silence after which a stream gets a comment

	feeds feeds
}

// Routes adds the routes of the owner to e.
func (h *Handlers) Routes(e *echo.Echo) {
	e.GET("/c/:id/share", h.show)
	e.POST("/c/:id/share", h.share)
	e.POST("/c/:id/share/end", h.end)
	e.POST("/c/:id/share/requests", h.acceptRequests)
	e.POST("/c/:id/share/writers", h.setWriter)
}

// ReaderRoutes adds the routes of those who have a link to e.
func (h *Handlers) ReaderRoutes(e *echo.Echo) {
	e.Match([]string{http.MethodGet, http.MethodHead}, "/s/:token", h.page)
	e.GET("/s/:token/events", h.events)
	e.GET("/s/:token/pictures/:hash", h.picture)
	e.Match([]string{http.MethodGet, http.MethodHead}, "/s/:token/write", h.writePage)
	e.POST("/s/:token/write", h.write)
}

// share handles POST /c/:id/share: it creates a link.
func (h *Handlers) share(c echo.Context) error {
	n, err := h.wanted(c)
	if err != nil {
		return err
	}
	r := c.Request()
	if _, err := h.Live.Links.Add(r.Context(), access.PrincipalOf(r.Context()), c.Param("id"), n); err != nil {
		return err
	}
	h.Reach.Open() // the link must work as soon as it is shown
	return h.changed(c)
}

// end handles POST /c/:id/share/end: it ends a link.
func (h *Handlers) end(c echo.Context) error {
	id, err := strconv.ParseInt(c.FormValue("share"), 10, 64)
	if err != nil {
		return fault.Invalid("share", "share is %q, but must be the number of a link", httpio.Shorten(c.FormValue("share")))
	}
	r := c.Request()
	if err := h.Live.Links.End(r.Context(), access.PrincipalOf(r.Context()), c.Param("id"), id); err != nil {
		return err
	}
	return h.changed(c)
}

// changed responds to a form: with a redirect to the links, to the dialog with the links, and to
// other scripts with 204.
func (h *Handlers) changed(c echo.Context) error {
	if c.QueryParam("part") != "" {
		return h.show(c)
	}
	if httpio.WantsJSON(c.Request()) {
		return c.NoContent(http.StatusNoContent)
	}
	return c.Redirect(http.StatusSeeOther, "/c/"+url.PathEscape(c.Param("id"))+"/share")
}

// lives maps the values of the form to the lifetime of a link; 0 does not expire.
var lives = map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour, "open": 0}

// wanted parses the form to create a link.
func (h *Handlers) wanted(c echo.Context) (n links.Wanted, err error) {
	life, known := lives[c.FormValue("life")]
	if !known {
		return n, fault.Invalid("life", "life is %q, but must be hour, day or open", httpio.Shorten(c.FormValue("life")))
	}
	n = links.Wanted{Live: c.FormValue("what") != "now", System: c.FormValue("system") != "", Settings: c.FormValue("settings") != "", Life: life}
	if first := c.FormValue("first"); first != "" {
		if n.First, err = strconv.ParseInt(first, 10, 64); err != nil || n.First < 0 {
			return n, fault.Invalid("first", "first is %q, but must be the number of a message", httpio.Shorten(first))
		}
	}
	return n, nil
}

// show handles GET /c/:id/share: the links to a chat and the form to create one. With ?part=1 it
// responds with only the content of the dialog.
func (h *Handlers) show(c echo.Context) error {
	ctx := c.Request().Context()
	who := access.PrincipalOf(ctx)
	chat, err := h.Live.Chat(ctx, who, c.Param("id"))
	if err != nil {
		return err
	}
	snapshot, err := chat.Snapshot(ctx, who, 0)
	if err != nil {
		return err
	}
	list, err := h.Live.Links.List(ctx, who, chat.ID())
	if err != nil {
		return err
	}
	p := web.Sharing{Chat: chat.ID(), Title: snapshot.Title, Temporary: snapshot.Temporary, Port: h.Reach.Port(), Encrypted: h.Reach.Encrypted()}
	addresses, trouble := h.Reach.Addresses()
	if trouble != nil && len(list) > 0 {
		p.Trouble = lang.Message(ctx, trouble.Error())
	}
	p.Alone = !h.Reach.reachable()
	held, _, err := h.Guests.WriteAccess(c.Request().Context(), who, chat)
	if err != nil {
		return err
	}
	for _, share := range list {
		s, err := h.shareView(ctx, share, addresses, snapshot)
		if err != nil {
			return err
		}
		for _, w := range held.Writers {
			if w.Share == share.ID {
				s.Writers = append(s.Writers, web.Writer{ID: w.ID, Name: w.Name, Asks: w.State == guest.WriterAsks})
			}
		}
		p.Shares = append(p.Shares, s)
	}
	for _, m := range snapshot.Messages {
		p.Messages = append(p.Messages, web.Choice{Value: strconv.FormatInt(m.ID, 10), Label: messageLabel(ctx, &m)})
	}
	p.First = c.QueryParam("first")
	if c.QueryParam("part") != "" {
		return httpio.Render(c, http.StatusOK, web.SharePanel(p))
	}
	return httpio.Render(c, http.StatusOK, web.SharePage(p))
}

// messageLabel returns the label of a message in a list.
func messageLabel(ctx context.Context, m *live.Message) string {
	const most = 60
	text := []rune(strings.Join(strings.Fields(m.Text), " "))
	if len(text) > most {
		text = append(text[:most], '…')
	}
	if m.Role == live.RoleModel {
		return lang.T(ctx, "Answer: %s", string(text))
	}
	return lang.T(ctx, "Question: %s", string(text))
}

// shareView converts a link for the page.
func (h *Handlers) shareView(ctx context.Context, share links.Link, addresses []netip.AddrPort, snapshot *live.Snapshot) (web.Share, error) {
	s := web.Share{ID: share.ID, Followers: share.Followers, Live: share.Last == 0, Accepts: share.Requests, Ends: share.Expires}
	what := []string{lang.T(ctx, "the chat as it goes on")}
	if !s.Live {
		what[0] = lang.T(ctx, "the chat as it was then")
	}
	if share.First != 0 {
		what = append(what, lang.T(ctx, "from a message on"))
	}
	if share.System {
		what = append(what, lang.T(ctx, "with the system prompt"))
	}
	if share.Settings {
		what = append(what, lang.T(ctx, "with the sampling settings"))
	}
	s.What = strings.Join(what, ", ")
	if share.Token == "" {
		return s, nil
	}
	for _, at := range addresses {
		s.Links = append(s.Links, h.Reach.URL(at.String())+"/s/"+share.Token)
	}
	if len(s.Links) == 0 {
		s.Links = []string{h.Reach.URL(fmt.Sprintf("localhost:%d", h.Reach.Port())) + "/s/" + share.Token}
	}
	var err error
	s.QR, err = QRCode(s.Links[0])
	return s, err
}
