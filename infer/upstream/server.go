package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/client"
)

// Limits of what a server may send.
const (
	maxModels     = 256
	maxModelName  = 200       // bytes
	maxModelBody  = 4 << 20   // bytes of a list of models
	maxDescribed  = 8 << 20   // bytes of an OpenAPI description
	maxEvent      = 4 << 20   // bytes of an event of another m40-llm
	maxLine       = 1 << 20   // bytes of a line of OpenAI's stream
	maxVectorBody = 512 << 10 // bytes of an embedding in a response
	maxHeaders    = 64 << 10
	maxPauseCheck = 30 * time.Second // between checks of a server that does not answer
	loadingPause  = time.Second      // between checks of a server that loads a model
)

// Limits of what becomes part of an answer. They are not above those of what is stored of it: an answer that cannot be
// stored must end as one of a server that misbehaves.
const (
	maxAnswer = 16 << 20 // bytes of the text, reasoning and calls
	maxName   = 1 << 10  // bytes of a name, an id, a stop string, or a text of the receipt
	maxRow    = 4 << 10  // bytes of the candidates of a token
)

// server is another engine.
type server struct {
	address string // for people
	base    string
	key     string
	o       *Options
	http    *http.Transport
	native  *client.Client // of another m40-llm
	poke    chan struct{}  // has the server checked at once

	mu       sync.Mutex
	breaker  breaker
	kind     kind
	models   []offered
	problem  string // why it is taken for dead; empty: it is not
	told     bool   // that it is was told
	stale    bool   // it may be another engine than it said it is
	silent   int    // checks in a row that failed
	running  int
	waiting  map[int64]func() // by the number of a request that has not started: has it go elsewhere
	answers  int64
	failures int64
}

// offered is a model that a server has.
type offered struct {
	id   string
	info infer.ModelInfo
}

func newServer(a Address, o *Options) *server {
	s := &server{address: a.Host, base: a.Base, key: a.Key, o: o, poke: make(chan struct{}, 1), waiting: map[int64]func(){}, problem: a.Host + " was not asked yet"}
	s.http = &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: maxHeaders,
	}
	s.native = client.New(client.Options{
		Transport: s.http, Base: a.Base, Key: a.Key, MaxBody: maxModelBody, MaxEvent: maxEvent, MaxVector: maxVectorBody, Silence: o.Silence,
		MaxAnswer: func(r infer.Request) int64 { return int64(budget(&r, s.describe(r.Model).Upstream.ContextLength)) },
		Refused:   func(r *http.Response) error { return s.refused(r) },
	})
	return s
}

func (s *server) close() { s.http.CloseIdleConnections() }

// watch checks the server until ctx ends, and calls changed after each check; soon again if that fails.
func (s *server) watch(ctx context.Context, changed func() error) {
	for pause := time.Second; ; {
		loading, err := s.check(ctx)
		if ctx.Err() != nil {
			return
		}
		early := changed() != nil || loading
		wait := s.o.CheckEvery
		switch {
		case err != nil:
			wait = min(pause, s.o.CheckEvery)
			pause = min(2*pause, maxPauseCheck)
		case early:
			wait, pause = min(loadingPause, s.o.CheckEvery), time.Second
		default:
			pause = time.Second
		}
		select {
		case <-time.After(wait):
		case <-s.poke:
		case <-ctx.Done():
			return
		}
	}
}

// check asks the server for its models and, until it has said it, for what it can do. It reports whether the server
// is loading a model.
func (s *server) check(ctx context.Context) (loading bool, err error) {
	k, models, loading, err := s.ask(ctx)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		failed, _ := errors.AsType[*failure](s.failure(err))
		s.failedCheck(failed)
		return false, err
	}
	s.mu.Lock()
	was := s.problem
	if !k.native { // of which many say that their models are made at the time of the request
		keepTimes(models, s.models)
	}
	s.kind, s.models, s.problem, s.told, s.stale, s.silent = k, models, "", false, false, 0
	s.mu.Unlock()
	if was != "" {
		s.o.Notice(fmt.Sprintf("%s answers: %s", s.address, counted(len(models), "model")))
	}
	return loading, nil
}

// keepTimes gives models the time that they had when they were seen first.
func keepTimes(models, before []offered) {
	for i, m := range models {
		if at := slices.IndexFunc(before, func(o offered) bool { return o.id == m.id }); at >= 0 {
			models[i].info.ModifiedUnix = before[at].info.ModifiedUnix
		}
	}
}

