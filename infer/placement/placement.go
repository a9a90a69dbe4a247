// Package placement decides which layers of a model go to which device, and how large its KV
// cache and context become. [Place] is a pure function of sizes: nothing is opened, allocated
// or measured here.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"m40-llm/infer/device"
	"m40-llm/infer/model"
	"m40-llm/infer/units"
)

const (
	// shortestContext is the shortest context that Place chooses if no length was requested; a
	// model that has no room for it is refused.
	shortestContext = 512

	// CommonContext is the length that answers are expected to reach. The KV cache has room for
	// as many such answers as may run at once, or for one of the whole context if that is more.
	CommonContext = 8192

	// Spare is what a growing KV cache leaves of main memory, in bytes: the rest of the program
	// and other programs grow too, and Linux kills a process when none is left.
	Spare = 64 << 20

	// unknownMemory is the size of the KV cache on a device that does not report its memory.
	unknownMemory = 2 << 30
)

// Model is what determines the memory of a model apart from its weights.
type Model struct {
	Context int     // positions it was trained on
	Cache   []int64 // bytes of a KV block in each layer
	Group   []int   // cache group of each layer; nil: all are in one
	Windows []int   // of each cache group, positions that a row reads; 0: all; nil: one group without
	State   []int64 // bytes of the recurrent state of a sequence in each layer; nil: none has such state
	Shared  int     // layers from this one on go to one device; 0, or as many as there are: any can be apart
}

// Device is a device with what a model takes of its memory, in bytes.
type Device struct {
	device.Info
	Weights int64       // all weights
	Parts   model.Parts // parts of them
	Scratch int64       // activations, logits, workspace of kernels and samplers: the same with any context
	Block   int64       // workspace of kernels for each block of the longest block table
}

// Limits are what an engine requests.
type Limits struct {
	Context int // of one answer, in positions; 0: the model's, or as much of it as fits
	Answers int // at once
	Rows    int // of a step; 0: the default
	Among   int // devices, the first ones, among which the layers are divided even if fewer suffice; 0: as few as possible
}

// Plan says which part of a model goes where.
type Plan struct {
	Stages  []Stage
	Experts Stage // a device that has the experts of the first so many layers, in place of Stages; 0 layers: none
	Stream  bool  // the devices of Stages compute more for prompts: see model.Options.Stream
	Context int   // positions of one answer
	States  int   // slots of recurrent state; 0: the model has none
	State   int64 // bytes of all slots
	Blocks  int   // of a cache group without a window, enough for one answer at least
	Groups  []Group
	Uses    []Use
	Taken   int64  // bytes of cache that are allocated when the model is loaded
	Notice  string // why Context is shorter than expected, if it is
	Reason  string // why the model is not on the first device alone, if it is not
}

// Group is the KV cache of the layers in a cache group.
type Group struct {
	Window int   // positions that a row reads; 0: all
	Blocks int   // enough for one answer at least
	Block  int64 // bytes of main memory that a block adds when it is first written
}

// GroupBlocks returns the blocks of each group.
func (p Plan) GroupBlocks() (list []int) {
	for _, g := range p.Groups {
		list = append(list, g.Blocks)
	}
	return list
}

// Stage is a run of layers on one device, after those of the stages before it. The first one
// has the embedding table too, the last one the output layer.
type Stage struct{ Device, Layers int }

// Planned returns the most bytes that the KV cache may take.
func (p Plan) Planned() int64 { return p.Used(p.GroupBlocks()...) }

// Used returns the bytes that the KV cache takes when so many blocks of each group have been written.
func (p Plan) Used(written ...int) int64 {
	total := p.Taken
	for i, n := range written {
		total += int64(n) * p.Groups[i].Block
	}
	return total
}

// Error is the reason why a model does not fit, with the sizes and what to do.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

// Place plans a model for devices in order of preference: those with memory of their own first,
// then at most one that computes in main memory. As few of the first as possible hold the model;
// if they are too small even together, main memory takes the first layers, or all. If the limits ask for more
// devices and all layers fit there, they are divided by the memory of the devices. The error is an *Error.
func Place(m Model, devices []Device, l Limits) (Plan, error) {
	p := newPlacer(m, devices, l)
	plan, err := p.place()
	plan.Uses = p.uses(plan)
	return plan, err
}

