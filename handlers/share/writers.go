package share

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/infer/fault"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// messageLimit is the largest body in bytes of what a reader sends, as of a command of the websocket.
const messageLimit = 256 << 10

// cookieName is the cookie by which a browser that has asked to write is known. Its path is that of
// the link.
const cookieName = "m40_writer"

// secretOf returns the secret of a browser that has asked to write. Several are none: which
// counts would be a guess.
func secretOf(c echo.Context) string {
	cookies := c.Request().CookiesNamed(cookieName)
	if len(cookies) != 1 {
		return ""
	}
	return cookies[0].Value
}

func setSecret(c echo.Context, secret string) {
	c.SetCookie(&http.Cookie{
		Name:     cookieName,
		Value:    secret,
		Path:     "/s/" + url.PathEscape(c.Param("token")),
		Secure:   strings.HasPrefix(gate.OwnOrigin(c), "https://"),
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
}

// writeAccess is what a reader sees of write access.
type writeAccess struct {
	view    web.WriteAccess
	changed <-chan struct{}
}

func (k writeAccess) frame() frame { return frame{Type: "keyboard", WriteAccess: &k.view} }

func (h *Handlers) accessOf(ctx context.Context, who live.Principal, asker int64) writeAccess {
	r, changed := h.Guests.ReaderAccess(who, asker)
	view := web.WriteAccess{State: string(r.State), Name: r.Name, Accepts: r.Accepts, Typing: []string{}, Said: web.WriteAccessText(ctx, string(r.State))}
	for _, t := range r.Typing {
		name := t.Name
		if t.Owner {
			name = lang.T(ctx, "The owner")
		}
		view.Typing = append(view.Typing, name)
	}
	return writeAccess{view, changed}
}

// readerForm is what a reader sends.
type readerForm struct {
	Do   string `json:"do"` // ask, send, stop, typing or leave
	Name string `json:"name"`
	Text string `json:"text"`
}

func readReaderForm(c echo.Context) (f readerForm, err error) {
	r := c.Request()
	whole := r.Body
	r.Body = http.MaxBytesReader(c.Response(), whole, messageLimit)
	defer func() {
		var large *http.MaxBytesError
		if errors.As(err, &large) { // most clients read the response only after they have sent everything
			_, _ = io.Copy(io.Discard, whole)
		}
	}()
	if httpio.SendsJSON(c) {
		err = httpio.ReadStrictJSON(c, &f)
		return f, err
	}
	if err := r.ParseForm(); err != nil {
		return f, err
	}
	text := strings.ReplaceAll(r.PostForm.Get("text"), "\r\n", "\n") // forms encode line breaks as CRLF
	return readerForm{Do: r.PostForm.Get("do"), Name: r.PostForm.Get("name"), Text: text}, nil
}

// write handles POST /s/:token/write. Scripts get 204 or an error as JSON; forms get a page.
func (h *Handlers) write(c echo.Context) error {
	who, err := h.holder(c)
	var f readerForm
	if err == nil {
		if f, err = readReaderForm(c); err == nil {
			err = h.do(c, who, f)
		}
	}
	switch {
	case errors.Is(err, links.ErrNotShared):
		return NotShared(c)
	case httpio.WantsJSON(c.Request()) && err == nil:
		return c.NoContent(http.StatusNoContent)
	case httpio.WantsJSON(c.Request()):
		return err
	case err != nil:
		problem := failure.For(c.Request().Context(), err)
		if problem.Status >= http.StatusInternalServerError {
			return err
		}
		return h.renderWritePage(c, who, problem.Status, web.WriteForm{Draft: f.Text, Problem: problem.Text})
	case f.Do == "send":
		return c.Redirect(http.StatusSeeOther, "/s/"+url.PathEscape(c.Param("token"))+"?grow=1#end")
	}
	return c.Redirect(http.StatusSeeOther, "/s/"+url.PathEscape(c.Param("token"))+"/write")
}

// do does what a reader wants.
func (h *Handlers) do(c echo.Context, who live.Principal, f readerForm) error {
	ctx, secret := c.Request().Context(), secretOf(c)
	switch f.Do {
	case "ask":
		fresh, err := h.Guests.AskToWrite(ctx, who, f.Name, secret)
		if fresh != "" {
			setSecret(c, fresh)
		}
		return err
	case "send":
		return h.Guests.Write(ctx, h.Guests.Writing(who, secret), f.Text)
	case "stop":
		return h.Guests.StopOwn(ctx, h.Guests.Writing(who, secret))
	case "typing":
		return h.Guests.Typing(h.Guests.Writing(who, secret))
	case "leave":
		return h.Guests.StopWriting(who, secret)
	}
	return fault.Invalid("do", "do is %q, but must be ask, send, stop, typing or leave", httpio.Shorten(f.Do))
}

// writePage handles GET /s/:token/write, the page on which readers without scripts ask and write.
func (h *Handlers) writePage(c echo.Context) error {
	who, err := h.holder(c)
	if errors.Is(err, links.ErrNotShared) {
		return NotShared(c)
	}
	if err != nil {
		return err
	}
	return h.renderWritePage(c, who, http.StatusOK, web.WriteForm{})
}

func (h *Handlers) renderWritePage(c echo.Context, who live.Principal, status int, p web.WriteForm) error {
	following, shown, err := h.Guests.Follow(c.Request().Context(), who, 0)
	if errors.Is(err, links.ErrNotShared) {
		return NotShared(c)
	}
	if err != nil {
		return err
	}
	following.Close()
	p.Token, p.Title = c.Param("token"), shown.Title
	p.WriteAccess = h.accessOf(c.Request().Context(), who, h.Guests.Asker(who, secretOf(c))).view
	if n := len(shown.Messages); n > 1 && shown.Messages[n-1].Answer != nil {
		p.Running = shown.Messages[n-1].Answer.State.Running() && shown.Messages[n-2].Author == p.WriteAccess.Name
	}
	return httpio.Render(c, status, web.WritePage(p))
}

// setWriter handles POST /c/:id/share/writers: the owner answers a request to write, or takes the
// write access back.
func (h *Handlers) setWriter(c echo.Context) error {
	id, err := strconv.ParseInt(c.FormValue("writer"), 10, 64)
	if err != nil {
		return fault.Invalid("writer", "writer is %q, but must be the number of a writer", httpio.Shorten(c.FormValue("writer")))
	}
	ctx := c.Request().Context()
	chat, err := h.Live.Chat(ctx, access.PrincipalOf(ctx), c.Param("id"))
	if err != nil {
		return err
	}
	if err := h.Guests.SetWriter(access.PrincipalOf(ctx), chat, id, guest.WriterState(c.FormValue("state"))); err != nil {
		return err
	}
	return h.changed(c)
}

// acceptRequests handles POST /c/:id/share/requests: the owner lets the readers of a link ask to
// write, or not.
func (h *Handlers) acceptRequests(c echo.Context) error {
	id, err := strconv.ParseInt(c.FormValue("share"), 10, 64)
	if err != nil {
		return fault.Invalid("share", "share is %q, but must be the number of a link", httpio.Shorten(c.FormValue("share")))
	}
	accept, err := strconv.ParseBool(c.FormValue("accept"))
	if err != nil {
		return fault.Invalid("accept", "accept is %q, but must be true or false", httpio.Shorten(c.FormValue("accept")))
	}
	ctx := c.Request().Context()
	if err := h.Guests.AcceptRequests(ctx, access.PrincipalOf(ctx), c.Param("id"), id, accept); err != nil {
		return err
	}
	return h.changed(c)
}
