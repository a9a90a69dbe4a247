package cudakern_test

import (
	"encoding/binary"
	"math"
	"runtime"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/cudakern/emutest"
)

// emulated opens the emulated device on this goroutine's thread.
func emulated(t *testing.T) (*cudakern.Context, *cudakern.Stream) {
	t.Helper()
	d, err := cudakern.Load(emutest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := c.NewStream(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, s
}

func TestEmulatedKernelsComputeWhatTheirSourceSays(t *testing.T) {
	c, s := emulated(t)
	m, err := c.Family("selftest")
	if err != nil {
		t.Fatal(err)
	}
	affine, err := m.Function("selftest_affine")
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	src := make([]byte, 4*n)
	for i := range n {
		binary.NativeEndian.PutUint32(src[4*i:], math.Float32bits(float32(i)/3))
	}
	x, err := c.Alloc(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	y, err := c.Alloc(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Upload(x, src); err != nil {
		t.Fatal(err)
	}
	if err := affine.Launch(s, cudakern.Dim3{X: 4}, cudakern.Dim3{X: 256}, 0, y, x, float32(2), float32(0.5), int32(n)); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 4*n)
	if err := s.Download(dst, y); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		got, want := math.Float32frombits(binary.NativeEndian.Uint32(dst[4*i:])), 2*(float32(i)/3)+0.5
		if got != want {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
}
