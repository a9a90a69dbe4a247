package handlers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
)

func TestBody_Limits(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	const mib = 1 << 20
	for path, limit := range map[string]int{
		"/v1/generate":         64 * mib,
		"/v1/render":           64 * mib,
		"/v1/embed":            8 * mib,
		"/v1/rank":             8 * mib,
		"/rerank":              8 * mib,
		"/v2/rerank":           8 * mib,
		"/v1/completions":      64 * mib,
		"/completions":         64 * mib,
		"/tokenize":            mib,
		"/detokenize":          mib,
		"/completion":          64 * mib,
		"/api/show":            mib,
		"/infill":              8 * mib,
		"/v1/embeddings":       8 * mib,
		"/embedding":           8 * mib,
		"/api/embed":           8 * mib,
		"/api/embeddings":      mib,
		"/apply-template":      8 * mib,
		"/v1/responses":        64 * mib,
		"/v1/messages":         64 * mib,
		"/api/chat":            64 * mib,
		"/api/generate":        64 * mib,
		"/chat/completions":    64 * mib,
		"/v1/chat/completions": 64 * mib,
	} {
		if limit == 64*mib && path != "/chat/completions" && path != "/completions" {
			t.Run(path+" takes pictures", func(t *testing.T) { // the limit is one, and large bodies take time
				if got := handlerstest.Post(t, s, path, `{"ballast":"`+strings.Repeat("x", 9*mib)+`"}`); got.Status == http.StatusRequestEntityTooLarge {
					t.Errorf("got %d: %s", got.Status, got.Body)
				}
			})
			continue
		}
		for _, chunked := range []bool{false, true} {
			if chunked && path != "/tokenize" && path != "/infill" {
				continue // the limit is one, and large bodies take time
			}
			t.Run(fmt.Sprintf("%s takes %d bytes and not one more, chunked %t", path, limit, chunked), func(t *testing.T) {
				for _, excess := range []int{0, 1} {
					body := `{"ballast":"` + strings.Repeat("x", limit+excess-len(`{"ballast":""}`)) + `"}`
					r, err := http.NewRequest(http.MethodPost, s.URL+path, strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					if chunked {
						r.ContentLength = -1
					}
					got := handlerstest.Do(t, s, r)
					if tooLarge := got.Status == http.StatusRequestEntityTooLarge; tooLarge != (excess > 0) {
						t.Errorf("%d bytes got %d: %s", len(body), got.Status, got.Body)
					}
					if excess > 0 && !strings.Contains(got.Body, fmt.Sprint(limit)) {
						t.Errorf("the answer does not name the limit: %s", got.Body)
					}
				}
			})
		}
	}
}

func TestBody_AClientThatSendsEverythingFirstLearnsThatItIsTooMuch(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const size = 24 << 20 // more than lies in the buffers of a connection
	fmt.Fprintf(conn, "POST /tokenize HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", s.Listener.Addr(), size)
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d", response.StatusCode)
	}
}

func TestBody_Depth(t *testing.T) {
	nest := func(n int) string {
		return `{"content":"a","x":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	runScenarios(t, []scenario{
		{name: "64 levels are taken", path: "/tokenize", body: nest(64), status: 200},
		{name: "65 are not", path: "/tokenize", body: nest(65), status: 400, want: []string{"deeper than 64", `"param":"x[0]`}},
		{name: "a million neither", path: "/v1/chat/completions", body: strings.Repeat(`{"a":`, 1_000_000), status: 400, want: []string{"deeper than 64"}},
		{name: "brackets in strings are no levels", path: "/tokenize", body: `{"content":"` + strings.Repeat(`[\"`, 100) + `"}`, status: 200},
	})
}

func TestBody_Encoding(t *testing.T) {
	runScenarios(t, []scenario{
		{name: "identity is fine", path: "/tokenize", body: `{"content":"a"}`, header: []string{"Content-Encoding", "identity"}, status: 200},
		{name: "a list of encodings is refused", path: "/tokenize", body: `{"content":"a"}`, header: []string{"Content-Encoding", "identity, br"}, status: 415},
		{name: "Content-Type does not matter to programs", path: "/tokenize", body: `{"content":"a"}`, header: []string{"Content-Type", "text/plain"}, status: 200},
	})
}

