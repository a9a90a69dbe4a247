package engine

import (
	"encoding/binary"
	"slices"
)

// blocks allocates the blocks of a paged KV cache and records what each one holds, so that
// sequences with a common prefix share its blocks. The device owns the memory itself.
//
// A block is in one of three states. In use: one sequence refers to it, or several if it is
// complete. Idle: none does, and its contents stay until the space is needed, least recently
// used first. Free: it holds nothing that can be reused.
//
// Blocks from fresh on were never in use. A device that allocates a block when it is first
// written has memory for those before.
type blocks struct {
	size     int // positions in a block
	all      []block
	free     []int32               // those before fresh
	fresh    int                   // blocks that were in use once
	granted  int                   // blocks that memory was granted for
	limit    int                   // blocks that may ever be granted: all, or those granted when memory was last refused
	grant    func(n int) int       // if set, returns how many blocks of n more are granted, or more than n
	written  int                   // blocks that were written
	idle     int                   // idle blocks, in the ring through all[len(all)-1]
	complete map[contentKey]int32  // complete blocks by contents
	tails    map[contentID][]int32 // idle, partly filled blocks, by the content before them
	last     contentID             // the newest content
}

// contentID identifies the tokens of a complete block with all tokens before it. It is never
// reused; 0 is the empty prefix.
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

// growBy makes b call grant before blocks are used for the first time.
func (b *blocks) growBy(grant func(n int) int) { b.granted, b.grant = b.fresh, grant }

// count returns how many blocks there are.
func (b *blocks) count() int { return len(b.all) - 1 }

// available returns how many blocks could be taken without more memory.
func (b *blocks) available() int { return len(b.free) + b.granted - b.fresh + b.idle }

// reserve calls grant if fewer than n blocks are free or granted.
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

// hasSpare reports whether half of the blocks could still be taken after n more were.
func (b *blocks) hasSpare(n int) bool {
	return len(b.free)+b.limit-b.fresh+b.idle-n >= b.limit/2
}

// write records that positions from to to-1 of t are written.
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

// open allocates a table for all of tokens, which begins with the cached blocks of
// tokens[:reusable]; reusable must be less than len(tokens). cached is the number of
// positions that are computed already. If not everything fits, open allocates nothing and
// ok is false.
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

// cachedBlocks returns how many complete blocks of tokens are cached.
func (b *blocks) cachedBlocks(tokens []int32) int { return len(b.match(tokens).ids) }

// match returns the complete blocks with the longest prefix of tokens.
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

// takeTail takes the idle, partly filled block after content with the longest common prefix
// with tokens, and returns that prefix's length.
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

// grow adds blocks for positions positions. It returns false, with t as large as possible, if
// no block is available.
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

// commit lets other sequences find the blocks of t that became complete. computed are the
// tokens whose K and V are in t. A block with the contents of another one is replaced by
// that: the device computes a position to the same bits in every step.
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

// truncate cuts t to its first positions positions, and returns how many of them it still
// has: a block that others may share is released whole, and its positions are computed again.
func (b *blocks) truncate(t *blockTable, positions int) (kept int) {
	kept, keep := positions, b.blocksFor(positions)
	if full := positions / b.size; full < t.complete {
		kept, keep = full*b.size, full
		t.complete, t.content = full, 0
		if full > 0 {
			t.content = b.all[t.ids[full-1]].content
			if t.content == 0 { // another sequence discarded it
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

// close releases t. computed are the tokens whose K and V are in it; they stay cached until
// the space is needed. Blocks become idle last to first, so that none outlives the one
// before it.
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

// discard releases t and drops its contents, which must not reach another sequence.
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

// forget drops the contents of id; its state stays.
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
