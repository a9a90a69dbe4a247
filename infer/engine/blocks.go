package engine

import (
	"encoding/binary"
	"slices"
)

// blocks allocates the blocks of a paged KV cache and records what they hold, so that sequences with
// a common prefix share them. The layers of a model are in cache groups; each has blocks and block
// tables of its own. In a group with a sliding window a sequence gives blocks back as soon as they
// are outside the window of its next row. A prefix can be shared as long as the blocks that its next
// row reads are there, in every group.
type blocks struct {
	size     int // positions in a block
	rows     int // the most rows of a step
	pools    []*pool
	contents map[contentKey]*content
	tails    map[contentID][]*tail // by the content before them
	last     contentID             // the newest content
}

// groupSize is the size of a cache group.
type groupSize struct {
	blocks int
	window int // positions that a row reads, its own included; 0: all
}

// contentID identifies the tokens of a complete block with all tokens before it. It is never
// reused; 0 is the empty prefix.
type contentID uint64

// contentKey finds a content: map equality compares all tokens of the block, and, through before,
// all tokens in front of it.
type contentKey struct {
	before contentID
	tokens string // little-endian, 4 bytes a token
	scope  string // in which the block is shared
	public bool   // it is shared among all; then scope is empty
}

// audience limits which sequences share the blocks that one computes: blocks within its first public tokens are for all,
// the others for sequences of its scope. So neither counts of cached tokens nor times reveal what other scopes asked.
type audience struct {
	scope  string // of the person whom the sequence is for
	public int    // leading tokens that say nothing of the request; see publicTokens
}

// content is what complete blocks hold, one of each group at most.
type content struct {
	id     contentID
	key    contentKey
	before *content // nil: the empty prefix
	blocks []int32  // by group, none if no block holds it
	users  int      // blocks that hold it, tables that have it, contents and tails after it
}

// none is no block.
const none = -1

// tail is what idle, partly filled blocks hold, one of each group.
type tail struct {
	scope  string // in which it is shared
	before *content
	tokens []int32
	blocks []int32 // by group
}

// blockTable is the KV memory of one sequence.
type blockTable struct {
	groups   []heldBlocks // by cache group; nil: the sequence has no memory
	chain    []*content   // of the leading blocks, which are complete
	audience audience
}

// heldBlocks are the blocks of a sequence in a cache group: ids[i] holds its positions from i·size on.
// Blocks before from are outside the window: the sequence does not hold them, and their ids are 0.
//
// Others are reserved for it: those for all its tokens, up to as many as it ever holds. So a sequence with a
// window gets all its memory when it is admitted, as any other, and not by and by from those that run.
type heldBlocks struct {
	ids      []int32
	from     int
	reserved int
}

// count returns how many blocks the sequence holds or may take.
func (h *heldBlocks) count() int { return len(h.ids) - h.from + h.reserved }

// empty reports whether t is no memory at all.
func (t *blockTable) empty() bool { return t.groups == nil }

// end returns the content of the last complete block, nil if there is none.
func (t *blockTable) end() *content {
	if len(t.chain) == 0 {
		return nil
	}
	return t.chain[len(t.chain)-1]
}

// newBlocks returns blocks of size positions for steps of at most rows rows.
func newBlocks(size, rows int, groups ...groupSize) *blocks {
	b := &blocks{size: size, rows: rows, contents: map[contentKey]*content{}, tails: map[contentID][]*tail{}}
	for i, g := range groups {
		b.pools = append(b.pools, newPool(i, g))
	}
	return b
}

// blocksFor returns how many blocks n positions take.
func (b *blocks) blocksFor(n int) int { return (n + b.size - 1) / b.size }

// reach returns how many blocks the table of a sequence has in p: for all its tokens, or for those of
// the next step if others will be outside the window by then.
func (b *blocks) reach(p *pool, tokens, computed int) int {
	if p.window > 0 {
		tokens = min(tokens, computed-computed%b.size+b.size+b.rows)
	}
	return b.blocksFor(tokens)
}

// holds returns the most blocks that a sequence of so many tokens holds in p.
func (b *blocks) holds(p *pool, tokens int) int {
	n := b.blocksFor(tokens)
	if p.window > 0 {
		n = min(n, spanOf(p.window, b.rows, b.size))
	}
	return n
}

