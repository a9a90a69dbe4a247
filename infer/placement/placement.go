// Package placement decides which layers of a model go to which device, and how large its KV
// cache and context become. [Place] is a pure function of sizes: nothing is opened, allocated
// or measured here.
package placement

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/model"
	"m40-llm/infer/units"
)

const (
	// shortestContext is the least that a context is shortened to when nobody
	// asked for a length: below it, a model is better refused.
	shortestContext = 512

	// commonContext is what an answer is expected to use. The KV cache has room for
	// as many such answers as may run at once, or for one that uses the whole
	// context, where that is more.
	commonContext = 8192

	// Spare is what the KV cache leaves of main memory while it grows: the rest of the
	// program and other ones grow too, and Linux ends who takes the last of it.
	Spare = 64 << 20

	// unknownMemory is the room for the KV cache where a device cannot say how
	// much memory it has.
	unknownMemory = 2 << 30
)

// Model is what of a model decides how much memory it takes beside its weights.
type Model struct {
	Context int     // positions it was trained on
	Cache   []int64 // bytes of a KV block in each layer
}

// Device is a device with what a model takes of its memory, in bytes.
type Device struct {
	device.Info
	Weights int64       // all weights
	Parts   model.Parts // parts of them
	Scratch int64       // activations, logits, what kernels and samplers work in: the same with any context
	Block   int64       // what kernels work in for each block of the KV cache
}

// Limits are what an engine is asked to make room for.
type Limits struct {
	Context int // of one answer, in positions; 0: the model's own or as much of it as fits
	Answers int // at once
}

// Plan says which part of a model goes where.
type Plan struct {
	Stages  []Stage
	Context int    // positions of one answer
	Blocks  int    // of the KV cache, enough for one answer at least
	Taken   int64  // bytes of cache that are taken when the model is loaded
	Block   int64  // bytes of main memory that a block takes when it is first written
	Notice  string // why Context is not what one expects, if so
	Reason  string // why the model is not on the first device alone, if so
}

// Stage is a run of layers on one device, behind those of the stages before it. The first one
// has the embedding table too, the last one the output layer.
type Stage struct{ Device, Layers int }

// Planned returns the most bytes that the KV cache may take.
func (p Plan) Planned() int64 { return p.Used(p.Blocks) }

// Used returns the bytes that the KV cache takes once written blocks were in use.
func (p Plan) Used(written int) int64 { return p.Taken + int64(written)*p.Block }

// Error is the reason why a model fits nowhere, with the sizes and what to do.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

