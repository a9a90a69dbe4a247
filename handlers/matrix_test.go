package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"nhooyr.io/websocket"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/people"
	"m40-llm/handlers/presets"
	"m40-llm/handlers/setting"
	"m40-llm/handlers/visitors"
	"m40-llm/infer"
	"m40-llm/store"
)

// rule is what a route is about, and so who may use it. Each route has one; a route without one
// fails the test.
type rule int

const (
	public    rule = iota // for everybody
	anybody               // for every person, about nothing or about what is their own anyway
	ofChat                // for the person whose chat it is
	ofPreset              // for the person whose preset it is
	ofPerson              // for the person it is about, and the owner of the server
	ofSelf                // for the person it is about alone
	ofAnswer              // for the person whose answer it is, and the owner of the server
	ownerOnly             // for the owner of the server, about nothing that is a person's
	managed               // for the owner of the server, about a person
)

var rules = map[string]rule{
	"GET /health": public, "HEAD /health": public, "GET /login": public, "POST /login": public, "POST /logout": public,
	"GET /static/*": public, "HEAD /static/*": public, "GET /s/:token": public, "HEAD /s/:token": public, "GET /s/:token/events": public,
	"GET /s/:token/pictures/:hash": public, "GET /s/:token/write": public, "HEAD /s/:token/write": public, "POST /s/:token/write": public,

	"POST /v1/generate": anybody, "POST /v1/render": anybody, "POST /v1/embed": anybody, "POST /v1/rank": anybody, "POST /v1/rerank": anybody, "POST /rerank": anybody, "POST /v1/reranking": anybody, "POST /reranking": anybody, "POST /v2/rerank": anybody, "POST /v1/chat/completions": anybody, "POST /v1/completions": anybody,
	"POST /v1/responses": anybody, "POST /responses": anybody, "POST /v1/messages": anybody, "POST /v1/messages/count_tokens": anybody,
	"POST /chat/completions": anybody, "POST /completions": anybody, "GET /v1/models": anybody, "HEAD /v1/models": anybody,
	"GET /v1/models/*": anybody, "HEAD /v1/models/*": anybody, "GET /models/*": anybody, "HEAD /models/*": anybody,
	"GET /models": anybody, "HEAD /models": anybody, "GET /v1/status": anybody, "HEAD /v1/status": anybody,
	"POST /completion": anybody, "POST /infill": anybody, "GET /props": anybody, "HEAD /props": anybody, "GET /slots": anybody, "HEAD /slots": anybody,
	"GET /metrics": anybody, "HEAD /metrics": anybody, "GET /openapi.json": anybody, "HEAD /openapi.json": anybody, "POST /tokenize": anybody, "POST /detokenize": anybody, "GET /tokenizer_info": anybody, "HEAD /tokenizer_info": anybody,
	"POST /v1/responses/compact": anybody, "POST /responses/compact": anybody, "POST /v1/responses/input_tokens": anybody, "POST /responses/input_tokens": anybody, "POST /apply-template": anybody,
	"GET /": anybody, "HEAD /": anybody, "POST /": anybody, "GET /rail": anybody, "GET /candidates": anybody, "HEAD /rail": anybody, "POST /count": anybody, "POST /pictures": anybody, "POST /documents": anybody, "GET /pictures/:hash": anybody,
	"POST /import": anybody, "POST /folders/rename": anybody, "GET /ws": anybody, "GET /events": anybody, "POST /command": anybody,
	"GET /blind": anybody, "HEAD /blind": anybody, "POST /blind": anybody, "POST /blind/stop": anybody, "POST /blind/vote": anybody, "POST /blind/keep": anybody, "POST /blind/reset": anybody,
	"GET /blind/events": anybody, "GET /blind/export.json": anybody,
	"GET /presets": anybody, "HEAD /presets": anybody, "POST /presets": anybody, "POST /presets/import": anybody,
	"GET /presets/export.json": anybody, "GET /people": anybody, "GET /settings": anybody, "HEAD /settings": anybody, "POST /settings/language": anybody, "GET /help": anybody, "HEAD /help": anybody, "GET /help/:name": anybody, "HEAD /help/:name": anybody,
	"GET /activity": anybody, "HEAD /activity": anybody, "GET /v1/activity": anybody, "HEAD /v1/activity": anybody,

	"GET /api": anybody, "HEAD /api": anybody, "GET /api/version": anybody, "HEAD /api/version": anybody, "GET /api/tags": anybody, "HEAD /api/tags": anybody,
	"GET /api/ps": anybody, "HEAD /api/ps": anybody, "POST /api/show": anybody, "POST /api/chat": anybody, "POST /api/generate": anybody,
	"POST /api/embed": anybody, "POST /api/embeddings": anybody, "POST /v1/embeddings": anybody, "POST /embeddings": anybody, "POST /embedding": anybody,
	"POST /v1/models/load": ownerOnly, "POST /v1/models/unload": ownerOnly, "POST /v1/models/pin": ownerOnly, "POST /v1/models/unpin": ownerOnly,
	"POST /api/pull": ownerOnly, "POST /api/copy": ownerOnly, "DELETE /api/delete": ownerOnly,

	"GET /c/:id": ofChat, "HEAD /c/:id": ofChat, "POST /c/:id": ofChat, "POST /c/:id/stop": ofChat, "POST /c/:id/answer": ofChat,
	"POST /c/:id/show": ofChat, "POST /c/:id/rename": ofChat, "POST /c/:id/model": ofChat, "POST /c/:id/move": ofChat,
	"POST /c/:id/pin": ofChat, "POST /c/:id/archive": ofChat, "POST /c/:id/delete": ofChat, "POST /c/:id/copy": ofChat, "POST /c/:id/restore": ofChat,
	"GET /c/:id/export.json": ofChat, "GET /c/:id/export.md": ofChat, "GET /c/:id/code/:answer": ofChat,
	"GET /c/:id/share": ofChat, "POST /c/:id/share": ofChat, "POST /c/:id/share/end": ofChat,
	"GET /c/:id/pictures/:hash": ofChat, "POST /c/:id/share/requests": ofChat, "POST /c/:id/share/writers": ofChat,
	"GET /c/:id/tokens/:answer": ofChat, "GET /c/:id/tokens/:answer/unsure": ofChat, "GET /c/:id/tokens/:answer/:index": ofChat, "POST /c/:id/tokens/:answer/judge": ofChat,
	"POST /c/:id/score/:answer": ofChat, "GET /c/:id/score/:answer/:index": ofChat,
	"GET /c/:id/looked/:answer/:index": ofChat, "POST /c/:id/looked/:answer/:index": ofChat,
	"GET /c/:id/tree": ofChat, "GET /c/:id/cache": ofChat, "POST /c/:id/cache/remove": ofChat, "GET /c/:id/tokens/:answer/:index/stages": ofChat, "POST /c/:id/tokens/:answer/:index/stages": ofChat,
	"GET /c/:id/sheet": ofChat, "HEAD /c/:id/sheet": ofChat, "POST /c/:id/sheet": ofChat, "POST /c/:id/sheet/stop": ofChat, "POST /c/:id/sheet/keep": ofChat, "GET /c/:id/sheet/events": ofChat,

	"POST /presets/:id": ofPreset, "POST /presets/:id/rename": ofPreset, "POST /presets/:id/use": ofPreset,
	"POST /presets/:id/delete": ofPreset, "POST /presets/:id/restore": ofPreset,

	"GET /people/:id": ofPerson, "POST /people/:id/invite": ofPerson, "POST /people/:id/devices/revoke": ofPerson,
	"POST /people/:id/keys": ofPerson, "POST /people/:id/keys/revoke": ofPerson,
	"POST /people/:id/rename": ofPerson, "POST /people/:id/passphrase/remove": ofPerson,

	"POST /people/:id/passphrase": ofSelf,

	"POST /activity/:answer/stop": ofAnswer, "POST /v1/activity/:answer/stop": ofAnswer,

	"POST /models/find": ownerOnly, "POST /candidates": ownerOnly, "POST /caches": ownerOnly, "POST /models/pull": ownerOnly, "POST /models/pause": ownerOnly, "POST /models/resume": ownerOnly,
	"POST /models/cancel": ownerOnly, "POST /models/delete": ownerOnly, "POST /models/memory": ownerOnly, "POST /models/setup": ownerOnly, "POST /settings/limits": ownerOnly, "POST /settings/visitors": ownerOnly, "GET /models/template": ownerOnly, "HEAD /models/template": ownerOnly, "POST /models/template": ownerOnly, "POST /people": ownerOnly,
	"POST /people/:id/limit": managed, "POST /people/:id/remove": managed,
}

