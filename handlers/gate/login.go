package gate

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/web"
)

// Login serves GET /login, a form for a code or key. The link of an invitation fills in its secret,
// which is used up only when the form is sent, so that programs that preview links do not use it.
func (g *Gate) Login(c echo.Context) error {
	if g.fromOwner(c) {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	return httpio.Render(c, http.StatusOK, web.Login(g.loginForm(c, c.QueryParam("link"))))
}

func (g *Gate) loginForm(c echo.Context, link string) web.LoginForm {
	return web.LoginForm{Link: link, Plain: !isSecure(c) && !peerOf(c.Request()).IsLoopback()}
}

// SubmitLogin serves POST /login: it logs the device in if its code or key is right.
func (g *Gate) SubmitLogin(c echo.Context) error {
	if g.fromOwner(c) {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	if err := c.Request().ParseForm(); err != nil {
		return err
	}
	// FormValue would also accept a key in the URL, which browsers and proxies record.
	cookie, err := g.opt.People.Enter(c.Request().Context(), c.Request().PostForm.Get("key"), g.client(c))
	if err != nil {
		f := failure.Describe(err)
		setRetryHeaders(c, f)
		form := g.loginForm(c, "")
		form.Problem = f.Text
		return httpio.Render(c, f.Status, web.Login(form))
	}
	g.setCookie(c, cookie)
	return c.Redirect(http.StatusSeeOther, "/")
}

// LogOut serves POST /logout: it logs out the device that sends the request.
func (g *Gate) LogOut(c echo.Context) error {
	given, err := g.credentialOf(c)
	if err != nil || given.cookie == "" || g.opt.People == nil {
		return c.Redirect(http.StatusSeeOther, "/login")
	}
	g.setCookie(c, "")
	if err := g.opt.People.LogOut(c.Request().Context(), given.cookie); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/login")
}
