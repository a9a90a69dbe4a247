package engine

import (
	"encoding/binary"
	"slices"
)

// blocks shares out the blocks of a paged KV cache and remembers what each one
// holds, so that a sequence that starts like an earlier one starts with its work.
// It only keeps the books: the memory itself belongs to the device.
//
// A block is in one of three states. In use: sequences refer to it, several to one
// that is complete. Idle: nobody does, but its contents are kept until the space
// is needed, oldest first. Free: nothing in it is worth keeping.
//
// Blocks from fresh on were never in use. Where the device takes memory for a block when it
// is first written, this is how far the cache has grown.
type blocks struct {
	size     int // positions in a block
	all      []block
	free     []int32               // those before fresh
	fresh    int                   // blocks that were in use once
	granted  int                   // blocks that may be in use: there is memory for them
	limit    int                   // blocks that may come to be in use: all, or those granted when memory was last refused
	grant    func(n int) int       // if set, is asked for n more blocks and returns how many there may be, which may be more
	written  int                   // blocks whose memory is taken
	idle     int                   // idle blocks, in the ring through all[len(all)-1]
	complete map[contentKey]int32  // complete blocks by what they hold
	tails    map[contentID][]int32 // idle blocks that are partly filled, by the content before them
	last     contentID             // the youngest content
}

// contentID names what a complete block holds together with everything before
// it. It is never given twice; 0 is the empty prefix.
type contentID uint64

// contentKey finds a complete block: map equality compares all its tokens, and,
// through before, all tokens in front of it.
type contentKey struct {
	before contentID
	tokens string // little-endian, 4 bytes a token
}

type block struct {
	refs       int
	written    bool
	content    contentID  // 0 unless complete and found through blocks.complete
	key        contentKey // of content
	tail       []int32    // tokens of an idle, partly filled block
	before     contentID  // content in front of tail
	prev, next int32      // ring of idle blocks
}

// blockTable is the KV memory of one sequence: ids[i] holds its positions from
// i·size on.
type blockTable struct {
	ids      []int32
	complete int       // leading blocks that are in blocks.complete
	content  contentID // of the last of them
}

func newBlocks(count, size int) *blocks {
	b := &blocks{
		size:     size,
		all:      make([]block, count+1), // the last one only closes the ring
		granted:  count,
		limit:    count,
		complete: map[contentKey]int32{},
		tails:    map[contentID][]int32{},
	}
	ring := int32(count)
	b.all[ring].prev, b.all[ring].next = ring, ring
	return b
}

// growBy makes b ask grant for memory before blocks are used for the first time.
func (b *blocks) growBy(grant func(n int) int) { b.granted, b.grant = b.fresh, grant }

// count returns how many blocks there are.
func (b *blocks) count() int { return len(b.all) - 1 }

// available returns how many blocks could be taken without more memory.
func (b *blocks) available() int { return len(b.free) + b.granted - b.fresh + b.idle }

// reserve asks for memory, if n blocks cannot be taken that hold nothing.
func (b *blocks) reserve(n int) {
	more := min(b.fresh+n-len(b.free), b.count()) - b.granted
	if more <= 0 {
		return
	}
	got := more
	if b.grant != nil {
		got = b.grant(more)
	}
	b.granted = min(b.granted+got, b.count())
	if b.limit = b.count(); got < more {
		b.limit = b.granted
	}
}

// hasSpare reports whether half of all blocks could still be taken after n more were.
func (b *blocks) hasSpare(n int) bool {
	return len(b.free)+b.limit-b.fresh+b.idle-n >= b.limit/2
}

// write notes that positions from to to-1 of t are written.
func (b *blocks) write(t *blockTable, from, to int) {
	for i := from / b.size; i*b.size < to; i++ {
		if x := &b.all[t.ids[i]]; !x.written {
			x.written = true
			b.written++
		}
	}
}

// blocksFor returns how many blocks n positions take.
func (b *blocks) blocksFor(n int) int { return (n + b.size - 1) / b.size }

// open gives a sequence room for all of tokens, and with it what the cache knows
// of tokens[:reusable]. cached is the number of positions that need no work.
// reusable must be less than len(tokens). Either everything fits or nothing is
// taken and ok is false.
func (b *blocks) open(tokens []int32, reusable int) (t blockTable, cached int, ok bool) {
	t = b.match(tokens[:reusable])
	missing := b.blocksFor(len(tokens)) - len(t.ids)
	revived := 0
	for _, id := range t.ids {
		if b.all[id].refs == 0 {
			revived++
		}
	}
	b.reserve(missing)
	if missing > b.available()-revived {
		return blockTable{}, 0, false
	}
	for _, id := range t.ids {
		b.retain(id)
	}
	cached = len(t.ids) * b.size
	if id, n := b.takeTail(t.content, tokens[cached:reusable]); n > 0 {
		t.ids = append(t.ids, id)
		cached += n
	}
	return t, cached, b.grow(&t, len(tokens))
}

// cachedBlocks returns how many complete blocks of tokens are known.
func (b *blocks) cachedBlocks(tokens []int32) int { return len(b.match(tokens).ids) }

// match finds the longest run of complete blocks that spells the start of tokens.
func (b *blocks) match(tokens []int32) blockTable {
	var t blockTable
	for len(tokens) >= b.size {
		id, ok := b.complete[contentKey{t.content, spell(tokens[:b.size])}]
		if !ok {
			break
		}
		t.ids = append(t.ids, id)
		t.content = b.all[id].content
		tokens = tokens[b.size:]
	}
	t.complete = len(t.ids)
	return t
}

