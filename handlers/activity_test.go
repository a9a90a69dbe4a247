package handlers_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"

	"nhooyr.io/websocket"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
)

// On the page, over the stream and in the API, everybody sees their own answers, the owner of the
// server those of all, and the others are counted.
func TestActivity_ShowsEverybodyTheirOwn(t *testing.T) {
	h := newHouse(t)
	for _, who := range h.askers {
		if who.person == "" {
			continue // the matrix has them
		}
		header := http.Header{}
		for i := 0; i+1 < len(who.header); i += 2 {
			header.Add(who.header[i], who.header[i+1])
		}
		c := handlerstest.DialSocket(t, h.Server, func(o *websocket.DialOptions) { o.HTTPHeader = header })
		c.Send("activity", map[string]any{"on": true})
		for place, shown := range map[string]string{
			"the page":   handlerstest.Call(t, h.Server, "GET", "/activity", "", who.header...).Body,
			"the stream": c.ActivityWith("key of " + who.person),
			"the API":    handlerstest.Call(t, h.Server, "GET", "/v1/activity", "", who.header...).Body,
		} {
			for person := range h.objects[ofPerson] {
				listed := strings.Contains(shown, "key of "+person)
				if want := who.owner || person == who.person; listed != want {
					t.Errorf("%s shows %s what %s does: %t, want %t: %s", place, who.name, person, listed, want, shown)
				}
			}
			for _, name := range []string{"Anna", "Ben"} {
				if own := strings.HasPrefix(who.name, name); strings.Contains(shown, name) && !own && !who.owner {
					t.Errorf("%s tells %s that %s uses the engine", place, who.name, name)
				}
			}
			if counted := strings.Contains(shown, "2 answers waiting") || strings.Contains(shown, `"others":{"running":0,"waiting":2}`); counted == who.owner {
				t.Errorf("%s counts others for %s: %t", place, who.name, counted)
			}
			if strings.Contains(shown, "secret of") || strings.Contains(shown, "of "+who.person+"</title>") {
				t.Errorf("%s shows %s a text: %s", place, who.name, shown)
			}
		}
	}
}

// A page that does not ask for the activity, or is hidden, gets none, and nothing is looked up for it.
func TestActivity_CostsNothingWhileNobodyLooks(t *testing.T) {
	looked := make(chan string, 1000)
	running := activity.New(func(_ context.Context, person string) (string, error) {
		looked <- person
		return "Anna", nil
	})
	engine := handlerstest.NewScript()
	chats := live.New(observed{engine, running}, live.Options{})
	t.Cleanup(chats.Close)
	s := handlerstest.Server(t, engine, func(c *handlers.Config) { c.Activity, c.Live = running, chats })
	c := handlerstest.DialSocket(t, s)
	c.Do("send", map[string]any{"text": "hello"})
	answer := engine.Next(t)
	for i := range 50 {
		answer.Write(fmt.Sprint(i, " "))
	}
	c.Until("the answer grows", func() bool { return c.Last() != nil && strings.Contains(c.Last().Text, "49") })
	ticks := 0
	tick := func() { // waits until the session has looked at everything again: the second change comes after all of the first
		for range 2 {
			ticks++
			engine.Set(func(s *infer.Status) { s.Queued = ticks })
			want := fmt.Sprintf("%d waiting, 0 running", ticks)
			c.Until("the engine", func() bool { return c.Engine["queue"] == want })
		}
	}
	tick()
	if len(looked) != 0 {
		t.Fatalf("%d names were looked up for a page that shows no activity", len(looked))
	}
	c.Do("activity", map[string]any{"on": true})
	if html := c.ActivityWith("50 tokens"); strings.Contains(html, "hello") || !strings.Contains(html, "You") || !strings.Contains(html, "/c/") {
		t.Errorf("the frame is %s", html)
	}
	c.Do("activity", map[string]any{"on": false})
	c.Do("ping", nil)
	for len(looked) > 0 {
		<-looked
	}
	answer.Write("more")
	c.Until("the answer grows", func() bool { return strings.Contains(c.Last().Text, "more") })
	tick()
	answer.Finish()
	c.Until("the answer ends", c.Ended)
	if len(looked) != 0 {
		t.Error("names were looked up for a page that is hidden")
	}
}

