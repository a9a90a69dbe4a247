package cudakern_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/cudakern/emutest"
)

func TestLoadReportsWhatIsMissing(t *testing.T) {
	text := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path, says string
	}{
		{"a library that is not there", "/nowhere/libcuda.so.1", "/nowhere/libcuda.so.1"},
		{"a file that is no library", text, text},
		{"a library that is no driver", "libc.so.6", "libc.so.6 has no cuInit"},
		{"a driver that lacks one call", emutest.NewFaults(t, "-DcuGraphLaunch=other").Library, "has no cuGraphLaunch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := cudakern.Load(c.path); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
		})
	}
	t.Run("the environment names the driver if the caller does not", func(t *testing.T) {
		t.Setenv("M40_LLM_LIBCUDA", "/elsewhere/libcuda.so")
		if _, err := cudakern.Load(""); err == nil || !strings.Contains(err.Error(), "/elsewhere/libcuda.so") {
			t.Errorf("got %v", err)
		}
	})
}

func TestKernelsAreLoadedWithTheirModules(t *testing.T) {
	t.Setenv("CUDA_MODULE_LOADING", "LAZY")
	if _, err := cudakern.Load(emutest.Emulation(t)); err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("CUDA_MODULE_LOADING"); got != "EAGER" {
		t.Errorf("CUDA_MODULE_LOADING is %q", got)
	}
}

