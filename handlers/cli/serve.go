package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// serverName is the Server header of every response. A second m40-llm that is started on the
// same address recognises the first by it.
const serverName = "m40-llm"

// minKeyLength is the length in characters of the shortest API key that --lan accepts.
const minKeyLength = 16

// ListenAddr returns the address to listen on for the flag --addr. An address without a
// host is the loopback address, or all addresses if lan. An address that other machines can
// reach requires lan, with which they must log in; a key for that must not be short.
func ListenAddr(addr string, lan bool, apiKey string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", Usagef("--addr %q is not host:port, such as 127.0.0.1:8080", addr)
	}
	if n := utf8.RuneCountInString(apiKey); lan && n > 0 && n < minKeyLength {
		return "", Usagef("--api-key has %d characters; --lan requires at least %d, as other machines can try keys: make one with openssl rand -hex 16", n, minKeyLength)
	}
	switch {
	case host == "" && !lan:
		host = "127.0.0.1"
	case host == "" || lan || isLoopback(host):
	default:
		return "", Usagef("--addr %s accepts connections from other machines: add --lan, with which they must log in, or listen on 127.0.0.1", addr)
	}
	return net.JoinHostPort(host, port), nil
}

// CheckNames returns an error if a value of --allow-host or --cors-origin cannot match any
// request.
func CheckNames(hosts, origins []string) error {
	for _, host := range hosts {
		if u, err := url.Parse("//" + host); err != nil || u.Host != host || u.Hostname() == "" || strings.Contains(host, "*") {
			return Usagef("--allow-host %q is not a host name, such as llm.example.org or llm.example.org:443", host)
		}
	}
	for _, origin := range origins {
		if !isOrigin(origin) {
			return Usagef("--cors-origin %q is not the origin of a page as browsers send it, such as https://example.org, app://obsidian.md or null", origin)
		}
	}
	return nil
}

// isOrigin reports whether browsers may send origin in this form: "null", or scheme and host
// in lower case, with a port only if it is not the scheme's default.
func isOrigin(origin string) bool {
	u, err := url.Parse(origin)
	switch {
	case origin == "null":
		return true
	case err != nil || u.Hostname() == "" || strings.Contains(u.Host, "*"):
		return false
	case u.Scheme == "http" && u.Port() == "80" || u.Scheme == "https" && u.Port() == "443":
		return false
	}
	return origin == u.Scheme+"://"+u.Host && origin == strings.ToLower(origin)
}

// Networks parses the values of --trusted-proxy, addresses or networks.
func Networks(values []string) ([]netip.Prefix, error) {
	networks := make([]netip.Prefix, len(values))
	for i, value := range values {
		network, err := netip.ParsePrefix(value)
		if addr, addrErr := netip.ParseAddr(value); addrErr == nil && addr.Zone() == "" {
			addr = addr.Unmap()
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, Usagef("--trusted-proxy %q is neither an address nor a network, such as 127.0.0.1 or 172.16.0.0/12", value)
		}
		networks[i] = network.Masked()
	}
	return networks, nil
}

// IsLoopbackAddr reports whether only this machine reaches addr, host:port.
func IsLoopbackAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && isLoopback(host)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// ollamaPort is the port at which Ollama's clients look for it.
const ollamaPort = "11434"

// OllamaAddr returns the address to listen on for Ollama's clients, in addition to addr: its host with
// Ollama's port.
func OllamaAddr(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == ollamaPort {
		return "", Usagef("--ollama listens on port %s as well, which is that of --addr %s already: omit it", ollamaPort, addr)
	}
	return net.JoinHostPort(host, ollamaPort), nil
}

// ListenOllama listens on an address of OllamaAddr.
func ListenOllama(ctx context.Context, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program listens on %s, perhaps Ollama itself: stop it, or omit --ollama", addr)
	case err != nil:
		return nil, fmt.Errorf("failed to listen on %s for --ollama: %w", addr, err)
	}
	return l, nil
}

// Listen listens on addr. If another m40-llm listens there already, the error wraps
// ErrRunning.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		if url := runningAt(ctx, addr); url != "" {
			return nil, fmt.Errorf("%w: %s; open that, or choose another address with --addr", ErrRunning, url)
		}
		return nil, fmt.Errorf("another program listens on %s; choose another address with --addr, such as --addr :0", addr)
	case err != nil:
		return nil, fmt.Errorf("failed to listen on %s: %w", addr, err)
	}
	return l, nil
}

