package upstream

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/infer/fault"
)

func TestAnAddressBehindWhichOneOfTwoEnginesIsDeadRefusesNobody(t *testing.T) {
	ways := map[string]func(w http.ResponseWriter){
		"as a 500":      func(w http.ResponseWriter) { http.Error(w, "replica is dead", 500) },
		"as a 503":      func(w http.ResponseWriter) { http.Error(w, "no replica", 503) },
		"as a cut":      func(w http.ResponseWriter) { raw(w, "") },
		"without words": func(w http.ResponseWriter) { stream(w, roleChunk) },
	}
	for name, fail := range ways {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[string]bool{}
			var dead atomic.Bool
			s := newStandIn(t, func(w http.ResponseWriter, r *http.Request, body map[string]any) {
				asked := fmt.Sprint(body["messages"])
				mu.Lock()
				first := !seen[asked]
				seen[asked] = true
				mu.Unlock()
				if dead.Load() && first { // the balancer takes the dead one first, then the other
					fail(w)
					return
				}
				greets(w, r, body)
			})
			serve := s.Config.Handler
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if dead.Load() && r.URL.Path == "/v1/models" {
					fail(w)
					return
				}
				serve.ServeHTTP(w, r)
			})
			r := routerTo(t, s)
			dead.Store(true)
			eventually(t, "the checks fail", func() bool { return r.Status().Upstreams[0].Problem != "" })
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					for j := range 4 {
						if got := write(t, r, question(fmt.Sprint("stream ", i, ", question ", j))); got.err != nil || got.text != "Hello there" {
							t.Errorf("a request was refused: %v", got.err)
						}
					}
				})
			}
			wg.Wait()
			if answers := r.Status().Upstreams[0].Answers; answers != 64 {
				t.Errorf("%d answers are complete", answers)
			}
		})
	}
}

// A replica whose engine is dead answers at once, so that a balancer that looks for the shortest queue sends it nearly all requests until
// its checks take it out: Ray Serve for three of them.
func TestARequestIsSentAgainUntilABalancerHasTakenOutWhatIsDead(t *testing.T) {
	pauses, long := []time.Duration{0, time.Millisecond}, []time.Duration{time.Millisecond, time.Millisecond}
	for name, c := range map[string]struct {
		fail  func(w http.ResponseWriter)
		tries int // of a request that never succeeds
	}{
		"as Ray Serve says it":            {func(w http.ResponseWriter) { http.Error(w, "Internal Server Error", 500) }, 5},
		"as a web page of nginx":          {webPageOf(502, "Bad Gateway"), 5},
		"as JSON that no engine has":      {func(w http.ResponseWriter) { http.Error(w, `{"message":"no Route matched"}`, 503) }, 5},
		"the connection ends":             {func(w http.ResponseWriter) { raw(w, "") }, 5},
		"it ends after the headers":       {func(w http.ResponseWriter) { stream(w) }, 5},
		"it ends after the role":          {func(w http.ResponseWriter) { stream(w, roleChunk) }, 5},
		"an engine says that it failed":   {func(w http.ResponseWriter) { http.Error(w, `{"error":{"message":"EngineDeadError","code":500}}`, 500) }, 3},
		"an engine says so in its stream": {func(w http.ResponseWriter) { stream(w, `{"error":{"message":"EngineDeadError","code":500}}`) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			tries, dead := 0, 0
			s := newStandIn(t, func(w http.ResponseWriter, r *http.Request, body map[string]any) {
				if tries++; tries <= dead {
					c.fail(w)
					return
				}
				greets(w, r, body)
			})
			r := New(Options{Local: &localEngine{}, Servers: []Address{mustParse(s.URL)}, CheckEvery: time.Hour, Pauses: pauses, LongPauses: long})
			t.Cleanup(func() { r.Close() })
			eventually(t, "the model is listed", func() bool { return len(r.Status().Remote) == 1 })
			dead = c.tries - 1
			if got := write(t, r, question("Hi")); got.err != nil || got.text != "Hello there" || tries != c.tries {
				t.Errorf("after %d tries that failed: got %+v at try %d", dead, got, tries)
			}
			tries, dead = 0, 1000
			if got := write(t, r, question("Hi again")); got.err == nil || tries != c.tries {
				t.Errorf("for ever: got %+v after %d tries, want %d", got, tries, c.tries)
			}
		})
	}
}

