package gate

import (
	"net/netip"
	"testing"
)

// The house is open to the local network, and never beyond it.
func TestFromPrivate(t *testing.T) {
	const listed, standard, real, via = "X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via"
	for _, tc := range []struct {
		name   string
		peer   string
		header []string
		want   bool
	}{
		{"a phone in the network", "192.168.1.20:1", nil, true},
		{"one of IPv6", "[fd12::20]:1", nil, true},
		{"a link-local address", "[fe80::20%eth0]:1", nil, true},
		{"an IPv4 address in IPv6", "[::ffff:192.168.1.20]:1", nil, true},
		{"a public address", "8.8.8.8:1", nil, false},
		{"a public address of IPv6", "[2001:db8::1]:1", nil, false},
		{"a public IPv4 address in IPv6", "[::ffff:8.8.8.8]:1", nil, false},
		{"addresses that providers share", "100.64.0.1:1", nil, false},
		{"a tunnel to this machine", "127.0.0.1:1", nil, false},
		{"a unix socket", "@", nil, false},
		{"a proxy that is not trusted", "192.168.1.1:1", []string{listed, "192.168.1.20"}, false},
		{"one that says no more than that it is one", "192.168.1.1:1", []string{via, "1.1 proxy"}, false},
		{"a trusted proxy for a phone", "10.0.0.1:1", []string{listed, "192.168.1.20"}, true},
		{"a trusted proxy for a public address", "10.0.0.1:1", []string{listed, "8.8.8.8"}, false},
		{"a trusted proxy that says it as the standard has it", "10.0.0.1:1", []string{standard, "for=8.8.8.8"}, false},
		{"a trusted proxy that does not say for whom", "10.0.0.1:1", nil, false},
		{"a trusted proxy for another one", "10.0.0.1:1", []string{listed, "10.0.0.2"}, false},
		{"a way from a public address through a private one", "10.0.0.1:1", []string{listed, "8.8.8.8, 192.168.1.20"}, false},
		{"headers that disagree", "10.0.0.1:1", []string{listed, "192.168.1.20", standard, "for=192.168.1.21"}, false},
		{"one that names a public address elsewhere", "10.0.0.1:1", []string{listed, "192.168.1.20", real, "8.8.8.8"}, false},
		{"what is no address", "10.0.0.1:1", []string{listed, "unknown, 192.168.1.20"}, false},
		{"both headers about the same phone", "10.0.0.1:1", []string{listed, "192.168.1.20", real, "192.168.1.20"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := &Gate{proxies: proxies{netip.MustParsePrefix("10.0.0.0/8")}}
			if got := g.fromPrivate(requestFrom(tc.peer, tc.header...)); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
