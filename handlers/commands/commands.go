// Package commands is the commands of m40-llm. It is the only one that puts concrete
// devices, the engine, the store and the routes together.
package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"m40-llm/handlers"
	"m40-llm/handlers/cli"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/infer/bench"
	"m40-llm/infer/chat"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
	"m40-llm/infer/tokenizer"
	"m40-llm/store"
)

const version = "0.1.0"

// guideName is what the built-in model is called.
const guideName = "guide"

// Main executes the command line of this process and returns its exit code.
func Main() int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	t := &cli.Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Signals: signals}
	return run(context.Background(), t, os.Args[1:])
}

type command func(ctx context.Context, t *cli.Terminal, args []string) error

var commands = map[string]command{
	"serve":    serve,
	"run":      runModel,
	"list":     listModels,
	"pull":     pullModel,
	"show":     showModel,
	"rm":       removeModel,
	"restore":  restoreChats,
	"bench":    benchmark,
	"tokenize": tokenize,
	"template": template,
	"version":  printVersion,
	"worker":   runWorker,
}

// run executes the command that args begin with, serve if none, and returns the exit
// code.
func run(ctx context.Context, t *cli.Terminal, args []string) int {
	name := "serve"
	switch {
	case len(args) > 0 && (args[0] == "--version" || args[0] == "-v"):
		name, args = "version", args[1:]
	case len(args) > 1 && args[0] == "help":
		name, args = args[1], []string{"-h"}
	case len(args) > 0 && slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]):
		cli.Overview(t.Out)
		args = []string{"-h"}
	case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		name, args = args[0], args[1:]
	}
	execute, ok := commands[name]
	if !ok {
		return t.Exit(cli.Usagef("there is no command %q; see m40-llm -h", name))
	}
	err := execute(ctx, t, args)
	if errors.Is(err, cli.ErrHelp) {
		return cli.ExitOK
	}
	return t.Exit(err)
}

// folders are the flags that say where files are.
type folders struct {
	data, models *string
}

func folderFlags(f *cli.Flags) folders {
	return folders{
		data:   f.String("data", "", "DIR", "folder of this program's files (default ~/.m40-llm)"),
		models: f.String("models", "", "DIR", "folder of models, used where they lie (default models in --data)"),
	}
}

// dataDir is the folder of this program's files.
func (f folders) dataDir(t *cli.Terminal) (string, error) {
	if *f.data != "" {
		return *f.data, nil
	}
	home := t.Env("HOME")
	if home == "" {
		return "", cli.Usagef("there is no home folder in the environment (HOME); say --data DIR")
	}
	return filepath.Join(home, ".m40-llm"), nil
}

// catalog lists the models that the folders and the program hold. types are the formats
// of weights that can be computed with; nil: any will do.
func (f folders) catalog(t *cli.Terminal, types []gguf.Type) (*hub.Hub, error) {
	dir := *f.models
	if dir == "" {
		data, err := f.dataDir(t)
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(data, "models")
	}
	return hub.New(hub.Options{Dir: dir, Builtin: map[string][]byte{guideName: guide.Model}, Types: types}), nil
}

// noteMissing says that the folder which --models names is not there: it may be misspelt.
func (f folders) noteMissing(t *cli.Terminal) {
	if *f.models == "" {
		return
	}
	if _, err := os.Stat(*f.models); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(t.Err, "m40-llm: note: there is no folder %s for models yet; a download makes it\n", cli.Line(strconv.Quote(*f.models)))
	}
}

// deviceFlags say what computes.
type deviceFlags struct {
	folders
	device, kv *string
	threads    *int
}

func addDeviceFlags(f *cli.Flags) deviceFlags {
	return deviceFlags{
		folders: folderFlags(f),
		device:  f.String("device", "auto", "auto|cpu|cuda|ref", "what computes: an NVIDIA GPU (cuda), the vector units of the CPU, or slow plain Go (ref); auto: the GPU if it can, else the CPU"),
		threads: f.Int("threads", 0, "threads of the device; 0: as many as there are cores"),
		kv:      f.String("kv", "f16", "f16|f32", "number format of the KV cache"),
	}
}

