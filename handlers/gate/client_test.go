package gate

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

var testProxies = proxies{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

// requestFrom is a request of a connection from peer with header, a list of names and values.
func requestFrom(peer string, header ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestProxies_Client(t *testing.T) {
	const listed, standard = "X-Forwarded-For", "Forwarded"
	for _, tc := range []struct {
		name   string
		peer   string
		header []string
		want   string
	}{
		{"without a header it is the peer", "127.0.0.1:1", nil, "127.0.0.1"},
		{"a proxy says who it is", "127.0.0.1:1", []string{listed, "192.0.2.7"}, "192.0.2.7"},
		{"anybody else is not believed", "192.0.2.1:1", []string{listed, "192.0.2.7", standard, "for=192.0.2.7"}, "192.0.2.1"},
		{"what the client wrote itself comes first and is not looked at", "127.0.0.1:1", []string{listed, "127.0.0.1, 8.8.8.8, 192.0.2.7"}, "192.0.2.7"},
		{"the headers of a chain are one list", "127.0.0.1:1", []string{listed, "8.8.8.8", listed, "192.0.2.7"}, "192.0.2.7"},
		{"trusted proxies on the way are passed over", "127.0.0.1:1", []string{listed, "8.8.8.8, 192.0.2.7, 10.1.2.3, 10.0.0.1"}, "192.0.2.7"},
		{"a chain of trusted proxies ends at the first", "127.0.0.1:1", []string{listed, "10.9.9.9, 10.0.0.1"}, "10.9.9.9"},
		{"what is no address ends the walk", "127.0.0.1:1", []string{listed, "192.0.2.7, unknown, 10.0.0.1"}, "10.0.0.1"},
		{"an empty header says nothing", "127.0.0.1:1", []string{listed, ""}, "127.0.0.1"},
		{"a port is left out", "127.0.0.1:1", []string{listed, "192.0.2.7:5555"}, "192.0.2.7"},
		{"IPv6 comes with brackets and without", "[fd00::1]:1", []string{listed, "[2001:db8::7]:5, fd00::2"}, "2001:db8::7"},
		{"an IPv4 address in IPv6 is that address", "[::ffff:127.0.0.1]:1", []string{listed, "::ffff:192.0.2.7"}, "192.0.2.7"},
		{"Forwarded says who it is", "127.0.0.1:1", []string{standard, `for=8.8.8.8, for=192.0.2.7;proto=https;by=10.0.0.1`}, "192.0.2.7"},
		{"Forwarded quotes IPv6", "127.0.0.1:1", []string{standard, `For="[2001:db8::7]:4711"`}, "2001:db8::7"},
		{"a comma in quotes is none", "127.0.0.1:1", []string{standard, `for="_a,\",for=8.8.8.8", for=192.0.2.7`}, "192.0.2.7"},
		{"both say the same", "127.0.0.1:1", []string{listed, "192.0.2.7", standard, "for=192.0.2.7"}, "192.0.2.7"},
		{"where they disagree the client wrote one, and the proxy is all that is known", "127.0.0.1:1", []string{listed, "192.0.2.7", standard, "for=8.8.8.8"}, "127.0.0.1"},
		{"Forwarded without for says nothing of it", "127.0.0.1:1", []string{listed, "192.0.2.7", standard, "proto=https"}, "192.0.2.7"},
		{"a unix socket has no address", "@", []string{listed, "192.0.2.7"}, "invalid IP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := testProxies.client(requestFrom(tc.peer, tc.header...)).String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestProxies_Secure(t *testing.T) {
	for _, tc := range []struct {
		name   string
		peer   string
		header []string
		want   bool
	}{
		{"nobody says so", "127.0.0.1:1", nil, false},
		{"a proxy says https", "127.0.0.1:1", []string{"X-Forwarded-Proto", "https"}, true},
		{"a proxy says HTTPS", "127.0.0.1:1", []string{"X-Forwarded-Proto", "HTTPS"}, true},
		{"anybody else is not believed", "192.0.2.1:1", []string{"X-Forwarded-Proto", "https"}, false},
		{"the nearest proxy counts", "127.0.0.1:1", []string{"X-Forwarded-Proto", "https, http"}, false},
		{"Forwarded says https", "127.0.0.1:1", []string{"Forwarded", "for=192.0.2.7;proto=https"}, true},
		{"where they disagree it is not", "127.0.0.1:1", []string{"X-Forwarded-Proto", "http", "Forwarded", "proto=https"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := testProxies.secure(requestFrom(tc.peer, tc.header...)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{"192.0.2.7, 10.0.0.1", `for="[2001:db8::7]:4711";proto=https`, `for="a,\"`, ",;=", "[::1", "fe80::1%eth0"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, listed, standard string) {
		headers := []string{"X-Forwarded-For", listed, "Forwarded", standard, "X-Forwarded-Proto", listed}
		r := requestFrom("192.0.2.1:1", headers...)
		if got := testProxies.client(r).String(); got != "192.0.2.1" || testProxies.secure(r) {
			t.Fatalf("a client that is no proxy was believed: %s", got)
		}
		got := testProxies.client(requestFrom("127.0.0.1:1", headers...))
		// Whoever is found was named, or is the proxy.
		if got != netip.MustParseAddr("127.0.0.1") && !strings.Contains(fmt.Sprint(listed, standard), ".") && !strings.Contains(listed+standard, ":") {
			t.Fatalf("%q and %q name %s", listed, standard, got)
		}
	})
}
