package gate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
)

// Client returns a name of the client of c, by which the engine schedules clients fairly. A
// person is one client, whatever they ask with. For the owner of the server it is the address
// and, where no key is required, a digest of the key that the client sends all the same, which
// distinguishes programs on one machine.
func (g *Gate) Client(c echo.Context) string {
	if who := access.PrincipalOf(c.Request().Context()); who.Role != access.RoleOwner {
		return who.Owner
	}
	client := "at " + g.proxies.client(c.Request()).String()
	header := c.Request().Header
	if key := cmp.Or(header.Get(echo.HeaderAuthorization), header.Get("X-Api-Key")); key != "" && g.opt.Asks == AsksNoOne {
		digest := sha256.Sum256([]byte(key))
		client += " with " + hex.EncodeToString(digest[:8])
	}
	return client
}

// proxies are the networks of the reverse proxies whose headers about the client of a
// request are believed. Any other client could forge these headers.
type proxies []netip.Prefix

func (p proxies) trusts(addr netip.Addr) bool {
	for _, network := range p {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// client returns the address of the client of r: the address that connected or, if that is
// a trusted proxy, the nearest hop that is not a trusted proxy itself. If X-Forwarded-For
// and Forwarded disagree, neither is believed: the proxy has passed one of them on
// unchecked. The address is not valid on a unix socket.
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

// lastUntrusted follows hops, the nearest last, from peer back to the first address that is
// not a trusted proxy. It stops at a hop that is not an address.
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

// secure reports whether the client of r uses https, to this server or to a trusted proxy.
func (p proxies) secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	if !p.trusts(peerOf(r)) {
		return false
	}
	found := false
	for _, hops := range [][]string{listOf(r.Header, "X-Forwarded-Proto"), forwardedOf(r.Header, "proto")} {
		if len(hops) == 0 || hops[len(hops)-1] == "" {
			continue
		}
		if !strings.EqualFold(hops[len(hops)-1], "https") {
			return false
		}
		found = true
	}
	return found
}

func peerOf(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap().WithZone("")
}

// hopAddr parses an address of X-Forwarded-For or Forwarded, with or without a port.
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

// listOf returns the elements of a header whose value is a comma-separated list.
func listOf(header http.Header, name string) (elements []string) {
	for _, line := range header.Values(name) {
		for element := range strings.SplitSeq(line, ",") {
			elements = append(elements, strings.TrimSpace(element))
		}
	}
	return elements
}

// forwardedOf returns the value of the parameter name in each element of the header
// Forwarded (RFC 7239), "" for an element without it; nil if no element has it.
func forwardedOf(header http.Header, name string) (values []string) {
	found := false
	for _, line := range header.Values("Forwarded") {
		for _, element := range splitUnquoted(line, ',') {
			value := ""
			for _, pair := range splitUnquoted(element, ';') {
				key, v, _ := strings.Cut(strings.TrimSpace(pair), "=")
				if strings.EqualFold(key, name) {
					value, found = strings.Trim(v, `"`), true
				}
			}
			values = append(values, value)
		}
	}
	if !found {
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
