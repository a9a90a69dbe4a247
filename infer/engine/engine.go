// Package engine answers requests with events: [Engine] schedules, computes and samples in
// this process.
//
// An engine has one model loaded on its devices. One goroutine, the step loop, owns both.
// Each of its steps computes rows of many answers:
//
//	schedule -> submit -> collect -> deliver
//
// The scheduler (scheduler.go) and the block manager of the KV cache (blocks.go) do no I/O;
// loop.go runs the step, loaded.go loads models, kvfiles.go stores the KV caches of chats,
// openmodel.go holds what needs no device,
// answer.go is the state of one answer, kind.go what becomes of its results (text, a comparison of
// two models, an embedding), and token.go is the path of a token from logits to
// event. A consumer takes its events from a mailbox; the loop never waits for it.
//
// The same request with the same seed gives the same tokens, whatever other answers share
// its steps: a row's logits depend on its own sequence alone (package device), random
// numbers on seed and position (package sample).
package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/kvfile"
	"m40-llm/infer/lease"
	"m40-llm/infer/picture"
	"m40-llm/infer/placement"
	"m40-llm/infer/tokenizer"
)

// Options configure an Engine.
type Options struct {
	Catalog infer.Catalog

	// OpenDevice opens the device for the model in a file; the engine closes it before it
	// loads another.
	OpenDevice func(*gguf.File) (device.Device, error)

	// OpenTower opens the device that encodes pictures for a companion file if that of the model cannot: the CPU; nil: models read no
	// pictures.
	OpenTower func(*gguf.File) (device.Device, error)

	Pictures picture.Options // limits of pictures that companion files do not hold

	// MoreDevices, if set, yields further devices in order of preference, the one that
	// computes in main memory last. The engine opens one after the other until the model
	// fits.
	MoreDevices func() iter.Seq2[device.Device, error]

	// Among is how many of these devices, the first ones, divide the layers of a model even if fewer could hold it; 0: as few as
	// possible.
	Among int

	// FreeMemory returns the free bytes of main memory; 0, or a nil function: unknown. The
	// engine calls it before a KV cache in main memory grows, and from time to time to see whether it has to shrink.
	FreeMemory func() int64

	// MemoryLimit is how many bytes of main memory a model may take; 0: those that are free.
	MemoryLimit int64

	Model         string // the model to load at the start; none if empty
	ContextLength int    // positions of one answer, prompt included; 0: the model's maximum, or what memory allows
	Threads       int    // of the CPU, for the status only; OpenDevice uses them
	CacheType     string // format of the KV cache, a name for placement.ParseCache; empty: f16
	Parallel      int    // answers running at once; 0: 16
	QueueLimit    int    // requests that may wait; 0: 256
	ChunkRows     int    // maximum tokens of a step, prefill and decode together; 0: 256, or more if the device is faster with more

	// KeepAlive is how long a model stays loaded without a request; 0: until another one is
	// requested.
	KeepAlive time.Duration

	// Draft is what drafts the next tokens of answers, of which a step checks several: DraftOff, DraftLookup for their context, DraftMTP for the multi-token prediction block of the file,
	// or the name of a draft model with the same vocabulary, which is loaded alongside each model; DraftAuto, or empty: what was
	// measured to gain. Answers are the same.
	Draft string

	// RunAhead is whether devices that can draw tokens compute steps ahead; nil: they do. Answers are the same.
	RunAhead *bool

	// GPUs returns all GPUs that models may be on, for the status; nil: they are not listed.
	GPUs func() []infer.Memory

	// WholePlan makes a load fail with fault.CodeMemory where memory is refused that is planned, instead of being tried with less.
	WholePlan bool

	// Leases are those of the devices that several engines share; nil: this one has them alone. A step waits until the devices of the
	// model are this engine's.
	Leases *lease.Holder

	// SetThreads makes OpenDevice and MoreDevices open CPUs with so many threads, 0 for all, from
	// now on; nil: the threads cannot be changed.
	SetThreads func(threads int)

	// KVDir is the folder of the files that requests name in KVFile; empty: KV caches are not stored.
	KVDir string

	Logger  *slog.Logger     // nil: nothing is logged
	Now     func() time.Time // nil: time.Now
	Version string           // of the program, for receipts; "": dev

	drafter       drafter                                    // in place of a draft model, for tests; nil: none
	draftTokens   int                                        // of each draft, without regard to what they gain; 0: as many as gain
	onDraft       func(pos int, draft []int32, accepted int) // called for each draft that was checked; nil: nothing is
	freeMisses    int                                        // tokens that the device may draw wrong in each answer before they are counted; 0: 2
	aheadTime     time.Duration                              // how long several steps ahead take together; 0: 20 ms
	packLaterFrom int64                                      // bytes of weights from which they are copied between steps; 0: packLaterFrom
	shrinkEvery   time.Duration                              // how often the engine looks whether the KV cache has to shrink; 0: shrinkEvery
	openRows      func() (rowFile, error)                    // opens the file of a comparison; nil: temporaryFile
	rowsQueued    int                                        // bytes of rows from which the queue of a comparison is full; 0: maxQueued
	measureAfter  time.Duration                              // how long the engine is idle before the bandwidth of the memory is measured; 0: idleTime
}

