package handlers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
	"m40-llm/infer/hub/hubtest"
	"m40-llm/store"
)

// remoteModel is what the registry of these tests has: some hundred kilobytes.
var remoteModel = gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 128, Layers: 4, FFN: 256})

const remoteFile = "Remote-Q8_0.gguf"

// modelServer is a server with the real engine, store and models folder, and a registry
// on this machine.
type modelServer struct {
	*httptest.Server
	registry *hubtest.Registry
	dir      string
	memory   atomic.Int64 // that is said to be free
	disk     atomic.Int64
	stop     func()
}

// newRegistry has remoteModel, and a file that cannot be computed with.
func newModelRegistry(t testing.TB) *hubtest.Registry {
	return hubtest.New(t, map[string][]byte{
		remoteFile:          remoteModel,
		"Remote-IQ2_S.gguf": gguftest.TinyLlama(gguftest.Llama{Type: gguf.F16}),
	}, remoteFile)
}

// serveModels starts a server whose data is in dir, with the models folder inside.
func serveModels(t testing.TB, dir string, registry *hubtest.Registry, change ...func(*Config)) *modelServer {
	t.Helper()
	s := &modelServer{registry: registry, dir: filepath.Join(dir, "models")}
	s.memory.Store(8e9)
	s.disk.Store(212e9)
	catalog := hub.New(hub.Options{Dir: s.dir, Builtin: map[string][]byte{"guide": guide.Model}, Types: cpu.WeightTypes()})
	puller, err := hub.NewPuller(catalog, hub.PullOptions{
		Endpoint:   registry.API.URL,
		FreeMemory: s.memory.Load,
		FreeDisk:   func(string) (int64, error) { return s.disk.Load(), nil },
		Sleep:      func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := infer.Open(infer.Options{
		Catalog:    catalog,
		OpenDevice: func() (device.Device, error) { return cpu.Open(1) },
		Model:      "guide",
	})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(context.Background(), store.Options{Path: filepath.Join(dir, "chats.db"), Ballast: -1, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	chats := live.New(engine, live.Options{Log: log, Store: kept})
	onDisk := models.New(models.Options{Engine: engine, Files: catalog, Puller: puller, Log: log})
	cfg := Config{Engine: engine, Live: chats, Models: onDisk, Logger: log}
	for _, f := range change {
		f(&cfg)
	}
	s.Server = httptest.NewServer(New(cfg))
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		onDisk.Close()
		chats.Close()
		s.CloseClientConnections()
		s.Close()
		engine.Close()
		_ = kept.Close()
	}
	t.Cleanup(s.stop)
	if err := engine.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// put writes a file into the models folder.
func (s *modelServer) put(t testing.TB, name string, data []byte) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// gate makes the storage send the first bytes of a file, and then hardly any until it is
// opened.
func gate(registry *hubtest.Registry, first int) (open func()) {
	opened := make(chan struct{})
	registry.SetCDN(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
		start := hubtest.RangeStart(r)
		w.Header().Set("Etag", `"one"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)-start))
		if start > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(data)-1, len(data)))
			w.WriteHeader(http.StatusPartialContent)
		}
		if start < first {
			w.Write(data[start:first])
			start = first
		}
		for {
			http.NewResponseController(w).Flush()
			select {
			case <-opened:
				w.Write(data[start:])
				return true
			case <-r.Context().Done():
				return true
			case <-time.After(100 * time.Millisecond):
				w.Write(data[start : start+1])
				start++
			}
		}
	})
	return func() { close(opened) }
}

func (b *browser) openModels(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.origin+path), chromedp.WaitReady("#models"))
	b.until("document.querySelector('[data-picker] [data-loaded]').innerText !== ''")
}

// lookUp asks for a name on the page about the models.
func (b *browser) lookUp(name string) {
	b.t.Helper()
	b.fill("#name", name)
	b.click("#find form button")
}

func card(state string) string {
	return fmt.Sprintf("document.querySelector('[data-download]')?.dataset.state === %q", state)
}

func TestAModelIsDownloadedInTheBrowser(t *testing.T) {
	registry := newModelRegistry(t)
	dir := t.TempDir()
	server := serveModels(t, dir, registry)
	b := openBrowser(t, server.Server)
	run := steps(t, b)

	run("the page lists what is there and says where", func(t *testing.T) {
		server.put(t, "mine/Second-Q8_0.gguf", gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Seed: 3}))
		server.put(t, "broken.gguf", []byte("GGUF and no more"))
		b.openModels("/models")
		for _, want := range []string{"3 models on this machine", "Guide", "Second-Q8_0", "cannot be used", "loaded", "Q8_0"} {
			if got := b.text("main") + b.text("#side"); !bytes.Contains([]byte(got), []byte(want)) {
				t.Errorf("the page says %q, without %q", got, want)
			}
		}
		b.shot("models-light")
	})

	run("a name is looked up before anything is downloaded", func(t *testing.T) {
		b.lookUp("org/repo:Q8_0")
		b.until("document.querySelector('#found')?.innerText.includes('Remote-Q8_0.gguf')")
		for _, want := range []string{"fits", "Download 727 kB", "Checked by SHA-256", "of 8.00 GB free", "of 212.00 GB free"} {
			if got := b.text("#found"); !bytes.Contains([]byte(got), []byte(want)) {
				t.Errorf("it says %q, without %q", got, want)
			}
		}
		if len(registry.Asked("cdn")) != 0 {
			t.Error("the file was asked for already")
		}
		b.shot("models-found-light")
	})

	half := len(remoteModel) / 2
	open := gate(registry, half)
	run("the progress is shown, after a reload and in a second window too", func(t *testing.T) {
		b.click("#found form .btn.primary")
		b.until(card("running"))
		half := fmt.Sprintf("parseInt(document.querySelector('[data-field=amount]').innerText) >= %d", half/1000)
		b.until(half)
		b.shot("models-pull-light")
		b.do(chromedp.Reload(), chromedp.WaitReady("#models"))
		b.until(half)
		other := openBrowser(t, server.Server)
		other.openModels("/models")
		other.until(half)
		other.click("[data-download] form[action$=pause] button")
		other.until(card("paused"))
		b.until(card("paused"))
		other.clean()
	})

	restart := func() { server = serveModels(t, dir, registry) } // until the whole test ends
	run("after a restart of the server the download is there and goes on", func(t *testing.T) {
		b.clean()
		b.do(chromedp.Navigate("about:blank"))
		server.stop()
		b.requests = nil // of another origin
		restart()
		b.origin = server.URL
		b.openModels("/models")
		b.until(card("paused"))
		if got := b.text("[data-download]"); !bytes.Contains([]byte(got), []byte("Resume")) {
			t.Errorf("the card says %q", got)
		}
		before := len(registry.Asked("cdn"))
		b.click("[data-download] form[action$=resume] button")
		b.until(card("running"))
		open()
		b.until(card("done"))
		if asked := registry.Asked("cdn"); len(asked) != before+1 || asked[before].Header.Get("Range") < fmt.Sprintf("bytes=%d-", half) {
			t.Errorf("it asked for %v", asked[before:])
		}
		b.until("document.querySelector('#list').innerText.includes('Remote-Q8_0')")
		if got := b.text("[data-download]"); !bytes.Contains([]byte(got), []byte("SHA-256 checked")) {
			t.Errorf("the card says %q", got)
		}
		b.shot("models-done-light")
	})

	run("the model can be used at once", func(t *testing.T) {
		b.click("[data-download] a.primary")
		b.until("document.querySelector('#message')")
		b.until("document.querySelector('[data-chosen]').innerText.includes('loads with the next message')")
		b.shot("models-use-light")
		b.say("hello")
		b.until(idle)
		b.until("document.querySelector('.answer:last-child [data-f=by]').innerText.includes('Remote-Q8_0')")
		b.until("document.querySelector('[data-picker] [data-engine=name]').checkVisibility() && document.querySelector('[data-picker] [data-engine=name]').innerText === 'Remote-Q8_0'")
	})
	b.clean()
}