func TestDevicesReportWhetherTheyAreSupported(t *testing.T) {
	library := emutest.Emulation(t)
	devices := func(t *testing.T) ([]cudakern.Properties, error) {
		d, err := cudakern.Load(library)
		if err != nil {
			t.Fatal(err)
		}
		return d.Devices()
	}
	t.Run("a Tesla M40 can", func(t *testing.T) {
		list, err := devices(t)
		if err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		p := list[0]
		if !strings.Contains(p.Name, "M40") || p.Major != 5 || p.Minor != 2 || p.SMs != 24 || p.Memory != 12<<30 || p.ClockKHz != 1112000 || p.L2 != 3<<20 || p.ECC || p.ExecTimeout {
			t.Errorf("got %+v", p)
		}
		if err := p.Usable(); err != nil {
			t.Error(err)
		}
	})
	for capability, usable := range map[string]bool{"3.5": false, "5.0": false, "5.2": true, "6.0": true, "9.0": true} {
		t.Run("compute capability "+capability, func(t *testing.T) {
			t.Setenv("M40_LLM_EMU_CAPABILITY", capability)
			list, err := devices(t)
			if err != nil {
				t.Fatal(err)
			}
			err = list[0].Usable()
			if (err == nil) != usable || err != nil && !strings.Contains(err.Error(), capability) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("a driver without a device reports that", func(t *testing.T) {
		t.Setenv("M40_LLM_EMU_DEVICES", "0")
		if _, err := devices(t); err == nil || !strings.Contains(err.Error(), "no device") {
			t.Errorf("got %v", err)
		}
	})
}

func TestErrorsHaveTheCallAndTheTextOfTheDriver(t *testing.T) {
	faults := emutest.NewFaults(t)
	faults.FailAt(1, 100)
	_, err := cudakern.Load(faults.Library)
	for _, want := range []string{"cuInit", "100"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	e := emulation(t)
	_, err = e.Alloc(1 << 60)
	if got, ok := errors.AsType[*cudakern.Error](err); !ok || *got != (cudakern.Error{Call: "cuMemAlloc_v2", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"}) {
		t.Errorf("got %#v", err)
	}
	if !cudakern.IsOutOfMemory(err) || cudakern.IsOutOfMemory(errors.New("out of memory")) {
		t.Error("IsOutOfMemory does not distinguish errors")
	}
}

func TestMemoryIsCopiedToTheDeviceAndBack(t *testing.T) {
	e := emulation(t)
	data := []byte("a text of no great length")
	host, err := e.AllocHost(len(data))
	e.Must(err)
	copy(host.Bytes(), data)
	n := int64(len(data))
	a, b := e.Buffer(len(data)), e.Buffer(len(data))
	e.Must(e.Stream.Upload(a, host.Bytes()))
	e.Must(e.Stream.Copy(b, a, n))
	e.Must(e.Stream.Fill(a, 'x', n-1))
	got, filled := make([]byte, n), make([]byte, n)
	e.Must(e.Stream.Download(got, b))
	e.Must(e.Stream.Download(filled, a))
	e.Must(e.Stream.Sync())
	if !bytes.Equal(got, data) || string(filled) != strings.Repeat("x", len(data)-1)+"h" {
		t.Errorf("came back as %q and %q", got, filled)
	}
	e.Must(host.Close())
	for _, n := range []int64{0, -1} {
		if _, err := e.Alloc(n); err == nil {
			t.Errorf("%d bytes can be allocated", n)
		}
		if _, err := e.AllocHost(int(n)); err == nil {
			t.Errorf("%d bytes of page-locked memory can be allocated", n)
		}
	}
}

func TestEventsMeasureTheTimeBetweenThem(t *testing.T) {
	e := emulation(t)
	first, err := e.NewEvent()
	e.Must(err)
	second, err := e.NewEvent()
	e.Must(err)
	other, err := e.NewStream(cudakern.PriorityHigh)
	e.Must(err)
	e.Must(e.Stream.Record(first))
	e.Must(other.Wait(first))
	e.Must(other.Record(second))
	e.Must(second.Sync())
	took, err := second.Since(first)
	e.Must(err)
	if took < 0 {
		t.Errorf("the second event was %v before the first", -took)
	}
	e.Must(first.Close())
	e.Must(second.Close())
	e.Must(other.Close())
}

func TestLaunchRefusesValuesThatAreNotParameters(t *testing.T) {
	e := emulation(t)
	kernel := e.Kernel("selftest", "selftest_affine")
	if err := kernel.Launch(e.Stream, cudakern.Dim3{}, cudakern.Dim3{}, 0, 1); err == nil || !strings.Contains(err.Error(), "parameter 0 has the unsupported type int") {
		t.Errorf("an int: %v", err)
	}
	if err := kernel.Launch(e.Stream, cudakern.Dim3{}, cudakern.Dim3{}, 0, make([]any, 41)...); err == nil || !strings.Contains(err.Error(), "41") {
		t.Errorf("41 parameters: %v", err)
	}
}

func TestKernelsReportTheirResources(t *testing.T) {
	e := emulation(t)
	kernel := e.Kernel("selftest", "selftest_affine")
	a, err := kernel.Attributes()
	e.Must(err)
	if a.MaxThreads < 32 || a.Registers < 1 {
		t.Errorf("got %+v", a)
	}
	blocks, err := kernel.Occupancy(a.MaxThreads, 0)
	e.Must(err)
	if blocks < 1 {
		t.Errorf("%d blocks fit on a multiprocessor", blocks)
	}
	e.Must(kernel.SetMaxShared(32 << 10))
}

// The most frequent errors of drivers.
var faultCodes = []int{
	2,   // out of memory
	700, // illegal address
	719, // launch failed
	801, // not supported
	802, // system not ready
	999, // unknown
}

// TestEveryCallMayFail makes each call of a session fail with each error. The session must return an error
// that names the call, and leave no context open.
func TestEveryCallMayFail(t *testing.T) {
	faults := emutest.NewFaults(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, code := range faultCodes {
		n := 1
		for ; ; n++ {
			faults.FailAt(n, code)
			err := session(faults.Library)
			failed := faults.Failed()
			if failed == "" {
				if err != nil {
					t.Fatalf("nothing fails: %v", err)
				}
				break
			}
			if e, ok := errors.AsType[*cudakern.Error](err); !ok || e.Code != code || e.Call != failed {
				t.Errorf("call %d, %s, fails with %d: the session ends with %v", n, failed, code, err)
			}
			if open := faults.Contexts(); open != 0 {
				t.Fatalf("call %d, %s, fails with %d: %d contexts stay open", n, failed, code, open)
			}
		}
		if n < 40 {
			t.Errorf("a session has only %d calls", n)
		}
	}
}

// session calls every function of the binding once and returns the first error.
func session(library string) (err error) {
	d, err := cudakern.Load(library)
	if err != nil {
		return err
	}
	list, err := d.Devices()
	if err != nil {
		return err
	}
	c, err := d.Open(list[0].Ordinal)
	if err != nil {
		return err
	}
	// The first error counts.
	try := func(e error) bool {
		if err == nil {
			err = e
		}
		return err == nil
	}
	defer func() { try(c.Close()) }()
	_, _, e := c.MemInfo()
	p, e2 := c.Alloc(64)
	s, e3 := c.NewStream(cudakern.PriorityLow)
	event, e4 := c.NewEvent()
	host, e5 := c.AllocHost(64)
	module, e6 := c.Family("selftest")
	if !try(e) || !try(e2) || !try(e3) || !try(e4) || !try(e5) || !try(e6) {
		return err
	}
	kernel, e := module.Function("selftest_affine")
	if !try(e) {
		return err
	}
	_, e = kernel.Attributes()
	_, e2 = kernel.Occupancy(32, 0)
	if !try(e) || !try(e2) || !try(kernel.SetMaxShared(1024)) || !try(s.BeginCapture()) {
		return err
	}
	try(kernel.Launch(s, cudakern.Dim3{}, cudakern.Dim3{X: 32}, 0, p, p, float32(1), float32(1), int32(1)))
	graph, e := s.EndCapture()
	if !try(e) {
		return err
	}
	x, e := graph.Instantiate()
	if !try(e) {
		return err
	}
	for _, call := range []func() error{
		func() error { return s.Upload(p, host.Bytes()) },
		func() error { return x.Launch(s) },
		func() error { return s.Copy(p, p+32, 32) },
		func() error { return s.Fill(p, 1, 8) },
		func() error { return s.Record(event) },
		func() error { return s.Wait(event) },
		func() error { return s.Download(host.Bytes(), p) },
		s.Sync,
		event.Sync,
		func() error { _, e := event.Since(event); return e },
		x.Close,
		graph.Close,
		host.Close,
		event.Close,
		s.Close,
		module.Close,
		func() error { return c.Free(p) },
	} {
		if !try(call()) {
			return err
		}
	}
	return err
}
