package handlers_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/cli"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/fixtures"
)

// knock is a connection on which raw requests are sent one after another.
type knock struct {
	address string
	conn    net.Conn
	reader  *bufio.Reader
}

// ask sends a request as it is and returns the status of its response.
func (k *knock) ask(t *testing.T, request string) int {
	t.Helper()
	return k.body(t, request).Status
}

// body sends a request as it is and returns its response.
func (k *knock) body(t *testing.T, request string) handlerstest.Response {
	t.Helper()
	if k.conn == nil {
		var err error
		if k.conn, err = net.Dial("tcp", k.address); err != nil {
			t.Fatal(err)
		}
		k.reader = bufio.NewReader(k.conn)
	}
	if _, err := io.WriteString(k.conn, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(k.reader, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	if resp.Close || resp.StatusCode == http.StatusBadRequest {
		k.close()
	}
	return handlerstest.Response{Status: resp.StatusCode, Header: resp.Header, Body: string(data)}
}

func (k *knock) close() {
	if k.conn != nil {
		k.conn.Close()
		k.conn = nil
	}
}

// ownAddress returns an address of this machine in a network.
func ownAddress(t *testing.T) net.IP {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP
		}
	}
	t.Skip("this machine has no address but those of loopback")
	return nil
}

// hostCase is a value of Host, with PORT for the server's and IP for the address connected to.
type hostCase struct {
	host string
	good bool
}

var hostCases = []hostCase{
	{"IP:PORT", true}, {"box:PORT", true}, {"BOX.local:PORT", true}, {"m40-llm.local:PORT", true}, {"allowed.example:PORT", true},
	{"[::ffff:IP]:PORT", true}, {"localhost:PORT", true}, {"127.0.0.1:PORT", true}, {"[::1]:PORT", true}, {"a.localhost:1", true},

	{"IP", false}, {"IP:1", false}, {"box", false}, {"box:1", false}, {"m40-llm.local", false}, {"box.:PORT", false}, {"box.local.:PORT", false},
	{"evil.example", false}, {"evil.example:PORT", false}, {"IP.nip.io:PORT", false}, {"IP.evil.example:PORT", false}, {"box.evil.example:PORT", false},
	{"evil.box.local:PORT", false}, {"m40-llm.local.evil.example:PORT", false}, {"other.local:PORT", false}, {"localhost.evil.example:PORT", false},
	{"10.255.255.254:PORT", false}, {"0.0.0.0:PORT", false}, {"[fe80::1]:PORT", false}, {"[fe80::1%25eth0]:PORT", false}, {"[fe80::1%eth0]:PORT", false},
	{"box:PORT:PORT", false}, {"box:", false}, {"", false},
}

// originCase is a header Origin, with HOST for the request's own Host; empty: there is none.
type originCase struct {
	origin string
	same   bool
}

var originCases = []originCase{
	{"", false}, {"http://HOST", true}, {"HTTP://HOST", true},
	{"null", false}, {"http://evil.example", false}, {"http://evil.example:PORT", false}, {"http://IP:1", false}, {"http://IP", false}, {"https://HOST", false},
	{"file://", false}, {"chrome-extension://abcdefghijklmnop", false}, {"moz-extension://0-1", false}, {"http://HOST/", false}, {"http://HOST.evil.example", false},
	{"http://HOST, http://evil.example", false},
}

// matrixRoute is a route as it is asked for, and whether it is let through without an Origin.
type matrixRoute struct {
	line       string // "GET /c/1"
	header     string
	unoriginal bool
}

func matrixRoutes(table []string) (list []matrixRoute) {
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	fill := strings.NewReplacer(":id", "1", ":answer", "1", ":token", "none", ":index", "0", "*", "x")
	for _, route := range table {
		method, path, _ := strings.Cut(route, " ")
		path = fill.Replace(path)
		first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		isAPI := strings.Contains(" v1 v2 rerank reranking api chat completion completions embedding embeddings infill responses tokenize detokenize apply-template health ", " "+first+" ")
		list = append(list, matrixRoute{method + " " + path, "", isAPI || method == "GET" || method == "HEAD"})
	}
	return append(list,
		matrixRoute{"GET /ws", upgrade, false}, matrixRoute{"GET /events", upgrade, false},
		matrixRoute{"GET /nothing", "", true}, matrixRoute{"POST /nothing", "", false}, matrixRoute{"DELETE /v1/nothing", "", true}, matrixRoute{"OPTIONS /c/1", "", true})
}

