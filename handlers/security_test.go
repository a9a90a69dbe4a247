package handlers_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
)

// raw sends request, with PORT and HOST replaced by the server's, as it is and
// returns the status and the header of the answer.
func raw(t *testing.T, s *httptest.Server, request string) (int, http.Header) {
	t.Helper()
	address := s.Listener.Addr().String()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, port, _ := net.SplitHostPort(address)
	request = strings.NewReplacer("PORT", port, "\n", "\r\n").Replace(request)
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return resp.StatusCode, resp.Header // not the body: that of a stream does not end
}

func TestHost_EveryRoute(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) {
		c.AllowHosts = []string{"allowed.example", "Proxy.example:443", "other.example:9000"}
	})
	const wrong = http.StatusMisdirectedRequest
	for host, status := range map[string]int{
		"localhost":                   0, // not misdirected
		"localhost:PORT":              0,
		"localhost:1":                 0, // a tunnel
		"LocalHost:PORT":              0,
		"app.localhost:PORT":          0,
		"127.0.0.1":                   0,
		"127.0.0.1:PORT":              0,
		"[::1]":                       0,
		"[::1]:PORT":                  0,
		"allowed.example:PORT":        0,
		"ALLOWED.example:PORT":        0,
		"proxy.example":               0,
		"proxy.example:443":           0,
		"other.example:9000":          0,
		"allowed.example":             wrong, // port 80 is not ours
		"allowed.example:1":           wrong,
		"proxy.example:PORT":          wrong,
		"other.example:PORT":          wrong,
		"sub.allowed.example:PORT":    wrong,
		"evil.example":                wrong,
		"evil.example:PORT":           wrong,
		"localhost.evil.example:PORT": wrong,
		"127.0.0.1.evil.example:PORT": wrong,
		"evil-localhost:PORT":         wrong,
		"localhost.:PORT":             wrong,
		"0.0.0.0:PORT":                wrong,
		"10.0.0.1:PORT":               wrong,
		"127.1:PORT":                  wrong,
		"2130706433:PORT":             wrong,
		"[::ffff:10.0.0.1]:PORT":      wrong,
		"localhost:PORT:PORT":         wrong,
		"localhost:":                  wrong,
		"localhost:http":              wrong,
		"":                            wrong,
	} {
		for _, route := range []string{"GET /", "GET /health", "GET /v1/models", "POST /v1/chat/completions", "GET /nothing", "OPTIONS /v1/models", "OPTIONS *"} {
			got, _ := raw(t, s, fmt.Sprintf("%s HTTP/1.1\nHost: %s\nConnection: close\n\n", route, host))
			if (got == wrong) != (status == wrong) {
				t.Errorf("Host %q, %s: got %d", host, route, got)
			}
		}
	}
	for name, tc := range map[string]struct {
		request string
		status  int
	}{
		"no Host in HTTP/1.0":            {"GET /health HTTP/1.0\n\n", wrong},
		"no Host in HTTP/1.1":            {"GET /health HTTP/1.1\nConnection: close\n\n", http.StatusBadRequest},
		"a user before the Host":         {"GET /health HTTP/1.1\nHost: user@localhost\nConnection: close\n\n", http.StatusBadRequest},
		"two Hosts":                      {"GET /health HTTP/1.1\nHost: localhost\nHost: evil.example\nConnection: close\n\n", http.StatusBadRequest},
		"the absolute form":              {"GET http://localhost:PORT/health HTTP/1.1\nHost: localhost:PORT\nConnection: close\n\n", wrong},
		"the absolute form, other host":  {"GET http://localhost:PORT/health HTTP/1.1\nHost: evil.example\nConnection: close\n\n", wrong},
		"the absolute form of elsewhere": {"GET http://evil.example/health HTTP/1.1\nHost: localhost:PORT\nConnection: close\n\n", wrong},
		"CONNECT":                        {"CONNECT localhost:PORT HTTP/1.1\nHost: localhost:PORT\nConnection: close\n\n", wrong},
	} {
		if got, _ := raw(t, s, tc.request); got != tc.status {
			t.Errorf("%s: got %d, want %d", name, got, tc.status)
		}
	}
}

