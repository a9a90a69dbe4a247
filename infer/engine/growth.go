package engine

import (
	"m40-llm/infer"
	"m40-llm/infer/placement"
	"m40-llm/infer/units"
)

// growthStep is how much a KV cache grows by at least, so that the free memory is not
// looked up for each block.
const growthStep = 64 << 20

// growth decides how far a KV cache in main memory may grow. Linux hands out memory that it
// does not have and ends the process that uses it, so what is free is looked up before.
type growth struct {
	free    func() int64 // bytes that can be taken now, 0: unknown; nil: always unknown
	plan    placement.Plan
	refused bool  // in this turn, in which nothing changes any more
	left    int64 // bytes that the cache could take when growth was last refused
}

// grant returns how many blocks there is memory for, n or a few more, or fewer if there is
// too little. promised is the number of those granted before that were not written yet.
func (g *growth) grant(n, promised int) int {
	more := max(n, growthStep/int(max(g.plan.Block, 1)))
	if g.plan.Block == 0 || g.free == nil {
		return more
	}
	if g.refused {
		return 0
	}
	free := g.free()
	if free == 0 {
		return more
	}
	left := max(0, free-placement.Spare-int64(promised)*g.plan.Block)
	if most := left / g.plan.Block; most < int64(more) {
		more = int(most)
	}
	if more < n {
		g.refused, g.left = true, left
	}
	return more
}

// endStarved ends the answer whose turn it is, if memory lacks for it even alone.
func (l *loop) endStarved() {
	q := l.sched.starved()
	if q == nil {
		return
	}
	b, block := l.sched.blocks, l.resident.plan.Block
	tokens := len(q.tokens)
	need := int64(b.blocksFor(tokens)-len(q.table.ids)-b.available()) * block
	err := infer.Errorf(infer.CodeMemory, "%d tokens need %s more for the KV cache, and %s of memory are free for it; close other programs, make the conversation shorter, or use a smaller model",
		tokens, units.ByteSize(need), units.ByteSize(l.resident.growth.left))
	l.options.Logger.Warn("answer ended: no memory", "tokens", tokens, "needed", need, "free", l.resident.growth.left, "cache", l.resident.plan.Used(b.written))
	l.end(l.answers[q], err, true)
}
