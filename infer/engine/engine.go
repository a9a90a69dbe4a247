// Package engine turns requests into events: [Engine] schedules, computes and samples in this
// process.
//
// An engine has one resident model on its devices. One goroutine, the step loop, owns
// them, and many answers share each of its steps:
//
//	schedule -> submit -> collect -> deliver
//
// The scheduler (scheduler.go) and the books of the KV cache (blocks.go) are pure;
// loop.go runs the step, resident.go loads models, answer.go holds what one answer
// needs, and token.go is the path of a token from logits to event. A consumer takes its
// events from a mailbox and is never waited for.
//
// The same request with the same seed gives the same tokens, whoever shares the
// steps: a row's logits depend on its own sequence alone (package device), random
// numbers on seed and position (package sample).
package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/placement"
	"m40-llm/infer/tokenizer"
)

// Options configure an Engine.
type Options struct {
	Catalog infer.Catalog

	// OpenDevice opens the device for the model in a file; the engine closes it before it
	// loads another.
	OpenDevice func(*gguf.File) (device.Device, error)

	// MoreDevices, if set, yields further devices in order of preference, the one that
	// computes in main memory last. They are opened while a model is too large for those
	// before.
	MoreDevices func() iter.Seq2[device.Device, error]

	// FreeMemory returns the bytes of main memory that can be taken now; 0, or nil: unknown.
	// It is asked while a KV cache in main memory grows.
	FreeMemory func() int64

	Model         string // the model to load first; none if empty
	ContextLength int    // positions of one answer; 0: the model's own, or what memory allows
	CacheType     string // of the KV cache, f16 or f32; empty: f16
	Parallel      int    // answers running at once; 0: 16
	QueueLimit    int    // requests that may wait; 0: 256
	ChunkRows     int    // most tokens of a step, prefill and decode together; 0: 256

	Logger  *slog.Logger     // nil: nothing is logged
	Now     func() time.Time // nil: time.Now
	Version string           // of the program, for receipts; "": dev
}

// Engine answers requests. Its methods may be called by any goroutine.
type Engine struct {
	options Options
	sources *sources
	inbox   *inbox
	board   *board
	cancel  context.CancelFunc // ends a load
	done    chan struct{}      // closed when the step loop has ended
}

// Open starts an engine and the loading of its first model, and returns at once.
func Open(o Options) (*Engine, error) { return open(o, loadModel) }

func open(o Options, load loadFunc) (*Engine, error) {
	setDefault(&o.CacheType, "f16")
	setDefault(&o.Version, "dev")
	setDefault(&o.Parallel, placement.DefaultAnswers)
	setDefault(&o.QueueLimit, 256)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	cacheType, known := placement.CacheTypes[o.CacheType]
	switch {
	case o.Catalog == nil || o.OpenDevice == nil:
		return nil, errors.New("an engine needs a catalog and a device")
	case !known:
		return nil, fmt.Errorf("the KV cache cannot be %q: use f16 or f32", o.CacheType)
	case min(o.ContextLength, o.Parallel, o.QueueLimit, o.ChunkRows) < 0:
		return nil, errors.New("context length, parallel answers, queue limit and chunk rows must not be negative")
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		options: o,
		sources: &sources{catalog: o.Catalog, log: o.Logger, open: map[string]*source{}},
		inbox:   newInbox(o.Parallel + o.QueueLimit),
		board:   newBoard(),
		cancel:  cancel,
		done:    make(chan struct{}),
	}
	if o.Model == "" {
		e.board.failed(errNoModel)
	} else {
		e.board.update(func(s *infer.Status) {
			e.board.target = o.Model
			s.State, s.Model.Name, s.Loading.Model = infer.StateLoading, o.Model, o.Model
		})
	}
	l := &loop{
		options: o,
		cache:   cacheType,
		sources: e.sources,
		inbox:   e.inbox,
		board:   e.board,
		load:    load,
		ctx:     ctx,
		answers: map[*sequence]*answer{},
		sched:   scheduler{limits: limits(placement.StepLimitsOf(o.Parallel, o.ChunkRows))},
	}
	go func() {
		defer close(e.done)
		l.run()
	}()
	return e, nil
}

var errNoModel = &infer.Error{Code: infer.CodeNotFound, Param: "model", Message: "no model is loaded: name one in the request"}

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

// WaitReady returns nil once a model can answer, or the *Error for which none can.
func (e *Engine) WaitReady(ctx context.Context) error { return e.board.wait(ctx) }

// Status is a snapshot; it never waits for the engine.
func (e *Engine) Status() infer.Status { return e.board.snapshot(e.options.Now()) }

