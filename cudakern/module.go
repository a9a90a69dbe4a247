package cudakern

/*
#include <stdlib.h>
#include "driver.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime"
	"strings"
	"unsafe"

	"m40-llm/cudakern/fatbin"
)

// Module is a loaded module of kernels.
type Module struct {
	driver *Driver
	module C.CUmodule
}

// LoadModule loads a fatbin, cubin or PTX. If only the PTX fits the device, the driver compiles it,
// which takes seconds unless the result is in its cache.
func (c *Context) LoadModule(image []byte) (*Module, error) {
	// The driver reads PTX up to a zero byte.
	text := C.CBytes(append(image[:len(image):len(image)], 0))
	defer C.free(text)
	m := &Module{driver: c.driver}
	var log [4096]C.char
	err := c.driver.check("cuModuleLoadDataEx", C.load_module(c.driver.calls, &m.module, text, &log[0], C.size_t(len(log))))
	if said := strings.TrimSpace(C.GoString(&log[0])); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Family returns the embedded module called name. It is loaded once and stays loaded until the
// context is closed.
func (c *Context) Family(name string) (*Module, error) {
	if m := c.families[name]; m != nil {
		return m, nil
	}
	image := []byte("emulation:" + name) // the emulation has the kernels built in
	if !c.Emulated() {
		var err error
		if image, err = fatbin.Read(name); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("this program was built without the kernels %q; compile them with make kernels", name)
		} else if err != nil {
			return nil, fmt.Errorf("cannot load the kernels %q: %w", name, err)
		}
	}
	m, err := c.LoadModule(image)
	if err != nil {
		return nil, fmt.Errorf("cannot load the kernels %q: %w", name, err)
	}
	c.families[name] = m
	return m, nil
}

// Close unloads the module.
func (m *Module) Close() error {
	return m.driver.check("cuModuleUnload", C.call_cuModuleUnload(m.driver.calls, m.module))
}

// Function is a kernel.
type Function struct {
	driver   *Driver
	name     string
	function C.CUfunction
	overlaps bool // waits itself for the launches before it: overlap.cuh
	divides  bool // Divides
}

// Name returns the name of the kernel.
func (f *Function) Name() string { return f.name }

// Divides reports whether the blocks along X divide the work among them, however many there are.
func (f *Function) Divides() bool { return f.divides }

// Function returns the kernel called name.
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{driver: m.driver, name: name}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	if err := m.driver.check("cuModuleGetFunction", C.call_cuModuleGetFunction(m.driver.calls, &f.function, m.module, text)); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	return f, nil
}

// Dim3 is an extent in up to three dimensions.
type Dim3 struct{ X, Y, Z int }

// Launch is a launch of a kernel: Grid blocks of Block threads. Zero extents count as 1.
type Launch struct {
	Kernel      *Function
	Grid, Block Dim3
	Shared      int // bytes of dynamic shared memory of a block
	Spread      int // in a stream, a block gets at least so many bytes, so that few of them share a multiprocessor

	values [8 * MaxParameters]byte // parameters of the kernel, 8 bytes each
	params int
}

// MaxParameters is the most parameters that a kernel may have.
const MaxParameters = C.MAX_PARAMS

// Parameters returns the parameters of the kernel, 8 bytes each, and zeros up to MaxParameters.
func (l *Launch) Parameters() []byte { return l.values[:] }

// Queue receives launches. A Stream runs them, a Recording keeps them.
type Queue interface{ launch(l *Launch) error }

// Recording is a Queue that keeps launches, in their order, to be enqueued in streams later.
type Recording struct{ Launches []Launch }

func (r *Recording) launch(l *Launch) error {
	r.Launches = append(r.Launches, *l)
	return nil
}

// Launch enqueues a kernel: grid blocks of block threads, with shared bytes of dynamic shared
// memory. Zero extents count as 1. args are the kernel's parameters in order, of the types Ptr,
// int32, uint32, float32, int64 and uint64.
func (f *Function) Launch(to Queue, grid, block Dim3, shared int, args ...any) error {
	return f.launch(to, Launch{Grid: grid, Block: block, Shared: shared}, args...)
}

// launch enqueues launch, of which Kernel and the parameters are set.
func (f *Function) launch(to Queue, launch Launch, args ...any) error {
	l := &launch
	l.Kernel, l.params = f, len(args)
	if len(args) > MaxParameters {
		return fmt.Errorf("kernel %s: has %d parameters, the limit is %d", f.name, len(args), MaxParameters)
	}
	for i, arg := range args {
		at := l.values[8*i:]
		switch v := arg.(type) {
		case Ptr:
			binary.NativeEndian.PutUint64(at, uint64(v))
		case int32:
			binary.NativeEndian.PutUint32(at, uint32(v))
		case uint32:
			binary.NativeEndian.PutUint32(at, v)
		case float32:
			binary.NativeEndian.PutUint32(at, math.Float32bits(v))
		case int64:
			binary.NativeEndian.PutUint64(at, uint64(v))
		case uint64:
			binary.NativeEndian.PutUint64(at, v)
		default:
			return fmt.Errorf("kernel %s: parameter %d has the unsupported type %T", f.name, i, arg)
		}
	}
	return to.launch(l)
}

// Enqueue enqueues the launch in a stream.
func (l *Launch) Enqueue(s *Stream) error { return s.launch(l) }

func (s *Stream) launch(l *Launch) error {
	g, b := l.Grid.extent(), l.Block.extent()
	code := C.launch(s.driver.calls, l.Kernel.function, &g[0], &b[0], C.uint(max(l.Shared, l.Spread)), s.stream, unsafe.Pointer(&l.values[0]), C.int(l.params), l.Kernel.begins())
	runtime.KeepAlive(l)
	if err := s.driver.check("cuLaunchKernel", code); err != nil {
		return fmt.Errorf("kernel %s: %w", l.Kernel.name, err)
	}
	return nil
}

// overlapRows is how many rows launches may have that overlap: with more, blocks that wait would take the place of others.
const overlapRows = 4

// early returns f for launches of capacity rows, which overlap if f does and they are few.
func (f *Function) early(overlaps bool, capacity int) *Function {
	k := *f
	k.overlaps = overlaps && capacity <= overlapRows
	return &k
}

// begins returns whether launches of f may begin before those before them have ended: 0 or 1.
func (f *Function) begins() C.int {
	const captures = 12030 // the first version that captures such launches in graphs
	if f.overlaps && f.driver.version >= captures {
		return 1
	}
	return 0
}

func (d Dim3) extent() [3]C.uint {
	return [3]C.uint{C.uint(max(d.X, 1)), C.uint(max(d.Y, 1)), C.uint(max(d.Z, 1))}
}

// Attributes are the resources that a kernel uses.
type Attributes struct {
	MaxThreads int // of a block
	Shared     int // bytes of static shared memory of a block
	Local      int // bytes of local memory of a thread: spills and arrays
	Registers  int // of a thread
}

// Attributes returns the resources that the kernel uses on the device.
func (f *Function) Attributes() (Attributes, error) {
	var a Attributes
	for number, value := range map[C.int]*int{0: &a.MaxThreads, 1: &a.Shared, 3: &a.Local, 4: &a.Registers} {
		var v C.int
		if err := f.driver.check("cuFuncGetAttribute", C.call_cuFuncGetAttribute(f.driver.calls, &v, number, f.function)); err != nil {
			return Attributes{}, fmt.Errorf("kernel %s: %w", f.name, err)
		}
		*value = int(v)
	}
	return a, nil
}

// SetMaxShared allows launches with up to bytes of dynamic shared memory. It is needed for more than
// 48 KB, which is the maximum of a block on the Tesla M40.
func (f *Function) SetMaxShared(bytes int) error {
	const maxDynamicShared = 8
	if err := f.driver.check("cuFuncSetAttribute", C.call_cuFuncSetAttribute(f.driver.calls, f.function, maxDynamicShared, C.int(bytes))); err != nil {
		return fmt.Errorf("kernel %s: %w", f.name, err)
	}
	return nil
}

// Occupancy returns how many blocks of threads threads with shared bytes of dynamic shared memory
// can run on one multiprocessor at the same time.
func (f *Function) Occupancy(threads, shared int) (int, error) {
	var blocks C.int
	if err := f.driver.check("cuOccupancyMaxActiveBlocksPerMultiprocessor",
		C.call_cuOccupancyMaxActiveBlocksPerMultiprocessor(f.driver.calls, &blocks, f.function, C.int(threads), C.size_t(shared))); err != nil {
		return 0, fmt.Errorf("kernel %s: %w", f.name, err)
	}
	return int(blocks), nil
}
