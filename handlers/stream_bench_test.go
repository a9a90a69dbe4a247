package handlers_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/store"
)

// BenchmarkSocket_64Chats streams 64 chats of 30 tokens a second each through database
// and websockets, and reports how long a token takes from the engine to the page and how
// far apart pieces of text arrive; then again with a page that has stopped reading.
func BenchmarkSocket_64Chats(b *testing.B) {
	for _, c := range []struct {
		name    string
		stalled bool
	}{{"all read", false}, {"one more that does not read", true}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				stream64(b, c.stalled)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func stream64(b *testing.B, withStalled bool) {
	const chats, perSecond, tokens = 64, 30, 300
	db, err := store.Open(b.Context(), store.Options{Path: filepath.Join(b.TempDir(), "data", "chats.db"), Ballast: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	engine, log := handlerstest.NewScript(), slog.New(slog.DiscardHandler)
	service := live.New(engine, live.Options{Store: db, Log: log})
	defer service.Close()
	server := httptest.NewServer(handlers.New(handlers.Config{Engine: engine, Live: service, Logger: log}))
	defer server.Close()

	clients, answers := make([]*handlerstest.SocketClient, chats), make([]*handlerstest.ScriptedAnswer, chats)
	for i := range clients {
		clients[i] = handlerstest.DialSocket(b, server)
		clients[i].Do("send", map[string]any{"text": fmt.Sprint("chat ", i)})
		clients[i].Until("the chat", func() bool { return clients[i].Chat != "" })
		answers[i] = engine.Next(b)
	}
	if withStalled {
		stalled := handlerstest.DialSocket(b, server, smallBuffers(b))
		stalled.Do("open", map[string]any{"chat": clients[0].Chat})
	}

	// The chat that nobody reads on one page is large, so that no buffer takes all of it.
	piece := func(i int) string {
		if i == 0 {
			return strings.Repeat("word and ", 1000)
		}
		return "word and "
	}
	var mu sync.Mutex
	var delays, gaps []time.Duration
	var all sync.WaitGroup
	begin := time.Now().Add(100 * time.Millisecond)
	for i := range clients {
		sent, piece := make(chan time.Time, tokens), piece(i)
		all.Go(func() { // the engine
			for n := range tokens {
				at := begin.Add(time.Duration(n)*time.Second/perSecond + time.Duration(i)*time.Second/perSecond/chats)
				time.Sleep(time.Until(at))
				sent <- time.Now()
				answers[i].Write(piece)
			}
			answers[i].Finish()
		})
		all.Go(func() { // the page
			c := clients[i]
			var last time.Time
			var delay, gap []time.Duration
			for seen := 0; seen < tokens; {
				if _, err := c.Read(); err != nil {
					b.Errorf("chat %d: %v", i, err)
					return
				}
				now := time.Now()
				a := c.Last()
				if a == nil || len(a.Text)/len(piece) == seen {
					continue
				}
				for ; seen < len(a.Text)/len(piece); seen++ {
					delay = append(delay, now.Sub(<-sent))
				}
				if !last.IsZero() {
					gap = append(gap, now.Sub(last))
				}
				last = now
			}
			if i == 0 {
				return // each frame is a thousand times the others'
			}
			mu.Lock()
			defer mu.Unlock()
			delays, gaps = append(delays, delay...), append(gaps, gap...)
		})
	}
	all.Wait()
	for i := range clients {
		clients[i].Until("the end", clients[i].Ended)
	}
	report := func(name string, list []time.Duration) {
		slices.Sort(list)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		b.ReportMetric(ms(list[len(list)/2]), name+"-p50-ms")
		b.ReportMetric(ms(list[len(list)*99/100]), name+"-p99-ms")
		b.ReportMetric(ms(list[len(list)-1]), name+"-max-ms")
	}
	report("delay", delays)
	report("gap", gaps)
}
