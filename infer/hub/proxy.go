package hub

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
)

// proxies chooses the proxy of a request: that of HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY names the
// host. The user chose it, so it may be at any address.
type proxies struct {
	choose func(*http.Request) (*url.URL, error)
	client *client

	known sync.Map // addresses that were chosen, host:port
}

// proxyOf returns the proxy for a request, nil for none. It is for http.Transport.
func (p *proxies) proxyOf(r *http.Request) (*url.URL, error) {
	chosen, err := p.choose(r)
	if err != nil {
		return nil, permanent("%v; check HTTPS_PROXY", err)
	}
	if chosen == nil {
		return nil, nil
	}
	// What cannot be parsed is tried again after "http://", which makes the scheme a host.
	if host := chosen.Hostname(); host == "" || host == "http" || host == "https" {
		return nil, permanent("HTTPS_PROXY is not the address of a proxy; write it as http://HOST:PORT")
	}
	// A name is resolved by the proxy, which may refuse what it leads to.
	host := r.URL.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil && !isPublic(ip) && !p.client.trusts(host) {
		return nil, requirePublic("tcp", dialAddress(r.URL), nil)
	}
	p.known.Store(dialAddress(chosen), true)
	return chosen, nil
}

// has reports whether address, which is dialled, is that of a proxy.
func (p *proxies) has(address string) bool {
	_, ok := p.known.Load(address)
	return ok
}

// dialAddress returns the address that is dialled for a proxy or a host.
func dialAddress(at *url.URL) string {
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[at.Scheme]
	}
	return net.JoinHostPort(at.Hostname(), port)
}

// nameOf returns the proxy that the request goes through, for a message; "" for none.
func (p *proxies) nameOf(r *http.Request) string {
	if chosen, err := p.choose(r); err == nil && chosen != nil {
		return chosen.Host // without user and password
	}
	return ""
}

// checkAnswer returns an error if a proxy does not connect to a host: a permanent one if it refuses to. It is for http.Transport.
func (p *proxies) checkAnswer(_ context.Context, proxy *url.URL, connect *http.Request, answer *http.Response) error {
	switch {
	case answer.StatusCode == http.StatusOK:
		return nil
	case answer.StatusCode == http.StatusProxyAuthRequired:
		return permanent("the proxy %s asks for a user and a password; set HTTPS_PROXY to http://USER:PASSWORD@%s", proxy.Host, proxy.Host)
	case answer.StatusCode >= 500:
		return fmt.Errorf("it answers with status %d", answer.StatusCode)
	}
	host, _, err := net.SplitHostPort(connect.Host)
	if err != nil {
		host = connect.Host
	}
	return permanent("the proxy %s refuses to connect to %s with status %d; NO_PROXY lists the hosts that are reached without it", proxy.Host, host, answer.StatusCode)
}