// dial sends text over a connection of its own.
func dial(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestBody_SilentClientIsTurnedAway(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { c.BodyTimeout = 20 * time.Millisecond })
	for path, want := range map[string]int{
		"/tokenize":   http.StatusRequestTimeout,
		"/v1/nothing": http.StatusNotFound, // nobody reads this body but the server
	} {
		conn := dial(t, s.Listener.Addr().String(), "POST "+path+" HTTP/1.1\nHost: localhost\nContent-Length: 100\n\n{\"content\"")
		if err := conn.SetReadDeadline(time.Now().Add(handlerstest.Hang)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: got %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// The deadline for the body must not outlive it: it would look like a disconnect
// to a slow answer.
func TestBody_DeadlineEndsWithTheBody(t *testing.T) {
	t.Parallel()
	engine := &handlerstest.FakeEngine{OnGenerate: func(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			select {
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
			case <-time.After(6 * time.Second):
				_ = yield(handlerstest.WordEvent(1, "Hi"), nil) && yield(handlerstest.DoneEvent(infer.FinishStop), nil)
			}
		}
	}}
	s := handlerstest.Server(t, engine, func(c *handlers.Config) { c.BodyTimeout = 5 * time.Second })
	if got := handlerstest.Post(t, s, "/v1/chat/completions", hello); got.Status != http.StatusOK {
		t.Errorf("got %d: %s", got.Status, got.Body)
	}
}

// endless writes words until nobody wants them, and then closes ended.
func endless(word string) (engine *handlerstest.FakeEngine, ended chan struct{}) {
	ended = make(chan struct{})
	return &handlerstest.FakeEngine{OnGenerate: func(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			defer close(ended)
			for ctx.Err() == nil && yield(handlerstest.WordEvent(1, word), nil) {
			}
		}
	}}, ended
}

// inputs are the fields of the least request for an answer, by route.
var inputs = map[string]string{
	"/v1/chat/completions": `"messages":[{"role":"user","content":"a"}]`,
	"/v1/completions":      `"prompt":"a"`,
	"/v1/responses":        `"input":"a"`,
	"/v1/messages":         `"max_tokens":9,"messages":[{"role":"user","content":"a"}]`,
	"/v1/generate":         `"prompt":"a"`,
	"/api/chat":            `"messages":[{"role":"user","content":"a"}]`,
	"/api/generate":        `"prompt":"a"`,
	"/completion":          `"prompt":"a"`,
}

// asking returns the body of a request for an answer.
func asking(path string, stream bool) string {
	if path == "/v1/generate" { // always a stream
		return "{" + inputs[path] + "}"
	}
	return fmt.Sprintf(`{"stream":%t,%s}`, stream, inputs[path])
}

func TestWrites_ClientThatDoesNotReadIsDropped(t *testing.T) {
	for path := range inputs {
		t.Run(path, func(t *testing.T) {
			engine, ended := endless(strings.Repeat("x", 4096))
			s := handlerstest.Server(t, engine, func(c *handlers.Config) { c.WriteTimeout = 50 * time.Millisecond })
			body := asking(path, true)
			dial(t, s.Listener.Addr().String(), fmt.Sprintf("POST %s HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", path, len(body), body))
			waitFor(t, ended, "the answer nobody reads to end")
		})
	}
}

// A connection that was silent for longer than a write may take is as good as new.
func TestWrites_DeadlineDoesNotOutliveTheResponse(t *testing.T) {
	t.Parallel()
	s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { c.WriteTimeout = 5 * time.Second })
	conn := dial(t, s.Listener.Addr().String(), "")
	reader := bufio.NewReader(conn)
	for i := range 2 {
		if i > 0 {
			time.Sleep(6 * time.Second)
		}
		if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("got %d, %v", resp.StatusCode, err)
		}
		resp.Body.Close()
	}
}

func TestDisconnect_CancelsTheAnswer(t *testing.T) {
	for path := range inputs {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streaming %t", path, stream), func(t *testing.T) {
				started, cancelled := make(chan struct{}), make(chan struct{})
				engine := &handlerstest.FakeEngine{OnGenerate: func(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
					return func(yield func(infer.Event, error) bool) {
						defer close(cancelled)
						if !yield(handlerstest.WordEvent(1, "a"), nil) {
							return
						}
						close(started)
						<-ctx.Done() // a long prefill, say
						yield(infer.Event{}, ctx.Err())
					}
				}}
				s := handlerstest.Server(t, engine)
				body := asking(path, stream)
				conn := dial(t, s.Listener.Addr().String(), fmt.Sprintf("POST %s HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", path, len(body), body))
				waitFor(t, started, "the answer to begin")
				conn.Close()
				waitFor(t, cancelled, "the answer to be cancelled")
			})
		}
	}
}

// A client that closes its half of the connection looks like one that has left: the system
// reports both in the same way, and so does net/http. It is told why it gets no answer.
func TestDisconnect_AClientThatClosesItsHalfIsToldWhyItsRequestEnded(t *testing.T) {
	engine, started, _ := waiting()
	s := handlerstest.Server(t, engine)
	body := `{"prompt":"a"}`
	conn := dial(t, s.Listener.Addr().String(), fmt.Sprintf("POST /v1/completions HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", len(body), body))
	waitFor(t, started, "the answer to begin")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(said), "its own half of it") {
		t.Errorf("got %d, %v: %s", resp.StatusCode, err, said)
	}
}

// Editors put a byte order mark before a text; bytes of another encoding would reach the model as other characters.
func TestBodies_AByteOrderMarkIsTakenOffAndOtherEncodingsAreRefused(t *testing.T) {
	latin := strings.Replace(hello, "Hello", "Gr\xfc\xdfe", 1)
	for path, body := range map[string]string{
		"/v1/chat/completions": latin, "/v1/messages": strings.Replace(claudeHello+"}", "Hello", "Gr\xfc\xdfe", 1), "/api/chat": latin, "/apply-template": latin, "/tokenize": "{\"content\":\"Gr\xfc\xdfe\"}",
	} {
		want := fmt.Sprintf("it is not UTF-8 at byte %d (0xFC)", strings.Index(body, "\xfc"))
		if got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), path, body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, want) {
			t.Errorf("%s: got %d: %s, want %s", path, got.Status, got.Body, want)
		}
	}
	engine, asked := captured()
	if got := handlerstest.Post(t, handlerstest.Server(t, engine), "/v1/chat/completions", "\uFEFF"+chatBody(`"grammar":"\ufeffroot ::= \"a\""`)); got.Status != http.StatusOK || asked.Grammar != `root ::= "a"` {
		t.Errorf("got %d: %s; the grammar is %q", got.Status, got.Body, asked.Grammar)
	}
}
