package engine

import "time"

// Prompts alongside answers: while some sequences are in decode, others are in prefill. A step with a few tokens of a prompt
// takes much longer than one without, and hardly less than one with many. So the time of the device is divided, not the
// rows of a step. A step has as much of a prompt as fits into mixedTime, and those after it have none, until the answers
// have had answerSpeed of the speed that they have alone. That holds for one chunk and the steps after it, and so for any
// longer time. The prompt has what remains, in chunks that the device computes well.
//
// Where rows cost so little that the answers keep their part anyway, every step has some. Where a few take longer
// than mixedTime, steps have as few as possible, with more steps between them.

// sharing divides the time of a device between answers and the prompts alongside them. It is told how long steps took.
type sharing struct {
	pace // of steps with both: rows of answers and tokens of prompts together

	// Of the steps with rows of answers alone; the older a step, the less it counts.
	took          time.Duration
	steps, tokens float64 // how many, and what they gave
	answers       int     // in the last one

	chunks int           // steps with both since then
	owed   time.Duration // of the device, to the answers; below 0: what they had too much of, at most a step
}

const (
	// answerSpeed is the part of their speed that answers have left after a chunk. The last chunk of a prompt ends before that is
	// so; with the difference, answers keep 0.6 while a prompt of some chunks is computed.
	answerSpeed = 0.65

	// mixedTime is the aim for a step with both, or mixedSteps times as long as one with rows of answers alone, if
	// that is more: the longest pause of an answer.
	mixedTime  = 60 * time.Millisecond
	mixedSteps = 3

	// mostChunks is after how many steps with both the answers are measured again.
	mostChunks = 16

	// leastMixed is the fewest rows of a step with both. Fewer take about as long.
	leastMixed = 8
)

func newSharing(most int) sharing {
	rows := min(leastMixed, most)
	return sharing{pace: pace{rows: rows, least: rows, most: most}}
}

// pays reports whether the next step has rows of answers only.
func (s *sharing) pays() bool { return s.owed > 0 || s.chunks >= mostChunks }

// paysAfter reports whether that is so after n more steps with rows of answers only, which are not recorded yet.
func (s *sharing) paysAfter(n int) bool { return s.owed > time.Duration(n)*repaid(s.step()) }

// repaid returns what a step with rows of answers only, which takes took, pays of what is owed.
func repaid(took time.Duration) time.Duration {
	return time.Duration((1 - answerSpeed) * float64(took))
}

// step returns how long a step with rows of answers alone takes; 0: not known.
func (s *sharing) step() time.Duration { return time.Duration(float64(s.took) / max(1, s.steps)) }

// worth returns in what time so many answers have a token each when they are alone, or less; 0: not known.
func (s *sharing) worth(answers int) time.Duration {
	return time.Duration(float64(s.took) / max(1, s.tokens) * float64(min(answers, s.answers)))
}

// record accounts for a step with rows of so many answers and so many tokens of prompts, which took took. A step with
// neither was computed ahead, after wrong tokens.
func (s *sharing) record(answers, prompts int, took time.Duration) {
	const forget = 1.0 / 8
	switch {
	case prompts == 0:
		s.took += took - time.Duration(forget*float64(s.took))
		s.steps += 1 - forget*s.steps
		s.tokens += float64(answers) - forget*s.tokens
		if s.chunks = 0; answers > 0 {
			s.answers = answers
		}
		s.owed -= repaid(took)
	case answers == 0:
		s.owed = 0
	default:
		s.owed += took - repaid(took) - min(s.worth(answers), took)
		s.chunks++
		s.learn(answers+prompts, took, max(mixedTime, mixedSteps*s.step()))
	}
	s.owed = max(s.owed, -repaid(s.step()))
}

// paused accounts for a step with so many tokens of prompts alone, which took took, while answers waited.
func (s *sharing) paused(prompts int, took time.Duration) {
	s.owed += took - repaid(took)
	s.chunks++
	s.learn(prompts, took, max(mixedTime, mixedSteps*s.step()))
}

// accepted adds so many tokens that drafts gave the last step.
func (s *sharing) accepted(tokens int) {
	if s.chunks == 0 {
		s.tokens += float64(tokens)
	}
}
