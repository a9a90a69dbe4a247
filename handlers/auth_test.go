package handlers_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nhooyr.io/websocket"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/people"
	"m40-llm/store"
)

func lockedServer(t *testing.T) *httptest.Server {
	return handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { handlerstest.Lock(t, c, "open sesame") })
}

func TestKey_EveryRouteButThePublicOnes(t *testing.T) {
	s := lockedServer(t)
	for _, route := range handlers.New(handlerstest.TestConfig(t, &handlerstest.FakeEngine{})).Routes() {
		path := strings.NewReplacer(":id", "1", ":token", "abc", "*", "x").Replace(route.Path)
		got := handlerstest.Call(t, s, route.Method, path, "", "Origin", s.URL)
		if route.Method == http.MethodPost && (route.Path == "/login" || route.Path == "/logout") {
			continue // refuses the empty key itself; leads to the login
		}
		refused := got.Status == http.StatusUnauthorized || got.Status == http.StatusSeeOther && got.Header.Get("Location") == "/login"
		if refused == handlers.PublicRoutes[route.Path] {
			t.Errorf("%s %s: got %d, public is %t", route.Method, route.Path, got.Status, handlers.PublicRoutes[route.Path])
		}
	}
}

func TestKey_Bearer(t *testing.T) {
	s := lockedServer(t)
	for _, tc := range []struct {
		name   string
		header []string
		status int
		code   string
	}{
		{"the right key", []string{"Authorization", "Bearer open sesame"}, 200, ""},
		{"the scheme's case does not matter", []string{"Authorization", "bearer open sesame"}, 200, ""},
		{"no key", nil, 401, "missing_api_key"},
		{"a wrong key", []string{"Authorization", "Bearer open"}, 401, "invalid_api_key"},
		{"the right key as X-Api-Key", []string{"X-Api-Key", "open sesame"}, 200, ""},
		{"a wrong key as X-Api-Key", []string{"X-Api-Key", "open"}, 401, "invalid_api_key"},
		{"an empty X-Api-Key", []string{"X-Api-Key", ""}, 401, "invalid_api_key"},
		{"a right token and a wrong X-Api-Key", []string{"X-Api-Key", "x", "Authorization", "Bearer open sesame"}, 400, "several_credentials"},
		{"the right key in both", []string{"X-Api-Key", "open sesame", "Authorization", "Bearer open sesame"}, 200, ""},
		{"the right key twice in one header", []string{"X-Api-Key", "open sesame", "X-Api-Key", " open sesame "}, 200, ""},
		{"a wrong key in both", []string{"X-Api-Key", "open", "Authorization", "Bearer open"}, 401, "invalid_api_key"},
		{"two X-Api-Keys, one right", []string{"X-Api-Key", "open sesame", "X-Api-Key", "x"}, 400, "several_credentials"},
		{"another scheme", []string{"Authorization", "Basic b3BlbiBzZXNhbWU="}, 401, "invalid_api_key"},
		{"two keys, one right", []string{"Authorization", "Bearer open sesame", "Authorization", "Bearer x"}, 400, "several_credentials"},
		{"the key in another header", []string{"Api-Key", "open sesame"}, 401, "missing_api_key"},
	} {
		got := handlerstest.Call(t, s, "GET", "/v1/models", "", tc.header...)
		if got.Status != tc.status || tc.code != "" && parseError(t, got).Code != tc.code {
			t.Errorf("%s: got %d: %s", tc.name, got.Status, got.Body)
		}
		if got.Status == 401 && (parseError(t, got).Type != "authentication_error" || got.Header.Get("WWW-Authenticate") != "Bearer") {
			t.Errorf("%s: got %v: %s", tc.name, got.Header, got.Body)
		}
	}
	t.Run("without a key any bearer token is welcome", func(t *testing.T) {
		if got := handlerstest.Call(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "GET", "/v1/models", "", "Authorization", "Bearer sk-anything"); got.Status != 200 {
			t.Errorf("got %d", got.Status)
		}
	})
}

func submit(t *testing.T, s *httptest.Server, key string) handlerstest.Response {
	form := url.Values{"key": {key}}.Encode()
	return handlerstest.Post(t, s, "/login", form, "Content-Type", "application/x-www-form-urlencoded", "Origin", s.URL)
}

