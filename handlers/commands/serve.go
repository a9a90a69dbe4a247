package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/cli"
	"m40-llm/handlers/compare"
	"m40-llm/handlers/document"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/mdns"
	"m40-llm/handlers/metrics"
	"m40-llm/handlers/models"
	"m40-llm/handlers/people"
	"m40-llm/handlers/presets"
	"m40-llm/handlers/share"
	"m40-llm/handlers/visitors"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/fleet"
	"m40-llm/infer/hub"
	"m40-llm/infer/placement"
	"m40-llm/infer/suggest"
	"m40-llm/infer/worker"
	"m40-llm/store"
)

// defaultAddr is where a server listens by default.
const defaultAddr = "127.0.0.1:8080"

// serveFlags are the flags of serve.
type serveFlags struct {
	engineFlags
	all                         *cli.Flags
	addr, model, worker, apiKey *string
	parallel                    *int
	open, lan, tls, ollama      *bool
	imageURLs                   *bool
	keepAlive, memory           *string
	modelsMax                   *int
	certFile, keyFile           *string
	hosts, origins, proxies     *[]string
	upstreams                   *[]string
	upstreamKeys, basePath      *string
	visitors                    *string
}

func addServeFlags(f *cli.Flags) serveFlags {
	return serveFlags{
		engineFlags: addEngineFlags(f),
		all:         f,
		addr:        f.String("addr", defaultAddr, "HOST:PORT", "address to listen on; port 0 picks a free port"),
		model:       f.String("model", "", "NAME|PATH", "model to load at the start, or NAME@HOST of an --upstream, with which chats begin (default: the one used last, else "+guideName+")"),
		parallel:    f.Int("parallel", defaultParallel, "answers that are generated at once; further ones wait"),
		keepAlive:   keepAliveFlag(f),
		modelsMax:   f.Int("models-max", 0, "models that are loaded at once; 0: as many as fit into memory. The one used least recently is unloaded for another"),
		memory:      f.String("memory", "", "SIZE", "main memory that all loaded models may take together, such as 24GB or 24GiB (default: what is free)"),
		worker:      f.String("worker", "always", "always|never", "run each model in a process of its own, so that a crash there stops neither the server nor other models; never: in the server, one model at a time"),
		open:        f.Bool("open", "open the browser; without this flag it is opened only if the server is started in a terminal on a desktop"),
		lan:         f.Bool("lan", "accept connections from other machines, which log in with a code, or with --api-key"),
		visitors:    f.String("visitors", "", "ANSWERS[,TOKENS]", "let people in the local network chat without a login, each with so many answers and tokens a day, such as 30,20000; with --lan. The page Settings closes the house again (default: as it says)"),
		apiKey:      f.String("api-key", "", "K", "key that every request must carry: programs as a bearer token, people by logging in"),
		imageURLs:   f.Bool("image-urls", "fetch pictures that requests of the API name by their https addresses, from public hosts alone; without this flag pictures must be in the request"),
		ollama:      f.Bool("ollama", "also listen on port 11434, where Ollama's clients look for it"),
		tls:         f.Bool("tls", "encrypt connections with a self-signed certificate, which is kept in --data"),
		certFile:    f.String("tls-cert", "", "FILE", "encrypt connections with the certificate and its chain in this PEM file"),
		keyFile:     f.String("tls-key", "", "FILE", "PEM file with the private key of --tls-cert"),
		hosts:       f.List("allow-host", "H", "additional host name under which the server may be reached; can be repeated"),
		origins:     f.List("cors-origin", "O", "origin of another web page or app that may call /v1, such as https://example.org, app://obsidian.md or null; can be repeated"),
		upstreams:   f.List("upstream", "URL", "server of another engine with OpenAI's routes, such as http://gpu-box:8000, whose models can be chosen too; can be repeated"),

		upstreamKeys: f.String("upstream-keys", "", "FILE", "file with the keys of upstreams: lines with the address of one and its key; the key of a single upstream can be in M40_LLM_UPSTREAM_KEY instead"),

		basePath: f.String("base-path", "", "PATH", "path under which a reverse proxy has the program, such as /llm"),

		proxies: f.List("trusted-proxy", "CIDR|IP", "reverse proxy whose X-Forwarded-For, X-Forwarded-Proto and Forwarded headers are believed; can be repeated"),
	}
}

