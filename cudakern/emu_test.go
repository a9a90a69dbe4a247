package cudakern_test

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/cudakern/emutest"
)

// emulation opens the emulated device on this goroutine's thread.
func emulation(t testing.TB) *testDevice { return &testDevice{emutest.Open(t, emutest.Emulation(t))} }

// device opens the device that tests run kernels on.
func device(t testing.TB) *testDevice { return &testDevice{emutest.Open(t, emutest.Library(t))} }

// testDevice adds what tests of rows need to a device of tests.
type testDevice struct{ *emutest.Device }

func TestKernelsComputeTheirFormula(t *testing.T) {
	e := device(t)
	const n = 1000
	src := make([]int32, n)
	for i := range src {
		src[i] = int32(math.Float32bits(float32(i) / 3))
	}
	x, y := e.Upload(src), e.Buffer(4*n)
	affine := e.Kernel("selftest", "selftest_affine")
	e.Must(affine.Launch(e.Stream, cudakern.Dim3{X: 4}, cudakern.Dim3{X: 256}, 0, y, x, float32(2), float32(0.5), int32(n)))
	for i, bits := range e.Download(y, n) {
		if got, want := math.Float32frombits(uint32(bits)), 2*(float32(i)/3)+0.5; got != want {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
}

func TestBlocksMayRunInAnyOrder(t *testing.T) {
	for seed := range 6 {
		t.Run("seed "+strconv.Itoa(seed), func(t *testing.T) {
			t.Setenv("M40_LLM_EMU_SEED", strconv.Itoa(seed))
			e := device(t)
			sum := e.Kernel("selftest", "selftest_sum")
			for _, n := range []int{1, 31, 256, 257, 5000} {
				src := make([]int32, n)
				blocks := (n + 255) / 256
				want := make([]int32, blocks)
				var all int32
				for i := range src {
					src[i] = int32(i*i%1009 - 300)
					want[i/256] += src[i]
					all += src[i]
				}
				sums, total := e.Buffer(4*blocks), e.Upload([]int32{0})
				e.Must(sum.Launch(e.Stream, cudakern.Dim3{X: blocks}, cudakern.Dim3{X: 256}, 32, sums, total, e.Upload(src), int32(n)))
				if got := e.Download(sums, blocks); !slices.Equal(got, want) {
					t.Errorf("sums of the blocks of %d values are %v, want %v", n, got, want)
				}
				if got := e.Download(total, 1)[0]; got != all {
					t.Errorf("the sum of %d values is %d, want %d", n, got, all)
				}
			}
		})
	}
}

func TestPartsOfABlockWaitForThemselvesOnly(t *testing.T) {
	for seed := range 6 {
		t.Run("seed "+strconv.Itoa(seed), func(t *testing.T) {
			t.Setenv("M40_LLM_EMU_SEED", strconv.Itoa(seed))
			e := device(t)
			const n, part = 256, 64
			dst := e.Buffer(4 * n)
			e.Must(e.Kernel("selftest", "selftest_parts").Launch(e.Stream, cudakern.Dim3{X: 1}, cudakern.Dim3{X: n}, 4*n, dst))
			for i, got := range e.Download(dst, n) {
				if want := i/part*part + (i%part+i/part+1)%part; int(got) != want {
					t.Fatalf("thread %d has the value of %d, want that of %d", i, got, want)
				}
			}
		})
	}
}

func TestAGraphReplaysWhatWasCaptured(t *testing.T) {
	e := device(t)
	sum := e.Kernel("selftest", "selftest_sum")
	src, sums, total := e.Upload([]int32{1, 2, 3}), e.Buffer(4), e.Upload([]int32{0})
	copied := e.Buffer(4)

	e.Must(e.Stream.BeginCapture())
	e.Must(sum.Launch(e.Stream, cudakern.Dim3{X: 1}, cudakern.Dim3{X: 256}, 32, sums, total, src, int32(3)))
	e.Must(e.Stream.Copy(copied, total, 4))
	if err := e.Stream.Sync(); emutest.Code(err) != 900 {
		t.Errorf("waiting while capturing gives %v", err)
	}
	if _, err := e.Stream.EndCapture(); emutest.Code(err) != 901 {
		t.Errorf("a capture that was spoilt gives %v", err)
	}

	e.Must(e.Stream.BeginCapture())
	e.Must(sum.Launch(e.Stream, cudakern.Dim3{X: 1}, cudakern.Dim3{X: 256}, 32, sums, total, src, int32(3)))
	e.Must(e.Stream.Copy(copied, total, 4))
	graph, err := e.Stream.EndCapture()
	e.Must(err)
	executable, err := graph.Instantiate()
	e.Must(err)
	e.Must(graph.Close())
	if got := e.Download(total, 1)[0]; got != 0 {
		t.Errorf("capturing has run the kernel: the sum is %d", got)
	}
	for replay := range int32(3) {
		e.Must(executable.Launch(e.Stream))
		if got := e.Download(copied, 1)[0]; got != 6*(replay+1) {
			t.Errorf("after replay %d the sum is %d, want %d", replay, got, 6*(replay+1))
		}
	}
	e.Must(executable.Close())
}

func TestTheEmulatorReportsErrorsOfKernels(t *testing.T) {
	const illegalAddress, misaligned, launchFailed = 700, 716, 719
	for _, c := range []struct {
		name, kernel string
		args         func(e *testDevice) []any
		shared, code int
	}{
		{"a write after an allocation", "faults_write", func(e *testDevice) []any { return []any{e.Buffer(4), int64(128)} }, 0, illegalAddress},
		{"a write before an allocation", "faults_write", func(e *testDevice) []any { return []any{e.Buffer(4), int64(-1024)} }, 0, illegalAddress},
		{"a write through no pointer", "faults_write", func(e *testDevice) []any { return []any{cudakern.Ptr(0), int64(0)} }, 0, illegalAddress},
		{"a load from an address that is not aligned", "faults_misaligned", func(e *testDevice) []any { return []any{e.Buffer(16), e.Buffer(64)} }, 0, misaligned},
		{"threads at different barriers", "faults_two_barriers", nil, 0, launchFailed},
		{"threads of a part of the block at different barriers", "faults_two_barriers_of_a_part", nil, 0, launchFailed},
		{"threads at the barrier of another part of the block", "faults_not_in_a_part", nil, 0, launchFailed},
		{"threads that leave before a barrier of their part of the block", "faults_thread_stays_away", nil, 0, launchFailed},
		{"a lane that leaves before a shuffle", "faults_lane_stays_away", nil, 0, launchFailed},
		{"lanes at a barrier while others shuffle", "faults_lanes_part", nil, 0, launchFailed},
		{"lanes at different shuffles", "faults_two_shuffles", func(e *testDevice) []any { return []any{e.Buffer(4)} }, 0, launchFailed},
		{"a write after the shared memory", "faults_shared_overrun", func(e *testDevice) []any { return []any{int32(64)} }, 256, illegalAddress},
		{"a stack that is too small", "faults_stack_overflow", func(e *testDevice) []any { return []any{e.Buffer(4), int32(1<<20 - 1)} }, 0, illegalAddress},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := emulation(t)
			var args []any
			if c.args != nil {
				args = c.args(e)
			}
			kernel := e.Kernel("faults", c.kernel)
			err := kernel.Launch(e.Stream, cudakern.Dim3{X: 3}, cudakern.Dim3{X: 64}, c.shared, args...)
			if emutest.Code(err) != c.code {
				t.Errorf("the launch gives %v, want error %d", err, c.code)
			}
			if err := e.Stream.Sync(); emutest.Code(err) != c.code {
				t.Errorf("the next call gives %v, want error %d again", err, c.code)
			}
		})
	}
}

