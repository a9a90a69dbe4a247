package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// worker is a worker of a test. It is ready at once, and answers end when release is closed.
type worker struct {
	Engine
	house   *house
	info    infer.ModelInfo
	memory  int64
	release chan struct{}
	card    int           // of house.cards
	place   chan struct{} // has room for the answers that are written at once

	mu     sync.Mutex
	state  infer.State
	keeps  []float64 // seconds; -2: as by default
	closed bool

	failure *fault.Error // of the load; nil: it succeeds
}

func (w *worker) Status() infer.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := infer.Status{State: w.state, Error: w.failure, Model: w.info, EndS: w.house.endS, Loading: infer.Loading{Done: 1, Total: 4}}
	if w.state == infer.StateReady && w.house.cards > 0 {
		s.Device = device.Info{Kind: "cuda", Name: cardName(w.card), Dedicated: true}
		s.Memory = []infer.MemoryUse{{Device: s.Device.Name, Kind: "cuda", Weights: room, Free: room + room/2}}
		for i := range w.house.cards {
			s.Devices = append(s.Devices, infer.Memory{Device: cardName(i), Kind: "cuda", Total: room + room/2})
		}
		return s
	}
	if w.state == infer.StateReady {
		s.LoadMS = w.house.loadMS
		s.Memory = []infer.MemoryUse{{Device: "processor", Kind: "cpu", Weights: w.house.weights}}
	}
	return s
}

func (w *worker) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		if w.failure != nil {
			yield(infer.Event{}, w.failure)
			return
		}
		w.set(infer.StateReady)
		if !yield(infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Model: w.info.Name, Done: 1, Total: 1}}, nil) {
			return
		}
		select {
		case w.place <- struct{}{}:
			defer func() { <-w.place }()
		case <-ctx.Done():
			yield(infer.Event{}, ctx.Err())
			return
		}
		if !yield(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{}}, nil) {
			return
		}
		if r.RowFile != nil { // a half of a comparison: the first model scores 1, the second compares by 2
			token := infer.Token{Prompt: true}
			if token.LogProb = 1; r.RowFile.Second {
				token.LogProb, token.Compared = 5, &infer.Compared{KL: 2}
			}
			for range 3 {
				if !yield(infer.Event{Type: infer.EventToken, Token: &token}, nil) {
					return
				}
			}
		}
		select {
		case <-w.release:
			yield(infer.Event{Type: infer.EventDone, Done: &infer.Done{Text: w.info.Name}}, nil)
		case <-ctx.Done():
			yield(infer.Event{}, ctx.Err())
		}
	}
}

func (w *worker) Embed(context.Context, infer.EmbedRequest) (infer.Embeddings, error) {
	if w.failure != nil {
		return infer.Embeddings{}, w.failure
	}
	return infer.Embeddings{Model: w.info.Name}, nil
}

func (w *worker) Keep(_ context.Context, seconds *float64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seconds == nil {
		w.keeps = append(w.keeps, -2)
		return nil
	}
	if w.keeps = append(w.keeps, *seconds); *seconds == 0 {
		w.state = infer.StateUnloaded
	}
	return nil
}

func (w *worker) set(s infer.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = s
}

func (w *worker) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.house.mu.Lock()
	defer w.house.mu.Unlock()
	w.house.started = slices.DeleteFunc(w.house.started, func(other *worker) bool { return other == w })
	return nil
}

// house is a machine whose main memory takes several copies of one small model, which has several names.
type house struct {
	t       *testing.T
	shape   *placement.Shape
	weights int64 // that a model takes of memory, once it is loaded
	free    int64 // if nothing is loaded
	cards   int   // GPUs, each with room for one model
	hold    bool  // answers do not end
	loading bool  // workers load until a test says that they are ready

	refuses bool // memory to loads that are not tried with less

	size   int64 // of the file of a model
	loadMS float64
	endS   float64 // expected, of the answers of each worker

	mu      sync.Mutex
	started []*worker
	log     []string // names of the models in the order in which they were loaded
}

// room is what a model of a house takes in all, by its plan.
const room = 1 << 30

func newHouse(t *testing.T, models int) *house {
	t.Helper()
	data := gguftest.TinyLlama(gguftest.Llama{Type: gguf.F32})
	file, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	config, err := model.ReadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	shape, err := placement.ShapeOf(file, config)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, shape: shape.Scaled(float64(room)/float64(len(data)), gguf.F32), weights: room}
	h.free = int64(models)*room + room/2
	return h
}