// Models lists what can be asked for.
func (e *Engine) Models(ctx context.Context) ([]infer.ModelInfo, error) {
	list, err := e.options.Catalog.Models(ctx)
	if err != nil && ctx.Err() == nil {
		err = infer.AsError(infer.CodeInternal, err)
	}
	return list, err
}

// Generate streams one answer. A failure is an *Error, or the error of ctx after a
// cancel; nothing follows it. To stop ranging cancels the answer too. Each range
// over the result asks anew.
func (e *Engine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		mail, err := e.submit(ctx, r)
		if err != nil {
			yield(infer.Event{}, err)
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
				yield(infer.Event{}, err)
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

// submit turns r into an answer and hands it to the step loop. All that needs no
// device happens here, on the caller's time.
func (e *Engine) submit(ctx context.Context, r infer.Request) (mail *mailbox, err error) {
	submitted := e.options.Now()
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := e.inbox.enter(r.Client); err != nil {
		return nil, err
	}
	err = e.use(ctx, r.Model, func(s *source) error {
		p, err := s.prompt(ctx, r, submitted)
		if err != nil {
			return err
		}
		a, err := newAnswer(ctx, r, s, p, e.options.Logger)
		if err != nil {
			return err
		}
		a.submitted, mail = submitted, a.mail
		e.sources.retain(s) // until the loop ends the answer
		if err := e.inbox.add(a); err != nil {
			e.sources.release(s)
			return err
		}
		return nil
	})
	if err != nil {
		e.inbox.leave(r.Client)
	}
	return mail, err
}

// use calls f with the model called name, or with the resident one if name is
// empty.
func (e *Engine) use(ctx context.Context, name string, f func(*source) error) error {
	if name == "" {
		if name = e.board.resident(); name == "" {
			return errNoModel
		}
	}
	s, err := e.sources.acquire(ctx, name)
	if err != nil {
		return err
	}
	defer e.sources.release(s)
	return contain(e.options.Logger, func() error { return f(s) })
}

// Tokenize returns the tokens of text. An empty name means the resident model.
func (e *Engine) Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) (tokens []int32, err error) {
	err = e.use(ctx, name, func(s *source) (err error) {
		tokens, err = s.tokenizer.Encode(ctx, text, tokenizer.Options{AddSpecial: addSpecial, ParseSpecial: parseSpecial})
		return err
	})
	return tokens, err
}

// Detokenize returns the text of tokens, special tokens as they are spelled. An
// empty name means the resident model.
func (e *Engine) Detokenize(ctx context.Context, name string, ids []int32) (text string, err error) {
	err = e.use(ctx, name, func(s *source) error {
		if err := inVocabulary("tokens", ids, s.tokenizer.VocabSize()); err != nil {
			return err
		}
		text = s.tokenizer.Decode(ids, true)
		return nil
	})
	return text, err
}

// Pieces returns what each of the tokens spells; one that is a part of a character is no
// valid UTF-8. An empty name means the resident model.
func (e *Engine) Pieces(ctx context.Context, name string, ids []int32) (pieces []string, err error) {
	err = e.use(ctx, name, func(s *source) error {
		if err := inVocabulary("tokens", ids, s.tokenizer.VocabSize()); err != nil {
			return err
		}
		for i := range ids {
			pieces = append(pieces, s.tokenizer.Decode(ids[i:i+1], true))
		}
		return nil
	})
	return pieces, err
}

// Render shows a request as the model would get it.
func (e *Engine) Render(ctx context.Context, r infer.Request) (view infer.Rendered, err error) {
	if err := r.Validate(); err != nil {
		return infer.Rendered{}, err
	}
	err = e.use(ctx, r.Model, func(s *source) (err error) {
		view.Notice = s.notices()
		p, err := s.prompt(ctx, r, e.options.Now())
		view.Prompt, view.Tokens = p.text, p.tokens
		if len(r.Tokens) > 0 {
			view.Prompt = s.tokenizer.Decode(r.Tokens, true)
		}
		return err
	})
	return view, err
}

// errUnreadable ends answers whose model file went away under them.
var errUnreadable = infer.Errorf(infer.CodeModelFile, "the model file cannot be read any more: it was cut short or its disk failed while it was in use")

// readable calls read, which may read the weights in file, and returns errUnreadable if
// they are gone.
func readable(file *gguf.File, read func() error) error {
	err := file.Guard(read)
	if errors.Is(err, device.ErrUnreadable) {
		return errUnreadable
	}
	return err
}

// contain calls f and turns a panic into an error. The stack goes to the log.
func contain(log *slog.Logger, f func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		log.Error("panic", "value", p, "stack", string(debug.Stack()))
		err = infer.Errorf(infer.CodeInternal, "internal error: %v", p)
	}()
	return f()
}