// engineFlags are the flags of commands that answer.
type engineFlags struct {
	deviceFlags
	ctx *int
}

func addEngineFlags(f *cli.Flags) engineFlags {
	return engineFlags{
		deviceFlags: addDeviceFlags(f),
		ctx:         f.Int("ctx", 0, "tokens that question and answer may have together; 0: what the model was trained on, or what memory allows"),
	}
}

// most bounds threads and parallel answers: beyond it lies no speed, only memory.
const most = 1024

// defaultParallel is how many answers a server writes at once.
const defaultParallel = 16

// models lists what can be answered with.
func (f engineFlags) models(t *cli.Terminal) (*hub.Hub, error) {
	kind, err := f.kind(0)
	if err != nil {
		return nil, err
	}
	return f.catalog(t, kind.types)
}

// options are those of an engine with the model of catalog that the command line calls
// model.
func (f engineFlags) options(catalog *hub.Hub, model string, parallel int, logger *slog.Logger) (infer.Options, error) {
	kind, err := f.kind(parallel)
	if err != nil {
		return infer.Options{}, err
	}
	if *f.ctx < 0 {
		return infer.Options{}, cli.Usagef("--ctx cannot be negative")
	}
	name, err := catalog.Name(model)
	if err != nil {
		return infer.Options{}, err
	}
	o := infer.Options{
		Catalog:       catalog,
		OpenDevice:    func(file *gguf.File) (device.Device, error) { return kind.open(file, *f.threads, logger) },
		Model:         name,
		ContextLength: *f.ctx,
		CacheType:     *f.kv,
		Parallel:      parallel,
		Logger:        logger,
		Version:       version,
		FreeMemory:    cpu.FreeMemory,
	}
	if kind.gpu {
		o.OpenHost = func() (device.Device, error) { return cpu.Open(*f.threads) }
	}
	return o, nil
}