// ask makes the requests of a check. A server that could not be asked for a while may be another one now.
func (s *server) ask(ctx context.Context) (k kind, models []offered, loading bool, err error) {
	if models, err = s.list(ctx); err != nil {
		return k, nil, false, err
	}
	s.mu.Lock()
	k = s.kind
	again := !k.asked || s.stale
	s.mu.Unlock()
	switch {
	case len(models) == 0:
	case again:
		if k, err = s.askKind(ctx, models[0]); err != nil {
			return k, nil, false, err
		}
	case k.unnamed:
		k.engine, k.unnamed = s.askVersion(ctx, models[0])
	}
	if k.native {
		loading, err = s.nativeModels(ctx, models)
	}
	return k, models, loading, err
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// failedCheck notes that a check failed. One that is not answered, or by an error, says little: the server may have much
// to do, or one of several engines behind its address is dead. The second makes it one that is taken for dead.
func (s *server) failedCheck(f *failure) {
	if f == nil {
		return
	}
	s.mu.Lock()
	s.silent++
	dead := s.problem != "" || s.silent >= 2 || f.unreached
	s.mu.Unlock()
	if dead {
		s.bury(f)
	}
}

// wait has leave called when the server is taken for dead while the request with this number waits; nil: it does no more.
func (s *server) wait(number int64, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leave == nil {
		delete(s.waiting, number)
		return
	}
	s.waiting[number] = leave
}

// bury marks the server as dead, and reports that once.
func (s *server) bury(f *failure) {
	s.mu.Lock()
	first := !s.told
	s.problem, s.told, s.stale = f.why, true, true
	waiting := slices.Collect(maps.Values(s.waiting))
	s.mu.Unlock()
	for _, leave := range waiting {
		leave()
	}
	if first {
		s.o.Notice(f.why) // which may take time: whoever reads it may be slow
	}
}

func (s *server) currentKind() kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kind
}

// get makes a GET request and decodes the response, of at most limit bytes.
func (s *server) get(ctx context.Context, path string, limit int64, result any) error {
	return s.exchange(ctx, http.MethodGet, path, nil, s.o.Patience, limit, result)
}

// exchange makes a request and decodes the response, for which it waits for at most patience and which has at most
// limit bytes.
func (s *server) exchange(ctx context.Context, method, path string, body io.Reader, patience time.Duration, limit int64, result any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, client.ErrSilent)
	defer cancel()
	response, err := s.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return s.refused(response)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return s.lost(err)
	}
	if int64(len(text)) > limit {
		return s.breach("sent more than %d bytes for %s", limit, path)
	}
	if err := json.Unmarshal(text, result); err != nil {
		return s.breach("did not send the JSON that %s should have: %s", path, s.said(string(text)))
	}
	return nil
}

// list asks for the models.
func (s *server) list(ctx context.Context) ([]offered, error) {
	var body struct {
		Data listed[struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
			Created int64  `json:"created"`
			MaxLen  int    `json:"max_model_len"` // vLLM's name for the context
			Meta    struct {
				Context      int    `json:"n_ctx"`
				ContextTrain int    `json:"n_ctx_train"`
				Parameters   int64  `json:"n_params"`
				Size         int64  `json:"size"`
				Architecture string `json:"architecture"`
				Quant        string `json:"quant"`
				License      string `json:"license"`
				Embedding    int    `json:"embedding"`
				Ranks        bool   `json:"ranks"`
				Demo         bool   `json:"demo"`
				Upstream     string `json:"upstream"`
			} `json:"meta"`
		}] `json:"data"`
	}
	if err := s.get(ctx, "/v1/models", maxModelBody, &body); err != nil {
		return nil, err
	}
	var list []offered
	for _, m := range body.Data {
		// A model that another m40-llm has from elsewhere is not passed on: two that have each other as
		// upstream would pass requests back and forth.
		if m.ID == "" || !isName(m.ID, maxModelName) || withoutKey(m.ID, s.key) != m.ID || m.Meta.Upstream != "" || len(list) == maxModels {
			continue
		}
		if slices.ContainsFunc(list, func(o offered) bool { return o.id == m.ID }) {
			continue
		}
		context := max(m.MaxLen, m.Meta.Context, 0)
		list = append(list, offered{m.ID, infer.ModelInfo{
			Size: max(0, m.Meta.Size), ModifiedUnix: max(0, m.Created), Architecture: s.short(m.Meta.Architecture), Quant: s.short(m.Meta.Quant), License: s.short(m.Meta.License),
			Parameters: max(0, m.Meta.Parameters), ContextTrain: max(m.Meta.ContextTrain, context), Embedding: max(0, m.Meta.Embedding), Ranks: m.Meta.Ranks, Demo: m.Meta.Demo,
			Upstream: &infer.Upstream{ContextLength: context, Engine: s.short(m.OwnedBy)},
		}})
	}
	return list, nil
}

