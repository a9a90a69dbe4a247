package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/cli"
	"m40-llm/infer/engine"
	"m40-llm/infer/hub"
	"m40-llm/infer/worker"
)

// closableEngine is what serve needs of an engine, in this process or in a worker.
type closableEngine interface {
	handlers.Engine
	Close() error
}

// openEngine starts the engine of serve at the place that --worker names.
func openEngine(t *cli.Terminal, flags serveFlags, catalog *hub.Hub, logger *slog.Logger, log io.Writer) (closableEngine, error) {
	options, err := flags.options(catalog, *flags.model, *flags.parallel, logger)
	if err != nil {
		return nil, err
	}
	kind, err := flags.kind(*flags.parallel)
	if err != nil {
		return nil, err
	}
	if *flags.where != "always" && *flags.where != "never" {
		return nil, cli.Usagef("--worker %q is neither always nor never", *flags.where)
	}
	if kind.check != nil {
		if err := checkInProcess(*flags.device); err != nil {
			return nil, err
		}
	}
	if *flags.where == "never" {
		return engine.Open(options)
	}
	data, err := flags.dataDir(t)
	if err != nil {
		return nil, err
	}
	there, _ := workerFlags()
	o := worker.Options{
		Args:     append(append([]string{"worker", fmt.Sprintf("--control=%d", worker.ControlFD), "--data=" + data}, flags.all.Shared(there)...), "--model="+*flags.model),
		Model:    options.Model,
		LoadFlag: "load",
		Log:      logger,
		Stderr:   log,
	}
	if kind.gpu {
		o.Fallback = &worker.Fallback{Args: []string{"--device=cpu"}, Kind: "cpu", Device: "the GPU", Name: "the CPU"}
	}
	return worker.Start(o)
}

// checkTime is how long a driver may take to say what it has. The first of a machine wakes
// its GPUs, some seconds each.
const checkTime = time.Minute

// checkInProcess returns nil if the kind of device called name can be used, or why not. It
// asks in a process of its own, since a driver that does not work may crash or hang.
func checkInProcess(name string) error {
	program, err := worker.Program()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "worker", "--check", "--device="+name)
	cmd.Stderr = &said
	err = cmd.Run()
	if err == nil {
		return nil
	}
	for line := range strings.Lines(said.String()) {
		if reason, ok := strings.CutPrefix(line, "m40-llm: "); ok {
			return errors.New(strings.TrimSpace(reason))
		}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it did not answer for %v", checkTime)
	}
	return withAdvice(fmt.Errorf("%s: the driver failed when it was asked for devices: %w", name, err))
}

// workerSettings are the flags of a worker.
type workerSettings struct {
	engineFlags
	model, load       *string
	parallel, control *int
	check             *bool
}

func workerFlags() (*cli.Flags, workerSettings) {
	f := cli.NewFlags("worker", "", "Computes for a server, in a process of its own. m40-llm serve starts it.")
	return f, workerSettings{
		engineFlags: addEngineFlags(f),
		model:       f.String("model", guideName, "NAME|PATH", "model of the server's --model"),
		load:        f.String("load", "", "NAME", "model to load first, if not that"),
		parallel:    f.Int("parallel", defaultParallel, "answers that are written at once; more wait"),
		control:     f.Int("control", 0, "file descriptor of the socket to the server"),
		check:       f.Bool("check", "only say whether --device can be used"),
	}
}

// runWorker is the command worker. It ends with its server, and leaves signals to that.
func runWorker(_ context.Context, t *cli.Terminal, args []string) error {
	f, flags := workerFlags()
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	if *flags.check {
		return checkDevice(flags.deviceFlags)
	}
	if *flags.control < worker.ControlFD {
		return cli.Usagef("this is a part of m40-llm serve, which starts it")
	}
	listener, err := worker.Listen(*flags.control)
	if err != nil {
		return err
	}
	defer listener.Close()
	worker.Yield()
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
	engine, err := engine.Open(options)
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

// checkDevice returns why the device that is asked for cannot be used, if so.
func checkDevice(f deviceFlags) error {
	kind, err := f.kind(0)
	if err != nil || kind.check == nil {
		return err
	}
	return kind.check()
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
