// Package cudakern has the CUDA kernels, their launchers and a binding of the CUDA driver. It does
// not depend on models.
//
// The driver is libcuda.so.1, opened at run time: neither building nor running needs the CUDA
// toolkit. [Load] opens it, [Driver.Open] creates a [Context] on one device, and everything else
// belongs to that context. Each call makes its context current on the calling OS thread, so that one
// thread can use several. A context is used by one goroutine at a time.
//
// Each kernel family is a pair of files: the .cu file has the kernels, the .go file their launchers.
package cudakern

/*
#cgo CFLAGS: -std=c11 -O2
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "driver.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"
)

// Ptr is an address in device memory; 0 is none.
type Ptr uint64

// Driver is a loaded and initialised CUDA driver.
type Driver struct {
	calls   *C.struct_driver
	version int
}

// Load opens the CUDA driver at path; if path is empty, at $M40_LLM_LIBCUDA or else the system's
// libcuda.so.1. The error says what is missing. The driver is never unloaded, because NVIDIA's cannot
// be unloaded safely.
func Load(path string) (*Driver, error) {
	// With lazy loading, the first launch of a kernel may wait for running kernels.
	if err := os.Setenv("CUDA_MODULE_LOADING", "EAGER"); err != nil {
		return nil, err
	}
	calls, err := open(path)
	if err != nil {
		return nil, err
	}
	d := &Driver{calls: calls}
	if err := d.check("cuInit", C.call_cuInit(calls, 0)); err != nil {
		return nil, fmt.Errorf("the CUDA driver cannot be used: %w", err)
	}
	var version C.int
	if err := d.check("cuDriverGetVersion", C.call_cuDriverGetVersion(calls, &version)); err != nil {
		return nil, fmt.Errorf("the CUDA driver cannot be used: %w", err)
	}
	d.version = int(version)
	return d, nil
}

// kernelSide are files of which one exists if the kernel part of NVIDIA's driver runs: in Linux, or in
// the Windows host of WSL. The library alone does not prove that, because toolkits also install it.
var kernelSide = []string{"/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"}

// Installed returns nil if a driver is installed, otherwise the reason. It does not call the driver,
// so that it cannot hang or crash in it.
func Installed() error {
	named := os.Getenv("M40_LLM_LIBCUDA")
	if named == "" && !slices.ContainsFunc(kernelSide, func(name string) bool { _, err := os.Stat(name); return err == nil }) {
		return errors.New("no NVIDIA driver found")
	}
	calls, err := open(named)
	C.free(unsafe.Pointer(calls))
	return err
}

// open loads the library at path.
func open(path string) (*C.struct_driver, error) {
	path = cmp.Or(path, os.Getenv("M40_LLM_LIBCUDA"), "libcuda.so.1")
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [512]C.char
	calls := C.driver_open(name, &why[0], C.size_t(len(why)))
	if calls == nil {
		return nil, fmt.Errorf("there is no usable CUDA driver: %s", C.GoString(&why[0]))
	}
	return calls, nil
}

// Version returns the newest CUDA version that the driver supports, as
// 1000·major + 10·minor.
func (d *Driver) Version() int { return d.version }

// Error is the error of a failed driver call.
type Error struct {
	Call string // cuMemAlloc_v2
	Code int    // 2
	Name string // CUDA_ERROR_OUT_OF_MEMORY
	Text string // out of memory
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s failed: %s (%s, %d)", e.Call, e.Text, e.Name, e.Code)
}

// IsOutOfMemory reports whether err is CUDA_ERROR_OUT_OF_MEMORY.
func IsOutOfMemory(err error) bool {
	const outOfMemory = 2
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == outOfMemory
}

// check converts the result code of a call to an error.
func (d *Driver) check(call string, code C.CUresult) error {
	if code == 0 {
		return nil
	}
	e := &Error{Call: call, Code: int(code), Name: "unknown", Text: "an error that the driver has no text for"}
	var text *C.char
	if C.call_cuGetErrorName(d.calls, code, &text) == 0 && text != nil {
		e.Name = C.GoString(text)
	}
	text = nil
	if C.call_cuGetErrorString(d.calls, code, &text) == 0 && text != nil {
		e.Text = C.GoString(text)
	}
	return e
}