func TestLogin(t *testing.T) {
	db := handlerstest.OpenStore(t)
	s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { c.People = handlerstest.PeopleOf(t, db, "open sesame") })
	if got := handlerstest.Post(t, s, "/login?key=open+sesame", "", "Content-Type", "application/x-www-form-urlencoded", "Origin", s.URL); got.Status == http.StatusSeeOther {
		t.Error("a key in the URL logs in")
	}
	if got := handlerstest.Call(t, s, "GET", "/login", ""); got.Status != 200 || !strings.Contains(got.Body, `name="key"`) {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	if got := submit(t, s, "wrong"); got.Status != 401 || got.Header.Get("Set-Cookie") != "" || !strings.Contains(got.Body, "This is neither a code that is valid now nor an API key.") {
		t.Errorf("a wrong key got %d, %v: %s", got.Status, got.Header, got.Body)
	}
	got := submit(t, s, "open sesame")
	cookies, err := http.ParseSetCookie(got.Header.Get("Set-Cookie"))
	if err != nil || got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/" {
		t.Fatalf("got %d, %v", got.Status, got.Header)
	}
	if !cookies.HttpOnly || cookies.SameSite != http.SameSiteStrictMode || cookies.Path != "/" || !strings.HasPrefix(cookies.Name, "m40_") {
		t.Errorf("the cookie is %+v", cookies)
	}
	if strings.Contains(cookies.Value, "sesame") {
		t.Errorf("the cookie holds the key: %s", cookies.Value)
	}
	session := cookies.Name + "=" + cookies.Value
	for name, tc := range map[string]struct {
		header []string
		status int
	}{
		"the cookie opens the routes":         {[]string{"Cookie", session}, 200},
		"a changed cookie does not":           {[]string{"Cookie", session + "0"}, 401},
		"an empty cookie does not":            {[]string{"Cookie", cookies.Name + "="}, 401},
		"a key beside it is one too many":     {[]string{"Cookie", session, "Authorization", "Bearer open sesame"}, 400},
		"the cookie twice is one too many":    {[]string{"Cookie", session + "; " + session}, 400},
		"another site cannot use the session": {[]string{"Cookie", session, "Origin", "http://evil.example"}, 403},
	} {
		if got := handlerstest.Call(t, s, "GET", "/v1/models", "", tc.header...); got.Status != tc.status {
			t.Errorf("%s: got %d", name, got.Status)
		}
	}
	other := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { c.People = handlerstest.PeopleOf(t, db, "new key") })
	if got := handlerstest.Call(t, other, "GET", "/v1/models", "", "Cookie", session); got.Status != 401 {
		t.Errorf("a session outlives its key: %d", got.Status)
	}
}

func TestKey_WrongOnesDoNotLockTheRightOneOut(t *testing.T) {
	s := lockedServer(t)
	served, statuses := 0, map[int]int{}
	for range 40 {
		statuses[handlerstest.Call(t, s, "GET", "/v1/models", "", "Authorization", "Bearer wrong").Status]++
		if handlerstest.Call(t, s, "GET", "/v1/models", "", "Authorization", "Bearer open sesame").Status == 200 {
			served++
		}
	}
	if served != 40 || statuses[401]+statuses[429] != 40 || statuses[429] < 30 {
		t.Errorf("%d of 40 right keys are served beside 40 wrong ones, which got %v", served, statuses)
	}
	if got := submit(t, s, "open sesame"); got.Status != http.StatusSeeOther {
		t.Errorf("the right key cannot log in: got %d", got.Status)
	}
}

// The pause that a client is told is one number, in the header and in the text.
func TestKey_TooManyWrongOnes(t *testing.T) {
	s := lockedServer(t)
	for range 5 {
		if got := submit(t, s, "wrong"); got.Status != 401 || got.Header.Get("Retry-After") != "" {
			t.Fatalf("got %d, Retry-After %q", got.Status, got.Header.Get("Retry-After"))
		}
	}
	for name, try := range map[string]func() handlerstest.Response{
		"a bearer token": func() handlerstest.Response {
			return handlerstest.Call(t, s, "GET", "/v1/models", "", "Authorization", "Bearer wrong")
		},
		"the login form": func() handlerstest.Response { return submit(t, s, "wrong") },
	} {
		got := try()
		for tries := 0; got.Status == 401 && tries < 10; tries++ { // on a slow machine one more is allowed meanwhile
			got = try()
		}
		seconds := got.Header.Get("Retry-After")
		if name == "a bearer token" && got.Header.Get("X-Should-Retry") != "false" {
			t.Error("a program may think that asking again helps a wrong key")
		}
		if got.Status != 429 || seconds == "" || !strings.Contains(got.Body, "wait "+seconds+" seconds") {
			t.Errorf("%s: got %d, Retry-After %q: %s", name, got.Status, seconds, got.Body)
		}
	}
	if got := submit(t, s, "another"); got.Status != 401 {
		t.Errorf("another wrong key of the same address got %d", got.Status)
	}
}