func (p *placer) place() (Plan, error) {
	devices, l := p.devices, p.limits
	var err error = &Error{"there is no device to compute on"}
	if l.Among > 1 && l.Among <= len(devices) {
		if plan, fits := p.among(l.Among); fits {
			return plan, nil
		}
	}
	for i, d := range devices {
		host := i > 0 && !d.Dedicated
		if host {
			plan, fits, hostErr := p.divide(i + 1)
			if fits || hostErr != nil {
				return plan, hostErr
			}
		}
		var plan Plan
		if plan, err = p.whole(i); err == nil {
			return plan, nil
		}
		if i > 0 && !host {
			if plan, fits, _ := p.divide(i + 1); fits {
				return plan, nil
			}
			err = p.tooLarge(i + 1)
		}
	}
	return Plan{}, err
}

// placer is one call of Place.
type placer struct {
	model   Model
	devices []Device
	limits  Limits
	context int  // the longest that is of use
	states  int  // slots of recurrent state
	experts int  // layers, the first ones, whose experts no device with a memory of its own has
	streams bool // but copies for prompts
}

const (
	// leastStates is how many slots of recurrent state a model gets at least: one for an answer, and
	// snapshots to go on from.
	leastStates = 4

	// statesPerAnswer is how many slots are of use for each answer that may run at once.
	statesPerAnswer = 4
)

const (
	// stagePrograms is how many programs are counted in device.Info.StageBytes. Layers that are copied have one each.
	stagePrograms = 10
)

// stateSlots returns how many slots of recurrent state there are: as many as take a quarter of the
// memory that weights leave, within bounds.
func (p *placer) stateSlots() int {
	slot, free, known := sum(p.model.State), int64(0), false
	if slot == 0 {
		return 0
	}
	for i, d := range p.devices {
		free, known = free+d.Memory, known || d.Memory > 0
		if i == 0 {
			free -= d.Weights + d.Scratch + spare(d)
		}
	}
	most := int64(statesPerAnswer * max(p.limits.Answers, 1))
	if !known {
		return int(most)
	}
	return int(max(leastStates, min(most, free/4/slot)))
}

func newPlacer(m Model, devices []Device, l Limits) *placer {
	if m.Windows == nil {
		m.Windows, m.Group = []int{0}, make([]int, len(m.Cache))
	}
	l.Rows = cmp.Or(l.Rows, defaultRows)
	p := &placer{model: m, devices: devices, context: m.Context, limits: l}
	if l.Context > 0 {
		p.context = min(l.Context, m.Context)
	}
	p.states = p.stateSlots()
	return p
}

func (p *placer) layers() int { return len(p.model.Cache) }

// least returns the blocks that one answer needs: for a context of at most automatic positions if
// no length was requested.
func (p *placer) least(automatic int) int64 {
	if p.limits.Context > 0 {
		return blocksFor(p.context)
	}
	return blocksFor(min(p.context, automatic))
}

// most returns the number of blocks above which more are of no use.
func (p *placer) most() int64 {
	return max(blocksFor(p.context), blocksFor(min(p.context, CommonContext))*int64(p.limits.Answers))
}

// need is the memory that layers take of a device: fixed, for each block of the longest block table, and
// for each block of the cache groups.
type need struct {
	fixed, block int64
	groups       []int64
}

// blocksOf returns the blocks of cache group g where groups without a window have blocks: as many, or those
// inside the windows of as many answers, and of one more.
func (p *placer) blocksOf(g int, blocks int64) int64 {
	window := p.model.Windows[g]
	if window == 0 {
		return blocks
	}
	span := int64(model.CacheGroup{Window: window}.Span(p.limits.Rows))
	return min(blocks, span+span*int64(p.limits.Answers)*blocks/max(1, p.most()))
}

// with returns n with a cache of so many blocks.
func (p *placer) with(n need, blocks int64) int64 {
	return n.fixed + p.cache(n, blocks)
}

// cache returns the bytes of n that depend on the blocks of the cache.
func (p *placer) cache(n need, blocks int64) int64 {
	total := blocks * n.block
	for g, bytes := range n.groups {
		total += p.blocksOf(g, blocks) * bytes
	}
	return total
}

// need returns what layers from to to-1 take of d. The first and the last one include the model's
// parts alongside the layers.
func (p *placer) need(d Device, from, to int) need {
	n := need{fixed: d.Weights + d.Scratch, block: d.Block, groups: make([]int64, len(p.model.Windows))}
	for i, bytes := range p.model.Cache[from:to] {
		n.groups[p.model.Group[from+i]] += bytes
	}
	n.fixed += p.stateBytes(from, to) - p.expertBytes(d, from, min(to, p.experts))
	cuts := p.cuts(d, from, min(to, p.experts))
	switch {
	case p.streams && cuts > 0:
		n.fixed += int64(min(cuts, model.StreamRegions)) * slices.Max(d.Parts.Experts[from:min(to, p.experts)])
		cuts += (cuts + stagePrograms - 1) / stagePrograms
	case p.streams && d.Dedicated && from > 0: // layers before these, which are in main memory
		n.fixed += slices.Max(d.Parts.Parted[:from])
		cuts += (from + stagePrograms - 1) / stagePrograms
	}
	n.fixed += d.StageBytes * int64(max(0, cuts-device.FewStages))
	if from == 0 && to == p.layers() {
		return n
	}
	n.fixed -= d.Weights
	n.fixed += sum(d.Parts.Layers[from:to])
	if from == 0 {
		n.fixed += d.Parts.Embedding
	}
	if to == p.layers() {
		n.fixed += d.Parts.Output
	}
	return n
}

