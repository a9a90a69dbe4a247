package account

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/people"
	"m40-llm/infer/fault"
	"m40-llm/web"
)

// rename serves POST /people/:id/rename.
func (h *Handlers) rename(c echo.Context) error {
	person, name := c.Param("id"), c.FormValue("name")
	err := h.People.Rename(c.Request().Context(), principal(c), person, name)
	return h.changed(c, person, err, func(a *web.Account, problem string) { a.Renaming, a.NameProblem = name, problem })
}

// setPassphrase serves POST /people/:id/passphrase. The field old must be the present passphrase, if
// there is one.
func (h *Handlers) setPassphrase(c echo.Context) error {
	// FormValue would also accept a passphrase in the URL, which browsers and proxies record.
	if err := c.Request().ParseForm(); err != nil {
		return err
	}
	sent := c.Request().PostForm
	if sent.Get("new") == "" {
		return h.passphraseChanged(c, people.CheckPassphrase(""))
	}
	return h.changePassphrase(c, people.PassphraseChange{Old: sent.Get("old"), New: sent.Get("new"), LogOut: sent.Has("others")})
}

// removePassphrase serves POST /people/:id/passphrase/remove.
func (h *Handlers) removePassphrase(c echo.Context) error {
	if err := c.Request().ParseForm(); err != nil {
		return err
	}
	return h.changePassphrase(c, people.PassphraseChange{Old: c.Request().PostForm.Get("old")})
}

func (h *Handlers) changePassphrase(c echo.Context, change people.PassphraseChange) error {
	ctx := c.Request().Context()
	change.By, change.Client = people.CredentialOf(ctx), h.Sender(c)
	return h.passphraseChanged(c, h.People.ChangePassphrase(ctx, principal(c), c.Param("id"), change))
}

func (h *Handlers) passphraseChanged(c echo.Context, err error) error {
	return h.changed(c, c.Param("id"), err, func(a *web.Account, problem string) { a.PassphraseProblem = problem })
}

// changed redirects to the person's page. If err is one that the person can correct, it shows the
// page with it.
func (h *Handlers) changed(c echo.Context, person string, err error, show func(a *web.Account, problem string)) error {
	if err == nil {
		return c.Redirect(http.StatusSeeOther, "/people/"+person)
	}
	f := failure.For(c.Request().Context(), err)
	switch f.Code {
	case fault.CodeInvalid, fault.CodeWrongPassphrase, fault.CodeNameTaken:
	case fault.CodeTooManyAttempts:
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(f.RetryAfter))
	default:
		return err
	}
	return h.showAccountAs(c, f.Status, person, func(a *web.Account) { show(a, f.Text) })
}