// observed is an engine whose answers are listed.
type observed struct {
	*handlerstest.Script
	running *activity.Service
}

func (e observed) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return e.running.Observe(e.Script.Generate)(ctx, r)
}

// The owner stops what others have started: the page of the chat says so, and a program gets an error
// that tells it not to try again.
func TestActivity_TheOwnerStopsAnAnswer(t *testing.T) {
	db := handlerstest.OpenStore(t)
	known := handlerstest.PeopleOf(t, db, "")
	anna, err := known.Add(t.Context(), access.Local, "Anna")
	if err != nil {
		t.Fatal(err)
	}
	key, err := known.CreateKey(t.Context(), access.Local, anna.ID, "script")
	if err != nil {
		t.Fatal(err)
	}
	running := activity.New(known.Name)
	engine := handlerstest.NewScript()
	chats := live.New(observed{engine, running}, live.Options{Store: db})
	t.Cleanup(chats.Close)
	s := handlerstest.Server(t, observed{engine, running}, func(c *handlers.Config) {
		c.Asks, c.People, c.Activity, c.Live = gate.AsksOthers, known, running, chats
	})
	elsewhere := []string{"Via", "1.1 elsewhere", "Origin", s.URL}
	stop := func(want string) {
		t.Helper()
		list, err := running.List(t.Context(), access.Local)
		if err != nil || len(list.Answers) != 1 || list.Answers[0].Name != "Anna" {
			t.Fatalf("got %+v (%v), want an answer of Anna", list, err)
		}
		path := fmt.Sprintf("/activity/%d/stop", list.Answers[0].ID)
		if got := handlerstest.Post(t, s, path, "", "Origin", s.URL); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/activity" {
			t.Errorf("%s: got %d", want, got.Status)
		}
	}

	chat, err := chats.Start(t.Context(), access.Of(anna), live.Question{Text: "hello", Settings: setting.Default()}, false)
	if err != nil {
		t.Fatal(err)
	}
	answer := engine.Next(t)
	answer.Write("Half")
	stop("a chat")
	page, cookie := "", handlerstest.LogIn(t, s, known, anna.ID, elsewhere)
	for !strings.Contains(page, "stopped by the owner of the server") {
		page = handlerstest.Call(t, s, "GET", "/c/"+chat.ID(), "", append(elsewhere[:4:4], "Cookie", cookie)...).Body
	}
	if !strings.Contains(page, "Half") {
		t.Error("the text that was there is gone")
	}

	for _, stream := range []bool{false, true} {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"hello"}],"stream":%t}`, stream)
		done := make(chan handlerstest.Response, 1)
		go func() {
			done <- handlerstest.Post(t, s, "/v1/chat/completions", body, append(elsewhere[:2:2], "Authorization", "Bearer "+key)...)
		}()
		answer := engine.Next(t)
		answer.Write("Half")
		for {
			if list, err := running.List(t.Context(), access.Local); err == nil && len(list.Answers) == 1 && list.Answers[0].Tokens == 1 && list.Answers[0].Key == "script" {
				break
			}
		}
		stop("a program")
		got := <-done
		if want := map[bool]int{false: http.StatusForbidden, true: http.StatusOK}[stream]; got.Status != want {
			t.Errorf("stream %t: got %d", stream, got.Status)
		}
		for _, want := range []string{`"code":"stopped"`, "the owner of this server stopped the answer"} {
			if !strings.Contains(got.Body, want) {
				t.Errorf("stream %t: the body lacks %q: %s", stream, want, got.Body)
			}
		}
		if !stream && got.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("the client is not told to try no more: %v", got.Header)
		}
	}
}