func webPageOf(status int, text string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		io.WriteString(w, "<html><body>"+text)
	}
}

// The figures of docs/upstreams.md: Ray Serve takes out what failed three checks, each of which may take its whole timeout.
func TestTheDefaultPausesOutlastTheChecksOfTheRecipe(t *testing.T) {
	recipe, err := os.ReadFile("../../docs/upstreams.md")
	if err != nil {
		t.Fatal(err)
	}
	const checks = 3
	slowest := time.Duration(0)
	for _, name := range []string{"health_check_period_s", "health_check_timeout_s"} {
		found := regexp.MustCompile(name + `=(\d+)`).FindSubmatch(recipe)
		if found == nil {
			t.Fatalf("docs/upstreams.md has no %s", name)
		}
		seconds, _ := strconv.Atoi(string(found[1]))
		slowest += checks * time.Duration(seconds) * time.Second
	}
	r := New(Options{Local: &localEngine{}})
	defer r.Close()
	var waits time.Duration
	for _, pause := range r.pauses(&failure{mute: true}) {
		waits += pause
	}
	if waits < slowest {
		t.Errorf("a request is sent again for %v; the balancer of the recipe may need %v", waits, slowest)
	}
}

func TestADeadServerIsLeftOutAsSoonAsOneRequestFindsIt(t *testing.T) {
	a, b := newStandIn(t, greets), newStandIn(t, greets)
	var addresses []Address
	for _, s := range []*standIn{a, b} {
		addresses = append(addresses, mustParse(s.URL))
	}
	r := New(Options{Local: &localEngine{}, Servers: addresses, CheckEvery: time.Hour, Pauses: []time.Duration{0}})
	t.Cleanup(func() { r.Close() })
	eventually(t, "both have the model", func() bool {
		list := r.Status().Remote
		return len(list) == 1 && len(list[0].Upstream.Servers) == 2
	})
	a.CloseClientConnections()
	a.Close()
	r.servers[0].http.CloseIdleConnections()
	for i := range 6 {
		if got := write(t, r, question(fmt.Sprint("question ", i))); got.err != nil {
			t.Errorf("a request was lost: %v", got.err)
		}
	}
	if status := r.Status().Upstreams[0]; status.Problem == "" || status.Failed != 1 || b.count() != 6 {
		t.Errorf("the dead server is %+v, the other one answered %d", status, b.count())
	}
}

func TestARequestLeavesAServerThatIsFrozen(t *testing.T) {
	a, b := newStandIn(t, greets), newStandIn(t, greets)
	serve := a.Config.Handler
	var frozen atomic.Bool
	var asked atomic.Int64 // while it is frozen
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !frozen.Load() {
			serve.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodPost {
			asked.Add(1)
		}
		io.Copy(io.Discard, r.Body) // so that the end of the connection is noticed
		<-r.Context().Done()
	})
	r := New(Options{Local: &localEngine{}, Servers: []Address{mustParse(a.URL), mustParse(b.URL)}, CheckEvery: 20 * time.Millisecond, Patience: 5 * time.Second, Silence: hang, Stall: hang})
	t.Cleanup(func() { r.Close() })
	eventually(t, "both have the model", func() bool {
		list := r.Status().Remote
		return len(list) == 1 && len(list[0].Upstream.Servers) == 2
	})
	frozen.Store(true)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if got := write(t, r, question(fmt.Sprint("question ", i))); got.err != nil || got.text != "Hello there" {
				t.Errorf("a request was lost: %+v", got)
			}
		})
	}
	wg.Wait()
	if asked.Load() == 0 || b.count() != 4 {
		t.Errorf("the frozen server was asked %d times, and %d were answered by the other one", asked.Load(), b.count())
	}
}

