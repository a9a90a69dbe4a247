package engine

import (
	"m40-llm/infer"
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
	err := infer.Errorf(infer.CodeMemory, "%d tokens need %s more for the KV cache, and %s of memory are free for it; close other programs, make the conversation shorter, or use a smaller model",
		tokens, units.ByteSize(need), units.ByteSize(l.loaded.growth.left))
	l.options.Logger.Warn("answer ended: no memory", "tokens", tokens, "needed", need, "free", l.loaded.growth.left, "cache", plan.Used(b.written()...))
	l.end(l.answers[q], err, true)
}