// Containers call their machine by a name that belongs to nobody. A page under that name,
// which a strange network's resolver can serve, must find nothing behind it.
func TestHost_OfTheMachineInContainers(t *testing.T) {
	const key = "Authorization: Bearer k\n"
	locked := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { handlerstest.Lock(t, c, "k") })
	open := handlerstest.Server(t, &handlerstest.FakeEngine{})
	for _, tc := range []struct {
		name    string
		server  *httptest.Server
		request string
		status  int
	}{
		{"a program with the key", locked, "GET /v1/models HTTP/1.1\nHost: host.docker.internal:PORT\n" + key, 200},
		{"a program in Podman", locked, "GET /v1/models HTTP/1.1\nHost: Host.Containers.internal:PORT\n" + key, 200},
		{"a program without the key", locked, "GET /v1/models HTTP/1.1\nHost: host.docker.internal:PORT\n", 401},
		{"a page under that name", locked, "GET /v1/models HTTP/1.1\nHost: host.docker.internal:PORT\nOrigin: http://host.docker.internal:PORT\n" + key, 403},
		{"the page of the chats", locked, "GET / HTTP/1.1\nHost: host.docker.internal:PORT\n" + key, 421},
		{"the login", locked, "GET /login HTTP/1.1\nHost: host.docker.internal:PORT\n", 421},
		{"what is told without a key", locked, "GET /health HTTP/1.1\nHost: host.docker.internal:PORT\n", 421},
		{"another port", locked, "GET /v1/models HTTP/1.1\nHost: host.docker.internal:1\n" + key, 421},
		{"a name below it", locked, "GET /v1/models HTTP/1.1\nHost: a.host.docker.internal:PORT\n" + key, 421},
		{"a server without a key", open, "GET /v1/models HTTP/1.1\nHost: host.docker.internal:PORT\n", 421},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if status, _ := raw(t, tc.server, tc.request+"Connection: close\n\n"); status != tc.status {
				t.Errorf("got %d, want %d", status, tc.status)
			}
		})
	}
}

