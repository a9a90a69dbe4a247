// Package fleet is an engine with several loaded models: a [Fleet] has a worker for each and the methods of an engine.
//
// # Which models stay
//
// A request goes to the worker that has its model. If none has, one is started, if the model would be on the same devices as alone and
// get a context of placement.CommonContext, or that which it would get alone if that is shorter. Else the models that were used least
// recently are unloaded first, as many as it takes. Pinned models stay. A model with answers ends them first: requests that come for it
// meanwhile wait behind the one that needs its memory, so that no model is used forever while another is asked for.
//
// Requests for models that are not loaded wait in one queue, and one model is loaded at a time: what a device has free is known only when the
// load before has ended. The next one is that of the client with the fewest requests in all models, among equals of the client whose turn was
// longest ago. Requests that have not started in a model that is to be unloaded go back into that queue, so that no request waits for all that
// another person has asked of it. A model that would not fit if all others were unloaded is refused.
//
// # Memory
//
// What models take is planned: weights, workspace, and the most that the KV cache may become (infer.Status.Memory). Each worker is told
// how much main memory it may plan with: what is free, without what the caches of the others may still grow by, and no more than
// Options.Memory leaves. On GPUs it plans with what the driver says is free. refused.go says what is done if it is not given what it planned.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/placement"
)

// Engine is a worker: an engine that has one model.
type Engine interface {
	Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error]
	Models(ctx context.Context) ([]infer.ModelInfo, error)
	Status() infer.Status
	Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error)
	Detokenize(ctx context.Context, name string, ids []int32) (string, error)
	Pieces(ctx context.Context, name string, ids []int32) ([]string, error)
	Render(ctx context.Context, r infer.Request) (infer.Rendered, error)
	Reload(ctx context.Context, s infer.Setup) error
	Keep(ctx context.Context, seconds *float64) error
	Embed(ctx context.Context, r infer.EmbedRequest) (infer.Embeddings, error)
	Rank(ctx context.Context, r infer.RankRequest) (infer.Ranking, error)
	Close() error
}

// Options are what a Fleet works with.
type Options struct {
	// Find returns the model that requests call name; see hub.Hub.Find.
	Find func(name string) (infer.ModelInfo, error)

	// Start starts a worker that begins to load a model.
	Start func(model string, p Plan) (Engine, error)

	// Machine returns how models are loaded, and main memory with what is free of it now as its only device.
	Machine func() placement.Machine

	Model  string       // that is loaded at the start
	Main   int64        // bytes of main memory; 0: not known
	Most   int          // loaded models; 0: as many as fit
	Memory int64        // bytes of main memory that all models may take together; 0: what is free
	Log    *slog.Logger // nil: nothing is logged

	Now   func() time.Time // nil: time.Now
	Check time.Duration    // pause between two looks at the workers while requests wait; default 50 ms
}

// Plan is how a worker loads its model.
type Plan struct {
	Memory int64        // bytes of main memory that it takes at most; 0: what is free
	Setup  *infer.Setup // nil: as by default
	Whole  bool         // where memory is refused, the load fails with fault.CodeMemory, instead of being tried with less
}

// Fleet is an engine with a worker for each loaded model. Its methods may be called by any goroutine.
type Fleet struct {
	o Options

	mu        sync.Mutex
	changed   chan struct{} // closed when a request ends, a worker has ended, or a model is pinned or not any more
	slots     []*slot       // never empty: the last one stays when its worker is closed
	waiting   []*waiter     // requests for models that are not loaded, the next one first
	arrivals  int64         // of requests
	clients   clients
	times     times
	refused   map[string]refusal // by model, until it is loaded
	evicted   []string           // names of the models that were unloaded since a model was loaded
	compared  int64              // bytes of the files of comparisons
	leaving   int                // workers that are being closed
	closed    bool
	evictions int64
	gpus      []device.Info // that models were on, with the memory that is free for models there if none is loaded
	closing   sync.WaitGroup

	memory   []infer.Memory // for Status
	memoryAt time.Time      // when that was computed
}

