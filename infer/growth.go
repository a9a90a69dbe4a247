package infer

import "m40-llm/infer/units"

// growth decides how far a KV cache in main memory may grow. Linux hands out memory that it
// does not have and ends the process that uses it, so what is free is looked up before.
type growth struct {
	free    func() int64 // bytes that can be taken now, 0: unknown; nil: always unknown
	plan    memoryPlan
	refused bool  // in this turn, in which nothing changes any more
	left    int64 // bytes that the cache could take when growth was last refused
}

// grant returns how many blocks there is memory for, n or a few more, or fewer if there is
// too little. promised is the number of those granted before that were not written yet.
func (g *growth) grant(n, promised int) int {
	more := max(n, growthStep/int(max(g.plan.block, 1)))
	if g.plan.block == 0 || g.free == nil {
		return more
	}
	if g.refused {
		return 0
	}
	free := g.free()
	if free == 0 {
		return more
	}
	left := max(0, free-spareMemory-int64(promised)*g.plan.block)
	if most := left / g.plan.block; most < int64(more) {
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
	b, block := l.sched.blocks, l.resident.plan.block
	tokens := len(q.tokens)
	need := int64(b.blocksFor(tokens)-len(q.table.ids)-b.available()) * block
	err := errorf(CodeMemory, "%d tokens need %s more for the KV cache, and %s of memory are free for it; close other programs, make the conversation shorter, or use a smaller model",
		tokens, units.ByteSize(need), units.ByteSize(l.resident.growth.left))
	l.options.Logger.Warn("answer ended: no memory", "tokens", tokens, "needed", need, "free", l.resident.growth.left, "cache", l.resident.plan.used(b.written))
	l.end(q.answer, err, true)
}
