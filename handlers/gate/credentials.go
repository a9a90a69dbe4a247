package gate

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/people"
	"m40-llm/handlers/visitors"
	"m40-llm/infer/fault"
	"m40-llm/web"
)

// Asks says which requests must have a credential.
type Asks int

const (
	AsksAll    Asks = iota
	AsksOthers      // all but those from this machine, which are the owner's
	AsksNoOne       // none: all are the owner's
)

// credential identifies who sends a request. Programs send an API key as a bearer token or as
// X-Api-Key, browsers the cookie of their login.
type credential struct{ key, cookie string }

// credentialOf is the only place that reads credentials from requests. Several different ones in one request
// are an error, since clients could not know which one counts.
func (g *Gate) credentialOf(c echo.Context) (given credential, err error) {
	header := c.Request().Header
	bearers := header.Values(echo.HeaderAuthorization)
	var keys []string
	for _, key := range header.Values("X-Api-Key") {
		keys = append(keys, strings.TrimSpace(key))
	}
	for _, value := range bearers {
		scheme, key, _ := strings.Cut(value, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return given, fault.Errorf(fault.CodeInvalidKey, "send the API key as \"Authorization: Bearer KEY\"")
		}
		keys = append(keys, strings.TrimSpace(key))
	}
	slices.Sort(keys)
	keys = slices.Compact(keys) // some clients send one key in both headers
	var cookies []string
	for _, cookie := range c.Request().CookiesNamed(g.cookieName(c)) {
		cookies = append(cookies, cookie.Value)
	}
	if len(keys)+len(cookies) > 1 {
		return given, fault.Errorf(fault.CodeSeveralCredentials, "the request has several credentials: send one API key, as Authorization or X-Api-Key, or one cookie")
	}
	switch {
	case len(keys) == 1:
		given.key = keys[0]
	case len(cookies) == 1:
		given.cookie = cookies[0]
		return given, nil
	default:
		return given, fault.Errorf(fault.CodeMissingKey, "this server asks for an API key: send it as \"Authorization: Bearer KEY\", or log in at /login")
	}
	if given.key == "" {
		return given, fault.Errorf(fault.CodeInvalidKey, "the API key is empty")
	}
	return given, nil
}

// identify puts the principal of a request into its context, or refuses the request. The context
// is cancelled if the credential is revoked.
func (g *Gate) identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if g.opt.Public[c.Path()] {
			return next(c)
		}
		known, err := g.known(c)
		if err != nil {
			return g.refuse(c, err)
		}
		r := c.Request()
		ctx := people.WithCredential(access.With(r.Context(), known.Principal), known.Credential)
		ctx = activity.With(ctx, activity.Origin{Person: known.Principal.Owner, Key: known.KeyName})
		switch {
		case known.Principal.Role == access.RoleVisitor:
			watched, done := g.opt.Visitors.Watch(web.WithVisitor(ctx), known.Principal.Owner)
			defer done()
			ctx = watched
		case known.Credential != (people.Credential{}):
			watched, done := g.opt.People.Watch(ctx, known.Credential)
			defer done()
			ctx = watched
		}
		c.SetRequest(r.WithContext(ctx))
		defer c.SetRequest(r) // pages about errors are rendered later, and not with a context that is done
		err = next(c)
		for _, ended := range []error{people.ErrRevoked, visitors.ErrClosed, visitors.ErrUnknown} {
			if err != nil && errors.Is(context.Cause(ctx), ended) {
				return ended
			}
		}
		return err
	}
}

// known returns who sends a request. Where no credential is required, a wrong one is ignored:
// some clients cannot be configured to send none.
func (g *Gate) known(c echo.Context) (people.Known, error) {
	known, err := g.shown(c)
	if err != nil && g.fromOwner(c) && failure.Describe(err).Code != fault.CodeSeveralCredentials {
		return people.Known{Principal: access.Local}, nil
	}
	if err != nil && g.mayVisit(c, err) {
		who, visitErr := g.visit(c)
		if !errors.Is(visitErr, visitors.ErrClosed) {
			return people.Known{Principal: who}, visitErr
		}
	}
	return known, err
}

// shown returns who sends a request according to its credential.
func (g *Gate) shown(c echo.Context) (known people.Known, err error) {
	given, err := g.credentialOf(c)
	if err != nil {
		return known, err
	}
	ctx := c.Request().Context()
	switch {
	case g.opt.People == nil:
		return known, people.ErrWrongKey
	case given.cookie == "":
		return g.opt.People.ByKey(ctx, given.key, g.Sender(c))
	}
	if known, err = g.opt.People.ByDevice(ctx, given.cookie); err == nil && known.Renew {
		g.setCookie(c, given.cookie)
	}
	return known, err
}

// fromOwner reports whether a request is the owner's without a credential.
func (g *Gate) fromOwner(c echo.Context) bool {
	return g.opt.Asks == AsksNoOne || g.opt.Asks == AsksOthers && g.fromThisMachine(c.Request())
}

// forwarding are the headers that proxies add.
var forwarding = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}

// fromThisMachine reports whether a program or browser on this machine sent a request to a loopback
// name. Requests through a proxy on this machine may be those of others.
func (g *Gate) fromThisMachine(r *http.Request) bool {
	name, _, ok := splitHost(strings.ToLower(r.Host))
	if !ok || !isLoopbackName(name) || !peerOf(r).IsLoopback() || len(g.proxies) > 0 {
		return false
	}
	for _, header := range forwarding {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	return true
}

// refuse redirects browsers to the login page, and returns err for programs.
func (g *Gate) refuse(c echo.Context, err error) error {
	r := c.Request()
	if AsksForPage(r) && r.Method == http.MethodGet && !isWebSocket(r) && failure.Describe(err).Status == http.StatusUnauthorized {
		return c.Redirect(http.StatusSeeOther, "/login")
	}
	c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
	return err
}

// Sender returns the client of a request as the people know it.
func (g *Gate) Sender(c echo.Context) people.Client {
	return people.Client{Addr: g.proxies.client(c.Request()), UserAgent: c.Request().UserAgent()}
}

// cookieName returns the name of the login cookie. Over https it has the prefix __Host-, with which
// browsers bind it to this host.
func (g *Gate) cookieName(c echo.Context) string {
	if g.opt.People == nil {
		return ""
	}
	if isSecure(c) {
		return "__Host-" + g.opt.People.Cookie()
	}
	return g.opt.People.Cookie()
}

// setCookie sets the login cookie; an empty value deletes it.
func (g *Gate) setCookie(c echo.Context, value string) {
	cookie := &http.Cookie{
		Name:     g.cookieName(c),
		Value:    value,
		Path:     "/",
		MaxAge:   int(people.DeviceIdle.Seconds()),
		Secure:   isSecure(c),
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	c.SetCookie(cookie)
}

// isSecure reports whether the browser uses https, to this server or to a proxy before it: the
// page's origin says so.
func isSecure(c echo.Context) bool {
	return strings.HasPrefix(OwnOrigin(c), "https://")
}

// noteEncryption marks the context of requests from other machines that are not encrypted, for the
// pages that say so.
func (g *Gate) noteEncryption(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if from := g.proxies.client(r); from.IsValid() && !from.IsLoopback() && !isSecure(c) {
			c.SetRequest(r.WithContext(web.WithoutEncryption(r.Context())))
		}
		return next(c)
	}
}
