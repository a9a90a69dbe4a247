package engine

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// turn is how many steps a sequence keeps its place at most while another one waits for it.
const turn = 16

// load is a scheduler with sequences that end at a length, and counts what it does.
type load struct {
	*scheduler
	t     *testing.T
	goals map[*sequence]int // tokens of the answer
	next  int32             // first token of the next prompt, so that no two have a prefix in common
	steps int
	rows  int         // computed
	began []*sequence // in the order in which they first ran
	ended []*sequence
}

func newLoad(t *testing.T, l limits, blocks int) *load {
	return &load{scheduler: newTestScheduler(l, blocks, 32), t: t, goals: map[*sequence]int{}}
}

// ask adds an answer of n tokens to a prompt of some, as client's number sibling of one request.
func (l *load) ask(client string, sibling, prompt, n int) *sequence {
	q := newSequence("m", span(l.next, l.next+int32(prompt)), false)
	l.next += int32(prompt)
	q.client, q.sibling = client, sibling
	l.goals[q] = n
	l.add(q)
	return q
}

// step computes one step.
func (l *load) step() {
	l.t.Helper()
	plan := l.schedule()
	if len(plan) == 0 && len(l.waiting) > 0 {
		l.t.Fatalf("nothing runs although %d wait", len(l.waiting))
	}
	l.steps++
	for _, part := range plan {
		l.rows += part.rows
		if !slices.Contains(l.began, part.seq) {
			l.began = append(l.began, part.seq)
		}
	}
	l.advance(plan, 0)
	for _, part := range plan {
		q := part.seq
		if q.missing() > 0 {
			continue
		}
		if q.tokens = append(slices.Clip(q.tokens), 7); len(q.tokens)-q.prompt == l.goals[q] {
			l.ended = append(l.ended, q)
			l.remove(q, true)
		}
	}
}

// until takes steps until done, at most most, and returns how many.
func (l *load) until(done func() bool, most int) int {
	l.t.Helper()
	for n := 0; ; n++ {
		if done() {
			return n
		}
		if n == most {
			l.t.Fatalf("not done after %d steps: %d run, %d wait", most, len(l.running), len(l.waiting))
		}
		l.step()
	}
}

func (l *load) all() bool { return len(l.ended) == len(l.goals) }

// needed is how many rows there are if none is computed twice: the last token of an
// answer is not.
func (l *load) needed() (rows int) {
	for q, n := range l.goals {
		rows += q.prompt + n - 1
	}
	return rows
}

func TestTurns_AShortAnswerBeginsWithinFewStepsBehindLongOnes(t *testing.T) {
	const long, places = 500, 16
	behind := func(n int) int { return (n/places + 1) * turn } // each of n has one turn first
	for _, tt := range []struct {
		name     string
		asks     int // requests of another client
		siblings int // answers to each
		own      int // a turn of each of so many comes first where they are of the same client
	}{
		{"16 long answers", 16, 1, 0},
		{"60 long answers", 60, 1, 44},
		{"200 long answers", 200, 1, 184},
		{"2 requests for 128 answers", 2, 128, 0},
	} {
		for _, client := range []string{"another", "the same"} {
			t.Run(fmt.Sprintf("%s of %s client", tt.name, client), func(t *testing.T) {
				l := newLoad(t, limits{places, 256, 48}, 16*8192/32)
				for range tt.asks {
					for i := range tt.siblings {
						l.ask("the same", i, 8, long)
					}
				}
				l.step() // all places are taken, and nobody's turn is over
				bound := turn
				short := l.ask("short", 0, 8, 3)
				if client == "the same" {
					short.client, bound = client, behind(tt.own)
				}
				waited := l.until(func() bool { return slices.Contains(l.began, short) }, 1000)
				wrote := l.until(func() bool { return slices.Contains(l.ended, short) }, 1000)
				if waited > bound+1 || wrote > turn {
					t.Errorf("it begins after %d steps and ends %d later, want at most %d and %d", waited, wrote, bound+1, turn)
				}
				l.until(l.all, 20000)
				if l.rows != l.needed() {
					t.Errorf("%d rows were computed for %d", l.rows, l.needed())
				}
				t.Logf("it begins after %d steps, ends %d later; all after %d steps and %d rows", waited, wrote, l.steps, l.rows)
			})
		}
	}
}

