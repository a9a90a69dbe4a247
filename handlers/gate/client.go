package gate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"

	"github.com/labstack/echo/v4"
)

// Client names who asks, for the turns that clients take: by the address and, where no key
// is asked for, by the one that is sent all the same, which tells programs of one machine
// apart.
func (g *Gate) Client(c echo.Context) string {
	client := "at " + g.proxies.client(c.Request()).String()
	header := c.Request().Header
	if key := cmp.Or(header.Get(echo.HeaderAuthorization), header.Get("X-Api-Key")); key != "" && g.keys == nil {
		digest := sha256.Sum256([]byte(key))
		client += " with " + hex.EncodeToString(digest[:8])
	}
	return client
}

// proxies are the reverse proxies whose word is taken for the client of a request.
// Everybody else can write the same headers, and is not believed.
type proxies []netip.Prefix

func (p proxies) trusts(addr netip.Addr) bool {
	for _, network := range p {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// client returns the address of the client of r: that of the connection, or, where a
// trusted proxy connected, the last one on the way that is not a trusted proxy itself.
// If X-Forwarded-For and Forwarded disagree, the proxy passed one of them on unread, and
// neither is believed. The address is not valid on a unix socket.
func (p proxies) client(r *http.Request) netip.Addr {
	peer := peerOf(r)
	if !p.trusts(peer) {
		return peer
	}
	listed, standard := listOf(r.Header, "X-Forwarded-For"), forwardedOf(r.Header, "for")
	switch {
	case len(standard) == 0:
		return p.lastUntrusted(peer, listed)
	case len(listed) == 0:
		return p.lastUntrusted(peer, standard)
	}
	if one, other := p.lastUntrusted(peer, listed), p.lastUntrusted(peer, standard); one == other {
		return one
	}
	return peer
}

// lastUntrusted walks back from peer along hops, the nearest last, until one is no trusted
// proxy or no address.
func (p proxies) lastUntrusted(peer netip.Addr, hops []string) netip.Addr {
	for i := len(hops) - 1; i >= 0 && p.trusts(peer); i-- {
		addr, ok := hopAddr(hops[i])
		if !ok {
			break
		}
		peer = addr
	}
	return peer
}

// secure reports whether the client of r speaks https, to this server or to a trusted proxy.
func (p proxies) secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	if !p.trusts(peerOf(r)) {
		return false
	}
	said := 0
	for _, hops := range [][]string{listOf(r.Header, "X-Forwarded-Proto"), forwardedOf(r.Header, "proto")} {
		if len(hops) == 0 || hops[len(hops)-1] == "" {
			continue
		}
		if !strings.EqualFold(hops[len(hops)-1], "https") {
			return false
		}
		said++
	}
	return said > 0
}

func peerOf(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap().WithZone("")
}

// hopAddr reads an address as X-Forwarded-For and Forwarded have it, with a port or without.
func hopAddr(hop string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(hop); err == nil {
		return at.Addr().Unmap().WithZone(""), true
	}
	if bare, ok := strings.CutPrefix(hop, "["); ok {
		hop, _ = strings.CutSuffix(bare, "]")
	}
	addr, err := netip.ParseAddr(hop)
	return addr.Unmap().WithZone(""), err == nil
}

// listOf returns the elements of a header that is a list.
func listOf(header http.Header, name string) (elements []string) {
	for _, line := range header.Values(name) {
		for element := range strings.SplitSeq(line, ",") {
			elements = append(elements, strings.TrimSpace(element))
		}
	}
	return elements
}

// forwardedOf returns what each element of the header Forwarded (RFC 7239) says of name,
// which may be nothing; nil if none says anything.
func forwardedOf(header http.Header, name string) (values []string) {
	said := false
	for _, line := range header.Values("Forwarded") {
		for _, element := range splitUnquoted(line, ',') {
			value := ""
			for _, pair := range splitUnquoted(element, ';') {
				key, v, _ := strings.Cut(strings.TrimSpace(pair), "=")
				if strings.EqualFold(key, name) {
					value, said = strings.Trim(v, `"`), true
				}
			}
			values = append(values, value)
		}
	}
	if !said {
		return nil
	}
	return values
}

// splitUnquoted splits text at each sep outside of double quotes.
func splitUnquoted(text string, sep byte) (parts []string) {
	begin, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			quoted = !quoted
		case '\\':
			if quoted {
				i++
			}
		case sep:
			if !quoted {
				parts = append(parts, text[begin:i])
				begin = i + 1
			}
		}
	}
	return append(parts, text[begin:])
}
