package handlers_test

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"

	"nhooyr.io/websocket"
)

// limitedEngine is an engine whose answers have limits.
type limitedEngine struct {
	handlers.Engine
	generate func(context.Context, infer.Request) iter.Seq2[infer.Event, error]
}

func (e *limitedEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return e.generate(ctx, r)
}

// A person whose day is used up is told so, on the page before it is, and by the API with a status that says when to come back.
func TestLimits_OfADayAreShownAndEnforced(t *testing.T) {
	engine := &limitedEngine{Engine: &handlerstest.FakeEngine{}}
	db := handlerstest.OpenStore(t)
	known := handlerstest.PeopleOf(t, db, "")
	engine.generate = known.Limited(engine.Engine.Generate)
	chats := live.New(engine, live.Options{Store: db})
	t.Cleanup(chats.Close)
	s := handlerstest.Server(t, engine, func(c *handlers.Config) { c.Asks, c.People, c.Live = gate.AsksOthers, known, chats })
	anna, err := known.Add(t.Context(), access.Local, "Anna")
	if err != nil {
		t.Fatal(err)
	}
	key, err := known.CreateKey(t.Context(), access.Local, anna.ID, "script")
	if err != nil {
		t.Fatal(err)
	}
	header := []string{"Via", "1.1 elsewhere", "Origin", s.URL, "Authorization", "Bearer " + key, "Content-Type", "application/json"}
	shown := func() string {
		return handlerstest.Call(t, s, "GET", "/", "", append(header, "Accept", handlerstest.BrowserAccept)...).Body
	}
	if page := shown(); !strings.Contains(page, "class=\"left num\" hidden") {
		t.Error("without a limit the page says what is left")
	}
	if err := known.Limit(t.Context(), access.Local, anna.ID, store.PersonLimits{Answers: 1}); err != nil {
		t.Fatal(err)
	}
	client := handlerstest.DialSocket(t, s, func(o *websocket.DialOptions) {
		o.HTTPHeader = http.Header{"Via": {"1.1 elsewhere"}, "Origin": {s.URL}, "Authorization": {"Bearer " + key}}
	})
	client.Until("what is left", func() bool { return client.Left == "1 of 1 answer left today" })
	const body = `{"messages":[{"role":"user","content":"hi"}]}`
	if got := handlerstest.Post(t, s, "/v1/chat/completions", body, header...); got.Status != http.StatusOK {
		t.Fatalf("the answer of the day got %d: %s", got.Status, got.Body)
	}
	client.Until("that nothing is left", func() bool { return client.Left == "0 of 1 answer left today" })
	got := handlerstest.Post(t, s, "/v1/chat/completions", body, header...)
	if got.Status != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" || got.Header.Get("X-Should-Retry") != "false" || !strings.Contains(got.Body, "your 1 answer of today is used up") {
		t.Errorf("the second answer got %d, %v: %s", got.Status, got.Header, got.Body)
	}
	if page := shown(); !strings.Contains(page, "0 of 1 answer left today") {
		t.Error("the page does not say that nothing is left")
	}
	client.Send("send", map[string]any{"text": "hi", "settings": map[string]any{}})
	client.Until("the refusal in the chat", func() bool {
		return client.Last() != nil && client.Last().End != nil && client.Last().End.Error != nil && client.Last().End.Error.Code == fault.CodeDayUsed
	})
}
