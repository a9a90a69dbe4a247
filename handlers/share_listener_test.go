package handlers_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/handlers/share"
	"m40-llm/store"
)

// lan is a server of loopback, and the address at which a network would reach its shared chats.
type lan struct {
	chats   *live.Service
	routes  []string // of the server itself
	address netip.AddrPort
	log     *strings.Builder
	engine  *handlerstest.Script
}

// serveLAN starts a server that shares chats on 127.0.0.2, which stands for a network.
func serveLAN(t *testing.T) *lan {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "data", "chats.db"), Ballast: -1, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	l := &lan{engine: handlerstest.NewScript(), log: &strings.Builder{}}
	logger := slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l.chats = live.New(l.engine, live.Options{Log: logger, Store: db})
	t.Cleanup(l.chats.Close)
	config := handlers.Config{Engine: l.engine, Live: l.chats, Logger: slog.New(slog.DiscardHandler)}
	server := httptest.NewUnstartedServer(nil)
	port := server.Listener.Addr().(*net.TCPAddr).AddrPort().Port()
	l.address = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port)
	config.Reach = share.NewReach(share.ReachOptions{
		Server:    netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port),
		Addresses: func() ([]netip.Addr, error) { return []netip.Addr{l.address.Addr()}, nil },
		Serve: func(listener net.Listener) func() {
			s := handlers.NewServer(handlers.NewShared(config), slog.New(slog.DiscardHandler))
			go s.Serve(listener)
			return func() { s.Close() }
		},
		Log: slog.New(slog.DiscardHandler),
	})
	echo := handlers.New(config)
	for _, route := range echo.Routes() {
		l.routes = append(l.routes, route.Method+" "+route.Path)
	}
	server.Config.Handler = echo
	server.Start()
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		config.Reach.Run(ctx, l.chats)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return l
}

// ask sends a request over the network.
func (l *lan) ask(method, path string) (status int, header http.Header, body string, err error) {
	r, err := http.NewRequest(method, "http://"+l.address.String()+path, nil)
	if err != nil {
		return 0, nil, "", err
	}
	if method != http.MethodGet {
		r.Header.Set("Origin", "http://"+l.address.String()) // as a page of this listener would
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(data), err
}

// isOpen reports whether the listener takes connections.
func (l *lan) isOpen() bool {
	conn, err := net.Dial("tcp", l.address.String())
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// until waits for the listener to be open, or closed.
func (l *lan) until(t *testing.T, open bool) {
	t.Helper()
	for deadline := time.Now().Add(handlerstest.Hang); l.isOpen() != open; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the listener: open is not %t", open)
		}
	}
}

// chat makes a chat with one answer, and returns it and its link.
func (l *lan) chat(t *testing.T, n links.Wanted) (id string, made links.Link) {
	t.Helper()
	c, err := l.chats.Start(t.Context(), access.Local, live.Question{Text: "What is rain?", Settings: setting.Default()}, false)
	if err != nil {
		t.Fatal(err)
	}
	a := l.engine.Next(t)
	a.Write("Water that falls.")
	a.Finish()
	for {
		if made, err = l.chats.Links.Add(t.Context(), access.Local, c.ID(), n); err == nil {
			return c.ID(), made
		}
		time.Sleep(time.Millisecond) // the end of the answer is being stored
	}
}

func TestShareListener_IsOpenWhileSomethingIsShared(t *testing.T) {
	l := serveLAN(t)
	l.until(t, false)
	one, first := l.chat(t, links.Wanted{})
	l.until(t, true)
	two, second := l.chat(t, links.Wanted{})
	if err := l.chats.Links.End(t.Context(), access.Local, one, first.ID); err != nil {
		t.Fatal(err)
	}
	l.until(t, true)
	if status, _, body, err := l.ask("GET", "/s/"+second.Token); err != nil || status != 200 || !strings.Contains(body, "Water that falls.") {
		t.Errorf("the other link answers %d, %v", status, err)
	}
	if err := l.chats.Links.End(t.Context(), access.Local, two, second.ID); err != nil {
		t.Fatal(err)
	}
	l.until(t, false)
	_, third := l.chat(t, links.Wanted{Life: 3 * time.Second})
	for !l.isOpen() && time.Now().Before(third.Expires) {
		time.Sleep(time.Millisecond)
	}
	l.until(t, false) // it expires
}

func TestShareListener_HasNothingButTheSharedChat(t *testing.T) {
	l := serveLAN(t)
	id, made := l.chat(t, links.Wanted{Live: true, Settings: true})
	l.until(t, true)
	asked := 0
	for _, route := range l.routes {
		method, path, _ := strings.Cut(route, " ")
		for _, chat := range []string{id, "nowhere"} {
			path := strings.NewReplacer(":id", chat, ":answer", "2", ":token", "wrong", ":index", "0", "*", "x").Replace(path)
			status, _, body, err := l.ask(method, path)
			if err != nil {
				t.Fatal(route, err)
			}
			asked++
			if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s answers %d: %.200s", method, path, status, body)
			}
			if strings.Contains(body, "rain") || strings.Contains(body, "Water") {
				t.Errorf("%s %s shows the chat", method, path)
			}
		}
	}
	if asked < 100 {
		t.Fatalf("only %d requests", asked)
	}
	status, header, body, err := l.ask("GET", "/s/"+made.Token)
	if err != nil || status != http.StatusOK || !strings.Contains(body, "Water that falls.") || !strings.Contains(body, "seed ") {
		t.Errorf("the link answers %d, %v: %s", status, err, body)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex, nofollow, noarchive"} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, hidden := range []string{id, "href=\"/c/", "href=\"/\"", "/ws"} {
		if strings.Contains(body, hidden) {
			t.Errorf("the page has %q", hidden)
		}
	}
	for _, action := range regexp.MustCompile(`action="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		if action[1] != "/s/"+made.Token+"/write" {
			t.Errorf("the page has a form for %q", action[1])
		}
	}
}

func TestShare_WhatIsNotSharedIsAlwaysTheSame(t *testing.T) {
	l := serveLAN(t)
	_, open := l.chat(t, links.Wanted{}) // keeps the listener open
	l.until(t, true)
	id, ended := l.chat(t, links.Wanted{})
	if err := l.chats.Links.End(t.Context(), access.Local, id, ended.ID); err != nil {
		t.Fatal(err)
	}
	_, expired := l.chat(t, links.Wanted{Life: time.Millisecond})
	trashed, gone := l.chat(t, links.Wanted{})
	if err := l.chats.Delete(t.Context(), access.Local, trashed); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	want := ""
	for name, token := range map[string]string{
		"missing": strings.Repeat("q", 26), "ended": ended.Token, "expired": expired.Token, "in the trash": gone.Token,
		"short": open.Token[:25], "long": open.Token + "a", "upper case": strings.ToUpper(open.Token), "hostile": url.PathEscape("' OR 1=1 --"),
	} {
		for _, path := range []string{"/s/" + token, "/s/" + token + "/events", "/s/" + token + "?grow=1"} {
			status, header, body, err := l.ask("GET", path)
			if err != nil {
				t.Fatal(err)
			}
			header.Del("Date")
			header.Del("X-Request-Id")
			got := fmt.Sprint(status, header, body)
			if want == "" {
				want = got
			}
			if status != http.StatusNotFound || got != want {
				t.Errorf("%s: %s answers\n%s\nothers answer\n%s", name, path, got, want)
			}
		}
	}
}
