package resident

/*
#cgo CFLAGS: -std=c11 -O2
#include "wait.h"
*/
import "C"

import (
	"fmt"
	"sync/atomic"
	"time"

	"m40-llm/cudakern"
)

// residence keeps a resident kernel running that answers the commands of a ring. It starts the kernel when there are
// commands, and again when the kernel has left before it has answered all of them. It is used by one goroutine at a time.
type residence struct {
	ring   *ring
	stream *cudakern.Stream
	limits Limits
	start  func(ring cudakern.Ptr) error

	running bool  // the kernel was launched, and is not known to have left
	broken  error // what every further call returns

	beat    uint32    // the last one that was seen
	beatAt  time.Time // when it was seen first
	typical time.Duration
}

// newResidence returns a residence without a running kernel. start enqueues a launch of the kernel in the stream,
// which nothing else uses; ring is the parameter for ring_open.
func newResidence(ring *ring, stream *cudakern.Stream, limits Limits, start func(ring cudakern.Ptr) error) *residence {
	return &residence{ring: ring, stream: stream, limits: limits, start: start}
}

// Push writes a command, as ring.Push does, and starts the kernel if it is not running.
func (k *residence) Push(c command, data []uint32) (uint32, error) {
	if k.broken != nil {
		return 0, k.broken
	}
	n, err := k.ring.Push(c, data)
	if err != nil {
		return 0, err
	}
	return n, k.ensure()
}

// Cancel is ring.Cancel.
func (k *residence) Cancel() { k.ring.Cancel() }

// Pending returns how many commands have no result that was taken.
func (k *residence) Pending() int { return k.ring.Pending() }

// ensure starts the kernel if it is not running.
func (k *residence) ensure() error {
	if k.running || k.broken != nil {
		return k.broken
	}
	h := k.ring.head
	h.launch++
	if h.launch == 0 { // leave and left are 0 before anything
		h.launch = 1
	}
	h.first = atomic.LoadUint32(&k.ring.tail.next)
	h.most = uint32(k.limits.Commands)
	h.idle = uint32(k.limits.Idle.Microseconds())
	if err := k.start(k.ring.at); err != nil {
		return k.fail(err)
	}
	k.running, k.beatAt = true, time.Now()
	return nil
}

// fail gives the kernel up. If it still runs, it is asked to leave: should it only be slow, it does.
func (k *residence) fail(err error) error {
	k.broken = err
	atomic.StoreUint32(&k.ring.head.leave, k.ring.head.launch)
	return err
}

// Wait returns the result of the oldest command that has none taken. Its data is valid until the next Push.
func (k *residence) Wait() (result, error) {
	if k.broken == nil && k.ring.Pending() == 0 {
		return result{}, fmt.Errorf("there is no command to wait for")
	}
	begin := time.Now()
	for p := (pacer{begin: begin, typical: k.typical}); k.broken == nil; p.pause(k.ring, k.ring.oldest) {
		r, ok := k.ring.Take()
		if ok {
			k.beatAt = time.Now()
			k.typical += (time.Since(begin) - k.typical) / 4
			return r, nil
		}
		if err := k.check(p.slow()); err != nil {
			return result{}, k.fail(err)
		}
		if err := k.ensure(); err != nil {
			return result{}, err
		}
	}
	return result{}, k.broken
}

// Drain waits until all commands have been answered. Their results can still be taken.
func (k *residence) Drain() error {
	last := k.ring.next - 1
	for p := (pacer{begin: time.Now(), typical: k.typical}); k.broken == nil && k.ring.Pending() > 0 && !k.ring.answered(last); p.pause(k.ring, last) {
		if err := k.check(p.slow()); err != nil {
			return k.fail(err)
		}
		if err := k.ensure(); err != nil {
			return err
		}
	}
	return k.broken
}

// Yield makes the kernel leave after the command that it executes, and returns when it has left. Further commands
// are executed when it is started again by Push or Wait.
func (k *residence) Yield() error {
	if k.broken != nil {
		return k.broken
	}
	atomic.StoreUint32(&k.ring.head.leave, k.ring.head.launch)
	for p := (pacer{begin: time.Now()}); k.running; p.pause(k.ring, k.ring.next) {
		if err := k.check(p.slow()); err != nil {
			return k.fail(err)
		}
	}
	return nil
}

// check finds out whether the kernel still runs: by the word that it leaves, and if slow is set, by asking the driver
// and by its heartbeat.
func (k *residence) check(slow bool) error {
	t := k.ring.tail
	if !k.running {
		return nil
	}
	if atomic.LoadUint32(&t.left) == k.ring.head.launch {
		k.running = false
		if err := k.stream.Sync(); err != nil {
			return err
		}
		if reason := atomic.LoadUint32(&t.reason); reason == leftBroken {
			return k.failure("has given up, because blocks have waited for each other for too long")
		}
		return nil
	}
	if !slow {
		return nil
	}
	done, err := k.stream.Done()
	switch beat := atomic.LoadUint32(&t.beat); {
	case err != nil:
		return err
	case done && atomic.LoadUint32(&t.left) != k.ring.head.launch:
		return k.failure("has ended without saying why")
	case beat != k.beat:
		k.beat, k.beatAt = beat, time.Now()
	case time.Since(k.beatAt) > k.limits.Hang:
		return k.failure(fmt.Sprintf("hangs: it has shown no progress for %v; restart the process that uses the GPU", k.limits.Hang))
	}
	return nil
}

const leftBroken = 4 // LEFT_BROKEN of ring.cuh

// failure returns an error like those of the driver.
func (k *residence) failure(what string) error {
	t := k.ring.tail
	return &cudakern.Error{
		Call: "the resident kernel", Code: 719, Name: "CUDA_ERROR_LAUNCH_FAILED",
		Text: fmt.Sprintf("in command %d, at %d, it %s", k.ring.oldest, atomic.LoadUint32(&t.at), what),
	}
}

// pacer decides when the host polls memory that the device writes: it sleeps until shortly before a result usually arrives, polls
// around that time, and then at growing intervals.
type pacer struct {
	begin   time.Time
	typical time.Duration
	asked   time.Time // when slow last returned true
}

const pollTime = 150 * time.Microsecond // before and after the typical time

// pause waits until it is time to poll for result number n, or until the kernel has left.
func (p *pacer) pause(r *ring, n uint32) {
	sleep, poll := time.Duration(0), 2*pollTime
	switch passed := time.Since(p.begin); {
	case passed < p.typical-pollTime:
		sleep = p.typical - pollTime - passed
	case passed < p.typical+pollTime:
		poll = p.typical + pollTime - passed
	default:
		sleep, poll = min(passed/16, time.Millisecond), 0
	}
	entry, _ := r.result(n)
	C.wait_number((*C.uint32_t)(&entry.number), C.uint32_t(n), (*C.uint32_t)(&r.tail.left), C.uint32_t(r.head.launch),
		C.uint64_t(sleep), C.uint64_t(poll))
}

// slow reports whether it is time for a check that takes longer.
func (p *pacer) slow() bool {
	now := time.Now()
	if now.Sub(p.begin) < time.Millisecond || now.Sub(p.asked) < time.Millisecond {
		return false
	}
	p.asked = now
	return true
}
