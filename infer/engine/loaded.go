package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/kvfile"
	"m40-llm/infer/lease"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
	"m40-llm/infer/units"
)

// loadedModel is the model that is loaded, with the devices it is on.
type loadedModel struct {
	model   *openModel
	devices []device.Device
	info    device.Info // of those that the model is on, as one
	forward forwarder
	plan    placement.Plan
	draft   *draftModel       // next to it; nil: none
	head    *headDrafter      // nil: the model has none
	memory  []infer.MemoryUse // by the plan
	growth  growth
	packing packing
	buffers sample.Buffers // shared by all samplers
	logits  []float32      // (vocab), the row that was copied last; nil: none yet
	receipt record.Receipt // the fields that all its answers share
	ahead   bool           // steps are computed ahead

	promptsApart bool // rows of prompts are computed in another way than those of answers: see sequence.answerRows

	reads    *model.Reads          // what steps read from memory; nil: not known
	meter    device.BandwidthMeter // of that memory; nil: none
	identity kvfile.Identity       // of stored KV caches; zero if none are stored
}

// forwarder computes steps: a *model.Model, or a fake in tests.
type forwarder interface {
	Submit(b *device.Batch) (model.Ticket, error)
	Collect(t model.Ticket) ([]model.Result, error)
	Depth() int
	Drawn(i int) (int32, error)
	Candidates(i int) (device.Candidates, error)
	Logits(dst []float32, i int) error
	Vectors(dst []float32, first int) error
	ReadBlock(dst []byte, group int, id int32) error
	WriteBlock(group int, id int32, src []byte) error
	ReleaseBlock(group int, id int32) error
	BlockBytes() []int
	CopyState(to, from int32) error
	StateBytes() int
	ReadState(dst []byte, slot int32) error
	WriteState(slot int32, src []byte) error
	Pack(limit time.Duration) (missing int64, err error)
}

// states returns the slots of the model's recurrent state, nil if it has none.
func (r *loadedModel) states() *states {
	if r.plan.States == 0 {
		return nil
	}
	return newStates(r.plan.States, r.plan.Context, device.BlockSize)
}

// leased returns the devices that compute steps of the model.
func (r *loadedModel) leased() (d lease.Devices) {
	for _, use := range r.memory {
		if use.Kind == "cuda" {
			d |= lease.GPU
		} else {
			d |= lease.CPU
		}
	}
	return d
}

// row returns row i of the logits of the last step as the host has it: the whole row, or the
// candidates of a device with a memory of its own, from which only samplers that need more fetch
// the whole row.
func (r *loadedModel) row(i int) (sample.Row, error) {
	c, err := r.forward.Candidates(i)
	if err != nil || c.All != nil {
		return sample.RowOf(c.All), err
	}
	row := sample.Row{IDs: c.IDs, Logits: c.Logits, Max: c.Max, Mass: c.Mass, Dot: c.Dot, Count: c.Count, NotFinite: c.Bad >= 0}
	row.Fetch = func() ([]float32, error) {
		if r.logits == nil {
			r.logits = make([]float32, r.model.config.Vocab)
		}
		if err := r.forward.Logits(r.logits, i); err != nil {
			return nil, &readError{err}
		}
		return r.logits, nil
	}
	return row, nil
}

// readError is the error of a device that could not copy a row.
type readError struct{ error }

type loadFunc func(context.Context, *gguf.File, []model.Stage, model.Options) (forwarder, error)

func loadModel(ctx context.Context, f *gguf.File, stages []model.Stage, o model.Options) (forwarder, error) {
	return model.LoadStages(ctx, f, stages, o)
}

// loadFirst loads the model that the engine starts with.
func (l *loop) loadFirst() {
	m, err := l.models.acquire(l.ctx, l.options.Model, "")
	if err != nil {
		e := fault.Of(fault.CodeClosed, err)
		l.notLoaded(l.options.Model, e)
		l.status.setFailed(e)
		return
	}
	defer l.models.release(m)
	l.switchTo(m)
}