// slot is a worker with what is known of its use.
type slot struct {
	engine    Engine
	using     int       // requests in it
	visits    []*visit  // those of them that can go back into the queue
	read      int       // calls in it that need no loaded model
	gone      bool      // it is being closed, or closed
	used      time.Time // when the last one began or ended
	pinned    bool
	draining  bool // it ends its answers and is closed
	measured  bool // the free memory of its GPUs is known
	expected  []infer.MemoryUse
	whole     bool    // its load fails where memory is refused; see Plan
	refused   bool    // it was, and the model is loaded by another worker
	notice    string  // what was done because memory was refused, as part of its status
	inPlaceOf string  // names of the models that were unloaded to make room for this one
	loadMS    float64 // of the last load that was noted
}

// New returns a Fleet that begins to load Options.Model.
func New(o Options) (*Fleet, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Check = cmp.Or(o.Check, 50*time.Millisecond)
	f := &Fleet{o: o, changed: make(chan struct{})}
	first, err := o.Start(o.Model, Plan{Memory: o.Memory})
	if err != nil {
		return nil, err
	}
	f.slots = []*slot{{engine: first, used: o.Now()}}
	return f, nil
}

// Close ends all workers, and with them all answers.
func (f *Fleet) Close() error {
	f.mu.Lock()
	f.closed = true
	f.signal()
	slots := slices.DeleteFunc(slices.Clone(f.slots), func(s *slot) bool { return s.gone })
	f.mu.Unlock()
	var errs []error
	for _, s := range slots {
		f.closing.Go(func() {
			if err := s.engine.Close(); err != nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	f.closing.Wait()
	return errors.Join(errs...)
}

// signal wakes the requests that wait. The caller has locked mu.
func (f *Fleet) signal() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// status returns the status of s with what only the fleet knows.
func (s *slot) status() infer.Status {
	status := s.engine.Status()
	status.Pinned, status.Devices = s.pinned, nil
	status.Notice = strings.Trim(status.Notice+"; "+s.notice, "; ")
	status.UsedUnix = s.used.Unix()
	if s.gone {
		status.State, status.Memory, status.Cache, status.Running, status.Queued = infer.StateUnloaded, nil, infer.Cache{}, 0, 0
	}
	if status.Memory == nil && occupies(status) {
		status.Memory = s.expected
	}
	return status
}

// occupies reports whether a worker has a model in memory, or is loading one.
func occupies(s infer.Status) bool {
	return s.State == infer.StateReady || s.State == infer.StateLoading || s.State == infer.StateRestarting
}

// has reports whether the worker with this status has the model m, or had it last.
func has(s infer.Status, m infer.ModelInfo) bool {
	if s.Model.Path != "" && m.Path != "" {
		return s.Model.Path == m.Path
	}
	return s.Model.Name == m.Name
}

// of returns the slot that has m, or had it last; nil if none has. The caller has locked mu.
func (f *Fleet) of(m infer.ModelInfo) *slot {
	for _, s := range f.slots {
		if !s.gone && has(s.engine.Status(), m) {
			return s
		}
	}
	return nil
}

// last returns the slot that was used last, of those whose model suits if there are any. The caller has locked mu.
func (f *Fleet) last(suits func(infer.ModelInfo) bool) *slot {
	return slices.MaxFunc(f.slots, func(a, b *slot) int {
		of := func(s *slot) int {
			if status := s.engine.Status(); suits(status.Model) && !s.gone {
				return 1
			}
			return 0
		}
		return cmp.Or(of(a)-of(b), a.used.Compare(b.used))
	})
}

func writes(m infer.ModelInfo) bool { return m.Writes() }
func embeds(m infer.ModelInfo) bool { return m.Embedding > 0 && !m.Ranks }
func ranks(m infer.ModelInfo) bool  { return m.Ranks }

func isAny(infer.ModelInfo) bool { return true }

// Status returns the status of the model that wrote last, with those of all loaded ones. It never waits for a worker.
func (f *Fleet) Status() infer.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.measure()
	first := f.last(writes)
	s := first.status()
	if n := len(f.waiting); n > 0 {
		s.Queued, s.WaitS = s.Queued+n, f.outlook()[n-1].WaitS
	}
	s.Evictions = f.evictions
	s.Models = []infer.Status{}
	byUse := slices.SortedFunc(slices.Values(f.slots), func(a, b *slot) int { return b.used.Compare(a.used) })
	for _, one := range byUse {
		if status := one.status(); occupies(status) {
			s.Models = append(s.Models, status)
		}
	}
	if now := f.o.Now(); now.Sub(f.memoryAt) >= time.Second { // free memory is not asked for with every status
		f.memory, f.memoryAt = f.devices(), now
	}
	s.Devices = f.memory
	return s
}

// devices returns the memory of each device that models may take.
func (f *Fleet) devices() (list []infer.Memory) {
	base := f.machine(nil)
	for i, d := range base.Devices {
		m := infer.Memory{Device: cmp.Or(d.Name, "main memory"), Kind: d.Kind, Total: d.Memory}
		for _, s := range f.slots {
			for _, use := range s.status().Memory {
				if use.Device == d.Name || i == len(base.Devices)-1 && !f.isGPU(use.Device) {
					m.Taken += use.Total()
					m.Device = use.Device // of main memory the name of the processor
				}
			}
		}
		list = append(list, m)
	}
	list[len(list)-1].Other = f.others()
	return list
}

// others returns the bytes of main memory that are taken, but not by models; 0: not known.
func (f *Fleet) others() int64 {
	machine := f.o.Machine()
	free := machine.Devices[len(machine.Devices)-1].Memory
	if f.o.Main == 0 || free == 0 || f.o.Memory > 0 { // those that Memory leaves have no owner
		return 0
	}
	for _, s := range f.slots {
		for _, use := range f.takenOfMain(s.status()) {
			free += use.now
		}
	}
	return max(0, f.o.Main-free)
}

func (f *Fleet) isGPU(name string) bool {
	return slices.ContainsFunc(f.gpus, func(d device.Info) bool { return d.Name == name })
}

// read calls call with a worker that can read the file of the model called name: the one that has it loaded, else the one used last.
func (f *Fleet) read(ctx context.Context, name string, call func(Engine) error) error {
	m, err := f.o.Find(name)
	f.mu.Lock()
	s := f.of(m)
	if name == "" || err != nil || s == nil {
		s = f.last(writes)
	}
	for s.gone && !f.closed { // another one is about to be started
		if err := f.wait(ctx, &waiter{}, nil); err != nil {
			f.mu.Unlock()
			return err
		}
		s = f.last(writes)
	}
	s.read++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		s.read--
		f.signal()
	}()
	return call(s.engine)
}

func (f *Fleet) isPinned(s *slot) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.pinned
}

