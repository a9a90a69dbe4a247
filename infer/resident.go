package infer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
)

// resident is the model that is loaded.
type resident struct {
	source  *source
	device  device.Device
	model   forwarder
	plan    memoryPlan
	logits  []float32 // (vocab)
	receipt Receipt   // what all its answers share
}

// forwarder is a model on its device: a *model.Model, or a stand-in in tests.
type forwarder interface {
	Forward(b *device.Batch) error
	Logits(dst []float32, i int) error
}

type loadFunc func(context.Context, *gguf.File, device.Device, model.Options) (forwarder, error)

func loadModel(ctx context.Context, f *gguf.File, dev device.Device, o model.Options) (forwarder, error) {
	return model.Load(ctx, f, dev, o)
}

// loadFirst loads the model that the engine starts with.
func (l *loop) loadFirst() {
	s, err := l.sources.acquire(l.ctx, l.options.Model)
	if err != nil {
		l.board.failed(asError(CodeClosed, err))
		return
	}
	defer l.sources.release(s)
	l.bring(s)
}

// bring makes s the resident model. If it cannot be loaded, none is, and those who
// wait for it learn why.
func (l *loop) bring(s *source) {
	l.unload(errClosed)
	begin := l.options.Now()
	l.board.loading(s)
	var r *resident
	err := contain(l.options.Logger, func() (err error) {
		if s.lost != nil {
			return s.lost
		}
		r, err = l.open(s)
		return err
	})
	now := l.options.Now()
	for _, a := range l.waitingFor(s) {
		a.loading += now.Sub(later(begin, a.submitted))
	}
	if err != nil {
		e := asError(CodeModelFile, err)
		level := slog.LevelError
		if e.Code == CodeClosed {
			level = slog.LevelInfo // a stop is no failure
		}
		l.options.Logger.Log(l.ctx, level, "model not loaded", "model", s.info.Name, "code", e.Code, "error", e.Message)
		l.giveUp(s, e)
		return
	}
	l.resident = r
	l.sched.reset(s.key(), newBlocks(r.plan.blocks, device.BlockSize))
	l.board.ready(r, now.Sub(begin))
	l.options.Logger.Info("model loaded", "model", s.info.Name, "context", r.plan.context, "cache_blocks", r.plan.blocks, "took", now.Sub(begin))
	for _, a := range l.waitingFor(s) {
		l.fit(a)
	}
}

func (l *loop) open(s *source) (r *resident, err error) {
	dev, err := l.options.OpenDevice(s.file)
	if err != nil {
		return nil, errorf(CodeDevice, "cannot open the device: %s", err)
	}
	defer func() {
		if r == nil { // an error, or a panic
			dev.Close()
		}
	}()
	if r, err = l.place(s, dev); err == nil {
		l.sources.retain(s)
	}
	return r, err
}

func (l *loop) place(s *source, dev device.Device) (*resident, error) {
	info, o := dev.Info(), l.options
	weights, err := model.DeviceBytes(s.file, dev)
	if err != nil {
		return nil, errorf(CodeModelFile, "cannot load model %q: %s", s.info.Name, err)
	}
	plan, err := planMemory(s.config, weights, info, l.cache, o.ContextLength, l.sched.limits)
	if err != nil {
		return nil, err
	}
	m, err := l.load(l.ctx, s.file, dev, model.Options{
		CacheType: l.cache,
		Blocks:    plan.blocks,
		MaxRows:   l.sched.limits.rows,
		MaxOut:    l.sched.limits.logits,
		Progress:  func(done, total int64) { l.progress(s, done, total) },
	})
	if l.ctx.Err() != nil {
		return nil, errClosed
	}
	if err != nil {
		code := CodeModelFile
		if errors.Is(err, device.ErrFailed) {
			code = CodeDevice
		}
		return nil, errorf(code, "cannot load model %q: %s", s.info.Name, err)
	}
	r := &resident{source: s, device: dev, model: m, plan: plan, logits: make([]float32, s.config.Vocab)}
	r.receipt = Receipt{
		Model:     s.info.Name,
		ModelHash: s.hash,
		Device:    info.Name,
		Path:      info.Path,
		CacheType: o.CacheType,
		Engine:    o.Version,
	}
	if s.template != nil {
		r.receipt.TemplateHash = s.template.Hash()
	}
	return r, nil
}

// progress tells everyone who waits for s how much of it is loaded.
func (l *loop) progress(s *source, done, total int64) {
	now := Loading{Model: s.info.Name, Done: done, Total: total}
	l.board.update(func(b *Status) { b.Loading = now })
	l.collect()
	l.board.count(0, len(l.sched.waiting))
	for _, a := range l.waitingFor(s) {
		a.mail.put(Event{Type: EventLoading, Loading: &now})
	}
}

// unload ends the running answers with err and frees the device. It does nothing
// if no model is resident.
func (l *loop) unload(err *Error) {
	for _, q := range l.sched.reset("", nil) {
		l.end(q.answer, err, false)
	}
	if l.resident == nil {
		return
	}
	if err := l.resident.device.Close(); err != nil {
		l.options.Logger.Error("device not closed", "error", err)
	}
	l.sources.release(l.resident.source)
	l.resident = nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
