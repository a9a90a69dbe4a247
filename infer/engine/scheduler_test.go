package engine

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// newTestScheduler returns a scheduler whose resident model is "m".
func newTestScheduler(l limits, blockCount, blockSize int) *scheduler {
	s := &scheduler{limits: l}
	s.reset("m", newBlocks(blockSize, l.Rows, groupSize{blocks: blockCount}))
	s.alone.rows, s.sharing.rows = l.Rows, max(1, l.Rows/4)
	return s
}

// run computes a plan and appends a token to every sequence that is done with its
// own.
func (s *scheduler) run(plan []scheduled) {
	s.advance(plan, 0)
	for _, part := range plan {
		if part.seq.missing() == 0 {
			part.seq.tokens = append(part.seq.tokens, 7)
		}
	}
}

// rows lists the rows of a plan in the order of its sequences.
func rows(plan []scheduled) []int {
	var n []int
	for _, part := range plan {
		n = append(n, part.rows)
	}
	return n
}

func TestScheduler_DividesAStep(t *testing.T) {
	tests := []struct {
		name    string
		limits  limits
		decode  int   // sequences in decode
		prompts []int // sequences in prefill, by the length of their prompt
		scoring bool  // these want their prompt scored
		want    []int
	}{
		{"one prompt gets the whole step", limits{4, 16, 4}, 0, []int{40}, false, []int{16}},
		{"a prompt shorter than the step gets what it needs", limits{4, 16, 4}, 0, []int{5}, false, []int{5}},
		{"prompts share the step evenly", limits{4, 16, 4}, 0, []int{40, 40}, false, []int{8, 8}},
		{"what a short prompt leaves goes to the long ones", limits{4, 16, 4}, 0, []int{40, 3, 40}, false, []int{6, 3, 7}},
		{"every sequence in decode gets one row and prefill is held back", limits{4, 16, 4}, 2, []int{40}, false, []int{1, 1, 2}},
		{"prefill is never held back entirely", limits{4, 8, 4}, 1, []int{40, 40}, false, []int{1, 1, 1}},
		{"a full step gives every sequence one row", limits{4, 4, 4}, 2, []int{40, 40}, false, []int{1, 1, 1, 1}},
		{"decode alone takes one row each", limits{4, 16, 4}, 3, nil, false, []int{1, 1, 1}},
		{"a prompt that is scored gets as many rows as there are logits", limits{4, 16, 6}, 0, []int{40}, true, []int{6}},
		{"prompts that are scored share the logits", limits{4, 16, 8}, 0, []int{40, 40}, true, []int{4, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestScheduler(tt.limits, 64, 4)
			for i := range tt.decode {
				s.add(newSequence("m", span(int32(1000*i), int32(1000*i)+1), false))
			}
			if tt.decode > 0 {
				s.run(s.schedule())
			}
			for i, n := range tt.prompts {
				s.add(newSequence("m", span(int32(100*i), int32(100*i+n)), tt.scoring))
			}
			if got := rows(s.schedule()); !slices.Equal(got, tt.want) {
				t.Errorf("rows %v, want %v", got, tt.want)
			}
		})
	}
}

// Rows of a picture that see each other are computed in one step, also where they are more than the share of their sequence. The next one got less than no row then.
func TestScheduler_APictureThatTakesMoreThanItsShareLeavesOneRowForEachOther(t *testing.T) {
	s := newTestScheduler(limits{4, 16, 4}, 64, 4)
	s.add(newSequence("m", span(1000, 1001), false))
	s.run(s.schedule())
	picture := newSequence("m", span(0, 14), false)
	picture.pictures = []pictureSpan{{seenPicture: &seenPicture{first: -1}, rows: 12, attend: true}}
	s.add(picture)
	s.add(newSequence("m", span(100, 140), false))
	if got, want := rows(s.schedule()), []int{1, 12, 1}; !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
}