// Embed computes the embeddings of texts, as engine.Engine does.
func (f *Fleet) Embed(ctx context.Context, r infer.EmbedRequest) (infer.Embeddings, error) {
	return compute(ctx, f, r.Client, r.Model, embeds, func(s *slot) (infer.Embeddings, error) {
		if f.isPinned(s) {
			r.KeepAliveS = nil
		}
		return s.engine.Embed(ctx, r)
	})
}

// compute calls call with the slot that has a model, and again if the model had to be loaded again.
func compute[T any](ctx context.Context, f *Fleet, client, name string, suits func(infer.ModelInfo) bool, call func(*slot) (T, error)) (result T, err error) {
	w := &waiter{client: client}
	for {
		v, err := f.enter(ctx, w, name, suits, nil)
		if err != nil {
			return result, err
		}
		result, err = call(v.slot)
		f.leave(v)
		if err == nil || !f.loadsAgain(v.slot, w.model, err) {
			return result, err
		}
	}
}

// Rank scores documents for a query, as engine.Engine does.
func (f *Fleet) Rank(ctx context.Context, r infer.RankRequest) (infer.Ranking, error) {
	return compute(ctx, f, r.Client, r.Model, ranks, func(s *slot) (infer.Ranking, error) { return s.engine.Rank(ctx, r) })
}

