package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// lockedLog is what a server logs.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// party is a chat that is shared: a server with its owner, and the listener of shared chats.
type party struct {
	t      *testing.T
	engine *handlerstest.Script
	chats  *live.Service
	guests *guest.Service
	home   *httptest.Server // of the owner
	lan    *httptest.Server // of those with a link
	log    *lockedLog
	chat   string
	link   links.Link
}

func newParty(t *testing.T, n links.Wanted) *party {
	t.Helper()
	p := &party{t: t, engine: handlerstest.NewScript(), log: &lockedLog{}}
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "data", "chats.db"), Ballast: -1, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	log := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p.chats = live.New(p.engine, live.Options{Log: log, Store: db})
	p.guests = guest.New(p.chats, guest.Options{})
	cfg := handlers.Config{Engine: p.engine, Live: p.chats, Guests: p.guests, Logger: log}
	p.home, p.lan = httptest.NewServer(handlers.New(cfg)), httptest.NewServer(handlers.NewShared(cfg))
	t.Cleanup(p.home.Close)
	t.Cleanup(p.lan.Close)
	t.Cleanup(p.chats.Close)
	c, err := p.chats.Start(t.Context(), access.Local, live.Question{Text: "What is rain?", Settings: setting.Default()}, false)
	if err != nil {
		t.Fatal(err)
	}
	a := p.engine.Next(t)
	a.Write("Water.")
	a.Finish()
	p.chat = c.ID()
	p.link = p.share(n)
	return p
}

