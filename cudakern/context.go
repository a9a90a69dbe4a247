package cudakern

// #include "driver.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Context is a CUDA context on one device. Closing it frees everything that was created in it.
type Context struct {
	driver     *Driver // whose calls are on this context
	properties Properties
	context    C.CUcontext
	families   map[string]*Module

	Units Units // of products on path i16
}

// Open creates a context on device number ordinal. It fails if the kernels do not support the device.
func (d *Driver) Open(ordinal int) (*Context, error) {
	device, p, err := d.device(ordinal)
	if err != nil {
		return nil, err
	}
	if err := p.Usable(); err != nil {
		return nil, err
	}
	// A thread that waits for the device sleeps instead of spinning.
	const blockingSync = 4
	c := &Context{driver: d, properties: p, families: map[string]*Module{}, Units: p.Units()}
	if err := d.check("cuCtxCreate_v2", C.call_cuCtxCreate_v2(d.calls, &c.context, blockingSync, device)); err != nil {
		return nil, err
	}
	c.driver = d.on(c.context)
	return c, nil
}

// on returns a driver whose calls are made in a context.
func (d *Driver) on(context C.CUcontext) *Driver {
	calls := *d.calls
	calls.context = context
	return &Driver{calls: &calls, version: d.version}
}

// Properties describes the device.
func (c *Context) Properties() Properties { return c.properties }

// Emulated reports whether the driver is the emulator of emu/.
func (c *Context) Emulated() bool { return c.driver.calls.emulated != 0 }

// Close frees everything that was created in the context; none of it may be used or closed
// afterwards.
func (c *Context) Close() error {
	return c.driver.check("cuCtxDestroy_v2", C.call_cuCtxDestroy_v2(c.driver.calls, c.context))
}

// MemInfo returns the free and the total device memory in bytes.
func (c *Context) MemInfo() (free, total int64, err error) {
	var f, t C.size_t
	err = c.driver.check("cuMemGetInfo_v2", C.call_cuMemGetInfo_v2(c.driver.calls, &f, &t))
	return int64(f), int64(t), err
}

// Alloc returns n bytes of uninitialised device memory, aligned to at least 256 bytes.
func (c *Context) Alloc(n int64) (Ptr, error) {
	if n <= 0 {
		return 0, fmt.Errorf("cannot allocate %d bytes of device memory", n)
	}
	var p C.CUdeviceptr
	err := c.driver.check("cuMemAlloc_v2", C.call_cuMemAlloc_v2(c.driver.calls, &p, C.size_t(n)))
	return Ptr(p), err
}

// Free frees the memory at p. It does nothing if p is 0.
func (c *Context) Free(p Ptr) error {
	if p == 0 {
		return nil
	}
	return c.driver.check("cuMemFree_v2", C.call_cuMemFree_v2(c.driver.calls, C.CUdeviceptr(p)))
}

// Host is page-locked host memory, which the device can read and write directly.
type Host struct {
	driver *Driver
	data   unsafe.Pointer
	bytes  int
}

// AllocHost returns n bytes of uninitialised page-locked host memory.
func (c *Context) AllocHost(n int) (*Host, error) { return c.allocHost(n, 0) }

// AllocMapped returns n bytes of uninitialised page-locked host memory, and its address for kernels, which can read
// and write it while they run.
func (c *Context) AllocMapped(n int) (*Host, Ptr, error) {
	const deviceMap = 2
	h, err := c.allocHost(n, deviceMap)
	if err != nil {
		return nil, 0, err
	}
	var p C.CUdeviceptr
	if err := c.driver.check("cuMemHostGetDevicePointer_v2", C.call_cuMemHostGetDevicePointer_v2(c.driver.calls, &p, h.data, 0)); err != nil {
		h.Close()
		return nil, 0, err
	}
	return h, Ptr(p), nil
}

func (c *Context) allocHost(n int, flags C.uint) (*Host, error) {
	if n <= 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes of page-locked memory", n)
	}
	h := &Host{driver: c.driver, bytes: n}
	if err := c.driver.check("cuMemHostAlloc", C.call_cuMemHostAlloc(c.driver.calls, &h.data, C.size_t(n), flags)); err != nil {
		return nil, err
	}
	return h, nil
}

// Bytes returns the memory. It is valid until Close, also of the context.
func (h *Host) Bytes() []byte { return unsafe.Slice((*byte)(h.data), h.bytes) }

// Close frees the memory. No running copy may use it.
func (h *Host) Close() error {
	return h.driver.check("cuMemFreeHost", C.call_cuMemFreeHost(h.driver.calls, h.data))
}