// spanOf returns the most blocks of size positions that a sequence holds in a cache group with a window,
// in steps of at most rows rows.
func spanOf(window, rows, size int) int { return (window-1+size+rows+size-1)/size + 1 }

// lacks reports whether there is too little memory for a sequence of so many tokens, even if that of
// freed, which may be nil, is released.
func (b *blocks) lacks(tokens int, freed *blockTable) bool {
	for g, p := range b.pools {
		n := p.available()
		if freed != nil && !freed.empty() {
			n += freed.groups[g].count()
		}
		if n < b.holds(p, tokens) {
			return true
		}
	}
	return false
}

// hasSpare reports whether half of the blocks could still be taken after those for so many tokens were.
func (b *blocks) hasSpare(tokens int) bool {
	return !slices.ContainsFunc(b.pools, func(p *pool) bool { return !p.hasSpare(b.holds(p, tokens)) })
}

// written returns how many blocks of each group were written.
func (b *blocks) written() (list []int) {
	for _, p := range b.pools {
		list = append(list, p.written)
	}
	return list
}

// write records that positions from to to-1 of t are written.
func (b *blocks) write(t *blockTable, from, to int) {
	for g, p := range b.pools {
		held := &t.groups[g]
		for i := max(from/b.size, held.from); i*b.size < to; i++ {
			if x := &p.all[held.ids[i]]; !x.written {
				x.written = true
				p.written++
			}
		}
	}
}

// open allocates a table for the next step over tokens, which begins with the blocks of
// tokens[:reusable] that are cached and shared with its audience; reusable must be less than len(tokens). cached is the number of
// positions that are computed already. If not everything fits, open allocates nothing and
// ok is false.
func (b *blocks) open(tokens []int32, reusable int, audience audience) (t blockTable, cached int, ok bool) {
	chain := b.match(tokens[:reusable], audience.scope)
	cached = len(chain) * b.size
	for _, p := range b.pools {
		shared, revived := chain[min(p.needs(cached)/b.size, len(chain)):], 0
		for _, c := range shared {
			if p.all[c.blocks[p.group]].refs == 0 {
				revived++
			}
		}
		missing := b.holds(p, len(tokens)) - len(shared)
		p.askFor(p.reserved + missing)
		if missing > p.available()-revived {
			return blockTable{}, 0, false
		}
	}
	t = b.share(chain, audience)
	b.reserve(&t, len(tokens))
	cached += b.takeTail(&t, tokens[cached:reusable])
	b.trim(&t, cached)
	if !b.grow(&t, len(tokens), cached) { // others use what was outside its window
		b.close(&t, tokens[:cached])
		return blockTable{}, 0, false
	}
	return t, cached, true
}

// share returns a table of the blocks of chain that its next row reads.
func (b *blocks) share(chain []*content, audience audience) (t blockTable) {
	t = blockTable{groups: make([]heldBlocks, len(b.pools)), chain: chain, audience: audience}
	for _, c := range chain {
		c.users++
	}
	for g, p := range b.pools {
		held := &t.groups[g]
		held.ids = make([]int32, len(chain))
		held.from = min(p.needs(len(chain)*b.size)/b.size, len(chain))
		for i := held.from; i < len(chain); i++ {
			held.ids[i] = chain[i].blocks[g]
			p.retain(held.ids[i])
		}
	}
	return t
}

// cachedBlocks returns how many complete blocks of tokens could be shared in scope.
func (b *blocks) cachedBlocks(tokens []int32, scope string) int { return len(b.match(tokens, scope)) }

// match returns the contents of the longest prefix of tokens that can be shared in scope.
func (b *blocks) match(tokens []int32, scope string) (chain []*content) {
	var before *content
	for len(tokens) >= b.size {
		c := b.find(keyOf(before, tokens[:b.size]), scope)
		if c == nil {
			break
		}
		chain, before, tokens = append(chain, c), c, tokens[b.size:]
	}
	return chain[:b.usable(len(chain), func(g, i int) bool { return chain[i].blocks[g] != none })]
}

