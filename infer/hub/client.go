package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	maxRedirects = 5
	dialTimeout  = 15 * time.Second
)

// client sends requests over HTTPS to public addresses, so that no response of a server can
// redirect it into a private network. Only hosts that the user set explicitly may be
// elsewhere; if one of them is this machine, every server of this machine may be contacted.
type client struct {
	transport *http.Transport
	endpoint  *url.URL
	trusted   []string // hosts that the user set explicitly
	proxies   *proxies
	token     string // sent to the endpoint only, and not after a redirect
	agent     string
}

func newClient(endpoint *url.URL, trusted []string, token, agent string, stall time.Duration, config *tls.Config, proxy func(*http.Request) (*url.URL, error)) *client {
	c := &client{endpoint: endpoint, trusted: trusted, token: token, agent: agent}
	c.proxies = &proxies{choose: proxy, client: c}
	open := &net.Dialer{Timeout: dialTimeout}
	guarded := &net.Dialer{Timeout: dialTimeout, Control: requirePublic}
	c.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, _, err := net.SplitHostPort(address); err == nil && (c.trusts(host) || c.proxies.has(address)) {
				return open.DialContext(ctx, network, address)
			}
			return guarded.DialContext(ctx, network, address)
		},
		Proxy:                  c.proxies.proxyOf,
		OnProxyConnectResponse: c.proxies.checkAnswer,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  stall,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // lengths and ranges must be those of the file
		ForceAttemptHTTP2:      true,
	}
	return c
}

// clone returns a client with connections of its own.
func (c *client) clone() *client {
	other := *c
	other.transport = c.transport.Clone()
	return &other
}

func (c *client) close() { c.transport.CloseIdleConnections() }

func (c *client) trusts(host string) bool {
	for _, t := range c.trusted {
		if strings.EqualFold(t, host) || isLoopback(t) && isLoopback(host) {
			return true
		}
	}
	return false
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// permanentError is an error for which a retry is useless.
type permanentError struct{ reason string }

func (r *permanentError) Error() string { return r.reason }

func permanent(format string, args ...any) error {
	return &permanentError{fmt.Sprintf(format, args...)}
}

// requirePublic is called before each connection, after the host name was resolved.
func requirePublic(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(at.Addr()) {
		return permanent("the address %s is not on the public internet; only an endpoint set in HF_ENDPOINT or OLLAMA_REGISTRY may be elsewhere", address)
	}
	return nil
}

// nonPublicNetworks lists the unicast networks without public hosts.
var nonPublicNetworks = func() (networks []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		networks = append(networks, netip.MustParsePrefix(s))
	}
	return networks
}()

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
)

func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap()
	if nat64.Contains(ip) { // embeds an IPv4 address in its last bytes
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, p := range nonPublicNetworks {
		if p.Contains(ip) {
			return false
		}
	}
	return ip.Is4() || globalUnicast.Contains(ip)
}

// response is an HTTP response and what the redirects to it said about the file.
type response struct {
	*http.Response
	linkedSHA  string // of the file, empty if no redirect said it
	linkedSize int64  // of the file, 0 if no redirect said it
	redirected bool
}

// get requests address and follows redirects. The caller closes the body. Errors contain
// hosts but not whole addresses, which may include signatures.
func (c *client) get(ctx context.Context, address string, header http.Header) (*response, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, permanent("%.200q is not an address", address)
	}
	a := &response{}
	for hop := 0; ; hop++ {
		if err := c.check(at); err != nil {
			return nil, err
		}
		if hop > maxRedirects {
			return nil, permanent("%s redirects more than %d times", at.Hostname(), maxRedirects)
		}
		response, err := c.roundTrip(ctx, at, header, hop == 0)
		if err != nil {
			return nil, err
		}
		a.addLinked(response.Header)
		if !isRedirect(response.StatusCode) {
			a.Response = response
			return a, nil
		}
		response.Body.Close()
		next, err := at.Parse(response.Header.Get("Location"))
		if err != nil || response.Header.Get("Location") == "" {
			return nil, permanent("%s redirects to an invalid address", at.Hostname())
		}
		if at.Scheme == "https" && next.Scheme != "https" {
			return nil, permanent("%s redirects to an address that is not encrypted", at.Hostname())
		}
		at, a.redirected = next, true
	}
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// check returns an error for addresses that must not be requested.
func (c *client) check(at *url.URL) error {
	switch {
	case at.Hostname() == "" || at.Opaque != "" || at.User != nil:
		return permanent("%.80q is not a host that can be downloaded from", at.Host)
	case at.Scheme != "https" && !(at.Scheme == "http" && c.trusts(at.Hostname())):
		return permanent("the address at %q does not begin with https://; only an endpoint set in HF_ENDPOINT or OLLAMA_REGISTRY may do without", at.Hostname())
	}
	return nil
}