// serve is the command serve.
func serve(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("serve", "", "Serves the playground and the API until it is stopped. This is what m40-llm does without a command.")
	flags := addEngineFlags(f)
	addr := f.String("addr", "127.0.0.1:8080", "HOST:PORT", "where to listen; port 0 picks a free one")
	model := f.String("model", "", "NAME|PATH", "model to load first (default: the one used last, else "+guideName+")")
	parallel := f.Int("parallel", defaultParallel, "answers that are written at once; more wait")
	where := f.String("worker", "auto", "auto|always|never", "compute in a process of its own, whose crash ends no chat; auto is the same as always")
	open := f.Bool("open", "open the browser; without the flag that happens on a desktop terminal only")
	lan := f.Bool("lan", "let other machines in; takes --api-key")
	apiKey := f.String("api-key", "", "K", "key that every request must bring, as a bearer token or by logging in")
	allowHost := f.List("allow-host", "H", "further host name that requests may be addressed to; can be repeated")
	corsOrigins := f.List("cors-origin", "O", "origin of a foreign page or app that may call /v1, such as https://example.org, app://obsidian.md or null; can be repeated")
	trusted := f.List("trusted-proxy", "CIDR|IP", "reverse proxy whose X-Forwarded-For, X-Forwarded-Proto or Forwarded says who the client is; can be repeated")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	if *lan && !f.Given("addr") {
		*addr = ":8080"
	}
	if err := cli.CheckNames(*allowHost, *corsOrigins); err != nil {
		return err
	}
	proxies, err := cli.Networks(*trusted)
	if err != nil {
		return err
	}
	listenAddr, err := cli.ListenAddr(*addr, *lan, *apiKey)
	if err != nil {
		return err
	}
	listener, err := cli.Listen(ctx, listenAddr)
	if err != nil {
		return err
	}
	defer listener.Close()

	log := &sharedWriter{w: t.Err}
	logger := newLogger(log)
	catalog, err := flags.models(t)
	if err != nil {
		return err
	}
	flags.noteMissing(t)
	kept, err := openStore(ctx, t, flags.folders, logger)
	if err != nil {
		return err
	}
	if *model == "" {
		*model = modelUsedLast(ctx, catalog, kept, logger)
	}
	engine, err := openEngine(t, f, flags, *where, catalog, *model, *parallel, logger, log)
	if err != nil {
		return errors.Join(err, kept.Close())
	}
	machine := func() infer.Machine { return flags.machine(engine.Status(), *parallel) }
	catalog.FitInto(machine)
	puller, err := newPuller(t, catalog, func() int64 { return freeMemory(machine()) }, false)
	if err != nil {
		return errors.Join(err, engine.Close(), kept.Close())
	}
	within, endUpkeep := context.WithCancel(ctx)
	var upkeep sync.WaitGroup
	upkeep.Go(func() { kept.KeepBackups(within, backupEvery) })
	upkeep.Go(func() { keepModelUsed(within, engine, kept, logger) })
	onDisk := models.New(models.Options{Engine: engine, Files: catalog, Puller: puller, Log: logger})
	chats := live.New(engine, live.Options{Store: kept, Log: logger})
	hosts := *allowHost
	if notice := cli.KeyNotice(*apiKey, *lan); notice != "" {
		fmt.Fprintf(t.Err, "m40-llm: note: %s\n", notice)
	}
	if *lan {
		hostname, _ := os.Hostname() // without one, the addresses must do
		hosts = append(hosts, cli.HostNames(hostname)...)
		for _, url := range cli.NetworkURLs(listener) {
			fmt.Fprintf(t.Err, "m40-llm: other machines reach it at %s, not encrypted\n", url)
		}
	}
	server := handlers.NewServer(handlers.New(handlers.Config{
		Engine:      engine,
		Live:        chats,
		Models:      onDisk,
		Logger:      logger,
		Version:     version,
		APIKey:      *apiKey,
		AllowHosts:  hosts,
		CORSOrigins: *corsOrigins,

		TrustedProxies: proxies,
	}), logger)
	if *open || !f.Given("open") && cli.OnDesktop(t) {
		if err := cli.OpenBrowser(cli.URL(listener)); err != nil {
			logger.Warn(err.Error())
		}
	}
	var closed error
	err = cli.Serve(ctx, t, server, handlers.LimitListener(listener, proxies), func() {
		onDisk.Close()
		chats.Close()
		endUpkeep()
		upkeep.Wait()
		engine.Close()
		closed = kept.Close()
	})
	if closed != nil {
		err = errors.Join(err, fmt.Errorf("the chats could not be closed cleanly: %w", closed))
	}
	return err
}

const (
	chatsFile   = "chats.db"         // in the data folder
	keepDeleted = 7 * 24 * time.Hour // how long a deleted chat can be restored
	backupEvery = 24 * time.Hour
)

// openStore opens the chats in the data folder, and erases those deleted long ago:
// erasing holds up writers, and now nothing is being written.
func openStore(ctx context.Context, t *cli.Terminal, f folders, logger *slog.Logger) (*store.Store, error) {
	dir, err := f.dataDir(t)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, chatsFile)
	_, missing := os.Stat(path)
	kept, err := store.Open(ctx, store.Options{Path: path, Log: logger})
	if _, locked := errors.AsType[*store.LockedError](err); locked {
		return nil, fmt.Errorf("%w: %w", cli.ErrRunning, err)
	}
	if err != nil {
		return nil, err
	}
	if backups, err := store.Backups(path); errors.Is(missing, fs.ErrNotExist) && err == nil && len(backups) > 0 {
		fmt.Fprintf(t.Err, "m40-llm: note: there was no %s, so the chats begin anew; m40-llm restore lists %d backups of those that were there\n", cli.Line(strconv.Quote(path)), len(backups))
	}
	if _, err := kept.EraseDeleted(ctx, time.Now().Add(-keepDeleted)); err != nil {
		logger.Warn("deleted chats could not be erased", "error", err)
	}
	return kept, nil
}

