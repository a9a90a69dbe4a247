package compare

import (
	"context"
	"slices"
	"sync"
	"time"

	"m40-llm/handlers/activity"
	"m40-llm/handlers/live"
	"m40-llm/infer/fault"
)

// group is several answers to one question that are written at the same time and are in no chat. It is in
// memory only. The answers are requested like those of chats: the engine reads the beginning that their
// prompts share once, and is fair to the other clients.
type group struct {
	owner   string
	chat    string           // whose question is answered
	now     func() time.Time // set by start, as stopAll
	stopAll context.CancelFunc

	mu      sync.Mutex // guards what follows, and the attempts
	cells   []*cell
	changed chan struct{} // closed by the next change; nil: no reader waits for it
	readers int
	used    time.Time // when the last reader left, or the group began
}

// cell is one answer of a group.
type cell struct {
	*live.Attempt
	version int   // rises with every change
	ends    []int // bytes of text that the answer had after each of its tokens
	same    int   // leading tokens that are those of the first cell too
	differs bool  // what comes next is known to differ
}

// isEmpty reports whether the model has written nothing.
func (c *cell) isEmpty() bool {
	text, reasoning := c.Text()
	return text+reasoning == ""
}

// groupPlaces is how many answers of a group are requested at the same time. The others wait here rather
// than in the queue of the engine, where they would take the places of other clients.
const groupPlaces = 16

// add adds answers that are to be written.
func (g *group) add(attempts ...*live.Attempt) {
	for _, a := range attempts {
		g.cells = append(g.cells, &cell{Attempt: a})
	}
}

// start begins to write the answers, on behalf of s.
func (g *group) start(s *Service) {
	ctx, cancel := context.WithCancel(activity.With(s.chats.Context(), activity.Origin{Person: g.owner, Chat: g.chat, Compared: true}))
	g.stopAll, g.now, g.used = cancel, s.chats.Now, s.chats.Now()
	for _, c := range g.cells {
		c.Begin(ctx, &g.mu, func() { g.grew(c) })
	}
	s.writing.Go(func() {
		defer cancel()
		g.write(ctx)
	})
}

// write writes the answers, groupPlaces at a time, and returns when all have ended.
func (g *group) write(ctx context.Context) {
	var writing sync.WaitGroup
	places := make(chan struct{}, groupPlaces)
	for _, c := range g.cells {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			c.Abandon()
			continue
		}
		writing.Go(func() {
			defer func() { <-places }()
			c.Write()
		})
	}
	writing.Wait()
}

// grew notes a change of a cell; the caller has mu.
func (g *group) grew(c *cell) {
	c.version++
	for len(c.ends) < len(c.IDs()) {
		c.ends = append(c.ends, 0)
	}
	if n := len(c.ends); n > 0 {
		text, _ := c.Text()
		c.ends[n-1] = len(text)
	}
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// stop ends a cell, or all of them if cell is negative. Those that have ended stay as they are.
func (g *group) stop(cell int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if cell >= len(g.cells) {
		return fault.Invalid("cell", "cell is %d, but there are %d", cell, len(g.cells))
	}
	for i, c := range g.cells {
		if cell < 0 || cell == i {
			c.Stop()
		}
	}
	return nil
}

// running reports whether an answer is being written or waits; the caller has mu.
func (g *group) running() bool {
	return slices.ContainsFunc(g.cells, func(c *cell) bool { return c.Running() })
}

// busy reports whether an answer is being written or waits.
func (g *group) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running()
}

// idle reports whether all answers have ended and have no reader, and since when they have none.
func (g *group) idle() (since time.Time, idle bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used, !g.running() && g.readers == 0
}

// compare counts the tokens that each cell has in common with the first one; the caller has mu.
func (g *group) compare() {
	first := g.cells[0]
	firstIDs := first.IDs()
	for _, c := range g.cells[1:] {
		ids, same, differed := c.IDs(), c.same, c.differs
		for c.same < min(len(ids), len(firstIDs)) && ids[c.same] == firstIDs[c.same] {
			c.same++
		}
		switch n := c.same; {
		case n < len(ids) && n < len(firstIDs):
			c.differs = true
		case n < len(firstIDs):
			c.differs = c.Answer().State == live.Done // it ends here, and the first one goes on
		case n < len(ids):
			c.differs = first.Answer().State == live.Done
		}
		if c.same != same || c.differs != differed {
			c.version++
		}
	}
}

// Cell is an answer of a group as a reader gets it.
type Cell struct {
	Index     int
	Answer    live.Answer
	Text      string // all of it
	Reasoning string
	Same      int   // leading tokens that are those of the first cell too
	SameText  int   // bytes of Text that these have
	Differs   bool  // what comes after them differs: another token, or an end. false: it is not known yet, or there is no difference
	Message   int64 // message of the chat that it became; 0: none
}

// cell returns what readers get of cell i; the caller has mu.
func (g *group) cell(i int) Cell {
	c := g.cells[i]
	text, reasoning := c.Text()
	shown := Cell{Index: i, Answer: c.Answer(), Text: text, Reasoning: reasoning, Same: c.same, Differs: c.differs, Message: c.Message()}
	if c.same > 0 {
		shown.SameText = c.ends[c.same-1]
		if c.same == len(c.IDs()) { // the end of its text came after the last token
			first, _ := g.cells[0].Text()
			shown.SameText = min(len(text), len(commonText(text, first)))
		}
	}
	return shown
}

// commonText returns the beginning of a that b has too.
func commonText(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// CellReader reads the answers of a group while they are written.
type CellReader struct {
	group *group
	seen  []int
}

// read returns a reader that has seen nothing. Its Close must be called.
func (g *group) read() *CellReader {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readers++
	return &CellReader{group: g, seen: slices.Repeat([]int{-1}, len(g.cells))}
}

// Close ends the reading.
func (r *CellReader) Close() {
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	r.group.readers--
	r.group.used = r.group.now()
}

// Take returns the cells that have changed since the last call, and what is closed at the next change; nil
// if all have ended.
func (r *CellReader) Take() (cells []Cell, changed <-chan struct{}) {
	g := r.group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.compare()
	for i, c := range g.cells {
		if c.version != r.seen[i] {
			r.seen[i] = c.version
			cells = append(cells, g.cell(i))
		}
	}
	if !g.running() {
		return cells, nil
	}
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return cells, g.changed
}
