package worker

import (
	"fmt"
	"time"

	"m40-llm/infer"
)

// Limits of the watchdog. The package comment explains them.
const (
	pollEvery  = 200 * time.Millisecond
	answerTime = 2500 * time.Millisecond // of one poll; the second consecutive one without an answer is fatal
	startTime  = 60 * time.Second        // until the first poll is answered

	slowStep    = 2 * time.Second  // after which a step is reported, if it is slower than others
	stepTime    = 60 * time.Second // of a step, or stepFactor times the longest one if that is more
	stepFactor  = 10
	firstStep   = 10 * time.Minute // of a step before any has ended
	loadingTime = 5 * time.Minute  // of a load without progress
)

// watchdog judges a worker by its status. It has no clock of its own.
type watchdog struct {
	heard  bool          // the worker has answered a poll
	silent time.Duration // since the last answer
	loaded infer.Loading // as of the last answer
	stuck  time.Duration // since loaded changed
}

// silence handles a poll without an answer after took. verdict is the reason to kill the worker,
// "" if there is none.
func (w *watchdog) silence(took time.Duration) (verdict string) {
	// A wait longer than the timeout is this process's own: it was suspended or had no processor.
	w.silent += min(took, answerTime)
	switch {
	case !w.heard && w.silent >= startTime:
		return fmt.Sprintf("it did not start within %v", startTime)
	case w.heard && w.silent >= 2*answerTime:
		return fmt.Sprintf("it did not answer for %v", 2*answerTime)
	}
	return ""
}

// receive handles the answer to a poll, passed after the one before. slow is a message while a step
// takes unusually long; it stays the same for that step.
func (w *watchdog) receive(s infer.Status, passed time.Duration) (verdict, slow string) {
	w.heard, w.silent = true, 0
	if s.State != infer.StateLoading || s.Loading != w.loaded {
		w.stuck, w.loaded = 0, s.Loading
	} else if w.stuck += min(passed, answerTime); w.stuck >= loadingTime {
		return fmt.Sprintf("loading the model made no progress for %v", loadingTime), ""
	}
	if s.Step.Rows == 0 {
		return "", ""
	}
	now, longest := milliseconds(s.Step.ForMS), milliseconds(s.Step.LongestMS)
	limit := firstStep
	if longest > 0 {
		limit = (stepTime + stepFactor*longest).Round(time.Second)
	}
	switch {
	case now > limit:
		return fmt.Sprintf("a step of %d tokens did not end within %v", s.Step.Rows, limit), ""
	case now > max(slowStep, 2*longest):
		return "", fmt.Sprintf("a step of %d tokens is taking unusually long; the engine is restarted if it does not end within %v", s.Step.Rows, limit)
	}
	return "", ""
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