// restoreChats is the command restore.
func restoreChats(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("restore", "[NUMBER]", `Puts back the backup of the chats with this number; without one it lists the backups.
The server must not run. The chats that are there now are kept beside, under another name.`)
	dirs := folderFlags(f)
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	dir, err := dirs.dataDir(t)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, chatsFile)
	backups, err := store.Backups(path)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		if len(backups) == 0 {
			return fmt.Errorf("there are no backups of %s yet; serve makes one a day", path)
		}
		rows := make([]cli.Backup, len(backups))
		for i, b := range backups {
			rows[i] = cli.Backup{Number: b.Number, Made: b.Made, Size: b.Size}
		}
		return cli.Backups(t.Results(), rows)
	}
	number, err := strconv.Atoi(rest[0])
	if err != nil {
		return cli.Usagef("%q is no number of a backup; m40-llm restore lists them", rest[0])
	}
	at := slices.IndexFunc(backups, func(b store.Backup) bool { return b.Number == number })
	if at < 0 {
		return fmt.Errorf("there is no backup %d; m40-llm restore lists them", number)
	}
	replaced, err := store.Restore(ctx, store.Options{Path: path}, backups[at].Path)
	if _, locked := errors.AsType[*store.LockedError](err); locked {
		return fmt.Errorf("%w: %w", cli.ErrRunning, err)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(t.Err, "m40-llm: the chats are those of %s again\n", backups[at].Made.Local().Format("2006-01-02 15:04"))
	if replaced != "" {
		fmt.Fprintf(t.Err, "m40-llm: the chats that were there are kept as %s\n", replaced)
	}
	return nil
}

// runModel is the command run.
func runModel(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("run", "[MODEL] [PROMPT]", "Chats in the terminal. With a prompt, or with text piped in, it writes one answer and exits.")
	flags := addEngineFlags(f)
	request := infer.DefaultRequest()
	p := &request.Params
	sampling := f.Sampling(p)
	seed := f.Int64("seed", p.Seed, "seed of the choices, the same gives the same answer; -1: a new one each time")
	maxTokens := f.Int("max-tokens", request.MaxTokens, "longest answer; -1: until the context is full")
	system := f.String("system", "", "TEXT", "system prompt")
	schema := f.String("json-schema", "", "FILE", "JSON Schema that answers are held to")
	grammar := f.String("grammar", "", "FILE", "grammar in GBNF that answers are held to")
	raw := f.Bool("raw", "write the answer as it is, escape sequences included; for files and pipes only")
	rest, err := f.Parse(t, args, 2)
	if err != nil {
		return err
	}
	if err := sampling(); err != nil {
		return err
	}
	if *maxTokens < -1 || *maxTokens == 0 {
		return cli.Usagef("--max-tokens %d must be at least 1, or -1: until the context is full", *maxTokens)
	}
	p.Seed = *seed
	request.MaxTokens = *maxTokens
	if err := readForm(&request, *schema, *grammar); err != nil {
		return err
	}
	if *raw && cli.IsTerminal(t.Out) {
		return cli.Usagef("--raw writes to files and pipes only: on a terminal, a model could send it escape sequences")
	}
	catalog, err := flags.models(t)
	if err != nil {
		return err
	}
	flags.noteMissing(t)
	model, asked := guideName, rest
	question := false
	if len(rest) == 1 {
		if question, err = isQuestion(ctx, catalog, rest[0]); err != nil {
			return err
		}
	}
	if len(rest) > 0 && !question {
		model, asked = rest[0], rest[1:]
	}
	once := len(asked) > 0 || !cli.IsTerminal(t.In)
	if len(rest) < 2 && !cli.IsTerminal(t.In) {
		text, err := io.ReadAll(t.In)
		if err != nil {
			return fmt.Errorf("failed to read the prompt: %w", err)
		}
		if piped := strings.TrimRight(string(text), "\r\n"); piped != "" {
			asked = append(asked, piped) // what a question is about
		}
	}
	prompt := strings.Join(asked, "\n\n")
	options, err := flags.options(catalog, model, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	engine, err := infer.Open(options)
	if err != nil {
		return err
	}
	defer engine.Close()
	request.Model = options.Model
	conversation := &cli.Chat{Engine: engine, Request: request, System: *system, Raw: *raw, Terminal: t, Notice: func() string { return engine.Status().Notice }}
	if !once {
		return conversation.Loop(ctx)
	}
	err = conversation.Once(ctx, prompt)
	if e, ok := errors.AsType[*infer.Error](err); ok && e.Code == infer.CodeInvalid {
		return cli.Usagef("%s; see m40-llm run -h", e.Message)
	}
	return err
}

// isQuestion reports whether arg, the only argument of run, is no model but a question to
// the model that is built in. The error is that of a name which looks like a model's and is
// none: it tells the nearest ones.
func isQuestion(ctx context.Context, catalog *hub.Hub, arg string) (bool, error) {
	_, missing := catalog.Name(arg)
	if missing == nil {
		return false, nil
	}
	if strings.ContainsFunc(arg, unicode.IsSpace) {
		return true, nil
	}
	models, err := catalog.Models(ctx)
	if err != nil {
		return false, err
	}
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Name
	}
	near := cli.Nearest(arg, names)
	if len(near) == 0 && !strings.ContainsAny(arg, "0123456789:/\\_") && !strings.HasSuffix(strings.ToLower(arg), ".gguf") {
		return true, nil
	}
	hint := ""
	if len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "? "
	}
	return false, cli.Usagef("%s. %sA question goes behind the model: m40-llm run %s %q", missing, hint, guideName, arg)
}

