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
	return g.showLogin(c, http.StatusOK, web.LoginForm{Link: c.QueryParam("link")})
}

func (g *Gate) showLogin(c echo.Context, status int, form web.LoginForm) error {
	some, err := g.opt.People.HasPassphrases(c.Request().Context())
	if err != nil {
		return err
	}
	form.Passphrases = some
	return httpio.Render(c, status, web.Login(form))
}

// SubmitLogin serves POST /login: it logs the device in if its code or key is right, or a person's
// name and passphrase are.
func (g *Gate) SubmitLogin(c echo.Context) error {
	if g.fromOwner(c) {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	if err := c.Request().ParseForm(); err != nil {
		return err
	}
	// FormValue would also accept a secret in the URL, which browsers and proxies record.
	sent := c.Request().PostForm
	form := web.LoginForm{ByName: sent.Has("passphrase"), Name: sent.Get("name")}
	var cookie string
	var err error
	if form.ByName {
		cookie, err = g.opt.People.EnterByName(c.Request().Context(), form.Name, sent.Get("passphrase"), g.Sender(c))
	} else {
		cookie, err = g.opt.People.Enter(c.Request().Context(), sent.Get("key"), g.Sender(c))
	}
	if err != nil {
		f := failure.For(c.Request().Context(), err)
		setRetryHeaders(c, f)
		form.Problem = f.Text
		return g.showLogin(c, f.Status, form)
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
