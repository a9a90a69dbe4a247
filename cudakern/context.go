package cudakern

// #include "driver.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Context is one device in use. All that is made in it ends with it.
type Context struct {
	driver     *Driver // whose calls are on this context
	properties Properties
	context    C.CUcontext
	families   map[string]*Module
}

// Open makes a context on device number ordinal. It fails if the kernels cannot run there.
func (d *Driver) Open(ordinal int) (*Context, error) {
	device, p, err := d.device(ordinal)
	if err != nil {
		return nil, err
	}
	if err := p.Usable(); err != nil {
		return nil, err
	}
	// A thread that waits for the device leaves its core to the server meanwhile.
	const blockingSync = 4
	c := &Context{driver: d, properties: p, families: map[string]*Module{}}
	if err := d.check("cuCtxCreate_v2", C.call_cuCtxCreate_v2(d.calls, &c.context, blockingSync, device)); err != nil {
		return nil, err
	}
	c.driver = d.on(c.context)
	return c, nil
}

// on returns the driver with all calls made on a context.
func (d *Driver) on(context C.CUcontext) *Driver {
	calls := *d.calls
	calls.context = context
	return &Driver{calls: &calls, version: d.version}
}

// Properties describes the device.
func (c *Context) Properties() Properties { return c.properties }

// Close frees all that was made in the context; none of it may be used or closed after.
func (c *Context) Close() error {
	return c.driver.check("cuCtxDestroy_v2", C.call_cuCtxDestroy_v2(c.driver.calls, c.context))
}

// MemInfo returns the bytes of device memory that are free, and all there are.
func (c *Context) MemInfo() (free, total int64, err error) {
	var f, t C.size_t
	err = c.driver.check("cuMemGetInfo_v2", C.call_cuMemGetInfo_v2(c.driver.calls, &f, &t))
	return int64(f), int64(t), err
}

// Alloc returns n bytes of device memory, whatever they hold. They are aligned for every
// load, to 256 bytes at least.
func (c *Context) Alloc(n int64) (Ptr, error) {
	if n <= 0 {
		return 0, fmt.Errorf("cannot allocate %d bytes of device memory", n)
	}
	var p C.CUdeviceptr
	err := c.driver.check("cuMemAlloc_v2", C.call_cuMemAlloc_v2(c.driver.calls, &p, C.size_t(n)))
	return Ptr(p), err
}

// Free gives the memory at p back; 0 is nothing to free.
func (c *Context) Free(p Ptr) error {
	if p == 0 {
		return nil
	}
	return c.driver.check("cuMemFree_v2", C.call_cuMemFree_v2(c.driver.calls, C.CUdeviceptr(p)))
}

// Host is memory of the host that the device copies from and to without a detour.
type Host struct {
	driver *Driver
	data   unsafe.Pointer
	bytes  int
}

// AllocHost returns n bytes of page-locked host memory, whatever they hold.
func (c *Context) AllocHost(n int) (*Host, error) {
	if n <= 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes of page-locked memory", n)
	}
	h := &Host{driver: c.driver, bytes: n}
	if err := c.driver.check("cuMemHostAlloc", C.call_cuMemHostAlloc(c.driver.calls, &h.data, C.size_t(n), 0)); err != nil {
		return nil, err
	}
	return h, nil
}

// Bytes is the memory, until Close or the end of its context.
func (h *Host) Bytes() []byte { return unsafe.Slice((*byte)(h.data), h.bytes) }

// Close gives the memory back. No copy may still use it.
func (h *Host) Close() error {
	return h.driver.check("cuMemFreeHost", C.call_cuMemFreeHost(h.driver.calls, h.data))
}