// readForm reads what the answer is held to from files; "" for none.
func readForm(r *infer.Request, schema, grammar string) error {
	if schema != "" {
		text, err := os.ReadFile(schema)
		if err != nil {
			return fmt.Errorf("failed to read the schema: %w", err)
		}
		r.JSONSchema = text
	}
	if grammar != "" {
		text, err := os.ReadFile(grammar)
		if err != nil {
			return fmt.Errorf("failed to read the grammar: %w", err)
		}
		r.Grammar = string(text)
	}
	return nil
}

// listModels is the command list.
func listModels(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("list", "", "Lists the models on this machine, the built-in one included.")
	dirs := folderFlags(f)
	asJSON := f.Bool("json", "print a JSON array instead of a table")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	catalog, err := dirs.catalog(t, cpu.WeightTypes())
	if err != nil {
		return err
	}
	dirs.noteMissing(t)
	catalog.FitInto(thisMachine())
	models, err := catalog.Models(ctx)
	if err != nil {
		return err
	}
	return cli.List(t.Results(), models, *asJSON)
}

// pullModel is the command pull.
func pullModel(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("pull", "NAME", `Downloads a model into the models folder. NAME is org/repo or org/repo:quant of Hugging Face, such as
Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0, or the https address of a .gguf file. A download that was
stopped goes on with the same command.

environment: HF_TOKEN is the token for repositories that ask for one, HF_ENDPOINT another server
that answers like https://huggingface.co.`)
	dirs := folderFlags(f)
	force := f.Bool("force", "download even what this program cannot compute with")
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return cli.Usagef("say what to pull; see m40-llm pull -h")
	}
	catalog, err := dirs.catalog(t, cpu.WeightTypes())
	if err != nil {
		return err
	}
	machine := thisMachine()
	catalog.FitInto(machine)
	puller, err := newPuller(t, catalog, func() int64 { return freeMemory(machine()) }, true)
	if err != nil {
		return err
	}
	return cli.Pull(ctx, t, puller, rest[0], *force)
}

// newPuller returns what downloads into the folder of catalog. Only the command line may
// name addresses.
func newPuller(t *cli.Terminal, catalog *hub.Hub, freeMemory func() int64, addresses bool) (*hub.Puller, error) {
	puller, err := hub.NewPuller(catalog, hub.PullOptions{
		Endpoint:   t.Env("HF_ENDPOINT"),
		Token:      t.Env("HF_TOKEN"),
		Version:    version,
		Addresses:  addresses,
		FreeMemory: freeMemory,
	})
	if err != nil {
		return nil, cli.Usagef("%v", err)
	}
	return puller, nil
}

