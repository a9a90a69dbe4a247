package worker

import (
	"strings"
	"testing"
	"time"

	"m40-llm/infer"
)

// poll is what one poll of a worker brought.
type poll struct {
	after  time.Duration // since the one before
	status infer.Status
	silent bool
}

func repeat(n int, p ...poll) (list []poll) {
	for range n {
		list = append(list, p...)
	}
	return list
}

func then(lists ...[]poll) (all []poll) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

func computing(rows int, took, longest time.Duration) poll {
	step := infer.Step{Rows: rows, ForMS: float64(took.Milliseconds()), LongestMS: float64(longest.Milliseconds())}
	return poll{after: pollEvery, status: infer.Status{State: infer.StateReady, Step: step}}
}

func loading(done int64) poll {
	return poll{after: time.Second, status: infer.Status{State: infer.StateLoading, Loading: infer.Loading{Done: done, Total: 100}}}
}

func TestWatchdog(t *testing.T) {
	silence := func(d time.Duration) poll { return poll{after: d, silent: true} }
	idle := computing(0, 0, time.Second)
	var progress []poll
	for n := range 1000 {
		progress = append(progress, loading(int64(n)))
	}
	var compiling []poll
	for n := range 1000 {
		compiling = append(compiling, loading(100))
		compiling[n].status.Loading.Kernels, compiling[n].status.Loading.KernelsTotal = n/200, 5
	}
	for _, c := range []struct {
		name    string
		polls   []poll
		verdict string // a part of it; empty: none
		reports int    // steps that are said to be slow
	}{
		{"a worker that is idle is left alone", repeat(10_000, idle), "", 0},
		{"one that misses a poll is left alone", repeat(50, idle, silence(answerTime)), "", 0},
		{"one that misses two in a row hangs", then([]poll{idle}, repeat(2, silence(answerTime))), "did not answer for 5s", 0},
		{"one whose connections fail at once hangs later", then([]poll{idle}, repeat(24, silence(pollEvery))), "", 0},
		{"and that is 5 s too", then([]poll{idle}, repeat(25, silence(pollEvery))), "did not answer for 5s", 0},
		{"a server that was stopped itself blames nobody", then([]poll{idle}, repeat(3, silence(time.Hour), idle)), "", 0},
		{"one that starts may take longer", repeat(23, silence(answerTime)), "", 0},
		{"but not for ever", repeat(24, silence(answerTime)), "did not start within 1m0s", 0},

		{"a first step may take minutes, and is said to be slow", then(repeat(5, computing(256, 3*time.Second, 0)), repeat(5, computing(256, 9*time.Minute, 0))), "", 1},
		{"but not for ever", []poll{computing(256, 11*time.Minute, 0)}, "a step of 256 tokens did not end within 10m0s", 0},
		{"a step of 1 s is not worth a word", []poll{computing(8, time.Second, 20*time.Millisecond)}, "", 0},
		{"one that takes longer than 2 s is said to be slow as long as it does", repeat(3, computing(8, 3*time.Second, 20*time.Millisecond), computing(8, 4*time.Second, 20*time.Millisecond), idle), "", 3},
		{"where steps take long, long ones are normal", repeat(3, computing(256, 50*time.Second, 30*time.Second)), "", 0},
		{"a kernel that hangs ends the worker", []poll{computing(8, 61*time.Second, 20*time.Millisecond)}, "did not end within 1m0s", 0},
		{"on a slow processor that takes ten times the longest step", []poll{computing(256, 5*time.Minute, 30*time.Second)}, "", 1},
		{"and a minute", []poll{computing(256, 361*time.Second, 30*time.Second)}, "did not end within 6m0s", 0},

		{"a model that loads slowly is left alone", progress, "", 0},
		{"one that stops loading is given up", repeat(302, loading(7)), "made no progress for 5m0s", 0},
		{"one that compiles kernels is left alone", compiling, "", 0},
		{"one that stops for a while is not", then(repeat(290, loading(7)), repeat(290, loading(8))), "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var dog watchdog
			verdict, reports, before := "", 0, ""
			for _, p := range c.polls {
				slow := ""
				if p.silent {
					verdict = dog.silence(p.after)
				} else {
					verdict, slow = dog.receive(p.status, p.after)
				}
				if slow != "" && slow != before {
					reports++
				}
				before = slow
				if verdict != "" {
					break
				}
			}
			if (verdict == "") != (c.verdict == "") || !strings.Contains(verdict, c.verdict) || reports != c.reports {
				t.Errorf("the verdict is %q after %d reports, want %q after %d", verdict, reports, c.verdict, c.reports)
			}
		})
	}
}
