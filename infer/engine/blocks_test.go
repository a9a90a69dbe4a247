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
			b := newBlocks(8, 4)
			table, _, _ := b.open(tt.first, 0)
			b.close(&table, tt.first)
			limit := tt.limit
			if limit < 0 {
				limit = len(tt.second) - 1
			}
			_, cached, ok := b.open(tt.second, limit)
			if !ok || cached != tt.cached {
				t.Errorf("open: cached %d, ok %v, want %d, true", cached, ok, tt.cached)
			}
		})
	}
}

func TestBlocks_TwoRunningSequencesShareCompleteBlocks(t *testing.T) {
	b := newBlocks(4, 4)
	first, _, _ := b.open(span(0, 9), 0) // three of four blocks
	b.commit(&first, span(0, 9))
	second, cached, ok := b.open(span(0, 9), 8)
	if !ok || cached != 8 || !slices.Equal(first.ids[:2], second.ids[:2]) || first.ids[2] == second.ids[2] {
		t.Fatalf("second sequence: cached %d, ok %v, blocks %v beside %v", cached, ok, second.ids, first.ids)
	}
	b.close(&first, span(0, 9))
	if got := b.available(); got != 1 {
		t.Errorf("%d blocks are available after the first of two owners left, want 1", got)
	}
	b.close(&second, span(0, 9))
	if got := b.available(); got != 4 {
		t.Errorf("%d blocks are available after both left, want 4", got)
	}
}

func TestBlocks_EqualBlocksAreMerged(t *testing.T) {
	b := newBlocks(4, 4)
	first, _, _ := b.open(span(0, 5), 0)
	second, _, _ := b.open(span(0, 5), 0)
	b.commit(&first, span(0, 5))
	b.commit(&second, span(0, 5))
	if first.ids[0] != second.ids[0] {
		t.Errorf("blocks %v and %v hold the same tokens twice", first.ids, second.ids)
	}
	if got := b.available(); got != 1 {
		t.Errorf("%d blocks are available, want 1", got)
	}
}

func TestBlocks_TheOldestContentsGiveWay(t *testing.T) {
	b := newBlocks(4, 4)
	for _, tokens := range [][]int32{span(0, 8), span(100, 108)} {
		table, _, _ := b.open(tokens, 0)
		b.close(&table, tokens)
	}
	table, _, _ := b.open(span(200, 204), 0)
	b.close(&table, span(200, 204))
	if got := b.cachedBlocks(span(0, 8)); got != 1 {
		t.Errorf("%d blocks of the oldest prompt are left, want its first one", got)
	}
	if got := b.cachedBlocks(span(100, 108)); got != 2 {
		t.Errorf("%d blocks of the younger prompt are left, want 2", got)
	}
}

func TestBlocks_DiscardedContentsAreNotFound(t *testing.T) {
	b := newBlocks(4, 4)
	table, _, _ := b.open(span(0, 10), 0)
	b.commit(&table, span(0, 10))
	b.discard(&table)
	if _, cached, _ := b.open(span(0, 10), 9); cached != 0 {
		t.Errorf("%d positions of a discarded sequence were reused", cached)
	}
}

func TestBlocks_OpenTakesAllOrNothing(t *testing.T) {
	b := newBlocks(4, 4)
	table, _, _ := b.open(span(0, 8), 0)
	b.close(&table, span(0, 8)) // two idle, two free
	if _, _, ok := b.open(span(0, 20), 19); ok {
		t.Fatal("five blocks were found in four")
	}
	if got := b.available(); got != 4 {
		t.Errorf("%d blocks are available after a refusal, want 4", got)
	}
	if _, cached, ok := b.open(span(0, 16), 15); !ok || cached != 8 {
		t.Errorf("open: cached %d, ok %v, want 8, true", cached, ok)
	}
}