func (p *party) share(n links.Wanted) links.Link {
	p.t.Helper()
	for {
		link, err := p.chats.Links.Add(p.t.Context(), access.Local, p.chat, n)
		if err == nil {
			return link
		}
		var running *owned.Conflict
		if !errors.As(err, &running) {
			p.t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // the end of the answer is being stored
	}
}

// post sends fields to a link as the scripts of its page do, and returns the response with the secret
// that it sets.
func (p *party) post(link links.Link, secret string, fields map[string]string, header ...string) (got handlerstest.Response, fresh string) {
	p.t.Helper()
	body, err := json.Marshal(fields)
	if err != nil {
		p.t.Fatal(err)
	}
	header = append([]string{"Content-Type", "application/json", "Accept", "application/json"}, header...)
	if !slices.Contains(header, "Origin") {
		header = append(header, "Origin", p.lan.URL)
	}
	if secret != "" {
		header = append(header, "Cookie", "m40_writer="+secret)
	}
	got = handlerstest.Post(p.t, p.lan, "/s/"+link.Token+"/write", string(body), header...)
	cookies := (&http.Response{Header: got.Header}).Cookies()
	if len(cookies) > 0 {
		fresh = cookies[0].Value
	}
	return got, fresh
}

// allow gives the keyboard to somebody who asks by the link.
func (p *party) allow(link links.Link, name string) (secret string) {
	p.t.Helper()
	got, secret := p.post(link, "", map[string]string{"do": "ask", "name": name})
	if got.Status != http.StatusNoContent {
		p.t.Fatalf("asking: %d %s", got.Status, got.Body)
	}
	p.set(link, secret, guest.WriterWrites)
	return secret
}

// set has the owner answer a request, or take the keyboard back.
func (p *party) set(link links.Link, secret string, state guest.WriterState) {
	p.t.Helper()
	who, err := p.chats.Links.Follower(p.t.Context(), link.Token)
	if err != nil {
		p.t.Fatal(err)
	}
	form := url.Values{"writer": {fmt.Sprint(p.guests.Asker(who, secret))}, "state": {string(state)}}.Encode()
	got := handlerstest.Post(p.t, p.home, "/c/"+p.chat+"/share/writers", form, "Content-Type", "application/x-www-form-urlencoded", "Origin", p.home.URL, "Accept", "application/json")
	if got.Status != http.StatusNoContent {
		p.t.Fatalf("setting a writer: %d %s", got.Status, got.Body)
	}
}

// texts are the texts of the questions that are stored.
func (p *party) texts() (list []string) {
	p.t.Helper()
	_, messages, err := p.chats.Tree(p.t.Context(), access.Local, p.chat)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, m := range messages {
		if m.Role == store.RoleUser {
			list = append(list, m.Author+":"+m.Text)
		}
	}
	return list
}

// follow reads the stream of the link with a secret, until the test ends.
func (p *party) follow(link links.Link, secret string) <-chan string {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	frames := readAlong(ctx, p.t, p.lan.URL+"/s/"+link.Token, "Cookie", "m40_writer="+secret)
	p.t.Cleanup(func() {
		cancel()
		for range frames {
		}
	})
	return frames
}

// await reads frames until one has all of texts, and returns it.
func (p *party) await(frames <-chan string, texts ...string) string {
	p.t.Helper()
	deadline := time.After(handlerstest.Hang)
next:
	for {
		select {
		case f, open := <-frames:
			if !open {
				p.t.Fatalf("the stream ended before %q", texts)
			}
			for _, text := range texts {
				if !strings.Contains(f, text) {
					continue next
				}
			}
			return f
		case <-deadline:
			p.t.Fatalf("waited in vain for %q", texts)
		}
	}
}

func TestKeyboard_AReaderAsksWritesAndLosesIt(t *testing.T) {
	p := newParty(t, links.Wanted{Live: true})
	owner := handlerstest.DialSocket(t, p.home)
	owner.Do("open", map[string]any{"chat": p.chat})
	got, secret := p.post(p.link, "", map[string]string{"do": "ask", "name": "  Ada <b>\u202e "})
	cookie := got.Header.Get("Set-Cookie")
	if got.Status != http.StatusNoContent || len(secret) < 26 || cookie != "m40_writer="+secret+"; Path=/s/"+p.link.Token+"; HttpOnly; SameSite=Strict" {
		t.Fatalf("asking: %d, cookie %q", got.Status, cookie)
	}
	owner.Until("the request", func() bool { return owner.WriteAccess != nil && len(owner.WriteAccess.Asks) == 1 })
	if asks := owner.WriteAccess.Asks[0]; asks.Name != "Ada <b>" || asks.Share != p.link.ID {
		t.Errorf("the owner is asked by %+v", asks)
	}
	frames := p.follow(p.link, secret)
	p.await(frames, `"state":"asks"`)
	if got, _ := p.post(p.link, secret, map[string]string{"do": "send", "text": "too early"}); got.Status != http.StatusForbidden {
		t.Errorf("who only asks sends: %d", got.Status)
	}
	p.set(p.link, secret, guest.WriterWrites)
	p.await(frames, `"state":"writes"`, `Ada \u003cb\u003e`)
	owner.Until("the writer", func() bool { return len(owner.WriteAccess.Writers) == 1 && len(owner.WriteAccess.Asks) == 0 })

	p.post(p.link, secret, map[string]string{"do": "typing"})
	owner.Until("the typing", func() bool { return len(owner.WriteAccess.Typing) == 1 && owner.WriteAccess.Typing[0] == "Ada <b>" })
	owner.Do("typing", nil)
	p.await(frames, `"typing":["The owner"]`)
	if got, _ := p.post(p.link, secret, map[string]string{"do": "send", "text": "And snow?"}); got.Status != http.StatusNoContent {
		t.Fatalf("sending: %d %s", got.Status, got.Body)
	}
	answer := p.engine.Next(t)
	if answer.Request.Client != store.OwnerID || strings.Contains(fmt.Sprint(answer.Request.Messages), "Ada") {
		t.Errorf("the engine is asked for %q: %+v", answer.Request.Client, answer.Request.Messages)
	}
	p.await(frames, "And snow?", `Ada \u0026lt;b\u0026gt;`, "guest")
	owner.Until("the question", func() bool { return owner.Authors["And snow?"] == "Ada <b>" && len(owner.WriteAccess.Typing) == 0 })
	answer.Write("Slow.")
	if got, _ := p.post(p.link, secret, map[string]string{"do": "stop"}); got.Status != http.StatusNoContent {
		t.Errorf("stopping: %d %s", got.Status, got.Body)
	}
	owner.Until("the end", func() bool { return owner.Ended() && owner.Last().State == live.Stopped })

	taken := time.Now()
	p.set(p.link, secret, guest.WriterEnded)
	p.await(frames, `"state":"ended"`, "The owner has taken the keyboard back.")
	t.Logf("the page of the writer was told after %v", time.Since(taken).Round(time.Millisecond))
	for _, do := range []string{"send", "stop", "typing"} {
		if got, _ := p.post(p.link, secret, map[string]string{"do": do, "text": "after"}); got.Status != http.StatusForbidden || !strings.Contains(got.Body, "no_keyboard") {
			t.Errorf("%s without the keyboard: %d %s", do, got.Status, got.Body)
		}
	}
	if texts := fmt.Sprint(p.texts()); texts != "[:What is rain? Ada <b>:And snow?]" {
		t.Errorf("the chat has %s", texts)
	}
	if log := p.log.String(); strings.Contains(log, "Ada") || strings.Contains(log, secret) || strings.Contains(log, p.link.Token) {
		t.Errorf("the log has a name, a secret or a token: %s", log)
	}
}

func TestKeyboard_ExportsKeepTheName(t *testing.T) {
	p := newParty(t, links.Wanted{Live: true})
	secret := p.allow(p.link, "Ada_*")
	p.post(p.link, secret, map[string]string{"do": "send", "text": "And snow?"})
	p.engine.Next(t).Finish()
	if got := handlerstest.Call(t, p.home, "GET", "/c/"+p.chat+"/export.md", ""); !strings.Contains(got.Body, "## Ada\\_\\* (guest)\n\nAnd snow?") || !strings.Contains(got.Body, "## You\n\nWhat is rain?") {
		t.Errorf("as Markdown:\n%s", got.Body)
	}
	file := handlerstest.Call(t, p.home, "GET", "/c/"+p.chat+"/export.json", "").Body
	if strings.Count(file, `"author": "Ada_*"`) != 1 {
		t.Errorf("as JSON:\n%s", file)
	}
	imported := func(file string) handlerstest.Response {
		return handlerstest.Post(t, p.home, "/import", file, "Content-Type", "application/json", "Origin", p.home.URL, "Accept", "application/json")
	}
	got := imported(file)
	var chat struct{ Chat string }
	if err := json.Unmarshal([]byte(got.Body), &chat); err != nil || got.Status != http.StatusCreated {
		t.Fatalf("importing: %d %s", got.Status, got.Body)
	}
	if again := handlerstest.Call(t, p.home, "GET", "/c/"+chat.Chat+"/export.json", "").Body; strings.Count(again, `"author": "Ada_*"`) != 1 {
		t.Errorf("what was imported is exported as\n%s", again)
	}
	if page := handlerstest.Call(t, p.home, "GET", "/c/"+chat.Chat, "", "Accept", "text/html").Body; !strings.Contains(page, `dir="auto">Ada_*</b>`) {
		t.Error("the page without scripts lacks the name")
	}
	for _, name := range []string{strings.Repeat("x", 41), "a\u202eb", " Ada", "\\u0000Ada"} {
		if got := imported(strings.Replace(file, "Ada_*", name, 1)); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "author") {
			t.Errorf("importing the name %q: %d %.200s", name, got.Status, got.Body)
		}
	}
}

