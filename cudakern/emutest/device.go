package emutest

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"m40-llm/cudakern"
)

// Device is an open device with one stream. A method that fails ends the test.
type Device struct {
	*cudakern.Context
	Stream *cudakern.Stream
	T      testing.TB
}

// Open opens the first device of a driver on this goroutine's thread, until the test ends.
func Open(t testing.TB, library string) *Device {
	t.Helper()
	driver, err := cudakern.Load(library)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	d := &Device{T: t}
	d.Context, err = driver.Open(0)
	d.Must(err)
	t.Cleanup(func() { d.Must(d.Close()) })
	d.Stream, err = d.NewStream(cudakern.PriorityLow)
	d.Must(err)
	return d
}

// Must ends the test if err is not nil.
func (d *Device) Must(err error) {
	d.T.Helper()
	if err != nil {
		d.T.Fatal(err)
	}
}

// Buffer allocates device memory, whose content is undefined.
func (d *Device) Buffer(bytes int) cudakern.Ptr {
	d.T.Helper()
	p, err := d.Alloc(int64(bytes))
	d.Must(err)
	return p
}

// Kernel loads the kernel name of a module.
func (d *Device) Kernel(module, name string) *cudakern.Function {
	d.T.Helper()
	m, err := d.Family(module)
	d.Must(err)
	f, err := m.Function(name)
	d.Must(err)
	return f
}

// Upload returns a new buffer with a copy of values.
func (d *Device) Upload(values []int32) cudakern.Ptr {
	d.T.Helper()
	p := d.Buffer(4 * len(values))
	var b []byte
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, uint32(v))
	}
	d.Must(d.Stream.Upload(p, b))
	return p
}

// Download waits for the stream and returns n values from p on.
func (d *Device) Download(p cudakern.Ptr, n int) []int32 {
	d.T.Helper()
	b := make([]byte, 4*n)
	d.Must(d.Stream.Download(b, p))
	d.Must(d.Stream.Sync())
	values := make([]int32, n)
	for i := range values {
		values[i] = int32(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return values
}

// Code returns the CUresult of an error, or 0 if it has none.
func Code(err error) int {
	if e, ok := errors.AsType[*cudakern.Error](err); ok {
		return e.Code
	}
	return 0
}
