package live

import (
	"context"
	"slices"
	"sync"
	"time"

	"m40-llm/handlers/activity"
	"m40-llm/infer"
)

// group is several answers to one question that are written at the same time and are in no chat. It is in
// memory only. The answers are requested like those of chats: the engine reads the beginning that their
// prompts share once, and is fair to the other clients.
type group struct {
	service *Service
	owner   string
	chat    string // whose question is answered
	stopAll context.CancelFunc

	mu      sync.Mutex // guards what follows
	cells   []*cell
	changed chan struct{} // closed by the next change; nil: nobody waits for it
	readers int
	used    time.Time // when the last reader left, or the group began
}

// cell is one answer of a group.
type cell struct {
	run     *run
	request infer.Request
	begun   bool  // it was requested
	version int   // rises with every change
	ends    []int // bytes of text that the answer had after each of its tokens
	same    int   // leading tokens that are those of the first cell too
	differs bool  // what comes next is known to differ
	kept    int64 // message that it became; 0: none
}

// groupPlaces is how many answers of a group are requested at the same time. The others wait here rather
// than in the queue of the engine, where they would take the places of other clients.
const groupPlaces = 16

// add adds an answer that is to be written. request is complete but for what the settings of the answer say.
func (g *group) add(t *turn, request infer.Request) {
	t.Answer.Settings.ask(&request)
	request.Rows, request.Sibling = true, len(g.cells)
	g.cells = append(g.cells, &cell{run: &run{turn: t}, request: request})
}

// start begins to write the answers.
func (g *group) start() {
	ctx, cancel := context.WithCancel(activity.With(g.service.ctx, activity.Origin{Person: g.owner, Chat: g.chat, Compared: true}))
	g.stopAll, g.used = cancel, g.service.opt.Now()
	contexts := make([]context.Context, len(g.cells))
	for i, c := range g.cells {
		var stop context.CancelFunc
		contexts[i], stop = context.WithCancel(ctx)
		c.run = g.service.newRun(c.run.turn, func(Event) { g.grew(c) }, stop)
	}
	g.service.wg.Go(func() {
		defer cancel()
		g.write(contexts)
	})
}

// write writes the answers, groupPlaces at a time, and returns when all have ended.
func (g *group) write(contexts []context.Context) {
	var writing sync.WaitGroup
	places := make(chan struct{}, groupPlaces)
	for i, c := range g.cells {
		ctx := contexts[i]
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			g.finish(c, ctx.Err())
			continue
		}
		g.mu.Lock()
		c.begun = true
		g.mu.Unlock()
		writing.Go(func() {
			defer func() { <-places }()
			g.finish(c, c.run.generate(ctx, &g.mu, c.request))
		})
	}
	writing.Wait()
}

// grew notes a change of a cell; the caller has mu.
func (g *group) grew(c *cell) {
	c.version++
	for len(c.ends) < len(c.run.turn.ids) {
		c.ends = append(c.ends, 0)
	}
	if n := len(c.ends); n > 0 {
		c.ends[n-1] = c.run.turn.text.Len()
	}
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// finish ends a cell as the engine did.
func (g *group) finish(c *cell, err error) {
	c.run.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(c, err)
}

// end is finish for who has mu. A cell that has ended stays as it is.
func (g *group) end(c *cell, err error) {
	a := c.run.turn.Answer
	if !a.State.Running() {
		return
	}
	if len(c.run.pace.Tokens) > 0 {
		a.Pace = &c.run.pace
	}
	a.State, a.Error = c.run.verdict(err)
	a.Progress, a.Thinking = nil, false
	g.grew(c)
}

// stop ends a cell, or all of them if cell is negative. Those that have ended stay as they are.
func (g *group) stop(cell int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if cell >= len(g.cells) {
		return invalid("cell", "cell is %d, but there are %d", cell, len(g.cells))
	}
	for i, c := range g.cells {
		if (cell < 0 || cell == i) && c.run.turn.Answer.State.Running() {
			c.run.stop()
			if !c.begun {
				g.end(c, context.Canceled)
			}
		}
	}
	return nil
}

// running reports whether an answer is being written or waits; the caller has mu.
func (g *group) running() bool {
	return slices.ContainsFunc(g.cells, func(c *cell) bool { return c.run.turn.Answer.State.Running() })
}

// busy reports whether an answer is being written or waits.
func (g *group) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running()
}

// idle reports whether all answers have ended and nobody reads them, and since when nobody does.
func (g *group) idle() (since time.Time, idle bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used, !g.running() && g.readers == 0
}

// compare counts the tokens that each cell has in common with the first one; the caller has mu.
func (g *group) compare() {
	first := g.cells[0].run.turn
	for _, c := range g.cells[1:] {
		t, same, differed := c.run.turn, c.same, c.differs
		for c.same < min(len(t.ids), len(first.ids)) && t.ids[c.same] == first.ids[c.same] {
			c.same++
		}
		switch n := c.same; {
		case n < len(t.ids) && n < len(first.ids):
			c.differs = true
		case n < len(first.ids):
			c.differs = t.Answer.State == Done // it ends here, and the first one goes on
		case n < len(t.ids):
			c.differs = first.Answer.State == Done
		}
		if c.same != same || c.differs != differed {
			c.version++
		}
	}
}

// Cell is an answer of a group as a reader gets it.
type Cell struct {
	Index     int
	Answer    Answer
	Text      string // all of it
	Reasoning string
	Same      int   // leading tokens that are those of the first cell too
	SameText  int   // bytes of Text that these have
	Differs   bool  // what comes behind them differs: another token, or an end. false: it is not known yet, or there is no difference
	Kept      int64 // message of the chat that it became; 0: none
}

// cell returns what readers get of cell i; the caller has mu.
func (g *group) cell(i int) Cell {
	c := g.cells[i]
	t := c.run.turn
	a := *t.Answer
	shown := Cell{Index: i, Answer: a, Text: t.text.String(), Reasoning: t.reasoning.String(), Same: c.same, Differs: c.differs, Kept: c.kept}
	if c.same > 0 {
		shown.SameText = c.ends[c.same-1]
		if c.same == len(t.ids) { // the end of its text came behind the last token
			shown.SameText = min(t.text.Len(), len(commonText(shown.Text, g.cells[0].run.turn.text.String())))
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
	r.group.used = r.group.service.opt.Now()
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