func (h *house) find(name string) (infer.ModelInfo, error) {
	if strings.HasPrefix(name, "no-") {
		return infer.ModelInfo{}, &fault.Error{Code: fault.CodeNotFound, Message: name}
	}
	m := infer.ModelInfo{Name: name, Shape: h.shape, Size: h.size}
	if strings.HasPrefix(name, "embed") {
		m.Embedding = 4
	}
	return m, nil
}

func (h *house) start(name string, p Plan) (Engine, error) {
	info, _ := h.find(name)
	w := &worker{house: h, info: info, memory: p.Memory, release: make(chan struct{}), place: make(chan struct{}, 1), state: infer.StateReady}
	if h.loading {
		w.state = infer.StateLoading
	}
	if !h.hold {
		close(w.release)
	}
	if h.refuses && p.Whole {
		w.state, w.failure = infer.StateFailed, fault.Errorf(fault.CodeMemory, "cannot load model %q: the device ran out of memory", name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.cards > 0 && slices.ContainsFunc(h.started, func(other *worker) bool { return other.card == w.card }) {
		w.card++
	}
	h.started = append(h.started, w)
	h.log = append(h.log, name)
	return w, nil
}

func cardName(i int) string { return fmt.Sprintf("Tesla M40 (GPU %d)", i) }

func (h *house) machine() placement.Machine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return placement.Machine{Devices: []device.Info{{Kind: "cpu", Memory: h.free - int64(len(h.started))*h.weights}}}
}

// of returns the worker that has a model; nil if none has.
func (h *house) of(name string) *worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.started {
		if w.info.Name == name {
			return w
		}
	}
	return nil
}

func (h *house) loads() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.log, " ")
}

func (h *house) fleet(change func(*Options)) *Fleet {
	h.t.Helper()
	var clock struct {
		sync.Mutex
		now time.Time
	}
	o := Options{Find: h.find, Start: h.start, Machine: h.machine, Model: "a", Check: time.Millisecond, Now: func() time.Time {
		clock.Lock()
		defer clock.Unlock()
		clock.now = clock.now.Add(time.Second)
		return clock.now
	}}
	if change != nil {
		change(&o)
	}
	f, err := New(o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { f.Close() })
	return f
}

// ask returns the name of the model that answered.
func ask(ctx context.Context, f *Fleet, name string) (string, error) {
	for e, err := range f.Generate(ctx, infer.Request{Model: name}) {
		if err != nil {
			return "", err
		}
		if e.Done != nil {
			return e.Done.Text, nil
		}
	}
	return "", errors.New("no answer")
}

func loadedNames(f *Fleet) string {
	var list []string
	for _, s := range f.Status().Models {
		list = append(list, s.Model.Name)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestModelsStayLoadedUntilMemoryIsNeededThenTheLeastRecentlyUsedGoes(t *testing.T) {
	for name, c := range map[string]struct {
		models int // that memory has room for
		most   int
		memory int64
		pin    string
		asked  string
		loads  string
		loaded string
		evicts int64
	}{
		"both stay where both fit":                       {models: 3, asked: "b a b a", loads: "a b", loaded: "a b"},
		"the least recently used one goes":               {models: 2, asked: "b a c", loads: "a b c", loaded: "a c", evicts: 1},
		"and comes back":                                 {models: 2, asked: "b a c b", loads: "a b c b", loaded: "b c", evicts: 2},
		"one at a time with --models-max 1":              {models: 9, most: 1, asked: "b a b", loads: "a b a b", loaded: "b", evicts: 3},
		"--memory counts though more is free":            {models: 9, memory: 2*room + room/2, asked: "b c", loads: "a b c", loaded: "b c", evicts: 1},
		"a pinned model stays though it was used before": {models: 2, pin: "a", asked: "b c", loads: "a b c", loaded: "a c", evicts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, c.models)
			f := h.fleet(func(o *Options) { o.Most, o.Memory = c.most, c.memory })
			if c.pin != "" {
				if err := f.Pin(t.Context(), c.pin, true); err != nil {
					t.Fatal(err)
				}
			}
			for model := range strings.FieldsSeq(c.asked) {
				if got, err := ask(t.Context(), f, model); err != nil || got != model {
					t.Fatalf("%s answered, %v; want %s", got, err, model)
				}
			}
			if got := h.loads(); got != c.loads {
				t.Errorf("loaded in turn: %q, want %q", got, c.loads)
			}
			if got := loadedNames(f); got != c.loaded {
				t.Errorf("%q are loaded, want %q", got, c.loaded)
			}
			if got := f.Status().Evictions; got != c.evicts {
				t.Errorf("%d evictions, want %d", got, c.evicts)
			}
		})
	}
}