func TestKeyboard_HostileReaders(t *testing.T) {
	p := newParty(t, links.Wanted{Live: true})
	secret := p.allow(p.link, "Ada")
	other, frozen, ended := p.share(links.Wanted{Live: true}), p.share(links.Wanted{}), p.share(links.Wanted{Live: true})
	late := p.allow(ended, "Late")
	if err := p.chats.Links.End(t.Context(), access.Local, p.chat, ended.ID); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(p.texts())
	send := map[string]string{"do": "send", "text": "hostile"}
	for _, tc := range []struct {
		name   string
		link   links.Link
		secret string
		fields map[string]string
		header []string
		status int
		want   string
	}{
		{"nobody sends", p.link, "", send, nil, 403, "no_keyboard"},
		{"a wrong secret sends", p.link, strings.Repeat("A", 26), send, nil, 403, "no_keyboard"},
		{"a very long secret sends", p.link, strings.Repeat("A", 4000), send, nil, 403, "no_keyboard"},
		{"the secret of one link on another to the same chat", other, secret, send, nil, 403, "no_keyboard"},
		{"a secret after the end of its link", ended, late, send, nil, 404, "nothing under this link"},
		{"a secret with a wrong link", links.Link{Token: "wrong"}, secret, send, nil, 404, "nothing under this link"},
		{"two secrets", p.link, secret, send, []string{"Cookie", "m40_writer=other"}, 403, "no_keyboard"},
		{"asking by a link to the chat as it was", frozen, "", map[string]string{"do": "ask", "name": "Eve"}, nil, 403, "no_requests"},
		{"a name of another", p.link, "", map[string]string{"do": "ask", "name": "aDA"}, nil, 409, "name_taken"},
		{"no name", p.link, "", map[string]string{"do": "ask", "name": " "}, nil, 400, "name"},
		{"a long name", p.link, "", map[string]string{"do": "ask", "name": strings.Repeat("x", 41)}, nil, 400, "1 to 40"},
		{"a huge name", p.link, "", map[string]string{"do": "ask", "name": strings.Repeat("x", 300<<10)}, nil, 413, "body_too_large"},
		{"a huge message", p.link, secret, map[string]string{"do": "send", "text": strings.Repeat("x", 300<<10)}, nil, 413, "body_too_large"},
		{"an empty message", p.link, secret, map[string]string{"do": "send", "text": " \n"}, nil, 400, "empty"},
		{"stopping nothing", p.link, secret, map[string]string{"do": "stop"}, nil, 409, "conflict"},
		{"something else", p.link, secret, map[string]string{"do": "delete"}, nil, 400, "do is"},
		{"settings with the message", p.link, secret, map[string]string{"do": "send", "text": "x", "system": "obey"}, nil, 400, "unknown field"},
		{"a picture with the message", p.link, secret, map[string]string{"do": "send", "text": "x", "pictures": strings.Repeat("a", 64)}, nil, 400, "unknown field"},
		{"a page of another site", p.link, secret, send, []string{"Origin", "http://evil.example"}, 403, "origin_not_allowed"},
		{"a page without an origin", p.link, secret, send, []string{"Origin", "null"}, 403, "origin_not_allowed"},
	} {
		got, fresh := p.post(tc.link, tc.secret, tc.fields, tc.header...)
		if got.Status != tc.status || !strings.Contains(got.Body, tc.want) || fresh != "" {
			t.Errorf("%s: %d, sets %q: %.300s", tc.name, got.Status, fresh, got.Body)
		}
	}
	for _, path := range []string{"/pictures", "/s/" + p.link.Token + "/pictures"} {
		if got := handlerstest.Post(t, p.lan, path, pngOf(t, 5, 3), "Origin", p.lan.URL, "Accept", "application/json", "Cookie", "m40_writer="+secret); got.Status/100 != 4 {
			t.Errorf("a reader uploads a picture to %s: %d", path, got.Status)
		}
	}
	if got := handlerstest.Post(t, p.lan, "/s/"+p.link.Token+"/write", `{"do":"send","text":"x"}`, "Content-Type", "application/json", "Cookie", "m40_writer="+secret); got.Status != http.StatusForbidden {
		t.Errorf("without an Origin: %d", got.Status)
	}
	for _, method := range []string{"GET", "HEAD"} {
		handlerstest.Call(t, p.lan, method, "/s/"+p.link.Token+"/write?do=send&text=x", "", "Cookie", "m40_writer="+secret)
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		for _, path := range []string{"/s/" + p.link.Token, "/s/" + p.link.Token + "/events"} {
			if got := handlerstest.Call(t, p.lan, method, path, "", "Origin", p.lan.URL, "Cookie", "m40_writer="+secret); got.Status != http.StatusMethodNotAllowed && got.Status != http.StatusNotFound {
				t.Errorf("%s %s: %d", method, path, got.Status)
			}
		}
	}
	accepted := 0
	for i := range 1000 {
		got, _ := p.post(p.link, "", map[string]string{"do": "ask", "name": fmt.Sprint("Flood ", i)})
		if got.Status == http.StatusNoContent {
			accepted++
		} else if got.Status != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" && !strings.Contains(got.Body, string(fault.CodeTooManyAsk)) { // once the limit by time allows another one
			t.Fatalf("request %d: %d %s", i, got.Status, got.Body)
		}
	}
	if accepted > 5 {
		t.Errorf("%d of 1,000 requests were accepted at once", accepted)
	}
	if after := fmt.Sprint(p.texts()); after != before {
		t.Errorf("the chat has %s", after)
	}
	select {
	case a := <-p.engine.Answers:
		t.Errorf("the engine was asked %+v", a.Request.Messages)
	default:
	}
}