// takeTail takes the idle, partly filled block behind content that begins most
// like tokens, and returns how many positions they have in common.
func (b *blocks) takeTail(content contentID, tokens []int32) (id int32, common int) {
	for _, candidate := range b.tails[content] {
		if n := commonPrefix(b.all[candidate].tail, tokens); n > common {
			id, common = candidate, n
		}
	}
	if common > 0 {
		b.forget(id)
		b.retain(id)
	}
	return id, common
}

// grow makes room for positions positions. It reports false, with t as large as
// it could get, if no block is available.
func (b *blocks) grow(t *blockTable, positions int) bool {
	for len(t.ids) < b.blocksFor(positions) {
		id, ok := b.take()
		if !ok {
			return false
		}
		t.ids = append(t.ids, id)
	}
	return true
}

// commit makes the blocks of t that became complete known to other sequences.
// computed are the tokens whose K and V are in t. A block that turns out to hold
// what another one already holds is given back: the device computes a position to
// the same bits whoever asks.
func (b *blocks) commit(t *blockTable, computed []int32) {
	for end := (t.complete + 1) * b.size; end <= len(computed); end += b.size {
		key := contentKey{t.content, spell(computed[end-b.size : end])}
		id := t.ids[t.complete]
		if twin, ok := b.complete[key]; ok {
			b.retain(twin)
			b.release(id)
			t.ids[t.complete] = twin
			t.content = b.all[twin].content
		} else {
			b.last++
			b.all[id].content, b.all[id].key = b.last, key
			b.complete[key] = id
			t.content = b.last
		}
		t.complete++
	}
}

// cut takes t back to its first positions positions, and returns how many of them
// it still has. Where they end inside a block that others may know, that block is
// given back as it is, and what t had in it is to be computed anew.
func (b *blocks) cut(t *blockTable, positions int) (kept int) {
	kept, keep := positions, b.blocksFor(positions)
	if full := positions / b.size; full < t.complete {
		kept, keep = full*b.size, full
		t.complete, t.content = full, 0
		if full > 0 {
			t.content = b.all[t.ids[full-1]].content
			if t.content == 0 { // forgotten with another sequence that discarded it
				b.last++
				t.content = b.last
			}
		}
	}
	for i := len(t.ids) - 1; i >= keep; i-- {
		b.release(t.ids[i])
	}
	t.ids = t.ids[:min(keep, len(t.ids))]
	return kept
}

// close gives t back. computed are the tokens whose K and V are in it; they stay
// known until the space is needed. Blocks go idle last to first, so that none
// outlives the one before it.
func (b *blocks) close(t *blockTable, computed []int32) {
	b.commit(t, computed)
	for i := len(t.ids) - 1; i >= 0; i-- {
		id := t.ids[i]
		if tail := computed[min(t.complete*b.size, len(computed)):]; i == t.complete && len(tail) > 0 {
			b.all[id].tail, b.all[id].before = slices.Clone(tail), t.content
			b.tails[t.content] = append(b.tails[t.content], id)
		}
		b.release(id)
	}
	*t = blockTable{}
}

// discard gives t back and forgets what is in it, for contents that must not
// reach another sequence.
func (b *blocks) discard(t *blockTable) {
	for _, id := range t.ids {
		b.forget(id)
		b.release(id)
	}
	*t = blockTable{}
}

func (b *blocks) take() (int32, bool) {
	if n := len(b.free); n > 0 {
		id := b.free[n-1]
		b.free = b.free[:n-1]
		b.all[id].refs = 1
		return id, true
	}
	if b.reserve(1); b.fresh < b.granted {
		id := int32(b.fresh)
		b.fresh++
		b.all[id].refs = 1
		return id, true
	}
	if b.idle == 0 {
		return 0, false
	}
	oldest := b.all[len(b.all)-1].next
	b.forget(oldest)
	b.retain(oldest)
	return oldest, true
}

func (b *blocks) retain(id int32) {
	x := &b.all[id]
	if x.refs == 0 {
		b.all[x.prev].next, b.all[x.next].prev = x.next, x.prev
		b.idle--
	}
	x.refs++
}

func (b *blocks) release(id int32) {
	x := &b.all[id]
	if x.refs--; x.refs > 0 {
		return
	}
	if x.content == 0 && x.tail == nil {
		b.free = append(b.free, id)
		return
	}
	ring := int32(len(b.all) - 1)
	x.prev, x.next = b.all[ring].prev, ring
	b.all[x.prev].next, b.all[ring].prev = id, id
	b.idle++
}

// forget removes what id holds from the books; its state stays as it is.
func (b *blocks) forget(id int32) {
	x := &b.all[id]
	if x.content != 0 {
		delete(b.complete, x.key)
		x.content, x.key = 0, contentKey{}
	}
	if x.tail != nil {
		left := slices.DeleteFunc(b.tails[x.before], func(other int32) bool { return other == id })
		if b.tails[x.before] = left; len(left) == 0 {
			delete(b.tails, x.before)
		}
		x.tail, x.before = nil, 0
	}
}

func spell(tokens []int32) string {
	s := make([]byte, 0, 4*len(tokens))
	for _, id := range tokens {
		s = binary.LittleEndian.AppendUint32(s, uint32(id))
	}
	return string(s)
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
