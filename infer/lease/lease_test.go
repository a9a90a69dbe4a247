package lease

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// join returns a holder of t, and a function that ends its worker.
func join(t *testing.T, table *Table) (h *Holder, end func()) {
	t.Helper()
	ours, theirs := net.Pipe()
	table.Join(buffered(ours))
	h = NewHolder(buffered(theirs))
	t.Cleanup(func() { theirs.Close() })
	return h, func() { theirs.Close() }
}

// pipe is a connection whose writes do not wait for the reader, as those of a socket.
type pipe struct {
	net.Conn
	out chan []byte
}

func buffered(c net.Conn) *pipe {
	p := &pipe{c, make(chan []byte, 1<<16)}
	go func() {
		for data := range p.out {
			if _, err := c.Write(data); err != nil {
				return
			}
		}
	}()
	return p
}

func (p *pipe) Write(data []byte) (int, error) {
	p.out <- slices.Clone(data)
	return len(data), nil
}

func TestWorkersThatComputeOnOneDeviceTakeTurnsAndNeverComputeAtOnce(t *testing.T) {
	const workers, steps = 3, 300
	var table Table
	var inside atomic.Int32
	var mu sync.Mutex
	var order []int
	var all, begun sync.WaitGroup
	begun.Add(workers)
	for i := range workers {
		h, _ := join(t, &table)
		all.Go(func() {
			h.Take(CPU, nobody)
			begun.Done()
			h.Release()
			begun.Wait()
			for range steps {
				h.Take(CPU, nobody)
				if inside.Add(1) != 1 {
					t.Error("two workers compute at once")
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				inside.Add(-1)
				h.Release()
			}
		})
	}
	all.Wait()
	if len(order) != workers*steps {
		t.Errorf("%d steps, want %d", len(order), workers*steps)
	}
}

func TestAWorkerThatWaitsGetsTheDeviceAfterOneStepOfTheOther(t *testing.T) {
	var table Table
	a, _ := join(t, &table)
	b, _ := join(t, &table)
	a.Take(CPU, nobody)
	got := make(chan bool)
	go func() { got <- b.Take(CPU, nobody) }()
	until(a.Wanted)
	a.Release()
	if waited := <-got; !waited {
		t.Error("b did not wait for a")
	}
	// Each now wants the device all the time: none has two steps in a row.
	var mu sync.Mutex
	var order strings.Builder
	step := func(name string) {
		mu.Lock()
		order.WriteString(name)
		mu.Unlock()
	}
	var both sync.WaitGroup
	both.Go(func() {
		for range 100 {
			a.Take(CPU, nobody)
			step("a")
			until(func() bool { return a.Wanted() || !hasSteps(&mu, &order, "b") })
			a.Release()
		}
	})
	both.Go(func() {
		for range 100 {
			step("b")
			until(func() bool { return b.Wanted() || !hasSteps(&mu, &order, "a") })
			b.Release()
			b.Take(CPU, nobody)
		}
		b.Release()
	})
	both.Wait()
	if got := order.String(); strings.Contains(got[:190], "aa") || strings.Contains(got[:190], "bb") {
		t.Errorf("steps %s, want them in turn", got)
	}
}

// until waits for a condition.
func until(condition func() bool) {
	for !condition() {
		time.Sleep(20 * time.Microsecond)
	}
}

// hasSteps reports whether one worker has steps left.
func hasSteps(mu *sync.Mutex, order *strings.Builder, name string) bool {
	mu.Lock()
	defer mu.Unlock()
	return strings.Count(order.String(), name) < 100
}

func TestAWorkerAloneSendsNothingBetweenSteps(t *testing.T) {
	ours, theirs := net.Pipe()
	var table Table
	table.Join(ours)
	var sent atomic.Int32
	h := NewHolder(&counting{theirs, &sent})
	defer theirs.Close()
	for i := range 1000 {
		if waited := h.Take(CPU, nobody); waited != (i == 0) {
			t.Fatalf("step %d: waited %v", i, waited)
		}
		h.Release()
	}
	if n := sent.Load(); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

type counting struct {
	net.Conn
	sent *atomic.Int32
}

func (c *counting) Write(data []byte) (int, error) {
	c.sent.Add(1)
	return c.Conn.Write(data)
}

func TestTheDevicesOfAWorkerThatEndsAreFree(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("in the queue %v", waits), func(t *testing.T) {
			var table Table
			a, end := join(t, &table)
			b, _ := join(t, &table)
			a.Take(CPU|GPU, nobody)
			if waits {
				c, endC := join(t, &table)
				go c.Take(GPU, nobody)
				until(a.Wanted)
				endC()
			}
			end()
			b.Take(GPU, nobody) // returns
		})
	}
}

func TestModelsOnDifferentDevicesDoNotWaitForEachOther(t *testing.T) {
	var table Table
	a, _ := join(t, &table)
	b, _ := join(t, &table)
	a.Take(CPU, nobody)
	b.Take(GPU, nobody) // returns though a computes
	if a.Wanted() || b.Wanted() {
		t.Error("one is asked for its device")
	}
	b.Release()
	a.Release()
	if waited := a.Take(CPU|GPU, nobody); !waited {
		t.Error("a has the GPU without having asked for it")
	}
}

// nobody is the clients of a step that serves none.
func nobody(func(Client) bool) {}

// granted is the connection of a worker that notes when it gets a lease.
type granted struct {
	net.Conn
	name string
	log  *[]string
}

func (g granted) Write(data []byte) (int, error) {
	if data[0] == grants {
		*g.log = append(*g.log, g.name)
	}
	return len(data), nil
}

func TestADeviceIsDividedByPersonNotByModel(t *testing.T) {
	ann, bob, eve := ClientOf("ann"), ClientOf("bob"), ClientOf("eve")
	for name, c := range map[string]struct {
		serves [][]Client // by worker
		want   []int      // steps of each of 120
		pause  int        // most steps of others between two of a worker
	}{
		"one person with two models, another with one":              {[][]Client{{ann}, {ann}, {bob}}, []int{30, 30, 60}, 3},
		"one person at each of three models":                        {[][]Client{{ann}, {bob}, {eve}}, []int{40, 40, 40}, 2},
		"a model that serves two people beside that of one of them": {[][]Client{{ann, bob}, {ann}}, []int{60, 60}, 1},
		"steps without people":                                      {[][]Client{nil, {ann}}, []int{60, 60}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var log []string
			var table Table
			var members []*member
			for i, clients := range c.serves {
				m := &member{conn: granted{name: fmt.Sprint(i), log: &log}, want: CPU, serve: clients}
				members = append(members, m)
				table.members = append(table.members, m)
				table.enter(m)
			}
			table.grant()
			for len(log) < 120 {
				last := members[slices.IndexFunc(members, func(m *member) bool { return m.held == CPU })]
				last.held, last.asked = 0, false
				table.grant()
				table.enter(last)
				table.grant()
			}
			got, pause, seen := make([]int, len(members)), 0, make([]int, len(members))
			for at, name := range log[:120] {
				i := int(name[0] - '0')
				if got[i]++; got[i] > 1 {
					pause = max(pause, at-seen[i]-1)
				}
				seen[i] = at
			}
			for i, n := range got {
				if n < c.want[i]-1 || n > c.want[i]+1 {
					t.Errorf("worker %d has %d of 120 steps, want %d", i, n, c.want[i])
				}
			}
			if pause > c.pause {
				t.Errorf("a worker waits for %d steps of others, want at most %d: %s", pause, c.pause, strings.Join(log[:120], ""))
			}
		})
	}
}