// network checks the flags about the network and returns the address to listen on and the
// trusted proxies.
func (f serveFlags) network() (addr string, proxies []netip.Prefix, err error) {
	if err := cli.CheckNames(*f.hosts, *f.origins); err != nil {
		return "", nil, err
	}
	if proxies, err = cli.Networks(*f.proxies); err != nil {
		return "", nil, err
	}
	if err := gate.CheckBasePath(*f.basePath); err != nil {
		return "", nil, cli.Usagef("--base-path %s cannot be used: %v", *f.basePath, err)
	}
	if err := f.checkVisitors(); err != nil {
		return "", nil, err
	}
	addr = *f.addr
	if *f.lan && !f.all.Given("addr") {
		addr = ":8080"
	}
	addr, err = cli.ListenAddr(addr, *f.lan, *f.apiKey)
	return addr, proxies, err
}

// serve executes the command serve.
func serve(ctx context.Context, t *cli.Terminal, args []string) error {
	flags := addServeFlags(cli.NewFlags("serve", "", "Serves the playground and the API until it is stopped. This is the default command."))
	if _, err := flags.all.Parse(t, args, 0); err != nil {
		return err
	}
	addr, proxies, err := flags.network()
	if err != nil {
		return err
	}
	listener, err := cli.Listen(ctx, addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	listeners := []net.Listener{listener}
	if *flags.ollama {
		ollama, err := flags.listenForOllama(ctx, addr)
		if err != nil {
			return err
		}
		defer ollama.Close()
		listeners = append(listeners, ollama)
	}
	encryption, err := flags.encryption(t)
	if err != nil {
		return err
	}
	log := &sharedWriter{w: t.Err}
	logger := newLogger(log)
	s, err := openServices(ctx, t, flags, logger, log)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.Err, "m40-llm: configuration:\n  %s\n", strings.Join(flags.all.Effective(), "\n  "))
	program, err := worker.Program()
	if err != nil {
		return err
	}
	config := handlers.Config{
		Engine:      s.engine,
		Activity:    s.activity,
		Live:        s.chats,
		Presets:     s.presets,
		Compare:     s.compare,
		Guests:      s.guests,
		Models:      s.models,
		Metrics:     s.metrics,
		Logger:      logger,
		Version:     version,
		Documents:   document.NewReader(program),
		Asks:        flags.asks(),
		People:      s.people,
		Visitors:    s.visitors,
		NoVisitors:  flags.noVisitors(),
		Alone:       !*flags.lan,
		Fingerprint: encryption.fingerprint,
		AllowHosts:  append(*flags.hosts, flags.announce(t, listener, encryption)...),
		CORSOrigins: *flags.origins,
		FreeMemory:  cpu.FreeMemory,

		TrustedProxies: proxies,
		BasePath:       *flags.basePath,
	}
	if *flags.imageURLs {
		config.FetchPicture = hub.NewFetcher(version).Fetch
	}
	if *flags.ollama {
		config.OllamaPort = listeners[1].Addr().(*net.TCPAddr).Port
		fmt.Fprintf(t.Err, "m40-llm: Ollama's clients reach the server at %s\n", cli.URL(encryption.scheme(), listeners[1]))
	}
	if err := flags.invite(ctx, t, listener, encryption, s.people); err != nil {
		logger.Warn("failed to invite the owner's devices", "error", err)
	}
	if *flags.lan {
		config.Announced = s.announceName(log, listener, encryption, logger)
	}
	config.Reach = s.reach(listener.Addr(), encryption, config)
	server := handlers.NewServer(handlers.New(config), logger)
	url := cli.URL(encryption.scheme(), listener)
	if *flags.open || !flags.all.Given("open") && cli.OnDesktop(t) {
		if err := cli.OpenBrowser(url); err != nil {
			logger.Warn(err.Error())
		}
	}
	closed := make(chan error, 1)
	for i, l := range listeners {
		listeners[i] = handlers.LimitListener(l, proxies, encryption.config)
	}
	err = cli.Serve(ctx, t, server, listeners, url, func() { closed <- s.close() })
	select {
	case failure := <-closed:
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("the chats could not be closed cleanly: %w", failure))
		}
	default: // it was not waited for any longer
	}
	return err
}

