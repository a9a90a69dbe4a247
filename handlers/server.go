package handlers

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// NewServer returns an HTTP server with the time and size limits that suit
// handler. There is no limit on a whole response: answers take as long as they
// take, and boundWrites watches each write.
func NewServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:                      handler,
		ReadHeaderTimeout:            5 * time.Second,
		IdleTimeout:                  2 * time.Minute,
		MaxHeaderBytes:               32 << 10,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" passes the same checks as everything else
		ErrorLog:                     slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// Connection limits of LimitListener.
const (
	maxConnections         = 1024
	maxConnectionsPerIP    = 64
	maxLoopbackConnections = 256
)

// LimitListener bounds the connections that l has open, together and for each
// address, so that one client cannot take every file descriptor. Those above the
// limit are closed at once.
func LimitListener(l net.Listener) net.Listener {
	return &limitListener{Listener: l, open: map[netip.Addr]int{}}
}

type limitListener struct {
	net.Listener
	mu    sync.Mutex
	total int
	open  map[netip.Addr]int
}

func (l *limitListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		ip := addrPortOf(conn.RemoteAddr()).Addr()
		if !l.take(ip) {
			conn.Close()
			continue
		}
		return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { l.release(ip) })}, nil
	}
}

func (l *limitListener) take(ip netip.Addr) bool {
	limit := maxConnectionsPerIP
	if !ip.IsValid() || ip.IsLoopback() { // not valid: a unix socket
		limit = maxLoopbackConnections
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxConnections || l.open[ip] >= limit {
		return false
	}
	l.total++
	l.open[ip]++
	return true
}

func (l *limitListener) release(ip netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.open[ip]--; l.open[ip] == 0 {
		delete(l.open, ip)
	}
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