// Models lists the models of the catalog, with the time that their loads are expected to take.
func (f *Fleet) Models(ctx context.Context) (list []infer.ModelInfo, err error) {
	err = f.read(ctx, "", func(e Engine) error {
		list, err = e.Models(ctx)
		return err
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteLoads()
	for i, m := range list {
		if s := f.of(m); m.Error == "" && (s == nil || !occupies(s.status())) {
			list[i].LoadS = infer.Roughly(f.times.load(m)).Seconds()
		}
	}
	return list, err
}

// Tokenize returns the tokens of text. An empty name means the model that wrote last.
func (f *Fleet) Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) (tokens []int32, err error) {
	err = f.read(ctx, name, func(e Engine) error {
		tokens, err = e.Tokenize(ctx, name, text, addSpecial, parseSpecial)
		return err
	})
	return tokens, err
}

// Detokenize returns the text of tokens. An empty name means the model that wrote last.
func (f *Fleet) Detokenize(ctx context.Context, name string, ids []int32) (text string, err error) {
	err = f.read(ctx, name, func(e Engine) error {
		text, err = e.Detokenize(ctx, name, ids)
		return err
	})
	return text, err
}

// Pieces returns the bytes of each token. An empty name means the model that wrote last.
func (f *Fleet) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
	err = f.read(ctx, name, func(e Engine) error {
		pieces, err = e.Pieces(ctx, name, ids)
		return err
	})
	return pieces, err
}

// Render returns the prompt and the tokens that r would give to the model.
func (f *Fleet) Render(ctx context.Context, r infer.Request) (view infer.Rendered, err error) {
	err = f.read(ctx, r.Model, func(e Engine) error {
		view, err = e.Render(ctx, r)
		return err
	})
	return view, err
}

// Reload loads each model again with another setup, which later ones get too; see engine.Engine.
func (f *Fleet) Reload(ctx context.Context, s infer.Setup) error {
	f.mu.Lock()
	slots := slices.DeleteFunc(slices.Clone(f.slots), func(s *slot) bool { return s.gone })
	f.mu.Unlock()
	var errs []error
	for _, one := range slots {
		errs = append(errs, one.engine.Reload(ctx, s))
	}
	return errors.Join(errs...)
}

// Load loads the model called name, if it is not, and returns when the load has started.
func (f *Fleet) Load(ctx context.Context, name string) error {
	m, err := f.o.Find(name)
	if err != nil {
		return err
	}
	if m.Error != "" {
		return fault.Errorf(fault.CodeModelFile, "model %q cannot be used: %s", m.Name, m.Error)
	}
	return f.load(ctx, m)
}

// load is Load for a model that can be used.
func (f *Fleet) load(ctx context.Context, m infer.ModelInfo) error {
	v, err := f.enter(ctx, &waiter{}, m.Name, isAny, nil)
	if err != nil {
		return err
	}
	f.leave(v)
	f.closing.Go(func() { f.seeLoaded(v.slot, m) })
	return nil
}

// Unload unloads the model called name when its answers have ended, and unpins it.
func (f *Fleet) Unload(ctx context.Context, name string) error {
	s, err := f.loaded(name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	s.pinned = false
	f.mu.Unlock()
	now := 0.0
	return s.engine.Keep(ctx, &now)
}

// Pin keeps the model called name, which must be loaded, in memory until it is unpinned or unloaded by Unload.
func (f *Fleet) Pin(ctx context.Context, name string, pinned bool) error {
	s, err := f.loaded(name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	s.pinned = pinned
	f.signal()
	f.mu.Unlock()
	var keep *float64 // as by default
	if always := -1.0; pinned {
		keep = &always
	}
	return s.engine.Keep(ctx, keep)
}

// loaded returns the slot that has the model called name, whose file may be gone.
func (f *Fleet) loaded(name string) (*slot, error) {
	m, err := f.o.Find(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		m = infer.ModelInfo{Name: name}
	}
	s := f.of(m)
	if s == nil && err != nil {
		return nil, err
	}
	if s == nil || !occupies(s.status()) {
		return nil, fault.Errorf(fault.CodeInvalid, "the model %q is not loaded", m.Name)
	}
	return s, nil
}

// names returns the names of the models of slots.
func names(slots []*slot) string {
	var list []string
	for _, s := range slots {
		list = append(list, s.engine.Status().Model.Name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