func TestLogin_TheCookieIsSecureWhereTheBrowserSpeaksHTTPS(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) {
		handlerstest.Lock(t, c, "open sesame")
		c.AllowHosts = []string{"llm.example:443"}
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	form := url.Values{"key": {"open sesame"}}.Encode()
	for _, tc := range []struct {
		name   string
		header []string
		secure bool
	}{
		{"straight to the server", []string{"Origin", s.URL}, false},
		{"a proxy with a name of its own", []string{"Host", "llm.example", "Origin", "https://llm.example"}, true},
		{"a proxy that says https", []string{"Host", "localhost", "Origin", "https://localhost", "X-Forwarded-Proto", "https"}, true},
		{"a proxy that says http", []string{"Host", "localhost", "Origin", "http://localhost", "X-Forwarded-Proto", "http"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := handlerstest.Post(t, s, "/login", form, append(tc.header, "Content-Type", "application/x-www-form-urlencoded")...)
			cookie, err := http.ParseSetCookie(got.Header.Get("Set-Cookie"))
			if err != nil {
				t.Fatalf("got %d, %v", got.Status, err)
			}
			if cookie.Secure != tc.secure || strings.HasPrefix(cookie.Name, "__Host-") != tc.secure {
				t.Errorf("the cookie is %+v", cookie)
			}
			again := handlerstest.Call(t, s, "GET", "/presets", "", append(tc.header, "Cookie", cookie.Name+"="+cookie.Value)...)
			if again.Status != 200 {
				t.Errorf("with the cookie the page is answered with %d", again.Status)
			}
		})
	}
}

// Where only others are asked, this machine is what nobody else can pretend to be.
func TestOwner_IsWhoSitsAtThisMachine(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*handlers.Config)
		header  []string
		refused bool
	}{
		{"a program on this machine", nil, nil, false},
		{"under another loopback name", nil, []string{"Host", "m40.localhost"}, false},
		{"a key that is nobody's changes nothing", nil, []string{"Authorization", "Bearer sk-anything"}, false},
		{"through the name of the machine", func(c *handlers.Config) { c.AllowHosts = []string{"box.local:80"} }, []string{"Host", "box.local"}, true},
		{"a proxy that says for whom it asks", nil, []string{"X-Forwarded-For", "192.0.2.1"}, true},
		{"a proxy that says so as the standard has it", nil, []string{"Forwarded", "for=192.0.2.1"}, true},
		{"a proxy that says no more than that it is one", nil, []string{"Via", "1.1 proxy"}, true},
		{"where a proxy is trusted, any program may be it", func(c *handlers.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) {
				c.Asks, c.People = gate.AsksOthers, handlerstest.PeopleOf(t, handlerstest.OpenStore(t), "")
				if tc.change != nil {
					tc.change(c)
				}
			})
			want := http.StatusOK
			if tc.refused {
				want = http.StatusUnauthorized
			}
			if got := handlerstest.Call(t, s, "GET", "/v1/models", "", tc.header...); got.Status != want {
				t.Errorf("got %d, want %d", got.Status, want)
			}
		})
	}
}

// opened returns a server that other machines reach, its people, and a header that asks it as one
// of them: from this machine, but through a proxy.
func opened(t *testing.T, engine handlers.Engine) (s *httptest.Server, known *people.Service, elsewhere []string) {
	t.Helper()
	db := handlerstest.OpenStore(t)
	known = handlerstest.PeopleOf(t, db, "")
	chats := live.New(engine, live.Options{Store: db})
	t.Cleanup(chats.Close)
	s = handlerstest.Server(t, engine, func(c *handlers.Config) { c.Asks, c.People, c.Live = gate.AsksOthers, known, chats })
	return s, known, []string{"Via", "1.1 elsewhere", "Origin", s.URL}
}

