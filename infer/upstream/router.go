// Package upstream lets other engines run models: vLLM, SGLang, Ray Serve, llama-server, another m40-llm, or
// whatever else serves OpenAI's routes. A [Router] has the methods of an engine. It passes each request to the
// engine of this machine or, if the request names a model of another server, to that.
//
// # What a server can do
//
// A server is asked, never recognised by its name (ask.go): for GET /v1/status, which another m40-llm has, for
// llama-server's /props, for the /openapi.json that describes its routes, and if it has none of these, by
// requests of one token with fields that it can know or not. A server that does not answer is asked again: an
// error says nothing about what it is. Another m40-llm gets requests as they are, by POST /v1/generate (native.go)
// and /v1/embed (embed.go): tokens, candidates and seeds are those that it would have here. Others get OpenAI's
// (openai.go, stream.go, embed.go); settings that they lack have no effect, and Upstream.Lacks says why.
//
// # Names
//
// A model has the name that its server gives it. If one of this machine is called so, or one that another server
// calls differently, it gets "@upstream" after it: then and at all other times a request for a model of this machine
// stays here.
//
// # Which server answers
//
// Servers with the same model are equal. A conversation stays with the server that answered it last, which
// has its prefix in its cache, unless that one writes more answers than another by some; others go to the one
// that writes fewest. Until its first token a request that fails is sent again, to another server if there is
// one, at most five times in all, and to none before the end of a pause that this one asked for; three more times if
// nothing says that an engine got it, as behind a balancer that does not know yet that one is dead. Afterwards the
// failure ends the answer. A server that cannot be reached, or fails three times in a row, is left out as long as there
// is another one (breaker.go). The last one is not: its address may be that of several engines of which one has
// failed. Each is asked every ten seconds for its models (server.go).
//
// # What is trusted
//
// Nothing that a server sends. Lines, bodies and their number are bounded, silence ends a request, redirects
// are not followed, compressed responses are refused. The key goes to the server that it belongs to, and is in no error.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/client"
	"m40-llm/infer/fault"
)

// Engine is the engine of this machine.
type Engine interface {
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
	Models(ctx context.Context) ([]infer.ModelInfo, error)
	Status() infer.Status
	Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error)
	Detokenize(ctx context.Context, name string, ids []int32) (string, error)
	Pieces(ctx context.Context, name string, ids []int32) ([]string, error)
	Render(ctx context.Context, r infer.Request) (infer.Rendered, error)
	Reload(ctx context.Context, s infer.Setup) error
	Embed(ctx context.Context, r infer.EmbedRequest) (infer.Embeddings, error)
	Rank(ctx context.Context, r infer.RankRequest) (infer.Ranking, error)
	Close() error
}

// Options are what a Router works with. The zero value of a duration means the default.
type Options struct {
	Local   Engine
	Servers []Address
	Log     *slog.Logger      // nil: nothing is logged
	Notice  func(line string) // gets a line when a server begins to answer, or stops; nil: none is written
	Version string            // of this program, for the servers' logs

	CheckEvery time.Duration   // pause between two checks of a server; default 10 s
	Silence    time.Duration   // longest wait for the first part of an answer, or for embeddings; default 10 minutes
	Stall      time.Duration   // longest wait for the next part; default 2 minutes
	Patience   time.Duration   // longest wait for another response; default 10 s
	Pauses     []time.Duration // before a request is sent again to the same server; default 0, 0.25, 1 and 3 s: behind one address may be several engines

	// LongPauses follow Pauses while what failed is no engine that says why: a balancer that still sends requests to a dead
	// one, which has nothing to do and so gets most of them. Ray Serve does so for three of its checks. Default three times
	// 5 s, if Pauses are the default too.
	LongPauses []time.Duration
}