// listenForOllama listens where Ollama's clients look for it, on the host of addr.
func (f serveFlags) listenForOllama(ctx context.Context, addr string) (net.Listener, error) {
	addr, err := cli.OllamaAddr(addr)
	if err != nil {
		return nil, err
	}
	return cli.ListenOllama(ctx, addr)
}

// asks returns who must show a credential.
func (f serveFlags) asks() gate.Asks {
	switch {
	case *f.apiKey != "":
		return gate.AsksAll
	case *f.lan:
		return gate.AsksOthers
	}
	return gate.AsksNoOne
}

// noVisitors is why visitors cannot be let in without a login; empty: they can.
func (f serveFlags) noVisitors() string {
	switch f.asks() {
	case gate.AsksAll:
		return "This server was started with --api-key, and everybody needs that key."
	case gate.AsksNoOne:
		return "Other machines do not reach this server. Start it with m40-llm --lan to open it to your network."
	}
	return ""
}

// visitorsOf returns the limits in the value of --visitors. Without tokens these are those of before.
func visitorsOf(value string, before visitors.Settings) (visitors.Settings, error) {
	to := before
	to.Open = true
	answers, tokens, both := strings.Cut(value, ",")
	var err error
	if to.Answers, err = strconv.Atoi(answers); err == nil && both {
		to.Tokens, err = strconv.Atoi(tokens)
	}
	if err == nil {
		err = to.Check()
	}
	if err != nil {
		return to, cli.Usagef("--visitors %s cannot be used: give the answers that each visitor has a day, such as 30, and maybe their tokens, such as 30,20000", value)
	}
	return to, nil
}

// checkVisitors checks --visitors.
func (f serveFlags) checkVisitors() error {
	if *f.visitors == "" {
		return nil
	}
	if f.noVisitors() != "" {
		return cli.Usagef("--visitors %s cannot be used: other machines must reach the server, by --lan and without --api-key", *f.visitors)
	}
	_, err := visitorsOf(*f.visitors, visitors.Default)
	return err
}

// openHouse returns the service that lets visitors in. With --visitors the house is open from the start.
func (f serveFlags) openHouse(ctx context.Context, db *store.Store, logger *slog.Logger) (*visitors.Service, error) {
	s, err := visitors.New(ctx, visitors.Options{Store: db, Log: logger})
	if err != nil || *f.visitors == "" {
		return s, err
	}
	to, err := visitorsOf(*f.visitors, s.Settings())
	if err == nil {
		err = s.Set(ctx, access.Local, to)
	}
	return s, err
}

// invite prints a code for a device of the owner, where that is how one logs in.
func (f serveFlags) invite(ctx context.Context, t *cli.Terminal, listener net.Listener, e encryption, known *people.Service) error {
	if f.asks() != gate.AsksOthers {
		return nil
	}
	invitation, err := known.Invite(ctx, access.Local, store.OwnerID)
	if err != nil {
		return err
	}
	if err := cli.Invite(t.Err, cli.NetworkURLs(e.scheme(), listener), invitation.Code, invitation.Link, people.InvitationLife); err != nil {
		return err
	}
	owner, err := known.Account(ctx, access.Local, store.OwnerID)
	if err == nil && owner.HasPassphrase {
		_, err = fmt.Fprintf(t.Err, "m40-llm: or log in there as %s with your passphrase\n", cli.Line(strconv.Quote(owner.Name)))
	}
	return err
}

