package handlers_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
	"m40-llm/store"
)

// readAlong follows a link, with names and values of headers, and sends on every frame that it gets, until its context ends.
func readAlong(ctx context.Context, t testing.TB, address string, header ...string) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{}}
	response, err := client.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("following: %v, %v", response, err)
	}
	frames := make(chan string, 1<<12)
	go func() {
		defer client.CloseIdleConnections()
		defer response.Body.Close()
		defer close(frames)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				frames <- data
			}
		}
	}()
	return frames
}

func TestShare_FollowersGetTheSameFramesAndOneForManyTokens(t *testing.T) {
	const followers, tokens = 20, 600
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	c, err := chats.Start(t.Context(), access.Local, live.Question{Text: "What is rain?", Settings: setting.Default()}, false)
	if err != nil {
		t.Fatal(err)
	}
	answer := engine.Next(t)
	made, err := chats.Links.Add(t.Context(), access.Local, c.ID(), links.Wanted{Live: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	streams := make([]<-chan string, followers)
	for i := range streams {
		streams[i] = readAlong(ctx, t, server.URL+"/s/"+made.Token)
		if first := <-streams[i]; !strings.Contains(first, `"turns"`) {
			t.Fatalf("follower %d begins with %s", i, first)
		}
	}
	for i := range tokens {
		answer.Write("drop ")
		if i%100 == 0 {
			time.Sleep(60 * time.Millisecond) // so that some are sent
		}
	}
	answer.Finish()
	var frames [followers][]string
	for i, stream := range streams {
		for frame := range stream {
			if frames[i] = append(frames[i], frame); strings.Contains(frame, `"type":"turn"`) {
				break
			}
		}
		if !slices.Equal(frames[i], frames[0]) {
			t.Errorf("follower %d is sent %d frames that differ from the %d of the first", i, len(frames[i]), len(frames[0]))
		}
	}
	t.Logf("%d tokens came in %d frames to each of %d followers, %.2f a token", tokens, len(frames[0]), followers, float64(len(frames[0]))/tokens)
	if n := len(frames[0]); n > tokens/2 {
		t.Errorf("%d tokens came in %d frames, want at most half as many", tokens, n)
	}
	list, err := chats.Links.List(t.Context(), access.Local, c.ID())
	if err != nil || list[0].Followers != followers {
		t.Errorf("%+v follow, %v; want %d", list, err, followers)
	}
}

// BenchmarkShare_20Followers reports the speed of the Guide's answers while 20 devices follow them as
// a part of the speed while nobody does, in runs that alternate, and the frames that a token takes to
// each. The devices are in this process, so what they do counts too.
func BenchmarkShare_20Followers(b *testing.B) {
	const followers, tokens = 20, 400
	engine, err := engine.Open(engine.Options{
		Catalog:    hub.New(hub.Options{Builtin: map[string][]byte{"guide": guide.Model}}),
		OpenDevice: func(*gguf.File) (device.Device, error) { return cpu.Open(runtime.NumCPU()) },
		Model:      "guide",
	})
	if err != nil {
		b.Fatal(err)
	}
	defer engine.Close()
	db, err := store.Open(b.Context(), store.Options{Path: filepath.Join(b.TempDir(), "data", "chats.db"), Ballast: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	chats := live.New(engine, live.Options{Store: db, Log: log})
	defer chats.Close()
	server := httptest.NewServer(handlers.New(handlers.Config{Engine: engine, Live: chats, Logger: log}))
	defer server.Close()

	settings := setting.Default()
	settings.Temperature, settings.TopK, settings.TopP, settings.MinP, settings.Seed = 20, 0, 1, 0, 1 // hardly any answer ends before
	ask := func(chat *live.Chat, tokens int) *live.Answer {
		settings.Seed, settings.MaxTokens = settings.Seed+1, tokens
		if err := chat.Send(b.Context(), access.Local, live.Question{Text: "Go on.", Settings: settings}); err != nil {
			b.Fatal(err)
		}
		sub, snapshot, err := chat.Subscribe(b.Context(), access.Local, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer sub.Close()
		last := snapshot.Messages[len(snapshot.Messages)-1].Answer
		for last.State.Running() {
			<-sub.Ready()
			events, err := sub.Take()
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range events {
				if e.Type == live.EventEnd {
					last = e.Message.Answer
				}
			}
		}
		return last
	}
	write := func(followers int) (rate, frames float64) {
		chat, err := chats.Create(b.Context(), access.Local, false)
		if err != nil {
			b.Fatal(err)
		}
		ask(chat, 1) // only a chat with a message can be shared
		made, err := chats.Links.Add(b.Context(), access.Local, chat.ID(), links.Wanted{Live: true})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		var streams []<-chan string
		for range followers {
			streams = append(streams, readAlong(ctx, b, server.URL+"/s/"+made.Token))
		}
		last := ask(chat, tokens)
		n := last.Usage.CompletionTokens
		for _, stream := range streams {
			for frame := range stream {
				if frames++; strings.Contains(frame, `"type":"turn"`) {
					break
				}
			}
		}
		return float64(n-1) / last.Timings.Decode.Seconds(), frames / float64(max(1, followers*n))
	}
	write(0) // warms up
	var alone, followed, ratios, perToken []float64
	for b.Loop() {
		without, _ := write(0)
		with, frames := write(followers)
		alone, followed, ratios, perToken = append(alone, without), append(followed, with), append(ratios, with/without), append(perToken, frames)
	}
	median := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(alone), "alone-tok/s")
	b.ReportMetric(median(followed), "followed-tok/s")
	b.ReportMetric(100*median(ratios), "%-of-alone")
	b.ReportMetric(median(perToken), "frames/token")
}
