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

	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"
)

// The checks in this file run before routing, so that they also protect paths without a
// route.

// SecurityHeaders are set on every response.
var SecurityHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; object-src 'none'; frame-src 'none'; frame-ancestors 'none'; " +
		"worker-src 'none'; manifest-src 'self'; require-trusted-types-for 'script'; trusted-types m40",
	"X-Content-Type-Options": "nosniff",
	// Not no-referrer: with that policy browsers send "Origin: null" with the
	// page's own forms, and on plain http they send no Sec-Fetch-Site either.
	// Both policies send no referrer to other sites.
	"Referrer-Policy":              "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), microphone=(), geolocation=()",
	"X-Robots-Tag":                 "noindex, nofollow, noarchive",
	"X-Frame-Options":              "DENY",
	"Cache-Control":                "no-store", // overridden for assets with a hash in their name
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

// normalizePath removes trailing slashes and percent-encoding from the path, so that the
// router and every check see the same path.
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

// hostPolicy decides which values of the Host header are accepted. It prevents DNS
// rebinding: another site can point its own name at this server's address, but its requests
// still carry that name in Host. Names are compared, never resolved.
type hostPolicy struct {
	allowed   map[string][]string // ports by name; port "" is the one that the server listens on
	announced func() string       // name that the server has in the local network now; empty: none
}

func newHostPolicy(hosts []string, announced func() string) hostPolicy {
	if announced == nil {
		announced = func() string { return "" }
	}
	p := hostPolicy{allowed: map[string][]string{}, announced: announced}
	for _, host := range hosts {
		if name, port, ok := splitHost(strings.ToLower(host)); ok {
			p.allowed[name] = append(p.allowed[name], port)
		}
	}
	return p
}

// origin returns the server's own origin for a request with the Host header host that
// arrived at the address local, and whether host is accepted.
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
		return own, true // with any port: the client may connect through a tunnel
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
	if listens && name == p.announced() {
		return own, true
	}
	for _, allowed := range p.allowed[name] {
		switch {
		case allowed == "" && listens, allowed != "" && allowed == ownPort:
			return own, true
		case allowed == "443" && port == "":
			// A proxy that is not in TrustedProxies terminates TLS.
			return "https://" + host, true
		}
	}
	return "", false
}

// containerHosts are the names by which containers reach the machine they run on.
var containerHosts = []string{"host.docker.internal", "host.containers.internal"}

// isFromContainer reports whether r comes from a program in a container on this machine, is
// addressed to a name of containerHosts, and asks for an API route that requires the key.
// The key is what prevents DNS rebinding here: nobody owns these names, so the resolver of a
// hostile network can point one at a page of its own and then at this server, and a GET
// request of that page looks like one of a program. The page does not have the key, and
// browsers store no session for these names.
func (g *Gate) isFromContainer(r *http.Request, local net.Addr) bool {
	name, port, ok := splitHost(strings.ToLower(r.Host))
	peer := peerOf(r)
	return ok && g.opt.Asks != AsksNoOne && slices.Contains(containerHosts, name) && IsAPI(r.URL.Path) && !g.opt.Public[r.URL.Path] &&
		port == strconv.Itoa(int(addrPortOf(local).Port())) && (peer.IsLoopback() || peer.IsPrivate())
}

func isLoopbackName(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// splitHost splits the value of a Host header into name and port, "" if it has none. It
// removes the brackets of IPv6 addresses. ok is false if host is malformed.
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

// checkHost refuses requests whose Host header does not name this server.
func (g *Gate) checkHost(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		own, ok := g.host.origin(r.Host, local, g.proxies.secure(r))
		if !ok && g.isFromContainer(r, local) {
			own, ok = "", true
		}
		if !ok || r.URL.Host != "" || r.URL.Scheme != "" {
			return fault.Errorf(fault.CodeHostNotAllowed,
				"this server does not answer to the host %q; --allow-host adds names", r.Host)
		}
		c.Set(originKey, own)
		return next(c)
	}
}

// checkOrigin refuses requests of other sites' pages. Browsers send Origin, Sec-Fetch-Site
// or both; programs send neither.
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
		case !IsAPI(r.URL.Path) && !safe && len(origins) == 0 && site != "same-origin":
			return forbidden("a form needs the Origin header; programs use the API routes")
		}
		return next(c)
	}
}

func forbidden(format string, args ...any) error {
	return fault.Errorf(fault.CodeOriginNotAllowed, format, args...)
}

// sameOrigin reports whether an Origin header is the server's own origin. "null" never is.
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

// isNavigation reports whether somebody followed a link on another site to a page of this
// server, such as a link to a shared chat. That is safe: the other site cannot read the
// response, and GET changes nothing.
func isNavigation(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document" &&
		!IsAPI(r.URL.Path)
}

// OwnOrigin returns the server's origin as the client of c sees it; empty for a program in a
// container.
func OwnOrigin(c echo.Context) string {
	own, _ := c.Get(originKey).(string)
	return own
}

// CheckWebSocket returns an error unless the request upgrades to a websocket and comes from
// a page of this server. checkOrigin has checked the origin already; it is checked again
// because a websocket of a foreign page could read every chat.
func CheckWebSocket(c echo.Context) error {
	r := c.Request()
	if !sameOrigin(r.Header.Get("Origin"), OwnOrigin(c)) {
		return forbidden("a websocket needs an Origin of this server")
	}
	if !isWebSocket(r) {
		c.Response().Header().Set("Upgrade", "websocket")
		return fault.Errorf(fault.CodeWebSocketOnly, "this address answers websockets only")
	}
	return nil
}

func isWebSocket(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Upgrade"), func(v string) bool { return strings.EqualFold(strings.TrimSpace(v), "websocket") })
}

// corsHeaders are the request headers that OpenAI's and Anthropic's clients in browsers send.
const corsHeaders = "Authorization, Content-Type, User-Agent, Accept, X-Requested-With, X-Api-Key, OpenAI-Beta, OpenAI-Organization, OpenAI-Project, " +
	"anthropic-version, anthropic-beta, anthropic-dangerous-direct-browser-access, " +
	"x-stainless-arch, x-stainless-async, x-stainless-custom-poll-interval, x-stainless-helper-method, x-stainless-lang, x-stainless-os, " +
	"x-stainless-package-version, x-stainless-poll-helper, x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout"

// allowForeignOrigin reports whether the request is one to /v1 from an origin of
// --cors-origin, and then sets the CORS headers of the response. Credentials of the browser
// are never allowed.
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
	header.Set(echo.HeaderAccessControlExposeHeaders, "Retry-After, X-Request-Id, X-Should-Retry, "+httpio.IgnoredHeader+", "+httpio.NotesHeader)
	if r.Method == http.MethodOptions {
		header.Set(echo.HeaderAccessControlAllowMethods, "GET, POST")
		header.Set(echo.HeaderAccessControlAllowHeaders, corsHeaders)
		header.Set(echo.HeaderAccessControlMaxAge, "600")
	}
	return true
}
