package handlers_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/visitors"
	"m40-llm/infer/fault"
	"m40-llm/store"

	"nhooyr.io/websocket"
)

// openHouse returns a service that lets visitors in as it is set.
func openHouse(t *testing.T, db *store.Store, to visitors.Settings) *visitors.Service {
	t.Helper()
	house, err := visitors.New(t.Context(), visitors.Options{Store: db})
	if err == nil {
		err = house.Set(t.Context(), access.Local, to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return house
}

// visit opens the page as a browser without a login does, and returns the cookie.
func visit(t *testing.T, s *httptest.Server, header ...string) (cookie string) {
	t.Helper()
	got := handlerstest.Call(t, s, "GET", "/", "", append(header, "Accept", handlerstest.BrowserAccept)...)
	set, err := http.ParseSetCookie(got.Header.Get("Set-Cookie"))
	if err != nil || got.Status != http.StatusOK {
		t.Fatalf("got %d, %v", got.Status, got.Header)
	}
	if set.MaxAge != 0 || !set.Expires.IsZero() || !set.HttpOnly || set.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie does not end with the session of the browser: %v", set)
	}
	return set.Name + "=" + set.Value
}

// visited returns a server whose house is open, with all requests from a phone in the network.
func visited(t *testing.T, to visitors.Settings) (*httptest.Server, *visitors.Service) {
	t.Helper()
	db := handlerstest.OpenStore(t)
	house := openHouse(t, db, to)
	engine := &limitedEngine{Engine: &handlerstest.FakeEngine{}}
	engine.generate = house.Limited(engine.Engine.Generate)
	chats := live.New(engine, live.Options{Store: db})
	t.Cleanup(chats.Close)
	house.OnEnd(chats.Forget)
	s := handlerstest.Server(t, engine, func(c *handlers.Config) {
		c.Asks, c.People, c.Live, c.Visitors = gate.AsksOthers, handlerstest.PeopleOf(t, db, ""), chats, house
	})
	handlerstest.FromAddress(s, "192.168.1.20:5555", false)
	return s, house
}

func TestVisitors_SeeNothingOfPeopleAndSettings(t *testing.T) {
	s, _ := visited(t, visitors.Settings{Open: true, Answers: 30, Tokens: 20_000})
	header := []string{"Cookie", visit(t, s), "Origin", s.URL, "Accept", handlerstest.BrowserAccept}
	for path, says := range map[string]string{"/": "You are visiting", "/settings": "Your visit", "/models": "Only the owner of this server downloads"} {
		got := handlerstest.Call(t, s, "GET", path, "", header...)
		if got.Status != http.StatusOK || !strings.Contains(got.Body, says) {
			t.Errorf("%s got %d without %q", path, got.Status, says)
		}
		for _, hidden := range []string{`href="/people`, `<a href="/presets"`, `<a href="/activity"`, "API access", "Storage</h2>", "Open house"} {
			if strings.Contains(got.Body, hidden) {
				t.Errorf("%s shows %q", path, hidden)
			}
		}
	}
	for _, tc := range []struct{ path, body, kind string }{
		{"/presets", `{"name":"Mine","settings":{}}`, "application/json"},
		{"/presets/import", `{"format":"m40-llm-presets-1","presets":[]}`, "application/json"},
		{"/blind", `{"text":"hi","max_tokens":9,"first":{"preset":"precise"},"second":{"preset":"creative"}}`, "application/json"},
		{"/blind/reset", "", "application/x-www-form-urlencoded"},
		{"/settings/visitors", "open=true&answers=1000&tokens=1000", "application/x-www-form-urlencoded"},
		{"/models/pull", "name=x", "application/x-www-form-urlencoded"},
	} {
		got := handlerstest.Post(t, s, tc.path, tc.body, append(header[:4:4], "Content-Type", tc.kind)...)
		if got.Status != http.StatusForbidden {
			t.Errorf("%s got %d: %.200s", tc.path, got.Status, got.Body)
		}
	}
}

// The limits of a day are shown before they are reached, and a new cookie does not help beyond them.
func TestVisitors_HaveADay(t *testing.T) {
	s, _ := visited(t, visitors.Settings{Open: true, Answers: 1, Tokens: 100})
	for i, want := range []string{"1 of 1 answer and 100 of 100 tokens left today", "0 of 1 answer"} {
		cookie := visit(t, s)
		page := handlerstest.Call(t, s, "GET", "/", "", "Cookie", cookie, "Accept", handlerstest.BrowserAccept).Body
		if !strings.Contains(page, want) {
			t.Fatalf("visit %d does not say %q", i, want)
		}
		c := handlerstest.DialSocket(t, s, func(o *websocket.DialOptions) { o.HTTPHeader = http.Header{"Cookie": {cookie}, "Origin": {s.URL}} })
		c.Do("send", map[string]any{"text": "hi", "settings": map[string]any{}})
		c.Until("the answer", c.Ended)
		if failure := c.Last().End.Error; (failure != nil) != (i == 1) || failure != nil && (failure.Code != fault.CodeDayUsed || !strings.Contains(failure.Message, "used up; there are new ones in")) {
			t.Errorf("visit %d: the answer ended with %+v", i, failure)
		}
	}
}

// A visitor's pictures are in memory as long as their chats, so there is a limit to their bytes.
func TestVisitors_UploadPicturesUpToTheirDay(t *testing.T) {
	s, house := visited(t, visitors.Settings{Open: true, Answers: 30, Tokens: 20_000})
	cookie := visit(t, s)
	_, value, _ := strings.Cut(cookie, "=")
	who, _, err := house.Enter(value, netip.MustParseAddr("192.168.1.20"), false)
	if err != nil {
		t.Fatal(err)
	}
	file := pngOf(t, 5, 3)
	post := func() handlerstest.Response {
		return handlerstest.Post(t, s, "/pictures", file, "Origin", s.URL, "Accept", "application/json", "Cookie", cookie)
	}
	if got := post(); got.Status != http.StatusCreated {
		t.Fatalf("the first picture got %d: %s", got.Status, got.Body)
	}
	if err := house.Picture(who, 100_000_000-2*len(file)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{http.StatusCreated, http.StatusTooManyRequests} {
		if got := post(); got.Status != want || want == http.StatusTooManyRequests && !strings.Contains(got.Body, "your 100 MB for pictures of today have 0 B left") {
			t.Errorf("picture %d after these got %d: %s", i+1, got.Status, got.Body)
		}
	}
}

func TestVisitors_EndAtOnceWhenTheHouseIsClosed(t *testing.T) {
	s, house := visited(t, visitors.Settings{Open: true, Answers: 30, Tokens: 20_000})
	cookie := visit(t, s)
	c := handlerstest.DialSocket(t, s, func(o *websocket.DialOptions) { o.HTTPHeader = http.Header{"Cookie": {cookie}, "Origin": {s.URL}} })
	c.Do("send", map[string]any{"text": "hi", "settings": map[string]any{}})
	c.Until("the answer", c.Ended)
	if err := house.Set(t.Context(), access.Local, visitors.Settings{Answers: 30, Tokens: 20_000}); err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := c.Conn.Read(context.Background()); err != nil {
			break // else the test hangs
		}
	}
	header := []string{"Cookie", cookie, "Accept", handlerstest.BrowserAccept}
	if got := handlerstest.Call(t, s, "GET", "/c/"+c.Chat, "", header...); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/login" {
		t.Errorf("after the house was closed the page got %d", got.Status)
	}
	if got := handlerstest.Call(t, s, "HEAD", "/rail", "", "Cookie", cookie); got.Status != http.StatusUnauthorized {
		t.Errorf("after the house was closed the script got %d", got.Status)
	}
	if err := house.Set(t.Context(), access.Local, visitors.Settings{Open: true, Answers: 30, Tokens: 20_000}); err != nil {
		t.Fatal(err)
	}
	again := []string{"Cookie", visit(t, s), "Accept", handlerstest.BrowserAccept}
	if got := handlerstest.Call(t, s, "GET", "/c/"+c.Chat, "", again...); got.Status != http.StatusNotFound {
		t.Errorf("the chat of the visit that ended got %d", got.Status)
	}
}
