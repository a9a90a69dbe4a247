package engine

import (
	"math"
	"time"
)

// Which way drafts how many tokens of an answer follows from what that gains now: the tokens that a step is expected to give,
// by how often drafted tokens were right, over the time that a step with as many rows takes on this device, and the time
// in which they are drafted. Both are measured while answers are written. A draft that is not expected to gain leastGain is not made. Where
// none is made, one token is drafted now and then without a row, to see whether it would have been right; that
// takes up to shadowShare of the time.
//
// An answer has an account of the time that it has gained by drafts, or lost. While it has lost more than lostShare of its time, it
// has none.
//
// All that is so with DraftAuto. A way that the options or a request name drafts whatever it costs: how long its drafts are follows
// from how many were right.

const (
	leastGain   = 1.05
	shadowShare = 0.005
	lostShare   = 0.005

	// refreshSteps is after how many steps with drafts there is one without, so that its time is known.
	refreshSteps = 64

	// rowShare is the time that a row adds to a step before that was measured, as a part of the step.
	rowShare = 0.06

	// expectedRate is how often drafted tokens are right before that was measured, and expectedWeight how many tokens that counts as.
	expectedRate, expectedWeight = 0.6, 4
)

// rate is how often drafted tokens were right. Older ones count less.
type rate struct{ right, all float64 }

func (r *rate) count(right bool, forget float64) {
	r.right -= forget * r.right
	r.all += 1 - forget*r.all
	if right {
		r.right++
	}
}

// mean returns the rate, where the prior p counts as so many tokens.
func (r *rate) mean(p, weight float64) float64 { return (r.right + weight*p) / (r.all + weight) }

// stepCosts are the measured times of steps without prompts, by their rows.
type stepCosts struct {
	took    [draftRows + 1]time.Duration // 0: not known
	drafted int                          // steps with drafts since the last without
}

// record accounts for a step of so many rows, with drafts or without.
func (c *stepCosts) record(rows int, drafted bool, took time.Duration) {
	if c.drafted++; !drafted {
		c.drafted = 0
	}
	if rows < 1 || rows >= len(c.took) || took <= 0 {
		return
	}
	if t := &c.took[rows]; *t == 0 {
		*t = took
	} else {
		*t += (min(took, 2**t) - *t) / 8 // a pause of the machine is no cost
	}
}

// step returns in what time a step of so many rows is computed; 0: not known. Times that were not measured follow from
// those of steps with fewer rows, and grow by at least as much as before.
func (c *stepCosts) step(rows int) time.Duration {
	if rows < 1 || rows >= len(c.took) {
		return 0
	}
	if c.took[rows] > 0 {
		return c.took[rows]
	}
	below := rows
	for below > 0 && c.took[below] == 0 {
		below--
	}
	if below == 0 {
		return 0
	}
	above := rows
	for above < len(c.took) && c.took[above] == 0 {
		above++
	}
	if above < len(c.took) {
		return c.took[below] + (c.took[above]-c.took[below])*time.Duration(rows-below)/time.Duration(above-below)
	}
	first := below
	for first > 1 && c.took[first-1] > 0 {
		first--
	}
	slope := time.Duration(rowShare * float64(c.took[below]))
	if first < below {
		slope = max(slope/4, (c.took[below]-c.took[first])/time.Duration(below-first))
	}
	return c.took[below] + slope*time.Duration(rows-below)
}

// tokensOf returns how many tokens of a draft of n are expected to be right, if each is with probability p.
func tokensOf(p float64, n int) (sum float64) {
	product := 1.0
	for range n {
		product *= p
		sum += product
	}
	return sum
}