func TestScheduler_AdmitsInOrder(t *testing.T) {
	s := newTestScheduler(limits{2, 64, 8}, 16, 4)
	var q []*sequence
	for i := range 3 {
		q = append(q, newSequence("m", span(int32(100*i), int32(100*i+4)), false))
		s.add(q[i])
	}
	s.run(s.schedule())
	if !slices.Equal(s.running, q[:2]) || !slices.Equal(s.waiting, q[2:]) {
		t.Fatalf("%d run and %d wait, want the first two to run", len(s.running), len(s.waiting))
	}
	s.remove(q[0], true)
	s.run(s.schedule())
	if !slices.Equal(s.running, q[1:]) {
		t.Errorf("the third does not run in the place of the first")
	}
}

func TestScheduler_AnotherModelWaitsForTheRunningAnswersAndHoldsUpThoseBehind(t *testing.T) {
	s := newTestScheduler(limits{4, 64, 8}, 16, 4)
	first, other, last := newSequence("m", span(0, 4), false), newSequence("n", span(0, 4), false), newSequence("m", span(0, 4), false)
	s.add(first)
	s.add(other)
	s.add(last)
	s.run(s.schedule())
	if len(s.running) != 1 || s.wanted() != nil {
		t.Fatalf("%d run, wanted is %v; want the first alone to run", len(s.running), s.wanted())
	}
	s.remove(first, true)
	if s.wanted() != other {
		t.Fatalf("the other model is not wanted when nothing runs")
	}
	s.reset("n", oneGroup(16, 4))
	s.run(s.schedule())
	if !slices.Equal(s.running, []*sequence{other}) {
		t.Errorf("%d run, want the one for the new model", len(s.running))
	}
}

func TestScheduler_SeveralAnswersToOnePromptCostOnePrefill(t *testing.T) {
	s := newTestScheduler(limits{4, 8, 8}, 64, 4)
	for i := range 4 {
		q := newSequence("m", span(0, 22), false)
		q.sibling = i
		s.add(q)
	}
	s.add(newSequence("m", span(500, 505), false)) // an unrelated one need not wait
	computed := 0
	for range 20 {
		plan := s.schedule()
		for _, part := range plan {
			computed += min(part.rows, max(0, part.seq.prompt-part.seq.computed))
		}
		s.run(plan)
	}
	// The first computes all of its prompt, the unrelated one too. Two more have
	// places, and compute what follows the last complete block.
	if want := 22 + 5 + 2*(22-20); len(s.running) != 4 || computed != want {
		t.Errorf("%d prompt tokens computed by %d sequences, want %d by 4", computed, len(s.running), want)
	}
}

func TestScheduler_TheYoungestGivesWayWhenMemoryRunsOut(t *testing.T) {
	s := newTestScheduler(limits{2, 64, 8}, 4, 4)
	old, young, next := newSequence("m", span(0, 7), false), newSequence("m", span(100, 107), false), newSequence("m", span(200, 207), false)
	s.add(old)
	s.add(young)
	s.add(next)
	for range 3 { // 7, 8, 9: the third token needs a third block
		s.run(s.schedule())
	}
	if !slices.Equal(s.running, []*sequence{old}) || !slices.Equal(s.waiting, []*sequence{young, next}) {
		t.Fatalf("%d run and %d wait, want the older to run alone and the younger to be the next", len(s.running), len(s.waiting))
	}
	if young.computed != 0 || !young.table.empty() {
		t.Errorf("the younger keeps %v", young.table)
	}
	s.remove(old, true)
	s.run(s.schedule())
	if s.running[0] != young {
		t.Errorf("the younger does not run again")
	}
}

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name string
		used int
		took time.Duration
		want int
	}{
		{"a step that took too long halves it", 32, 101 * ms, 16},
		{"a step that took too long with less halves it too", 5, 101 * ms, 16},
		{"a step in good time leaves it", 32, 100 * ms, 32},
		{"a step in half the time leaves it", 32, 50 * ms, 32},
		{"a quick step doubles it", 32, 49 * ms, 64},
		{"a quick step that did less proves nothing", 31, 1 * ms, 32},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := pace{32, 1, 100}
			if p.learn(tt.used, tt.took, 100*ms); p.rows != tt.want {
				t.Errorf("%d rows, want %d", p.rows, tt.want)
			}
		})
	}
	p := pace{32, 20, 40}
	for range 3 {
		p.learn(32, time.Second, 100*ms)
	}
	if p.rows != 20 {
		t.Errorf("%d rows after slow steps, want the least, 20", p.rows)
	}
	for range 3 {
		p.learn(40, 0, 100*ms)
	}
	if p.rows != 40 {
		t.Errorf("%d rows after quick steps, want the most, 40", p.rows)
	}
}