func TestAModelThatNeverFitsIsRefusedWithFiguresAndNothingIsUnloaded(t *testing.T) {
	for name, c := range map[string]struct {
		memory int64
		most   int
		pin    bool
		says   []string
	}{
		"--memory is too small":     {memory: 1e6, says: []string{"does not fit: it needs", "1.0 MB are free", "--memory allows all models together 1.0 MB"}},
		"pinned models take it all": {memory: room + 1e6, pin: true, says: []string{"does not fit", "1.0 MB are free", "pinned models stay: a"}},
		"all places are pinned":     {most: 1, pin: true, says: []string{"--models-max allows 1", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 9)
			f := h.fleet(func(o *Options) { o.Memory, o.Most = c.memory, c.most })
			if c.pin {
				if err := f.Pin(t.Context(), "a", true); err != nil {
					t.Fatal(err)
				}
			}
			_, err := ask(t.Context(), f, "b")
			known, ok := errors.AsType[*fault.Error](err)
			if !ok || known.Code != fault.CodeMemory {
				t.Fatalf("got %v, want an error about memory", err)
			}
			for _, want := range c.says {
				if !strings.Contains(known.Message, want) {
					t.Errorf("it says %q, without %q", known.Message, want)
				}
			}
			if got := h.loads(); got != "a" {
				t.Errorf("loaded: %q, want a alone", got)
			}
		})
	}
}

func TestARequestForAModelWithoutRoomWaitsForAnswersWithItsPlace(t *testing.T) {
	h := newHouse(t, 1)
	h.hold = true
	f := h.fleet(nil)
	first := h.of("a")
	ended := make(chan string, 8)
	begin := func(name string, report func(infer.Queued)) {
		go func() {
			for e, err := range f.Generate(t.Context(), infer.Request{Model: name}) {
				switch {
				case err != nil:
					ended <- err.Error()
				case e.Queued != nil:
					report(*e.Queued)
				case e.Done != nil:
					ended <- e.Done.Text
				}
			}
		}()
	}
	places := make(chan string, 8)
	reports := func(name string) func(infer.Queued) {
		return func(q infer.Queued) { places <- fmt.Sprintf("%s %d", name, q.Position) }
	}
	begin("a", reports("a"))
	for f.inUse("a") != 1 {
		time.Sleep(time.Millisecond)
	}
	begin("b", reports("b"))
	if got := <-places; got != "b 1" {
		t.Fatalf("place %q, want b 1", got)
	}
	begin("a", reports("a again")) // after b, or b would never come
	if got := <-places; got != "a again 2" {
		t.Fatalf("place %q, want a again 2", got)
	}
	if h.of("b") != nil {
		t.Error("b is loaded beside a, which has all the memory")
	}
	h.mu.Lock()
	h.hold = false
	h.mu.Unlock()
	close(first.release)
	got := []string{<-ended, <-ended, <-ended}
	if want := []string{"a", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("answers of %q, want %q", got, want)
	}
	if got := h.loads(); got != "a b a" {
		t.Errorf("loaded in turn: %q, want a b a", got)
	}
}

func TestAPersonWithManyRequestsForAModelLetsAnothersHaveTheirsAtOnce(t *testing.T) {
	h := newHouse(t, 1)
	h.hold = true
	f := h.fleet(nil)
	ended := make(chan string, 8)
	ask := func(client, model string) {
		for e, err := range f.Generate(t.Context(), infer.Request{Model: model, Client: client}) {
			switch {
			case err != nil:
				ended <- err.Error()
			case e.Done != nil:
				ended <- client + " " + e.Done.Text
			}
		}
	}
	const many = 4
	for i := range many {
		go ask("ann", "a")
		for f.inUse("a") != i+1 {
			time.Sleep(time.Millisecond)
		}
	}
	for len(h.of("a").place) == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, model := range []string{"b", "c"} { // ann's own one comes first, bob's overtakes it
		client := map[string]string{"b": "ann", "c": "bob"}[model]
		queued := f.Status().Queued
		go ask(client, model)
		for f.Status().Queued <= queued {
			time.Sleep(time.Millisecond)
		}
	}
	for f.inUse("a") != 1 { // the others went back into the queue
		time.Sleep(time.Millisecond)
	}
	h.mu.Lock()
	h.hold = false
	h.mu.Unlock()
	close(h.of("a").release)
	for i, want := range []string{"ann a", "bob c"} {
		if got := <-ended; got != want {
			t.Errorf("answer %d is that of %q, want %q", i+1, got, want)
		}
	}
	rest := map[string]int{}
	for range many {
		rest[<-ended]++
	}
	if rest["ann a"] != many-1 || rest["ann b"] != 1 {
		t.Errorf("then come %v, want the other %d of ann for a and the one for b", rest, many-1)
	}
}