func TestKeyboard_MessagesOfOneWriterAreLimited(t *testing.T) {
	p := newParty(t, links.Wanted{Live: true})
	secret := p.allow(p.link, "Ada")
	sent, last := 0, handlerstest.Response{}
	for sent < 40 { // on a slow machine further ones are allowed meanwhile
		last, _ = p.post(p.link, secret, map[string]string{"do": "send", "text": "again"})
		if last.Status == http.StatusTooManyRequests {
			break
		}
		if last.Status == http.StatusNoContent {
			sent++
			p.engine.Next(t).Finish()
		} else if last.Status != http.StatusConflict { // the end of the answer before is being stored
			t.Fatalf("message %d: %d %s", sent, last.Status, last.Body)
		}
	}
	if sent == 0 || sent == 40 || !strings.Contains(last.Body, "too_soon") {
		t.Errorf("%d messages were sent at once; then: %s", sent, last.Body)
	}
}

func TestKeyboard_FormsWorkWithoutScripts(t *testing.T) {
	p := newParty(t, links.Wanted{Live: true})
	path := "/s/" + p.link.Token + "/write"
	page := handlerstest.Call(t, p.lan, "GET", path, "")
	if page.Status != http.StatusOK || page.Header.Get("Referrer-Policy") != "same-origin" || !strings.Contains(page.Body, `name="name"`) {
		t.Errorf("the page answers %d, %s: %s", page.Status, page.Header.Get("Referrer-Policy"), page.Body)
	}
	form := func(secret string, fields ...string) handlerstest.Response {
		values := url.Values{}
		for i := 0; i < len(fields); i += 2 {
			values.Set(fields[i], fields[i+1])
		}
		return handlerstest.Post(t, p.lan, path, values.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html", "Origin", p.lan.URL, "Cookie", "m40_writer="+secret)
	}
	if got := form("", "do", "ask", "name", strings.Repeat("x", 50)); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "1 to 40") || !strings.Contains(got.Body, `name="name"`) {
		t.Errorf("a long name: %d %s", got.Status, got.Body)
	}
	asked := form("", "do", "ask", "name", "Ada")
	if asked.Status != http.StatusSeeOther || asked.Header.Get("Location") != path {
		t.Fatalf("asking: %d to %s", asked.Status, asked.Header.Get("Location"))
	}
	secret := (&http.Response{Header: asked.Header}).Cookies()[0].Value
	p.set(p.link, secret, guest.WriterWrites)
	if got := form(secret, "do", "send", "text", "And\r\nsnow?"); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/s/"+p.link.Token+"?grow=1#end" {
		t.Errorf("sending: %d to %s", got.Status, got.Header.Get("Location"))
	}
	running := p.engine.Next(t)
	if got := form(secret, "do", "send", "text", "Draft <i>"); got.Status != http.StatusConflict || !strings.Contains(got.Body, "Draft &lt;i&gt;") || !strings.Contains(got.Body, `value="stop"`) {
		t.Errorf("while an answer is written: %d %s", got.Status, got.Body)
	}
	running.Finish()
	if texts := fmt.Sprint(p.texts()); texts != "[:What is rain? Ada:And\nsnow?]" {
		t.Errorf("the chat has %q", texts)
	}
	form(secret, "do", "leave")
	if got := handlerstest.Call(t, p.lan, "GET", path, "", "Cookie", "m40_writer="+secret); !strings.Contains(got.Body, `name="name"`) {
		t.Error("who has left cannot ask again")
	}
}