// fields make the form of a route valid, so that nothing but its authorization can refuse it. What
// they change is one's own, and what is removed is made anew.
var fields = map[string]string{
	"POST /c/:id": "text=hi", "POST /c/:id/answer": "question=1", "POST /c/:id/show": "message=1&version=1", "POST /c/:id/rename": "title=x",
	"POST /c/:id/share": "life=hour&what=live", "POST /c/:id/share/end": "share=999", "POST /c/:id/share/requests": "share=999&accept=false",
	"POST /c/:id/share/writers": "writer=999&state=writes", "POST /presets/:id/rename": "name=x",
	"POST /people/:id/devices/revoke": "id=999", "POST /people/:id/keys": "name=x", "POST /people/:id/keys/revoke": "id=999",
	"POST /people/:id/rename": "name=", "POST /people/:id/passphrase": "new=a+passphrase+of+the+matrix",
	"POST /people/:id/limit": "answers=3&tokens=1000000", "POST /people/:id/remove": "confirm=wrong", "POST /people": "name=Anna",
}

// asker is somebody who sends requests.
type asker struct {
	name   string
	person string // id; empty: nobody
	owner  bool   // of the server
	visits bool   // is a visitor
	header []string
}

// house is a server with an owner and two people, each with a chat, a preset, a device and a key.
type house struct {
	*httptest.Server
	db      *store.Store
	path    string // of db
	people  *people.Service
	chats   *live.Service
	presets *presets.Service
	guests  *guest.Service
	running *activity.Service // an answer of everybody, until it is stopped
	askers  []asker
	objects map[rule]map[string]string // an object of each kind, by person
}