// want returns the status that the gate has for a request; 0: it lets it through.
func (r matrixRoute) want(h hostCase, o originCase) int {
	switch {
	case !h.good:
		return http.StatusMisdirectedRequest
	case o.origin != "" && !o.same, o.origin == "" && !r.unoriginal:
		return http.StatusForbidden
	}
	return 0
}

// In LAN mode every Host that is not a name of this machine is refused on every route, and so is every
// Origin but the page's own; on the server itself and on the listener for shared chats.
func TestHost_MatrixOfHostsOriginsAndRoutesInLANMode(t *testing.T) {
	own := ownAddress(t)
	hosts := append(cli.HostNames("box"), "m40-llm.local", "allowed.example")
	db := handlerstest.OpenStore(t)
	config := handlerstest.TestConfig(t, &handlerstest.FakeEngine{})
	config.Asks, config.People, config.AllowHosts = gate.AsksOthers, handlerstest.PeopleOf(t, db, ""), hosts
	for name, handler := range map[string]http.Handler{"the server": handlers.New(config), "the listener for shared chats": handlers.NewShared(config)} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(nil)
			s.Listener.Close()
			var err error
			if s.Listener, err = net.Listen("tcp", ":0"); err != nil {
				t.Fatal(err)
			}
			s.Config = handlers.NewServer(handler, config.Logger)
			s.Start()
			defer s.Close()
			var table []string
			for _, route := range handlers.New(config).Routes() { // all are tried on the other listener too
				if route.Method == "GET" || route.Method == "HEAD" || route.Method == "POST" {
					table = append(table, route.Method+" "+route.Path)
				}
			}
			_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
			k := &knock{address: net.JoinHostPort(own.String(), port)}
			defer k.close()
			asked, byStatus := 0, map[int]int{}
			for _, r := range matrixRoutes(table) {
				for i, h := range hostCases {
					for j, o := range originCases {
						if i > 0 && j > 1 && !fixtures.Torture() {
							continue // all Origins under the first Host, and all Hosts without and with their own Origin
						}
						fill := strings.NewReplacer("PORT", port, "IP", own.String())
						host := fill.Replace(h.host)
						origin := ""
						if o.origin != "" {
							origin = "Origin: " + fill.Replace(strings.ReplaceAll(o.origin, "HOST", host)) + "\r\n"
						}
						got := k.ask(t, fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n%s%s\r\n", r.line, host, origin, r.header))
						asked++
						byStatus[got]++
						want := r.want(h, o)
						if malformed := got == http.StatusBadRequest && want == http.StatusMisdirectedRequest; malformed {
							continue // net/http refuses it before the gate
						}
						if through := got != http.StatusMisdirectedRequest && got != http.StatusForbidden; got != want && !(want == 0 && through) {
							t.Errorf("%s, Host %q, Origin %q: got %d, want %d", r.line, host, origin, got, want)
						}
					}
				}
				for form, status := range map[string]int{
					"%s HTTP/1.1\r\nHost: IP:PORT\r\nHost: box:PORT\r\nContent-Length: 0\r\n\r\n": 400,
					"%s HTTP/1.1\r\nContent-Length: 0\r\n\r\n":                                    400,
				} {
					asked++
					if got := k.ask(t, fmt.Sprintf(strings.NewReplacer("PORT", port, "IP", own.String()).Replace(form), r.line)); got != status {
						t.Errorf("%s as %q: got %d", r.line, form, got)
					}
				}
				method, path, _ := strings.Cut(r.line, " ")
				for _, authority := range []string{"IP:PORT", "evil.example"} {
					asked++
					line := strings.NewReplacer("PORT", port, "IP", own.String()).Replace(fmt.Sprintf("%s http://%s%s HTTP/1.1\r\nHost: IP:PORT\r\nContent-Length: 0\r\n\r\n", method, authority, path))
					if got := k.ask(t, line); got != http.StatusMisdirectedRequest {
						t.Errorf("%q: got %d", line, got)
					}
				}
			}
			for _, status := range []int{http.StatusMisdirectedRequest, http.StatusForbidden} {
				if byStatus[status] == 0 {
					t.Errorf("no request was refused with %d", status)
				}
			}
			t.Logf("%d routes x %d Hosts x %d Origins: %d requests, %v", len(table)+6, len(hostCases), len(originCases), asked, byStatus)
		})
	}
}
