package resident

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"m40-llm/cudakern"
	"m40-llm/cudakern/emutest"
)

// barrier returns a barrier that has been initialised.
func (e *testDevice) barrier(arrived uint32) cudakern.Ptr {
	e.T.Helper()
	b := e.Buffer(barrierBytes)
	e.Must(resetBarrier(e.Stream, b, arrived))
	return b
}

// barrierError returns nil, or if a block has given up at the barrier at b, an error that names it.
func (e *testDevice) barrierError(b cudakern.Ptr) error {
	e.T.Helper()
	words := e.Download(b, barrierBytes/4)
	if words[2] == 0 {
		return nil
	}
	return fmt.Errorf("block %d has waited for %d others for too long", words[2]-1, words[3])
}

// mapped returns host memory of n words, all 0, and its address for kernels.
func (e *testDevice) mapped(n int) ([]uint32, cudakern.Ptr) {
	e.T.Helper()
	h, p, err := e.AllocMapped(4 * n)
	e.Must(err)
	words := unsafe.Slice(wordAt(h), n)
	clear(words)
	return words, p
}

// wordAt returns the first word of h.
func wordAt(h *cudakern.Host) *uint32 { return (*uint32)(unsafe.Pointer(&h.Bytes()[0])) }

// stderrOf returns what f writes to the standard error of the process, also from C++.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	saved, err := syscall.Dup(2)
	if err == nil {
		err = syscall.Dup3(int(w.Fd()), 2, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(r)
		text <- string(b)
	}()
	defer r.Close()
	func() {
		defer func() {
			syscall.Dup3(saved, 2, 0)
			syscall.Close(saved)
			w.Close()
		}()
		f()
	}()
	return <-text
}

func TestAllBlocksMeetAtABarrier(t *testing.T) {
	for seed := range 4 {
		t.Setenv("M40_LLM_EMU_SEED", strconv.Itoa(seed))
		e := device(t)
		kernel := e.Kernel("residenttest", "resident_sums")
		for _, c := range []struct {
			blocks, threads, rounds int
			arrived                 uint32
		}{
			{1, 256, 3, 0},
			{3, 32, 7, 0},
			{24, 64, 3, 0},
			{48, 96, 2, 1<<32 - 100}, // the count wraps around
		} {
			b, values, sums := e.barrier(c.arrived), e.Buffer(4*c.blocks), e.Upload(make([]int32, c.blocks))
			e.Must(kernel.Launch(e.Stream, cudakern.Dim3{X: c.blocks}, cudakern.Dim3{X: c.threads}, 0, b, values, sums, int32(c.rounds)))
			e.Must(e.barrierError(b))
			want := int32(c.rounds * (c.rounds + 1) / 2 * c.blocks * (c.blocks + 1) / 2)
			if got := e.Download(sums, c.blocks); !slices.Equal(got, slices.Repeat([]int32{want}, c.blocks)) {
				t.Errorf("seed %d, %+v: the sums of the blocks are %v, want %d", seed, c, got, want)
			}
		}
	}
}

func TestTheEmulatorReportsErrorsOfResidentKernels(t *testing.T) {
	for _, c := range []struct {
		name, kernel string
		code         int
		says         []string
	}{
		{"a block that never arrives", "faults_block_stays_away", 719, []string{"deadlock", "blocks 0-1: ", "lanes 0 wait for a word at faults.cu:", "blocks 2: have ended"}},
		{"a kernel that waits without being resident", "faults_not_resident", 719, []string{"not declared RESIDENT", "faults.cu:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range 3 {
				t.Setenv("M40_LLM_EMU_SEED", strconv.Itoa(seed))
				e := emulation(t)
				b, kernel := e.barrier(0), e.Kernel("faults", c.kernel)
				var err error
				text := stderrOf(t, func() {
					if err = kernel.Launch(e.Stream, cudakern.Dim3{X: 3}, cudakern.Dim3{X: 64}, 0, b); err == nil {
						err = e.Stream.Sync()
					}
				})
				if emutest.Code(err) != c.code {
					t.Errorf("the launch gives %v, want error %d", err, c.code)
				}
				for _, want := range c.says {
					if !strings.Contains(text, want) {
						t.Errorf("the emulator prints %q, want %q in it", text, want)
					}
				}
			}
		})
	}
}

func TestARandomOrderRevealsAMissingGridBarrier(t *testing.T) {
	const blocks = 6
	orders := map[string]bool{}
	for seed := range 6 {
		t.Setenv("M40_LLM_EMU_SEED", strconv.Itoa(seed))
		e := emulation(t)
		dst := e.Buffer(4 * blocks)
		e.Must(e.Kernel("faults", "faults_race_of_blocks").Launch(e.Stream, cudakern.Dim3{X: blocks}, cudakern.Dim3{X: 32}, 0, e.barrier(0), e.Buffer(4*blocks), dst))
		orders[fmt.Sprint(e.Download(dst, blocks))] = true
	}
	if len(orders) < 2 {
		t.Error("every order gives the same result")
	}
}