func newHouse(t *testing.T) *house {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data", "chats.db")
	h := &house{db: handlerstest.OpenStoreAt(t, path), path: path, objects: map[rule]map[string]string{ofChat: {}, ofPreset: {}, ofPerson: {}, ofSelf: {}, ofAnswer: {}}}
	h.people = handlerstest.PeopleOf(t, h.db, "")
	h.chats = live.New(&handlerstest.FakeEngine{}, live.Options{Store: h.db})
	h.presets = presets.New(h.chats, h.db)
	h.guests = guest.New(h.chats, guest.Options{})
	t.Cleanup(h.chats.Close)
	h.running = activity.New(h.people.Name)
	house := openHouse(t, h.db, visitors.Settings{Open: true, Answers: 30, Tokens: 20_000})
	h.Server = handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) {
		c.Asks, c.People, c.Live, c.Presets, c.Guests, c.Activity = gate.AsksOthers, h.people, h.chats, h.presets, h.guests, h.running
		c.Visitors = house
	})
	h.Config.Handler.(*echo.Echo).Pre(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if from := c.Request().Header.Get("X-Test-From"); from != "" {
				c.Request().RemoteAddr = from
			}
			return next(c)
		}
	})
	elsewhere := []string{"Via", "1.1 elsewhere", "Origin", h.URL}
	network := []string{"X-Test-From", "192.168.1.20:1", "Origin", h.URL}
	h.askers = []asker{{name: "nobody", header: elsewhere}, {name: "a wrong key", header: append(elsewhere, "Authorization", "Bearer wrong")}}
	anna, annaErr := h.people.Add(t.Context(), access.Local, "Anna")
	ben, benErr := h.people.Add(t.Context(), access.Local, "Ben")
	if annaErr != nil || benErr != nil {
		t.Fatal(annaErr, benErr)
	}
	for _, p := range []store.Person{{ID: store.OwnerID, Name: "the owner", IsOwner: true}, anna, ben} {
		key, err := h.people.CreateKey(t.Context(), access.Local, p.ID, "matrix")
		if err != nil {
			t.Fatal(err)
		}
		cookie := handlerstest.LogIn(t, h.Server, h.people, p.ID, elsewhere)
		h.askers = append(h.askers,
			asker{p.Name + " with a browser", p.ID, p.IsOwner, false, slices.Concat(elsewhere, []string{"Cookie", cookie})},
			asker{p.Name + " with a key", p.ID, p.IsOwner, false, slices.Concat(elsewhere, []string{"Authorization", "Bearer " + key})})
		h.addObjects(t, p)
		h.answer(t, p.ID)
	}
	cookie := handlerstest.LogIn(t, h.Server, h.people, anna.ID, elsewhere)
	account, err := h.people.Account(t.Context(), access.Local, anna.ID)
	if err != nil {
		t.Fatal(err)
	}
	newest := slices.MaxFunc(account.Devices, func(a, b store.Device) int { return int(a.ID - b.ID) })
	if err := h.people.RevokeDevice(t.Context(), access.Local, anna.ID, newest.ID); err != nil {
		t.Fatal(err)
	}
	h.askers = append(h.askers, asker{name: "a revoked device", header: slices.Concat(elsewhere, []string{"Cookie", cookie})})
	_, secret := h.writer(t, access.Of(anna), "Wanda")
	h.askers = append(h.askers, asker{name: "a writer of Anna's chat", header: slices.Concat(elsewhere, []string{"Cookie", "m40_writer=" + secret})})
	h.askers = append(h.askers,
		asker{name: "a visitor", visits: true, header: slices.Concat(network, []string{"Cookie", visit(t, h.Server, network...)})},
		asker{name: "somebody in the network without a visit", header: network},
		asker{name: "a visitor by a proxy", header: slices.Concat(network, []string{"X-Forwarded-For", "8.8.8.8", "Cookie", visit(t, h.Server, network...)})},
		asker{name: "a visitor from beyond the network", header: []string{"X-Test-From", "8.8.8.8:1", "Origin", h.URL, "Cookie", visit(t, h.Server, network...)}})
	return h
}

