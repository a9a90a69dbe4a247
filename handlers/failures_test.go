package handlers_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/page"
	"m40-llm/handlers/setting"
	"m40-llm/store"
)

// failingStore fails inside when something is asked in a chat that there is.
type failingStore struct{ *store.Store }

func (failingStore) Ask(context.Context, string, string, store.NewMessage, store.NewAnswer) (question, answer store.Message, err error) {
	return question, answer, errors.New("the platter fell off")
}

// logged is a log that can be read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serveFailing serves chats of a store that fails, and returns the log.
func serveFailing(t *testing.T, engine handlers.Engine, opt live.Options) (*httptest.Server, *live.Service, *logged) {
	t.Helper()
	db, err := store.Open(context.Background(), store.Options{Path: filepath.Join(t.TempDir(), "data", "chats.db"), Ballast: -1, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	log := &logged{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	opt.Log, opt.Store = logger, failingStore{db}
	chats := live.New(engine, opt)
	server := httptest.NewServer(handlers.New(handlers.Config{Engine: engine, Live: chats, Logger: logger}))
	t.Cleanup(server.Close)
	t.Cleanup(chats.Close)
	return server, chats, log
}

func TestACommandThatFailsInsideIsLogged(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _, log := serveFailing(t, engine, live.Options{})
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "one", "settings": map[string]any{}})
	engine.Next(t).Finish()
	c.Until("the answer", c.Ended)
	if f := c.Reply(c.Send("send", map[string]any{"text": "two", "settings": map[string]any{}})); f.Type != "error" {
		t.Errorf("it was told %+v", f)
	}
	if got := log.String(); !strings.Contains(got, "the platter fell off") || !strings.Contains(got, `msg="a command failed" command=send chat=`+c.Chat) {
		t.Errorf("the log has %s", got)
	}
}

func TestACommandThatPanicsIsLoggedAndEndsItsSocketAlone(t *testing.T) {
	engine := handlerstest.NewScript()
	panics := true
	server, _, log := serveFailing(t, engine, live.Options{Seed: func() int64 {
		if panics {
			panics = false
			panic("no seed left")
		}
		return 1
	}})
	c := handlerstest.DialSocket(t, server)
	c.Send("send", map[string]any{"text": "one", "settings": map[string]any{}})
	for err := error(nil); err == nil; {
		_, err = c.Read()
	}
	if got := log.String(); !strings.Contains(got, "a session panicked") || !strings.Contains(got, "no seed left") || !strings.Contains(got, "newAnswer") {
		t.Errorf("the log has %s", got)
	}
	c = handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "one", "settings": map[string]any{}})
	engine.Next(t).Finish()
	c.Until("the answer", c.Ended)
}

func TestAChatForWhichThereIsNoRoomIsNotSaidToBeGone(t *testing.T) {
	engine := handlerstest.NewScript()
	server, chats, _ := serveFailing(t, engine, live.Options{MaxChats: 1})
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: "kept"}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "x"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chats.Start(context.Background(), access.Local, live.Question{Text: "busy", Settings: setting.Default()}, false); err != nil {
		t.Fatal(err)
	}
	got := handlerstest.Call(t, server, http.MethodGet, "/c/"+id, "")
	if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" || !strings.Contains(got.Body, "wait for one to end") {
		t.Errorf("got %d: %s", got.Status, got.Body)
	}
	engine.Next(t).Finish()
}

func TestAnOldAddressOfAFolderShowsIt(t *testing.T) {
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: "kept"}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "x"}}, 1)
	if err == nil {
		err = chats.List.Move(context.Background(), access.Local, id, "old")
	}
	for _, name := range []string{"new", "newer"} {
		if err == nil {
			_, err = chats.List.RenameFolder(context.Background(), access.Local, map[string]string{"new": "old", "newer": "new"}[name], name)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"old", "new", "newer"} {
		if page := handlerstest.Call(t, server, http.MethodGet, "/?"+url.Values{"folder": {folder}}.Encode(), "").Body; !strings.Contains(page, "/c/"+id) || strings.Contains(page, "No chat is in this folder") {
			t.Errorf("%q does not show the chat", folder)
		}
	}
}

