package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/units"
	"m40-llm/store"
)

// talker is an engine whose answers never end by themselves.
type talker struct{ *handlerstest.Script }

func (talker) Generate(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
				return
			case <-time.After(2 * time.Millisecond):
			}
			if !yield(handlerstest.WordEvent(int32(i), fmt.Sprintf("w%d ", i)), nil) {
				return
			}
		}
	}
}

// playServer is this test binary in the role of a server that will be killed, or stopped.
func playServer(dir string) error {
	db, err := store.Open(context.Background(), store.Options{Path: filepath.Join(dir, "data", "chats.db"), Ballast: -1, MinFree: 1})
	if err != nil {
		return err
	}
	every, err := time.ParseDuration(os.Getenv("HANDLERS_SAVE_EVERY"))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	engine, log := talker{handlerstest.NewScript()}, slog.New(slog.DiscardHandler)
	chats := live.New(engine, live.Options{Store: db, SaveEvery: every})
	server := handlers.NewServer(handlers.New(handlers.Config{Engine: engine, Live: chats, Logger: log}), log)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		chats.Close()
		time.Sleep(100 * time.Millisecond) // for the farewell of sockets, as in a server
		if err := db.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(0)
	}()
	fmt.Println(listener.Addr())
	return server.Serve(listener)
}

// startProcess starts a server of its own process and returns where it listens.
func startProcess(t *testing.T, dir string, saveEvery time.Duration) (*exec.Cmd, string) {
	t.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), "HANDLERS_HELPER="+dir, "HANDLERS_SAVE_EVERY="+saveEvery.String())
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) || line == "" {
		t.Fatalf("the server did not start: %v", err)
	}
	return process, strings.TrimSpace(line)
}

// TestThePageSaysWhatIsTrueOfAServerThatIsGone kills a server, or stops it, while it writes
// an answer that a page shows, and starts it again.
func TestThePageSaysWhatIsTrueOfAServerThatIsGone(t *testing.T) {
	t.Parallel()
	rounds := 1
	if fixtures.Torture() {
		rounds = 20
	}
	dir := t.TempDir()
	process, addr := startProcess(t, dir, time.Hour)
	line := newCable(t, addr) // while the server is gone, nobody else can get the address that the page has
	b := openBrowser(t, &httptest.Server{URL: "http://" + line.Addr().String(), Config: &http.Server{}})
	b.keepTimers(2000) // for which connection.js shows that the server is back
	const text = "[...document.querySelectorAll('.answer .prose')].at(-1).textContent"
	for range rounds {
		for _, c := range []struct {
			name      string
			signal    os.Signal
			saveEvery time.Duration // of the server that is started next
			lost      bool          // text that was shown must be missing
		}{
			{"killed before anything was saved", syscall.SIGKILL, 20 * time.Millisecond, true},
			{"killed while it saves all the time", syscall.SIGKILL, time.Hour, false},
			{"stopped", syscall.SIGTERM, time.Hour, false},
		} {
			b.open("/")
			b.click("[data-raw]") // there the text is on the page as it is
			b.say("Go on")
			b.until(text + ".length > 300")
			b.until("document.querySelector('.answer [data-f=rate]').checkVisibility()")
			if err := process.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_ = process.Wait() // it was killed
			b.until("!document.querySelector('#connbar').hidden")
			b.shot("gone-" + strings.Fields(c.name)[0])
			untrue := map[string]string{
				"the answer is being written":      "document.querySelector('[aria-busy=true]')",
				"the answer has a rate":            "document.querySelector('.answer [data-f=rate]').checkVisibility()",
				"the engine has a rate":            "!document.querySelector('[data-rate]').matches('[data-idle]')",
				"the engine writes":                "document.querySelector('[data-engine=state_text]').innerText !== 'not connected'",
				"the answer's connection is there": "document.querySelector('.answer .why [data-end]').innerText !== 'connection lost'",
				"the answer can be stopped":        "!document.querySelector('[data-stop]').disabled",
			}
			if c.signal == syscall.SIGTERM && b.text(".answer .why [data-end]") == "the server stopped here" { // it may say so before it closes
				delete(untrue, "the answer has a rate")
				delete(untrue, "the answer's connection is there")
			}
			for what, condition := range untrue {
				if b.value("Boolean("+condition+")") != "false" {
					t.Errorf("%s: while it is gone, %s", c.name, what)
				}
			}
			shown := b.value(text)
			process, addr = startProcess(t, dir, c.saveEvery)
			line.lead(addr)
			b.reconnect()
			b.until("document.querySelector('[data-connbar]').textContent.startsWith('Back.')")
			said, saved := b.value("document.querySelector('[data-connbar]').textContent"), b.value(text)
			if b.value("document.querySelector('[data-reconnect]').hidden") != "true" {
				t.Errorf("%s: a server that is back can be tried", c.name)
			}
			b.shot("back-" + strings.Fields(c.name)[0])
			missing := len(shown) - len(saved)
			if missing > 0 && b.value("document.querySelector('#connbar').checkVisibility()") != "true" {
				t.Errorf("%s: the page hides what is missing", c.name)
			}
			want := "Back. Nothing is missing."
			switch {
			case missing == 1:
				want = "Back. 1 character that was shown was not saved: the server was killed."
			case missing > 1:
				want = fmt.Sprintf("Back. %s characters that were shown were not saved: the server was killed.", units.Count(missing))
			}
			if said != want || c.lost && missing < 300 || c.signal == syscall.SIGTERM && missing > 0 {
				t.Errorf("%s: %d characters were shown and %d are saved, and the page says %q, want %q", c.name, len(shown), len(saved), said, want)
			}
			if !strings.HasPrefix(shown, saved) && !strings.HasPrefix(saved, shown) {
				t.Errorf("%s: %q was shown, and %q is saved", c.name, shown, saved)
			}
			b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
			if got := b.text(".answer .why [data-end]"); got != "the server stopped here" {
				t.Errorf("%s: the answer says %q", c.name, got)
			}
		}
	}
}