func TestARandomOrderRevealsAMissingBarrier(t *testing.T) {
	orders := map[string]bool{}
	for seed := range 4 {
		t.Setenv("M40_LLM_EMU_SEED", strconv.Itoa(seed))
		e := emulation(t)
		dst := e.Buffer(4 * 64)
		e.Must(e.Kernel("faults", "faults_race").Launch(e.Stream, cudakern.Dim3{X: 1}, cudakern.Dim3{X: 64}, 256, dst))
		var read []byte
		for _, v := range e.Download(dst, 64) {
			read = strconv.AppendInt(read, int64(v), 10)
		}
		orders[string(read)] = true
	}
	if len(orders) < 2 {
		t.Error("every order gives the same result")
	}
}

func TestTheEmulatedDriverRefusesWhatTheDriverRefuses(t *testing.T) {
	const memory = 1000000 + moduleBytes
	t.Setenv("M40_LLM_EMU_MEMORY", strconv.Itoa(memory))
	e := emulation(t)
	affine := e.Kernel("selftest", "selftest_affine")
	x := e.Buffer(400000)
	affineWith := func(grid, block, shared int) error {
		return affine.Launch(e.Stream, cudakern.Dim3{X: grid}, cudakern.Dim3{X: block}, shared, x, x, float32(1), float32(0), int32(1))
	}
	_, tooMuch := e.Alloc(600001)
	m, err := e.Family("selftest")
	e.Must(err)
	_, unknownKernel := m.Function("selftest_nothing")
	_, otherModule := m.Function("faults_write")
	_, unknownModule := e.Family("nothing")
	for _, c := range []struct {
		name string
		err  error
		code int
	}{
		{"more memory than there is", tooMuch, 2},
		{"a copy beyond an allocation", e.Stream.Upload(x+399999, []byte{1, 2}), 1},
		{"a copy from no allocation", e.Stream.Download(make([]byte, 1), x-1), 1},
		{"freeing what was not allocated", e.Free(x + 1), 1},
		{"more threads than the kernel was compiled for", affineWith(1, 512, 0), 1},
		{"more shared memory than a block can have", affineWith(1, 256, 49153), 1},
		{"a kernel that the module lacks", unknownKernel, 500},
		{"a kernel of another module", otherModule, 500},
		{"a module that is not there", unknownModule, 200},
		{"the end of no capture", func() error { _, err := e.Stream.EndCapture(); return err }(), 401},
	} {
		if emutest.Code(c.err) != c.code {
			t.Errorf("%s gives %v, want error %d", c.name, c.err, c.code)
		}
	}
	e.Must(affineWith(1, 256, 49152))
	e.Must(e.Free(x))
	free, total, err := e.MemInfo()
	e.Must(err)
	if free != 1000000 || total != memory {
		t.Errorf("%d bytes of %d are free", free, total)
	}
}

