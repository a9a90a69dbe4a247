package gate

import (
	"net"
	"net/http/httptest"
	"testing"
)

func TestHost_AddressConnectedTo(t *testing.T) {
	lan := &net.TCPAddr{IP: net.ParseIP("192.168.1.5"), Port: 8080}
	lan6 := &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 8080, Zone: "eth0"}
	p := newHostPolicy([]string{"box.local"}, func() string { return "m40-llm.local" })
	for _, tc := range []struct {
		host   string
		local  net.Addr
		secure bool
		want   string
	}{
		{"192.168.1.5:8080", lan, false, "http://192.168.1.5:8080"},
		{"192.168.1.5:8080", lan, true, "https://192.168.1.5:8080"},
		{"192.168.1.6:8080", lan, false, ""},
		{"192.168.1.5", lan, false, ""},
		{"[::ffff:192.168.1.5]:8080", lan, false, "http://[::ffff:192.168.1.5]:8080"},
		{"[fe80::1]:8080", lan6, false, "http://[fe80::1]:8080"},
		{"box.local:8080", lan, false, "http://box.local:8080"},
		{"box.local", &net.TCPAddr{IP: lan.IP, Port: 80}, false, "http://box.local"},
		{"box.local:80", &net.TCPAddr{IP: lan.IP, Port: 80}, false, "http://box.local"},
		{"box.local", &net.TCPAddr{IP: lan.IP, Port: 443}, true, "https://box.local"},
		{"box.local:8080", &net.UnixAddr{Name: "/run/x.sock"}, false, ""},
		{"localhost", &net.UnixAddr{Name: "/run/x.sock"}, false, "http://localhost"},
		{"localhost", nil, false, "http://localhost"},
		{"m40-llm.local:8080", lan, false, "http://m40-llm.local:8080"},
		{"M40-LLM.local:8080", lan, true, "https://m40-llm.local:8080"},
		{"m40-llm.local:8081", lan, false, ""},
		{"m40-llm-2.local:8080", lan, false, ""},
	} {
		if got, ok := p.origin(tc.host, tc.local, tc.secure); got != tc.want || ok != (tc.want != "") {
			t.Errorf("Host %q at %v: origin is %q, %t, want %q", tc.host, tc.local, got, ok, tc.want)
		}
	}
}

func TestHost_WithoutAnAnnouncedNameNoneIsAccepted(t *testing.T) {
	lan := &net.TCPAddr{IP: net.ParseIP("192.168.1.5"), Port: 8080}
	for name, announced := range map[string]func() string{"none is ever announced": nil, "none is announced now": func() string { return "" }} {
		for _, host := range []string{"m40-llm.local:8080", ":8080", ""} {
			if got, ok := newHostPolicy(nil, announced).origin(host, lan, false); ok {
				t.Errorf("%s: Host %q is accepted as %q", name, host, got)
			}
		}
	}
}

func TestHost_AContainersNameIsAnsweredToPrivateAddressesAlone(t *testing.T) {
	g := &Gate{opt: Options{Asks: AsksAll}}
	for peer, want := range map[string]bool{"127.0.0.1:1": true, "172.17.0.2:1": true, "[fd00::2]:1": true, "192.0.2.1:1": false, "@": false} {
		r := httptest.NewRequest("GET", "/v1/models", nil)
		r.Host, r.RemoteAddr = "host.docker.internal:8080", peer
		if got := g.isFromContainer(r, &net.TCPAddr{IP: net.IPv4(172, 17, 0, 1), Port: 8080}); got != want {
			t.Errorf("from %s: got %t, want %t", peer, got, want)
		}
	}
}
