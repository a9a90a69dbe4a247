package gate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"m40-llm/handlers/failure"
)

// MaxHeader is the size in bytes that the header of a request may have.
const MaxHeader = 32 << 10

// Limits of Limit.
const (
	maxConnections         = 1024
	maxConnectionsPerIP    = 64
	maxLoopbackConnections = 256
)

// Limit bounds the connections that l has open, together and for each address, so
// that one client cannot take every file descriptor. Those above the limit are answered
// with a 503. A trusted proxy connects for many clients and has the limit of all.
func Limit(l net.Listener, trusted []netip.Prefix) net.Listener {
	return &limitListener{Listener: l, trusted: trusted, open: map[netip.Addr]int{}, refusing: make(chan struct{}, maxRefusals)}
}

type limitListener struct {
	net.Listener
	trusted  proxies
	refusing chan struct{} // has one for each connection that is being refused

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
			l.refuse(conn)
			continue
		}
		return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { l.release(ip) })}, nil
	}
}

func (l *limitListener) take(ip netip.Addr) bool {
	limit := maxConnectionsPerIP
	switch {
	case l.trusted.trusts(ip):
		limit = maxConnections
	case !ip.IsValid() || ip.IsLoopback(): // not valid: a unix socket
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

const (
	maxRefusals = 64              // at the same time; more connections are just closed
	refusalTime = 2 * time.Second // for a client to send its request and to read why it is refused
)

// refuse closes conn, after a response if not too many others are being refused.
func (l *limitListener) refuse(conn net.Conn) {
	select {
	case l.refusing <- struct{}{}:
		go func() {
			defer func() { <-l.refusing }()
			answerRefused(conn)
		}()
	default:
		conn.Close()
	}
}

// answerRefused reads a request and answers it with a 503. What the client still sends is
// read before conn is closed: else its system could drop the response unread.
func answerRefused(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(refusalTime)) // not every connection has deadlines
	r, err := http.ReadRequest(bufio.NewReader(io.LimitReader(conn, MaxHeader)))
	if err != nil {
		return
	}
	f := failure.Describe(failure.New(failure.TooManyConnections,
		"too many connections are open; close some of yours, or try again in %d seconds", failure.RetryAfter))
	body, err := json.Marshal(f.Body())
	if err != nil {
		return
	}
	response := http.Response{
		StatusCode: f.Status, ProtoMajor: 1, ProtoMinor: 1, Request: r, Close: true,
		Header:        http.Header{"Content-Type": {"application/json"}, "Retry-After": {strconv.Itoa(f.RetryAfter)}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
	for name, value := range SecurityHeaders {
		response.Header.Set(name, value)
	}
	if response.Write(conn) != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		_, _ = io.CopyN(io.Discard, conn, defaultBodyLimit)
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
