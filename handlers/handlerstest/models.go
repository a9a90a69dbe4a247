package handlerstest

import (
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

	"m40-llm/handlers"
	"m40-llm/handlers/compare"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/handlers/presets"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
	"m40-llm/infer/hub/hubtest"
	"m40-llm/infer/placement"
	"m40-llm/infer/suggest"
	"m40-llm/store"
)

// RemoteModel is what the registry of these tests has: some hundred kilobytes.
var RemoteModel = gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 128, Layers: 4, FFN: 256})

// RemoteFile is the name of RemoteModel in the registry.
const RemoteFile = "Remote-Q8_0.gguf"

// ModelServer is a server with the real engine, store and models folder, and a registry
// on this machine.
type ModelServer struct {
	*httptest.Server
	Registry *hubtest.Registry
	Dir      string
	Memory   atomic.Int64 // that is said to be free
	Disk     atomic.Int64
	Stop     func()
}

// NewModelRegistry returns a registry that has RemoteModel and a file with weights that are not supported.
func NewModelRegistry(t testing.TB) *hubtest.Registry {
	return hubtest.New(t, map[string][]byte{
		RemoteFile:         RemoteModel,
		"Remote-Q1_0.gguf": gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q1_0, Dim: 256, FFN: 256}),
	}, "")
}

// ServeModels starts a server whose data is in dir, with the models folder inside.
func ServeModels(t testing.TB, dir string, registry *hubtest.Registry, change ...func(*handlers.Config)) *ModelServer {
	t.Helper()
	s := &ModelServer{Registry: registry, Dir: filepath.Join(dir, "models")}
	s.Memory.Store(8e9)
	s.Disk.Store(212e9)
	catalog := hub.New(hub.Options{Dir: s.Dir, Builtin: map[string][]byte{"guide": guide.Model}, Types: cpu.WeightTypes()})
	catalog.SetMachine(func() placement.Machine { return placement.Machine{Devices: []device.Info{{Memory: s.Memory.Load()}}} })
	puller, err := hub.NewPuller(catalog, hub.PullOptions{
		Endpoint:   registry.API.URL,
		Library:    registry.API.URL,
		FreeMemory: s.Memory.Load,

		ReadBandwidth: func(context.Context, placement.Machine) []float64 { return []float64{1e9} },

		FreeDisk: func(string) (int64, error) { return s.Disk.Load(), nil },
		Sleep:    func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := engine.Open(engine.Options{
		Catalog:    catalog,
		OpenDevice: func(*gguf.File) (device.Device, error) { return cpu.Open(1) },
		Model:      "guide",
	})
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(context.Background(), store.Options{Path: filepath.Join(dir, "chats.db"), Ballast: -1, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	chats := live.New(engine, live.Options{Log: log, Store: db})
	onDisk := models.New(models.Options{Engine: engine, Files: catalog, Puller: puller, Log: log, Reload: engine.Reload,
		Suggest: func() ([]suggest.Suggestion, error) {
			return suggest.For(placement.Machine{Devices: []device.Info{{Kind: "cpu", Memory: s.Memory.Load()}}})
		}})
	named := presets.New(chats, db)
	cfg := handlers.Config{Engine: engine, Live: chats, Presets: named, Compare: compare.New(chats, named, db), Models: onDisk, Logger: log}
	for _, f := range change {
		f(&cfg)
	}
	s.Server = httptest.NewServer(handlers.New(cfg))
	stopped := false
	s.Stop = func() {
		if stopped {
			return
		}
		stopped = true
		onDisk.Close()
		chats.Close()
		s.CloseClientConnections()
		s.Close()
		engine.Close()
		_ = db.Close()
	}
	t.Cleanup(s.Stop)
	if err := engine.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// Put writes a file into the models folder.
func (s *ModelServer) Put(t testing.TB, name string, data []byte) {
	t.Helper()
	path := filepath.Join(s.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// HoldBack makes the storage send the first bytes of a file, and then one each 100 ms until the caller opens it.
func HoldBack(registry *hubtest.Registry, first int) (open func()) {
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