// usable returns the most blocks, up to n, after which a row can be computed. has reports whether block i
// of group g is available.
func (b *blocks) usable(n int, has func(g, i int) bool) (most int) {
	first := make([]int, len(b.pools)) // of each group, the first block from which all up to i are available
	for i := range n {
		complete := true
		for g, p := range b.pools {
			if !has(g, i) {
				first[g] = i + 1
			}
			complete = complete && first[g] <= p.needs((i+1)*b.size)/b.size
		}
		if complete {
			most = i + 1
		}
	}
	return most
}

// needs returns the first block of each group that rows after n blocks read.
func (b *blocks) needs(n int) (first []int) {
	for _, p := range b.pools {
		first = append(first, p.needs(n*b.size)/b.size)
	}
	return first
}

// takeTail adds the idle, partly filled blocks after t, of its scope, with the longest common prefix with
// tokens, and returns that prefix's length.
func (b *blocks) takeTail(t *blockTable, tokens []int32) (common int) {
	var best *tail
	for _, candidate := range b.tails[idOf(t.end())] {
		if n := commonPrefix(candidate.tokens, tokens); n > common && candidate.scope == t.audience.scope {
			best, common = candidate, n
		}
	}
	if best != nil {
		for g, p := range b.pools {
			p.retain(best.blocks[g])
			p.unreserve(&t.groups[g])
			t.groups[g].ids = append(t.groups[g].ids, best.blocks[g])
		}
		b.dropTail(best)
	}
	return common
}

// reserve reserves the blocks for so many tokens. It returns false if too few are available.
func (b *blocks) reserve(t *blockTable, tokens int) bool {
	for g, p := range b.pools {
		held, n := &t.groups[g], b.holds(p, tokens)
		for held.count() > n && held.reserved > 0 {
			p.unreserve(held)
		}
		if more := n - held.count(); more > 0 {
			p.askFor(p.reserved + more)
		}
		for held.count() < n {
			if p.available() <= 0 {
				return false
			}
			p.reserve(held)
		}
	}
	return true
}

// grow adds the blocks that the next step needs of a sequence of so many tokens, of which computed are
// computed. It returns false if too few are available.
func (b *blocks) grow(t *blockTable, tokens, computed int) bool {
	if !b.reserve(t, tokens) {
		return false
	}
	for g, p := range b.pools {
		held := &t.groups[g]
		for n := b.reach(p, tokens, computed); len(held.ids) < n; {
			id, ok := b.take(p)
			if !ok {
				return false
			}
			p.unreserve(held)
			held.ids = append(held.ids, id)
		}
	}
	return true
}

// extra adds the blocks for up to n positions after so many tokens, of which computed are computed, if they
// are available, and returns for how many of them t has memory.
func (b *blocks) extra(t *blockTable, tokens, n, computed int) int {
	for g, p := range b.pools {
		if b.holds(p, tokens+n)-t.groups[g].count() > max(0, p.available()) {
			return min(n, b.blocksFor(tokens)*b.size-tokens)
		}
	}
	b.grow(t, tokens+n, computed)
	return n
}

// extend adds a block for the next positions to the groups for which use is true. The others hold nothing
// any more: what t holds of them is released.
func (b *blocks) extend(t *blockTable, use func(g int) bool) bool {
	for g, p := range b.pools {
		held := &t.groups[g]
		if !use(g) {
			b.releaseBefore(p, held, len(held.ids))
			held.ids = append(held.ids, 0)
			held.from = len(held.ids)
			continue
		}
		if p.askFor(p.reserved + 1); p.available() <= 0 {
			return false
		}
		id, _ := b.take(p)
		held.ids = append(held.ids, id)
	}
	return true
}

// commit lets other sequences find the blocks of t that became complete, and releases those after the
// windows. computed are the tokens whose K and V are in t. A block with the contents of another one is
// replaced by that: the device computes a position to the same bits in every step.
func (b *blocks) commit(t *blockTable, computed []int32) {
	for end := (len(t.chain) + 1) * b.size; end <= len(computed); end += b.size {
		c, i := b.contentOf(t, computed[end-b.size:end]), len(t.chain)
		c.users++
		t.chain = append(t.chain, c)
		for g, p := range b.pools {
			held := &t.groups[g]
			if i < held.from {
				continue
			}
			if twin := c.blocks[g]; twin != none {
				p.retain(twin)
				p.release(held.ids[i])
				held.ids[i] = twin
			} else {
				c.blocks[g], p.all[held.ids[i]].content = held.ids[i], c
				c.users++
			}
		}
	}
	b.trim(t, len(computed))
}

