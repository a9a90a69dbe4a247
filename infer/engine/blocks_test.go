package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// span returns tokens from, from+1, … below to.
func span(from, to int32) []int32 {
	var tokens []int32
	for id := from; id < to; id++ {
		tokens = append(tokens, id)
	}
	return tokens
}

// oneGroup returns count blocks of size positions in one cache group without a window.
func oneGroup(count, size int) *blocks { return newBlocks(size, 1, groupSize{blocks: count}) }

func TestBlocks_Reuse(t *testing.T) {
	tests := []struct {
		name   string
		first  []int32 // computed and closed
		second []int32
		limit  int // reusable; -1: all but the last token
		cached int
	}{
		{"nothing is known of an unrelated prompt", span(0, 12), span(50, 62), -1, 0},
		{"the last token of the same prompt is computed again", span(0, 9), span(0, 9), -1, 8},
		{"the last block of the same prompt is computed again where it was complete", span(0, 8), span(0, 8), -1, 4},
		{"the next turn goes on in the partly filled block", span(0, 10), span(0, 15), -1, 10},
		{"a prompt that leaves the old one inside its last block keeps what they share", span(0, 11), append(span(0, 9), 77, 78), -1, 9},
		{"a complete block is shared only as a whole", span(0, 12), append(span(0, 6), 77, 78, 79), -1, 4},
		{"a prompt within one block reuses the partly filled block", span(0, 3), span(0, 4), -1, 3},
		{"no more is reused than the caller allows", span(0, 12), span(0, 12), 5, 4},
		{"nothing is reused where the caller allows nothing", span(0, 12), span(0, 12), 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := oneGroup(8, 4)
			table, _, _ := b.open(tt.first, 0, audience{})
			b.close(&table, tt.first)
			limit := tt.limit
			if limit < 0 {
				limit = len(tt.second) - 1
			}
			_, cached, ok := b.open(tt.second, limit, audience{})
			if !ok || cached != tt.cached {
				t.Errorf("open: cached %d, ok %v, want %d, true", cached, ok, tt.cached)
			}
		})
	}
}

func TestBlocks_TwoRunningSequencesShareCompleteBlocks(t *testing.T) {
	b := oneGroup(4, 4)
	first, _, _ := b.open(span(0, 9), 0, audience{}) // three of four blocks
	b.commit(&first, span(0, 9))
	second, cached, ok := b.open(span(0, 9), 8, audience{})
	if !ok || cached != 8 || !slices.Equal(first.groups[0].ids[:2], second.groups[0].ids[:2]) || first.groups[0].ids[2] == second.groups[0].ids[2] {
		t.Fatalf("second sequence: cached %d, ok %v, blocks %v beside %v", cached, ok, second.groups[0].ids, first.groups[0].ids)
	}
	b.close(&first, span(0, 9))
	if got := b.pools[0].available(); got != 1 {
		t.Errorf("%d blocks are available after the first of two owners left, want 1", got)
	}
	b.close(&second, span(0, 9))
	if got := b.pools[0].available(); got != 4 {
		t.Errorf("%d blocks are available after both left, want 4", got)
	}
}

func TestBlocks_EqualBlocksAreMerged(t *testing.T) {
	b := oneGroup(4, 4)
	first, _, _ := b.open(span(0, 5), 0, audience{})
	second, _, _ := b.open(span(0, 5), 0, audience{})
	b.commit(&first, span(0, 5))
	b.commit(&second, span(0, 5))
	if first.groups[0].ids[0] != second.groups[0].ids[0] {
		t.Errorf("blocks %v and %v hold the same tokens twice", first.groups[0].ids, second.groups[0].ids)
	}
	if got := b.pools[0].available(); got != 1 {
		t.Errorf("%d blocks are available, want 1", got)
	}
}

func TestBlocks_TheOldestContentsGiveWay(t *testing.T) {
	b := oneGroup(4, 4)
	for _, tokens := range [][]int32{span(0, 8), span(100, 108)} {
		table, _, _ := b.open(tokens, 0, audience{})
		b.close(&table, tokens)
	}
	table, _, _ := b.open(span(200, 204), 0, audience{})
	b.close(&table, span(200, 204))
	if got := b.cachedBlocks(span(0, 8), ""); got != 1 {
		t.Errorf("%d blocks of the oldest prompt are left, want its first one", got)
	}
	if got := b.cachedBlocks(span(100, 108), ""); got != 2 {
		t.Errorf("%d blocks of the younger prompt are left, want 2", got)
	}
}