// Values of Options.Draft that are no names of models.
const (
	DraftAuto   = "auto"
	DraftOff    = "off"
	DraftLookup = "lookup"
	DraftMTP    = "mtp"
)

// isDraftWord reports whether a value of Options.Draft is not the name of a model.
func isDraftWord(s string) bool {
	switch s {
	case "", DraftAuto, DraftOff, DraftLookup, DraftMTP:
		return true
	}
	return false
}

// Engine answers requests. Its methods may be called by any goroutine.
type Engine struct {
	options Options
	models  *openModels
	inbox   *inbox
	status  *status
	cancel  context.CancelFunc // cancels a load
	done    chan struct{}      // closed when the step loop has ended

	compared atomic.Int64 // bytes of the files of comparisons
}

// Open starts an engine, which begins to load Options.Model, and returns at once.
func Open(o Options) (*Engine, error) { return open(o, loadModel) }

func open(o Options, load loadFunc) (*Engine, error) {
	setDefault(&o.CacheType, "f16")
	setDefault(&o.Version, "dev")
	setDefault(&o.Parallel, placement.DefaultAnswers)
	setDefault(&o.QueueLimit, 256)
	setDefault(&o.measureAfter, idleTime)
	setDefault(&o.shrinkEvery, shrinkEvery)
	setDefault(&o.packLaterFrom, packLaterFrom)
	setDefault(&o.rowsQueued, maxQueued)
	setDefault(&o.freeMisses, freeMisses)
	setDefault(&o.aheadTime, aheadTime)
	setDefault(&o.Draft, DraftAuto)
	if o.onDraft == nil {
		o.onDraft = func(int, []int32, int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.openRows == nil {
		o.openRows = temporaryFile
	}
	caches, cacheErr := placement.ParseCache(o.CacheType)
	switch {
	case o.Catalog == nil || o.OpenDevice == nil:
		return nil, errors.New("an engine needs a catalog and a device")
	case cacheErr != nil:
		return nil, fmt.Errorf("unknown format of the KV cache: %w", cacheErr)
	case min(o.ContextLength, o.Parallel, o.QueueLimit, o.ChunkRows) < 0:
		return nil, errors.New("context length, parallel answers, queue limit and chunk rows must not be negative")
	}
	var dir *kvfile.Dir
	if o.KVDir != "" {
		var err error
		if dir, err = kvfile.OpenDir(o.KVDir); err != nil {
			o.Logger.Warn("the KV caches of chats are not stored", "error", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		options: o,
		models:  &openModels{catalog: o.Catalog, log: o.Logger, openTower: o.OpenTower, openFirst: o.OpenDevice, limits: o.Pictures, pictures: newSeenPictures(), open: map[openName]*openModel{}},
		inbox:   newInbox(o.Parallel + o.QueueLimit),
		status:  newStatus(),
		cancel:  cancel,
		done:    make(chan struct{}),
	}
	if o.Model == "" {
		e.status.setFailed(errNoModel)
	} else {
		e.status.update(func(s *infer.Status) {
			e.status.requested = o.Model
			s.State, s.Model.Name, s.Loading.Model = infer.StateLoading, o.Model, o.Model
		})
	}
	e.models.betweenSteps = e.inbox.betweenSteps
	e.status.update(func(s *infer.Status) {
		s.Setup = infer.Setup{ContextLength: o.ContextLength, CacheType: o.CacheType, Threads: o.Threads, Draft: o.Draft}
		s.KeepAliveS = o.KeepAlive.Seconds()
	})
	l := &loop{
		options: o,
		caches:  caches,
		models:  e.models,
		inbox:   e.inbox,
		status:  e.status,
		load:    load,
		ctx:     ctx,
		answers: map[*sequence]*answer{},

		bandwidths: map[string]float64{},
		kv:         kvFiles{dir: dir, log: o.Logger, wake: e.inbox.signal},
		sched:      scheduler{limits: limits(placement.StepLimitsOf(o.Parallel, o.ChunkRows)), forced: o.draftTokens},
	}
	go func() {
		defer close(e.done)
		l.run()
	}()
	return e, nil
}

var errNoModel = &fault.Error{Code: fault.CodeNotFound, Param: "model", Message: "no model is loaded: name one in the request"}

func setDefault[T comparable](option *T, value T) {
	if *option == *new(T) {
		*option = value
	}
}

// Close ends all answers with CodeClosed, frees the device and returns when the
// engine's goroutine is gone.
func (e *Engine) Close() error {
	e.inbox.close()
	e.cancel()
	<-e.done
	return nil
}

// Reload loads the model again with another setup, which later models get too. Running answers end
// first; those that wait, wait for it. It returns when the change is accepted; Status shows how it
// goes on. If the model cannot be loaded with s, the change is undone.
func (e *Engine) Reload(ctx context.Context, s infer.Setup) error {
	setDefault(&s.CacheType, "f16")
	setDefault(&s.Draft, DraftAuto)
	switch _, err := placement.ParseCache(s.CacheType); {
	case err != nil:
		return fault.Invalid("cache_type", "unknown format of the KV cache: %s", err)
	case s.ContextLength < 0 || s.ContextLength > maxContext:
		return fault.Invalid("context_length", "a context of %d tokens is not possible; give 0 for the model's own, or up to %d", s.ContextLength, maxContext)
	case s.Threads < 0 || s.Threads > maxThreads:
		return fault.Invalid("threads", "%d threads are not possible; give 0 for one for each core, or up to %d", s.Threads, maxThreads)
	}
	if !isDraftWord(s.Draft) {
		draft, err := e.models.acquire(ctx, s.Draft, "")
		if err != nil {
			return fault.Invalid("draft", "the model %q cannot draft tokens: %s; give auto, off, lookup, mtp or the name of a model that is here", s.Draft, fault.Of(fault.CodeModelFile, err).Message)
		}
		e.models.release(draft)
	}
	return e.inbox.setUp(s, func() {
		e.status.update(func(now *infer.Status) { now.Reload, now.SetupNotice = &s, "" })
	})
}

// Keep sets how long the loaded model stays without a request, in seconds, until another one is loaded: 0 unloads it when its answers
// have ended, a negative number keeps it. nil: as long as Options.KeepAlive says.
func (e *Engine) Keep(_ context.Context, seconds *float64) error {
	keep := e.options.KeepAlive
	if seconds != nil {
		keep = keepTime(*seconds)
	}
	return e.inbox.keepFor(keep)
}

// Limits of a Setup.
const (
	maxContext = 1 << 24
	maxThreads = 1024
)

// WaitReady waits until the model is loaded. It returns the *Error for which that failed.
func (e *Engine) WaitReady(ctx context.Context) error { return e.status.wait(ctx) }

// Status returns a snapshot. It never waits for the engine.
func (e *Engine) Status() infer.Status { return e.status.snapshot(e.options.Now()) }

// Models lists the models of the catalog.
func (e *Engine) Models(ctx context.Context) ([]infer.ModelInfo, error) {
	list, err := e.options.Catalog.Models(ctx)
	if err != nil && ctx.Err() == nil {
		err = fault.Of(fault.CodeInternal, err)
	}
	return list, err
}

// Generate streams one answer. Each range over the result submits the request once; a
// consumer that stops ranging cancels the answer. A failure is an *Error, or the error of
// ctx when that is cancelled, and the last thing yielded.
func (e *Engine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		left := false // the consumer has stopped
		mail, err := e.submit(ctx, r, func(p infer.Pictures) bool {
			left = !yield(infer.Event{Type: infer.EventPictures, Pictures: &p}, nil)
			return !left
		})
		if left {
			return
		}
		if err != nil {
			yield(infer.Event{}, e.blamed(ctx, r, err))
			return
		}
		for {
			events, ended, err := mail.take()
			for _, event := range events {
				if !yield(event, nil) {
					return
				}
			}
			switch {
			case err != nil:
				yield(infer.Event{}, e.blamed(ctx, r, err))
				return
			case ended:
				return
			}
			select {
			case <-mail.ready:
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
				return
			}
		}
	}
}

// submit creates the answer to r and hands it to the step loop. Everything that needs no
// device happens here, in the caller's goroutine. So does the encoding of pictures, each of which it reports; it ends when
// looking returns false.
func (e *Engine) submit(ctx context.Context, r infer.Request, looking func(infer.Pictures) bool) (mail *mailbox, err error) {
	submitted := e.options.Now()
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if r.ChatTemplate != "" {
		return nil, fault.Invalid("chat_template", "a request cannot replace the model's chat template: put it next to the model's file")
	}
	if err := e.inbox.enter(r.Client); err != nil {
		return nil, err
	}
	err = e.use(ctx, r.Model, func(m *openModel) error {
		if m.config.Embeds() {
			return errWritesNothing(m)
		}
		r.Params = m.info.Sampling.Apply(r.Params, r.Unset)
		p, err := m.prompt(ctx, r, submitted)
		if err != nil {
			return err
		}
		if n := e.contextBefore(m); m.vision != nil && n > 0 { // pictures of a prompt that does not fit are not encoded
			if err := (writing{}).fit(&answer{request: r, sequence: &sequence{prompt: len(p.tokens)}, reader: reader{model: m}}, n); err != nil {
				return err
			}
		}
		if p.pictures, err = m.look(ctx, r, p.tokens, e.models.pictures, looking); err != nil {
			return err
		}
		a, err := newAnswer(ctx, r, m, p, e.options.Logger)
		if err != nil {
			return err
		}
		if r.Against != "" {
			if err := e.compareWith(ctx, a); err != nil {
				return err
			}
		}
		a.submitted, mail = submitted, a.mail
		scores := e.models.retain(a.model) // until the loop ends the answer; of a comparison it may be the second model
		if err := e.inbox.add(a); err != nil {
			e.models.release(scores)
			a.kind.close()
			return err
		}
		return nil
	})
	if err != nil {
		e.inbox.leave(r.Client)
	}
	return mail, err
}

// use calls f with the model called name, or with the loaded one if name is empty.
func (e *Engine) use(ctx context.Context, name string, f func(*openModel) error) error {
	if name == "" {
		if name = e.status.modelName(); name == "" {
			return errNoModel
		}
	}
	m, err := e.models.acquire(ctx, name, "")
	if err != nil {
		return err
	}
	defer e.models.release(m)
	return contain(e.options.Logger, func() error { return f(m) })
}

// Tokenize returns the tokens of text. An empty name means the loaded model.
func (e *Engine) Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) (tokens []int32, err error) {
	err = e.use(ctx, name, func(m *openModel) (err error) {
		tokens, err = m.tokenizer.Encode(ctx, text, tokenizer.Options{AddSpecial: addSpecial, ParseSpecial: parseSpecial})
		return err
	})
	return tokens, err
}

// Detokenize returns the text of tokens, that of special tokens included. An empty name
// means the loaded model.
func (e *Engine) Detokenize(ctx context.Context, name string, ids []int32) (text string, err error) {
	err = e.use(ctx, name, func(m *openModel) error {
		if err := inVocabulary("tokens", ids, m.tokenizer.VocabSize()); err != nil {
			return err
		}
		text = m.tokenizer.Decode(ids, true)
		return nil
	})
	return text, err
}

// Pieces returns the bytes of each token. A token that holds a part of a character is not
// valid UTF-8. An empty name means the loaded model.
func (e *Engine) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
	err = e.use(ctx, name, func(m *openModel) error {
		if err := inVocabulary("tokens", ids, m.tokenizer.VocabSize()); err != nil {
			return err
		}
		for i := range ids {
			pieces = append(pieces, m.tokenizer.Decode(ids[i:i+1], true))
		}
		return nil
	})
	return pieces, err
}

// Render returns the prompt and the tokens that r would give to the model.
func (e *Engine) Render(ctx context.Context, r infer.Request) (view infer.Rendered, err error) {
	if err := r.Validate(); err != nil {
		return infer.Rendered{}, err
	}
	err = e.use(ctx, r.Model, func(m *openModel) (err error) {
		if r.ChatTemplate != "" {
			if m, err = m.withTemplate(r.ChatTemplate); err != nil {
				return err
			}
		}
		view.Notice = m.notices()
		p, err := m.prompt(ctx, r, e.options.Now())
		view.Prompt, view.Tokens, view.Notes = p.text, p.tokens, p.notes
		if len(r.Tokens) > 0 {
			view.Prompt = m.tokenizer.Decode(r.Tokens, true)
		}
		view.Continued = m.spellContinued(ctx, r, e.options.Now())
		if err == nil {
			err = m.describePictures(&view, r)
		}
		if n := e.contextBefore(m); err == nil && n > 0 && len(p.tokens) >= n {
			view.Largest, view.LargestTokens = m.largest(ctx, r, len(p.tokens), e.options.Now())
		}
		return err
	})
	return view, err
}

// describePictures says in view how many tokens each picture of r has, would have in each detail, and where they are in it.
func (m *openModel) describePictures(view *infer.Rendered, r infer.Request) error {
	sizes, err := m.pictureSizes(&r)
	if err != nil {
		return err
	}
	pictures, field := r.AllPictures()
	for i, size := range sizes {
		view.Pictures = append(view.Pictures, size.Tokens)
		view.Grids = append(view.Grids, infer.PictureGrid{Rows: max(1, size.TileRows) * size.Rows, Columns: max(1, size.TileColumns) * size.Columns})
		tokens := map[chat.Detail]int{}
		for d := range m.vision.prepare {
			size, err := m.vision.sizeOf(infer.Picture{File: pictures[i].File, Detail: d})
			if err != nil {
				return fault.Invalid(field, "picture %d: %s", i+1, err)
			}
			tokens[d] = size.Tokens
		}
		view.Details = append(view.Details, infer.PictureTokens{Low: tokens[chat.Low], Medium: tokens[chat.Medium], Full: tokens[chat.Full]})
	}
	return nil
}

// errUnreadable ends the answers of a model whose file became unreadable.
var errUnreadable = fault.Errorf(fault.CodeModelFile, "the model cannot be read any more: %v", gguf.ErrUnreadable)

// readable calls read, which may read the mapped weights of file, and returns errUnreadable
// if a page of them cannot be read.
func readable(file *gguf.File, read func() error) error {
	err := file.Guard(read)
	if errors.Is(err, device.ErrUnreadable) {
		return errUnreadable
	}
	return err
}

// contain calls f and returns a panic of it as an error. It logs the stack.
func contain(log *slog.Logger, f func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		log.Error("panic", "value", p, "stack", string(debug.Stack()))
		err = fault.Errorf(fault.CodeInternal, "internal error: %v", p)
	}()
	return f()
}