// send makes a request, with the key, and returns the response. The error is a *failure, or that of ctx.
func (s *server) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return nil, s.lost(err)
	}
	r.Header.Set("User-Agent", "m40-llm/"+s.o.Version)
	r.Header.Set("Accept-Encoding", "identity")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.key != "" {
		r.Header.Set("Authorization", "Bearer "+s.key)
	}
	response, err := s.http.RoundTrip(r) // follows no redirects
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, client.ErrSilent) {
			return nil, s.lost(cause)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return nil, s.lost(err)
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		response.Body.Close()
		return nil, s.breach("sent a compressed response that was not asked for")
	}
	return response, nil
}

// usable reports whether requests can go to the server now, rather than to another one.
func (s *server) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem == "" && !s.breaker.open(time.Now())
}

// offers returns the names of the models that the server has, and whether it is another m40-llm.
func (s *server) offers() (ids []string, native bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.models {
		ids = append(ids, m.id)
	}
	return ids, s.kind.native
}

// engineName returns what the engine calls itself.
func (s *server) engineName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kind.engine
}

// describe returns what is known of a model. Its Upstream is not shared.
func (s *server) describe(id string) infer.ModelInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := infer.ModelInfo{Upstream: &infer.Upstream{}}
	for _, m := range s.models {
		if m.id == id {
			info = m.info
		}
	}
	up := *info.Upstream
	if up.TemplateVars == nil {
		up.TemplateVars = s.kind.templateVars
	}
	if up.ContextLength == 0 {
		up.ContextLength = s.kind.context
	}
	up.Tools = s.kind.native || s.kind.has("tools")
	up.Lacks, up.Problem = s.kind.lacks, s.problem
	info.Upstream = &up
	return info
}

// status describes the server.
func (s *server) status() infer.UpstreamServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	problem := s.problem
	if problem == "" && s.breaker.open(time.Now()) {
		problem = fmt.Sprintf("%s failed %d times in a row", s.address, s.breaker.failures)
	}
	return infer.UpstreamServer{Address: s.address, Engine: s.kind.engine, Problem: problem, Models: len(s.models), Running: s.running, Answers: s.answers, Failed: s.failures}
}

func (s *server) load() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

func (s *server) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers + s.failures
}

// dead reports whether the server is taken for dead.
func (s *server) dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem != ""
}

// begin counts a request, and returns its number.
func (s *server) begin() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	return s.breaker.begin()
}

// accept notes that the server has started to answer.
func (s *server) accept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker.accept()
}

// errNoEnd is the error of a request that did not return: whoever took its events panicked.
var errNoEnd = errors.New("a request did not return")

// use has f make the request with this number, and counts its end, also if f panics. blame: a failure of the server
// counts for its breaker.
func (s *server) use(ctx context.Context, number int64, blame bool, f func(*server) (started bool, err error)) (started bool, err error) {
	err = errNoEnd
	defer func() { s.release(number, err, ctx.Err() != nil, blame) }()
	return f(s)
}

// release counts the end of a request. A server to which there is no connection is taken for dead at once, and one that
// has completed an answer is not.
func (s *server) release(number int64, err error, canceled, blame bool) {
	failed, isFailure := errors.AsType[*failure](err)
	s.count(number, err, failed, canceled, blame)
	switch {
	case err == nil:
		s.revive()
	case isFailure && !canceled && failed.unreached:
		s.bury(failed)
	}
	if isFailure && !canceled && failed.gone {
		select {
		case s.poke <- struct{}{}:
		default:
		}
	}
}

// count counts the end of a request. failed is err, if that is a failure.
func (s *server) count(number int64, err error, failed *failure, canceled, blame bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	switch {
	case err == nil:
		s.answers++
		s.breaker.succeed()
	case failed == nil || canceled:
		s.breaker.giveUp(number)
	case failed.broken && blame:
		s.failures++
		s.breaker.fail(number, time.Now())
	default:
		s.failures++
		s.breaker.giveUp(number)
	}
}

// revive notes that the server is not dead.
func (s *server) revive() {
	s.mu.Lock()
	was := s.problem
	s.problem, s.told, s.silent = "", false, 0
	s.mu.Unlock()
	if was != "" {
		s.o.Notice(s.address + " answers")
	}
}

// generate writes one answer. An error is a *failure or that of ctx.
func (s *server) generate(ctx context.Context, m *model, r infer.Request, take func(infer.Event) bool) error {
	if m.exact {
		return s.generateNative(ctx, m, r, take)
	}
	return s.generateOpenAI(ctx, m, r, take)
}
