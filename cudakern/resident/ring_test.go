package resident

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"m40-llm/cudakern"
	"m40-llm/cudakern/emutest"
)

// The commands of resident_answers.
const (
	testAdd  = 1
	testHang = 2
)

// answering is a residence of the kernel resident_answers.
type answering struct {
	*residence
	e        *testDevice
	ring     *ring
	stream   *cudakern.Stream
	barrier  cudakern.Ptr
	goOn     *uint32 // ends commands that hang
	hanging  *uint32 // 1: such a command was begun
	launches int
}

// answersWith are the parameters of a residence.
type answersWith struct {
	blocks   int
	first    uint32 // number of the first command
	patience int    // of barriers, in milliseconds; 0: 10 s
	commands int    // limits; 0: none that a test reaches
	idle     time.Duration
	hang     time.Duration
}

const (
	testSlots = 4
	testWords = 100
)

func (e *testDevice) answering(with answersWith) *answering {
	e.T.Helper()
	a, err := newAnswering(e.Context, with)
	e.Must(err)
	a.e = e
	e.T.Cleanup(func() { atomic.StoreUint32(a.goOn, 1) })
	return a
}

func newAnswering(c *cudakern.Context, with answersWith) (_ *answering, err error) {
	or := func(v, otherwise int) int {
		if v == 0 {
			return otherwise
		}
		return v
	}
	a := &answering{}
	if a.ring, err = newRing(c, ringLayout{Slots: testSlots, CommandWords: testWords, ResultWords: testWords}, with.first); err != nil {
		return nil, err
	}
	if a.stream, err = c.NewStream(cudakern.PriorityHigh); err != nil {
		return nil, err
	}
	m, err := c.Family("residenttest")
	if err != nil {
		return nil, err
	}
	kernel, err := m.Function("resident_answers")
	if err != nil {
		return nil, err
	}
	var at [3]cudakern.Ptr
	for i, n := range []int{barrierBytes, orderBytes, 4*testWords + 12} {
		if at[i], err = c.Alloc(int64(n)); err != nil {
			return nil, err
		}
	}
	host, hostAt, err := c.AllocMapped(8)
	if err != nil {
		return nil, err
	}
	words := unsafe.Slice(wordAt(host), 2)
	clear(words)
	a.goOn, a.hanging = &words[0], &words[1]
	a.barrier = at[0]
	limits := Limits{
		Commands: or(with.commands, 1<<30),
		Idle:     time.Duration(or(int(with.idle), int(10*time.Second))),
		Hang:     time.Duration(or(int(with.hang), int(time.Minute))),
	}
	a.residence = newResidence(a.ring, a.stream, limits, func(ring cudakern.Ptr) error {
		a.launches++
		if err := resetBarrier(a.stream, a.barrier, 0); err != nil {
			return err
		}
		return kernel.Launch(a.stream, cudakern.Dim3{X: with.blocks}, cudakern.Dim3{X: 64}, 0, ring, at[0], at[1], at[2], hostAt, uint32(or(with.patience, 10_000)))
	})
	return a, nil
}

// add pushes a command that adds n to data in each of some rounds.
func (a *answering) add(n, rounds uint32, data ...uint32) uint32 {
	a.e.T.Helper()
	number, err := a.Push(command{Kind: testAdd, Args: [4]uint32{n, rounds}}, data)
	a.e.Must(err)
	return number
}

// hang pushes a command in which a block waits until goOn is set, for at most ms milliseconds.
func (a *answering) hang(block, ms uint32) {
	a.e.T.Helper()
	_, err := a.Push(command{Kind: testHang, Args: [4]uint32{block, ms}}, nil)
	a.e.Must(err)
}

// expect waits for a result and compares it.
func (a *answering) expect(number uint32, state resultState, data ...uint32) {
	a.e.T.Helper()
	r, err := a.Wait()
	a.e.Must(err)
	if r.Number != number || r.State != state || !slices.Equal(r.Data, data) {
		a.e.T.Errorf("result %d has state %d and data %v, want %d, %d, %v", r.Number, r.State, r.Data, number, state, data)
	}
}

func (a *answering) isHanging() bool { return atomic.LoadUint32(a.hanging) != 0 }

func (a *answering) wantLaunches(n int) {
	a.e.T.Helper()
	if a.launches != n {
		a.e.T.Errorf("the kernel was launched %d times, want %d", a.launches, n)
	}
}

func TestAResidentKernelAnswersCommandsInTheirOrder(t *testing.T) {
	for seed := range 4 {
		t.Setenv("M40_LLM_EMU_SEED", strconv.Itoa(seed))
		e := device(t)
		a := e.answering(answersWith{blocks: []int{1, 2, 5, 6}[seed], first: 1<<32 - 9}) // numbers wrap around
		var numbers []uint32
		var want [][]uint32
		for i := range uint32(26) {
			if len(numbers) == int(1+i%testSlots) || len(numbers) == testSlots {
				a.expect(numbers[0], resultDone, want[0]...)
				numbers, want = numbers[1:], want[1:]
			}
			data := make([]uint32, []int{0, 1, 5, testWords, 64}[i%5])
			sum := make([]uint32, len(data))
			for j := range data {
				data[j] = i<<16 | uint32(j)
				sum[j] = data[j] + 3*(i+1)
			}
			numbers, want = append(numbers, a.add(i+1, 3, data...)), append(want, sum)
		}
		for i, n := range numbers {
			a.expect(n, resultDone, want[i]...)
		}
		a.wantLaunches(1)
		e.Must(a.Yield())
		e.Must(a.ring.Close())
	}
}

