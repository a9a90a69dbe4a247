package engine

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
)

// resident is the model that is loaded.
type resident struct {
	source  *source
	devices []device.Device
	info    device.Info // of all of them
	model   forwarder
	plan    placement.Plan
	growth  growth
	buffers sample.Buffers // of all samplers
	logits  []float32      // (vocab), the row that was copied last; nil: none was
	receipt record.Receipt // what all its answers share
}

// forwarder computes steps: a *model.Model, or a stand-in in tests.
type forwarder interface {
	Submit(b *device.Batch) (model.Ticket, error)
	Collect(t model.Ticket) ([]model.Result, error)
	Candidates(i int) (device.Candidates, error)
	Logits(dst []float32, i int) error
}

// row is what the host has of row i of the logits of the last step. Only settings that
// need more of it copy the whole of it from a device with a memory of its own.
func (r *resident) row(i int) (sample.Row, error) {
	c, err := r.model.Candidates(i)
	if err != nil || c.All != nil {
		return sample.RowOf(c.All), err
	}
	row := sample.Row{IDs: c.IDs, Logits: c.Logits, Max: c.Max, Mass: c.Mass, Dot: c.Dot, Count: c.Count, NotFinite: c.Bad >= 0}
	row.Fetch = func() ([]float32, error) {
		if r.logits == nil {
			r.logits = make([]float32, r.source.config.Vocab)
		}
		if err := r.model.Logits(r.logits, i); err != nil {
			return nil, &readError{err}
		}
		return r.logits, nil
	}
	return row, nil
}

// readError is that of a device which could not copy a row.
type readError struct{ error }

type loadFunc func(context.Context, *gguf.File, []model.Stage, model.Options) (forwarder, error)

func loadModel(ctx context.Context, f *gguf.File, stages []model.Stage, o model.Options) (forwarder, error) {
	return model.LoadStages(ctx, f, stages, o)
}

// loadFirst loads the model that the engine starts with.
func (l *loop) loadFirst() {
	s, err := l.sources.acquire(l.ctx, l.options.Model)
	if err != nil {
		e := infer.AsError(infer.CodeClosed, err)
		l.notLoaded(l.options.Model, e)
		l.board.failed(e)
		return
	}
	defer l.sources.release(s)
	l.bring(s)
}

func (l *loop) notLoaded(name string, e *infer.Error) {
	level := slog.LevelError
	if e.Code == infer.CodeClosed {
		level = slog.LevelInfo // a stop is no failure
	}
	l.options.Logger.Log(l.ctx, level, "model not loaded", "model", name, "code", e.Code, "error", e.Message)
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
		return readable(s.file, func() (err error) {
			r, err = l.open(s)
			return err
		})
	})
	now := l.options.Now()
	for _, a := range l.waitingFor(s) {
		a.loading += now.Sub(later(begin, a.submitted))
	}
	if err != nil {
		e := infer.AsError(infer.CodeModelFile, err)
		l.notLoaded(s.info.Name, e)
		l.giveUp(s, e)
		return
	}
	l.resident = r
	b := newBlocks(r.plan.Blocks, device.BlockSize)
	r.growth = growth{free: l.options.FreeMemory, plan: r.plan}
	b.growBy(func(n int) int { return r.growth.grant(n, b.granted-b.written) })
	l.sched.reset(s.key(), b)
	l.board.ready(r, now.Sub(begin))
	l.options.Logger.Info("model loaded", "model", s.info.Name, "context", r.plan.Context, "cache_blocks", r.plan.Blocks, "took", now.Sub(begin))
	if notice := s.notices(); notice != "" {
		l.options.Logger.Warn("model loaded with notices", "model", s.info.Name, "notice", notice)
	}
	for _, a := range l.waitingFor(s) {
		l.fit(a)
	}
}

// open opens devices and loads a model on them.
func (l *loop) open(s *source) (r *resident, err error) {
	var p placed
	defer func() {
		if r == nil { // an error, or a panic
			l.close(p.devices)
		}
	}()
	if err := l.place(s, &p); err != nil {
		return nil, err
	}
	if r, err = l.put(s, p); err == nil {
		l.sources.retain(s)
	}
	return r, err
}

func (l *loop) close(devices []device.Device) {
	for _, dev := range devices {
		if err := dev.Close(); err != nil {
			l.options.Logger.Error("device not closed", "error", err)
		}
	}
}