// runningAt returns the URL of the m40-llm that responds at addr, with or without TLS; "" if none
// does.
func runningAt(ctx context.Context, addr string) (url string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	// Nothing secret is sent, so any certificate will do.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	for _, scheme := range []string{"http", "https"} {
		url := scheme + "://" + reachable(addr)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
		if err != nil {
			return ""
		}
		// RoundTrip uses no proxy and follows no redirects, unlike a Client.
		response, err := transport.RoundTrip(r)
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.Header.Get("Server") == serverName {
			return url
		}
	}
	return ""
}

// reachable returns the address at which this machine reaches a server that listens on
// addr: the loopback address if the server listens on all addresses.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// When the server is stopped, running answers may take drainTime to end. Then they are
// cancelled, and stopTime after the signal the server exits in any case.
const (
	drainTime = 3 * time.Second
	stopTime  = 4500 * time.Millisecond
)

// Serve prints url, the server's, and serves on all of l until ctx is done or a signal arrives; a
// second signal exits at once. When all requests have ended, at the latest after drainTime, it
// cancels the rest and calls stop, which must end the answers that do not belong to a request.
func Serve(ctx context.Context, t *Terminal, server *http.Server, l []net.Listener, url string, stop func()) error {
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	server.BaseContext = func(net.Listener) context.Context { return requests }
	server.Handler = withServerName(server.Handler)
	served := make(chan error, len(l))
	for _, one := range l {
		go func() { served <- server.Serve(one) }()
	}
	fmt.Fprintf(t.Out, "m40-llm listening on %s\n", url)

	select {
	case err := <-served:
		return fmt.Errorf("the server failed: %w", err)
	case <-ctx.Done():
	case <-t.Signals:
	}
	limit, end := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer end()
	defer server.Close()
	drained := make(chan struct{})
	go func() {
		server.Shutdown(limit)
		close(drained)
	}()
	select {
	case <-drained:
	case <-time.After(drainTime):
	case <-t.Signals:
		return nil
	}
	cancelRequests()
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	for _, done := range []chan struct{}{drained, stopped} {
		select {
		case <-done:
		case <-limit.Done():
			return nil
		case <-t.Signals:
			return nil
		}
	}
	return nil
}

// withServerName sets the Server header of every response.
func withServerName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", serverName)
		next.ServeHTTP(w, r)
	})
}

// URL returns the URL of a server that listens on l, for a browser on this machine. scheme is http
// or https.
func URL(scheme string, l net.Listener) string { return scheme + "://" + reachable(l.Addr().String()) }

// NetworkURLs returns the URLs at which other machines reach a server that listens on l, those of
// private IPv4 networks first.
func NetworkURLs(scheme string, l net.Listener) []string {
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil || at.Addr().IsLoopback() {
		return nil
	}
	if !at.Addr().IsUnspecified() {
		return []string{scheme + "://" + at.String()}
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var local, other []string
	for _, a := range interfaces {
		network, err := netip.ParsePrefix(a.String())
		ip := network.Addr()
		if err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		if url := scheme + "://" + netip.AddrPortFrom(ip, at.Port()).String(); ip.Is4() && ip.IsPrivate() {
			local = append(local, url)
		} else {
			other = append(other, url)
		}
	}
	return append(local, other...)
}

// HostNames returns the names under which other machines on the network may know this one.
func HostNames(hostname string) []string {
	if hostname == "" {
		return nil
	}
	name, _, _ := strings.Cut(hostname, ".")
	return []string{hostname, name, name + ".local"}
}

// OnDesktop reports whether the program was started in a terminal on a desktop, where a
// browser can be opened.
func OnDesktop(t *Terminal) bool {
	if !IsTerminal(t.Out) || t.Env("SSH_CONNECTION") != "" {
		return false
	}
	return runtime.GOOS == "darwin" || t.Env("DISPLAY") != "" || t.Env("WAYLAND_DISPLAY") != ""
}

// OpenBrowser opens url in the default browser.
func OpenBrowser(url string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	command := exec.Command(program, url)
	if err := command.Start(); err != nil {
		return fmt.Errorf("failed to open the browser, open %s yourself: %w", url, err)
	}
	go command.Wait()
	return nil
}
