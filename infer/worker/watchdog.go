package worker

import (
	"fmt"
	"time"

	"m40-llm/infer"
)

// Bounds of the watchdog. The package comment says why.
const (
	pollEvery  = 200 * time.Millisecond
	answerTime = 2500 * time.Millisecond // for one poll; two in a row may be missed
	startTime  = 60 * time.Second        // until the first poll is answered

	slowStep    = 2 * time.Second  // from here on a step is reported, if it is slower than others
	stepTime    = 60 * time.Second // that a step may always take, and stepFactor times the longest one
	stepFactor  = 10
	firstStep   = 10 * time.Minute // that a step may take as long as none has ended
	loadingTime = 5 * time.Minute  // without progress of a load
)

// watchdog judges a worker by what it says of itself. It knows no clock.
type watchdog struct {
	heard  bool          // it has answered a poll
	silent time.Duration // since it did
	loaded infer.Loading // what was
	stuck  time.Duration // since that changed
}

// silence takes a poll without an answer, after the time took. A verdict is the reason to
// kill the worker.
func (w *watchdog) silence(took time.Duration) (verdict string) {
	// A wait longer than was asked for is ours: this process was stopped, or had no
	// processor.
	w.silent += min(took, answerTime)
	switch {
	case !w.heard && w.silent >= startTime:
		return fmt.Sprintf("it did not start within %v", startTime)
	case w.heard && w.silent >= 2*answerTime:
		return fmt.Sprintf("it did not answer for %v", 2*answerTime)
	}
	return ""
}

// hear takes the answer to a poll, which came the time passed after the one before. slow
// says that a step takes unusually long, in the same words for as long as it does.
func (w *watchdog) hear(s infer.Status, passed time.Duration) (verdict, slow string) {
	w.heard, w.silent = true, 0
	if s.State != infer.StateLoading || s.Loading != w.loaded {
		w.stuck, w.loaded = 0, s.Loading
	} else if w.stuck += min(passed, answerTime); w.stuck >= loadingTime {
		return fmt.Sprintf("the model did not load on for %v", loadingTime), ""
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
