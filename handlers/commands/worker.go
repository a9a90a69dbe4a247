package commands

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/engine"
	"m40-llm/infer/fleet"
	"m40-llm/infer/hub"
	"m40-llm/infer/lease"
	"m40-llm/infer/placement"
	"m40-llm/infer/units"
	"m40-llm/infer/worker"
)

// closableEngine is an engine in this process or in a worker.
type closableEngine interface {
	handlers.Engine
	Reload(ctx context.Context, s infer.Setup) error
	Close() error
}

// openEngine starts the engine of serve, in this process or in workers, one for each loaded model, as --worker says. It also returns the
// fleet of workers, nil in this process, and the function that returns where another model would be placed.
func openEngine(t *cli.Terminal, flags serveFlags, catalog *hub.Hub, logger *slog.Logger, log io.Writer) (closableEngine, *fleet.Fleet, func() placement.Machine, error) {
	options, err := flags.engineOptions(t, catalog, logger)
	if err != nil {
		return nil, nil, nil, err
	}
	memory, err := flags.memoryLimit()
	if err != nil {
		return nil, nil, nil, err
	}
	options.MemoryLimit = memory
	if *flags.worker == "never" {
		if *flags.modelsMax > 1 {
			return nil, nil, nil, cli.Usagef("--models-max %d needs workers: --worker never has one model", *flags.modelsMax)
		}
		e, err := engine.Open(options)
		if err != nil {
			return nil, nil, nil, err
		}
		return e, nil, func() placement.Machine { return flags.machine(e.Status(), *flags.parallel) }, nil
	}
	data := filepath.Dir(options.KVDir)
	var leases lease.Table
	f, err := fleet.New(fleet.Options{
		Find: catalog.Find,
		Start: func(model string, p fleet.Plan) (fleet.Engine, error) {
			o, err := flags.workerOptions(data, model, p)
			if err != nil {
				return nil, err
			}
			o.Log, o.Stderr, o.Join = logger, log, leases.Join
			return worker.Start(o)
		},
		Machine: func() placement.Machine { return flags.hostMachine(*flags.parallel) },
		Main:    cpu.TotalMemory(),
		Model:   options.Model,
		Most:    *flags.modelsMax,
		Memory:  memory,
		Log:     logger,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return f, f, f.Machine, nil
}

// engineOptions checks the flags about the engine and returns its options.
func (flags serveFlags) engineOptions(t *cli.Terminal, catalog *hub.Hub, logger *slog.Logger) (engine.Options, error) {
	options, err := flags.options(catalog, *flags.model, *flags.parallel, logger)
	if err != nil {
		return options, err
	}
	if options.KeepAlive, err = keepAlive(*flags.keepAlive); err != nil {
		return options, err
	}
	data, err := flags.dataDir(t)
	if err != nil {
		return options, err
	}
	options.KVDir = filepath.Join(data, kvFolder)
	kind, err := flags.kind(*flags.parallel)
	if err != nil {
		return options, err
	}
	if *flags.worker != "always" && *flags.worker != "never" {
		return options, cli.Usagef("--worker %q is neither always nor never", *flags.worker)
	}
	if *flags.modelsMax < 0 {
		return options, cli.Usagef("--models-max cannot be negative")
	}
	if kind.check != nil {
		return options, checkInSubprocess(*flags.device)
	}
	return options, nil
}

// workerOptions returns the options of a worker that loads a model as p says.
func (flags serveFlags) workerOptions(data, model string, p fleet.Plan) (worker.Options, error) {
	kind, err := flags.kind(*flags.parallel)
	if err != nil {
		return worker.Options{}, err
	}
	accepted, _ := workerFlags()
	args := append([]string{"worker", fmt.Sprintf("--control=%d", worker.ControlFD), "--data=" + data}, flags.all.Shared(accepted)...)
	o := worker.Options{
		Args:     append(args, "--model="+*flags.model, "--load="+model, fmt.Sprintf("--main-memory=%d", p.Memory), fmt.Sprintf("--whole-plan=%t", p.Whole), fmt.Sprintf("--leases=%d", worker.LeasesFD)),
		Model:    model,
		LoadFlag: "load",
		SetupArgs: func(s infer.Setup) []string {
			return []string{fmt.Sprintf("--ctx=%d", s.ContextLength), "--kv=" + s.CacheType, fmt.Sprintf("--threads=%d", s.Threads), "--draft=" + cmp.Or(s.Draft, engine.DraftAuto)}
		},
	}
	if p.Setup != nil {
		o.Args = append(o.Args, o.SetupArgs(*p.Setup)...)
	}
	if kind.gpu {
		o.Fallback = &worker.Fallback{Args: []string{"--device=cpu"}, Kind: "cpu", Device: "the GPU", Name: "the CPU"}
	}
	return o, nil
}

// memoryLimit returns the bytes of --memory; 0: what is free.
func (flags serveFlags) memoryLimit() (int64, error) {
	if *flags.memory == "" {
		return 0, nil
	}
	n, err := units.ParseByteSize(*flags.memory)
	if err != nil {
		return 0, cli.Usagef("--memory: %v", err)
	}
	return n, nil
}

// checkTime is how long a driver may take to list its devices. The first process on a
// machine that uses the driver initialises the GPUs, which takes some seconds each.
const checkTime = time.Minute

// checkInSubprocess returns an error if the kind of device called name cannot be used. It
// checks in a process of its own, as a broken driver may crash or hang.
func checkInSubprocess(name string) error {
	program, err := worker.Program()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "worker", workerCheck, "--device="+name)
	cmd.Stderr = &output
	err = cmd.Run()
	if err == nil {
		return nil
	}
	for line := range strings.Lines(output.String()) {
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
	keepAlive         *string
	parallel, control *int
	leases            *int
	memory            *int64
	whole             *bool
}

// What a worker does instead of running models, by its argument: check whether --device can be used, or print the read
// bandwidth of the devices, in JSON. No flags, as the environment sets those, and for every worker.
const (
	workerCheck = "check"
	workerProbe = "probe"
)

func workerFlags() (*cli.Flags, workerSettings) {
	f := cli.NewFlags("worker", "", "Runs models for a server, in a process of its own. m40-llm serve starts it.")
	return f, workerSettings{
		engineFlags: addEngineFlags(f),
		model:       f.String("model", guideName, "NAME|PATH", "value of the server's --model"),
		load:        f.String("load", "", "NAME", "model to load instead, if not empty"),
		parallel:    f.Int("parallel", defaultParallel, "answers that are generated at once; further ones wait"),
		keepAlive:   keepAliveFlag(f),
		memory:      f.Int64("main-memory", 0, "bytes of main memory that the model may take; 0: what is free"),
		whole:       f.Bool("whole-plan", "fail where memory is refused that is planned, instead of trying with less"),
		leases:      f.Int("leases", 0, "file descriptor of the socket by which it takes turns at devices; 0: it has them alone"),
		control:     f.Int("control", 0, "file descriptor of the socket to the server"),
	}
}

// runWorker executes the command worker. The worker ignores signals and exits when its
// server does.
func runWorker(_ context.Context, t *cli.Terminal, args []string) error {
	f, flags := workerFlags()
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	switch {
	case slices.Equal(rest, []string{workerCheck}):
		return checkDevice(flags.deviceFlags)
	case slices.Equal(rest, []string{workerProbe}):
		return printBandwidth(t.Out, *flags.device, *flags.threads)
	case len(rest) > 0 || *flags.control < worker.ControlFD:
		return cli.Usagef("worker is not for the command line: m40-llm serve starts it")
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
	if options.KeepAlive, err = keepAlive(*flags.keepAlive); err != nil {
		return err
	}
	options.MemoryLimit, options.WholePlan, options.GPUs = *flags.memory, *flags.whole, flags.gpus
	if *flags.leases > 0 {
		if options.Leases, err = lease.Open(*flags.leases); err != nil {
			return err
		}
	}
	if *flags.load != "" {
		options.Model = *flags.load
	}
	data, err := flags.dataDir(t)
	if err != nil {
		return err
	}
	options.KVDir = filepath.Join(data, kvFolder)
	engine, err := engine.Open(options)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:  handlers.NewWorker(handlers.Config{Engine: engine, Logger: logger, Version: version}),
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	server.Serve(listener) // until the server has ended
	// Close waits for the running step of the engine and drops its result.
	time.AfterFunc(time.Second, func() { os.Exit(cli.ExitOK) })
	server.Close()
	return engine.Close()
}

// gpus lists the GPUs that models may be on.
func (flags workerSettings) gpus() (list []infer.Memory) {
	kind, err := flags.kind(*flags.parallel)
	if err != nil || !kind.gpu || cuda.Installed() != nil {
		return nil
	}
	gpus, err := cuda.List(kind.among...)
	if err != nil {
		return nil // the model is on another device, and its notice says why
	}
	for _, gpu := range gpus {
		list = append(list, infer.Memory{Device: gpu.Name, Kind: gpu.Kind, Total: gpu.Memory})
	}
	return list
}

// checkDevice returns an error if the device that --device names cannot be used.
func checkDevice(f deviceFlags) error {
	kind, err := f.kind(0)
	if err != nil || kind.check == nil {
		return err
	}
	return kind.check()
}

// always is the value of --keep-alive with which models are not unloaded.
const always = "always"

func keepAliveFlag(f *cli.Flags) *string {
	return f.String("keep-alive", always, "TIME|always", "unload a model that was unused for that time, such as 30m; the next request loads it again")
}

// keepAlive parses the value of --keep-alive; 0: always.
func keepAlive(value string) (time.Duration, error) {
	if value == always {
		return 0, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < time.Second {
		return 0, cli.Usagef("--keep-alive %q is neither a time of a second or more, such as 30m or 1h30m, nor always", value)
	}
	return d, nil
}

func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// sharedWriter serialises the logs of the server and its worker on one writer.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
