package infer

import (
	"fmt"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/sample"
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

	// spareMemory is what the KV cache leaves of main memory while it grows: the rest of the
	// program and other ones grow too, and Linux ends who takes the last of it.
	spareMemory = 64 << 20

	// growthStep is how much a KV cache grows by at least, so that the free memory is not
	// looked up for each block.
	growthStep = 64 << 20

	// unknownMemory is the room for the KV cache where a device cannot say how
	// much memory it has.
	unknownMemory = 2 << 30
)

// memoryPlan says what of a model goes to its device.
type memoryPlan struct {
	context int    // positions of one answer
	blocks  int    // of the KV cache, enough for one answer at least
	notice  string // why context is not what one expects, if so

	taken int64 // bytes of cache that are taken when the model is loaded
	block int64 // bytes of main memory that a block takes when it is first written
}

// planned returns the most that the KV cache may take.
func (p memoryPlan) planned() int64 { return p.used(p.blocks) }

// used returns what the KV cache takes once written blocks were in use.
func (p memoryPlan) used(written int) int64 { return p.taken + int64(written)*p.block }

// hold notes where the cache lies of a model that is on one device.
func (p *memoryPlan) hold(block int64, info device.Info) {
	if info.Dedicated {
		p.taken = int64(p.blocks) * block
	} else {
		p.block = block
	}
}

// Demand is what a model takes of a device's memory, in bytes.
type Demand struct {
	Weights int64
	Scratch int64 // activations, logits, what kernels and samplers work in: the same with any context
	Block   int64 // of the KV cache, for each 32 positions
}

// At returns what the model takes with room for one answer of context positions.
func (d Demand) At(context int) int64 { return d.Weights + d.Scratch + blocksFor(context)*d.Block }

// demandOf returns the demand of a model whose weights take weights bytes, with the
// workspace w.
func demandOf(c model.Config, weights int64, w workspace, cache gguf.Type, l limits) Demand {
	return Demand{
		Weights: weights,
		Scratch: scratchBytes(c, l) + w.fixed,
		Block:   c.KVLayout(cache, 1).BlockBytes() + w.block,
	}
}

// scratchBytes is what activations, logits and samplers take.
func scratchBytes(c model.Config, l limits) int64 {
	row := 4 * int64(c.Vocab) // that is copied from a device for a sampler
	return c.ScratchBytes(l.rows, l.logits) + sample.BufferBytes(c.Vocab) + row
}

// workspace is what a device needs to run a model beside weights, activations and cache, in
// bytes: the same with any cache, and more for each of its blocks.
type workspace struct{ fixed, block int64 }

func (l *loop) workspace(c model.Config, dev device.Device) workspace {
	const few, many = 64, 64 << 10 // blocks; in between, a device may round
	bytes := func(blocks int) int64 {
		return c.WorkBytes(dev, model.Options{CacheType: l.cache, Blocks: blocks, MaxRows: l.sched.limits.rows, MaxOut: l.sched.limits.logits})
	}
	least, most := bytes(few), bytes(many)
	block := (most - least + many - few - 1) / (many - few)
	return workspace{fixed: least, block: block}
}

// planMemory fits a model that demands d into the memory that info tells of. trained is the
// model's own context; wanted the one asked for, 0 for the model's own or as much of it as fits.
func planMemory(trained int, d Demand, info device.Info, wanted int, l limits) (memoryPlan, error) {
	free := info.Memory
	context := trained
	if wanted > 0 {
		context = min(wanted, trained)
	}
	spare := int64(spareMemory)
	room := (free - d.At(0) - spare) / 2 // the other half is for other programs
	if info.Dedicated {
		spare, room = 0, (free-d.At(0))/8*7 // the rest is for what the device needs beside
	}
	if free == 0 {
		room = unknownMemory
	}
	least := min(context, shortestContext)
	if wanted > 0 {
		least = context
	}
	if need := d.At(least) + spare; free > 0 && need > free {
		return memoryPlan{}, errorf(CodeMemory,
			"the model needs %s (weights %s, KV cache for %d positions %s, scratch and reserve %s), %s are free; use a smaller model%s",
			units.ByteSize(need), units.ByteSize(d.Weights), least, units.ByteSize(d.At(least)-d.At(0)), units.ByteSize(d.Scratch+spare), units.ByteSize(free),
			shorter(wanted))
	}
	blocks := max(blocksFor(context), blocksFor(min(context, commonContext))*int64(l.sequences))
	blocks = max(blocksFor(least), min(room/d.Block, blocks))
	p := memoryPlan{context: min(context, int(blocks)*device.BlockSize), blocks: int(blocks)}
	switch {
	case p.context < context:
		p.notice = fmt.Sprintf("the context is %d tokens instead of the model's %d, which is what the memory allows", p.context, context)
	case wanted > context:
		p.notice = fmt.Sprintf("the context is %d tokens: the model was not trained on more", context)
	}
	return p, nil
}

// planSplit divides a model that is too large for dev: as many of its last layers as fit
// go there, with the output layer, the first ones to host. gpu and cpu are what its parts
// take on dev and host, w is the workspace on dev. layers is 0 if not even one fits.
func planSplit(c model.Config, gpu, cpu model.Parts, w workspace, dev, host device.Info, cache gguf.Type, wanted int, l limits) (layers int, plan memoryPlan, err error) {
	scratch := scratchBytes(c, l)
	context := c.ContextLength
	if wanted > 0 {
		context = min(wanted, c.ContextLength)
	}
	// One answer of common length must find room: more layers would buy speed with context.
	least := min(context, commonContext)
	if wanted > 0 {
		least = context
	}
	block := c.KVLayout(cache, 1).BlockBytes() / int64(len(c.Layers)) // of one layer
	onDev, onHost := gpu.Output+scratch+w.fixed, cpu.Embedding+scratch
	for _, n := range cpu.Layers {
		onHost += n
	}
	for n := 1; n < len(c.Layers); n++ {
		onDev += gpu.Layers[len(c.Layers)-n]
		room := (dev.Memory - onDev) / 8 * 7 / (block*int64(n) + w.block)
		if room < blocksFor(least) {
			break
		}
		layers = n
		onHost -= cpu.Layers[len(c.Layers)-n]
		plan.blocks = int(room)
	}
	if layers == 0 {
		return 0, plan, nil
	}
	if host.Memory > 0 {
		onHost += spareMemory
		need := onHost + blocksFor(least)*block*int64(len(c.Layers)-layers)
		if need > host.Memory {
			return 0, plan, errorf(CodeMemory, "with %d of %d layers on %s the others need %s of main memory, %s are free; use a smaller model%s",
				layers, len(c.Layers), dev.Name, units.ByteSize(need), units.ByteSize(host.Memory), shorter(wanted))
		}
		plan.blocks = min(plan.blocks, int((host.Memory-onHost)/(block*int64(len(c.Layers)-layers))))
	}
	plan.blocks = min(plan.blocks, int(max(blocksFor(context), blocksFor(min(context, commonContext))*int64(l.sequences))))
	plan.taken = int64(plan.blocks) * block * int64(layers)
	plan.block = block * int64(len(c.Layers)-layers)
	plan.context = min(context, plan.blocks*device.BlockSize)
	if plan.context < context {
		plan.notice = fmt.Sprintf("the context is %d tokens instead of the model's %d, which is what the memory allows", plan.context, context)
	}
	return layers, plan, nil
}

func blocksFor(positions int) int64 {
	return int64((positions + device.BlockSize - 1) / device.BlockSize)
}

func shorter(wanted int) string {
	if wanted > shortestContext {
		return " or a shorter --ctx"
	}
	return ""
}