func TestBlocks_DiscardedContentsAreNotFound(t *testing.T) {
	b := oneGroup(4, 4)
	table, _, _ := b.open(span(0, 10), 0, audience{})
	b.commit(&table, span(0, 10))
	b.discard(&table)
	if _, cached, _ := b.open(span(0, 10), 9, audience{}); cached != 0 {
		t.Errorf("%d positions of a discarded sequence were reused", cached)
	}
}

func TestBlocks_OpenTakesAllOrNothing(t *testing.T) {
	b := oneGroup(4, 4)
	table, _, _ := b.open(span(0, 8), 0, audience{})
	b.close(&table, span(0, 8)) // two idle, two free
	if _, _, ok := b.open(span(0, 20), 19, audience{}); ok {
		t.Fatal("five blocks were found in four")
	}
	if got := b.pools[0].available(); got != 4 {
		t.Errorf("%d blocks are available after a refusal, want 4", got)
	}
	if _, cached, ok := b.open(span(0, 16), 15, audience{}); !ok || cached != 8 {
		t.Errorf("open: cached %d, ok %v, want 8, true", cached, ok)
	}
}

// checkBlocks compares the books with the tables that are open.
func checkBlocks(t interface{ Fatalf(string, ...any) }, b *blocks, open ...*blockTable) {
	users := map[*content]int{}
	for _, table := range open {
		for _, c := range table.chain {
			users[c]++
		}
	}
	for _, p := range b.pools {
		checkPool(t, b, p, open)
		for id := range p.count() {
			if c := p.all[id].content; c != nil {
				users[c]++
				if c.blocks[p.group] != int32(id) {
					t.Fatalf("block %d of group %d holds what block %d is said to hold", id, p.group, c.blocks[p.group])
				}
			}
		}
	}
	for before, list := range b.tails {
		for _, x := range list {
			if idOf(x.before) != before || len(x.tokens) == 0 || len(x.tokens) >= b.size {
				t.Fatalf("%v is no tail", x)
			}
			if x.before != nil {
				users[x.before]++
			}
			for g, id := range x.blocks {
				if y := b.pools[g].all[id]; y.tail != x || y.refs != 0 {
					t.Fatalf("block %d of group %d has %d owners and another tail", id, g, y.refs)
				}
			}
		}
	}
	for key, c := range b.contents {
		if c.key != key || idOf(c.before) != key.before {
			t.Fatalf("a content is found under a key that is not its own")
		}
	}
	seen := map[*content]bool{}
	for c := range users {
		for ; c != nil && !seen[c]; c = c.before {
			if seen[c] = true; c.before != nil {
				users[c.before]++
			}
		}
	}
	for c := range seen {
		if c.users != users[c] {
			t.Fatalf("a content has %d users, the books say %d", users[c], c.users)
		}
	}
	for _, c := range b.contents {
		if !seen[c] {
			t.Fatalf("a content that nobody uses is known")
		}
	}
}

