package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"

	"m40-llm/handlers"
	"m40-llm/handlers/cli"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/handlers/share"
	"m40-llm/infer/placement"
	"m40-llm/store"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	engineFlags
	all                        *cli.Flags
	addr, model, where, apiKey *string
	parallel                   *int
	open, lan                  *bool
	hosts, origins, proxies    *[]string
}

func addServeFlags(f *cli.Flags) serveFlags {
	return serveFlags{
		engineFlags: addEngineFlags(f),
		all:         f,
		addr:        f.String("addr", "127.0.0.1:8080", "HOST:PORT", "where to listen; port 0 picks a free one"),
		model:       f.String("model", "", "NAME|PATH", "model to load first (default: the one used last, else "+guideName+")"),
		parallel:    f.Int("parallel", defaultParallel, "answers that are written at once; more wait"),
		where:       f.String("worker", "always", "always|never", "compute in a process of its own, whose crash ends no chat"),
		open:        f.Bool("open", "open the browser; without the flag that happens on a desktop terminal only"),
		lan:         f.Bool("lan", "let other machines in; takes --api-key"),
		apiKey:      f.String("api-key", "", "K", "key that every request must bring, as a bearer token or by logging in"),
		hosts:       f.List("allow-host", "H", "further host name that requests may be addressed to; can be repeated"),
		origins:     f.List("cors-origin", "O", "origin of a foreign page or app that may call /v1, such as https://example.org, app://obsidian.md or null; can be repeated"),
		proxies:     f.List("trusted-proxy", "CIDR|IP", "reverse proxy whose X-Forwarded-For, X-Forwarded-Proto or Forwarded says who the client is; can be repeated"),
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
	addr = *f.addr
	if *f.lan && !f.all.Given("addr") {
		addr = ":8080"
	}
	addr, err = cli.ListenAddr(addr, *f.lan, *f.apiKey)
	return addr, proxies, err
}

// serve is the command serve.
func serve(ctx context.Context, t *cli.Terminal, args []string) error {
	flags := addServeFlags(cli.NewFlags("serve", "", "Serves the playground and the API until it is stopped. This is what m40-llm does without a command."))
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
	log := &sharedWriter{w: t.Err}
	logger := newLogger(log)
	s, err := openServices(ctx, t, flags, logger, log)
	if err != nil {
		return err
	}
	config := handlers.Config{
		Engine:      s.engine,
		Live:        s.chats,
		Models:      s.models,
		Logger:      logger,
		Version:     version,
		APIKey:      *flags.apiKey,
		AllowHosts:  append(*flags.hosts, flags.announce(t, listener)...),
		CORSOrigins: *flags.origins,

		TrustedProxies: proxies,
	}
	config.Reach = s.reach(listener.Addr(), config)
	server := handlers.NewServer(handlers.New(config), logger)
	if *flags.open || !flags.all.Given("open") && cli.OnDesktop(t) {
		if err := cli.OpenBrowser(cli.URL(listener)); err != nil {
			logger.Warn(err.Error())
		}
	}
	var closed error
	err = cli.Serve(ctx, t, server, handlers.LimitListener(listener, proxies), func() { closed = s.close() })
	if closed != nil {
		err = errors.Join(err, fmt.Errorf("the chats could not be closed cleanly: %w", closed))
	}
	return err
}

// announce prints at which addresses other machines reach the server, if they do, and
// returns the names by which they may call this machine.
func (f serveFlags) announce(t *cli.Terminal, listener net.Listener) (hosts []string) {
	if notice := cli.KeyNotice(*f.apiKey, *f.lan); notice != "" {
		fmt.Fprintf(t.Err, "m40-llm: note: %s\n", notice)
	}
	if !*f.lan {
		return nil
	}
	for _, url := range cli.NetworkURLs(listener) {
		fmt.Fprintf(t.Err, "m40-llm: other machines reach it at %s, not encrypted\n", url)
	}
	hostname, _ := os.Hostname() // without one, the addresses must do
	return cli.HostNames(hostname)
}

// services are what a server answers with.
type services struct {
	kept      *store.Store
	engine    closableEngine
	models    *models.Service
	chats     *live.Service
	upkeep    sync.WaitGroup
	keepUp    func(do func(context.Context)) // does something until endUpkeep
	endUpkeep context.CancelFunc
}

// openServices opens the chats in the data folder and starts the engine. log is where
// logger writes.
func openServices(ctx context.Context, t *cli.Terminal, flags serveFlags, logger *slog.Logger, log io.Writer) (*services, error) {
	catalog, err := flags.models(t)
	if err != nil {
		return nil, err
	}
	flags.noteMissing(t)
	s := &services{}
	if s.kept, err = openStore(ctx, t, flags.folders, logger); err != nil {
		return nil, err
	}
	if *flags.model == "" {
		*flags.model = modelUsedLast(ctx, catalog, s.kept, logger)
	}
	if s.engine, err = openEngine(t, flags, catalog, logger, log); err != nil {
		return nil, errors.Join(err, s.kept.Close())
	}
	machine := func() placement.Machine { return flags.machine(s.engine.Status(), *flags.parallel) }
	catalog.SetMachine(machine)
	puller, err := newPuller(t, catalog, func() int64 { return machine().Free() }, false)
	if err != nil {
		return nil, errors.Join(err, s.engine.Close(), s.kept.Close())
	}
	within, end := context.WithCancel(ctx)
	s.endUpkeep = end
	s.keepUp = func(do func(context.Context)) { s.upkeep.Go(func() { do(within) }) }
	s.keepUp(func(ctx context.Context) { s.kept.KeepBackups(ctx, backupEvery) })
	s.keepUp(func(ctx context.Context) { keepModelUsed(ctx, s.engine, s.kept, logger) })
	s.models = models.New(models.Options{Engine: s.engine, Files: catalog, Puller: puller, Log: logger})
	s.chats = live.New(s.engine, live.Options{Store: s.kept, Log: logger})
	return s, nil
}

// reach lets other machines read the chats that are shared, while some are, of a server that
// listens on addr.
func (s *services) reach(addr net.Addr, config handlers.Config) *share.Reach {
	server, _ := netip.ParseAddrPort(addr.String()) // it is that of a TCP listener
	reach := share.NewReach(share.ReachOptions{
		Server:    netip.AddrPortFrom(server.Addr().Unmap(), server.Port()),
		Addresses: share.LocalAddresses,
		Serve: func(l net.Listener) (close func()) {
			server := handlers.NewServer(handlers.NewShared(config), config.Logger)
			go server.Serve(handlers.LimitListener(l, nil))
			return func() { server.Close() }
		},
		Log: config.Logger,
	})
	s.keepUp(func(ctx context.Context) { reach.Run(ctx, s.chats) })
	return reach
}

// close ends downloads, answers and upkeep, then the engine and the store. It returns the
// error of the store.
func (s *services) close() error {
	s.models.Close()
	s.chats.Close()
	s.endUpkeep()
	s.upkeep.Wait()
	s.engine.Close()
	return s.kept.Close()
}
