package handlers_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
)

// BenchmarkShare_TimeOfWhatIsNotShared reports the median times in nanoseconds in which the server says of a
// link that never was, of one that was ended and of one that has expired that there is nothing under it. The
// requests alternate and need no network.
func BenchmarkShare_TimeOfWhatIsNotShared(b *testing.B) {
	const tries = 10_000
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(b, engine)
	c, err := chats.Start(b.Context(), access.Local, live.Question{Text: "What is rain?", Settings: setting.Default()}, false)
	if err != nil {
		b.Fatal(err)
	}
	answer := engine.Next(b)
	share := func(life time.Duration) links.Link {
		made, err := chats.Links.Add(b.Context(), access.Local, c.ID(), links.Wanted{Live: true, Life: life})
		if err != nil {
			b.Fatal(err)
		}
		return made
	}
	ended, expired := share(0), share(time.Millisecond)
	share(0) // one that works
	if err := chats.Links.End(b.Context(), access.Local, c.ID(), ended.ID); err != nil {
		b.Fatal(err)
	}
	answer.Finish()
	time.Sleep(5 * time.Millisecond)
	tokens := []string{strings.Repeat("q", 26), ended.Token, expired.Token}
	times := make([][]time.Duration, len(tokens))
	for i := range tries * len(tokens) {
		kind := i % len(tokens)
		r := httptest.NewRequest(http.MethodGet, "/s/"+tokens[kind], nil)
		r.Host, r.RemoteAddr = strings.TrimPrefix(server.URL, "http://"), "127.0.0.1:1"
		w := httptest.NewRecorder()
		start := time.Now()
		server.Config.Handler.ServeHTTP(w, r)
		times[kind] = append(times[kind], time.Since(start))
		if w.Code != http.StatusNotFound {
			b.Fatalf("got %d: %s", w.Code, w.Body)
		}
	}
	b.ReportMetric(0, "ns/op")
	for kind, name := range []string{"never-was-ns", "ended-ns", "expired-ns"} {
		slices.Sort(times[kind])
		b.ReportMetric(float64(times[kind][tries/2]), name)
	}
}