func TestLogin_WithAnInvitation(t *testing.T) {
	s, known, elsewhere := opened(t, handlerstest.NewScript())
	if got := handlerstest.Call(t, s, "GET", "/", "", append(elsewhere, "Accept", handlerstest.BrowserAccept)...); got.Header.Get("Location") != "/login" {
		t.Fatalf("a browser that is not logged in got %d, %v", got.Status, got.Header)
	}
	made, err := known.Invite(t.Context(), access.Local, store.OwnerID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // who looks at the link does not use it up
		got := handlerstest.Call(t, s, "GET", "/login?link="+made.Link, "", elsewhere...)
		if got.Status != 200 || !strings.Contains(got.Body, `value="`+made.Link+`"`) || got.Header.Get("Set-Cookie") != "" {
			t.Fatalf("got %d: %s", got.Status, got.Body)
		}
	}
	cookie := handlerstest.LogIn(t, s, known, store.OwnerID, elsewhere)
	if got := handlerstest.Call(t, s, "GET", "/", "", append(elsewhere, "Cookie", cookie, "Accept", handlerstest.BrowserAccept)...); got.Status != 200 {
		t.Errorf("the page got %d", got.Status)
	}
	got := handlerstest.Post(t, s, "/logout", "", append(elsewhere, "Cookie", cookie)...)
	if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/login" || !strings.Contains(got.Header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("logging out got %d, %v", got.Status, got.Header)
	}
	if got := handlerstest.Call(t, s, "GET", "/presets", "", append(elsewhere, "Cookie", cookie)...); got.Status != 401 {
		t.Errorf("after logging out the cookie got %d", got.Status)
	}
}

// logInByName sets the owner's passphrase, logs in with it by the form, and returns the cookie.
func logInByName(t *testing.T, s *httptest.Server, known *people.Service, passphrase string) (cookie string) {
	t.Helper()
	err := known.ChangePassphrase(t.Context(), access.Local, store.OwnerID, people.PassphraseChange{New: passphrase})
	if err != nil {
		t.Fatal(err)
	}
	got := submitName(t, s, "Owner", passphrase)
	set, err := http.ParseSetCookie(got.Header.Get("Set-Cookie"))
	if err != nil || got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/" {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	return set.Name + "=" + set.Value
}

func submitName(t *testing.T, s *httptest.Server, name, passphrase string) handlerstest.Response {
	t.Helper()
	form := url.Values{"name": {name}, "passphrase": {passphrase}}.Encode()
	return handlerstest.Post(t, s, "/login", form, "Content-Type", "application/x-www-form-urlencoded", "Origin", s.URL, "Via", "1.1 elsewhere")
}

func TestLogin_WithAPassphrase(t *testing.T) {
	s, known, elsewhere := opened(t, handlerstest.NewScript())
	if page := handlerstest.Call(t, s, "GET", "/login", "", elsewhere...).Body; strings.Contains(page, `name="passphrase"`) || !strings.Contains(page, `name="key"`) {
		t.Errorf("where nobody has a passphrase the login asks for one: %s", page)
	}
	cookie := logInByName(t, s, known, "the first passphrase")
	if page := handlerstest.Call(t, s, "GET", "/login", "", elsewhere...).Body; !strings.Contains(page, `name="passphrase"`) || !strings.Contains(page, `name="key"`) {
		t.Errorf("the login does not ask for a passphrase or a code: %s", page)
	}
	if got := handlerstest.Call(t, s, "GET", "/presets", "", append(elsewhere, "Cookie", cookie)...); got.Status != http.StatusOK {
		t.Errorf("with the cookie the page got %d", got.Status)
	}
	if got := handlerstest.Post(t, s, "/login?name=Owner&passphrase=the+first+passphrase", "", append(elsewhere, "Content-Type", "application/x-www-form-urlencoded")...); got.Status == http.StatusSeeOther {
		t.Error("a passphrase in the URL logs in")
	}
	unknown, wrong := submitName(t, s, "Somebody", "the next passphrase"), submitName(t, s, "Owner", "the next passphrase")
	for _, got := range []handlerstest.Response{unknown, wrong} {
		if got.Status != http.StatusUnauthorized || got.Header.Get("Set-Cookie") != "" || !strings.Contains(got.Body, "The name or the passphrase is wrong.") || strings.Contains(got.Body, "the next passphrase") {
			t.Errorf("got %d, %v: %s", got.Status, got.Header, got.Body)
		}
	}
	if a, b := strings.ReplaceAll(unknown.Body, "Somebody", ""), strings.ReplaceAll(wrong.Body, "Owner", ""); a != b {
		t.Errorf("an unknown name is told apart from a wrong passphrase: %s and %s", a, b)
	}
	for tries := 0; wrong.Status == http.StatusUnauthorized && tries < 30; tries++ { // on a slow machine one more is allowed meanwhile
		wrong = submitName(t, s, "Owner", "the next passphrase")
	}
	if seconds := wrong.Header.Get("Retry-After"); wrong.Status != http.StatusTooManyRequests || seconds == "" || !strings.Contains(wrong.Body, "wait "+seconds+" seconds") {
		t.Errorf("after many tries got %d, Retry-After %q: %s", wrong.Status, wrong.Header.Get("Retry-After"), wrong.Body)
	}
}

