package engine

import (
	"testing"
	"time"
)

// timedScheduler runs a scheduler against a device that takes a known time for each step.
type timedScheduler struct {
	*scheduler
	takes func(answers, prompts int) time.Duration // a step with rows of so many answers, and so many tokens of prompts

	now     time.Duration
	longest time.Duration // of a step with rows of answers
	tokens  int           // that the first sequence has got in decode
	chunks  int           // steps with both
}

// step runs a step. It reports whether the step had tokens of prompts alongside rows of answers.
func (s *timedScheduler) step() (chunk bool) {
	plan := s.schedule()
	answers, prompts := 0, 0
	for _, part := range plan {
		if part.seq.missing() > 1 {
			prompts += part.rows
		} else {
			answers++
		}
	}
	took := s.takes(answers, prompts)
	s.now += took
	if answers > 0 {
		s.longest = max(s.longest, took)
	}
	s.advance(plan, took)
	for _, part := range plan {
		if part.seq.missing() == 0 {
			part.seq.tokens = append(part.seq.tokens, 7)
		}
	}
	if answers > 0 && len(plan) > 0 && plan[0].seq == s.running[0] {
		s.tokens++
	}
	if chunk = answers > 0 && prompts > 0; chunk {
		s.chunks++
	}
	return chunk
}

// prompts adds so many prompts of length tokens, none of which begins as an earlier one.
func (s *timedScheduler) prompts(count, length int) (list []*sequence) {
	for range count {
		first := int32(1000 * (s.clock + 1))
		q := newSequence("m", span(first, first+int32(length)), false)
		s.add(q)
		list = append(list, q)
	}
	return list
}

// end ends sequences.
func (s *timedScheduler) end(list []*sequence) {
	for _, q := range list {
		s.remove(q, false)
	}
}

// newTimedScheduler returns a scheduler with so many answers in decode, which has learned how long chunks take.
func newTimedScheduler(answers int, takes func(answers, prompts int) time.Duration) *timedScheduler {
	s := &timedScheduler{scheduler: &scheduler{limits: limits{16, 512, 32}}, takes: takes}
	s.reset("m", oneGroup(1<<14, 4))
	for range answers {
		s.prompts(1, 1)
	}
	s.step()
	learn := s.prompts(1, 3000)
	for learn[0].missing() > 1 {
		s.step()
	}
	s.end(learn)
	for range 40 {
		s.step()
	}
	s.now, s.longest, s.tokens, s.chunks = 0, 0, 0, 0
	return s
}

// linear returns how long a device takes whose steps take first and each for each row after the first.
func linear(first, each time.Duration) func(answers, prompts int) time.Duration {
	return func(answers, prompts int) time.Duration { return first + time.Duration(answers+prompts-1)*each }
}

func TestScheduler_DividesTimeBetweenAnswersAndPrompts(t *testing.T) {
	const ms = time.Millisecond
	gpu := func(answers, prompts int) time.Duration {
		if rows := answers + prompts; rows > 4 {
			return 2600*time.Microsecond + time.Duration((rows+63)/64)*10*ms
		}
		return 2600 * time.Microsecond
	}
	tests := []struct {
		name             string
		takes            func(answers, prompts int) time.Duration
		answers, prompts int
		longest          time.Duration // of a step of the answers
		times            float64       // as long as alone the prompts take, at most
	}{
		{"a GPU that takes as long for 64 rows as for 5", gpu, 1, 1, 50 * ms, 2.9},
		{"such a GPU with four answers", gpu, 4, 1, 50 * ms, 2.9},
		{"such a GPU with four answers and three prompts", gpu, 4, 3, 50 * ms, 2.9},
		{"a CPU", linear(25*ms, 2600*time.Microsecond), 1, 1, 75 * ms, 2.9},
		{"a CPU with four answers and three prompts", linear(25*ms, 2600*time.Microsecond), 4, 3, 99 * ms, 2.9},
		{"a slow CPU", linear(150*ms, 25*ms), 1, 1, 450 * ms, 2.9},
		{"a machine for which each row costs the same", linear(5*ms, 5*ms), 1, 1, 50 * ms, 2.9},
		{"a machine for which rows of prompts cost nothing", func(int, int) time.Duration { return 3 * ms }, 1, 1, 3 * ms, 1.3},
		{"a machine on which the fewest rows take long", func(_, prompts int) time.Duration { return 20*ms + time.Duration(prompts)*100*ms }, 1, 1, 720 * ms, 2.9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const length = 2000
			s := newTimedScheduler(tt.answers, tt.takes)
			alone := time.Duration(tt.prompts) * tt.takes(0, 500) * length / 500
			decode := tt.takes(tt.answers, 0)
			kept := func() float64 { return float64(s.tokens) * float64(decode) / float64(s.now) }
			list := s.prompts(tt.prompts, length)
			waiting := func() (n int) {
				for _, q := range list {
					if q.missing() > 1 {
						n++
					}
				}
				return n
			}
			pause := 0
			for waiting() > 0 {
				before, tokens := s.now, s.tokens
				if s.step() {
					if had := time.Duration(tokens) * decode; float64(had) < answerSpeed*float64(before)-float64(decode) {
						t.Fatalf("chunk %d begins after %v, in which the answers had %v", s.chunks, before, had)
					}
					pause = 0
				} else if pause++; time.Duration(pause)*decode > 3*s.longest+decode {
					t.Fatalf("prompts pause for %d steps, where the longest takes %v", pause, s.longest)
				}
				if waiting() < tt.prompts { // the others decode now
					break
				}
			}
			if got := kept(); s.chunks > 4 && got < 0.6 {
				t.Errorf("the answers keep %.3f of their speed, want 0.6", got)
			}
			if s.longest > tt.longest {
				t.Errorf("a step of the answers takes %v, want at most %v", s.longest, tt.longest)
			}
			if got := float64(s.now) / float64(alone); tt.prompts == 1 && got > tt.times {
				t.Errorf("the prompt takes %.2f times as long as alone, want at most %.1f", got, tt.times)
			}
			t.Logf("%d chunks, the answers keep %.3f of their speed, with pauses of up to %v; the prompts take %v, alone %v", s.chunks, kept(), s.longest, s.now, alone)
		})
	}
}