// Place plans a model for devices, which are in order of preference: those with a memory of
// their own first, then at most one that computes in main memory. The fewest of the first that
// hold the model get it; if they are too small even together, main memory takes the first
// layers, or all. The error is an *Error.
func Place(m Model, devices []Device, l Limits) (Plan, error) {
	p := &placer{model: m, devices: devices, context: m.Context, limits: l}
	if l.Context > 0 {
		p.context = min(l.Context, m.Context)
	}
	var err error = &Error{"there is no device to compute on"}
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

// placer is a call of Place.
type placer struct {
	model   Model
	devices []Device
	limits  Limits
	context int // that is wanted
}

func (p *placer) layers() int { return len(p.model.Cache) }

// least returns the blocks that one answer must find room for, where nobody asked for a
// context one of at most automatic positions.
func (p *placer) least(automatic int) int64 {
	if p.limits.Context > 0 {
		return blocksFor(p.context)
	}
	return blocksFor(min(p.context, automatic))
}

// most returns the blocks that are of use.
func (p *placer) most() int64 {
	return max(blocksFor(p.context), blocksFor(min(p.context, commonContext))*int64(p.limits.Answers))
}

// need is what layers take of a device's memory: the same with any cache, and for each block.
type need struct{ fixed, block int64 }

func (n need) with(blocks int64) int64 { return n.fixed + blocks*n.block }

// need returns what layers from to to-1 take of d. The ends of the model bring their parts.
func (p *placer) need(d Device, from, to int) need {
	n := need{fixed: d.Weights + d.Scratch, block: d.Block}
	for _, bytes := range p.model.Cache[from:to] {
		n.block += bytes
	}
	if from == 0 && to == p.layers() {
		return n
	}
	n.fixed = d.Scratch
	for _, bytes := range d.Parts.Layers[from:to] {
		n.fixed += bytes
	}
	if from == 0 {
		n.fixed += d.Parts.Embedding
	}
	if to == p.layers() {
		n.fixed += d.Parts.Output
	}
	return n
}

// spare returns what has to stay free of d.
func spare(d Device) int64 {
	if d.Dedicated {
		return 0
	}
	return Spare
}

// room returns how many blocks d has room for beside n without being filled up: the other
// half of main memory is for other programs, an eighth of a device's own for what it needs
// beside.
func room(d Device, n need) int64 {
	free := d.Memory - n.fixed - spare(d)
	switch {
	case d.Memory == 0:
		free = unknownMemory
	case d.Dedicated:
		free = free / 8 * 7
	default:
		free /= 2
	}
	return free / n.block
}

// whole plans the model for device i alone.
func (p *placer) whole(i int) (Plan, error) {
	d := p.devices[i]
	n, least := p.need(d, 0, p.layers()), p.least(shortestContext)
	if total := n.with(least) + spare(d); d.Memory > 0 && total > d.Memory {
		return Plan{}, &Error{fmt.Sprintf("the model needs %s (weights %s, KV cache for %d positions %s, scratch and reserve %s), %s are free; use a smaller model%s",
			units.ByteSize(total), units.ByteSize(d.Weights), p.positions(least), units.ByteSize(least*n.block), units.ByteSize(d.Scratch+spare(d)), units.ByteSize(d.Memory), p.shorter())}
	}
	plan := p.plan([]Stage{{i, p.layers()}}, least)
	if i > 0 && !d.Dedicated {
		plan.Reason = fmt.Sprintf("not the GPU: not one layer of the model fits on %s", p.free(i))
	}
	return plan, nil
}

// positions returns the context that least blocks were counted for.
func (p *placer) positions(least int64) int { return min(p.context, int(least)*device.BlockSize) }

// plan completes a plan: blocks is the least number of blocks.
func (p *placer) plan(stages []Stage, blocks int64) Plan {
	plan := Plan{Stages: stages}
	most, at := p.most(), 0
	for _, s := range stages {
		d := p.devices[s.Device]
		most = min(most, room(d, p.need(d, at, at+s.Layers)))
		at += s.Layers
	}
	plan.Blocks = int(max(blocks, most))
	plan.Context = min(p.context, plan.Blocks*device.BlockSize)
	at = 0
	for _, s := range stages {
		cache := int64(0)
		for _, bytes := range p.model.Cache[at : at+s.Layers] {
			cache += bytes
		}
		if p.devices[s.Device].Dedicated {
			plan.Taken += int64(plan.Blocks) * cache
		} else {
			plan.Block += cache
		}
		at += s.Layers
	}
	switch {
	case plan.Context < p.context:
		plan.Notice = fmt.Sprintf("the context is %d tokens instead of the model's %d, which is what the memory allows", plan.Context, p.context)
	case p.limits.Context > p.context:
		plan.Notice = fmt.Sprintf("the context is %d tokens: the model was not trained on more", p.context)
	}
	return plan
}

// divide plans the model for the first n devices together; fits is false if they have no room
// for it. Where the last of them is main memory, it gets the layers that no other has room for;
// then fits is false if that is all of them, and the error says what it lacks.
func (p *placer) divide(n int) (plan Plan, fits bool, err error) {
	// One answer of common length must find room: more layers would buy speed with context.
	least := p.least(commonContext)
	host := n - 1
	if p.devices[host].Dedicated {
		stages, left := p.fill(n, least)
		if left > 0 {
			return Plan{}, false, nil
		}
		// The layers are divided so that the cache becomes as large as it can be of use.
		more := sort.Search(int(max(0, p.most()-least)), func(more int) bool {
			_, left := p.fill(n, least+int64(more)+1)
			return left > 0
		})
		stages, _ = p.fill(n, least+int64(more))
		plan = p.plan(stages, least)
		plan.Reason = "no device has room for all of it: " + p.shares(stages)
		return plan, true, nil
	}
	stages, left := p.fill(n-1, least)
	if left == p.layers() {
		return Plan{}, false, nil
	}
	d := p.devices[host]
	if total := p.need(d, 0, left).with(least) + spare(d); d.Memory > 0 && total > d.Memory {
		return Plan{}, false, &Error{fmt.Sprintf("where %s the others need %s of main memory, %s are free; use a smaller model%s",
			p.shares(stages), units.ByteSize(total), units.ByteSize(d.Memory), p.shorter())}
	}
	plan = p.plan(slices.Insert(slices.Clone(stages), 0, Stage{host, left}), least)
	plan.Reason = fmt.Sprintf("%s, which has no room for more; the others are on %s", p.shares(stages), d.Name)
	return plan, true, nil
}

// fill gives each of the first n devices, the last one first, as many of the last layers as it
// has room for with a cache of blocks blocks. left is the number of layers that remain.
func (p *placer) fill(n int, blocks int64) (stages []Stage, left int) {
	left = p.layers()
	for i := n - 1; i >= 0 && left > 0; i-- {
		d, from := p.devices[i], left
		for from > 0 && room(d, p.need(d, from-1, left)) >= blocks {
			from--
		}
		if from < left {
			stages = slices.Insert(stages, 0, Stage{i, left - from})
			left = from
		}
	}
	return stages, left
}

// shares says how many layers are on which device.
func (p *placer) shares(stages []Stage) string {
	var parts []string
	for i, s := range stages {
		of := ""
		if i == 0 {
			of = fmt.Sprintf(" of %d layers", p.layers())
		}
		parts = append(parts, fmt.Sprintf("%d%s are on %s", s.Layers, of, p.devices[s.Device].Name))
	}
	return join(parts)
}

// free lists the first n devices with their free memory.
func (p *placer) free(n int) string {
	var parts []string
	for _, d := range p.devices[:n] {
		parts = append(parts, fmt.Sprintf("%s, where %s are free", d.Name, units.ByteSize(d.Memory)))
	}
	return join(parts)
}

// tooLarge is the error of a model that the first n devices have no room for.
func (p *placer) tooLarge(n int) error {
	d := p.devices[0]
	least := p.least(commonContext)
	return &Error{fmt.Sprintf("the model needs %s with a context of %d, more than %d devices hold together: %s; use a smaller model%s",
		units.ByteSize(p.need(d, 0, p.layers()).with(least)), p.positions(least), n, p.free(n), p.shorter())}
}

func (p *placer) shorter() string {
	if p.limits.Context > shortestContext {
		return " or a shorter --ctx"
	}
	return ""
}

func join(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

func blocksFor(positions int) int64 {
	return int64((positions + device.BlockSize - 1) / device.BlockSize)
}