func TestTurns_ClientsShareThePlacesEvenly(t *testing.T) {
	l := newLoad(t, limits{16, 256, 48}, 4096)
	counts := func() string { return fmt.Sprint(l.countClients()) }
	for range 60 {
		l.ask("a", 0, 8, 400)
	}
	l.step()
	for _, tt := range []struct {
		client string
		want   string
	}{
		{"b", "map[a:8 b:8]"},
		{"c", "map[a:5 b:5 c:6]"},
		{"d", "map[a:4 b:4 c:4 d:4]"},
	} {
		for range 60 {
			l.ask(tt.client, 0, 8, 400)
		}
		for range turn + 1 {
			l.step()
		}
		sum, least, most := 0, 16, 0
		for _, n := range l.countClients() {
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		if sum != 16 || most-least > 1 {
			t.Errorf("with %s the places are %s, want some like %s", tt.client, counts(), tt.want)
		}
	}
}

func TestTurns_MoreClientsThanPlacesTakeTurns(t *testing.T) {
	l := newLoad(t, limits{2, 64, 8}, 1024)
	var all []*sequence
	for _, client := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, l.ask(client, 0, 4, 200))
	}
	for range 200 {
		l.step()
		least, most := 1<<30, 0
		for _, q := range all {
			n := len(q.tokens) - q.prompt
			least, most = min(least, n), max(most, n)
		}
		if most-least > 2*turn {
			t.Fatalf("after %d steps one has %d tokens and another %d, want them within %d", l.steps, most, least, 2*turn)
		}
	}
	l.until(l.all, 1000)
	if l.rows != l.needed() {
		t.Errorf("%d rows were computed for %d", l.rows, l.needed())
	}
}

func TestTurns_TheAnswersOfOneClientEndInTheOrderOfTheirArrival(t *testing.T) {
	for _, places := range []int{1, 4} {
		l := newLoad(t, limits{places, 64, 8}, 4096)
		var all []*sequence
		for range 20 {
			all = append(all, l.ask("a", 0, 8, 100))
		}
		l.until(l.all, 20*100*2)
		if !slices.Equal(l.ended, all) {
			t.Errorf("with %d places they end in another order", places)
		}
		// Every answer had its first words early, at the cost of nothing.
		if l.rows != l.needed() {
			t.Errorf("with %d places %d rows were computed for %d", places, l.rows, l.needed())
		}
	}
}

func TestTurns_NobodyStarves(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flood func(i int) string // the client of arrival i
		per   int                // steps between two
	}{
		{"beside new requests of its own client", func(int) string { return "a" }, 3},
		{"beside those of one other client", func(int) string { return "b" }, 3},
		{"beside a new client with each", func(i int) string { return fmt.Sprint("client ", i) }, 3},
		{"beside more than can be answered", func(int) string { return "a" }, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const places, long = 2, 300
			l := newLoad(t, limits{places, 64, 8}, 8192)
			q := l.ask("a", 0, 8, long)
			at := 0
			l.until(func() bool {
				if l.steps%tt.per == 0 && at < 3000 {
					l.ask(tt.flood(at), 0, 4, 5)
					at++
				}
				return slices.Contains(l.ended, q)
			}, 20*long)
			t.Logf("%d tokens took %d steps", long, l.steps)
		})
	}
}

