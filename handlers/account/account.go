// Package account serves the pages about people: the list of all, for the owner of the server, and
// a page for each person with their devices and API keys. The pages work without scripts.
package account

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/handlers/people"
	"m40-llm/handlers/quota"
	"m40-llm/handlers/share"
	"m40-llm/infer/fault"
	"m40-llm/store"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// Handlers serves the pages. All fields must be set.
type Handlers struct {
	People *people.Service
	Live   *live.Service
	Reach  *share.Reach
	Alone  bool // other machines cannot use the server
	Sender func(echo.Context) people.Client

	Announced func() string // name of the server in the local network now; empty: none

	Fingerprint string // of the server's self-signed certificate; empty: there is none
}

// Routes adds the routes of the pages to e.
func (h *Handlers) Routes(e *echo.Echo) {
	e.GET("/people", h.list)
	e.POST("/people", h.add)
	e.GET("/people/:id", h.show)
	e.POST("/people/:id/invite", h.invite)
	e.POST("/people/:id/devices/revoke", h.change(h.revokeDevice))
	e.POST("/people/:id/keys", h.createKey)
	e.POST("/people/:id/keys/revoke", h.change(h.revokeKey))
	e.POST("/people/:id/limit", h.change(h.limit))
	e.POST("/people/:id/rename", h.rename)
	e.POST("/people/:id/passphrase", h.setPassphrase)
	e.POST("/people/:id/passphrase/remove", h.removePassphrase)
	e.POST("/people/:id/remove", h.remove)
}

func principal(c echo.Context) access.Principal { return access.PrincipalOf(c.Request().Context()) }

// list serves GET /people: all people for the owner of the server, and for others their own page.
func (h *Handlers) list(c echo.Context) error {
	if who := principal(c); who.Role != access.RoleOwner {
		return c.Redirect(http.StatusSeeOther, "/people/"+who.Owner)
	}
	return h.showList(c, http.StatusOK, web.People{})
}

func (h *Handlers) showList(c echo.Context, status int, p web.People) error {
	all, err := h.People.People(c.Request().Context(), principal(c))
	if err != nil {
		return err
	}
	p.Alone = h.Alone
	for _, account := range all {
		p.List = append(p.List, h.view(c, account))
	}
	return httpio.Render(c, status, web.PeoplePage(p))
}

// add serves POST /people, and invites the first device of the new person.
func (h *Handlers) add(c echo.Context) error {
	name := c.FormValue("name")
	p, err := h.People.Add(c.Request().Context(), principal(c), name)
	if f := failure.For(c.Request().Context(), err); f.Code == fault.CodeInvalid || f.Code == fault.CodeNameTaken {
		return h.showList(c, f.Status, web.People{Problem: f.Text, Name: name})
	}
	if err != nil {
		return err
	}
	if h.Alone {
		return c.Redirect(http.StatusSeeOther, "/people/"+p.ID)
	}
	return h.showInvitation(c, p.ID)
}

// show serves GET /people/:id.
func (h *Handlers) show(c echo.Context) error {
	return h.showAccount(c, c.Param("id"), func(*web.Account) {})
}

// showAccount renders the page of a person after change has added to it.
func (h *Handlers) showAccount(c echo.Context, person string, change func(*web.Account)) error {
	return h.showAccountAs(c, http.StatusOK, person, change)
}

func (h *Handlers) showAccountAs(c echo.Context, status int, person string, change func(*web.Account)) error {
	account, err := h.People.Account(c.Request().Context(), principal(c), person)
	if err != nil {
		return err
	}
	a := h.view(c, account)
	change(&a)
	return httpio.Render(c, status, web.AccountPage(a))
}

// invite serves POST /people/:id/invite.
func (h *Handlers) invite(c echo.Context) error { return h.showInvitation(c, c.Param("id")) }

func (h *Handlers) showInvitation(c echo.Context, person string) error {
	made, err := h.People.Invite(c.Request().Context(), principal(c), person)
	if err != nil {
		return err
	}
	shown, trouble, err := h.invitation(made)
	if err != nil {
		return err
	}
	return h.showAccount(c, person, func(a *web.Account) {
		a.Invitation, a.Plain, a.Fingerprint = shown, !h.Reach.Encrypted(), h.Fingerprint
		if trouble != nil {
			a.Problem = failure.Sentence(c.Request().Context(), trouble.Error())
		}
	})
}

