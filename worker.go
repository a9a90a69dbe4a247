package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/hub"
	"m40-llm/infer/upstream"
)

// engine is what serve needs of one, in this process or in a worker.
type engine interface {
	handlers.Engine
	Close() error
}

// openEngine starts the engine of serve, whose flags are f, where --worker wants it.
func openEngine(t *cli.Terminal, f *cli.Flags, flags engineFlags, worker string, catalog *hub.Hub, model string, parallel int, logger *slog.Logger, log io.Writer) (engine, error) {
	options, err := flags.options(catalog, model, parallel, logger)
	if err != nil {
		return nil, err
	}
	kind, err := flags.kind(parallel)
	if err != nil {
		return nil, err
	}
	switch worker {
	case "always", "auto", "never":
	default:
		return nil, cli.Usagef("--worker %q is none of auto, always and never", worker)
	}
	if worker == "never" || worker == "auto" && !kind.gpu {
		return infer.Open(options)
	}
	data, err := flags.dataDir(t)
	if err != nil {
		return nil, err
	}
	there, _ := workerFlags()
	o := upstream.Options{
		Args:     append(append([]string{"worker", fmt.Sprintf("--control=%d", upstream.ControlFD), "--data=" + data}, f.Shared(there)...), "--model="+model),
		Model:    options.Model,
		LoadFlag: "load",
		Log:      logger,
		Stderr:   log,
	}
	if kind.gpu {
		o.Fallback = &upstream.Fallback{Args: []string{"--device=cpu"}, Kind: "cpu", Device: "the GPU", Name: "the CPU"}
	}
	return upstream.Start(o)
}

// workerSettings are the flags of a worker.
type workerSettings struct {
	engineFlags
	model, load       *string
	parallel, control *int
}

func workerFlags() (*cli.Flags, workerSettings) {
	f := cli.NewFlags("worker", "", "Computes for a server, in a process of its own. m40-llm serve starts it.")
	return f, workerSettings{
		engineFlags: addEngineFlags(f),
		model:       f.String("model", guideName, "NAME|PATH", "model of the server's --model"),
		load:        f.String("load", "", "NAME", "model to load first, if not that"),
		parallel:    f.Int("parallel", defaultParallel, "answers that are written at once; more wait"),
		control:     f.Int("control", 0, "file descriptor of the socket to the server"),
	}
}

// worker is the command worker. It ends with its server, and leaves signals to that.
func worker(_ context.Context, t *cli.Terminal, args []string) error {
	f, flags := workerFlags()
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	if *flags.control < upstream.ControlFD {
		return cli.Usagef("this is a part of m40-llm serve, which starts it")
	}
	listener, err := upstream.Listen(*flags.control)
	if err != nil {
		return err
	}
	defer listener.Close()
	upstream.Yield()
	logger := newLogger(t.Err)
	catalog, err := flags.models(t)
	if err != nil {
		return err
	}
	options, err := flags.options(catalog, *flags.model, *flags.parallel, logger)
	if err != nil {
		return err
	}
	if *flags.load != "" {
		options.Model = *flags.load
	}
	engine, err := infer.Open(options)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:  handlers.NewWorker(handlers.Config{Engine: engine, Logger: logger, Version: version}),
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	server.Serve(listener) // until the server has ended
	// The engine ends after its step, which nobody waits for.
	time.AfterFunc(time.Second, func() { os.Exit(cli.ExitOK) })
	server.Close()
	return engine.Close()
}

func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// sharedWriter lets the logs of the server and its worker write to one stream.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