func TestAResidentKernelMustFitOnTheDevice(t *testing.T) {
	t.Setenv("M40_LLM_EMU_SMS", "3")
	e := emulation(t)
	kernel := e.Kernel("residenttest", "resident_meet")
	b := e.barrier(0)
	start := func(blocks int) error {
		return kernel.Launch(e.Stream, cudakern.Dim3{X: blocks}, cudakern.Dim3{X: 256}, 0, b, int32(1))
	}
	if each, err := kernel.Occupancy(256, 0); err != nil || each != 2 {
		t.Errorf("%d blocks fit on a multiprocessor: %v", each, err)
	}
	e.Must(start(6))
	e.Must(e.Stream.Sync())
	stderrOf(t, func() {
		if err := start(7); emutest.Code(err) != 720 {
			t.Errorf("the launch gives %v", err)
		}
	})
}

// waiting starts a kernel that waits for the host, and returns the word that it waits for.
func (e *testDevice) waiting(milliseconds uint32) (goOn *uint32, barrier, passed cudakern.Ptr) {
	e.T.Helper()
	kernel := e.Kernel("residenttest", "resident_wait")
	words, p := e.mapped(1)
	barrier, passed = e.barrier(0), e.Upload([]int32{0})
	e.Must(kernel.Launch(e.Stream, cudakern.Dim3{X: 4}, cudakern.Dim3{X: 64}, 0, barrier, p, passed, milliseconds))
	return &words[0], barrier, passed
}

func TestAKernelRunsBesideTheHost(t *testing.T) {
	e := device(t)
	host, err := e.AllocHost(8)
	e.Must(err)
	event, err := e.NewEvent()
	e.Must(err)
	other, err := e.NewStream(cudakern.PriorityHigh)
	e.Must(err)
	goOn, barrier, passed := e.waiting(100_000)
	if done, err := e.Stream.Done(); done || err != nil {
		t.Fatalf("a kernel that waits for the host has ended: %v", err)
	}
	// What is enqueued behind the kernel waits for it, also in another stream.
	e.Must(e.Stream.Download(host.Bytes()[:4], passed))
	e.Must(e.Stream.Record(event))
	e.Must(other.Wait(event))
	e.Must(other.Download(host.Bytes()[4:], passed))
	atomic.StoreUint32(goOn, 1)
	e.Must(other.Sync())
	for i := range 2 {
		if got := binary.NativeEndian.Uint32(host.Bytes()[4*i:]); got != 4 {
			t.Errorf("copy %d: %d blocks have passed, want 4", i, got)
		}
	}
	e.Must(e.barrierError(barrier))
	if done, err := e.Stream.Done(); !done || err != nil {
		t.Errorf("the stream is not idle: %v", err)
	}
	e.Must(event.Close())
	e.Must(other.Close())
}

func TestABarrierGivesUpAfterALimit(t *testing.T) {
	e := device(t)
	_, barrier, passed := e.waiting(160)
	err := e.barrierError(barrier)
	if err == nil || !strings.Contains(err.Error(), "has waited for 1 others") {
		t.Errorf("got %v", err)
	}
	if got := e.Download(passed, 1)[0]; got != 0 {
		t.Errorf("%d blocks have passed a barrier that is broken", got)
	}
}

func TestTheEmulatorRefusesCallsThatWouldWaitForAResidentKernel(t *testing.T) {
	e := emulation(t)
	p, host := e.Buffer(64), func() *cudakern.Host { h, err := e.AllocHost(64); e.Must(err); return h }()
	goOn, _, _ := e.waiting(100_000)
	stderrOf(t, func() {
		for name, call := range map[string]func() error{
			"Alloc":     func() error { _, err := e.Alloc(64); return err },
			"Free":      func() error { return e.Free(p) },
			"AllocHost": func() error { _, err := e.AllocHost(64); return err },
			"FreeHost":  host.Close,
			"Family":    func() error { _, err := e.Family("selftest"); return err },
		} {
			if err := call(); emutest.Code(err) != 800 {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	atomic.StoreUint32(goOn, 1)
	e.Must(e.Stream.Sync())
	e.Must(e.Free(p))
	e.Must(host.Close())
}

func TestClosingAContextEndsAKernelThatWaits(t *testing.T) {
	e := emulation(t)
	stderrOf(t, func() {
		e.waiting(1_000_000)
		e.Must(e.Close())
	})
	d, err := cudakern.Load(emutest.Emulation(t))
	e.Must(err)
	e.Context, err = d.Open(0) // the test closes it
	e.Must(err)
}

// A kernel that does not wait loads what no command or result can be.
func TestWhatTheHostHasNotWrittenIsNoticed(t *testing.T) {
	e := emulation(t)
	data, dataAt, err := e.AllocMapped(4)
	e.Must(err)
	ready, readyAt := e.mapped(1)
	dst := e.Buffer(4)
	e.Must(e.Kernel("faults", "faults_early_load").Launch(e.Stream, cudakern.Dim3{X: 1}, cudakern.Dim3{X: 32}, 0, dst, dataAt, readyAt))
	atomic.StoreUint32(&ready[0], 1)
	e.Must(e.Stream.Sync())
	binary.NativeEndian.PutUint32(data.Bytes(), 7)
	if got := e.Download(dst, 1)[0]; got != -1 {
		t.Errorf("the kernel has loaded %d", got)
	}
}