// invitation returns an invitation for the page, with the addresses and the name of the server. The
// addresses come first: not all phones know names of a local network.
func (h *Handlers) invitation(made people.Invitation) (shown *web.Invitation, trouble, err error) {
	addresses, trouble := h.Reach.Addresses()
	shown = &web.Invitation{Code: made.Code}
	var at []string
	for _, addr := range addresses {
		at = append(at, addr.String())
	}
	if name := h.Announced(); name != "" {
		at = append(at, net.JoinHostPort(name, strconv.Itoa(int(h.Reach.Port()))))
	}
	for i, host := range at {
		link := web.InvitationLink{Address: h.Reach.URL(host)}
		if i == 0 || i >= len(addresses) {
			if link.QR, err = share.QRCode(link.Address + "/login?link=" + made.Link); err != nil {
				return nil, trouble, err
			}
		}
		shown.Links = append(shown.Links, link)
	}
	return shown, trouble, nil
}

// createKey serves POST /people/:id/keys.
func (h *Handlers) createKey(c echo.Context) error {
	key, err := h.People.CreateKey(c.Request().Context(), principal(c), c.Param("id"), strings.TrimSpace(c.FormValue("name")))
	if err != nil {
		return err
	}
	return h.showAccount(c, c.Param("id"), func(a *web.Account) { a.NewKey = key })
}

// change returns a handler that calls change and redirects to the person's page.
func (h *Handlers) change(change func(c echo.Context, who access.Principal, person string) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := change(c, principal(c), c.Param("id")); err != nil {
			return err
		}
		return c.Redirect(http.StatusSeeOther, "/people/"+c.Param("id"))
	}
}

func (h *Handlers) revokeDevice(c echo.Context, who access.Principal, person string) error {
	id, err := number(c, "id")
	if err != nil {
		return err
	}
	return h.People.RevokeDevice(c.Request().Context(), who, person, id)
}

func (h *Handlers) revokeKey(c echo.Context, who access.Principal, person string) error {
	id, err := number(c, "id")
	if err != nil {
		return err
	}
	return h.People.RevokeKey(c.Request().Context(), who, person, id)
}

// maxAtOnce is the largest limit of answers at once.
const maxAtOnce = 1000

func (h *Handlers) limit(c echo.Context, who access.Principal, person string) error {
	var l store.PersonLimits
	for _, field := range []struct {
		name  string
		value *int
		most  int
	}{{"at_once", &l.AtOnce, maxAtOnce}, {"answers", &l.Answers, quota.MaxLimit}, {"tokens", &l.Tokens, quota.MaxLimit}} {
		if c.FormValue(field.name) == "" {
			continue
		}
		n, err := number(c, field.name)
		if err != nil {
			return err
		}
		if n < 0 || n > int64(field.most) {
			return fault.Invalid(field.name, "%s is %d, but must be from 1 to %d, or empty for no limit", field.name, n, field.most)
		}
		*field.value = int(n)
	}
	return h.People.Limit(c.Request().Context(), who, person, l)
}

// remove serves POST /people/:id/remove. The field confirm must be the person's name.
func (h *Handlers) remove(c echo.Context) error {
	person := c.Param("id")
	err := h.People.Remove(c.Request().Context(), principal(c), person, c.FormValue("confirm"))
	if errors.Is(err, people.ErrNotConfirmed) {
		return h.showAccount(c, person, func(a *web.Account) { a.Problem = failure.Sentence(c.Request().Context(), err.Error()) })
	}
	if err != nil {
		return err
	}
	h.Live.Forget(person)
	return c.Redirect(http.StatusSeeOther, "/people")
}

func number(c echo.Context, field string) (int64, error) {
	n, err := strconv.ParseInt(c.FormValue(field), 10, 64)
	if err != nil {
		return 0, fault.Invalid(field, "%s is %q, but must be a number", field, httpio.Shorten(c.FormValue(field)))
	}
	return n, nil
}

// view converts an account for the page.
func (h *Handlers) view(c echo.Context, account people.Account) web.Account {
	who := principal(c)
	a := web.Account{
		ID: account.ID, Name: account.Name, IsOwner: account.IsOwner, Limits: web.PersonLimits(account.Limits), Alone: h.Alone,
		Manages: who.Role == access.RoleOwner, Own: who.Owner == account.ID,
		HasPassphrase: account.HasPassphrase, MinPassphrase: people.MinPassphrase,
	}
	for _, d := range account.Devices {
		a.Devices = append(a.Devices, web.Credential{ID: d.ID, Name: d.Label, Use: lang.Key("last seen"), Used: d.Seen, Since: d.Created})
	}
	for _, k := range account.Keys {
		a.Keys = append(a.Keys, web.Credential{ID: k.ID, Name: k.Name, Use: lang.Key("last used"), Used: k.Used, Since: k.Created})
	}
	return a
}