func checkPool(t interface{ Fatalf(string, ...any) }, b *blocks, p *pool, open []*blockTable) {
	refs := make([]int, p.count())
	for _, table := range open {
		if table.empty() {
			continue
		}
		held := table.groups[p.group]
		for i, id := range held.ids {
			if i >= held.from {
				refs[id]++
			} else if id != 0 {
				t.Fatalf("block %d of a table is %d behind the window", i, id)
			}
		}
	}
	state := make([]string, len(refs))
	enter := func(id int32, name string) {
		if state[id] != "" {
			t.Fatalf("block %d is %s and %s", id, state[id], name)
		}
		state[id] = name
	}
	for _, id := range p.free {
		enter(id, "free")
		if p.all[id].content != nil || p.all[id].tail != nil {
			t.Fatalf("block %d is free and holds something", id)
		}
	}
	for id := p.fresh; id < p.count(); id++ {
		enter(int32(id), "free")
	}
	for _, id := range p.released {
		if enter(id, "released"); p.all[id].content != nil || p.all[id].tail != nil || p.all[id].written {
			t.Fatalf("block %d is released and holds something", id)
		}
	}
	ring, idle := int32(len(refs)), 0
	for id := p.all[ring].next; id != ring; id = p.all[id].next {
		enter(id, "idle")
		idle++
	}
	reserved := 0
	for _, table := range open {
		if !table.empty() {
			reserved += table.groups[p.group].reserved
		}
	}
	if reserved != p.reserved || p.available() < 0 {
		t.Fatalf("%d blocks are reserved, the books say %d, and %d are available", reserved, p.reserved, p.available())
	}
	if idle != p.idle {
		t.Fatalf("%d blocks are idle, the books say %d", idle, p.idle)
	}
	for id := range refs {
		if p.all[id].refs != refs[id] {
			t.Fatalf("block %d has %d owners, the books say %d", id, refs[id], p.all[id].refs)
		}
		if refs[id] > 0 {
			enter(int32(id), "in use")
		}
		if state[id] == "" {
			t.Fatalf("block %d is lost", id)
		}
	}
}

// blockMemory remembers which tokens each position of each block really holds.
type blockMemory map[[2]int32][]history

// compute writes the next n tokens of a sequence, of which computed are computed. It fails the test if a block
// that is written has other owners, or if a position that a row reads holds another sequence's work.
func (m blockMemory) compute(t interface{ Fatalf(string, ...any) }, b *blocks, table *blockTable, tokens []int32, computed, n int) {
	for g, p := range b.pools {
		ids := table.groups[g].ids
		for pos := computed; pos < computed+n; pos++ {
			key := [2]int32{int32(g), ids[pos/b.size]}
			if refs := p.all[key[1]].refs; refs != 1 || table.groups[g].from > pos/b.size {
				t.Fatalf("position %d is written into block %d of %d owners", pos, key[1], refs)
			}
			if m[key] == nil {
				m[key] = make([]history, b.size)
			}
			m[key][pos%b.size] = historyOf(tokens[:pos+1])
		}
		for pos := computed; pos < computed+n; pos++ {
			m.check(t, b, g, table, tokens, pos)
		}
	}
}

// check fails the test unless group g has all that the row of position pos reads.
func (m blockMemory) check(t interface{ Fatalf(string, ...any) }, b *blocks, g int, table *blockTable, tokens []int32, pos int) {
	for read := b.pools[g].needs(pos); read < pos; read++ {
		key := [2]int32{int32(g), table.groups[g].ids[read/b.size]}
		if table.groups[g].from > read/b.size || m[key] == nil || m[key][read%b.size] != historyOf(tokens[:read+1]) {
			t.Fatalf("group %d, position %d of %v reads another sequence's work at %d", g, pos, tokens, read)
		}
	}
}

// drawGroups returns one or two cache groups, each with a window or without, with enough blocks for one
// sequence of most positions.
func drawGroups(t *rapid.T, size, rows, most int) (groups []groupSize) {
	for range rapid.IntRange(1, 2).Draw(t, "groups") {
		g := groupSize{window: rapid.IntRange(0, 7).Draw(t, "window")}
		least := (most + size - 1) / size
		if g.window > 0 {
			least = min(least, spanOf(g.window, rows, size))
		}
		g.blocks = least + rapid.IntRange(0, 8).Draw(t, "more blocks")
		groups = append(groups, g)
	}
	return groups
}