// What changes places keeps its memory only as long as there is enough.
func TestTurns_ShortMemoryIsNotSpentOnTurns(t *testing.T) {
	const places, prompt, answer = 4, 256, 128
	needs := (prompt + answer + 31) / 32
	for _, blocks := range []int{places * needs, places*needs + 5, 2 * places * needs} {
		l := newLoad(t, limits{places, 64, 8}, blocks)
		for range 24 {
			l.ask("a", 0, prompt, answer)
		}
		l.until(l.all, 10000)
		if wasted := l.rows - l.needed(); wasted > l.needed()/20 {
			t.Errorf("with %d blocks %d rows were computed for %d", blocks, l.rows, l.needed())
		}
		if n := l.blocks.pools[0].available(); n != blocks {
			t.Errorf("%d of %d blocks are free at the end", n, blocks)
		}
	}
}

// The memory for the cache is looked up in steps that are much smaller than the cache.
func TestTurns_AShortAnswerBeginsSoonWhileTheCacheGrows(t *testing.T) {
	l := newLoad(t, limits{4, 64, 8}, 1000)
	l.blocks.pools[0].growBy(func(n int) int { return max(n, 2) })
	for range 4 {
		l.ask("a", 0, 32, 90)
	}
	for range turn + 4 {
		l.step()
	}
	short := l.ask("a", 0, 32, 3)
	for range turn + 2 {
		l.step()
	}
	if !slices.Contains(l.began, short) {
		t.Error("it waits for longer than a turn")
	}
	l.until(l.all, 1000)
	if wasted := l.rows - l.needed(); wasted > 0 {
		t.Errorf("%d rows were computed twice", wasted)
	}
}

// One client has filled the memory; another one's request costs it one answer, once.
func TestTurns_AnotherClientGetsMemoryToo(t *testing.T) {
	l := newLoad(t, limits{4, 64, 8}, 40)
	for range 8 {
		l.ask("a", 0, 256, 60) // 8 to 10 blocks each
	}
	l.until(func() bool { return l.blocks.pools[0].available() == 0 }, 100)
	short := l.ask("b", 0, 64, 3)
	waited := l.until(func() bool { return slices.Contains(l.began, short) }, 1000)
	if waited > turn+1 {
		t.Errorf("it begins after %d steps, want at most %d", waited, turn+1)
	}
	l.until(l.all, 5000)
	if n := l.blocks.pools[0].available(); n != 40 {
		t.Errorf("%d of 40 blocks are free at the end", n)
	}
}

func TestTurns_TheQueueTellsWhoComesNext(t *testing.T) {
	l := newLoad(t, limits{2, 64, 8}, 4096)
	names := map[*sequence]string{}
	ask := func(client string, sibling int) {
		names[l.ask(client, sibling, 4, 40)] = fmt.Sprint(client, len(names))
	}
	for range 4 {
		ask("a", 0)
	}
	l.step() // a0 and a1 run
	for i := range 3 {
		ask("b", i)
	}
	ask("c", 0)
	ask("b", 0)
	l.step()
	order := func() (order []string) {
		for _, q := range l.waiting {
			order = append(order, names[q])
		}
		return order
	}
	// One of each client first, of b its new request before the rest of its old one, and a
	// has two running.
	if got, want := fmt.Sprint(order()), "[b4 c7 b8 a2 b5 a3 b6]"; got != want {
		t.Errorf("the queue is %s, want %s", got, want)
	}
	for range turn {
		l.step()
	}
	// b4 and c7 have the places, and a's answers wait behind the next of each.
	if got, want := fmt.Sprint(order()), "[a2 a3 b8 b5 a1 b6 a0]"; len(l.running) != 2 || names[l.running[0]]+names[l.running[1]] != "b4c7" {
		t.Errorf("%d run and the queue is %s, want b4 and c7 to run and %s", len(l.running), got, want)
	}
}