func TestTheQueueTellsHowLongLoadsAndAnswersAreExpectedToTake(t *testing.T) {
	for name, c := range map[string]struct {
		size    int64
		loadMS  float64 // that the loaded model took
		endS    float64 // of its answers
		loading bool    // it is being loaded still, a quarter is there
		waits   string  // of two requests for other models
	}{
		"a load of a file of the same size, behind the running answers": {size: 4e9, loadMS: 3000, endS: 2, waits: "5 0"},
		"by the size of the file where no load was measured":            {size: 4e9, endS: 1, waits: "9 0"},
		"nothing while nobody knows when the answers end":               {size: 4e9, loadMS: 3000, waits: "0 0"},
		"the rest of the load before, and the own one":                  {size: 2e9, loading: true, waits: "7 15"},
		"long times are rounded to what a person wants to know of them": {size: 4e9, loadMS: 61_000, endS: 10, waits: "90 0"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 1)
			h.size, h.loadMS, h.endS, h.loading, h.hold = c.size, c.loadMS, c.endS, c.loading, true
			if c.loading {
				h.free *= 9
			}
			f := h.fleet(nil)
			if !c.loading {
				go ask(t.Context(), f, "a")
				for f.inUse("a") != 1 {
					time.Sleep(time.Millisecond)
				}
			}
			var waits []string
			for _, model := range []string{"b", "c"} {
				told := make(chan infer.Queued, 100)
				go func() {
					for e := range f.Generate(t.Context(), infer.Request{Model: model}) {
						if e.Queued != nil {
							told <- *e.Queued
						}
					}
				}()
				waits = append(waits, fmt.Sprint((<-told).WaitS))
			}
			if got := strings.Join(waits, " "); got != c.waits {
				t.Errorf("they are told to wait %s seconds, want %s", got, c.waits)
			}
			if got := fmt.Sprint(f.Status().WaitS); got != waits[1] {
				t.Errorf("the status says %s seconds, want %s", got, waits[1])
			}
		})
	}
}

func TestAnEventOfALoadTellsHowLongTheRestIsExpectedToTake(t *testing.T) {
	f := newHouse(t, 1).fleet(nil)
	e := f.withPlan(infer.Event{Loading: &infer.Loading{Done: 1, Total: 2}}, &slot{}, infer.ModelInfo{Name: "b", Size: 3e9})
	if got := e.Loading.LeftS; got != 3 {
		t.Errorf("%g seconds are left, want 3: half of 3 GB at %g bytes a second", got, assumedRate)
	}
}

// inUse returns how many requests the worker of a model has.
func (f *Fleet) inUse(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.of(infer.ModelInfo{Name: name}); s != nil {
		return s.using
	}
	return 0
}

func TestARequestThatWaitsCanBeCancelled(t *testing.T) {
	h := newHouse(t, 1)
	h.hold = true
	f := h.fleet(nil)
	done, cancel := context.WithCancel(t.Context())
	go ask(done, f, "a")
	for f.inUse("a") != 1 {
		time.Sleep(time.Millisecond)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for e, err := range f.Generate(ctx, infer.Request{Model: "b"}) {
		if e.Queued != nil {
			stop()
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want a cancel", err)
		}
	}
	if n := f.Status().Queued; n != 0 {
		t.Errorf("%d requests wait, want none", n)
	}
	cancel()
}

func TestRequestsWithoutAModelGoToTheLastOfTheirKind(t *testing.T) {
	h := newHouse(t, 3)
	f := h.fleet(nil)
	if err := f.Load(t.Context(), "embed"); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t.Context(), f, "b"); err != nil || got != "b" {
		t.Fatal(got, err)
	}
	if got, err := f.Embed(t.Context(), infer.EmbedRequest{}); err != nil || got.Model != "embed" {
		t.Errorf("%s embeds, %v; want embed", got.Model, err)
	}
	if got, err := ask(t.Context(), f, ""); err != nil || got != "b" {
		t.Errorf("%s answers, %v; want b", got, err)
	}
	if got := f.Status().Model.Name; got != "b" {
		t.Errorf("the status is that of %s, want b: it wrote last", got)
	}
}