// What the emulated driver takes beside allocations, in bytes.
const (
	moduleBytes = 128 << 10
	graphBytes  = 104 << 10
	launchBytes = 2400
)

// A load that fits by its allocations alone fails on a GPU.
func TestTheEmulatedDriverTakesMemoryForModulesGraphsAndFragments(t *testing.T) {
	const memory = 4<<20 + 64<<10 + moduleBytes
	t.Setenv("M40_LLM_EMU_MEMORY", strconv.Itoa(memory))
	e := emulation(t)
	free := func() int64 {
		n, _, err := e.MemInfo()
		e.Must(err)
		return n
	}
	affine := e.Kernel("selftest", "selftest_affine")
	if taken := memory - free(); taken != moduleBytes {
		t.Errorf("a module takes %d bytes, want %d", taken, moduleBytes)
	}
	instantiate := func() (*cudakern.Executable, error) {
		x := e.Buffer(1024)
		defer func() { e.Must(e.Free(x)) }()
		e.Must(e.Stream.BeginCapture())
		for range 3 {
			e.Must(affine.Launch(e.Stream, cudakern.Dim3{X: 1}, cudakern.Dim3{X: 32}, 0, x, x, float32(1), float32(0), int32(1)))
		}
		graph, err := e.Stream.EndCapture()
		e.Must(err)
		defer func() { e.Must(graph.Close()) }()
		return graph.Instantiate()
	}
	before := free()
	graph, err := instantiate()
	e.Must(err)
	if taken := before - free(); taken != graphBytes+3*launchBytes {
		t.Errorf("a graph of three launches takes %d bytes, want %d", taken, graphBytes+3*launchBytes)
	}
	e.Must(graph.Close())
	large := e.Buffer(2<<20 + 1)
	if taken := before - free(); taken != 4<<20 {
		t.Errorf("an allocation of 2 MiB and a byte takes %d bytes, want 4 MiB", taken)
	}
	if _, err := instantiate(); emutest.Code(err) == 0 {
		t.Error("a graph needs no memory")
	}
	e.Must(e.Free(large))
	if free() != before {
		t.Errorf("%d bytes are free in the end, want %d", free(), before)
	}
}