// placed is a plan for a model with the devices that it names.
type placed struct {
	devices []device.Device // all that are open
	plan    placement.Plan
	stages  []model.Stage
	info    device.Info // of all that the model is on
}

// place opens one device after the other until the model fits on them.
func (l *loop) place(s *source, p *placed) error {
	var sizes []placement.Device
	var reason error
	sum := placement.ModelOf(s.config, l.cache)
	for dev, err := range l.options.devices(s.file) {
		if err != nil {
			return infer.Errorf(infer.CodeDevice, "cannot open the device: %s", err)
		}
		p.devices = append(p.devices, dev)
		size, err := placement.DeviceOf(s.file, s.config, dev, l.cache, placement.StepLimits(l.sched.limits))
		if err != nil {
			return infer.Errorf(infer.CodeModelFile, "cannot load model %q: %s", s.info.Name, err)
		}
		sizes = append(sizes, size)
		p.plan, reason = placement.Place(sum, sizes, placement.Limits{Context: l.options.ContextLength, Answers: l.options.Parallel})
		if reason == nil {
			p.settle()
			return nil
		}
		if !size.Dedicated {
			break
		}
	}
	return infer.Errorf(infer.CodeMemory, "%s", reason)
}

// devices yields devices in order of preference, each opened when it is asked for.
func (o *Options) devices(file *gguf.File) iter.Seq2[device.Device, error] {
	return func(yield func(device.Device, error) bool) {
		if !yield(o.OpenDevice(file)) || o.MoreDevices == nil {
			return
		}
		o.MoreDevices()(yield)
	}
}

// settle fills in the stages of the plan. The devices are named in order of preference.
func (p *placed) settle() {
	on := map[int]bool{}
	for _, stage := range p.plan.Stages {
		p.stages = append(p.stages, model.Stage{Device: p.devices[stage.Device], Layers: stage.Layers})
		on[stage.Device] = true
	}
	var names, paths []string
	for i, dev := range p.devices {
		if info := dev.Info(); on[i] {
			if names = append(names, info.Name); len(names) == 1 {
				p.info = info
			}
			if !slices.Contains(paths, info.Path) {
				paths = append(paths, info.Path)
			}
		}
	}
	p.info.Name, p.info.Path = strings.Join(names, " and "), strings.Join(paths, "+")
	if p.plan.Reason != "" {
		p.info.Notice = p.plan.Reason
	}
}

// put loads a model as it was placed.
func (l *loop) put(s *source, p placed) (*resident, error) {
	info, o := p.info, l.options
	m, err := l.load(l.ctx, s.file, p.stages, model.Options{
		CacheType: l.cache,
		Blocks:    p.plan.Blocks,
		MaxRows:   l.sched.limits.Rows,
		MaxOut:    l.sched.limits.Logits,
		Context:   p.plan.Context,
		Progress:  func(p model.Progress) { l.progress(s, p) },
	})
	if l.ctx.Err() != nil {
		return nil, errClosed
	}
	if err != nil {
		code := infer.CodeModelFile
		if errors.Is(err, device.ErrFailed) {
			code = infer.CodeDevice
		}
		return nil, infer.Errorf(code, "cannot load model %q: %s", s.info.Name, err)
	}
	r := &resident{source: s, devices: p.devices, info: info, model: m, plan: p.plan}
	r.receipt = record.Receipt{
		Model:     s.info.Name,
		ModelHash: s.hash,
		Device:    info.Name,
		Path:      info.Path,
		CacheType: o.CacheType,
		Engine:    o.Version,
	}
	r.receipt.TemplateHash = s.format.TemplateHash()
	return r, nil
}

// progress tells everyone who waits for s how much of it is loaded.
func (l *loop) progress(s *source, p model.Progress) {
	now := infer.Loading{Model: s.info.Name, Done: p.Done, Total: p.Total, Kernels: p.Kernels, KernelsTotal: p.KernelsTotal}
	l.board.update(func(b *infer.Status) { b.Loading = now })
	l.collect()
	l.board.count(0, len(l.sched.waiting))
	for _, a := range l.waitingFor(s) {
		a.mail.put(infer.Event{Type: infer.EventLoading, Loading: &now})
	}
}

// unload ends the running answers with err and frees the device. It does nothing
// if no model is resident.
func (l *loop) unload(err *infer.Error) {
	for _, q := range l.sched.reset("", nil) {
		l.end(l.answers[q], err, false)
	}
	if l.resident == nil {
		return
	}
	l.close(l.resident.devices)
	l.sources.release(l.resident.source)
	l.resident = nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
