package gate

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
)

// The checks of this file run before routing, so that they hold for routes that
// do not exist as well.

// SecurityHeaders are on every response.
var SecurityHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; object-src 'none'; frame-src 'none'; frame-ancestors 'none'; " +
		"worker-src 'none'; manifest-src 'self'; require-trusted-types-for 'script'; trusted-types m40",
	"X-Content-Type-Options": "nosniff",
	// Not no-referrer: under that policy browsers send "Origin: null" with the
	// page's own forms, and Sec-Fetch-Site is missing on plain http. To other
	// sites both policies say nothing.
	"Referrer-Policy":              "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), microphone=(), geolocation=()",
	"X-Robots-Tag":                 "noindex, nofollow, noarchive",
	"X-Frame-Options":              "DENY",
	"Cache-Control":                "no-store", // assets with a hash in their name say otherwise
}

func (g *Gate) setHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Response().Header()
		for name, value := range SecurityHeaders {
			header.Set(name, value)
		}
		return next(c)
	}
}

// normalizePath lets a route be found with and without a trailing slash and
// whatever was percent-encoded, so that the router and every check of a path see
// the same one.
func (g *Gate) normalizePath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		u := c.Request().URL
		u.RawPath = ""
		if trimmed := strings.TrimRight(u.Path, "/"); trimmed != "" {
			u.Path = trimmed
		} else {
			u.Path = "/"
		}
		return next(c)
	}
}

// hostPolicy decides which hosts a request may be addressed to. A page of another
// site can make a browser send requests here by pointing its own name at our
// address (DNS rebinding), but the request then still carries that name. Names
// are compared, never resolved.
type hostPolicy struct {
	allowed map[string][]string // name -> ports; "" stands for the port listened on
}

func newHostPolicy(hosts []string) hostPolicy {
	p := hostPolicy{allowed: map[string][]string{}}
	for _, host := range hosts {
		if name, port, ok := splitHost(strings.ToLower(host)); ok {
			p.allowed[name] = append(p.allowed[name], port)
		}
	}
	return p
}

// origin returns the origin that the server has for a request addressed to host
// on a connection to local, and whether it answers to that host at all.
func (p hostPolicy) origin(host string, local net.Addr, secure bool) (string, bool) {
	host = strings.ToLower(host)
	name, port, ok := splitHost(host)
	if !ok {
		return "", false
	}
	scheme, implied := "http", "80"
	if secure {
		scheme, implied = "https", "443"
	}
	own := scheme + "://" + strings.TrimSuffix(host, ":"+implied)
	if isLoopbackName(name) {
		return own, true // at any port: it may be the near end of a tunnel
	}
	listener := addrPortOf(local)
	ownPort := port
	if ownPort == "" {
		ownPort = implied
	}
	listens := listener.IsValid() && ownPort == strconv.Itoa(int(listener.Port()))
	if ip, err := netip.ParseAddr(name); err == nil && listens && ip.Unmap() == listener.Addr() {
		return own, true
	}
	for _, allowed := range p.allowed[name] {
		switch {
		case allowed == "" && listens, allowed != "" && allowed == ownPort:
			return own, true
		case allowed == "443" && port == "":
			// Behind a proxy that speaks https for us.
			return "https://" + host, true
		}
	}
	return "", false
}

// containerHosts are the names that containers have for the machine they run on.
var containerHosts = []string{"host.docker.internal", "host.containers.internal"}

// fromContainer reports whether a program in a container of this machine asks a route for
// programs under the name that it has for the machine. Nobody owns that name: on a strange
// network the resolver there can make it lead anywhere, first to a page of its own and then
// here, and what that page reads with GET looks like a program's request. So the name is
// answered only where such a page would be asked for a key, which no browser keeps for it.
func (g *Gate) fromContainer(r *http.Request, local net.Addr) bool {
	name, port, ok := splitHost(strings.ToLower(r.Host))
	peer := peerOf(r)
	return ok && g.keys != nil && slices.Contains(containerHosts, name) && isAPI(r.URL.Path) && !g.opt.Public[r.URL.Path] &&
		port == strconv.Itoa(int(addrPortOf(local).Port())) && (peer.IsLoopback() || peer.IsPrivate())
}

func isLoopbackName(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// splitHost takes apart the value of a Host header. IPv6 addresses lose their
// brackets.
func splitHost(host string) (name, port string, ok bool) {
	name = host
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i+1:]
		if port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "" {
			return "", "", false
		}
	}
	if bare, bracketed := strings.CutPrefix(name, "["); bracketed {
		name, bracketed = strings.CutSuffix(bare, "]")
		ip, err := netip.ParseAddr(name)
		return name, port, bracketed && err == nil && ip.Is6() && ip.Zone() == ""
	}
	return name, port, name != "" && !strings.ContainsAny(name, ":/@[]?# ")
}

