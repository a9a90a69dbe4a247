// Package upstream lets other engines run models: vLLM, SGLang, Ray Serve, llama-server, another m40-llm, or
// whatever else serves OpenAI's routes. A [Router] has the methods of an engine. It passes each request to the
// engine of this machine or, if the request names a model of another server, to that.
//
// # What a server can do
//
// A server is asked, never recognised by its name (ask.go): for GET /v1/status, which another m40-llm has, for
// llama-server's /props, for the /openapi.json that describes its routes, and if it has none of these, by
// requests of one token with fields that it can know or not. Another m40-llm gets requests as they are, by
// POST /v1/generate (native.go): tokens, candidates and seeds are those that it would have here. Others get
// OpenAI's (openai.go, stream.go); settings that they lack have no effect, and Upstream.Lacks says why.
//
// # Which server answers
//
// Servers with the same model are equal. A conversation stays with the server that answered it last, which
// has its prefix in its cache, unless that one writes more answers than another by some; others go to the one
// that writes fewest. Until its first token a request that fails is sent again, to another server if there is
// one, at most four times in all; afterwards the failure ends the answer. A server that fails three times in
// a row is left alone for a while (breaker.go), and each is asked every ten seconds for its models (server.go).
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
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"m40-llm/infer"
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
	Close() error
}

// Options are what a Router works with. The zero value of a duration means the default.
type Options struct {
	Local   Engine
	Servers []Address
	Log     *slog.Logger      // nil: nothing is logged
	Notice  func(line string) // gets a line when a server begins to answer, or stops; nil: nobody is told
	Version string            // of this program, for the servers' logs

	CheckEvery time.Duration   // pause between two checks of a server; default 10 s
	Silence    time.Duration   // longest wait for the first part of an answer; default 10 minutes
	Stall      time.Duration   // longest wait for the next part; default 2 minutes
	Patience   time.Duration   // longest wait for another response; default 10 s
	Pauses     []time.Duration // before a request is sent again to the same server; default 0.25, 1 and 3 s
}

// Router is an engine that passes requests to other engines too. Its methods may be called by any goroutine.
type Router struct {
	Engine // of this machine
	o      Options

	servers    []*server
	cancel     context.CancelFunc
	background sync.WaitGroup

	rebuilding sync.Mutex // held while models is made anew

	mu      sync.Mutex
	models  map[string]*model // by the names that requests have
	local   map[string]bool   // names of the models of this machine, as they were seen last
	version int64             // increases when models changes
	recent  recent
}

// model is a model that servers run.
type model struct {
	name    string // in requests
	id      string // as its servers call it
	exact   bool
	servers []*server // in the order of Options
}

// New returns a Router that begins to look for the models of its servers.
func New(o Options) *Router {
	o.CheckEvery = cmp.Or(o.CheckEvery, 10*time.Second)
	o.Silence = cmp.Or(o.Silence, 10*time.Minute)
	o.Stall = cmp.Or(o.Stall, 2*time.Minute)
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	if o.Pauses == nil {
		o.Pauses = []time.Duration{250 * time.Millisecond, time.Second, 3 * time.Second}
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
		r.background.Go(func() { s.watch(ctx, func() { r.rebuild(ctx) }) })
	}
	return r
}

// Close ends the requests to other engines, and closes the engine of this machine.
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

// rebuild makes the list of models anew from what the servers have.
func (r *Router) rebuild(ctx context.Context) {
	r.rebuilding.Lock()
	defer r.rebuilding.Unlock()
	asked, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	local, err := r.Engine.Models(asked)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil { // else those seen last are still the best that is known
		r.local = map[string]bool{}
		for _, info := range local {
			r.local[info.Name] = true
		}
	}
	models := map[string]*model{}
	for _, s := range r.servers {
		for _, id := range s.offers() {
			name := id
			if r.local[name] {
				name += suffix
			}
			m := models[name]
			if m == nil {
				m = &model{name: name, id: id, exact: s.isNative()}
				models[name] = m
			}
			if m.exact == s.isNative() { // an answer must not depend on which server writes it
				m.servers = append(m.servers, s)
			}
		}
	}
	if !slices.Equal(slices.Sorted(maps.Keys(models)), slices.Sorted(maps.Keys(r.models))) {
		r.version++
	}
	r.models = models
}