// TestBlocks_Model drives blocks like a scheduler that runs many sequences, alongside
// a memory that remembers which token each position of each block really holds.
func TestBlocks_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, rows := rapid.IntRange(1, 4).Draw(t, "size"), rapid.IntRange(1, 5).Draw(t, "rows")
		b := newBlocks(size, rows, drawGroups(t, size, rows, 1)...)
		memory := blockMemory{}
		type live struct {
			table    blockTable
			tokens   []int32
			computed int
		}
		var open []*live
		available := func() (n int) {
			for _, p := range b.pools {
				n += p.available()
			}
			return n
		}
		check := func(*rapid.T) {
			var tables []*blockTable
			for _, s := range open {
				tables = append(tables, &s.table)
				for g := range b.pools {
					memory.check(t, b, g, &s.table, s.tokens, s.computed)
				}
			}
			checkBlocks(t, b, tables...)
		}
		pick := func(t *rapid.T) int {
			if len(open) == 0 {
				t.Skip("nothing is open")
			}
			return rapid.IntRange(0, len(open)-1).Draw(t, "which")
		}
		shut := func(i int) {
			b.close(&open[i].table, open[i].tokens[:open[i].computed])
			open = slices.Delete(open, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"open": func(t *rapid.T) {
				tokens := rapid.SliceOfN(rapid.Int32Range(0, 1), 1, 12).Draw(t, "tokens")
				reusable := rapid.IntRange(0, len(tokens)-1).Draw(t, "reusable")
				before := available()
				table, cached, ok := b.open(tokens, reusable, audience{})
				if !ok {
					if available() < before { // more, if memory of released blocks is granted again
						t.Fatalf("a refusal cost %d blocks", before-available())
					}
					return
				}
				if cached > reusable {
					t.Fatalf("%d positions reused where %d were allowed", cached, reusable)
				}
				open = append(open, &live{table, tokens, cached})
			},
			"compute": func(t *rapid.T) {
				i := pick(t)
				s := open[i]
				n := rapid.IntRange(0, min(rows, len(s.tokens)-s.computed)).Draw(t, "rows")
				if !b.grow(&s.table, len(s.tokens), s.computed) {
					shut(i)
					return
				}
				b.write(&s.table, s.computed, s.computed+n)
				memory.compute(t, b, &s.table, s.tokens, s.computed, n)
				s.computed += n
				b.commit(&s.table, s.tokens[:s.computed])
			},
			"append": func(t *rapid.T) {
				s := open[pick(t)]
				if b.grow(&s.table, len(s.tokens)+1, s.computed) {
					s.tokens = append(slices.Clone(s.tokens), rapid.Int32Range(0, 1).Draw(t, "token"))
				} else if !slices.ContainsFunc(b.pools, func(p *pool) bool { return p.available() == 0 }) {
					t.Fatalf("could not grow with %d blocks available", available())
				}
			},
			"cut": func(t *rapid.T) {
				i := pick(t)
				s := open[i]
				n := rapid.IntRange(0, s.computed).Draw(t, "positions")
				kept := b.truncate(&s.table, n)
				if windows := slices.ContainsFunc(b.pools, func(p *pool) bool { return p.window > 0 }); kept > n || n-kept >= size && !windows {
					t.Fatalf("a cut to %d positions kept %d of them", n, kept)
				}
				s.tokens, s.computed = s.tokens[:max(n, 1)], kept
				if !b.grow(&s.table, len(s.tokens), s.computed) { // what it gave back belongs to another now
					shut(i)
				}
			},
			"close": func(t *rapid.T) { shut(pick(t)) },
			"discard": func(t *rapid.T) {
				i := pick(t)
				b.discard(&open[i].table)
				open = slices.Delete(open, i, i+1)
			},
			"shrink": func(t *rapid.T) {
				g := rapid.IntRange(0, len(b.pools)-1).Draw(t, "group")
				p, n := b.pools[g], rapid.IntRange(1, 4).Draw(t, "blocks")
				backed, written := p.backed(), p.written
				ids := b.shrink(g, n)
				for _, id := range ids {
					delete(memory, [2]int32{int32(g), id})
				}
				if len(ids) > n || p.written != written-len(ids) || p.backed() > backed-len(ids) {
					t.Fatalf("%d blocks were released of %d: %d written are left of %d, with memory %d of %d", len(ids), n, p.written, written, p.backed(), backed)
				}
			},
		})
		for len(open) > 0 {
			shut(0)
		}
		for _, p := range b.pools {
			if p.askFor(p.count()); p.available() != p.count() {
				t.Fatalf("%d of %d blocks of group %d are available at the end", p.available(), p.count(), p.group)
			}
		}
	})
}

// history stands for K and V of a position: they depend on all tokens up to it.
type history uint64

func historyOf(tokens []int32) history {
	h := history(14695981039346656037)
	for _, id := range tokens {
		h = (h ^ history(uint32(id)+1)) * 1099511628211
	}
	return h
}