func addrPortOf(addr net.Addr) netip.AddrPort {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

const originKey = "own origin"

// checkHost refuses requests that are addressed to anybody else.
func (g *Gate) checkHost(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		own, ok := g.host.origin(r.Host, local, g.proxies.secure(r))
		if !ok && g.fromContainer(r, local) {
			own, ok = "", true
		}
		if !ok || r.URL.Host != "" || r.URL.Scheme != "" {
			return failure.New(failure.HostNotAllowed,
				"this server does not answer to the host %q; --allow-host adds names", r.Host)
		}
		c.Set(originKey, own)
		return next(c)
	}
}

// checkOrigin keeps other sites' pages out. Browsers say where a request comes
// from with Origin, Sec-Fetch-Site or both; programs say nothing.
func (g *Gate) checkOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if g.allowForeignOrigin(c) {
			if r.Method == http.MethodOptions {
				return c.NoContent(http.StatusNoContent)
			}
			return next(c)
		}
		origins := r.Header.Values("Origin")
		site := r.Header.Get("Sec-Fetch-Site")
		own := OwnOrigin(c)
		safe := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		switch {
		case len(origins) > 1, len(origins) == 1 && !sameOrigin(origins[0], own):
			return forbidden("requests from the origin %q are not allowed", strings.Join(origins, ", "))
		case site != "" && site != "same-origin" && site != "none" && !isNavigation(r):
			return forbidden("requests from other sites are not allowed")
		case isWebSocket(r) && len(origins) == 0:
			return forbidden("a websocket needs the Origin header")
		case !isAPI(r.URL.Path) && !safe && len(origins) == 0 && site != "same-origin":
			return forbidden("a form needs the Origin header; programs use the API routes")
		}
		return next(c)
	}
}

func forbidden(format string, args ...any) error {
	return failure.New(failure.OriginNotAllowed, format, args...)
}

// sameOrigin compares an Origin header with the server's own origin. "null" is
// nobody's.
func sameOrigin(origin, own string) bool {
	u, err := url.Parse(strings.ToLower(origin))
	if err != nil || u.Host == "" {
		return false
	}
	host := u.Host
	switch u.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return u.Scheme+"://"+host == own && strings.EqualFold(origin, u.Scheme+"://"+u.Host)
}

// isNavigation reports whether somebody followed a link to one of our pages: a
// link to a shared chat is opened from a messenger. The other site learns nothing
// from it, and no page changes anything on GET.
func isNavigation(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document" &&
		!isAPI(r.URL.Path)
}

// OwnOrigin returns the origin that the server has for the client of c; empty for a program
// in a container.
func OwnOrigin(c echo.Context) string {
	own, _ := c.Get(originKey).(string)
	return own
}

// CheckWebSocket refuses a request that asks for no websocket, or from another origin. That
// was checked before, as on every route; a websocket opened by a foreign page would be worth
// a second lock.
func CheckWebSocket(c echo.Context) error {
	r := c.Request()
	if !sameOrigin(r.Header.Get("Origin"), OwnOrigin(c)) {
		return forbidden("a websocket needs an Origin of this server")
	}
	if !isWebSocket(r) {
		c.Response().Header().Set("Upgrade", "websocket")
		return failure.New(failure.WebSocketOnly, "this address answers websockets only")
	}
	return nil
}

func isWebSocket(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Upgrade"), func(v string) bool { return strings.EqualFold(strings.TrimSpace(v), "websocket") })
}

// corsHeaders are the request headers that OpenAI clients in browsers send.
const corsHeaders = "Authorization, Content-Type, User-Agent, Accept, X-Requested-With, X-Api-Key, OpenAI-Beta, OpenAI-Organization, OpenAI-Project, " +
	"x-stainless-arch, x-stainless-async, x-stainless-custom-poll-interval, x-stainless-helper-method, x-stainless-lang, x-stainless-os, " +
	"x-stainless-package-version, x-stainless-poll-helper, x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout"

// allowForeignOrigin admits the origins of --cors-origin to /v1, never with credentials,
// and tells their browser so.
func (g *Gate) allowForeignOrigin(c echo.Context) bool {
	r := c.Request()
	if len(g.opt.CORSOrigins) == 0 || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return false
	}
	header := c.Response().Header()
	header.Add(echo.HeaderVary, echo.HeaderOrigin)
	origins := r.Header.Values("Origin")
	if len(origins) != 1 || !slices.Contains(g.opt.CORSOrigins, origins[0]) {
		return false
	}
	header.Set(echo.HeaderAccessControlAllowOrigin, origins[0])
	header.Set(echo.HeaderAccessControlExposeHeaders, "Retry-After, X-Request-Id, X-Should-Retry, "+httpio.IgnoredHeader)
	if r.Method == http.MethodOptions {
		header.Set(echo.HeaderAccessControlAllowMethods, "GET, POST")
		header.Set(echo.HeaderAccessControlAllowHeaders, corsHeaders)
		header.Set(echo.HeaderAccessControlMaxAge, "600")
	}
	return true
}