// showModel is the command show.
func showModel(_ context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("show", "NAME|PATH", "Shows what a model file says about itself.")
	dirs := folderFlags(f)
	asJSON := f.Bool("json", "print a JSON object instead of tables")
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return cli.Usagef("say which model to show; m40-llm list names them")
	}
	catalog, err := dirs.catalog(t, cpu.WeightTypes())
	if err != nil {
		return err
	}
	name, err := catalog.Name(rest[0])
	if err != nil {
		return err
	}
	catalog.FitInto(thisMachine())
	details, err := catalog.Details(name)
	if err != nil {
		return err
	}
	return cli.Show(t.Results(), details, *asJSON)
}

// removeModel is the command rm.
func removeModel(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("rm", "NAME", "Deletes a model of the models folder, or what is there of a download that was stopped.")
	dirs := folderFlags(f)
	yes := f.Bool("yes", "do not ask")
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return cli.Usagef("say which model to delete; m40-llm list names them")
	}
	catalog, err := dirs.catalog(t, nil)
	if err != nil {
		return err
	}
	model, err := catalog.Removable(rest[0])
	if err != nil {
		return err
	}
	return cli.Remove(ctx, t, model, *yes, catalog.Remove)
}

// openFile opens a model by its name or its path. By path, a file with a vocabulary and
// no weights will do.
func openFile(catalog *hub.Hub, arg string) (*gguf.File, error) {
	f, _, err := catalog.Open(arg)
	if e, ok := errors.AsType[*infer.Error](err); ok && e.Code == infer.CodeNotFound {
		if _, statErr := os.Stat(arg); statErr == nil {
			return gguf.Open(arg)
		}
	}
	return f, err
}

// tokenize is the command tokenize.
func tokenize(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("tokenize", "< TEXT", "Prints the token ids of the text as a JSON array, as of a raw prompt: with the special tokens\nthat the model file wants added, and those spelled in the text parsed.")
	dirs := folderFlags(f)
	model := f.String("model", guideName, "NAME|FILE", "model whose tokenizer is used; a file needs no weights")
	plain := f.Bool("no-special", "add no special tokens and parse none in the text")
	jsonl := f.Bool("jsonl", "take one JSON string a line, print one array a line")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	catalog, err := dirs.catalog(t, nil)
	if err != nil {
		return err
	}
	file, err := openFile(catalog, *model)
	if err != nil {
		return err
	}
	defer file.Close()
	tok, err := tokenizer.New(file)
	if err != nil {
		return err
	}
	return cli.Tokenize(t.In, t.Out, *jsonl, func(text string) ([]int32, error) {
		return tok.Encode(ctx, text, tokenizer.Options{AddSpecial: !*plain, ParseSpecial: !*plain})
	})
}

// template is the command template.
func template(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("template", "< REQUEST", "Prints the prompt that a chat template makes of a request, a JSON object with messages, tools\nand any other variable of the template.")
	dirs := folderFlags(f)
	model := f.String("model", "", "NAME|FILE", "model whose template is used (default "+guideName+")")
	source := f.String("template", "", "FILE", "file with a Jinja template, instead of a model")
	jsonl := f.Bool("jsonl", `take one request a line, print {"output": …} or {"error": …} for each`)
	now := f.String("now", "", "TIME", "what the template takes for the time, such as 2025-03-14T15:09:26")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	var options chat.Options
	if *now != "" {
		var err error
		if options.Now, err = time.ParseInLocation("2006-01-02T15:04:05", *now, time.Local); err != nil {
			return cli.Usagef("--now %q is no time such as 2025-03-14T15:09:26", *now)
		}
	}
	var parsed *chat.Template
	switch {
	case *source != "" && *model != "" && *model != t.Env(cli.EnvName("model")): // which is for other commands
		return cli.Usagef("--model and --template exclude each other")
	case *source != "":
		text, err := os.ReadFile(*source)
		if err != nil {
			return err
		}
		if parsed, err = chat.Parse(string(text)); err != nil {
			return fmt.Errorf("%s: %w", *source, err)
		}
	default:
		catalog, err := dirs.catalog(t, nil)
		if err != nil {
			return err
		}
		if *model == "" {
			*model = guideName
		}
		if parsed, options.BOSToken, options.EOSToken, err = modelTemplate(catalog, *model); err != nil {
			return err
		}
	}
	return cli.Template(t.In, t.Results(), *jsonl, func(request []byte) (string, error) {
		prompt, err := parsed.RenderJSON(ctx, request, options)
		return prompt.String(), err
	})
}