func TestKeyboard_TwoTabsOfOneBrowserAreOneWriter(t *testing.T) {
	p := newParty(t, links.Wanted{Live: true})
	_, secret := p.post(p.link, "", map[string]string{"do": "ask", "name": "Ada"})
	one, two := p.follow(p.link, secret), p.follow(p.link, secret)
	if got, fresh := p.post(p.link, secret, map[string]string{"do": "ask", "name": "Ada"}); got.Status != http.StatusNoContent || fresh != "" {
		t.Errorf("asking in the other tab: %d, sets %q", got.Status, fresh)
	}
	p.set(p.link, secret, guest.WriterWrites)
	p.await(one, `"state":"writes"`)
	p.await(two, `"state":"writes"`)
	p.post(p.link, secret, map[string]string{"do": "typing"})
	p.set(p.link, secret, guest.WriterEnded)
	for _, frames := range []<-chan string{one, two} {
		if f := p.await(frames, `"state":"`); !strings.Contains(f, `"state":"ended"`) {
			t.Errorf("a tab of the one who types is told %s", f)
		}
	}
}

// Only the owner of a chat answers its requests, of all who might.
func TestMatrix_TheKeyboardForEverybody(t *testing.T) {
	h := newHouse(t)
	anna := h.askers[4].person
	of := access.Principal{Owner: anna}
	link, secret := h.writer(t, of, "Wilma")
	who, err := h.chats.Links.Follower(t.Context(), link.Token)
	if err != nil {
		t.Fatal(err)
	}
	asking, err := h.guests.AskToWrite(t.Context(), who, "Xenia", "")
	if err != nil {
		t.Fatal(err)
	}
	cells := 0
	for _, asker := range h.askers {
		for _, state := range []guest.WriterState{guest.WriterWrites, guest.WriterRefused, guest.WriterEnded} {
			cells++
			id := h.guests.Asker(who, asking)
			if state == guest.WriterEnded {
				id = h.guests.Asker(who, secret)
			}
			if asker.person == anna {
				continue // hers
			}
			body := url.Values{"writer": {fmt.Sprint(id)}, "state": {string(state)}}.Encode()
			for person, chat := range h.objects[ofChat] {
				got := handlerstest.Post(t, h.Server, "/c/"+chat+"/share/writers", body, append(asker.header, "Accept", "application/json", "Content-Type", "application/x-www-form-urlencoded")...)
				if want := map[bool]outcome{true: login, false: missing}[asker.person == "" && !asker.visits]; outcomeOf(got) != want {
					t.Errorf("%s sets %s for the chat of %s: %d, want %s", asker.name, state, person, got.Status, want)
				}
			}
		}
		got := handlerstest.Post(t, h.Server, "/s/"+link.Token+"/write", `{"do":"send","text":"hostile"}`, append(asker.header, "Content-Type", "application/json", "Accept", "application/json")...)
		if got.Status != http.StatusForbidden {
			t.Errorf("%s writes by the link: %d", asker.name, got.Status)
		}
		cells++
	}
	if r, _ := h.guests.ReaderAccess(who, h.guests.Asker(who, asking)); r.State != guest.WriterAsks {
		t.Errorf("the request is %q", r.State)
	}
	if r, _ := h.guests.ReaderAccess(who, h.guests.Asker(who, secret)); r.State != guest.WriterWrites {
		t.Errorf("the keyboard is %q", r.State)
	}
	t.Logf("%d askers, %d cells", len(h.askers), cells)
}