// cuts returns how many of layers from to to-1 end a part of the model on d, because their experts are on another device.
func (p *placer) cuts(d Device, from, to int) (n int) {
	for layer := from; layer < to && d.Parts.Experts != nil; layer++ {
		if d.Parts.Experts[layer] > 0 {
			n++
		}
	}
	return n
}

// expertBytes returns what the experts of layers from to to-1 take of d.
func (p *placer) expertBytes(d Device, from, to int) int64 {
	if d.Parts.Experts == nil || from >= to {
		return 0
	}
	return sum(d.Parts.Experts[from:to])
}

// stateBytes returns the size of all slots of recurrent state in layers from to to-1.
func (p *placer) stateBytes(from, to int) int64 {
	if p.states == 0 {
		return 0
	}
	return int64(p.states) * sum(p.model.State[from:to])
}

// spare returns the bytes of d that have to stay free.
func spare(d Device) int64 {
	if d.Dedicated {
		return 0
	}
	return Spare
}

// room returns how many blocks d has room for alongside n, or as many as are of use: half of main memory is
// left to other programs, and an eighth of a device's own to the driver.
func (p *placer) room(d Device, n need) int64 {
	free := d.Memory - n.fixed - spare(d)
	switch {
	case d.Memory == 0:
		free = unknownMemory
	case d.Dedicated:
		free = free / 8 * 7
	default:
		free /= 2
	}
	return int64(sort.Search(int(p.most()), func(blocks int) bool { return p.cache(n, int64(blocks)+1) > free }))
}

// whole plans the model for device i alone.
func (p *placer) whole(i int) (Plan, error) {
	d := p.devices[i]
	n, least := p.need(d, 0, p.layers()), p.least(shortestContext)
	if total := p.with(n, least) + spare(d); d.Memory > 0 && total > d.Memory {
		return Plan{}, &Error{fmt.Sprintf("the model needs %s (weights %s, KV cache for %d positions %s, scratch and reserve %s), %s are free; %s",
			units.ByteSize(total), units.ByteSize(d.Weights), p.positions(least), units.ByteSize(p.cache(n, least)), units.ByteSize(d.Scratch+p.stateBytes(0, p.layers())+spare(d)), units.ByteSize(d.Memory), p.shorter())}
	}
	plan := p.plan([]Stage{{i, p.layers()}}, least)
	if i > 0 && !d.Dedicated {
		plan.Reason = fmt.Sprintf("running on the CPU: not one layer of the model fits on %s", p.free(i))
	}
	return plan, nil
}

// positions returns the context of least blocks.
func (p *placer) positions(least int64) int { return min(p.context, int(least)*device.BlockSize) }

// plan completes a plan of stages with at least blocks blocks.
func (p *placer) plan(stages []Stage, blocks int64) Plan {
	plan := Plan{Stages: stages, States: p.states, State: p.stateBytes(0, p.layers())}
	most, at := p.most(), 0
	for _, s := range stages {
		d := p.devices[s.Device]
		most = min(most, p.room(d, p.need(d, at, at+s.Layers)))
		at += s.Layers
	}
	plan.Blocks = int(max(blocks, most))
	plan.Context = min(p.context, plan.Blocks*device.BlockSize)
	for g, window := range p.model.Windows {
		plan.Groups = append(plan.Groups, Group{Window: window, Blocks: int(p.blocksOf(g, int64(plan.Blocks)))})
	}
	at = 0
	for _, s := range stages {
		for g, bytes := range p.need(Device{Parts: model.Parts{Layers: make([]int64, p.layers())}}, at, at+s.Layers).groups {
			if p.devices[s.Device].Dedicated {
				plan.Taken += int64(plan.Groups[g].Blocks) * bytes
			} else {
				plan.Groups[g].Block += bytes
			}
		}
		at += s.Layers
	}
	switch {
	case plan.Context < p.context:
		plan.Notice = fmt.Sprintf("the context is %d tokens instead of the model's %d: more does not fit into memory", plan.Context, p.context)
	case p.limits.Context > p.context:
		plan.Notice = fmt.Sprintf("the context is %d tokens: the model was not trained on more", p.context)
	}
	return plan
}