// modelTemplate returns the chat template of a model and the tokens that it may name.
func modelTemplate(catalog *hub.Hub, model string) (parsed *chat.Template, bos, eos string, err error) {
	file, err := openFile(catalog, model)
	if err != nil {
		return nil, "", "", err
	}
	defer file.Close()
	source, err := file.Str("tokenizer.chat_template")
	if err != nil {
		return nil, "", "", fmt.Errorf("model %q has no chat template: %w", model, err)
	}
	tok, err := tokenizer.New(file)
	if err != nil {
		return nil, "", "", err
	}
	if id, ok := tok.BOS(); ok {
		bos = tok.Text(id)
	}
	if id, ok := tok.EOS(); ok {
		eos = tok.Text(id)
	}
	parsed, err = chat.Parse(source)
	return parsed, bos, eos, err
}

// benchmark is the command bench.
func benchmark(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("bench", "", `Measures how fast a model runs on this machine, or would: --shape draws random weights in the shape
of a model that is not here.`)
	flags := addDeviceFlags(f)
	name := f.String("model", "", "NAME|PATH", "model to measure (default "+guideName+")")
	shape := f.String("shape", "", strings.Join(bench.Shapes(), "|"), "measure random weights in this shape instead")
	quant := f.String("quant", "q4_0", strings.Join(bench.Quants(), "|"), "format of the random weights")
	prompt := f.Int("p", 512, "tokens of the prompt")
	answer := f.Int("n", 128, "tokens of the answer")
	repeat := f.Int("r", 5, "rounds, of which the median counts")
	parallel := f.Int("parallel", 1, "measure up to N answers at once too")
	asJSON := f.Bool("json", "print a JSON object instead of a table")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	kind, err := flags.kind(*parallel)
	switch {
	case err != nil:
		return err
	case min(*prompt, *answer, *repeat, *parallel) < 1:
		return cli.Usagef("-p, -n, -r and --parallel are at least 1")
	case *shape != "" && *name != "" && *name != t.Env(cli.EnvName("model")): // which is for other commands
		return cli.Usagef("--model and --shape exclude each other")
	}
	show, end := cli.BenchProgress(t)
	defer end()
	var file *gguf.File
	if *shape != "" {
		show("drawing weights", 0, 0)
		*name = fmt.Sprintf("random %s %s", *shape, *quant)
		file, err = bench.Synthetic(*shape, *quant, 1, cpu.FreeMemory())
	} else {
		var catalog *hub.Hub
		if catalog, err = flags.catalog(t, kind.types); err == nil {
			*name = cmp.Or(*name, guideName)
			file, err = openFile(catalog, *name)
		}
	}
	if err != nil {
		return err
	}
	defer file.Close()
	runtime.LockOSThread() // a GPU is called by one thread alone
	defer runtime.UnlockOSThread()
	dev, err := kind.open(file, *flags.threads, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := fits(file, dev); err != nil {
		return err
	}
	cache := gguf.F16
	if *flags.kv == "f32" {
		cache = gguf.F32
	}
	var result bench.Result
	err = file.Guard(func() (err error) {
		result, err = bench.Run(ctx, file, *name, dev, bench.Options{
			Prompt: *prompt, Answer: *answer, Repeat: *repeat, Parallel: *parallel, Cache: cache, Progress: show,
		})
		return err
	})
	if err != nil {
		return err
	}
	end()
	return cli.Bench(t.Results(), result, *asJSON)
}

// printVersion is the command version.
func printVersion(_ context.Context, t *cli.Terminal, args []string) error {
	if _, err := cli.NewFlags("version", "", "Prints the version of this program.").Parse(t, args, 0); err != nil {
		return err
	}
	commit := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = ", commit " + s.Value[:min(len(s.Value), 12)]
			}
		}
	}
	_, err := fmt.Fprintf(t.Out, "m40-llm %s (%s %s/%s%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, commit)
	return err
}
