// Package cpu is the device for the processor's vector units: C kernels compiled for several
// instruction sets, of which Open selects the best at run time.
//
// A compiled program is a list of phases in C memory, replayed by one call into C: a pool of
// threads runs one phase after another (progress.h). Upload packs a copy of each weight in the
// layout of the kernels (panel.h); a step reads it once. Without repacking (Options.NoRepack), and until a
// weight is packed after PackLater, a step packs each panel anew, in memory that stays in the cache.
//
// # Numerics
//
// F32, F16 and BF16 weights are multiplied by float32 activations. Quantised weights are multiplied
// by activations quantised to int8 with a scale for every 32 values; the sums of 32 products are
// exact integers. All other sums are float32, in an order that depends only on the shapes of the
// weights, and for attention on positions: see the comments at the top of matmul_float.h,
// matmul_panel.h and attention.h. The order differs between instruction sets, so results depend on
// Info().Path, except for paths with the same order: avx512vbmi, avx512vnni and avx512bw;
// avxvnni and avx2; f16c, avx, sse41 and on x86-64 portable; neon and on ARM portable. They do not depend on the number of threads.
package cpu

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O3
#cgo LDFLAGS: -lm -lpthread
#include <stdlib.h>
#include "engine.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"m40-llm/infer/cpu/host"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// line is the alignment of all allocations: a cache line.
const line = C.LINE

// hugePage is the size of a huge page on most processors.
const hugePage = 2 << 20

var errClosed = errors.New("cpu: the device is closed")

// tensor is a device.Tensor with its memory.
type tensor struct {
	device.Tensor
	data   unsafe.Pointer
	weight bool // a weight, not an activation
	inFile bool // data is in the layout of the model file, not packed

	copy   unsafe.Pointer // inFile: panels of the first copied rows
	copied int
}

type kv struct {
	device.KV
	data unsafe.Pointer
}

// memory is an allocation outside Go's heap.
type memory struct {
	data   unsafe.Pointer
	bytes  int64
	mapped bool // allocated by mmap, not by malloc
}

type cpu struct {
	info   device.Info
	engine *C.struct_engine // nil: closed
	numa   *numa

	tensors []tensor
	kvs     []kv
	states  []state
	weights arena // that Upload copies
	later   arena // for Pack: among the others, each of them would take the huge page that it lies in from the beginning
	owned   []memory
	views   runtime.Pinner // data of weights in Go's heap that are not packed

	packsLater bool
	unpacked   []unpacked      // weights that Pack has not copied, in the order of Upload
	missing    int64           // bytes of their copies
	compiled   [][]C.struct_op // of all programs

	// Scratch that all programs share, of the size that the largest needs.
	quant     memory
	attention memory
	groups    memory
	panels    memory

	tables  []int32 // block tables of the running batch, concatenated
	tableAt []int32 // where each begins, by cache group and sequence
	last    []int32 // last position of each row's sequence

	coordinates []int32 // of each row, by axis
}

// Options are the settings of a device.
type Options struct {
	Threads  int    // 0: as many as the process may use at once
	Path     string // number path, see Paths; empty: the fastest that the processor supports
	NoRepack string // if not empty, KeepInFile is called with this reason
	Notice   string // of Info

	Nodes []host.Node // that threads and weights are divided among; nil: those of the machine
}

// Open starts a device with threads threads on the fastest path that the processor supports. 0
// threads: as many as the process may use at once.
func Open(threads int) (device.Device, error) { return OpenWith(Options{Threads: threads}) }

// Paths lists the number paths that this processor supports, fastest first. A number path is a set
// of kernels that determines the bits of results: avx512vbmi, avx512vnni, avx512bw, avxvnni, avx2, f16c, avx, sse41, neon or portable. avx512bw is for
// processors with AVX-512 without VNNI (Skylake-X), f16c for those with AVX and F16C (Ivy Bridge), avx for those with AVX alone (Sandy
// Bridge), and sse41 for those before (Nehalem, late Core 2).
func Paths() []string {
	var paths []string
	for i := C.int(0); ; i++ {
		name := C.engine_path(i)
		if name == nil {
			return paths
		}
		paths = append(paths, C.GoString(name))
	}
}