func (l *loop) notLoaded(name string, e *fault.Error) {
	level := slog.LevelError
	if e.Code == fault.CodeClosed {
		level = slog.LevelInfo // a stop is no failure
	}
	l.options.Logger.Log(l.ctx, level, "model not loaded", "model", name, "code", e.Code, "error", e.Message)
}

// switchTo loads m in place of the loaded model. If that fails, no model is loaded, and the
// answers that wait for m end with the error.
func (l *loop) switchTo(m *openModel) {
	l.models.retain(m) // those who wait for it may all leave
	defer l.models.release(m)
	if e := l.replace(m); e != nil {
		l.giveUp(m, e)
	}
}

// reload applies the setup that was requested, and loads the model again if one is loaded, with all memory that is free
// then. If that fails, it undoes the change.
func (l *loop) reload() {
	l.margins = nil
	before, after := l.setupNow(), *l.setup
	l.setup, l.sched.draining = nil, false
	l.apply(after)
	if l.loaded == nil {
		return
	}
	m := l.models.retain(l.loaded.model)
	defer l.models.release(m)
	if e := l.replace(m); e != nil {
		l.options.Logger.Warn("setup undone", "setup", after, "error", e.Message)
		l.apply(before)
		l.status.setSetupNotice(e.Message)
		l.switchTo(m)
	}
}

// setupNow returns the setup with which models are loaded.
func (l *loop) setupNow() infer.Setup {
	return infer.Setup{ContextLength: l.options.ContextLength, CacheType: l.options.CacheType, Threads: l.options.Threads, Draft: l.options.Draft}
}

func (l *loop) apply(s infer.Setup) {
	l.options.ContextLength, l.options.CacheType = s.ContextLength, s.CacheType
	l.caches, _ = placement.ParseCache(s.CacheType) // Open and Reload have checked it
	l.options.Draft = s.Draft
	if l.options.SetThreads != nil {
		l.options.Threads = s.Threads
		l.options.SetThreads(s.Threads)
	}
	l.status.setSetup(l.setupNow())
}

// replace loads m in place of the loaded model.
func (l *loop) replace(m *openModel) *fault.Error {
	l.finishSaves()
	l.unload(errClosed)
	begin := l.options.Now()
	l.status.setLoading(m)
	var r *loadedModel
	err := contain(l.options.Logger, func() (err error) {
		if m.readErr != nil {
			return m.readErr
		}
		return readable(m.file, func() (err error) {
			r, err = l.open(m)
			return err
		})
	})
	now := l.options.Now()
	for _, a := range l.waitingFor(m) {
		a.loading += now.Sub(later(begin, a.submitted))
	}
	if err != nil {
		e := fault.Of(fault.CodeModelFile, err)
		l.notLoaded(m.info.Name, e)
		return e
	}
	l.loaded = r
	l.setKeepAlive(l.options.KeepAlive)
	r.growth = growth{free: l.options.FreeMemory}
	l.sched.reset(m.key(), r.newBlocks(l.sched.limits.Rows))
	if l.sched.promptsApart, l.sched.streams = r.promptsApart, r.plan.Stream; r.promptsApart {
		l.sched.alone.atLeast(shortPrompt)
		l.sched.sharing.atLeast(shortPrompt)
	}
	l.sched.useStates(r.states())
	if l.options.drafter != nil {
		l.sched.drafters[wayModel] = l.options.drafter
	}
	if r.draft != nil {
		l.sched.drafters[wayModel] = r.draft
		r.memory = append(r.memory, memoryOf(r.draft.plan, []device.Device{r.draft.dev})...)
	}
	if r.head != nil {
		l.sched.drafters[wayMTP] = r.head
	}
	l.status.setReady(r, now.Sub(begin), l.bandwidths[r.metered()])
	if l.options.GPUs != nil {
		gpus := l.options.GPUs()
		l.status.update(func(s *infer.Status) { s.Devices = gpus })
	}
	l.options.Logger.Info("model loaded", "model", m.info.Name, "context", r.plan.Context, "cache_blocks", r.plan.GroupBlocks(), "answers", l.sched.limits.Answers, "took", now.Sub(begin))
	if notices := slices.DeleteFunc([]string{m.notices(), r.info.Notice}, func(s string) bool { return s == "" }); len(notices) > 0 {
		l.options.Logger.Warn("model loaded with notices", "model", m.info.Name, "notice", strings.Join(notices, "; "))
	}
	for _, a := range l.waitingFor(m) {
		l.fit(a)
	}
	return nil
}

