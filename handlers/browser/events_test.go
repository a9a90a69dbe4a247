package browser

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
)

func TestAPageWithoutWebsocketsHasEvents(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	chats := live.New(engine, live.Options{})
	handler := handlers.New(handlers.Config{Engine: engine, Live: chats, Logger: slog.New(slog.DiscardHandler)})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			http.Error(w, "no websockets here", http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(chats.Close)
	b := openBrowser(t, server)
	run := steps(t, b)

	run("an answer streams, a reload goes on, and stop stops", func(t *testing.T) {
		b.open("/")
		b.until("sessionStorage.getItem('m40.way') === 'Events' && document.querySelector('#connbar').hidden")
		b.say("Hello")
		answer := engine.Next(t)
		answer.Write("One ", "two")
		b.until(lastAnswerIs("One two"))
		b.reload()
		b.until(lastAnswerIs("One two"))
		answer.Write(" three")
		b.until(lastAnswerIs("One two three"))
		b.press("Escape", 27)
		b.until("document.querySelector('.why .chip')?.innerText.startsWith('stopped by you')")
	})

	run("a second question is answered", func(t *testing.T) {
		b.ask(engine, "More", "Four.")
	})
	for _, trouble := range b.seen() {
		if !strings.Contains(trouble, "WebSocket connection to") {
			t.Errorf("the page had trouble: %s", trouble)
		}
	}
}