// find returns the content with a key, of everybody's or else of scope; nil if there is none.
func (b *blocks) find(key contentKey, scope string) *content {
	key.public = true
	if c := b.contents[key]; c != nil {
		return c
	}
	key.scope, key.public = scope, false
	return b.contents[key]
}

// contentOf returns the content of tokens, which are those of the next block after the chain of t.
func (b *blocks) contentOf(t *blockTable, tokens []int32) *content {
	before, key := t.end(), keyOf(t.end(), tokens)
	c := b.find(key, t.audience.scope)
	if c == nil {
		if key.public = (len(t.chain)+1)*b.size <= t.audience.public; !key.public {
			key.scope = t.audience.scope
		}
		b.last++
		c = &content{id: b.last, key: key, before: before, blocks: slices.Repeat([]int32{none}, len(b.pools))}
		b.contents[key] = c
		if before != nil {
			before.users++
		}
	}
	return c
}

// trim releases the blocks of t that no row from position pos on reads.
func (b *blocks) trim(t *blockTable, pos int) {
	for g, p := range b.pools {
		held, before := &t.groups[g], p.available()
		for b.releaseBefore(p, held, p.needs(pos)/b.size); p.available() > before; {
			p.reserve(held) // for the positions that follow; not what others share
		}
	}
}

// releaseBefore releases the blocks before first.
func (b *blocks) releaseBefore(p *pool, held *heldBlocks, first int) {
	for ; held.from < min(first, len(held.ids)); held.from++ {
		p.release(held.ids[held.from])
		held.ids[held.from] = 0
	}
}

// truncate cuts t to its first positions positions, and returns how many of them it still
// has: a block that others may share is released whole, and its positions are computed again. So
// are those whose window has lost blocks to other sequences.
func (b *blocks) truncate(t *blockTable, positions int) (kept int) {
	kept = b.cut(t, positions)
	if !b.recover(t, kept) {
		kept = b.size * b.usable(len(t.chain), func(g, i int) bool {
			return i >= t.groups[g].from && i < len(t.groups[g].ids) || t.chain[i].blocks[g] != none
		})
		if b.cut(t, kept); !b.recover(t, kept) {
			kept = b.cut(t, 0)
		}
	}
	return kept
}

// cut releases the blocks of t after its first positions positions.
func (b *blocks) cut(t *blockTable, positions int) (kept int) {
	kept, keep := positions, b.blocksFor(positions)
	if full := positions / b.size; full < len(t.chain) {
		kept, keep = full*b.size, full
		for i := len(t.chain) - 1; i >= full; i-- {
			b.leave(t.chain[i])
		}
		t.chain = slices.Clip(t.chain[:full])
	}
	for g, p := range b.pools {
		held := &t.groups[g]
		for len(held.ids) > keep {
			if last := len(held.ids) - 1; last >= held.from {
				p.release(held.ids[last])
			}
			held.ids = held.ids[:len(held.ids)-1]
		}
		held.from = min(held.from, len(held.ids))
	}
	return kept
}

// recover takes back the blocks that rows from position pos on read. It returns false if they hold something
// else by now, or are reserved for others.
func (b *blocks) recover(t *blockTable, pos int) bool {
	for g, p := range b.pools {
		held := &t.groups[g]
		for first := p.needs(pos) / b.size; held.from > first; held.from-- {
			id := t.chain[held.from-1].blocks[g]
			if id == none || p.all[id].refs == 0 && held.reserved == 0 && p.available() <= 0 {
				return false
			}
			if p.all[id].refs == 0 {
				p.unreserve(held)
			}
			p.retain(id)
			held.ids[held.from-1] = id
		}
	}
	return true
}