// TestAFileIsImportedAsItComes sends 30 MB slowly, and looks at the memory in between.
func TestAFileIsImportedAsItComes(t *testing.T) {
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := heap(), uint64(0)
	const messages = 3000
	body, out := io.Pipe()
	go func() {
		fmt.Fprintf(out, `{"format":%q,"title":"long","leaf":%d,"messages":[`, page.ExportFormat, messages)
		for i := 1; i <= messages; i++ {
			if i > 1 {
				fmt.Fprint(out, ",")
			}
			fmt.Fprintf(out, `{"id":%d,"parent":%d,"role":"user","state":"done","text":%q,"at":"2026-01-01T00:00:00Z"}`, i, i-1, strings.Repeat("x", 10_000))
			if i%500 == 0 {
				most = max(most, heap())
			}
		}
		fmt.Fprint(out, "]}")
		out.Close()
	}()
	request, err := http.NewRequest(http.MethodPost, server.URL+"/import", body)
	if err != nil {
		t.Fatal(err)
	}
	got := handlerstest.Do(t, server, request, "Accept", "application/json", "Content-Type", "application/json", "Origin", server.URL)
	if got.Status != http.StatusCreated || !strings.Contains(got.Body, `"messages":3000`) {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	if more := int64(most) - int64(before); more > 12<<20 {
		t.Errorf("while 30 MB were imported, %d MB more were in use", more>>20)
	}
	if list, err := chats.List.Conversations(context.Background(), access.Local, store.Filter{}); err != nil || len(list) != 1 || list[0].Title != "long" {
		t.Errorf("the list is %+v, %v", list, err)
	}
}

// TestSlowUploadsDoNotHoldUpImports has more files arrive slowly than are imported at once.
func TestSlowUploadsDoNotHoldUpImports(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	file := fmt.Sprintf(`{"format":%q,"title":"t","leaf":1,"messages":[{"id":1,"role":"user","state":"done","text":"x","at":"2026-01-01T00:00:00Z"}]}`, page.ExportFormat)
	const slow = 4
	uploads := make([]net.Conn, slow)
	for i := range uploads {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		uploads[i] = conn
		fmt.Fprintf(conn, "POST /import HTTP/1.1\r\nHost: %[1]s\r\nOrigin: http://%[1]s\r\nAccept: application/json\r\nContent-Length: %[2]d\r\n\r\n%[3]s", server.Listener.Addr(), len(file), file[:len(file)-1])
	}
	if got := handlerstest.Post(t, server, "/import", file, "Accept", "application/json", "Origin", server.URL); got.Status != http.StatusCreated {
		t.Errorf("beside slow uploads, an import got %d: %s", got.Status, got.Body)
	}
	for i, conn := range uploads {
		fmt.Fprint(conn, file[len(file)-1:])
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusCreated {
			t.Errorf("upload %d got %d", i, response.StatusCode)
		}
	}
}

// TestAClientThatSendsAWholeFileFirstLearnsWhyItIsNotImported sends more than lies in the buffers
// of a connection after what makes the file no chat.
func TestAClientThatSendsAWholeFileFirstLearnsWhyItIsNotImported(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := bytes.Repeat([]byte("no chat\n"), 3<<20)
	fmt.Fprintf(conn, "POST /import HTTP/1.1\r\nHost: %[1]s\r\nOrigin: http://%[1]s\r\nAccept: application/json\r\nContent-Length: %[2]d\r\n\r\n", server.Listener.Addr(), len(body))
	if _, err := conn.Write(body); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("got %d", response.StatusCode)
	}
}

func TestAChatOfTheLastYearComesBack(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	file := func(at string) string {
		return fmt.Sprintf(`{"format":%q,"title":"t","leaf":1,"messages":[{"id":1,"role":"user","state":"done","text":"x","at":%q}]}`, page.ExportFormat, at)
	}
	send := func(at string) handlerstest.Response {
		return handlerstest.Post(t, server, "/import", file(at), "Accept", "application/json", "Origin", server.URL)
	}
	if got := send("9999-12-31T23:59:59-12:00"); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "years 1 to 9999") {
		t.Errorf("a time that is in the year 10000 got %d: %s", got.Status, got.Body)
	}
	got := send("9999-12-31T23:59:59Z")
	var made struct{ Chat string }
	if got.Status = got.Status - http.StatusCreated + http.StatusOK; got.Status != http.StatusOK {
		t.Fatal(got.Body)
	}
	mustDecode(t, got, &made)
	if back := handlerstest.Call(t, server, http.MethodGet, "/c/"+made.Chat+"/export.json", ""); back.Status != http.StatusOK || !strings.Contains(back.Body, "9999-12-31T23:59:59Z") {
		t.Errorf("the export is %d: %s", back.Status, back.Body)
	}
}