// Router is an engine that passes requests to other engines too. Its methods may be called by any goroutine.
type Router struct {
	Engine // of this machine
	o      Options

	servers    []*server
	cancel     context.CancelFunc
	background sync.WaitGroup

	mu      sync.Mutex
	models  map[string]*model // by the names that requests have
	here    map[string]bool   // names of the models of this machine, when models was made
	lists   int64             // how often the models of this machine were asked for
	newest  int64             // number of the list, among these, that models was made with
	version int64             // increases when models changes
	recent  recent
}

// model is a model that servers run.
type model struct {
	name    string // in requests
	id      string // as its servers call it
	exact   bool
	servers []*server // in the order of Options; never empty
}

// New returns a Router that begins to look for the models of its servers.
func New(o Options) *Router {
	o.CheckEvery = cmp.Or(o.CheckEvery, 10*time.Second)
	o.Silence = cmp.Or(o.Silence, 10*time.Minute)
	o.Stall = cmp.Or(o.Stall, 2*time.Minute)
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	if o.Pauses == nil {
		o.Pauses = []time.Duration{0, 250 * time.Millisecond, time.Second, 3 * time.Second}
		if o.LongPauses == nil {
			o.LongPauses = []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Router{Engine: o.Local, o: o, cancel: cancel, models: map[string]*model{}}
	for _, a := range o.Servers {
		s := newServer(a, &r.o)
		r.servers = append(r.servers, s)
	}
	for _, s := range r.servers {
		r.background.Go(func() { s.watch(ctx, func() error { return r.rebuild(ctx) }) })
	}
	return r
}

// Close ends the checks of other engines, and closes the engine of this machine. Requests end with their contexts.
func (r *Router) Close() error {
	r.cancel()
	r.background.Wait()
	for _, s := range r.servers {
		s.close()
	}
	return r.Engine.Close()
}

// suffix distinguishes the name of a model from that of one on this machine.
const suffix = "@upstream"

// Refresh gives the models of servers their names when a model of this machine came or went.
func (r *Router) Refresh(ctx context.Context) {
	if err := r.rebuild(ctx); err != nil && ctx.Err() == nil {
		r.o.Log.Warn("failed to list the models of this machine; those of upstreams keep their names", "error", err)
	}
}

// rebuild makes the list of models anew from what the servers and this machine have.
func (r *Router) rebuild(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := r.Models(ctx)
	return err
}

// Models returns the models of this machine, and gives those of servers the names that are left. Until this has
// succeeded once, servers have none: a prompt for a model of this machine must not go to another one.
func (r *Router) Models(ctx context.Context) ([]infer.ModelInfo, error) {
	r.mu.Lock()
	r.lists++
	number := r.lists
	r.mu.Unlock()
	local, err := r.Engine.Models(ctx)
	if err != nil {
		return nil, err
	}
	here := map[string]bool{}
	for _, info := range local {
		here[info.Name] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if number < r.newest {
		return local, nil // a newer list was there earlier
	}
	r.newest = number
	models := r.named(here)
	if !slices.Equal(slices.Sorted(maps.Keys(models)), slices.Sorted(maps.Keys(r.models))) {
		r.version++
	}
	r.models, r.here = models, here
	return local, nil
}

// named returns the models of the servers by the names that requests have for them; here has those of this machine.
func (r *Router) named(here map[string]bool) map[string]*model {
	models := map[string]*model{}
	for _, s := range r.servers {
		ids, native := s.offers()
		for _, id := range ids {
			name := id
			for here[name] || models[name] != nil && models[name].id != id {
				name += suffix
			}
			m := models[name]
			if m == nil {
				m = &model{name: name, id: id, exact: native}
				models[name] = m
			}
			if m.exact == native { // an answer must not depend on which server writes it
				m.servers = append(m.servers, s)
			}
		}
	}
	return models
}

// find returns the model that a request means by name; nil if it is one of this machine, or of none. Other names
// with the suffix mean a model of a server.
func (r *Router) find(name string) *model {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.here[name] {
		return nil
	}
	if m := r.models[name]; m != nil {
		return m
	}
	if id, cut := strings.CutSuffix(name, suffix); cut {
		return r.models[id]
	}
	return nil
}

// Name returns the name in requests of the model that the server at host calls id; host "upstream" is any server. It
// is empty while no server has that model.
func (r *Router) Name(id, host string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, m := range r.models { // one of them at most has this id
		if m.id == id && slices.ContainsFunc(m.servers, func(s *server) bool { return "@"+host == suffix || s.address == host }) {
			return name
		}
	}
	return ""
}

// maxNamed is how many models an error names.
const maxNamed = 20

// unknown returns an error of the engine of this machine, which lists its models if it does not have the one that was asked
// for, with those of other engines.
func (r *Router) unknown(err error) error {
	known, ok := errors.AsType[*fault.Error](err)
	if !ok || known.Code != fault.CodeNotFound {
		return err
	}
	r.mu.Lock()
	names := slices.Sorted(maps.Keys(r.models))
	r.mu.Unlock()
	if len(names) == 0 {
		return err
	}
	if n := len(names); n > maxNamed {
		names = append(names[:maxNamed], fmt.Sprintf("and %d more", n-maxNamed))
	}
	whole := *known
	whole.Message += "; other engines have " + strings.Join(names, ", ")
	return &whole
}

// Status returns the status of the engine of this machine, with the other servers and their models.
func (r *Router) Status() infer.Status {
	s := r.Engine.Status()
	for _, server := range r.servers {
		s.Upstreams = append(s.Upstreams, server.status())
	}
	r.mu.Lock()
	models := slices.SortedFunc(maps.Values(r.models), func(a, b *model) int { return strings.Compare(a.name, b.name) })
	r.mu.Unlock()
	for _, m := range models {
		s.Remote = append(s.Remote, m.info())
	}
	return s
}

// ModelsVersion increases when a model of another server comes or goes.
func (r *Router) ModelsVersion() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// info describes the model: what all of its servers can do.
func (m *model) info() infer.ModelInfo {
	info := m.servers[0].describe(m.id)
	info.Name = m.name
	up := &infer.Upstream{Exact: m.exact, Engine: m.servers[0].engineName(), ContextLength: info.Upstream.ContextLength, TemplateVars: info.Upstream.TemplateVars, Tools: true}
	var problems []string
	for _, s := range m.servers {
		one := s.describe(m.id).Upstream
		up.Servers = append(up.Servers, s.address)
		up.Tools = up.Tools && one.Tools
		if n := one.ContextLength; n > 0 && (up.ContextLength == 0 || n < up.ContextLength) {
			up.ContextLength = n
		}
		if up.Lacks == nil {
			up.Lacks = one.Lacks
		} else if !maps.Equal(up.Lacks, one.Lacks) {
			up.Lacks = maps.Clone(up.Lacks)
			maps.Copy(up.Lacks, one.Lacks)
		}
		if one.Problem != "" {
			problems = append(problems, one.Problem)
		}
	}
	if len(problems) == len(m.servers) {
		up.Problem = strings.Join(problems, "; ")
	}
	info.Upstream = up
	return info
}

// Generate streams one answer, of this machine or of another server.
func (r *Router) Generate(ctx context.Context, request infer.Request) iter.Seq2[infer.Event, error] {
	m := r.find(request.Model)
	if m == nil {
		return func(yield func(infer.Event, error) bool) {
			for e, err := range r.Engine.Generate(ctx, request) {
				if !yield(e, r.unknown(err)) {
					return
				}
			}
		}
	}
	return func(yield func(infer.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		wanted := true
		err := r.generate(ctx, m, request, func(e infer.Event) bool {
			wanted = yield(e, nil)
			return wanted
		})
		if err != nil && wanted {
			yield(infer.Event{}, err)
		}
	}
}

// generate sends a request until a server has started to answer it, or none can.
func (r *Router) generate(ctx context.Context, m *model, request infer.Request, take func(infer.Event) bool) error {
	if err := request.Validate(); err != nil {
		return err
	}
	if request.Against != "" {
		return fault.Invalid("against", "%s runs at %s: models are compared on this machine only", m.name, m.servers[0].address)
	}
	request.Model, request.Client, request.Sibling, request.KVFile = m.id, "", 0, nil
	return r.attempt(ctx, m, conversation(&request), func(ctx context.Context, s *server, stay func() bool) (started bool, err error) {
		accepted := false
		err = s.generate(ctx, m, request, func(e infer.Event) bool {
			if !accepted {
				s.accept()
				accepted = true
			}
			if !started && (e.Type == infer.EventToken || e.Type == infer.EventDone) {
				if !stay() {
					return false
				}
				started = true
			}
			return take(e)
		})
		return started, err
	})
}

// attempt has f make a request to a server of m: to another one, or once more, until it succeeds, has started to give its
// result, or none can. key is that of the request's conversation; 0: it belongs to none. The context of f ends when its server
// is taken for dead while another one can answer, until f has called stay, which returns false if that has happened.
func (r *Router) attempt(ctx context.Context, m *model, key uint64, f func(ctx context.Context, s *server, stay func() bool) (started bool, err error)) error {
	var tried, away, blamed []*server // in this round; those that want a longer pause than a request waits; those whose breaker has counted it
	var last *failure
	var pause time.Duration // for which servers of this round asked
	for attempt := 0; ; attempt++ {
		s, number := r.reserve(m, key, tried, len(tried) == len(away))
		if s == nil {
			return last.err
		}
		dead := attempt == 0 && s.dead() // before this request; one that saw it die waits whether it comes back
		started, err := r.askOne(ctx, m, s, number, tried, !slices.Contains(blamed, s), f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failed, ok := errors.AsType[*failure](err)
		if !ok {
			return err
		}
		last, tried = failed, append(tried, s)
		if failed.broken {
			blamed = append(blamed, s)
		}
		if failed.after > maxAfter {
			away = append(away, s)
		} else {
			pause = max(pause, failed.after)
		}
		switch {
		case started:
			return last.midAnswer()
		case !last.again || attempt >= len(r.pauses(last)):
			return last.err
		case r.untried(m, tried):
			r.noteAgain(last)
			continue // at once
		case dead && last.unreached:
			return m.down()
		case last.err.Code == fault.CodeNotFound || len(away) == len(m.servers):
			return last.err // time does not change that, or too much of it would have to pass
		}
		r.noteAgain(last)
		select {
		case <-time.After(max(r.pauseBefore(attempt, last), pause)):
		case <-ctx.Done():
			return ctx.Err()
		}
		tried, pause = slices.Clone(away), 0
	}
}

// errLeft ends a request that goes to another server.
var errLeft = errors.New("the server is taken for dead")

// askOne has f make a request to s. One that s has not started to answer when s is taken for dead, because it is frozen or does not
// get to answer checks either, fails at once if another server of m can be asked; tried are those that were asked before.
func (r *Router) askOne(ctx context.Context, m *model, s *server, number int64, tried []*server, blame bool, f func(ctx context.Context, s *server, stay func() bool) (started bool, err error)) (started bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var settled atomic.Bool
	tried = append(slices.Clone(tried), s)
	s.wait(number, func() {
		if r.untried(m, tried) && settled.CompareAndSwap(false, true) {
			cancel(errLeft)
		}
	})
	defer s.wait(number, nil)
	started, err = s.use(ctx, number, blame, func(s *server) (bool, error) {
		return f(ctx, s, func() bool { return settled.CompareAndSwap(false, true) })
	})
	if context.Cause(ctx) == errLeft {
		left := &failure{server: s.address, again: true}
		err = left.because(fault.CodeUpstream, askAgain, "%s does not answer", s.address)
	}
	return started, err
}

// pauses returns the pauses of a request that is sent again after each of its failures, of which f is the last.
func (r *Router) pauses(f *failure) []time.Duration {
	if f.mute {
		return slices.Concat(r.o.Pauses, r.o.LongPauses)
	}
	return r.o.Pauses
}

// pauseBefore returns how long a request waits after its failure, the attempt'th from 0. A server that has too much to do
// is not asked again at once.
func (r *Router) pauseBefore(attempt int, f *failure) time.Duration {
	if f.busy && attempt == 0 && len(r.o.Pauses) > 1 {
		attempt = 1
	}
	return r.pauses(f)[attempt]
}

func (r *Router) noteAgain(f *failure) {
	r.o.Log.Warn("a request to another engine is sent again", "server", f.server, "error", f.err.Message)
}

// untried reports whether a request can go to a server of m that is not among tried.
func (r *Router) untried(m *model, tried []*server) bool {
	return slices.ContainsFunc(m.servers, func(s *server) bool { return s.usable() && !slices.Contains(tried, s) })
}

// maxAfter is the longest pause for which a server may ask before a request is sent to it again. If all servers of
// a model ask for longer ones, the client is told.
const maxAfter = 10 * time.Second

// Tokenize returns the tokens of text.
func (r *Router) Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) (tokens []int32, err error) {
	m := r.find(name)
	if m == nil {
		tokens, err = r.Engine.Tokenize(ctx, name, text, addSpecial, parseSpecial)
		return tokens, r.unknown(err)
	}
	err = r.ask(ctx, m, func(ctx context.Context, s *server) error {
		tokens, err = s.native.Tokenize(ctx, m.id, text, addSpecial, parseSpecial)
		return err
	})
	return tokens, err
}

// Detokenize returns what tokens spell.
func (r *Router) Detokenize(ctx context.Context, name string, ids []int32) (text string, err error) {
	m := r.find(name)
	if m == nil {
		text, err = r.Engine.Detokenize(ctx, name, ids)
		return text, r.unknown(err)
	}
	err = r.ask(ctx, m, func(ctx context.Context, s *server) error {
		text, err = s.native.Detokenize(ctx, m.id, ids)
		return err
	})
	return text, err
}

// Pieces returns the bytes of each token.
func (r *Router) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
	m := r.find(name)
	if m == nil || len(ids) == 0 {
		pieces, err = r.Engine.Pieces(ctx, name, ids)
		return pieces, r.unknown(err)
	}
	err = r.ask(ctx, m, func(ctx context.Context, s *server) error {
		pieces, err = s.native.Pieces(ctx, m.id, ids)
		return err
	})
	return pieces, err
}

// Render returns the prompt that a request would lead to.
func (r *Router) Render(ctx context.Context, request infer.Request) (view infer.Rendered, err error) {
	m := r.find(request.Model)
	if m == nil {
		view, err = r.Engine.Render(ctx, request)
		return view, r.unknown(err)
	}
	request.Model, request.Client, request.KVFile = m.id, "", nil
	err = r.ask(ctx, m, func(ctx context.Context, s *server) error {
		view, err = s.native.Render(ctx, request)
		return err
	})
	return view, err
}

// ask calls f with a server that has the tokens of m, and with another one if that fails or sends nothing for
// Options.Patience.
func (r *Router) ask(ctx context.Context, m *model, f func(context.Context, *server) error) error {
	if !m.exact {
		return noTokens(m)
	}
	var err error
	list := slices.DeleteFunc(slices.Clone(m.servers), func(s *server) bool { return !s.usable() })
	if len(list) == 0 {
		list = m.servers
	}
	for _, s := range list {
		patient, cancel := context.WithTimeoutCause(ctx, r.o.Patience, client.ErrSilent)
		err = s.failure(f(patient, s))
		silent := errors.Is(context.Cause(patient), client.ErrSilent)
		cancel()
		failed, ok := errors.AsType[*failure](err)
		if !ok {
			return err
		}
		if err = failed.err; !failed.again && !silent {
			return err
		}
	}
	return err
}

// noTokens is the error for a request that needs tokens of a model whose engine does not show them.
func noTokens(m *model) error {
	return fault.Invalid("model", "%s runs at %s, which does not show its tokens: they cannot be counted, scored or changed here", m.name, m.servers[0].address)
}