func (h *house) addObjects(t *testing.T, p store.Person) {
	t.Helper()
	c, err := h.db.CreateConversation(t.Context(), p.ID, store.Metadata{Title: "of " + p.ID})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.db.AddMessage(t.Context(), p.ID, c.ID, store.NewMessage{Role: store.RoleUser, Text: "secret of " + p.ID}); err != nil {
		t.Fatal(err)
	}
	preset, err := h.presets.Create(t.Context(), access.Of(p), presets.Preset{Name: "preset of " + p.ID, Settings: setting.Default()})
	if err != nil {
		t.Fatal(err)
	}
	h.objects[ofChat][p.ID], h.objects[ofPreset][p.ID], h.objects[ofPerson][p.ID], h.objects[ofSelf][p.ID] = c.ID, preset.ID, p.ID, p.ID
}

// answer begins an answer of a person that ends when it is stopped.
func (h *house) answer(t *testing.T, person string) {
	t.Helper()
	started, ended := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(activity.With(context.Background(), activity.Origin{Person: person, Key: "key of " + person}))
	generate := h.running.Observe(func(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
		return func(func(infer.Event, error) bool) {
			close(started)
			<-ctx.Done()
		}
	})
	go func() {
		defer close(ended)
		for range generate(ctx, infer.Request{}) {
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-started
	list, err := h.running.List(t.Context(), access.Local)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list.Answers {
		if a.Person == person {
			h.objects[ofAnswer][person] = fmt.Sprint(a.ID)
		}
	}
}

// writer shares the chat of a person and gives the keyboard to somebody, and returns the link and the
// secret of their browser.
func (h *house) writer(t *testing.T, of access.Principal, name string) (link links.Link, secret string) {
	t.Helper()
	chat := h.objects[ofChat][of.Owner]
	link, err := h.chats.Links.Add(t.Context(), of, chat, links.Wanted{Live: true})
	if err != nil {
		t.Fatal(err)
	}
	return link, giveKeyboard(t, h.chats, h.guests, of, chat, link.Token, name)
}

// giveKeyboard has somebody with a link ask to write, and the owner of the chat allow it.
func giveKeyboard(t *testing.T, chats *live.Service, guests *guest.Service, owner access.Principal, chat, token, name string) (secret string) {
	t.Helper()
	who, err := chats.Links.Follower(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	if secret, err = guests.AskToWrite(t.Context(), who, name, ""); err != nil {
		t.Fatal(err)
	}
	c, err := chats.Chat(t.Context(), owner, chat)
	if err != nil {
		t.Fatal(err)
	}
	if err := guests.SetWriter(owner, c, guests.Asker(who, secret), guest.WriterWrites); err != nil {
		t.Fatal(err)
	}
	return secret
}

// notForVisitors are routes for every person that change what is stored of them.
var notForVisitors = map[string]bool{"POST /import": true, "POST /presets": true, "POST /blind/reset": true}

// outcome is what an asker may learn by a route.
type outcome string

const (
	let     outcome = "let through"
	login   outcome = "told to log in"
	denied  outcome = "denied"
	missing outcome = "told that it does not exist"
)

// expected is the table of who may do what.
func expected(name string, r rule, who asker, object string) outcome {
	switch {
	case r == public:
		return let
	case who.visits:
		_, path, _ := strings.Cut(name, " ")
		switch {
		case gate.IsAPI(path):
			return login // programs need a key
		case notForVisitors[name]:
			return denied
		case r == anybody:
			return let
		case r == ofChat || r == ofAnswer, name == "POST /presets/:id/use", name == "POST /presets/:id":
			return missing // they are of others
		}
		return denied
	case who.person == "":
		return login
	case r == anybody:
		return let
	case r == ownerOnly:
		if !who.owner {
			return denied
		}
		return let
	case r == managed || r == ofPerson || r == ofSelf:
		switch {
		case !who.owner && (r == managed || object != who.person), r == ofSelf && object != who.person:
			return denied
		case object == "missing":
			return missing
		}
		return let
	case object == "missing", object != who.person && !(r == ofAnswer && who.owner):
		return missing
	}
	return let
}

// outcomeOf reads a response. One that complains of something else than who asks was let through.
func outcomeOf(got handlerstest.Response) outcome {
	switch got.Status {
	case http.StatusUnauthorized, http.StatusTooManyRequests:
		return login
	case http.StatusForbidden:
		return denied
	case http.StatusNotFound:
		return missing
	}
	return let
}

// Every route does for everybody, with what is their own, another's or nobody's, what the table
// says; and nobody is shown a word of another's.
func TestMatrix_EveryRouteForEverybody(t *testing.T) {
	h := newHouse(t)
	routes := map[string]bool{}
	for _, route := range h.Config.Handler.(*echo.Echo).Routes() {
		routes[route.Method+" "+route.Path] = true
	}
	cells := 0
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		r, known := rules[name]
		if !known {
			t.Errorf("%s has no rule: say in this test who may use it", name)
			continue
		}
		for _, who := range h.askers {
			objects := []string{store.OwnerID, h.askers[4].person, h.askers[6].person, "missing"}
			if r == public || r == anybody || r == ownerOnly {
				objects = objects[3:]
			}
			for _, object := range objects {
				cells++
				h.try(t, name, r, who, object)
			}
		}
	}
	for name := range rules {
		if !routes[name] {
			t.Errorf("there is a rule for %s, and no such route", name)
		}
	}
	t.Logf("%d routes, %d askers, %d requests", len(routes), len(h.askers), cells)
}

func (h *house) try(t *testing.T, name string, r rule, who asker, object string) {
	t.Helper()
	if name == "GET /ws" || name == "GET /events" && (who.person != "" || who.visits) || r == public && strings.HasPrefix(name, "POST /lo") {
		return // a stream has no end; see the commands. A login is tested elsewhere
	}
	method, path, _ := strings.Cut(name, " ")
	id := "missing"
	if objects := h.objects[r]; objects != nil && object != "missing" {
		id = objects[object]
	} else if r == managed && object != "missing" {
		id = object
	}
	path = strings.NewReplacer(":id", id, ":token", "none", ":answer", map[bool]string{true: id, false: "1"}[r == ofAnswer], ":index", "0", "*", "x").Replace(path)
	if name == "GET /c/:id/code/:answer" {
		path += "?as=curl"
	}
	body := fields[name]
	if r == anybody && strings.HasPrefix(name, "POST /v1") {
		body = ""
	}
	header := slices.Concat(who.header, []string{"Accept", "application/json"})
	if body != "" || method == http.MethodPost && r != anybody {
		header = append(header, "Content-Type", "application/x-www-form-urlencoded")
	}
	got := handlerstest.Call(t, h.Server, method, path, body, header...)
	h.bringBack(t, name, who)
	if r == ofAnswer && outcomeOf(got) == let {
		h.answer(t, object)
	}
	want := expected(name, r, who, object)
	if was := outcomeOf(got); r == public || r == anybody || r == ownerOnly {
		if was == missing {
			was = let // nothing of a person's is missing
		}
		if was != want {
			t.Errorf("%s by %s: got %d, want %s", name, who.name, got.Status, want)
		}
		return
	}
	if was := outcomeOf(got); was != want && !(was == missing && want == let && mayLack[name]) {
		t.Errorf("%s about %s by %s: got %d (%s), want %s: %.200s", name, object, who.name, got.Status, was, want, got.Body)
	}
	for person := range h.objects[ofPerson] {
		if person != who.person && strings.Contains(got.Body, "secret of "+person) {
			t.Errorf("%s about %s shows %s what %s wrote", name, object, who.name, person)
		}
	}
}

// bringBack restores what an asker has deleted, and removes the passphrase that they would otherwise
// need to set another one.
func (h *house) bringBack(t *testing.T, name string, who asker) {
	t.Helper()
	if who.person == "" {
		return
	}
	var err error
	switch name {
	case "POST /c/:id/delete":
		err = h.db.RestoreConversation(t.Context(), who.person, h.objects[ofChat][who.person])
	case "POST /people/:id/passphrase":
		err = h.db.SetPassphrase(t.Context(), who.person, "")
	case "POST /presets/:id/delete":
		err = h.presets.Restore(t.Context(), access.Principal{Owner: who.person}, h.objects[ofPreset][who.person])
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, presets.ErrNoPreset) {
		t.Fatal(err)
	}
}

// mayLack are routes about a part of an object, which the object here does not have.
var mayLack = map[string]bool{
	"GET /c/:id/pictures/:hash": true, "GET /c/:id/code/:answer": true, "GET /c/:id/tokens/:answer": true, "GET /c/:id/tokens/:answer/unsure": true, "GET /c/:id/tokens/:answer/:index": true, "POST /c/:id/tokens/:answer/judge": true,
	"GET /c/:id/tokens/:answer/:index/stages": true, "POST /c/:id/tokens/:answer/:index/stages": true,
	"POST /c/:id/share/end": true, "POST /c/:id/share/requests": true, "POST /c/:id/share/writers": true, "POST /c/:id/restore": true, "POST /presets/:id/restore": true, "POST /presets/:id/use": true,
	"POST /people/:id/devices/revoke": true, "POST /people/:id/keys/revoke": true,
	"POST /c/:id/delete": true, "POST /presets/:id/delete": true,
}

// commands returns the commands of the websocket, as the session that executes them has them.
func commands(t *testing.T) (names []string) {
	t.Helper()
	source, err := os.ReadFile("stream/commands.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^\tcase "([a-z]+)":$`).FindAllSubmatch(source, -1) {
		names = append(names, string(match[1]))
	}
	if len(names) < 10 || !slices.Contains(names, "open") {
		t.Fatalf("found the commands %v", names)
	}
	return names
}

// No command of anybody reaches a chat that is not theirs.
func TestMatrix_EveryCommandForEverybody(t *testing.T) {
	h := newHouse(t)
	cells := 0
	for _, who := range h.askers {
		header := http.Header{}
		for i := 0; i+1 < len(who.header); i += 2 {
			header.Add(who.header[i], who.header[i+1])
		}
		if who.person == "" && !who.visits {
			if _, got, err := websocket.Dial(t.Context(), h.URL+"/ws", &websocket.DialOptions{HTTPHeader: header}); err == nil || got.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s opened a websocket (%v)", who.name, err)
			}
			cells++
			continue
		}
		for _, object := range []string{store.OwnerID, h.askers[4].person, h.askers[6].person, "missing"} {
			c := handlerstest.DialSocket(t, h.Server, func(o *websocket.DialOptions) { o.HTTPHeader = header })
			cells += h.command(t, c, who, object)
			c.Conn.CloseNow()
		}
	}
	t.Logf("%d commands, %d askers, %d tries", len(commands(t)), len(h.askers), cells)
}

// command sends all commands about a chat, and returns how many.
func (h *house) command(t *testing.T, c *handlerstest.SocketClient, who asker, object string) (cells int) {
	t.Helper()
	chat := "missing"
	if object != "missing" {
		chat = h.objects[ofChat][object]
	}
	before, beforeErr := h.db.Messages(t.Context(), object, chat, 0)
	ref := c.Send("open", map[string]any{"chat": chat})
	if opened := c.Reply(ref).Type == "ack"; opened != (object == who.person) {
		t.Errorf("%s opened the chat of %s: %t", who.name, object, opened)
	}
	if object == who.person {
		return 1
	}
	for _, name := range commands(t) {
		if name == "open" || name == "send" || name == "ping" || name == "activity" {
			continue // send begins a chat of one's own, and ping and activity are about no chat; for activity see TestActivity
		}
		cells++
		ref := c.Send(name, map[string]any{"chat": chat, "message": 1, "answer": 1, "text": "x", "before": 1, "after": 1, "version": 1})
		if c.Reply(ref).Type == "ack" {
			t.Errorf("%s by %s about the chat of %s was carried out", name, who.name, object)
		}
	}
	if after, err := h.db.Messages(t.Context(), object, chat, 0); len(after) != len(before) || (err == nil) != (beforeErr == nil) {
		t.Errorf("%s changed the chat of %s", who.name, object)
	}
	return cells + 1
}