func TestAFullRingTakesNoCommand(t *testing.T) {
	e := device(t)
	a := e.answering(answersWith{blocks: 2})
	for i := range uint32(testSlots) {
		a.add(1, 1, i)
	}
	if _, err := a.Push(command{Kind: testAdd}, nil); !errors.Is(err, errRingFull) {
		t.Errorf("got %v", err)
	}
	a.expect(0, resultDone, 1)
	a.add(1, 1, 9)
	for i, want := range []uint32{2, 3, 4, 10} {
		a.expect(uint32(i+1), resultDone, want)
	}
	if _, err := a.Push(command{}, make([]uint32, 2*testWords)); err == nil || !strings.Contains(err.Error(), "200 words") {
		t.Errorf("data that is too long: %v", err)
	}
	if _, err := a.Wait(); err == nil || !strings.Contains(err.Error(), "no command") {
		t.Errorf("waiting for nothing: %v", err)
	}
	if _, err := newRing(e.Context, ringLayout{Slots: 3}, 0); err == nil || !strings.Contains(err.Error(), "power of two") {
		t.Errorf("a ring of 3: %v", err)
	}
	e.Must(a.Yield())
}

func TestCancelledCommandsAreNotExecuted(t *testing.T) {
	for _, first := range []uint32{0, 1<<32 - 2} {
		e := device(t)
		a := e.answering(answersWith{blocks: 3, first: first})
		a.hang(2, 100_000)
		a.add(1, 1, 5)
		a.add(1, 1, 6)
		e.until("the kernel has started", a.isHanging)
		a.Cancel()
		atomic.StoreUint32(a.goOn, 1)
		a.expect(first, resultDone)
		a.expect(first+1, resultCancelled)
		a.expect(first+2, resultCancelled)
		a.add(1, 1, 7)
		a.expect(first+3, resultDone, 8)
		a.wantLaunches(1)
		e.Must(a.Yield())
	}
}

// until waits for a condition.
func (e *testDevice) until(what string, holds func() bool) {
	e.T.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			e.T.Fatalf("not within a minute: %s", what)
		}
	}
}

// A kernel that has left is started again when there are commands, and goes on with the next one.
func TestAKernelLeavesAndComesBackWithoutLosingACommand(t *testing.T) {
	t.Run("when it is asked to", func(t *testing.T) {
		e := device(t)
		a := e.answering(answersWith{blocks: 3})
		a.hang(1, 100_000)
		a.add(2, 1, 1)
		a.add(2, 2, 2)
		e.until("the kernel has started", a.isHanging)
		time.AfterFunc(5*time.Millisecond, func() { atomic.StoreUint32(a.goOn, 1) })
		e.Must(a.Yield())
		if a.running {
			t.Error("the kernel runs")
		}
		if r, ok := a.ring.Take(); !ok || r.Number != 0 {
			t.Errorf("the first result is not there: %+v", r)
		}
		if r, ok := a.ring.Take(); ok {
			t.Errorf("another command was executed before the kernel has left: %+v", r)
		}
		e.Must(e.Free(e.Buffer(64))) // the emulator refuses it beside a resident kernel
		a.expect(1, resultDone, 3)
		e.Must(a.Yield())
		a.expect(2, resultDone, 6)
		e.Must(a.Yield())
		e.Must(a.Yield())
	})
	t.Run("when no command comes", func(t *testing.T) {
		e := device(t)
		a := e.answering(answersWith{blocks: 2, idle: 2 * time.Millisecond})
		for i := range uint32(3) {
			a.add(1, 1, i)
			a.expect(i, resultDone, i+1)
			e.until("the kernel has left", func() bool { done, err := a.stream.Done(); e.Must(err); return done })
		}
		a.wantLaunches(3)
	})
	t.Run("after its share of commands", func(t *testing.T) {
		e := device(t)
		a := e.answering(answersWith{blocks: 2, commands: 3})
		for i := range uint32(2) {
			for j := range uint32(testSlots) {
				a.add(1, 1, j)
			}
			for j := range uint32(testSlots) {
				a.expect(testSlots*i+j, resultDone, j+1)
			}
		}
		a.wantLaunches(3)
		e.Must(a.Yield())
	})
}