func TestUnloadFreesTheMemoryAndPinKeepsIt(t *testing.T) {
	h := newHouse(t, 3)
	f := h.fleet(nil)
	if err := f.Load(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := loadedNames(f); got != "a b" {
		t.Fatalf("%q are loaded, want a and b", got)
	}
	for _, step := range []struct {
		do   func() error
		want []float64
	}{
		{func() error { return f.Pin(t.Context(), "b", true) }, []float64{-1}},
		{func() error { return f.Pin(t.Context(), "b", false) }, []float64{-1, -2}},
		{func() error { return f.Unload(t.Context(), "b") }, []float64{-1, -2, 0}},
	} {
		w := h.of("b")
		if err := step.do(); err != nil || !slices.Equal(w.keeps, step.want) {
			t.Errorf("the worker was told %v, %v; want %v", w.keeps, err, step.want)
		}
	}
	if got := loadedNames(f); got != "a" {
		t.Errorf("%q are loaded, want a", got)
	}
	if err := f.Unload(t.Context(), "b"); err == nil {
		t.Error("a model that is not loaded was unloaded")
	}
	if err := f.Load(t.Context(), "no-such"); err == nil {
		t.Error("an unknown model was loaded")
	}
	if got, err := ask(t.Context(), f, "b"); err != nil || got != "b" {
		t.Errorf("%s answers, %v; want b, loaded again", got, err)
	}
}

func TestARequestThatItsModelCannotAnswerLoadsNothing(t *testing.T) {
	h := newHouse(t, 1)
	f := h.fleet(nil)
	ask(t.Context(), f, "embed")
	if _, err := f.Embed(t.Context(), infer.EmbedRequest{Model: "b"}); err != nil {
		t.Fatal(err) // the worker of the test refuses nothing
	}
	if got := h.loads(); got != "a" || f.Status().Evictions != 0 {
		t.Errorf("%q are loaded in turn, with %d evictions; want a alone", got, f.Status().Evictions)
	}
	if err := f.Load(t.Context(), "embed"); err != nil || loadedNames(f) != "embed" {
		t.Errorf("after a load %q are loaded, %v; want embed", loadedNames(f), err)
	}
}

func TestAModelWhoseFileIsGoneCanBeUnloaded(t *testing.T) {
	h := newHouse(t, 2)
	gone := false
	f := h.fleet(func(o *Options) {
		o.Find = func(name string) (infer.ModelInfo, error) {
			if gone {
				name = "no-" + name
			}
			return h.find(name)
		}
	})
	if err := f.Load(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	gone = true
	if err := f.Unload(t.Context(), "b"); err != nil || loadedNames(f) != "a" {
		t.Errorf("%q are loaded, %v; want a", loadedNames(f), err)
	}
	if err := f.Unload(t.Context(), "c"); err == nil {
		t.Error("a model that was never there was unloaded")
	}
}

func TestModelsAreOnSeveralGPUsBeforeOneIsUnloaded(t *testing.T) {
	for name, c := range map[string]struct {
		cards  int
		loads  string
		loaded string
		evicts int64
	}{
		"one GPU":  {1, "a b c", "c", 2},
		"two GPUs": {2, "a b c", "b c", 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 0)
			h.cards, h.weights, h.free = c.cards, 0, room/4
			f := h.fleet(nil)
			for _, model := range []string{"b", "c"} {
				if got, err := ask(t.Context(), f, model); err != nil || got != model {
					t.Fatalf("%s answered, %v; want %s", got, err, model)
				}
			}
			if got := h.loads(); got != c.loads {
				t.Errorf("loaded in turn: %q, want %q", got, c.loads)
			}
			s := f.Status()
			if got := loadedNames(f); got != c.loaded || s.Evictions != c.evicts {
				t.Errorf("%q are loaded after %d evictions, want %q after %d", got, s.Evictions, c.loaded, c.evicts)
			}
			if len(s.Devices) != c.cards+1 {
				t.Fatalf("the devices are %+v, want %d GPUs and main memory", s.Devices, c.cards)
			}
			for i, d := range s.Devices[:c.cards] {
				if d.Device != cardName(i) || d.Total != room+room/2 || d.Taken != room {
					t.Errorf("GPU %d has %+v, want one model on it", i, d)
				}
			}
		})
	}
}