// A person changes passphrase and name on their own page; what does not work is said there.
func TestAccount_PassphraseAndName(t *testing.T) {
	s, known, elsewhere := opened(t, handlerstest.NewScript())
	anna, err := known.Add(t.Context(), access.Local, "Anna")
	if err != nil {
		t.Fatal(err)
	}
	as := func(person string) []string {
		cookie := handlerstest.LogIn(t, s, known, person, elsewhere)
		return slices.Concat(elsewhere, []string{"Content-Type", "application/x-www-form-urlencoded", "Accept", handlerstest.BrowserAccept, "Cookie", cookie})
	}
	asAnna, asOwner := as(anna.ID), as(store.OwnerID)
	for _, step := range []struct {
		name   string
		path   string
		form   url.Values
		header []string
		status int
		says   string // the page that is shown then
	}{
		{"the owner cannot set it", "/passphrase", url.Values{"new": {"the first passphrase"}}, asOwner, 403, "Only the owner"},
		{"a short one", "/passphrase", url.Values{"new": {"short"}}, asAnna, 400, "The passphrase has 5 characters and needs at least 12"},
		{"none", "/passphrase", url.Values{}, asAnna, 400, "The passphrase has 0 characters"},
		{"the first one", "/passphrase", url.Values{"new": {"the first passphrase"}}, asAnna, 303, "Present passphrase"},
		{"a change without the present one", "/passphrase", url.Values{"new": {"the next passphrase"}}, asAnna, 403, "the present passphrase is another one"},
		{"a change", "/passphrase", url.Values{"old": {"the first passphrase"}, "new": {"the next passphrase"}}, asAnna, 303, "Present passphrase"},
		{"a removal without the present one", "/passphrase/remove", url.Values{"old": {"the first passphrase"}}, asAnna, 403, "the present passphrase is another one"},
		{"a removal by the owner", "/passphrase/remove", url.Values{}, asOwner, 303, "Only Anna can set one"},
		{"another name", "/rename", url.Values{"name": {"Annabel"}}, asAnna, 303, `<h1 dir="auto">Annabel</h1>`},
		{"a name that is taken", "/rename", url.Values{"name": {"owner"}}, asAnna, 409, "has this name"},
		{"no name", "/rename", url.Values{"name": {" "}}, asAnna, 400, "The name is empty."},
		{"a name from the owner", "/rename", url.Values{"name": {"Anna"}}, asOwner, 303, `<h1 dir="auto">Anna</h1>`},
	} {
		got := handlerstest.Post(t, s, "/people/"+anna.ID+step.path, step.form.Encode(), step.header...)
		if got.Status == 303 {
			got.Body = handlerstest.Call(t, s, "GET", got.Header.Get("Location"), "", step.header...).Body
		}
		if got.Status != step.status || !strings.Contains(got.Body, step.says) {
			t.Errorf("%s: got %d, want %d and %q: %s", step.name, got.Status, step.status, step.says, got.Body)
		}
	}
	if got := handlerstest.Post(t, s, "/people/"+store.OwnerID+"/rename", "name=Olga", asOwner...); got.Status != 303 {
		t.Errorf("the owner cannot change the own name: %d", got.Status)
	}
	if got := handlerstest.Post(t, s, "/people", "name=", asOwner...); got.Status != 400 || !strings.Contains(got.Body, "The name is empty.") {
		t.Errorf("a person without a name got %d: %s", got.Status, got.Body)
	}
}