// divide plans the model for the first n devices together; fits is false if it does not fit on
// them. If the last of them is main memory, it gets the layers that do not fit on the others;
// then fits is false if those are all layers, and the error says how much memory is missing.
func (p *placer) divide(n int) (plan Plan, fits bool, err error) {
	// One answer of common length must fit: more layers would buy speed with context.
	least := p.least(CommonContext)
	host := n - 1
	if p.devices[host].Dedicated {
		stages, left := p.fill(n, least)
		if left > 0 {
			return Plan{}, false, nil
		}
		// The layers are divided so that the cache becomes as large as is of use.
		more := sort.Search(int(max(0, p.most()-least)), func(more int) bool {
			_, left := p.fill(n, least+int64(more)+1)
			return left > 0
		})
		stages, _ = p.fill(n, least+int64(more))
		plan = p.plan(stages, least)
		plan.Reason = "no device has room for all of it: " + p.shares(stages)
		return plan, true, nil
	}
	for _, p.streams = range []bool{true, false} {
		if plan, fits := p.divideExperts(host, least); fits {
			return plan, true, nil
		}
	}
	if plan, fits := p.divideLayers(host, least); fits {
		return plan, true, nil
	}
	stages, left := p.fill(n-1, least)
	if left == p.layers() {
		return Plan{}, false, nil
	}
	d := p.devices[host]
	if total := p.with(p.need(d, 0, left), least) + spare(d); d.Memory > 0 && total > d.Memory {
		return Plan{}, false, &Error{fmt.Sprintf("where %s the others need %s of main memory, %s are free; %s",
			p.shares(stages), units.ByteSize(total), units.ByteSize(d.Memory), p.shorter())}
	}
	plan = p.plan(slices.Insert(slices.Clone(stages), 0, Stage{host, left}), least)
	plan.Reason = fmt.Sprintf("%s, which has no room for more; the others are on %s", p.shares(stages), d.Name)
	return plan, true, nil
}

// among plans the model for all of the first n devices, each with a share of the weights like its share of their memory. fits is false
// if there are too few layers, or a share does not fit.
func (p *placer) among(n int) (plan Plan, fits bool) {
	memory, layers := int64(0), p.devices[0].Parts.Layers
	for _, d := range p.devices[:n] {
		memory += d.Memory
	}
	if memory == 0 || len(layers) != p.layers() {
		return Plan{}, false
	}
	least, from, passed := p.least(CommonContext), 0, int64(0) // passed: the memory of the devices so far
	var stages []Stage
	for i, d := range p.devices[:n] {
		to := p.layers()
		if passed += d.Memory; i < n-1 {
			to = min(layersOf(layers, float64(passed)/float64(memory)), p.layers()-(n-1-i)) // the others get one at least
			if shared := p.model.Shared; shared > 0 {
				to = min(to, shared) // those after must not be parted
			}
		}
		if to <= from || p.room(d, p.need(d, from, to)) < least {
			return Plan{}, false
		}
		stages, from = append(stages, Stage{i, to - from}), to
	}
	plan = p.plan(stages, least)
	plan.Reason = "divided as requested: " + p.shares(stages)
	return plan, true
}

// layersOf returns how many of the first layers have a share of all bytes, rounded to whole layers.
func layersOf(layers []int64, share float64) int {
	want, done := share*float64(sum(layers)), int64(0)
	for i, bytes := range layers {
		if float64(done)+float64(bytes)/2 >= want {
			return i
		}
		done += bytes
	}
	return len(layers)
}

func sum(list []int64) (total int64) {
	for _, n := range list {
		total += n
	}
	return total
}

// divideExperts plans the model for the devices before host, which is main memory and gets the experts of as
// few of the first layers as possible. So no step reads the other weights and the KV cache from main memory.
// fits is false if the rest of the model does not fit, or the model has no such experts.
func (p *placer) divideExperts(host int, least int64) (plan Plan, fits bool) {
	defer func() { p.experts, p.streams = 0, false }()
	if p.devices[0].Parts.Experts == nil || p.streams && !p.canStream(host) {
		return Plan{}, false
	}
	p.experts = sort.Search(p.layers(), func(layers int) bool {
		p.experts = layers
		_, left := p.fill(host, least)
		return left == 0
	})
	stages, left := p.fill(host, least)
	d := p.devices[host]
	need := d.Scratch + spare(d) + p.expertBytes(d, 0, p.experts)
	if p.streams { // the pages of the file, which are copied for each step, stay in memory too
		need += p.expertBytes(p.devices[0], 0, p.experts)
	}
	if left > 0 || d.Memory > 0 && need > d.Memory {
		return Plan{}, false
	}
	plan = p.plan(stages, least)
	plan.Experts = Stage{host, p.experts}
	plan.Reason = fmt.Sprintf("the experts of %d of %d layers are on %s, because %s no room for them", p.experts, p.layers(), d.Name, p.have(stages))
	if plan.Stream = p.streams; p.streams {
		plan.Reason += "; for prompts they are copied to the GPU step by step"
	}
	return plan, true
}