func TestScheduler_LearnsItsPace(t *testing.T) {
	for name, row := range map[string]time.Duration{"a slow CPU": 10 * time.Millisecond, "a fast CPU": 2 * time.Millisecond, "a GPU": 100 * time.Microsecond} {
		t.Run(name, func(t *testing.T) {
			s := &timedScheduler{scheduler: &scheduler{limits: limits{4, 256, 8}}, takes: linear(row, row)}
			s.reset("m", oneGroup(4096, 4))
			s.prompts(1, 2000)
			for range 3 {
				s.step()
			}
			before := s.now
			if s.step(); s.now-before > chunkTime {
				t.Errorf("a chunk takes %v after three, want at most %v", s.now-before, chunkTime)
			}
		})
	}
}

func TestSequence_Reusable(t *testing.T) {
	tests := []struct {
		name    string
		scoring bool
		scored  int
		want    int
	}{
		{"all but the last token, whose logits are wanted", false, 1, 4},
		{"nothing while no token of the prompt is scored", true, 1, 0},
		{"what lies in front of the next score", true, 3, 2},
		{"all but the last token once the prompt is scored", true, 5, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := newSequence("m", span(0, 5), tt.scoring)
			q.scored = tt.scored
			if got := q.reusable(); got != tt.want {
				t.Errorf("reusable %d, want %d", got, tt.want)
			}
		})
	}
}

