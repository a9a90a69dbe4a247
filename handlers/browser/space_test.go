package browser

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/page"
	"m40-llm/store"
)

// serveFull starts a server on a disk that has no room for a new chat.
func serveFull(t testing.TB, engine handlers.Engine) (*httptest.Server, *live.Service) {
	t.Helper()
	db, err := store.Open(context.Background(), store.Options{Path: filepath.Join(t.TempDir(), "data", "chats.db"), Ballast: -1, MinFree: 1 << 62})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	chats := live.New(engine, live.Options{Store: db})
	server := httptest.NewServer(handlers.New(handlers.Config{Engine: engine, Live: chats, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	t.Cleanup(chats.Close)
	return server, chats
}

func TestAFullDiskIsSaidAndNothingThatWasWrittenIsLost(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := serveFull(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	b.until("document.querySelector('[data-space]').innerText.includes('The disk of the data folder is nearly full')")
	b.say("Keep this")
	b.until("document.querySelector('#senderror').innerText.includes('The disk is full')")
	b.until("document.querySelector('#message').value === 'Keep this'")
	b.shot("disk-full")
	b.click("[data-temporary]")
	b.script(`document.querySelector('#composer').requestSubmit()`)
	answer := engine.Next(t)
	answer.Write("A temporary chat needs no disk.")
	answer.Finish()
	b.until(idle)
	b.clean()

	got := handlerstest.Submit(t, server, "/", url.Values{"text": {"Keep this"}})
	if got.Status != http.StatusInsufficientStorage || !strings.Contains(got.Body, ">Keep this</textarea>") {
		t.Errorf("the form got %d", got.Status)
	}
	file := `{"format":"` + page.ExportFormat + `","title":"x","messages":[{"id":1,"role":"user","state":"done","text":"x"}]}`
	if got := handlerstest.Post(t, server, "/import", file, "Origin", server.URL, "Accept", "application/json"); got.Status != http.StatusInsufficientStorage || !strings.Contains(got.Body, "free some space") {
		t.Errorf("the import got %d: %s", got.Status, got.Body)
	}
}

func TestAServerThatStopsSaysSoOnThePage(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	chats := live.New(engine, live.Options{})
	server := httptest.NewServer(handlers.New(handlers.Config{Engine: engine, Live: chats, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	b := openBrowser(t, server)
	b.open("/")
	b.say("Hello")
	engine.Next(t).Write("One")
	b.until(lastAnswerIs("One"))
	chats.Close()
	b.until("document.querySelector('[data-connbar]').innerText.startsWith('The server is stopping. What was written is kept. Trying again in')")
}