func TestOrigin(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) {
		c.AllowHosts = []string{"proxy.example:443"}
		c.CORSOrigins = []string{"https://app.example"}
	})
	const own = "Origin: http://localhost:PORT\n"
	for _, tc := range []struct {
		name            string
		headers         string
		api, page, form bool // let through on GET /v1/models, GET /c/1 and POST /login
		ws              bool
	}{
		{"neither header, as programs send", "", true, true, false, false},
		{"our own page", own, true, true, true, true},
		{"our own page, as browsers tell it", own + "Sec-Fetch-Site: same-origin\n", true, true, true, true},
		{"our own page without Origin", "Sec-Fetch-Site: same-origin\n", true, true, true, false},
		{"an address typed in", "Sec-Fetch-Site: none\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\n", true, true, false, false},
		{"a link on another site", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\n", false, true, false, false},
		{"a frame of another site", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe\n", false, false, false, false},
		{"an image of another site", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: image\n", false, false, false, false},
		{"another port of this host", "Sec-Fetch-Site: same-site\n", false, false, false, false},
		{"another port's Origin", "Origin: http://localhost:1\n", false, false, false, false},
		{"another site", "Origin: http://evil.example\n", false, false, false, false},
		{"another site that is said to be ours", "Origin: http://evil.example\nSec-Fetch-Site: same-origin\n", false, false, false, false},
		{"our Origin from another site", own + "Sec-Fetch-Site: cross-site\n", false, false, false, false},
		{"the wrong scheme", "Origin: https://localhost:PORT\n", false, false, false, false},
		{"another name of this host", "Origin: http://127.0.0.1:PORT\n", false, false, false, false},
		{"a sandboxed page", "Origin: null\n", false, false, false, false},
		{"a sandboxed page, same-origin", "Origin: null\nSec-Fetch-Site: same-origin\n", false, false, false, false},
		{"an extension", "Origin: chrome-extension://abcdef\n", false, false, false, false},
		{"a file", "Origin: file://\n", false, false, false, false},
		{"a path behind our Origin", "Origin: http://localhost:PORT/\n", false, false, false, false},
		{"a user before our Origin", "Origin: http://evil@localhost:PORT\n", false, false, false, false},
		{"two Origins", own + "Origin: http://evil.example\n", false, false, false, false},
		{"an empty Origin", "Origin:\n", false, false, false, false},
	} {
		const upgrade = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n"
		for _, route := range []struct {
			request string
			allowed bool
		}{
			{"GET /v1/models HTTP/1.1\nHost: localhost:PORT\nConnection: close\n", tc.api},
			{"POST /v1/generate HTTP/1.1\nHost: localhost:PORT\nConnection: close\nContent-Type: text/plain\nContent-Length: 0\n", tc.api},
			{"GET /c/1 HTTP/1.1\nHost: localhost:PORT\nConnection: close\n", tc.page},
			{"POST /login HTTP/1.1\nHost: localhost:PORT\nConnection: close\nContent-Length: 0\n", tc.form},
			{"DELETE /c/1 HTTP/1.1\nHost: localhost:PORT\nConnection: close\n", tc.form},
			{"GET /ws HTTP/1.1\nHost: localhost:PORT\n" + upgrade, tc.ws},
			{"GET /nothing HTTP/1.1\nHost: localhost:PORT\n" + upgrade, tc.ws},
		} {
			status, _ := raw(t, s, route.request+tc.headers+"\n")
			if (status != http.StatusForbidden) != route.allowed {
				line, _, _ := strings.Cut(route.request, "\n")
				t.Errorf("%s: %s got %d, allowed should be %t", tc.name, line, status, route.allowed)
			}
		}
	}
	t.Run("a proxy that speaks https for us has an https origin", func(t *testing.T) {
		for origin, allowed := range map[string]bool{"https://proxy.example": true, "http://proxy.example": false} {
			status, _ := raw(t, s, "POST /login HTTP/1.1\nHost: proxy.example\nConnection: close\nContent-Length: 0\nOrigin: "+origin+"\n\n")
			if (status != http.StatusForbidden) != allowed {
				t.Errorf("%s: got %d", origin, status)
			}
		}
	})
}

func TestCORS(t *testing.T) {
	const preflight = "Access-Control-Request-Method: POST\nAccess-Control-Request-Headers: authorization, content-type, x-stainless-lang\n"
	s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) {
		c.CORSOrigins = []string{"https://app.example", "app://obsidian.md", "null"}
		handlerstest.Lock(t, c, "k")
	})
	open := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { c.CORSOrigins = []string{"https://app.example"} })
	if status, header := raw(t, open, "OPTIONS /v1/models HTTP/1.1\nHost: localhost:PORT\nConnection: close\nOrigin: null\n"+preflight+"\n"); status != 403 || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("the origin null, which nobody named, got %d", status)
	}
	for origin, method := range map[string]string{"app://obsidian.md": "OPTIONS", "null": "GET"} {
		status, header := raw(t, s, method+" /v1/models HTTP/1.1\nHost: localhost:PORT\nConnection: close\nAuthorization: Bearer k\nOrigin: "+origin+"\n"+preflight+"\n")
		if status >= 300 || header.Get("Access-Control-Allow-Origin") != origin || header.Get("Vary") != "Origin" {
			t.Errorf("%s: got %d with allowed origin %q", origin, status, header.Get("Access-Control-Allow-Origin"))
		}
	}
	for _, tc := range []struct {
		name, request string
		status        int
		allowed       bool
	}{
		{"a preflight of the origin", "OPTIONS /v1/chat/completions HTTP/1.1\nOrigin: https://app.example\nSec-Fetch-Site: cross-site\n" + preflight, 204, true},
		{"a request of the origin", "GET /v1/models HTTP/1.1\nOrigin: https://app.example\nSec-Fetch-Site: cross-site\nAuthorization: Bearer k\n", 200, true},
		{"a request of the origin without the key", "GET /v1/models HTTP/1.1\nOrigin: https://app.example\n", 401, true},
		{"a request of the origin for another route", "GET /health HTTP/1.1\nOrigin: https://app.example\n", 403, false},
		{"a preflight of another origin", "OPTIONS /v1/models HTTP/1.1\nOrigin: https://evil.example\n" + preflight, 403, false},
		{"an origin that begins like it", "OPTIONS /v1/models HTTP/1.1\nOrigin: https://app.example.evil\n" + preflight, 403, false},
		{"the origin over http", "OPTIONS /v1/models HTTP/1.1\nOrigin: http://app.example\n" + preflight, 403, false},
	} {
		method, rest, _ := strings.Cut(tc.request, "\n")
		status, header := raw(t, s, method+"\nHost: localhost:PORT\nConnection: close\n"+rest+"\n")
		want := ""
		if tc.allowed {
			want = "https://app.example"
		}
		if status != tc.status || header.Get("Access-Control-Allow-Origin") != want {
			t.Errorf("%s: got %d with allowed origin %q", tc.name, status, header.Get("Access-Control-Allow-Origin"))
		}
		if header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: credentials are allowed", tc.name)
		}
		if strings.HasPrefix(tc.request, "OPTIONS") && tc.allowed {
			for _, name := range []string{
				"Authorization", "Content-Type", "User-Agent", "Accept", "X-Requested-With", "OpenAI-Beta", "OpenAI-Organization", "OpenAI-Project", "X-Api-Key",
				"x-stainless-arch", "x-stainless-async", "x-stainless-custom-poll-interval", "x-stainless-helper-method", "x-stainless-lang", "x-stainless-os",
				"x-stainless-package-version", "x-stainless-poll-helper", "x-stainless-retry-count", "x-stainless-runtime", "x-stainless-runtime-version", "x-stainless-timeout",
			} {
				if !strings.Contains(header.Get("Access-Control-Allow-Headers"), name) {
					t.Errorf("%s: %s is not allowed", tc.name, name)
				}
			}
		}
	}
}