func TestTheOnlyServerIsTriedThoughItIsTakenForDead(t *testing.T) {
	s := newStandIn(t, greets)
	r := New(Options{Local: &localEngine{}, Servers: []Address{mustParse(s.URL)}, CheckEvery: time.Hour})
	t.Cleanup(func() { r.Close() })
	eventually(t, "the model is listed", func() bool { return len(r.Status().Remote) == 1 })
	r.servers[0].bury(&failure{why: "it was gone a moment ago", unreached: true})
	for range maxFailures {
		r.servers[0].count(r.servers[0].begin(), &failure{broken: true}, &failure{broken: true}, false, true)
	}
	if r.servers[0].usable() {
		t.Fatal("it is taken for alive")
	}
	if got := write(t, r, question("Hi")); got.err != nil || got.text != "Hello there" || !r.servers[0].usable() {
		t.Errorf("got %+v; it is taken for alive: %v", got, r.servers[0].usable())
	}
	s.CloseClientConnections()
	s.Close()
	r.servers[0].http.CloseIdleConnections()
	r.servers[0].bury(&failure{why: "it is gone", unreached: true})
	if code, text := write(t, r, question("Hi")).code(); code != fault.CodeUpstream || !strings.Contains(text, "cannot be reached: connection refused; this is tried again") {
		t.Errorf("got %v %s", code, text)
	}
}

func TestARequestWaitsForAServerThatIsStartedAnew(t *testing.T) {
	for _, failures := range []int{1, 2} { // after the first one the server is taken for dead
		t.Run(fmt.Sprintf("it comes back after %d failures", failures), func(t *testing.T) {
			s := newStandIn(t, greets)
			address := s.Listener.Addr().String()
			again := &httptest.Server{Config: &http.Server{Handler: s.Config.Handler}}
			defer func() {
				if again.Listener != nil {
					again.Close()
				}
			}()
			log := retries(func(n int) {
				if n != failures {
					return
				}
				l, err := net.Listen("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				again.Listener = l
				again.Start()
			})
			r := New(Options{Local: &localEngine{}, Servers: []Address{mustParse(s.URL)}, CheckEvery: time.Hour, Pauses: []time.Duration{0, time.Millisecond, time.Millisecond}, Log: slog.New(log)})
			defer r.Close()
			eventually(t, "the model is listed", func() bool { return len(r.Status().Remote) == 1 })
			s.CloseClientConnections()
			s.Close()
			r.servers[0].http.CloseIdleConnections()
			if got := write(t, r, question("Hi")); got.err != nil || got.text != "Hello there" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// retryLog calls told with the number of each request that is sent again, before it is sent.
type retryLog struct {
	slog.Handler
	count *atomic.Int32
	told  func(n int)
}

func retries(told func(n int)) retryLog {
	return retryLog{slog.DiscardHandler, new(atomic.Int32), told}
}

func (l retryLog) Enabled(context.Context, slog.Level) bool { return true }

func (l retryLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "a request to another engine is sent again" {
		l.told(int(l.count.Add(1)))
	}
	return nil
}

func (l retryLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l retryLog) WithGroup(string) slog.Handler      { return l }

func TestNoticesNameAServerOnceAndNoPortOfThisMachine(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	notice := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}
	s := newStandIn(t, greets)
	address := mustParse(s.URL)
	s.Close()
	r := New(Options{Local: &localEngine{}, Servers: []Address{address}, CheckEvery: 5 * time.Millisecond, Notice: notice})
	defer r.Close()
	eventually(t, "a server that is not there at the start is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(lines) > 0
	})
	mu.Lock()
	if want := address.Host + " cannot be reached: connection refused"; lines[0] != want {
		t.Errorf("got %q, want %q", lines[0], want)
	}
	mu.Unlock()
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request, body map[string]any){
		"a reset": func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { reset(w) },
		"a cut":   func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { raw(w, "") },
	} {
		s := newStandIn(t, answer)
		_, text := write(t, routerTo(t, s), question("Hi")).code()
		if strings.Count(text, "127.0.0.1:") != 1 || strings.Contains(text, "->") || !strings.HasPrefix(text, s.Listener.Addr().String()+" broke off the connection: ") {
			t.Errorf("%s: got %s", name, text)
		}
	}
}
