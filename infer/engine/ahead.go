package engine

import (
	"time"

	"m40-llm/infer/device"
	"m40-llm/infer/sample"
)

// Steps ahead: a device that can draw tokens itself (device.Pipelined) does not wait for the host between two
// steps. While it computes a step, the next one is submitted, whose rows have the tokens that the device draws. The
// host then samples as always, with all that a request asks for, and compares: the tokens of the device are only a proposal.
// If the host has drawn the same token, the row that was computed ahead is that of the next step. If not, it counts for nothing, as
// a row for a wrong draft does: the next step overwrites its K and V. So an answer is the same with steps ahead and
// without, to the bits of its log-probabilities.
//
// A step is ahead of another one if it has the same sequences, one row each. So one sequence that must wait for its token makes
// all wait. It must wait if the device cannot draw as its samplers do (see drawOf), while prompt lookup has a draft for it, or if the
// device was wrong too often. No step is submitted ahead while anything else is to be done: requests wait, KV caches are copied,
// a model is loaded. After a wrong token, those that were submitted are collected before the next one is planned.
//
// Several steps are ahead, so that a device does not wait for a host that is late: whose processors have other work, or that
// collects garbage. But a new request waits for them, and a wrong token costs as many. So they take up to aheadTime
// together, and the more of them there are, the more often must the device have been right.
//
// The memory of a sequence that ends while a step with it is computed is released at once. That is safe because
// the device computes steps, and copies blocks, in the order in which they were submitted: who gets the memory writes it
// later. What such a step writes is after the last token of the sequence, where nothing is shared.
//
// Models with recurrent state have no steps ahead: a step overwrites their state, and going back to a snapshot
// would compute up to a block of tokens again for each wrong token.

// proposal is how the device draws the tokens of an answer, and how often it was wrong.
type proposal struct {
	draw device.Draw // without Pos
	free int         // misses that do not count

	tokens, missed int // that were computed ahead; of these, those that the host did not draw
}

// A wrong token costs up to as many steps as are ahead, a right one saves what the host does in a step: some percent of it.
const (
	maxCost    = 1.0 / 32 // steps that wrong tokens cost, for each token of an answer
	freeMisses = 2        // of an answer without penalties, which do not count

	// aheadTime is how long several steps ahead take together, at most.
	aheadTime = 20 * time.Millisecond
)

// holds reports whether the device was right often enough for so many steps ahead.
func (p *proposal) holds(steps int) bool {
	return float64(steps*max(0, p.missed-p.free)) <= maxCost*float64(p.tokens)
}

// drawOf returns how the device draws the tokens of an answer with the settings p, or nil if it cannot: there is a stage that
// it does not have, or an order that differs. Penalties are ignored: how often they change the token shows when it was drawn.
func drawOf(p sample.Params) *proposal {
	p, ok := p.Basics()
	if !ok || len(p.LogitBias) > 0 {
		return nil
	}
	return &proposal{draw: device.Draw{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, Seed: p.Seed}}
}

// propose returns how the device draws the tokens of a, or nil if it should not try.
func (l *loop) propose(a *answer) *proposal {
	if !l.loaded.ahead || !a.kind.drafts() || a.constraint != nil {
		return nil
	}
	p := drawOf(a.request.Params)
	if p == nil {
		return nil
	}
	if p.free = l.options.freeMisses; a.request.Params.NeedsHistory() {
		p.free -= freeMisses
	}
	return p
}

// draws appends how each row of plan draws the token that follows it, if a step can be submitted after it, to list.
func (l *loop) draws(list []device.Draw, plan []scheduled) []device.Draw {
	if len(plan) > device.MaxDraws {
		return list[:0]
	}
	for _, part := range plan {
		a := l.answers[part.seq]
		p := a.proposal
		if p == nil || !p.holds(1) || len(part.draft) > 0 || part.rows != 1 || part.from < len(a.tokens)-1 || a.length() >= a.limit {
			return list[:0]
		}
		d := p.draw
		d.Pos = part.from + 1
		list = append(list, d)
	}
	return list
}

// runAhead submits as many steps ahead as the device can take.
func (l *loop) runAhead() error {
	for len(l.flights) < l.loaded.forward.Depth() && !l.turnIsOver() {
		plan := l.planAhead()
		if len(plan) == 0 {
			return nil
		}
		if err := l.submit(plan, true); err != nil {
			return err
		}
	}
	return nil
}

// planAhead returns the step after the last one that was submitted. It is empty if that must be collected before.
func (l *loop) planAhead() (plan []scheduled) {
	n := len(l.flights) // steps ahead with this one
	first, last := l.flights[0], l.flights[n-1]
	if len(last.batch.Draws) == 0 || len(l.sched.waiting) > 0 || !l.sched.repeats(last.plan, n) || l.setup != nil || l.kv.active() {
		return nil
	}
	if n > 1 && time.Duration(n)*l.sched.sharing.step() > l.options.aheadTime {
		return nil
	}
	for i, part := range last.plan {
		a := l.answers[part.seq]
		if !l.counts(first, i) || !a.proposal.holds(n) || a.length()+n >= a.limit || a.drafts != nil && l.sched.draftsDue(a.sequence, len(last.plan)) {
			return nil
		}
		if l.sched.blocks.extra(&a.table, len(a.tokens), n, a.computed) < n {
			return nil
		}
		plan = append(plan, scheduled{seq: a.sequence, rows: 1, from: part.from + 1, decode: true})
	}
	return plan
}

// counts reports whether part i of f, the oldest step, is a row of the answer as it is now: the answer runs, and
// has the token that the device drew.
func (l *loop) counts(f *flight, i int) bool {
	q, from := f.plan[i].seq, f.plan[i].from
	if l.answers[q] == nil {
		return false
	}
	return !f.ahead || q.computed == from && from < len(q.tokens) && q.tokens[from] == f.drawn[i]
}

// learnDrawn records the tokens of f, a step ahead, when the step before it was collected.
func (l *loop) learnDrawn(f *flight) error {
	for i := range f.plan {
		id, err := l.loaded.forward.Drawn(i)
		if err != nil {
			return err
		}
		f.drawn = append(f.drawn, id)
	}
	return nil
}

// countAhead returns the parts of f that count.
func (l *loop) countAhead(f *flight) (parts []scheduled) {
	missed, dropped := 0, 0
	for i, part := range f.plan {
		counts := l.counts(f, i)
		if counts {
			parts = append(parts, part)
		}
		switch a := l.answers[part.seq]; {
		case !f.ahead:
		case a == nil || a.computed != part.from:
			dropped++
		case counts:
			a.proposal.tokens++
		default:
			a.proposal.tokens++
			a.proposal.missed++
			missed++
		}
	}
	if f.ahead {
		l.status.countAhead(len(f.plan), missed, dropped)
	}
	return parts
}