// newBlocks returns the empty KV cache of r for steps of up to rows rows.
func (r *loadedModel) newBlocks(rows int) *blocks {
	var sizes []groupSize
	for _, g := range r.plan.Groups {
		sizes = append(sizes, groupSize{g.Blocks, g.Window})
	}
	b := newBlocks(device.BlockSize, rows, sizes...)
	promised := func() int64 {
		bytes := r.packing.missing
		for i, p := range b.pools {
			bytes += int64(p.granted-p.written) * r.plan.Groups[i].Block
		}
		return bytes
	}
	for i, p := range b.pools {
		p.growBy(func(n int) int { return r.growth.grant(n, r.plan.Groups[i].Block, promised()) })
	}
	return b
}

// open opens devices and loads m on them. Where the memory of a device runs out meanwhile, it closes them and tries again with less memory
// there: with fewer layers or a shorter context.
func (l *loop) open(m *openModel) (_ *loadedModel, err error) {
	defer func() {
		if err != nil {
			delete(l.margins, m.key()) // nothing is gained by it, and more memory may be free at the next load
		}
	}()
	var first *fault.Error
	for tries := 0; ; tries++ {
		r, err := l.openOnce(m)
		short, ok := errors.AsType[*shortage](err)
		if e, _ := errors.AsType[*fault.Error](err); first != nil && !ok && e != nil && e.Code == fault.CodeMemory {
			return nil, first // e would have the margin
		}
		if !ok {
			return r, err
		}
		first = cmp.Or(first, short.reason)
		if l.options.WholePlan || !l.widenMargin(m, short, tries) {
			return nil, first
		}
		l.options.Logger.Warn("memory ran out while the model was loaded; it is tried with less", "model", m.info.Name, "device", short.device, "kept_free", l.margins[m.key()][short.device], "error", short.reason.Message)
	}
}

// shortage is the error of a load for which the memory of a device did not suffice, although m fits by the plan.
type shortage struct {
	reason *fault.Error
	device int   // of placed.devices
	layer  int64 // bytes of the largest layer there
	memory int64 // free bytes by the plan
}

func (s *shortage) Error() string { return s.reason.Message }

// widenMargin makes later plans of m leave more memory of a device, the more the more tries have failed: room for a layer, then for two
// more, four more and so on. It returns false if the device has been given up. The margin stays for later loads, until one fails
// or a person has the model loaded again (reload).
func (l *loop) widenMargin(m *openModel, s *shortage, tries int) bool {
	const least = 32 << 20
	if s.memory <= 1 {
		return false
	}
	if l.margins == nil {
		l.margins = map[string]map[int]int64{}
	}
	if l.margins[m.key()] == nil {
		l.margins[m.key()] = map[int]int64{}
	}
	l.margins[m.key()][s.device] += max(s.layer, least) << min(tries, 16)
	return true
}

