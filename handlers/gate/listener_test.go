package gate

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn
	from   net.Addr
	closed chan struct{}
}

func newFakeConn(from net.Addr) *fakeConn { return &fakeConn{from: from, closed: make(chan struct{})} }

func (c *fakeConn) SetDeadline(time.Time) error { return nil }

func (c *fakeConn) Read([]byte) (int, error) { return 0, io.EOF }

func (c *fakeConn) RemoteAddr() net.Addr { return c.from }

func (c *fakeConn) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}

// fakeListener accepts what is in it and then fails.
type fakeListener struct {
	net.Listener
	conns []*fakeConn
}

func (l *fakeListener) Accept() (net.Conn, error) {
	if len(l.conns) == 0 {
		return nil, io.EOF
	}
	c := l.conns[0]
	l.conns = l.conns[1:]
	return c, nil
}

func TestLimitListener(t *testing.T) {
	for _, tc := range []struct {
		name   string
		from   func(i int) net.Addr
		offer  int
		accept int
	}{
		{"one address gets 64 connections", func(int) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} }, 100, 64},
		{"this machine gets 256", func(int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }, 300, 256},
		{"a unix socket gets 256", func(int) net.Addr { return &net.UnixAddr{Name: ""} }, 300, 256},
		{"a trusted proxy has the limit of all", func(int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 9, 9, 9)} }, 1100, 1024},
		{"all together get 1024", func(i int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))} }, 1100, 1024},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inner := &fakeListener{}
			l := Limit(inner, []netip.Prefix{netip.MustParsePrefix("10.9.9.9/32")}, nil)
			offered := make([]*fakeConn, tc.offer)
			for i := range offered {
				offered[i] = newFakeConn(tc.from(i))
			}
			inner.conns = offered
			var accepted []net.Conn
			for {
				c, err := l.Accept()
				if err != nil {
					break
				}
				accepted = append(accepted, c)
			}
			if len(accepted) != tc.accept {
				t.Fatalf("%d are accepted, want %d", len(accepted), tc.accept)
			}
			for i, c := range offered {
				if i >= tc.accept {
					<-c.closed
				}
			}
			for _, c := range accepted {
				c.Close()
				c.Close() // counts once
			}
			inner.conns = []*fakeConn{newFakeConn(tc.from(0))}
			if c, err := l.Accept(); err != nil {
				t.Errorf("after all were closed the next is refused: %v", err)
			} else {
				c.Close()
			}
			if ll := l.(*limitListener); ll.total != 0 || len(ll.open) != 0 {
				t.Errorf("%d connections of %d addresses are still counted", ll.total, len(ll.open))
			}
		})
	}
}

// Whoever comes too late is told so, encrypted too.
func TestLimit_RefusesWithAResponse(t *testing.T) {
	for name, encrypted := range map[string]bool{"with TLS": true, "without TLS": false} {
		t.Run(name, func(t *testing.T) {
			plain, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if (r.TLS != nil) != encrypted {
					t.Errorf("the connection is encrypted: %t", r.TLS != nil)
				}
			}))
			server.StartTLS() // for its certificate
			config, client := server.TLS.Clone(), server.Client()
			server.Close()
			config.NextProtos = []string{"http/1.1"}
			if !encrypted {
				config = nil
			}
			limited := &http.Server{Handler: server.Config.Handler, ErrorLog: log.New(io.Discard, "", 0)}
			go limited.Serve(Limit(plain, nil, config))
			defer limited.Close()
			url := map[bool]string{true: "https", false: "http"}[encrypted] + "://" + plain.Addr().String()
			get := func() *http.Response {
				t.Helper()
				client.CloseIdleConnections()
				response, err := client.Get(url)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				return response
			}
			if got := get(); got.StatusCode != http.StatusOK {
				t.Fatalf("the first got %d", got.StatusCode)
			}
			client.CloseIdleConnections()
			for range maxLoopbackConnections + 5 { // the first may still be counted
				conn, err := net.Dial("tcp", plain.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			late := get()
			if late.StatusCode != http.StatusServiceUnavailable || late.Header.Get("Retry-After") == "" || (late.TLS != nil) != encrypted {
				t.Errorf("the one too many got %d, %v", late.StatusCode, late.Header)
			}
			client.CloseIdleConnections()
		})
	}
}