func (c *client) roundTrip(ctx context.Context, at *url.URL, header http.Header, first bool) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, permanent("%.80q is not a host that can be downloaded from", at.Host)
	}
	for key, values := range header {
		request.Header[key] = values
	}
	request.Header.Set("User-Agent", c.agent)
	request.Header.Set("Accept-Encoding", "identity")
	if first && c.token != "" && at.Scheme == c.endpoint.Scheme && strings.EqualFold(at.Host, c.endpoint.Host) {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.transport.RoundTrip(request) // not http.Client: get follows redirects, and cookies must not be stored
	if err != nil {
		if proxy := c.proxies.nameOf(request); proxy != "" {
			return nil, proxyError(ctx, at.Hostname(), proxy, err)
		}
		return nil, connectionError(ctx, at.Hostname(), err)
	}
	return response, nil
}

// proxyError is connectionError for a connection through a proxy.
func proxyError(ctx context.Context, host, proxy string, err error) error {
	var unknown *net.DNSError
	if errors.As(err, &unknown) && unknown.IsNotFound && context.Cause(ctx) == nil {
		return permanent("the proxy %s does not exist; check HTTPS_PROXY", proxy)
	}
	return connectionError(ctx, fmt.Sprintf("%s through the proxy %s", host, proxy), err)
}

// connectionError classifies an error of a connection as permanent or transient.
func connectionError(ctx context.Context, host string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var refused *permanentError
	var unknown *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &certificate):
		return permanent("the certificate of %s is not valid: %v", host, certificate.Err)
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return permanent("no address of the host %s is known; check that this machine is online, and the name", host)
	}
	return &transientError{err: fmt.Errorf("failed to reach %s: %w", host, err)}
}

// addLinked records what a registry says about the file that a redirect leads to.
func (a *response) addLinked(h http.Header) {
	if sha := strings.Trim(h.Get("X-Linked-Etag"), `"`); a.linkedSHA == "" && digest.MatchString(sha) {
		a.linkedSHA = sha
	}
	if size, err := strconv.ParseInt(h.Get("X-Linked-Size"), 10, 64); err == nil && a.linkedSize == 0 && size > 0 {
		a.linkedSize = size
	}
}

// transientError is an error after which a retry may succeed.
type transientError struct {
	err   error
	after time.Duration // how long the server asks to wait; 0: not said
}

func (t *transientError) Error() string { return t.err.Error() }
func (t *transientError) Unwrap() error { return t.err }

// statusError is a response with a status other than success.
type statusError struct {
	host   string
	status int
	code   string // X-Error-Code
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s returned status %d", e.host, e.status)
}

// asError returns the error of a response with a status other than success, and closes it.
func (a *response) asError() error {
	defer a.Body.Close()
	err := &statusError{a.Request.URL.Hostname(), a.StatusCode, a.Header.Get("X-Error-Code")}
	if a.StatusCode == http.StatusTooManyRequests || a.StatusCode == http.StatusRequestTimeout || a.StatusCode >= 500 ||
		a.StatusCode == http.StatusForbidden && a.redirected { // an expired signature: the next request gets a new one
		return &transientError{err: err, after: retryAfter(a.Header.Get("Retry-After"))}
	}
	return err
}

// maxRetryAfter is the longest wait that a server may ask for.
const maxRetryAfter = 2 * time.Minute

func retryAfter(s string) time.Duration {
	seconds, err := strconv.Atoi(s)
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(min(seconds, 1<<20))*time.Second, maxRetryAfter)
}

// fetch returns the body and header of a response of at most most bytes.
func (c *client) fetch(ctx context.Context, address string, header http.Header, most int64) ([]byte, http.Header, error) {
	a, err := c.get(ctx, address, header)
	if err != nil {
		return nil, nil, err
	}
	if a.StatusCode != http.StatusOK {
		return nil, nil, a.asError()
	}
	defer a.Body.Close()
	host := a.Request.URL.Hostname()
	body, err := io.ReadAll(io.LimitReader(a.Body, most+1))
	if err != nil {
		return nil, nil, connectionError(ctx, host, err)
	}
	if int64(len(body)) > most {
		return nil, nil, permanent("the response of %s is larger than %d bytes", host, most)
	}
	return body, a.Header, nil
}