// checkBlocks compares the books with the tables that are open.
func checkBlocks(t interface{ Fatalf(string, ...any) }, b *blocks, open ...*blockTable) {
	refs := make([]int, len(b.all)-1)
	for _, table := range open {
		for _, id := range table.ids {
			refs[id]++
		}
	}
	state := make([]string, len(refs))
	enter := func(id int32, name string) {
		if state[id] != "" {
			t.Fatalf("block %d is %s and %s", id, state[id], name)
		}
		state[id] = name
	}
	for _, id := range b.free {
		enter(id, "free")
	}
	for id := b.fresh; id < b.count(); id++ {
		enter(int32(id), "free")
	}
	ring, idle := int32(len(refs)), 0
	for id := b.all[ring].next; id != ring; id = b.all[id].next {
		enter(id, "idle")
		idle++
	}
	if idle != b.idle {
		t.Fatalf("%d blocks are idle, the books say %d", idle, b.idle)
	}
	for id := range refs {
		if b.all[id].refs != refs[id] {
			t.Fatalf("block %d has %d owners, the books say %d", id, refs[id], b.all[id].refs)
		}
		if refs[id] > 0 {
			enter(int32(id), "in use")
		}
		if state[id] == "" {
			t.Fatalf("block %d is lost", id)
		}
	}
	for key, id := range b.complete {
		if b.all[id].key != key || b.all[id].content == 0 || state[id] == "free" {
			t.Fatalf("block %d, %s, is found under a key that is not its own", id, state[id])
		}
	}
	for before, ids := range b.tails {
		for _, id := range ids {
			if state[id] != "idle" || b.all[id].before != before || len(b.all[id].tail) == 0 || len(b.all[id].tail) >= b.size {
				t.Fatalf("block %d, %s, is no partly filled block", id, state[id])
			}
		}
	}
}

// TestBlocks_Model drives blocks like a scheduler that runs many sequences, beside
// a memory that remembers which token each position of each block really holds.
func TestBlocks_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 4).Draw(t, "size")
		b := newBlocks(rapid.IntRange(1, 12).Draw(t, "blocks"), size)
		memory := map[int32][]history{}
		type live struct {
			table    blockTable
			tokens   []int32
			computed int
		}
		var open []*live
		write := func(s *live, n int) {
			for ; n > 0; n-- {
				id, at := s.table.ids[s.computed/size], s.computed%size
				if b.all[id].refs != 1 {
					t.Fatalf("position %d is written into block %d of %d owners", s.computed, id, b.all[id].refs)
				}
				if memory[id] == nil {
					memory[id] = make([]history, size)
				}
				memory[id][at] = historyOf(s.tokens[:s.computed+1])
				s.computed++
			}
		}
		check := func(*rapid.T) {
			var tables []*blockTable
			for _, s := range open {
				tables = append(tables, &s.table)
				for pos := range s.computed {
					if memory[s.table.ids[pos/size]][pos%size] != historyOf(s.tokens[:pos+1]) {
						t.Fatalf("position %d of %v reads another sequence's work", pos, s.tokens)
					}
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
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"open": func(t *rapid.T) {
				tokens := rapid.SliceOfN(rapid.Int32Range(0, 1), 1, 12).Draw(t, "tokens")
				reusable := rapid.IntRange(0, len(tokens)-1).Draw(t, "reusable")
				before := b.available()
				table, cached, ok := b.open(tokens, reusable)
				if !ok {
					if b.available() != before {
						t.Fatalf("a refusal cost %d blocks", before-b.available())
					}
					return
				}
				if cached > reusable {
					t.Fatalf("%d positions reused where %d were allowed", cached, reusable)
				}
				open = append(open, &live{table, tokens, cached})
			},
			"compute": func(t *rapid.T) {
				s := open[pick(t)]
				write(s, rapid.IntRange(0, len(s.tokens)-s.computed).Draw(t, "rows"))
				b.commit(&s.table, s.tokens[:s.computed])
			},
			"append": func(t *rapid.T) {
				s := open[pick(t)]
				if b.grow(&s.table, len(s.tokens)+1) {
					s.tokens = append(slices.Clone(s.tokens), rapid.Int32Range(0, 1).Draw(t, "token"))
				} else if b.available() > 0 {
					t.Fatalf("could not grow with %d blocks available", b.available())
				}
			},
			"cut": func(t *rapid.T) {
				i := pick(t)
				s := open[i]
				n := rapid.IntRange(0, s.computed).Draw(t, "positions")
				kept := b.truncate(&s.table, n)
				if kept > n || n-kept >= size {
					t.Fatalf("a cut to %d positions kept %d of them", n, kept)
				}
				s.tokens, s.computed = s.tokens[:max(n, 1)], kept
				if !b.grow(&s.table, len(s.tokens)) { // what it gave back belongs to another now
					b.close(&s.table, s.tokens[:s.computed])
					open = slices.Delete(open, i, i+1)
				}
			},
			"close": func(t *rapid.T) {
				i := pick(t)
				b.close(&open[i].table, open[i].tokens[:open[i].computed])
				open = slices.Delete(open, i, i+1)
			},
			"discard": func(t *rapid.T) {
				i := pick(t)
				b.discard(&open[i].table)
				open = slices.Delete(open, i, i+1)
			},
		})
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