// TestScheduler_Model lets requests come, grow, end and be cancelled in any order and
// holds every step to what the scheduler promises.
func TestScheduler_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 4).Draw(t, "block size")
		most := rapid.IntRange(2, 40).Draw(t, "positions") // that the longest sequence may have
		sequences := rapid.IntRange(1, 4).Draw(t, "sequences")
		l := limits{
			Answers: sequences,
			Rows:    sequences + rapid.IntRange(0, 8).Draw(t, "spare rows"),
		}
		l.Logits = min(l.Rows, sequences+rapid.IntRange(0, 3).Draw(t, "spare logits"))
		s := newTestScheduler(l, 1, size)
		s.blocks = newBlocks(size, l.Rows, drawGroups(t, size, l.Rows, most)...)
		s.promptsApart = rapid.Bool().Draw(t, "prompts apart")
		s.streams = s.promptsApart && rapid.Bool().Draw(t, "streams")
		memory := blockMemory{}
		compute := func(plan []scheduled) {
			for _, part := range plan {
				q := part.seq
				if first, last := q.computed, q.computed+part.rows-1; s.promptsApart && plan[0].seq.readsPrompt() != (first < q.answerRows()) || (first < q.answerRows()) != (last < q.answerRows()) && s.promptsApart {
					t.Fatalf("a step has rows of the prompt and of the answer, which begin at %d: those from %d to %d", q.answerRows(), first, last)
				}
				tokens := slices.Clone(q.tokens)
				for pos := q.prompt - q.sampled; s.promptsApart && pos < len(tokens); pos++ {
					tokens[pos] += 2 // the same token, computed in another way
				}
				memory.compute(t, s.blocks, &q.table, tokens, q.computed, part.rows)
			}
		}
		all := map[*sequence]bool{}
		pick := func(t *rapid.T) *sequence {
			live := slices.Concat(s.running, s.waiting)
			if len(live) == 0 {
				t.Skip("nothing lives")
			}
			return rapid.SampledFrom(live).Draw(t, "sequence")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				var tables []*blockTable
				for q := range all {
					tables = append(tables, &q.table)
				}
				checkBlocks(t, s.blocks, tables...)
				if len(s.running)+len(s.waiting) != len(all) {
					t.Fatalf("%d run and %d wait of %d", len(s.running), len(s.waiting), len(all))
				}
			},
			"add": func(t *rapid.T) {
				prompt := rapid.SliceOfN(rapid.Int32Range(0, 1), 1, max(1, most-1)).Draw(t, "prompt")
				q := newSequence("m", prompt, rapid.Bool().Draw(t, "scoring"))
				q.client = rapid.SampledFrom([]string{"a", "a", "b", "c"}).Draw(t, "client")
				q.sibling = rapid.IntRange(0, 2).Draw(t, "sibling")
				if q.promptsApart = s.promptsApart; q.promptsApart {
					q.sampled = rapid.IntRange(0, len(prompt)).Draw(t, "sampled")
				}
				all[q] = true
				s.add(q)
			},
			"end": func(t *rapid.T) {
				q := pick(t)
				delete(all, q)
				s.remove(q, rapid.Bool().Draw(t, "keep"))
			},
			"rewind": func(t *rapid.T) {
				q := pick(t)
				if q.computed > q.prompt && !q.unscored() {
					q.tokens = slices.Clip(q.tokens[:rapid.IntRange(q.prompt, q.computed-1).Draw(t, "tokens")])
					s.rewind(q)
				}
			},
			"step": func(t *rapid.T) {
				before := slices.Clone(s.running)
				inTurn := len(before) > 0 && before[0].steps < sliceSteps
				plan := s.schedule()
				total, logits := 0, 0
				together := slices.Clone(s.running)
				if isPrompt := func(q *sequence) bool { return q.computed < q.prompt-q.sampled }; s.promptsApart && slices.ContainsFunc(together, isPrompt) {
					answers := s.sharing.pays() && slices.ContainsFunc(together, func(q *sequence) bool { return !isPrompt(q) })
					together = slices.DeleteFunc(together, func(q *sequence) bool { return isPrompt(q) == answers })
				}
				computes := slices.DeleteFunc(slices.Clone(together), func(q *sequence) bool {
					return s.sharing.pays() && q.missing() > 1 && (!s.promptsApart || !plan[0].seq.readsPrompt()) && slices.ContainsFunc(together, func(q *sequence) bool { return q.missing() == 1 })
				})
				for i, part := range plan {
					q := part.seq
					if i >= len(computes) || q != computes[i] {
						t.Fatalf("share %d is not of the sequence that runs there", i)
					}
					if part.rows < 1 || part.rows > q.missing() {
						t.Fatalf("%d rows for a sequence that misses %d", part.rows, q.missing())
					}
					total += part.rows
					for pos := q.computed; pos < q.computed+part.rows; pos++ {
						if q.scores(pos) || pos == len(q.tokens)-1 {
							logits++
						}
					}
				}
				if len(plan) != len(computes) || len(plan) > l.Answers || total > l.Rows || logits > l.Logits {
					t.Fatalf("%d of %d sequences, %d rows, %d logits exceed %+v", len(plan), len(computes), total, logits, l)
				}
				if len(all) > 0 && len(plan) == 0 {
					t.Fatalf("nothing runs although %d wait", len(s.waiting))
				}
				if inTurn && s.running[0] != before[0] {
					t.Fatalf("the oldest gave way before its turn was over")
				}
				compute(plan)
				s.advance(plan, time.Duration(rapid.IntRange(0, 300).Draw(t, "took"))*time.Millisecond)
				for _, part := range plan {
					q := part.seq
					for q.unscored() && q.scored <= q.computed {
						q.scored++
					}
					if q.missing() > 0 {
						continue
					}
					if len(q.tokens) == most {
						delete(all, q)
						s.remove(q, true)
						continue
					}
					q.tokens = append(slices.Clip(q.tokens), rapid.Int32Range(0, 1).Draw(t, "token"))
				}
			},
		})
		// Whatever happened, everyone gets to the end.
		for steps := 0; len(all) > 0; steps++ {
			if steps > 200*(most+1) {
				t.Fatalf("%d sequences do not end", len(all))
			}
			plan := s.schedule()
			compute(plan)
			s.advance(plan, 0)
			for _, part := range plan {
				q := part.seq
				for q.unscored() && q.scored <= q.computed {
					q.scored++
				}
				if q.missing() > 0 {
					continue
				}
				if len(q.tokens) == most {
					delete(all, q)
					s.remove(q, true)
				} else {
					q.tokens = append(slices.Clip(q.tokens), 1)
				}
			}
		}
		for _, p := range s.blocks.pools {
			if p.available() != p.count() {
				t.Fatalf("%d of %d blocks of group %d are available at the end", p.available(), p.count(), p.group)
			}
		}
	})
}

