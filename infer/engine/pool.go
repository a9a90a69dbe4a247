package engine

// pool allocates the blocks of one cache group. The device owns the memory itself.
//
// A block is in one of three states. In use: one sequence refers to it, or several if it is
// complete. Idle: none does, and its contents stay until the space is needed, least recently
// used first. Free: it holds nothing that can be reused.
//
// Blocks from fresh on were never in use. A device that allocates a block when it is first
// written has memory for those before, except for the released ones, whose memory it gave back.
type pool struct {
	group    int
	window   int // positions that a row reads, its own included; 0: all
	all      []block
	free     []int32         // those before fresh
	fresh    int             // blocks that were in use once
	released []int32         // those before fresh whose memory was given back
	granted  int             // blocks that memory was granted for
	limit    int             // blocks that may ever be granted: all, or those granted when memory was last refused
	grant    func(n int) int // if set, returns how many blocks of n more are granted, or more than n
	written  int             // blocks that were written and not released since
	idle     int             // idle blocks, in the ring through all[len(all)-1]

	reserved int // blocks that tables may still take; see heldBlocks
}

type block struct {
	refs       int
	written    bool
	content    *content // nil unless complete
	tail       *tail    // of an idle, partly filled block
	prev, next int32    // ring of idle blocks
}

func newPool(group int, g groupSize) *pool {
	p := &pool{
		group:   group,
		window:  g.window,
		all:     make([]block, g.blocks+1), // the last one only closes the ring
		granted: g.blocks,
		limit:   g.blocks,
	}
	ring := int32(g.blocks)
	p.all[ring].prev, p.all[ring].next = ring, ring
	return p
}

// growBy makes p call grant before blocks are used for the first time.
func (p *pool) growBy(grant func(n int) int) { p.granted, p.grant = p.backed(), grant }

// backed returns how many blocks the device has memory for, or will have when they are written.
func (p *pool) backed() int { return p.fresh - len(p.released) }

// count returns how many blocks there are.
func (p *pool) count() int { return len(p.all) - 1 }

// available returns how many blocks could be taken without more memory, apart from those that are reserved.
func (p *pool) available() int { return len(p.free) + p.granted - p.backed() + p.idle - p.reserved }

// reserve reserves a block for h.
func (p *pool) reserve(h *heldBlocks) { h.reserved, p.reserved = h.reserved+1, p.reserved+1 }

// unreserve ends the reservation of a block for h, if it has one.
func (p *pool) unreserve(h *heldBlocks) {
	if h.reserved > 0 {
		h.reserved, p.reserved = h.reserved-1, p.reserved-1
	}
}

// askFor calls grant if fewer than n blocks are free or granted.
func (p *pool) askFor(n int) {
	more := min(p.backed()+n-len(p.free), p.count()) - p.granted
	if more <= 0 {
		return
	}
	got := more
	if p.grant != nil {
		got = p.grant(more)
	}
	p.granted = min(p.granted+got, p.count())
	if p.limit = p.count(); got < more {
		p.limit = p.granted
	}
}

// hasSpare reports whether half of the blocks could still be taken after n more were.
func (p *pool) hasSpare(n int) bool {
	return len(p.free)+p.limit-p.backed()+p.idle-p.reserved-n >= p.limit/2
}

// needs returns the first position that rows from position pos on read.
func (p *pool) needs(pos int) int {
	if p.window == 0 {
		return 0
	}
	return max(0, pos-p.window+1)
}

// takeUnused takes a block that holds nothing.
func (p *pool) takeUnused() (int32, bool) {
	if n := len(p.free); n > 0 {
		id := p.free[n-1]
		p.free = p.free[:n-1]
		p.all[id].refs = 1
		return id, true
	}
	if p.askFor(1); p.backed() < p.granted {
		id := int32(p.fresh)
		if n := len(p.released); n > 0 {
			id = p.released[n-1]
			p.released = p.released[:n-1]
		} else {
			p.fresh++
		}
		p.all[id].refs = 1
		return id, true
	}
	return 0, false
}

func (p *pool) retain(id int32) {
	x := &p.all[id]
	if x.refs == 0 {
		p.unlink(id)
	}
	x.refs++
}

// unlink takes an idle block out of the ring.
func (p *pool) unlink(id int32) {
	x := &p.all[id]
	p.all[x.prev].next, p.all[x.next].prev = x.next, x.prev
	p.idle--
}

func (p *pool) release(id int32) {
	x := &p.all[id]
	if x.refs--; x.refs > 0 {
		return
	}
	if x.content == nil && x.tail == nil {
		p.free = append(p.free, id)
		return
	}
	ring := int32(len(p.all) - 1)
	x.prev, x.next = p.all[ring].prev, ring
	p.all[x.prev].next, p.all[ring].prev = id, id
	p.idle++
}

// emptied frees a block whose contents were dropped, if no sequence uses it.
func (p *pool) emptied(id int32) {
	if p.all[id].refs == 0 {
		p.unlink(id)
		p.free = append(p.free, id)
	}
}

// unused returns how many written blocks no sequence uses.
func (p *pool) unused() (n int) {
	n = p.idle
	for _, id := range p.free {
		if p.all[id].written {
			n++
		}
	}
	return n
}

// releaseFree makes a free block a released one. There must be one.
func (p *pool) releaseFree() (id int32, written bool) {
	last := len(p.free) - 1
	id = p.free[last]
	p.free, p.released = p.free[:last], append(p.released, id)
	p.granted--
	if written = p.all[id].written; written {
		p.all[id].written = false
		p.written--
	}
	return id, written
}