// choose returns which way drafts how many tokens of q, up to most, in a step of so many answers that has so many rows so far; found is how many
// lookup has found. A shadow gets no rows.
func (s *scheduler) choose(q *sequence, answers, rows, most, found int) (by way, n int, isShadow bool) {
	d := q.drafts
	if s.forced > 0 {
		for w := range ways {
			if d.mayAsk[w] && s.drafters[w] != nil {
				return w, min(s.forced, most), false
			}
		}
	}
	if d.isForced {
		return d.chooseForced(s, most, found)
	}
	none := s.costs.step(answers)
	if none == 0 {
		return wayLookup, found, false
	}
	if s.costs.drafted >= refreshSteps || float64(-d.gained) > lostShare*float64(d.steps)+0.5*float64(none) {
		return d.idleShadow(s, q, none)
	}
	before := s.costs.step(rows)
	best := leastGain
	try := func(w way, upTo int, p float64, token, once time.Duration) {
		for k := 1; k <= upTo; k++ {
			more := float64(s.costs.step(rows+k)-before+time.Duration(k)*token+once) / float64(none)
			if s.states != nil { // a draft that is partly wrong makes the next step compute more rows
				more += (1 - math.Pow(p, float64(k))) * (1 + tokensOf(p, k)) * float64(s.costs.step(answers+1)-none) / float64(none)
			}
			if gain := (1 + tokensOf(p, k)/float64(answers)) / (1 + more); gain > best {
				by, n, best = w, k, gain
			}
		}
	}
	if found > 0 {
		try(wayLookup, found, d.rates[wayLookup].mean(s.rates[wayLookup].mean(expectedRate, expectedWeight), expectedWeight), 0, 0)
	}
	for w := range ways {
		if !d.mayAsk[w] || s.drafters[w] == nil {
			continue
		}
		token, unread := s.drafters[w].cost()
		var once time.Duration
		if missing := s.drafters[w].unread(q); missing > draftRows {
			once = unread * time.Duration(missing) / time.Duration(max(1, d.expects-(len(q.tokens)-q.prompt)))
		}
		try(w, most, d.rates[w].mean(s.rates[w].mean(expectedRate, expectedWeight), expectedWeight), token, once)
	}
	if by == wayNone {
		return d.idleShadow(s, q, none)
	}
	return by, n, false
}

// chooseForced is choose without regard to what drafts cost: how long they are follows from how many were right.
func (d *drafts) chooseForced(s *scheduler, most, found int) (by way, n int, isShadow bool) {
	if d.lookup != nil {
		return wayLookup, found, false
	}
	for w := range ways {
		if !d.mayAsk[w] || s.drafters[w] == nil {
			continue
		}
		p, best := d.rates[w].mean(s.rates[w].mean(expectedRate, expectedWeight), expectedWeight), 0.0
		for k := 1; k <= most; k++ {
			if gain := (1 + tokensOf(p, k)) / (1 + 2*rowShare*float64(k)); gain > best {
				by, n, best = w, k, gain
			}
		}
	}
	return by, n, false
}

// idleShadow returns a way to draft one token without a row, if it is time for one.
func (d *drafts) idleShadow(s *scheduler, q *sequence, none time.Duration) (by way, n int, isShadow bool) {
	d.idle++
	for w := range ways {
		if !d.mayAsk[w] || s.drafters[w] == nil || d.shadow != nil {
			continue
		}
		token, unread := s.drafters[w].cost()
		cost := token + unread*time.Duration(s.drafters[w].unread(q))
		if float64(d.idle)*shadowShare*float64(none) >= float64(cost) && cost > 0 && d.room(len(q.tokens), 1) > 0 {
			return w, 1, true
		}
	}
	return wayNone, 0, false
}

// settledStep is how long a step took.
type settledStep struct {
	without time.Duration // that a step without drafts takes; 0: not known, or the step had prompts too
	took    time.Duration // with the drafting before it
}

// settle accounts for a step that gave an answer so many tokens.
func (d *drafts) settle(tokens int, t settledStep) {
	d.steps += t.took
	d.gained += time.Duration(tokens)*t.without - t.took
}

// recordCosts records how long the step of f took, since the one before, and returns how long one without drafts takes; 0: not known.
func (l *loop) recordCosts(f *flight, took time.Duration) time.Duration {
	rows, drafted := 0, 0
	for _, part := range f.plan {
		if !part.decode {
			return 0
		}
		rows += part.rows
		drafted += len(part.draft)
	}
	l.sched.costs.record(rows+drafted, drafted > 0, took-f.drafting)
	if rows+drafted == len(f.plan) && f.drafting == 0 {
		return took // what it was measured to take: nothing is gained or lost
	}
	return l.sched.costs.step(len(f.plan))
}