// Who is logged out sees nothing more: streams that are open end.
func TestRevoke_ClosesTheSocketsOfADevice(t *testing.T) {
	s, known, elsewhere := opened(t, handlerstest.NewScript())
	anna, err := known.Add(t.Context(), access.Local, "Anna")
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Via": {"1.1 elsewhere"}, "Origin": {s.URL}, "Cookie": {handlerstest.LogIn(t, s, known, anna.ID, elsewhere)}}
	conn, _, err := websocket.Dial(t.Context(), s.URL+"/ws", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if _, _, err := conn.Read(t.Context()); err != nil { // the state of the engine
		t.Fatal(err)
	}
	account, err := known.Account(t.Context(), access.Local, anna.ID)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, _, err := conn.Read(context.Background()); err != nil {
				return
			}
		}
	}()
	if err := known.RevokeDevice(t.Context(), access.Local, anna.ID, account.Devices[0].ID); err != nil {
		t.Fatal(err)
	}
	waitFor(t, ended, "the socket of a revoked device to close")
}

// What lets somebody in is in no log and, but for hashes, in no file.
func TestSecrets_AreInNoLogAndNoFile(t *testing.T) {
	var log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "data")
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(dir, "chats.db"), Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	known := handlerstest.PeopleOf(t, db, "the key of the owner")
	s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Asks, c.People = gate.AsksAll, known
	})
	made, inviteErr := known.Invite(t.Context(), access.Local, store.OwnerID)
	cookie := logInByName(t, s, known, "the first passphrase")
	for _, form := range []url.Values{
		{"old": {"a wrong passphrase"}, "new": {"the next passphrase"}},
		{"old": {"the first passphrase"}, "new": {"too short"}},
		{"old": {"the first passphrase"}, "new": {"the next passphrase"}},
	} {
		handlerstest.Post(t, s, "/people/"+store.OwnerID+"/passphrase", form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Origin", s.URL, "Cookie", cookie)
	}
	key, keyErr := known.CreateKey(t.Context(), access.Local, store.OwnerID, "script")
	if err := errors.Join(inviteErr, keyErr); err != nil {
		t.Fatal(err)
	}
	handlerstest.Call(t, s, "GET", "/login?link="+made.Link, "")
	submit(t, s, "WRONG-KEY-OF-SOMEBODY")
	_, session, _ := strings.Cut(handlerstest.LogIn(t, s, known, store.OwnerID, []string{"Origin", s.URL}), "=")
	for _, header := range [][]string{{"Authorization", "Bearer " + key}, {"X-Api-Key", "the key of the owner"}, {"Cookie", known.Cookie() + "=" + session}} {
		if got := handlerstest.Call(t, s, "GET", "/v1/models", "", header...); got.Status != http.StatusOK {
			t.Fatalf("with %s got %d", header[0], got.Status)
		}
	}
	s.Close() // the log is written
	files := map[string][]byte{"the log": log.Bytes()}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[d.Name()], err = os.ReadFile(path)
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil || len(files["chats.db-wal"])+len(files["chats.db"]) == 0 {
		t.Fatalf("the files are %d (%v)", len(files), err)
	}
	for name, content := range files {
		for what, secret := range map[string]string{
			"code": made.Code, "typed code": strings.ReplaceAll(made.Code, "-", ""), "link": made.Link, "API key": key,
			"owner's key": "the key of the owner", "wrong key": "WRONG-KEY-OF-SOMEBODY", "cookie": session,
			"first passphrase": "the first passphrase", "next passphrase": "the next passphrase", "wrong passphrase": "a wrong passphrase", "short passphrase": "too short",
		} {
			if bytes.Contains(bytes.ToLower(content), bytes.ToLower([]byte(secret))) {
				t.Errorf("%s has the %s", name, what)
			}
		}
	}
}

// People use the models and see no more of the machine than that.
func TestModelsPage_IsForTheOwnerToChange(t *testing.T) {
	s, known, elsewhere := opened(t, &handlerstest.FakeEngine{})
	anna, err := known.Add(t.Context(), access.Local, "Anna")
	if err != nil {
		t.Fatal(err)
	}
	for person, manages := range map[string]bool{store.OwnerID: true, anna.ID: false} {
		got := handlerstest.Call(t, s, "GET", "/models", "", append(elsewhere, "Accept", handlerstest.BrowserAccept, "Cookie", handlerstest.LogIn(t, s, known, person, elsewhere))...)
		if got.Status != http.StatusOK || strings.Contains(got.Body, "Only the owner of this server downloads") == manages {
			t.Errorf("%s got %d: %.300s", person, got.Status, got.Body)
		}
	}
}