// announce prints the addresses at which other machines reach the server, if they can, and
// returns the host names under which they may.
func (f serveFlags) announce(t *cli.Terminal, listener net.Listener, e encryption) (hosts []string) {
	if e.fingerprint != "" {
		fmt.Fprintf(t.Err, "m40-llm: browsers warn once, as they do not know the certificate of this server; its SHA-256 fingerprint is\n  %s\n", e.fingerprint)
	}
	if !*f.lan {
		return nil
	}
	note := " (not encrypted; --tls encrypts)"
	if e.config != nil {
		note = ""
	}
	for _, url := range cli.NetworkURLs(e.scheme(), listener) {
		fmt.Fprintf(t.Err, "m40-llm: other machines reach the server at %s%s\n", url, note)
	}
	if cli.IsLoopbackAddr(listener.Addr().String()) && len(*f.proxies) == 0 {
		fmt.Fprintf(t.Err, "m40-llm: --lan does nothing with --addr %s, which only this machine reaches; leave --addr out, or give an address of the network\n", *f.addr)
	}
	hostname, _ := os.Hostname() // without a name, other machines use the address
	return cli.HostNames(hostname)
}

// announceName gives the server a name in the local network, unless it listens for this machine
// alone, and returns a function that returns the name. log gets a line with each name.
//
// Shared chats get no name: their links are not typed, and a server that is bound to loopback shall not
// tell the network about itself.
func (s *services) announceName(log io.Writer, listener net.Listener, e encryption, logger *slog.Logger) (name func() string) {
	at, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil || at.Addr().IsLoopback() {
		return nil
	}
	r := mdns.New(mdns.Options{Addr: at.Addr().Unmap(), Log: logger, Announced: func(name string) {
		if best := mdns.Names()[0]; name != best {
			fmt.Fprintf(log, "m40-llm: the name %s is taken in this network\n", best)
		}
		fmt.Fprintf(log, "m40-llm: other machines also reach the server at %s://%s:%d\n", e.scheme(), name, at.Port())
	}})
	s.inBackground(r.Run)
	return r.Name
}

// sharedEngine is an engine that writes no more answers of a person at once than their limit, and
// whose answers are listed.
type sharedEngine struct {
	closableEngine
	generate func(context.Context, infer.Request) iter.Seq2[infer.Event, error]
}

func (e sharedEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return e.generate(ctx, r)
}

// services are what the routes of a server call.
type services struct {
	db       *store.Store
	engine   closableEngine
	fleet    *fleet.Fleet // the engines of this machine; nil: there is one, without a worker
	models   *models.Service
	people   *people.Service
	visitors *visitors.Service
	chats    *live.Service
	presets  *presets.Service
	compare  *compare.Service
	guests   *guest.Service
	activity *activity.Service
	metrics  *metrics.Service

	background       sync.WaitGroup
	inBackground     func(do func(context.Context)) // runs do in a goroutine, with a context that cancelBackground cancels
	cancelBackground context.CancelFunc
}

