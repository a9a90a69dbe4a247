package engine

import (
	"math"
	"time"

	"m40-llm/infer/fault"
	"m40-llm/infer/placement"
	"m40-llm/infer/units"
)

// growthStep is the least by which a KV cache grows, in bytes, so that free memory is not queried
// for each block.
const growthStep = 64 << 20

// growth decides how far a KV cache in main memory may grow. Linux grants memory that it does not
// have and kills the process that writes to it, so free memory is queried before.
type growth struct {
	free    func() int64 // free bytes, 0: unknown; nil: always unknown
	refused bool         // in this iteration of the loop: no memory becomes free before the next
	left    int64        // free bytes for the cache when growth was last refused
}

// grant returns for how many more blocks of block bytes there is memory: n or a few more, or fewer if
// memory is short. promised are the bytes of all blocks granted before and not written yet.
func (g *growth) grant(n int, block, promised int64) int {
	more := max(n, growthStep/int(max(block, 1)))
	if block == 0 || g.free == nil {
		return more
	}
	if g.refused {
		return 0
	}
	free := g.free()
	if free == 0 {
		return more
	}
	left := max(0, free-placement.Spare-promised)
	if most := left / block; most < int64(more) {
		more = int(most)
	}
	if more < n {
		g.refused, g.left = true, left
	}
	return more
}

// shrinkEvery is how often the engine looks whether a KV cache has to shrink.
const shrinkEvery = 2 * time.Second

// excess returns how many of unused bytes, which hold prompts that no answer needs, are to be given back: the cache takes
// as much of them as stays free next to it, as it is planned, and nothing of what growth leaves to others.
func (g *growth) excess(unused, missing int64) int64 {
	if unused == 0 || g.free == nil {
		return 0
	}
	free := g.free()
	if free == 0 {
		return 0
	}
	free = max(0, free-missing)
	more := (unused - free) / 2
	if more < growthStep {
		more = 0 // free memory varies by that much all the time
	}
	return min(unused, max(more, placement.Spare-free))
}

// shrinkCache gives the memory of prompts that no answer needs back if others need it. No step may be in progress.
func (l *loop) shrinkCache() error {
	l.shrunk = l.options.Now()
	r, b := l.loaded, l.sched.blocks
	unused := int64(0)
	for g, p := range b.pools {
		unused += int64(p.unused()) * r.plan.Groups[g].Block
	}
	excess := r.growth.excess(unused, r.packing.missing)
	if excess == 0 {
		return nil
	}
	share, before := float64(excess)/float64(unused), r.plan.Used(b.written()...)
	for g, p := range b.pools {
		if r.plan.Groups[g].Block == 0 {
			continue
		}
		for _, id := range b.shrink(g, int(math.Ceil(share*float64(p.unused())))) {
			if err := r.forward.ReleaseBlock(g, id); err != nil {
				return err
			}
		}
	}
	used := r.plan.Used(b.written()...)
	l.status.setCacheUsed(used)
	l.options.Logger.Info("KV cache shrunk: memory is short", "released", before-used, "used", used)
	return nil
}

// unusedCache reports whether the KV cache has memory that shrinkCache could give back.
func (l *loop) unusedCache() bool {
	if l.loaded == nil || l.options.FreeMemory == nil {
		return false
	}
	for g, p := range l.sched.blocks.pools {
		if l.loaded.plan.Groups[g].Block > 0 && p.unused() > 0 {
			return true
		}
	}
	return false
}

// endStarved ends the next answer if there is too little memory for it even alone.
func (l *loop) endStarved() {
	q := l.sched.starved()
	if q == nil {
		return
	}
	b, plan := l.sched.blocks, l.loaded.plan
	tokens, need := len(q.tokens), int64(0)
	for i, p := range b.pools {
		missing := b.holds(p, tokens) - p.available()
		if !q.table.empty() {
			missing -= q.table.groups[i].count()
		}
		need += int64(max(0, missing)) * plan.Groups[i].Block
	}
	err := fault.Errorf(fault.CodeMemory, "%d tokens need %s more for the KV cache, and %s of memory are free for it; close other programs, make the conversation shorter, or use a smaller model",
		tokens, units.ByteSize(need), units.ByteSize(l.loaded.growth.left))
	l.options.Logger.Warn("answer ended: no memory", "tokens", tokens, "needed", need, "free", l.loaded.growth.left, "cache", plan.Used(b.written()...))
	l.end(l.answers[q], err, true)
}
