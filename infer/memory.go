package infer

import (
	"fmt"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
)

const (
	// shortestContext is the least that a context is shortened to when nobody
	// asked for a length: below it, a model is better refused.
	shortestContext = 512

	// commonContext is what an answer is expected to use. The KV cache has room for
	// as many such answers as may run at once, or for one that uses the whole
	// context, where that is more.
	commonContext = 8192

	// unknownMemory is the room for the KV cache where a device cannot say how
	// much memory it has.
	unknownMemory = 2 << 30
)

// memoryPlan says what of a model goes to its device.
type memoryPlan struct {
	context int    // positions of one answer
	blocks  int    // of the KV cache, enough for one answer at least
	notice  string // why context is not what one expects, if so
}

// planMemory fits a model whose weights take weights bytes into the memory that info
// tells of. wanted is the context length asked for, 0 for the model's own or as much of it
// as fits.
func planMemory(c model.Config, weights int64, info device.Info, cache gguf.Type, wanted int, l limits) (memoryPlan, error) {
	free := info.Memory
	scratch := c.ScratchBytes(l.rows, l.logits)
	block := c.KVLayout(cache, 1).BlockBytes()
	context := c.ContextLength
	if wanted > 0 {
		context = min(wanted, c.ContextLength)
	}

	room := (free - weights - scratch) / 2 // the other half is for other programs
	if info.Dedicated {
		room = (free - weights - scratch) / 8 * 7 // the rest is for what the device needs beside
	}
	if free == 0 {
		room = unknownMemory
	}
	least := min(context, shortestContext)
	if wanted > 0 {
		least = context
	}
	if need := blocksFor(least) * block; free > 0 && weights+scratch+need > free {
		return memoryPlan{}, errorf(CodeMemory,
			"the model needs %s (weights %s, KV cache for %d positions %s, scratch %s), %s are free; use a smaller model%s",
			gigabytes(weights+scratch+need), gigabytes(weights), least, gigabytes(need), gigabytes(scratch), gigabytes(free),
			shorter(wanted))
	}
	blocks := max(blocksFor(context), blocksFor(min(context, commonContext))*int64(l.sequences))
	blocks = max(blocksFor(least), min(room/block, blocks))
	p := memoryPlan{context: min(context, int(blocks)*device.BlockSize), blocks: int(blocks)}
	switch {
	case p.context < context:
		p.notice = fmt.Sprintf("the context is %d tokens instead of the model's %d, which is what the memory allows", p.context, context)
	case wanted > context:
		p.notice = fmt.Sprintf("the context is %d tokens: the model was not trained on more", context)
	}
	return p, nil
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

func gigabytes(n int64) string {
	switch {
	case n < 1e6:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}