func TestTurns_AnotherModelWaitsForThoseThatGaveWay(t *testing.T) {
	l := newLoad(t, limits{1, 64, 8}, 1024)
	first := l.ask("a", 0, 4, 60)
	l.step()
	short := l.ask("b", 0, 4, 3)
	l.until(func() bool { return slices.Contains(l.began, short) }, turn+1)
	other := l.ask("c", 0, 4, 3)
	other.modelKey = "n"
	late := l.ask("d", 0, 4, 3)
	l.until(func() bool { return l.wanted() != nil }, 200)
	if l.wanted() != other || !slices.Equal(l.ended, []*sequence{short, first}) {
		t.Errorf("%d answers ended before the other model, want the short one and the one that gave way to it", len(l.ended))
	}
	if slices.Contains(l.began, late) {
		t.Error("one that came after it ran before it")
	}
}

// After 12 long answers of one client, a short one begins when a turn is over if it is of another
// client, or the first of its request where they are the later ones of theirs.
func TestTurns_FollowTheClientAndTheNumberOfARequest(t *testing.T) {
	for _, c := range []struct {
		name            string
		client, another string
		sibling         func(i int) int // number of long answer i in its request
		soon            bool
	}{
		{"another client", "many", "one", func(int) int { return 0 }, true},
		{"the same client", "many", "many", func(int) int { return 0 }, false},
		{"the same client, whose answers are those of one request", "many", "many", func(i int) int { return i }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := make(gate)
				b := newBench(t, func(b *bench, o *Options) { o.Parallel, b.onStep = 1, g.wait })
				long := make([]*stream, 12)
				for i := range long {
					r := request(span(int32(10*i), int32(10*i+4)), 40)
					r.Client, r.Sibling = c.client, c.sibling(i)
					long[i] = b.stream(r, nil)
				}
				g.next(1)
				r := request(span(200, 204), 3)
				r.Client = c.another
				short := b.stream(r, nil)
				g.next(2*turn + 3)
				ended := false
				select {
				case <-short.ended:
					ended = true
				default:
				}
				if ended != c.soon {
					t.Errorf("that it has ended after %d steps is %v", 2*turn+4, ended)
				}
				g.open()
				<-short.ended
				for _, s := range long {
					<-s.ended
				}
			})
		})
	}
}

func TestInbox_AShortQueueLeavesPlacesToOthersToo(t *testing.T) {
	b := newInbox(8)
	for b.enter("greedy") == nil {
	}
	if b.count != 8 {
		t.Errorf("one client has %d places, want 8", b.count)
	}
	for _, client := range []string{"another", "a third"} {
		if err := b.enter(client); err != nil {
			t.Errorf("%s found no place: %v", client, err)
		}
		if b.enter(client) == nil {
			t.Errorf("%s has two of the places that are left for others", client)
		}
	}
	if b.enter("a fourth") == nil {
		t.Error("more than a quarter is let in above the limit")
	}
}

func TestInbox_OneClientLeavesPlacesToOthers(t *testing.T) {
	b := newInbox(272)
	enter := func(client string, n int) (let int) {
		for range n {
			if b.enter(client) == nil {
				let++
			}
		}
		return let
	}
	for _, tt := range []struct {
		client string
		tries  int
		want   int
	}{
		{"greedy", 400, 272},
		{"another", 10, 4},
		{"a third", 1, 1},
		{"greedy", 1, 0},
	} {
		if got := enter(tt.client, tt.tries); got != tt.want {
			t.Errorf("%d of %d requests of %s are let in, want %d", got, tt.tries, tt.client, tt.want)
		}
	}
	for i := range 100 {
		enter(fmt.Sprint("client ", i), 4)
	}
	if b.count != 272+68 {
		t.Errorf("%d requests are inside, want at most %d", b.count, 272+68)
	}
	for client, n := range b.byClient {
		for range n {
			b.leave(client)
		}
	}
	if b.count != 0 || len(b.byClient) != 0 {
		t.Errorf("%d requests of %d clients are inside at the end", b.count, len(b.byClient))
	}
}