// openServices opens the chats in the data folder and starts the engine. log is the writer
// that logger writes to.
func openServices(ctx context.Context, t *cli.Terminal, flags serveFlags, logger *slog.Logger, log io.Writer) (*services, error) {
	catalog, err := flags.models(t)
	if err != nil {
		return nil, err
	}
	flags.noteMissingFolder(t)
	servers, err := flags.addresses(t)
	if err != nil {
		return nil, err
	}
	remote, host := flags.remoteModel(servers)
	s := &services{}
	if s.db, err = openStore(ctx, t, flags.folders, logger); err != nil {
		return nil, err
	}
	if s.people, err = people.New(ctx, people.Options{Store: s.db, OwnerKey: *flags.apiKey, Log: logger}); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	if s.visitors, err = flags.openHouse(ctx, s.db, logger); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	first := "" // the model of --model on this machine
	if *flags.model == "" || remote != "" {
		*flags.model = modelUsedLast(ctx, catalog, s.db, logger)
	} else if first, err = catalog.Name(*flags.model); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	machine := func() placement.Machine { return placement.Machine{} }
	if s.engine, s.fleet, machine, err = openEngine(t, flags, catalog, logger, log); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	listing, chatting := models.Options{Files: catalog, Log: logger, First: func() string { return first }}, live.Options{Store: s.db, Log: logger}
	if len(servers) > 0 {
		router := withUpstreams(s.engine, servers, logger, log)
		s.engine, listing.RemoteVersion, listing.Changed = router, router.ModelsVersion, router.Refresh
		listing.First = func() string { return cmp.Or(router.Name(remote, host), first) }
	}
	s.activity = activity.New(s.people.Name)
	s.metrics = metrics.New(s.engine)
	s.engine = sharedEngine{s.engine, s.metrics.Observe(s.activity.Observe(s.people.Limited(s.visitors.Limited(presets.WithPublicPrompts(s.db, s.engine.Generate)))))}
	catalog.SetMachine(machine)
	if listing.Puller, err = newPuller(t, catalog, machine, probe(*flags.device, *flags.threads), false); err != nil {
		return nil, errors.Join(err, s.engine.Close(), s.db.Close())
	}
	within, end := context.WithCancel(ctx)
	s.cancelBackground = end
	s.inBackground = func(do func(context.Context)) { s.background.Go(func() { do(within) }) }
	s.inBackground(func(ctx context.Context) { s.db.KeepBackups(ctx, backupEvery) })
	s.inBackground(s.people.Run)
	s.inBackground(s.visitors.Run)
	s.inBackground(func(ctx context.Context) { limitHeap(ctx, cpu.FreeMemory) })
	s.inBackground(func(ctx context.Context) { saveModelUsed(ctx, s.engine, s.db, logger) })
	if chatting.KVFiles, err = flags.kvFiles(t); err != nil {
		logger.Warn("the KV caches of chats are not stored", "error", err)
	}
	listing.Engine, listing.Reload = s.engine, s.engine.Reload
	listing.Suggest = func() ([]suggest.Suggestion, error) { return suggest.For(machine()) }
	listing.Deleted = func(model string) {
		if err := deleteCaches(chatting.KVFiles, model); err != nil {
			logger.Warn("failed to delete the KV caches of a model", "model", model, "error", err)
		}
	}
	if s.fleet != nil {
		listing.Loader = s.fleet
	}
	s.models = models.New(listing)
	chatting.FirstModel, chatting.Sight = s.models.First, s.models.Sight
	s.chats = live.New(s.engine, chatting)
	s.visitors.OnEnd(s.chats.Forget)
	s.presets = presets.New(s.chats, s.db)
	s.compare, s.guests = compare.New(s.chats, s.presets, s.db), guest.New(s.chats, guest.Options{})
	return s, nil
}

// reach starts what lets other machines read shared chats while any are shared. The server
// itself listens on addr.
func (s *services) reach(addr net.Addr, e encryption, config handlers.Config) *share.Reach {
	server, _ := netip.ParseAddrPort(addr.String()) // always valid: addr is that of a TCP listener
	reach := share.NewReach(share.ReachOptions{
		Server:    netip.AddrPortFrom(server.Addr().Unmap(), server.Port()),
		Addresses: share.LocalAddresses,
		Serve: func(l net.Listener) (close func()) {
			server := handlers.NewServer(handlers.NewShared(config), config.Logger)
			go server.Serve(handlers.LimitListener(l, nil, e.config))
			return func() { s.background.Go(func() { finish(server) }) }
		},
		Encrypted: e.config != nil,
		Log:       config.Logger,
	})
	s.inBackground(func(ctx context.Context) { reach.Run(ctx, s.chats) })
	return reach
}

// finishTime is how long requests may take to end when their server closes.
const finishTime = 2 * time.Second

// finish closes a server's listener at once, and its connections when their requests have ended:
// readers of a chat that is shared no more are told so. After finishTime it closes the rest.
func finish(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), finishTime)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

// close ends downloads, answers and background tasks, then the engine and the store. It
// returns the store's error.
func (s *services) close() error {
	s.models.Close()
	s.chats.Close()
	s.cancelBackground()
	s.background.Wait()
	s.engine.Close()
	return s.db.Close()
}