// openOnce opens devices and loads m on them. Its error is a *shortage if the memory of one ran out.
func (l *loop) openOnce(m *openModel) (r *loadedModel, err error) {
	var p placed
	l.sched.limits = limits(l.setupOf(m).Steps)
	draft, why := l.draftsFor(m)
	head, noHead := l.headOptions(m)
	if why == "" {
		why = noHead
	}
	p.draft, p.head, p.tower.wanted = draft, head, m.vision != nil
	defer func() {
		if r == nil { // an error, or a panic
			l.close(p.devices)
			if draft != nil {
				l.models.release(draft)
			}
		}
	}()
	err = l.place(m, &p)
	if head.Blocks > 0 && (err != nil || len(p.plan.Stages) > 1 || p.plan.Experts.Layers > 0) { // a head is worth no layer on another device
		if l.options.Draft == DraftMTP {
			why = "no tokens are drafted: the model and its multi-token prediction block do not fit on one device"
		}
		l.close(p.devices)
		p = placed{draft: draft, tower: plannedTower{wanted: p.tower.wanted}}
		err = l.place(m, &p)
	}
	if divided := func() bool { return err != nil || len(p.plan.Stages) > 1 || p.plan.Experts.Layers > 0 }; p.tower.bytes.Total() > 0 && l.options.Among <= 1 && divided() {
		// A tower makes a model that fits on one device take no other. One that takes several anyway keeps it.
		with, fits := p.tower, err == nil
		place := func(tower plannedTower) {
			l.close(p.devices)
			p = placed{draft: draft, head: p.head, tower: tower}
			err = l.place(m, &p)
		}
		m.vision.leaveFirst()
		place(plannedTower{why: fmt.Sprintf("the model leaves no room for the %s that they need on its GPU", units.ByteSize(with.bytes.Total()))})
		if fits && divided() {
			place(plannedTower{wanted: true})
		}
	}
	if err != nil {
		return nil, err
	}
	if r, err = l.loadPlaced(m, p); err == nil {
		l.models.retain(m)
		l.addDraftModel(r, draft, why)
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

// placed is the plan for a model with the devices that it refers to.
type placed struct {
	devices []device.Device // all that were opened
	sizes   []placement.Device
	plan    placement.Plan
	stages  []model.Stage
	experts model.Stage
	info    device.Info // of those that the model is on, as one

	head      model.HeadOptions // zero: none is loaded
	draft     *openModel        // that gets a part of the first device; nil: none
	converted string            // which weights are converted for a device, as a sentence; empty: none
	tower     plannedTower
}

// place opens devices for m and plans it on them, with the first format of the KV cache with which the whole context fits, else with the
// last one that the devices have.
func (l *loop) place(m *openModel, p *placed) error {
	asked, whole := *p, m.config.ContextLength
	if context := l.setupOf(m).Context; context > 0 {
		whole = min(whole, context)
	}
	try := func(cache device.CacheType) error {
		l.close(p.devices)
		*p, l.cache = asked, cache
		l.sched.limits = limits(l.setupOf(m).Steps)
		return l.placeOnDevices(m, p)
	}
	first := l.caches[0]
	err := try(first)
	short := err == nil && p.plan.Context < whole || err != nil && fault.Of(fault.CodeInternal, err).Code == fault.CodeMemory
	if short && len(l.caches) > 1 && l.cacheOf(m) == first {
		if smaller := l.caches[1]; try(smaller) == nil {
			p.addNotice(fmt.Sprintf("the KV cache is %s, because the whole context does not fit with %s", smaller, first))
			err = nil
		} else { // a device may have no kernels for it
			err = try(first)
		}
	}
	if err == nil {
		p.addNotice(m.config.NotQuantized(l.cacheOf(m)))
	}
	return err
}

// placeOnDevices opens one device after the other until m fits on them.
func (l *loop) placeOnDevices(m *openModel, p *placed) error {
	var sizes []placement.Device
	var reason error
	cache := l.cacheOf(m)
	p.head.CacheType = cache
	sum := placement.ModelOf(m.config, cache)
	for dev, err := range l.options.devices(m.file) {
		if err != nil {
			return fault.Errorf(fault.CodeDevice, "cannot open the device: %s", err)
		}
		if m.device != "" && dev.Info().Kind != m.device {
			l.close([]device.Device{dev})
			continue
		}
		p.devices = append(p.devices, dev)
		if err := m.config.Check(dev, cache); err != nil {
			return fault.Errorf(fault.CodeDevice, "cannot load model %q: %s", m.info.Name, err)
		}
		size, err := l.sizeWithRest(p, m, dev, len(sizes))
		if err != nil {
			return err
		}
		sizes = append(sizes, size)
		p.sizes = sizes
		limits := l.placementLimits(m, l.sched.limits.Rows)
		if len(sizes) < limits.Among && m.device == "" && size.Dedicated {
			continue // all of these devices are needed
		}
		p.plan, reason = placement.Place(sum, sizes, limits)
		if reader, ok := dev.(device.FileReader); ok && reason != nil && size.InFile == "" && !fitsAtAll(sum, sizes) {
			reader.KeepInFile(whyInFile(m.file, size))
			if sizes[len(sizes)-1], err = l.sizeWithRest(p, m, dev, len(sizes)-1); err != nil {
				return err
			}
			p.plan, reason = placement.Place(sum, sizes, limits)
		}
		if reason == nil {
			if err := l.placeLargerSteps(m, p); err != nil {
				return err
			}
			p.setStages(placement.TypesOf(m.file))
			l.addShortage(m, p)
			if p.converted != "" {
				l.options.Logger.Info("weights are converted while the model is loaded", "model", m.info.Name, "conversion", p.converted)
			}
			return nil
		}
		if !size.Dedicated {
			break
		}
	}
	if reason == nil {
		return fault.Invalid("against_device", "this server computes on no %s", m.device)
	}
	if most := l.options.MemoryLimit; most > 0 {
		return fault.Errorf(fault.CodeMemory, "%s; models may take %s of main memory", reason, units.ByteSize(most))
	}
	return fault.Errorf(fault.CodeMemory, "%s", reason)
}

// placementLimits returns the limits of the plan of m for steps of rows rows.
func (l *loop) placementLimits(m *openModel, rows int) placement.Limits {
	s := l.setupOf(m)
	return placement.Limits{Context: s.Context, Answers: s.Answers, Rows: rows, Among: l.options.Among}
}

// leastLarge is how many rows larger steps should have at least: those of prompts that copy or round weights for each step take as long for one row.
const leastLarge = 512

// placeLargerSteps plans m for steps of as many rows as the devices of p compute fastest, unless the option says how many or too
// little memory would be left for the KV cache.
func (l *loop) placeLargerSteps(m *openModel, p *placed) error {
	least := math.MaxInt
	for _, stage := range p.plan.Stages {
		least = min(least, p.devices[stage.Device].Info().StepRows)
	}
	experts := p.plan.Experts
	if experts.Layers > 0 {
		least = min(least, p.devices[experts.Device].Info().StepRows)
	}
	most := least
	least = min(least, leastLarge)
	if p.plan.Stream {
		fast := p.devices[0].Info().StepRows
		if experts.Layers > 0 {
			fast *= 4 // copying the experts of all layers takes as long as computing as many rows
		}
		least = leastLarge
		most = max(least, fast)
	}
	for rows := most; rows > 0 && rows >= least; rows /= 2 {
		if fits, err := l.placeSteps(m, p, rows); fits || err != nil {
			return err
		}
	}
	return nil
}

// placeSteps plans m for steps of so many rows. fits is false if they are no more than before, or leave too little memory.
func (l *loop) placeSteps(m *openModel, p *placed, rows int) (fits bool, err error) {
	before := l.sched.limits
	if l.options.ChunkRows > 0 || m.config.Embeds() || rows <= before.Rows {
		return false, nil
	}
	l.sched.limits = limits(placement.StepLimitsOf(l.options.Parallel, rows))
	var sizes []placement.Device
	for i, dev := range p.devices {
		size, err := l.sizeWithRest(p, m, dev, i)
		if err != nil {
			return false, err
		}
		sizes = append(sizes, size)
	}
	cache := l.cacheOf(m)
	plan, reason := placement.Place(placement.ModelOf(m.config, cache), sizes, l.placementLimits(m, rows))
	if reason != nil || len(plan.Stages) != len(p.plan.Stages) || plan.Stream != p.plan.Stream || plan.Experts != p.plan.Experts && !plan.Stream || plan.Context < p.plan.Context || plan.Blocks < p.plan.Blocks*31/32 {
		l.sched.limits = before
		return false, nil
	}
	p.plan = plan
	return true, nil
}

// fitsAtAll reports whether a model fits on devices with a context of any length.
func fitsAtAll(sum placement.Model, sizes []placement.Device) bool {
	_, err := placement.Place(sum, sizes, placement.Limits{Answers: 1})
	return err == nil
}

// whyInFile says why the weights in f stay there, on a device with too little memory for copies.
func whyInFile(f *gguf.File, size placement.Device) string {
	why := fmt.Sprintf("copies of them need %s, and %s are free", units.ByteSize(size.Weights), units.ByteSize(size.Memory))
	if model.WeightBytes(f) > size.Memory {
		why += "; the file is larger too, so parts of it are read from the disk for every token"
	}
	return why
}

// addShortage adds to the notice of p the margins that a shortage of memory has widened.
func (l *loop) addShortage(m *openModel, p *placed) {
	for i, size := range p.sizes {
		if margin := l.margins[m.key()][i]; margin > 0 {
			notice := fmt.Sprintf("the memory of %s ran out while the model was loaded, so %s more of it are left free", size.Name, units.ByteSize(margin))
			p.info.Notice = strings.TrimPrefix(p.info.Notice+"; "+notice, "; ")
		}
	}
}

// sizeWithRest is sizeOn, but the device also has the head of m, and the first one its draft model, if it has one.
func (l *loop) sizeWithRest(p *placed, m *openModel, dev device.Device, i int) (placement.Device, error) {
	size, err := l.sizeOn(m, dev, i)
	if err != nil {
		return size, err
	}
	if i == 0 && p.tower.wanted {
		if size.Memory, err = l.leaveRoomForTower(p, m, dev, size.Memory); err != nil {
			p.tower = plannedTower{why: err.Error()}
		}
	}
	if size.Memory == 0 {
		return size, nil
	}
	size.Memory = max(size.Memory-l.headBytes(m, dev, p.head), 1)
	draft := p.draft
	if draft == nil || i > 0 {
		return size, nil
	}
	needs, _, err := l.draftNeeds(draft, dev, m.config.ContextLength)
	if err != nil {
		return size, fault.Errorf(fault.CodeModelFile, "cannot load the draft model %q: %s", draft.info.Name, err)
	}
	size.Memory = max(size.Memory-needs, 1)
	return size, nil
}

// sizeOn returns what m takes of the memory of dev, the i-th device.
func (l *loop) sizeOn(m *openModel, dev device.Device, i int) (placement.Device, error) {
	size, err := placement.DeviceOf(m.file, m.config, dev, l.cacheOf(m), placement.StepLimits(l.sched.limits))
	if err != nil {
		return size, fault.Errorf(fault.CodeModelFile, "cannot load model %q: %s", m.info.Name, err)
	}
	if most := l.options.MemoryLimit; most > 0 && !size.Dedicated && (size.Memory == 0 || most < size.Memory) {
		size.Memory = most
	}
	if margin := l.margins[m.key()][i]; margin > 0 && size.Memory > 0 {
		size.Memory = max(size.Memory-margin, 1)
	}
	return size, nil
}

// devices yields devices in order of preference. Each is opened when it is asked for.
func (o *Options) devices(file *gguf.File) iter.Seq2[device.Device, error] {
	return func(yield func(device.Device, error) bool) {
		if !yield(o.OpenDevice(file)) || o.MoreDevices == nil {
			return
		}
		o.MoreDevices()(yield)
	}
}

// addNotice adds a sentence without its full stop to what people are told of the plan; empty: none.
func (p *placed) addNotice(notice string) {
	p.plan.Notice = strings.Trim(p.plan.Notice+"; "+notice, "; ")
}

// setStages sets stages, experts, info and converted from the plan and the types of weights. info.Name lists
// the devices in order of preference.
func (p *placed) setStages(types placement.Types) {
	on := map[int]bool{}
	var conversions []string
	for _, stage := range p.plan.Stages {
		p.stages = append(p.stages, model.Stage{Device: p.devices[stage.Device], Layers: stage.Layers})
		on[stage.Device] = true
	}
	if experts := p.plan.Experts; experts.Layers > 0 {
		p.experts = model.Stage{Device: p.devices[experts.Device], Layers: experts.Layers}
		on[experts.Device] = true
	}
	var names []string
	var inFile string
	for i, dev := range p.devices {
		if info := dev.Info(); on[i] {
			if names = append(names, info.Name); len(names) == 1 {
				p.info = info
			}
			inFile = cmp.Or(inFile, device.Info{InFile: info.InFile}.Notices())
			if c, ok := dev.(device.Converter); ok {
				if converted := types.Converted(c.Converts, info.Name); converted != "" {
					conversions = append(conversions, converted)
				}
			}
		}
	}
	p.converted = strings.Join(conversions, "; ")
	p.info.Name, p.info.Path = strings.Join(names, " and "), p.path()
	notice := cmp.Or(p.plan.Reason, p.info.Notice)
	p.info.Notice = strings.Join(slices.DeleteFunc([]string{notice, inFile, p.converted}, func(s string) bool { return s == "" }), "; ")
}

// path returns the number paths of the devices that the model is on, as far as they are known: those of a GPU are when its programs are compiled.
func (p placed) path() string {
	var paths []string
	for _, dev := range p.devices {
		isOn := func(s model.Stage) bool { return s.Layers > 0 && s.Device == dev }
		if path := dev.Info().Path; (isOn(p.experts) || slices.ContainsFunc(p.stages, isOn)) && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	all := strings.Join(paths, "+")
	if p.plan.Stream { // then the first path is that of the GPUs
		all += ", prompts " + paths[0]
	}
	return all
}

// promptsApart reports whether rows of prompts are computed in another way than those of answers, and so have other bits.
func (p placed) promptsApart(m *openModel) bool {
	own := slices.ContainsFunc(p.stages, func(s model.Stage) bool { return s.Device.Info().Prompts })
	return p.plan.Stream || own && !m.config.Embeds()
}

// memoryOf returns what a model takes of devices by a plan.
func memoryOf(plan placement.Plan, devices []device.Device) (list []infer.MemoryUse) {
	for _, use := range plan.Uses {
		info := devices[use.Device].Info()
		list = append(list, infer.MemoryUse{Device: info.Name, Kind: info.Kind, Weights: use.Weights, Cache: use.Cache, Work: use.Work, Free: info.Memory})
	}
	return list
}

// loadPlaced loads m as it was placed.
func (l *loop) loadPlaced(m *openModel, p placed) (*loadedModel, error) {
	info, o := p.info, l.options
	cache := l.cacheOf(m)
	forward, err := l.load(l.ctx, m.file, p.stages, model.Options{
		CacheType: cache,
		Blocks:    p.plan.Blocks,
		States:    p.plan.States,
		MaxRows:   l.sched.limits.Rows,
		MaxOut:    l.sched.limits.Logits,
		Context:   p.plan.Context,

		GroupBlocks: p.plan.GroupBlocks(),
		Experts:     p.experts,
		Stream:      p.plan.Stream,
		Prompts:     true,
		PackLater:   l.packsLater(m, p),
		Pictures:    m.sees(),
		Head:        p.head,

		Progress: func(p model.Progress) { l.progress(m, p) },
	})
	if l.ctx.Err() != nil {
		return nil, errClosed
	}
	if err != nil {
		return nil, loadError(m, p, err)
	}
	compiled := p.stages[0].Device.Info() // with what is known since its programs were compiled
	info.Decode, info.DecodeReason, info.Path = compiled.Decode, compiled.DecodeReason, p.path()
	r := &loadedModel{model: m, devices: p.devices, info: info, forward: forward, plan: p.plan, memory: memoryOf(p.plan, p.devices), promptsApart: p.promptsApart(m)}
	l.setTower(r, m, p)
	r.head = l.newHeadDrafter(r, p.head)
	if r.packing.missing, err = forward.Pack(0); err != nil {
		return nil, err
	}
	r.packing.total = r.packing.missing
	r.ahead = forward.Depth() > 1 && p.plan.States == 0 && (o.RunAhead == nil || *o.RunAhead)
	r.receipt = record.Receipt{
		Model:     m.info.Name,
		ModelHash: m.hash,
		Device:    info.Name,
		Path:      info.Path,
		Decode:    string(info.Decode),
		CacheType: cache.String(),
		Engine:    o.Version,
	}
	r.setReads(p, cache)
	if l.kv.dir != nil {
		sizes := forward.BlockBytes()
		if n := forward.StateBytes(); n > 0 {
			sizes = append(slices.Clip(sizes), n)
		}
		if slices.Max(sizes) <= kvfile.MaxBlockBytes {
			r.identity = identity(m, p, cache, sizes, forward.StateBytes() > 0)
		} else {
			l.options.Logger.Warn("KV caches of chats are not stored: a block or the recurrent state is too large", "model", m.info.Name, "bytes", slices.Max(sizes), "limit", kvfile.MaxBlockBytes)
		}
	}
	return r, nil
}

// loadError returns the error of a load for people, a *shortage if the memory of a device ran out.
func loadError(m *openModel, p placed, err error) error {
	code := fault.CodeModelFile
	switch {
	case errors.Is(err, device.ErrMemory):
		code = fault.CodeMemory
	case errors.Is(err, device.ErrFailed):
		code = fault.CodeDevice
	}
	e := fault.Errorf(code, "cannot load model %q: %s", m.info.Name, err)
	failed, ok := errors.AsType[*model.DeviceError](err)
	if !ok || !errors.Is(err, device.ErrMemory) {
		return e
	}
	i := slices.Index(p.devices, failed.Device)
	if i < 0 {
		return e
	}
	size := p.sizes[i]
	return &shortage{e, i, slices.Max(size.Parts.Layers), size.Memory}
}

// progress reports to everyone who waits for m how much of it is loaded.
func (l *loop) progress(m *openModel, p model.Progress) {
	now := infer.Loading{Model: m.info.Name, Done: p.Done, Total: p.Total, Kernels: p.Kernels, KernelsTotal: p.KernelsTotal}
	l.status.update(func(b *infer.Status) { b.Loading = now })
	l.takeRequests()
	l.dropCancelled()
	l.status.setCounts(0, len(l.sched.waiting))
	for _, a := range l.waitingFor(m) {
		a.mail.put(infer.Event{Type: infer.EventLoading, Loading: &now})
	}
}

// unload ends the running answers with err and closes the devices. It does nothing if no model is
// loaded.
func (l *loop) unload(err *fault.Error) {
	l.kv.abandon()
	l.flights, l.collected = nil, time.Time{}
	l.endTurn()
	l.status.endStep(l.options.Now())
	for _, q := range l.sched.reset("", nil) {
		l.end(l.answers[q], err, false)
	}
	if l.loaded == nil {
		return
	}
	l.close(l.loaded.devices)
	if d := l.loaded.draft; d != nil {
		l.close([]device.Device{d.dev})
		l.models.release(d.model)
	}
	l.models.release(l.loaded.model)
	l.loaded = nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
