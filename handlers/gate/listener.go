package gate

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"m40-llm/handlers/failure"
	"m40-llm/infer/fault"
)

// MaxHeader is the largest header of a request, in bytes.
const MaxHeader = 32 << 10

// How many connections may be open at once.
const (
	maxConnections         = 1024
	maxConnectionsPerIP    = 64
	maxLoopbackConnections = 256
)

// Limit bounds how many connections of l are open, in all and for each address, so that one
// client cannot use up the file descriptors. Connections beyond a limit get a 503. A trusted
// proxy connects for many clients, so only the limit for all applies to it. All connections are
// encrypted if there is a configuration of TLS, refused ones too: their clients could not read the
// 503 otherwise.
func Limit(l net.Listener, trusted []netip.Prefix, encryption *tls.Config) net.Listener {
	return &limitListener{Listener: l, trusted: trusted, encryption: encryption, open: map[netip.Addr]int{}, refusing: make(chan struct{}, maxRefusals)}
}

type limitListener struct {
	net.Listener
	trusted    proxies
	encryption *tls.Config   // nil: none
	refusing   chan struct{} // holds an element for each connection that is being refused

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
		return l.encrypted(&limitedConn{Conn: conn, release: sync.OnceFunc(func() { l.release(ip) })}), nil
	}
}

// encrypted returns the server's side of a connection. The handshake comes with its first read.
func (l *limitListener) encrypted(conn net.Conn) net.Conn {
	if l.encryption == nil {
		return conn
	}
	return tls.Server(conn, l.encryption)
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
	maxRefusals = 64              // at the same time; further connections are closed without a response
	refusalTime = 2 * time.Second // for a client to send its request and read the response
)

// refuse sends a 503 on conn, unless maxRefusals others are being refused, and closes it.
func (l *limitListener) refuse(conn net.Conn) {
	select {
	case l.refusing <- struct{}{}:
		go func() {
			defer func() { <-l.refusing }()
			sendRefusal(l.encrypted(conn))
		}()
	default:
		conn.Close()
	}
}

// sendRefusal reads a request from conn, responds with a 503 and closes conn. It first reads
// the rest of what the client sends: a close with unread data resets the connection, and the
// client could lose the response.
func sendRefusal(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(refusalTime)) // not every connection has deadlines
	r, err := http.ReadRequest(bufio.NewReader(io.LimitReader(conn, MaxHeader)))
	if err != nil {
		return
	}
	f := failure.Describe(fault.Errorf(fault.CodeTooManyConnections,
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