// close releases t. computed are the tokens whose K and V are in it; they stay cached until
// the space is needed. Blocks become idle last to first, so that none outlives the one
// before it.
func (b *blocks) close(t *blockTable, computed []int32) {
	b.commit(t, computed)
	if rest := computed[min(len(t.chain)*b.size, len(computed)):]; len(rest) > 0 {
		b.addTail(t, rest)
	}
	b.releaseAll(t)
}

// addTail records what the partly filled blocks of t hold.
func (b *blocks) addTail(t *blockTable, tokens []int32) {
	x := &tail{scope: t.audience.scope, before: t.end(), tokens: slices.Clone(tokens)}
	for g, p := range b.pools {
		id := t.groups[g].ids[len(t.chain)]
		x.blocks = append(x.blocks, id)
		p.all[id].tail = x
	}
	if x.before != nil {
		x.before.users++
	}
	b.tails[idOf(x.before)] = append(b.tails[idOf(x.before)], x)
}

func (b *blocks) releaseAll(t *blockTable) {
	for g, p := range b.pools {
		held := &t.groups[g]
		for i := len(held.ids) - 1; i >= held.from; i-- {
			p.release(held.ids[i])
		}
		p.reserved -= held.reserved
	}
	for _, c := range slices.Backward(t.chain) {
		b.leave(c)
	}
	*t = blockTable{}
}

// discard releases t and drops its contents, which must not reach another sequence.
func (b *blocks) discard(t *blockTable) {
	for _, c := range t.chain {
		if b.contents[c.key] == c {
			delete(b.contents, c.key)
		}
		for g, id := range c.blocks {
			if id != none {
				b.forget(b.pools[g], id)
				b.pools[g].emptied(id)
			}
		}
	}
	b.releaseAll(t)
}

// take takes a block of p: one that holds nothing, else the one that was not used for longest.
func (b *blocks) take(p *pool) (int32, bool) {
	if id, ok := p.takeUnused(); ok {
		return id, true
	}
	if p.idle == 0 {
		return 0, false
	}
	oldest := p.all[len(p.all)-1].next
	p.retain(oldest)
	b.forget(p, oldest)
	return oldest, true
}

// shrink drops what up to n blocks of group g hold that no sequence uses: free ones, then those that were not used for
// longest. The caller gives the memory of the blocks that it returns back. Memory that was granted and that no sequence needs has to
// be asked for again.
func (b *blocks) shrink(g, n int) (ids []int32) {
	p := b.pools[g]
	p.granted = p.backed() + max(0, p.reserved-len(p.free)-p.idle)
	for len(ids) < n && p.available() > 0 && len(p.free)+p.idle > 0 {
		if len(p.free) == 0 {
			oldest := p.all[len(p.all)-1].next
			b.forget(p, oldest)
			p.emptied(oldest)
		}
		if id, written := p.releaseFree(); written {
			ids = append(ids, id)
		}
	}
	p.limit = p.granted
	return ids
}

// forget drops the contents of a block; its state stays.
func (b *blocks) forget(p *pool, id int32) {
	x := &p.all[id]
	if c := x.content; c != nil {
		x.content, c.blocks[p.group] = nil, none
		b.leave(c)
	}
	if t := x.tail; t != nil {
		b.dropTail(t)
		for g, other := range t.blocks {
			if g != p.group {
				b.pools[g].emptied(other)
			}
		}
	}
}

// dropTail makes t unknown.
func (b *blocks) dropTail(t *tail) {
	for g, p := range b.pools {
		p.all[t.blocks[g]].tail = nil
	}
	before := idOf(t.before)
	left := slices.DeleteFunc(b.tails[before], func(other *tail) bool { return other == t })
	if b.tails[before] = left; len(left) == 0 {
		delete(b.tails, before)
	}
	if t.before != nil {
		b.leave(t.before)
	}
}

// leave removes a user of c. A content without users is unknown.
func (b *blocks) leave(c *content) {
	for ; c != nil; c = c.before {
		if c.users--; c.users > 0 {
			return
		}
		if b.contents[c.key] == c {
			delete(b.contents, c.key)
		}
	}
}

func keyOf(before *content, tokens []int32) contentKey {
	return contentKey{before: idOf(before), tokens: spell(tokens)}
}

func idOf(c *content) contentID {
	if c == nil {
		return 0
	}
	return c.id
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
