package engine

import (
	"testing"
	"time"
)

// fixedDrafter costs a fixed time for each token.
type fixedDrafter struct{ token, perUnread time.Duration }

func (f fixedDrafter) draft([]*draftAsk) error    { return nil }
func (f fixedDrafter) cost() (_, _ time.Duration) { return f.token, f.perUnread }
func (f fixedDrafter) unread(*sequence) int       { return 1 }
func (f fixedDrafter) release(*sequence)          {}

func TestChoose_FollowsWhatIsGained(t *testing.T) {
	const ms = time.Millisecond
	flat := []time.Duration{0, 100 * ms, 102 * ms, 104 * ms, 106 * ms, 108 * ms, 110 * ms, 112 * ms, 114 * ms, 116 * ms}
	steep := []time.Duration{0, 100 * ms, 200 * ms, 300 * ms, 400 * ms, 500 * ms, 600 * ms, 700 * ms, 800 * ms, 900 * ms}
	for _, tt := range []struct {
		name        string
		steps       []time.Duration
		right       float64
		token       time.Duration
		answers     int
		found       int // by lookup
		lookupRight float64
		lost        time.Duration
		by          way
		least, most int
	}{
		{"tokens that are mostly right and cost little have long drafts", flat, 0.9, 2 * ms, 1, 0, 0, 0, wayModel, 5, 8},
		{"tokens that are half right have short ones", flat, 0.5, 10 * ms, 1, 0, 0, 0, wayModel, 1, 3},
		{"tokens that are rarely right have none", flat, 0.05, 10 * ms, 1, 0, 0, 0, wayNone, 0, 0},
		{"rows that cost as much as steps have none", steep, 0.9, 2 * ms, 1, 0, 0, 0, wayNone, 0, 0},
		{"a drafter that is as slow as the model drafts none", flat, 0.9, 100 * ms, 1, 0, 0, 0, wayNone, 0, 0},
		{"what lookup found is taken where it is right as often", flat, 0.8, 20 * ms, 1, 8, 0.8, 0, wayLookup, 3, 8},
		{"what lookup found is left where it is mostly wrong", flat, 0.9, 2 * ms, 1, 8, 0.1, 0, wayModel, 5, 8},
		{"eight answers leave no rows that gain", steep, 0.9, 2 * ms, 8, 0, 0, 0, wayNone, 0, 0},
		{"an answer that has lost time has none", flat, 0.9, 2 * ms, 1, 0, 0, 200 * ms, wayNone, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &scheduler{}
			copy(s.costs.took[:], tt.steps)
			s.drafters[wayModel] = fixedDrafter{tt.token, 0}
			q := newSequence("m", span(1, 9), false)
			q.drafts = newDrafts(1000)
			q.drafts.mayAsk[wayModel] = true
			q.drafts.rates[wayModel] = rate{1000 * tt.right, 1000}
			q.drafts.rates[wayLookup] = rate{1000 * tt.lookupRight, 1000}
			q.drafts.steps, q.drafts.gained = time.Second, -tt.lost
			by, n, isShadow := s.choose(q, tt.answers, tt.answers, maxDraft/tt.answers, tt.found)
			if isShadow {
				by, n = wayNone, 0
			}
			if by != tt.by || n < tt.least || n > tt.most {
				t.Errorf("way %d drafts %d tokens, want way %d and %d to %d", by, n, tt.by, tt.least, tt.most)
			}
		})
	}
}

// An answer whose drafts are worth nothing any more has few of them, and one whose drafts become right again has them again.
func TestChoose_StopsAndTriesAgain(t *testing.T) {
	const none, token = 100 * time.Millisecond, 4 * time.Millisecond
	s := &scheduler{}
	for rows := range s.costs.took {
		s.costs.took[rows] = none + time.Duration(3*rows-3)*time.Millisecond
	}
	s.drafters[wayModel] = fixedDrafter{token, 0}
	q := newSequence("m", span(1, 9), false)
	q.drafts = newDrafts(1 << 20)
	d := q.drafts
	d.mayAsk[wayModel] = true
	run := func(tokens int, right bool) (drafted int, took time.Duration) {
		for end := len(q.tokens) + tokens; len(q.tokens) < end; {
			d.learn(q.tokens, &s.rates)
			by, n, isShadow := s.choose(q, 1, 1, maxDraft, 0)
			step, got := none, 1
			switch {
			case isShadow:
				step += token
				d.by, d.from, d.idle = by, len(q.tokens), 0
				if d.shadow = []int32{7}; !right {
					d.shadow = []int32{8}
				}
			case by != wayNone:
				drafted, d.idle = drafted+n, 0
				step = s.costs.took[1+n] + time.Duration(n)*token
				if right {
					got += n
				}
				for range got - 1 {
					d.count(by, true, &s.rates)
				}
				if !right {
					d.count(by, false, &s.rates)
				}
			}
			took += step
			d.settle(got, settledStep{none, step})
			for range got {
				q.tokens = append(q.tokens, 7)
			}
		}
		return drafted, took
	}
	before, _ := run(200, true)
	run(100, false) // learns that they are wrong
	wrong, took := run(1000, false)
	after, _ := run(2000, true)
	if before < 100 || wrong > 20 || after < 500 {
		t.Errorf("%d tokens were drafted while they were right, %d while they were wrong, %d when they were right again", before, wrong, after)
	}
	if most := 1020 * none; took > most {
		t.Errorf("1000 tokens took %v, want at most %v: 2 %% more than without drafts", took, most)
	}
}

func TestStepCosts_UnknownStepsFollowFromKnownOnes(t *testing.T) {
	var c stepCosts
	if got := c.step(1); got != 0 {
		t.Errorf("a step takes %v before one was measured", got)
	}
	for range 50 {
		c.record(1, false, 100*time.Millisecond)
	}
	c.record(1, false, time.Minute) // a pause of the machine
	if got := c.step(1); got < 100*time.Millisecond || got > 120*time.Millisecond {
		t.Errorf("a step takes %v, want about 100 ms", got)
	}
	if got, one := c.step(5), c.step(1); got <= one || got > 2*one {
		t.Errorf("a step of 5 rows is expected to take %v, where one takes %v", got, one)
	}
	c.record(5, true, 300*time.Millisecond)
	if got := c.step(3); got < 190*time.Millisecond || got > 220*time.Millisecond {
		t.Errorf("a step of 3 rows is expected to take %v, want what is between 1 row and 5", got)
	}
	if c.step(0) != 0 || c.step(draftRows+1) != 0 {
		t.Error("the time of steps with too few or too many rows is known")
	}
}