func TestScheduler_TextsGiveBackWhatIsBehindTheirWindow(t *testing.T) {
	for name, whole := range map[string]bool{"in chunks": false, "whole": true} {
		t.Run(name, func(t *testing.T) {
			const rows, size, window, length = 8, 4, 8, 200
			step := rows
			if whole {
				step = length
			}
			most := spanOf(window, step, size)
			s := &scheduler{limits: limits{2, step, step}}
			s.reset("m", newBlocks(size, step, groupSize{blocks: 2 * length / size}, groupSize{blocks: 2 * most, window: window}))
			s.alone.rows, s.sharing.rows = step, step
			var texts []*sequence
			for range 2 {
				q := newSequence("m", span(0, length), false)
				q.unshared, q.whole = true, whole
				texts = append(texts, q)
				s.add(q)
			}
			computed := 0
			for steps := 0; len(s.running)+len(s.waiting) > 0; steps++ {
				plan := s.schedule()
				if len(plan) == 0 || steps > 2*length/rows {
					t.Fatalf("%d tokens were computed in %d steps, and the texts have %d", computed, steps, 2*length)
				}
				for _, part := range plan {
					computed += part.rows
				}
				s.advance(plan, 0)
				for _, q := range texts {
					if q.missing() == 0 {
						s.remove(q, false)
					}
				}
			}
			if computed != 2*length {
				t.Errorf("%d tokens were computed, the texts have %d", computed, 2*length)
			}
			for g, p := range s.blocks.pools {
				if p.available() != p.count() {
					t.Errorf("group %d has %d of %d blocks after the texts", g, p.available(), p.count())
				}
			}
		})
	}
}

func TestScheduler_ClientsTakeTurnsWhereStateSlotsAreFew(t *testing.T) {
	s := newTestScheduler(limits{8, 64, 8}, 64, 4)
	s.useStates(newStates(4, 64, 4))
	add := func(client string, first int32) *sequence {
		q := newSequence("m", span(first, first+6), false)
		q.client = client
		s.add(q)
		return q
	}
	for i := range int32(6) {
		add("first", 100*i)
	}
	s.run(s.schedule())
	if len(s.running) != 3 || s.states.free() == noSlot {
		t.Fatalf("%d run with 4 slots; want 3, and a slot for a snapshot", len(s.running))
	}
	late := add("second", 900)
	for range sliceSteps + 1 {
		s.run(s.schedule())
	}
	if !slices.Contains(s.running, late) {
		t.Error("the second client waits though the time slices of the first are over")
	}
}