// Every route has every header in every outcome, and no foreign page may read any
// of them.
func TestHeaders_EveryRouteAndStatus(t *testing.T) {
	plain := handlerstest.Server(t, &handlerstest.FakeEngine{})
	locked := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { handlerstest.Lock(t, c, "k") })
	broken := handlerstest.Server(t, nil) // every call of the engine panics
	loading := handlerstest.Server(t, &handlerstest.FakeEngine{OnStatus: func() infer.Status { return infer.Status{State: infer.StateLoading} }})
	seen := map[int]int{}
	paths := map[string][]string{"/nothing": {"GET", "POST", "DELETE"}, "/v1/nothing": {"GET"}, "/static/../x": {"GET"}, "/%2e%2e/x": {"GET"}}
	for _, route := range handlers.New(handlerstest.TestConfig(t, &handlerstest.FakeEngine{})).Routes() {
		path := strings.NewReplacer(":id", "1", ":token", "abc", "*", "x/y").Replace(route.Path)
		paths[path] = append(paths[path], route.Method, "OPTIONS", "PUT")
	}
	for path, methods := range paths {
		for _, method := range methods {
			for _, variant := range []struct {
				server *httptest.Server
				header string
			}{
				{plain, ""},
				{plain, "Origin: http://localhost:PORT\n"},
				{locked, "Origin: http://localhost:PORT\n"},
				{broken, "Origin: http://localhost:PORT\n"},
				{loading, "Origin: http://localhost:PORT\n"},
				{plain, "Origin: http://evil.example\n"},
				{plain, "Origin: http://localhost:PORT\nContent-Encoding: br\n"},
				{plain, "Origin: http://localhost:PORT\nContent-Length: 999999999\n"},
			} {
				for _, host := range []string{"localhost:PORT", "evil.example"} {
					status, header := raw(t, variant.server, fmt.Sprintf("%s %s HTTP/1.1\nHost: %s\nConnection: close\n%s\n", method, path, host, variant.header))
					seen[status]++
					expectSecure(t, method+" "+path+" "+variant.header, status, header)
				}
			}
		}
	}
	for _, status := range []int{200, 303, 400, 401, 403, 404, 405, 413, 415, 421, 500, 503} {
		if seen[status] == 0 {
			t.Errorf("no request of the walk was answered with %d: %v", status, seen)
		}
	}
}

// expectSecure checks that a response has every header, and none that lets foreign pages read it.
func expectSecure(t *testing.T, request string, status int, header http.Header) {
	t.Helper()
	for name, want := range gate.SecurityHeaders {
		if name == "Referrer-Policy" && strings.Contains(request, " /s/") && (strings.HasPrefix(request, "GET") || strings.HasPrefix(request, "HEAD")) && header.Get(name) == "no-referrer" {
			continue // stricter, as the address is a secret and the page has no form
		}
		if got := header.Get(name); got != want && !(name == "Cache-Control" && strings.Contains(request, " /static/") && status == 200) {
			t.Errorf("%q: %d has %s %q", request, status, name, got)
		}
	}
	for name := range header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("%q: %d has %s", request, status, name)
		}
	}
}

func TestPath_OneMeaning(t *testing.T) {
	runScenarios(t, []scenario{
		{name: "a trailing slash is no other route", method: "GET", path: "/v1/models/", status: 200, want: []string{`"object":"list"`}},
		{name: "several neither", path: "/v1/chat/completions//", body: hello, status: 200},
		{name: "an encoded path is the same route", method: "GET", path: "/v1/%6dodels", status: 200, want: []string{`"object":"list"`}},
		{name: "clients may leave out /v1 of chat completions", path: "/chat/completions", body: hello, status: 200},
		{name: "and of completions", path: "/completions", body: `{"prompt":"a"}`, status: 200},
	})
}
