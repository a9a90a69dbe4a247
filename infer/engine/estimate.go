package engine

import "slices"

// The expected wait of a sequence is a number of steps times the mean duration of recent steps. The
// number assumes that no requests come or are cancelled, that prefill steps take as long as decode
// steps, and that each answer still has as many tokens to come as recent answers had on average, or
// its limit if that is lower. The time to load a model is not included.

// outlook says when places become free, in steps from now.
type outlook struct {
	s     *scheduler
	ends  []int // when the running sequences are expected to end, earliest first
	turns []int // when their time slices end, earliest first
	drain int   // when all sequences that have started are expected to have ended

	other string         // first other model among the sequences passed to steps; "": none
	ahead map[string]int // number of those sequences by the model they need
}

// outlook returns the outlook of the scheduler. remaining returns how many tokens a sequence is
// expected to generate from now on.
func (s *scheduler) outlook(remaining func(*sequence) int) outlook {
	o := outlook{s: s, ahead: map[string]int{}, drain: s.drainSteps(remaining)}
	for _, q := range s.running {
		o.ends = append(o.ends, remaining(q))
		o.turns = append(o.turns, max(0, sliceSteps-q.steps))
	}
	slices.Sort(o.ends)
	slices.Sort(o.turns)
	return o
}

// drainSteps returns in how many steps all sequences that have started are expected to have ended.
func (s *scheduler) drainSteps(remaining func(*sequence) int) (steps int) {
	total := 0
	add := func(q *sequence) {
		if q.started && q.modelKey == s.model {
			n := remaining(q)
			total, steps = total+n, max(steps, n)
		}
	}
	for _, q := range s.running {
		add(q)
	}
	for _, q := range s.waiting {
		add(q)
	}
	places := max(1, s.limits.Answers) // none before a model is loaded
	return max(steps, (total+places-1)/places)
}

// steps returns in how many steps q is expected to begin, and false if nothing is known about that.
// It must be called for each waiting sequence, in their order.
func (o *outlook) steps(q *sequence) (n int, known bool) {
	s, before := o.s, o.ahead[q.modelKey]
	o.ahead[q.modelKey]++
	if q.modelKey != s.model && o.other == "" {
		o.other = q.modelKey
	}
	switch {
	case s.model == "" || o.other != "" && o.other != q.modelKey:
		return 0, false
	case o.other != "":
		return o.drain + before/s.limits.Answers*sliceSteps, true
	case len(s.running) < s.limits.Answers:
		return 0, len(s.running) == 0
	}
	round, place := before/len(o.ends), before%len(o.ends)
	turn := o.turns[place] + round*sliceSteps
	if s.blocks.lacks(len(q.tokens), nil) {
		turn = o.drain // it waits for memory, which those keep that give way
	}
	if round == 0 {
		turn = min(turn, o.ends[place])
	}
	return turn, true
}

// lengths are the numbers of tokens of recent answers.
type lengths struct {
	last  [16]int
	ended int
}

func (l *lengths) add(n int) {
	l.last[l.ended%len(l.last)] = n
	l.ended++
}

// expected returns how many more tokens to expect of an answer that may have limit more.
func (l *lengths) expected(limit int) int {
	if l.ended == 0 {
		return limit
	}
	n, sum := min(l.ended, len(l.last)), 0
	for _, length := range l.last[:n] {
		sum += length
	}
	return min(limit, (sum+n-1)/n)
}