func TestSharing(t *testing.T) {
	const ms = time.Millisecond
	alone := func(s *sharing) { // as after many steps of 10 ms with two answers
		for range 50 {
			s.record(2, 0, 10*ms)
		}
		s.owed = 0
	}
	near := func(got, want time.Duration) bool { return (got - want).Abs() <= 10*time.Microsecond }
	tests := []struct {
		name string
		do   func(*sharing)
		owed time.Duration
		pays bool
	}{
		{"a chunk is paid for", func(s *sharing) { alone(s); s.record(2, 30, 50*ms) }, 22500 * time.Microsecond, true},
		{"each step of the answers pays a part", func(s *sharing) { alone(s); s.record(2, 30, 50*ms); s.record(2, 0, 10*ms) }, 19 * ms, true},
		{"what was paid too much is kept, up to a step", func(s *sharing) { alone(s); s.record(2, 0, 10*ms); s.record(2, 0, 10*ms) }, -3500 * time.Microsecond, false},
		{"a chunk that costs nothing is not paid for", func(s *sharing) { alone(s); s.record(2, 1, 10*ms) }, -3500 * time.Microsecond, false},
		{"nothing is known, so all of it is paid for", func(s *sharing) { s.record(2, 30, 50*ms) }, 32500 * time.Microsecond, true},
		{"fewer answers get less of a chunk", func(s *sharing) { alone(s); s.record(1, 30, 50*ms) }, 27500 * time.Microsecond, true},
		{"more answers get no more of it than was measured", func(s *sharing) { alone(s); s.record(9, 30, 50*ms) }, 22500 * time.Microsecond, true},
		{"a token is worth less where drafts give more of them", func(s *sharing) {
			for range 50 {
				s.record(2, 0, 10*ms)
				s.accepted(2)
			}
			s.owed = 0
			s.record(2, 30, 50*ms)
		}, 27500 * time.Microsecond, true},
		{"a step that gave nothing is paid, too", func(s *sharing) { alone(s); s.record(2, 30, 50*ms); s.record(0, 0, 10*ms) }, 19 * ms, true},
		{"nothing is owed when no answer runs any more", func(s *sharing) { alone(s); s.record(2, 30, 50*ms); s.record(0, 30, 50*ms) }, 0, false},
		{"the answers are measured again after some chunks that cost nothing", func(s *sharing) {
			alone(s)
			for range mostChunks {
				s.record(2, 1, 10*ms)
			}
		}, -3500 * time.Microsecond, true},
		{"a step of the answers that takes long once hardly counts", func(s *sharing) {
			alone(s)
			s.record(2, 0, 80*ms)
			s.owed = 0
			s.record(2, 30, 50*ms)
		}, 13750 * time.Microsecond, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSharing(64)
			tt.do(&s)
			if !near(s.owed, tt.owed) || s.pays() != tt.pays {
				t.Errorf("%v are owed, pays: %v; want %v, %v", s.owed, s.pays(), tt.owed, tt.pays)
			}
		})
	}
	s := newSharing(64)
	alone(&s)
	s.record(2, 30, 50*ms) // paid in 7 steps
	for n, want := range map[int]bool{0: true, 6: true, 7: false} {
		if s.paysAfter(n) != want {
			t.Errorf("behind %d steps, the next has rows of answers only: %v, want %v", n, !want, want)
		}
	}
}

func TestScheduler_StepsAheadRepeatWhilePromptsPause(t *testing.T) {
	s := newTimedScheduler(1, linear(10*time.Millisecond, time.Millisecond))
	s.prompts(1, 500)
	for !s.step() {
	}
	plan := s.schedule()
	if len(plan) != 1 || len(s.running) != 2 {
		t.Fatalf("a step of %d of %d sequences, want that the prompt pauses", len(plan), len(s.running))
	}
	steps := 0
	for s.repeats(plan, steps) {
		steps++
	}
	for range steps {
		if s.step() {
			t.Fatalf("a chunk comes within the %d steps that were to repeat", steps)
		}
	}
	if s.schedule(); !s.step() {
		t.Errorf("%d steps repeat, but the next has no chunk, either", steps)
	}
}