func TestAKernelThatHangsIsReported(t *testing.T) {
	for _, c := range []struct {
		name string
		with answersWith
		says []string
	}{
		{"block 0 makes no progress", answersWith{blocks: 2, hang: 30 * time.Millisecond}, []string{"command 7, at 0", "hangs", "restart"}},
		{"blocks wait for another in vain", answersWith{blocks: 3, patience: 20}, []string{"command 7, at 0", "waited for each other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := device(t)
			c.with.first = 6
			a := e.answering(c.with)
			a.add(1, 1, 1)
			a.expect(6, resultDone, 2)
			a.hang(uint32(c.with.blocks-1), 400)
			_, err := a.Wait()
			for _, want := range c.says {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
			if emutest.Code(err) != 719 {
				t.Errorf("%v is no error of the driver", err)
			}
			for _, again := range []error{a.Yield(), func() error { _, err := a.Push(command{}, nil); return err }(), func() error { _, err := a.Wait(); return err }()} {
				if again != err {
					t.Errorf("later calls give %v", again)
				}
			}
		})
	}
}

// A kernel that loads a command before its number is there gets no plausible data, not even that of the command
// that was in the slot before.
func TestACommandIsNotReadBeforeItIsWritten(t *testing.T) {
	e := emulation(t)
	ring, err := newRing(e.Context, ringLayout{Slots: 2, CommandWords: 1, ResultWords: 1}, 0)
	e.Must(err)
	kernel, order := e.Kernel("faults", "faults_early_command"), e.Buffer(orderBytes)
	k := newResidence(ring, e.Stream, Limits{Commands: 100, Idle: 10 * time.Second, Hang: time.Minute}, func(at cudakern.Ptr) error {
		return kernel.Launch(e.Stream, cudakern.Dim3{}, cudakern.Dim3{X: 32}, 0, at, order)
	})
	for i := range uint32(6) {
		if i == 0 { // later commands come when the kernel waits for them
			_, err = k.Push(command{}, nil)
		} else {
			time.Sleep(2 * time.Millisecond)
			_, err = k.Push(command{}, []uint32{100 + i})
		}
		e.Must(err)
		r, err := k.Wait()
		e.Must(err)
		if i > 0 && r.Data[0] != 0xffffffff {
			t.Errorf("command %d: the kernel has loaded %d", i, r.Data[0])
		}
	}
	e.Must(k.Yield())
}

// TestEveryCallOfAResidenceMayFail makes each call of the driver fail, as TestEveryCallMayFail does. How often the host asks
// whether the kernel runs depends on the time, so the last calls differ from run to run.
func TestEveryCallOfAResidenceMayFail(t *testing.T) {
	faults := emutest.NewFaults(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, code := range []int{2, 719} {
		calls := 0
		for n := 1; ; n++ {
			faults.FailAt(n, code)
			err := residenceSession(faults.Library)
			failed := faults.Failed()
			if failed == "" {
				if err != nil {
					t.Fatalf("nothing fails: %v", err)
				}
				break
			}
			calls++
			if e, ok := errors.AsType[*cudakern.Error](err); !ok || e.Code != code || e.Call != failed {
				t.Errorf("call %d, %s, fails with %d: the session ends with %v", n, failed, code, err)
			}
			if open := faults.Contexts(); open != 0 {
				t.Fatalf("call %d, %s, fails with %d: %d contexts stay open", n, failed, code, open)
			}
		}
		if calls < 25 {
			t.Errorf("a session has only %d calls", calls)
		}
	}
}

// residenceSession starts a resident kernel twice and returns the first error.
func residenceSession(library string) (err error) {
	d, err := cudakern.Load(library)
	if err != nil {
		return err
	}
	c, err := d.Open(0)
	if err != nil {
		return err
	}
	defer func() {
		if e := c.Close(); err == nil {
			err = e
		}
	}()
	a, err := newAnswering(c, answersWith{blocks: 2})
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := a.Push(command{Kind: testAdd, Args: [4]uint32{1, 1}}, []uint32{1}); err != nil {
			return err
		}
		if _, err := a.Wait(); err != nil {
			return err
		}
		if err := a.Yield(); err != nil {
			return err
		}
	}
	return a.ring.Close()
}

const ownerVariable = "M40_LLM_TEST_RESIDENT_OWNER"

// A process that is killed takes its kernel with it; the device then serves others.
func TestAKilledProcessLeavesNoKernelBehind(t *testing.T) {
	library := emutest.Library(t)
	if os.Getenv(ownerVariable) != "" {
		e := open(t, library)
		a := e.answering(answersWith{blocks: 3})
		a.add(1, 1, 1)
		a.expect(0, resultDone, 2)
		a.hang(0, 60_000)
		e.until("the kernel has started", a.isHanging)
		fmt.Println("resident")
		time.Sleep(time.Minute)
		return
	}
	owner := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err == nil {
		err = owner.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	resident := false
	for lines := bufio.NewScanner(out); !resident && lines.Scan(); {
		resident = lines.Text() == "resident"
	}
	if err := owner.Process.Kill(); err != nil || !resident {
		t.Fatalf("the owner of the kernel has not started it: %v", err)
	}
	owner.Wait()
	e := open(t, library)
	a := e.answering(answersWith{blocks: 3})
	a.add(1, 1, 1)
	a.expect(0, resultDone, 2)
	e.Must(a.Yield())
}