// find returns the model that a request means by name; nil if it is one of this machine, or of none. A name
// with the suffix always means a model of a server.
func (r *Router) find(name string) *model {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.models[name]; m != nil {
		return m
	}
	if id, cut := strings.CutSuffix(name, suffix); cut {
		return r.models[id]
	}
	return nil
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
	up := &infer.Upstream{Exact: m.exact, Engine: m.servers[0].engineName(), ContextLength: info.Upstream.ContextLength, TemplateVars: info.Upstream.TemplateVars}
	var problems []string
	for _, s := range m.servers {
		one := s.describe(m.id).Upstream
		up.Servers = append(up.Servers, s.address)
		if one.ContextLength > 0 {
			up.ContextLength = min(up.ContextLength, one.ContextLength)
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
		return r.Engine.Generate(ctx, request)
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

// generate sends a request until a server has begun to answer it, or none can.
func (r *Router) generate(ctx context.Context, m *model, request infer.Request, take func(infer.Event) bool) error {
	if err := request.Validate(); err != nil {
		return err
	}
	if request.Against != "" {
		return infer.Invalid("against", "%s runs at %s: models are compared on this machine only", m.name, m.servers[0].address)
	}
	request.Model, request.Client, request.Sibling, request.KVFile = m.id, "", 0, nil
	key := conversation(&request)
	var tried []*server
	var last *failure
	for attempt := 0; ; attempt++ {
		s, err := r.reserve(m, key, tried)
		begun := false
		if err == nil {
			err = s.generate(ctx, m, request, func(e infer.Event) bool {
				begun = begun || e.Type == infer.EventToken || e.Type == infer.EventDone
				return take(e)
			})
			s.release(err, ctx.Err() != nil)
			failed, ok := errors.AsType[*failure](err)
			if !ok || ctx.Err() != nil {
				return err
			}
			last, tried = failed, append(tried, s)
		} else if last == nil {
			return err
		}
		if begun || !last.again || last.after > maxAfter || attempt == len(r.o.Pauses) {
			return last.err
		}
		r.o.Log.Warn("a request to another engine is sent again", "server", last.server, "error", last.err.Message)
		if r.untried(m, tried) {
			continue // at once
		}
		tried = nil
		select {
		case <-time.After(max(r.o.Pauses[attempt], last.after)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// untried reports whether a request can go to a server of m that is not among tried.
func (r *Router) untried(m *model, tried []*server) bool {
	return slices.ContainsFunc(m.servers, func(s *server) bool { return s.usable() && !slices.Contains(tried, s) })
}

// maxAfter is the longest pause for which a server may ask before a request is sent again. For longer ones
// the client is told.
const maxAfter = 10 * time.Second

// Tokenize returns the tokens of text.
func (r *Router) Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) (tokens []int32, err error) {
	m := r.find(name)
	if m == nil {
		return r.Engine.Tokenize(ctx, name, text, addSpecial, parseSpecial)
	}
	err = r.ask(m, func(s *server) error {
		tokens, err = s.native.Tokenize(ctx, m.id, text, addSpecial, parseSpecial)
		return err
	})
	return tokens, err
}

// Detokenize returns what tokens spell.
func (r *Router) Detokenize(ctx context.Context, name string, ids []int32) (text string, err error) {
	m := r.find(name)
	if m == nil {
		return r.Engine.Detokenize(ctx, name, ids)
	}
	err = r.ask(m, func(s *server) error {
		text, err = s.native.Detokenize(ctx, m.id, ids)
		return err
	})
	return text, err
}

// Pieces returns the bytes of each token.
func (r *Router) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
	m := r.find(name)
	if m == nil || len(ids) == 0 {
		return r.Engine.Pieces(ctx, name, ids)
	}
	err = r.ask(m, func(s *server) error {
		pieces, err = s.native.Pieces(ctx, m.id, ids)
		return err
	})
	return pieces, err
}

// Embed computes the embeddings of texts, by models of this machine alone.
func (r *Router) Embed(ctx context.Context, request infer.EmbedRequest) (infer.Embeddings, error) {
	if m := r.find(request.Model); m != nil {
		return infer.Embeddings{}, infer.Errorf(infer.CodeNotSupported, "%s runs at %s: embeddings are computed by models of this machine only; ask that server itself", m.name, m.servers[0].address)
	}
	return r.Engine.Embed(ctx, request)
}

// Render returns the prompt that a request would lead to.
func (r *Router) Render(ctx context.Context, request infer.Request) (view infer.Rendered, err error) {
	m := r.find(request.Model)
	if m == nil {
		return r.Engine.Render(ctx, request)
	}
	request.Model, request.Client, request.KVFile = m.id, "", nil
	err = r.ask(m, func(s *server) error {
		view, err = s.native.Render(ctx, request)
		return err
	})
	return view, err
}

// ask calls f with a server that has the tokens of m, and with another one if that fails.
func (r *Router) ask(m *model, f func(*server) error) error {
	if !m.exact {
		return noTokens(m)
	}
	var err error
	for _, s := range m.servers {
		if !s.usable() {
			continue
		}
		err = s.failure(f(s))
		failed, ok := errors.AsType[*failure](err)
		if !ok {
			return err
		}
		if err = failed.err; !failed.again {
			return err
		}
	}
	if err == nil {
		err = m.down()
	}
	return err
}

// noTokens is the error for a request that needs tokens of a model whose engine does not show them.
func noTokens(m *model) error {
	return infer.Invalid("model", "%s runs at %s, which does not show its tokens: they cannot be counted, scored or changed here", m.name, m.servers[0].address)
}