// divideLayers plans the model for one device and host, which is main memory and gets the first layers, of which the device computes the
// feed-forward layers for prompts. fits is false if it cannot do that, or there is too little memory for it.
func (p *placer) divideLayers(host int, least int64) (plan Plan, fits bool) {
	defer func() { p.streams = false }()
	if p.streams = true; host != 1 || !p.canStream(host) {
		return Plan{}, false
	}
	stages, left := p.fill(host, least)
	if left == p.layers() || left == 0 || sum(p.devices[0].Parts.Parted[:left]) == 0 {
		return Plan{}, false
	}
	d := p.devices[host]
	total := p.with(p.need(d, 0, left), least) + spare(d) + sum(p.devices[0].Parts.Parted[:left]) // with the pages of the file that are copied for each step
	if d.Memory > 0 && total > d.Memory {
		return Plan{}, false
	}
	plan = p.plan(slices.Insert(slices.Clone(stages), 0, Stage{host, left}), least)
	plan.Stream = true
	plan.Reason = fmt.Sprintf("%s, which has no room for more; the others are on %s; for prompts their feed-forward layers are copied to the GPU step by step", p.shares(stages), d.Name)
	return plan, true
}

// canStream reports whether the devices before host can compute prompts with experts that are in main memory.
func (p *placer) canStream(host int) bool {
	return !slices.ContainsFunc(p.devices[:host], func(d Device) bool { return !d.Parts.Streams })
}

// have returns the devices of stages as the subject of a sentence, with its verb.
func (p *placer) have(stages []Stage) string {
	var names []string
	for _, s := range stages {
		names = append(names, p.devices[s.Device].Name)
	}
	if len(names) == 1 {
		return names[0] + " has"
	}
	return units.List(names) + " have"
}

// fill gives each of the first n devices, the last one first, as many of the last layers as fit
// alongside a cache of blocks blocks. left is the number of layers that remain.
func (p *placer) fill(n int, blocks int64) (stages []Stage, left int) {
	left = p.layers()
	for i := n - 1; i >= 0 && left > 0; i-- {
		d, from := p.devices[i], left
		for from > 0 && p.room(d, p.need(d, from-1, left)) >= blocks {
			from--
		}
		if shared := p.model.Shared; shared > 0 && from > shared && left > shared {
			from = left // part of what must not be parted
		}
		if from < left {
			stages = slices.Insert(stages, 0, Stage{i, left - from})
			left = from
		}
	}
	return stages, left
}

// shares describes how many layers are on which device.
func (p *placer) shares(stages []Stage) string {
	var parts []string
	for i, s := range stages {
		of := ""
		if i == 0 {
			of = fmt.Sprintf(" of %d layers", p.layers())
		}
		parts = append(parts, fmt.Sprintf("%d%s are on %s", s.Layers, of, p.devices[s.Device].Name))
	}
	return units.List(parts)
}

// free lists the first n devices with their free memory.
func (p *placer) free(n int) string {
	var parts []string
	for _, d := range p.devices[:n] {
		parts = append(parts, fmt.Sprintf("%s, where %s are free", d.Name, units.ByteSize(d.Memory)))
	}
	return units.List(parts)
}

// tooLarge returns the error of a model that does not fit on the first n devices.
func (p *placer) tooLarge(n int) error {
	d := p.devices[0]
	least := p.least(CommonContext)
	return &Error{fmt.Sprintf("the model needs %s with a context of %d, more than %d devices hold together: %s; %s",
		units.ByteSize(p.with(p.need(d, 0, p.layers()), least)), p.positions(least), n, p.free(n), p.shorter())}
}

func (p *placer) shorter() string {
	if p.limits.Context > shortestContext {
		return "use a smaller model or a shorter --ctx"
	}
	return "use a smaller model"
}

func blocksFor(positions int) int64 {
	return int64((positions + device.BlockSize - 1) / device.BlockSize)
}