// OpenWith starts a device.
func OpenWith(o Options) (device.Device, error) {
	const most = 1024
	threads, path := o.Threads, cmp.Or(o.Path, Paths()[0])
	if threads == 0 {
		threads = min(host.Cores(), most)
	}
	if threads < 0 || threads > most {
		return nil, fmt.Errorf("cpu: cannot run %d threads, want 1 to %d, or 0 for one per core", threads, most)
	}
	if !slices.Contains(Paths(), path) {
		return nil, fmt.Errorf("cpu: this processor does not support the path %q; supported are %s", path, strings.Join(Paths(), ", "))
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	engine := C.engine_open(name, C.int(threads))
	if engine == nil {
		return nil, fmt.Errorf("cpu: the system cannot start %d threads", threads)
	}
	d := &cpu{
		engine: engine,
		info: device.Info{
			Kind: "cpu", Name: host.Processor(), Path: path, Threads: threads, Memory: host.MemoryAvailable(),
			Notice: o.Notice, InFile: o.NoRepack, Drafts: true,
		},
	}
	nodes := o.Nodes
	if nodes == nil {
		nodes = host.Nodes()
	}
	if d.numa = newNUMA(nodes, threads); d.numa != nil {
		d.info.Name += fmt.Sprintf(", %d NUMA nodes", len(nodes))
		if err := d.numa.keepThreads(engine); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

func (d *cpu) Info() device.Info { return d.info }

// KeepInFile makes Upload keep views of weights instead of packed copies; see device.FileReader.
// F32 weights, most of which are small, are always copied.
func (d *cpu) KeepInFile(why string) { d.info.InFile = why }

// WeightBytes returns the size of a packed weight in bytes, 0 if it stays in the file. IQ1, IQ2 and
// IQ3 take up to three fifths more than in the model file, some other formats a few percent more.
func (d *cpu) WeightBytes(t gguf.Type, rows, cols int) (int64, error) {
	if formatOf(t).values == 0 {
		return 0, fmt.Errorf("cpu: no kernel for weights of type %s; there are kernels for %s", t, gguf.Names(weightTypes))
	}
	if err := checkShape(rows, cols); err != nil {
		return 0, err
	}
	if block, _ := t.Block(); cols%int(block) != 0 {
		return 0, fmt.Errorf("cpu: rows of %d values are not a multiple of the %s block size %d", cols, t, block)
	}
	switch bytes := panelBytes(t, cols); {
	case bytes > 0 && d.info.InFile != "":
		return 0, nil
	case bytes > 0:
		return (int64(rows) + C.PANEL - 1) / C.PANEL * bytes, nil
	}
	return int64(rows) * int64(t.RowBytes(cols)), nil
}

// FreeMemory returns how many bytes this process can allocate before the machine or its control
// group (cgroup) runs out of memory; 0: unknown.
func FreeMemory() int64 { return host.MemoryAvailable() }

// TotalMemory returns the bytes of main memory, or of the limit of the control group; 0: unknown.
func TotalMemory() int64 { return host.MemoryTotal() }

// WorkBytes returns the size of the scratch that all programs share (quantised activations,
// attention scores, rows grouped by expert) plus the RoPE tables of each program.
func (d *cpu) WorkBytes(programs ...*device.Program) int64 {
	var quant, attention, groups, tables, panel int64
	for _, p := range programs {
		rotations := map[device.RoPE]bool{}
		for _, op := range p.Ops {
			switch op.Kind {
			case device.OpMatMul:
				quant = max(quant, quantBytes(p.Rows, op.X.Cols))
				panel = max(panel, d.panelWork(op.W.Cols))
			case device.OpExpertMatMul:
				quant = max(quant, quantBytes(p.Rows, op.X.Cols))
				panel = max(panel, d.panelWork(op.W.Cols))
				groups = max(groups, groupBytes(p.Rows, op))
			case device.OpAttention:
				attention = max(attention, attentionFloats(op))
			case device.OpRoPE:
				if key := anglesOf(op.RoPE); !rotations[key] {
					rotations[key] = true
					freqs, table := angleBytes(p.Rows, op.RoPE.Dims)
					tables += freqs + table
				}
			}
		}
	}
	return quant + (4*attention+panel)*int64(d.info.Threads) + groups + tables
}

// panelWork returns the bytes that a thread packs a panel in, for weights of any type with cols
// columns that stay in the file.
func (d *cpu) panelWork(cols int) int64 {
	if d.info.InFile == "" && !d.packsLater {
		return 0
	}
	const widest = 2 // bytes of a value, in F16
	return widest*C.PANEL*int64(cols) + line
}

// Upload packs a copy of data, using all threads, or keeps a view of it.
func (d *cpu) Upload(t gguf.Type, rows, cols int, data []byte) (device.Tensor, error) {
	if d.engine == nil {
		return device.Tensor{}, errClosed
	}
	bytes, err := d.WeightBytes(t, rows, cols)
	if err != nil {
		return device.Tensor{}, err
	}
	if want := int64(rows) * int64(t.RowBytes(cols)); int64(len(data)) != want {
		return device.Tensor{}, fmt.Errorf("cpu: weight %s (%d, %d) has %d bytes, want %d", t, rows, cols, len(data), want)
	}
	w := tensor{Tensor: device.Tensor{Type: t, Rows: rows, Cols: cols}, weight: true}
	if bytes == 0 {
		return d.addView(w, data), nil
	}
	later, from := d.packsLater && panelBytes(t, cols) > 0, &d.weights
	if later {
		from = &d.later
	}
	to, err := from.alloc(bytes)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cpu: weight %s (%d, %d): %w", t, rows, cols, err)
	}
	if later {
		view := d.addView(w, data)
		d.unpacked = append(d.unpacked, unpacked{Tensor: view, data: data, to: to})
		d.missing += bytes
		return view, nil
	}
	if err := d.pack(w.Tensor, data, to); err != nil {
		return device.Tensor{}, err
	}
	w.data = to
	return d.add(w), nil
}

// addView is add for a weight that stays in data.
func (d *cpu) addView(w tensor, data []byte) device.Tensor {
	d.views.Pin(unsafe.SliceData(data))
	w.data, w.inFile = unsafe.Pointer(unsafe.SliceData(data)), true
	return d.add(w)
}

// pack copies a weight, or some of its rows, from data to to.
func (d *cpu) pack(w device.Tensor, data []byte, to unsafe.Pointer) error {
	if C.engine_pack(d.engine, C.int(w.Type), C.int(w.Rows), C.int(w.Cols), (*C.uint8_t)(unsafe.SliceData(data)), (*C.uint8_t)(to)) == 0 {
		return fmt.Errorf("cpu: %w", device.ErrUnreadable)
	}
	return nil
}

func (d *cpu) Alloc(rows, cols int) (device.Tensor, error) {
	if d.engine == nil {
		return device.Tensor{}, errClosed
	}
	if err := checkShape(rows, cols); err != nil {
		return device.Tensor{}, err
	}
	data, err := d.alloc(4 * int64(rows) * int64(cols))
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cpu: activation (%d, %d): %w", rows, cols, err)
	}
	return d.add(tensor{Tensor: device.Tensor{Type: gguf.F32, Rows: rows, Cols: cols}, data: data}), nil
}

// AllocKV allocates a zeroed KV cache. A block takes memory only after its first write.
func (d *cpu) AllocKV(l device.KVLayout) (device.KV, error) {
	if d.engine == nil {
		return device.KV{}, errClosed
	}
	if err := l.CheckType(); err != nil {
		return device.KV{}, fmt.Errorf("cpu: %w", err)
	}
	bytes := int64(4)
	for _, n := range []int{l.Blocks, l.Layers, l.KVHeads, l.HeadDim, 2 * device.BlockSize} {
		if n <= 0 || n > math.MaxInt32 || bytes > math.MaxInt64/int64(n) {
			return device.KV{}, fmt.Errorf("cpu: KV cache of %d blocks, %d layers, %d kv heads, head dim %d: sizes must be positive and fit in memory",
				l.Blocks, l.Layers, l.KVHeads, l.HeadDim)
		}
		bytes *= int64(n)
	}
	data, err := d.alloc(l.Bytes())
	if err != nil {
		return device.KV{}, fmt.Errorf("cpu: KV cache of %d blocks: %w", l.Blocks, err)
	}
	// A head's part of a block may be as small as a page. With smaller blocks, huge pages would take
	// much more memory than the blocks that are written.
	if l.BlockBytes() >= hugePage/2 {
		_ = unix.Madvise(unsafe.Slice((*byte)(data), l.Bytes()), unix.MADV_HUGEPAGE) // fails on kernels without huge pages
	}
	d.numa.spread(data, l.Bytes())
	cache := device.KV{ID: int32(len(d.kvs) + 1), Layout: l}
	d.kvs = append(d.kvs, kv{cache, data})
	return cache, nil
}

func (d *cpu) ReadKV(dst []byte, kv device.KV, block int32) error {
	data, err := d.block(kv, block, dst)
	copy(dst, data)
	return err
}

func (d *cpu) WriteKV(kv device.KV, block int32, src []byte) error {
	data, err := d.block(kv, block, src)
	copy(data, src)
	return err
}

// ReleaseKV gives the whole pages of a block back.
func (d *cpu) ReleaseKV(kv device.KV, block int32) error {
	data, err := d.memoryOf(kv, block)
	if err != nil || kv.Layout.Bytes() < mapped {
		return err
	}
	page, begin := uintptr(os.Getpagesize()), uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	from, to := (begin+page-1)/page*page, (begin+uintptr(len(data)))/page*page
	if from >= to {
		return nil
	}
	if err := unix.Madvise(data[from-begin:to-begin], unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("cpu: the memory of block %d of a KV cache cannot be given back: %w", block, err)
	}
	return nil
}

// block returns the memory of a block. data is what it is copied to or from.
func (d *cpu) block(kv device.KV, block int32, data []byte) ([]byte, error) {
	memory, err := d.memoryOf(kv, block)
	if err != nil {
		return nil, err
	}
	if err := kv.Layout.CheckBlock(block, data); err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	return memory, nil
}

// memoryOf returns the memory of a block.
func (d *cpu) memoryOf(named device.KV, block int32) ([]byte, error) {
	if d.engine == nil {
		return nil, errClosed
	}
	if named.ID < 1 || int(named.ID) > len(d.kvs) || d.kvs[named.ID-1].KV != named {
		return nil, fmt.Errorf("cpu: KV cache %d does not belong to this device", named.ID)
	}
	if err := named.Layout.CheckIndex(block); err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	bytes := named.Layout.BlockBytes()
	return unsafe.Slice((*byte)(unsafe.Add(d.kvs[named.ID-1].data, int64(block)*bytes)), bytes), nil
}

func (d *cpu) Read(dst []float32, t device.Tensor, row int) error {
	values, err := d.row(t, row, len(dst))
	copy(dst, values)
	return err
}

// Candidates returns the row itself in All. Selecting candidates first would take longer than a
// sampler that reads the whole row.
func (d *cpu) Candidates(logits device.Tensor, row int) (device.Candidates, error) {
	all, err := d.row(logits, row, logits.Cols)
	return device.Candidates{All: all}, err
}

func (d *cpu) Write(t device.Tensor, row int, src []float32) error {
	values, err := d.row(t, row, len(src))
	copy(values, src)
	return err
}

// row returns n values of an activation, whole rows beginning at row row.
func (d *cpu) row(t device.Tensor, row, n int) ([]float32, error) {
	if d.engine == nil {
		return nil, errClosed
	}
	a, err := d.activation(t)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	if !t.HasRows(row, n) {
		return nil, fmt.Errorf("cpu: %d values are not whole rows of an activation (%d, %d) from row %d on", n, t.Rows, t.Cols, row)
	}
	return unsafe.Slice((*float32)(unsafe.Add(a.data, 4*row*t.Cols)), n), nil
}

// Close ends the threads and frees all memory. Calls after the first do nothing.
func (d *cpu) Close() error {
	if d.engine == nil {
		return nil
	}
	C.engine_close(d.engine)
	d.engine = nil
	for _, m := range append(d.owned, d.quant, d.attention, d.groups, d.panels) {
		m.free()
	}
	d.owned, d.tensors, d.kvs, d.states, d.unpacked, d.compiled = nil, nil, nil, nil, nil, nil
	d.quant, d.attention, d.groups, d.panels = memory{}, memory{}, memory{}, memory{}
	d.weights.free()
	d.later.free()
	d.views.Unpin()
	return nil
}

// add gives t an ID and returns its handle.
func (d *cpu) add(t tensor) device.Tensor {
	t.ID = int32(len(d.tensors) + 1)
	d.tensors = append(d.tensors, t)
	return t.Tensor
}

// tensor returns the tensor that t is a handle of.
func (d *cpu) tensor(t device.Tensor) (tensor, error) {
	if t.ID < 1 || int(t.ID) > len(d.tensors) || d.tensors[t.ID-1].Tensor != t {
		return tensor{}, fmt.Errorf("tensor %d, %s (%d, %d), does not belong to this device", t.ID, t.Type, t.Rows, t.Cols)
	}
	return d.tensors[t.ID-1], nil
}

func (d *cpu) activation(t device.Tensor) (tensor, error) {
	a, err := d.tensor(t)
	if err == nil && a.weight {
		err = fmt.Errorf("tensor %d is a weight, want an activation", t.ID)
	}
	return a, err
}

// alloc allocates zeroed memory. Close frees it.
func (d *cpu) alloc(bytes int64) (unsafe.Pointer, error) {
	m, err := allocate(bytes)
	if err == nil {
		d.owned = append(d.owned, m)
	}
	return m.data, err
}

// grow makes m at least bytes bytes large; its content is lost.
func (m *memory) grow(bytes int64) error {
	if m.bytes >= bytes {
		return nil
	}
	larger, err := allocate(bytes)
	if err != nil {
		return err
	}
	m.free()
	*m = larger
	return nil
}

func (m memory) free() {
	if m.mapped {
		_ = unix.Munmap(unsafe.Slice((*byte)(m.data), m.bytes))
		return
	}
	C.free(m.data)
}

// mapped is the size from which allocations are mapped.
const mapped = 1 << 20

// allocate returns zeroed memory outside Go's heap. Large allocations are mapped instead of
// cleared: clearing gigabytes would block the garbage collector, and so all goroutines, for
// seconds.
func allocate(bytes int64) (memory, error) {
	if bytes >= mapped {
		pages, err := mapPages(bytes, bytes)
		return memory{unsafe.Pointer(unsafe.SliceData(pages)), bytes, true}, err
	}
	var p unsafe.Pointer
	if C.posix_memalign(&p, line, C.size_t(bytes)) != 0 {
		return memory{}, shortage{fmt.Errorf("the system cannot allocate %s", mebibytes(bytes))}
	}
	clear(unsafe.Slice((*byte)(p), bytes))
	return memory{p, bytes, false}, nil
}

// mapPages returns zeroed pages, which take memory when first used. It fails if less than use bytes
// are free, because Linux overcommits memory and kills a process that uses more than there is.
func mapPages(bytes, use int64) ([]byte, error) {
	if free := host.MemoryAvailable(); free > 0 && use > free {
		return nil, shortage{fmt.Errorf("%s of memory are needed, but only %s are free", mebibytes(use), mebibytes(free))}
	}
	pages, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, shortage{fmt.Errorf("the system cannot map %s: %w", mebibytes(bytes), err)}
	}
	return pages, nil
}

// shortage is the error of memory that the system refuses.
type shortage struct{ error }

func (s shortage) Unwrap() error        { return s.error }
func (s shortage) Is(target error) bool { return target == device.ErrMemory }

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func checkShape(rows, cols int) error {
	if rows <= 0 || cols <= 0 || rows > math.MaxInt32 || cols > math.MaxInt32 {
		return fmt.Errorf("cpu: tensor shape (%d, %d) is invalid, want 1 to %d in each dimension", rows, cols, math.MaxInt32)
	}
	return nil
}
