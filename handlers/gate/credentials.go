package gate

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/people"
)

// Asks is who must show a credential.
type Asks int

const (
	AsksAll    Asks = iota
	AsksOthers      // all but who sits at this machine, who is the owner of the server
	AsksNobody      // whoever reaches the server is its owner
)

// credential is what a request brings to say who it comes from. Programs send an API key as a
// bearer token or as X-Api-Key, browsers the cookie that a login gave them.
type credential struct{ key, cookie string }

// credentialOf is the only place that looks for credentials. Two in one request are refused: which
// one counts would be a secret of this function.
func (g *Gate) credentialOf(c echo.Context) (given credential, err error) {
	header := c.Request().Header
	bearers, keys := header.Values(echo.HeaderAuthorization), header.Values("X-Api-Key")
	var cookies []string
	for _, cookie := range c.Request().CookiesNamed(g.cookieName(c)) {
		cookies = append(cookies, cookie.Value)
	}
	if len(bearers)+len(keys)+len(cookies) > 1 {
		return given, failure.New(failure.SeveralCredentials, "the request has several credentials: send one Authorization header, one X-Api-Key header or one cookie")
	}
	switch {
	case len(bearers) == 1:
		scheme, key, _ := strings.Cut(bearers[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return given, failure.New(failure.InvalidKey, "send the API key as \"Authorization: Bearer KEY\"")
		}
		given.key = strings.TrimSpace(key)
	case len(keys) == 1:
		given.key = strings.TrimSpace(keys[0])
	case len(cookies) == 1:
		given.cookie = cookies[0]
		return given, nil
	default:
		return given, failure.New(failure.MissingKey, "this server asks for an API key: send it as \"Authorization: Bearer KEY\", or log in at /login")
	}
	if given.key == "" {
		return given, failure.New(failure.InvalidKey, "the API key is empty")
	}
	return given, nil
}

// identify puts on whose behalf a request is carried out into its context, or refuses it. The
// request ends when what let it in is revoked.
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
		ctx := access.With(r.Context(), known.Principal)
		if known.Credential != (people.Credential{}) {
			watched, done := g.opt.People.Watch(ctx, known.Credential)
			defer done()
			ctx = watched
		}
		c.SetRequest(r.WithContext(ctx))
		if err = next(c); err != nil && errors.Is(context.Cause(ctx), people.ErrRevoked) {
			return people.ErrRevoked
		}
		return err
	}
}

// known returns who a request comes from. Where the request must show nothing, a credential that
// is nobody's is passed over: clients of other servers insist on sending one.
func (g *Gate) known(c echo.Context) (people.Known, error) {
	known, err := g.shown(c)
	if err != nil && g.fromOwner(c) && failure.Describe(err).Code != failure.SeveralCredentials {
		return people.Known{Principal: access.Local}, nil
	}
	return known, err
}

// shown returns who a request comes from by the credential that it shows.
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
		return g.opt.People.ByKey(ctx, given.key, g.client(c))
	}
	if known, err = g.opt.People.ByDevice(ctx, given.cookie); err == nil && known.Renew {
		g.setCookie(c, given.cookie)
	}
	return known, err
}

// fromOwner reports whether a request needs no credential.
func (g *Gate) fromOwner(c echo.Context) bool {
	return g.opt.Asks == AsksNobody || g.opt.Asks == AsksOthers && g.fromThisMachine(c.Request())
}

// forwarding are the headers of requests that a proxy brings.
var forwarding = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}

// fromThisMachine reports whether a program or browser on this machine sent a request to it under
// a name that no other machine has. A proxy on this machine brings the requests of others.
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

// refuse sends people to the login page and programs away.
func (g *Gate) refuse(c echo.Context, err error) error {
	r := c.Request()
	if AsksForPage(r) && r.Method == http.MethodGet && !isWebSocket(r) && failure.Describe(err).Status == http.StatusUnauthorized {
		return c.Redirect(http.StatusSeeOther, "/login")
	}
	c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
	return err
}

func (g *Gate) client(c echo.Context) people.Client {
	return people.Client{Addr: g.proxies.client(c.Request()), UserAgent: c.Request().UserAgent()}
}

// cookieName has the prefix that binds a cookie to this host, where browsers honour it.
func (g *Gate) cookieName(c echo.Context) string {
	if g.opt.People == nil {
		return ""
	}
	if isSecure(c) {
		return "__Host-" + g.opt.People.Cookie()
	}
	return g.opt.People.Cookie()
}

// setCookie has a browser remember that it is logged in; an empty value, that it is not.
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

// isSecure reports whether the browser speaks https, here or to a proxy. Its own origin
// says so: it is that of the page, whatever brought the request here.
func isSecure(c echo.Context) bool {
	return strings.HasPrefix(OwnOrigin(c), "https://")
}
