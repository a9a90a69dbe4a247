package gate

import (
	"net/http"
	"net/netip"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/failure"
	"m40-llm/infer/fault"
)

// mayVisit reports whether a request that was refused with err may be one of a visitor. Programs always need a key, and who sends
// a wrong one is told so.
func (g *Gate) mayVisit(c echo.Context, err error) bool {
	r := c.Request()
	if g.opt.Visitors == nil || g.opt.Asks != AsksOthers || IsAPI(r.URL.Path) || !g.fromPrivate(r) {
		return false
	}
	code := failure.Describe(err).Code
	return code == fault.CodeMissingKey || code == fault.CodeNotLoggedIn
}

// visit returns the visitor who sends a request. A browser that opens a page is let in as a new one.
func (g *Gate) visit(c echo.Context) (access.Principal, error) {
	r := c.Request()
	name, cookie := g.visitorCookie(c), ""
	if given, err := c.Cookie(name); err == nil {
		cookie = given.Value
	}
	first := AsksForPage(r) && r.Method == http.MethodGet && !isWebSocket(r)
	who, set, err := g.opt.Visitors.Enter(cookie, g.proxies.client(r), first)
	if set != "" {
		// Without an age the cookie ends with the session of the browser.
		c.SetCookie(&http.Cookie{Name: name, Value: set, Path: "/", Secure: isSecure(c), HttpOnly: true, SameSite: http.SameSiteStrictMode})
	}
	return who, err
}

// visitorCookie returns the name of the cookie of visitors.
func (g *Gate) visitorCookie(c echo.Context) string { return g.cookieName(c) + "_visitor" }

// fromPrivate reports whether a request comes from a private address, and for no other. That of a proxy that is not trusted may
// come from anywhere, and so may one of a trusted proxy that does not say from where. Of a request that came a longer way, each
// address must be private.
func (g *Gate) fromPrivate(r *http.Request) bool {
	if !g.proxies.trusts(peerOf(r)) {
		for _, header := range forwarding {
			if r.Header.Get(header) != "" {
				return false
			}
		}
		return isPrivate(peerOf(r))
	}
	client := g.proxies.client(r)
	if g.proxies.trusts(client) {
		return false
	}
	hops := append(listOf(r.Header, "X-Forwarded-For"), forwardedOf(r.Header, "for")...)
	for _, hop := range append(hops, listOf(r.Header, "X-Real-Ip")...) {
		if addr, ok := hopAddr(hop); !ok || !isPrivate(addr) {
			return false
		}
	}
	return isPrivate(client)
}

// isPrivate reports whether an address is one of a local network. A loopback address is none: who has it and is not the owner
// came through a proxy or a tunnel.
func isPrivate(addr netip.Addr) bool { return addr.IsPrivate() || addr.IsLinkLocalUnicast() }
