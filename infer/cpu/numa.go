package cpu

/*
#include "engine.h"
#include "numa.h"
*/
import "C"

import (
	"errors"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"m40-llm/infer/cpu/host"
	"m40-llm/infer/gguf"
)

// numa divides threads, and the weights that they read, among the nodes of a machine, so that each node's memory is read by its
// own processors. The nil numa is a machine where all memory is equally near.
type numa struct {
	host.Division
	placed map[unsafe.Pointer]bool
}

// newNUMA returns nil where there is nothing to divide, or the system does not allow it: containers often may not place memory.
// M40_LLM_NUMA=off leaves threads and memory to the system, for comparisons.
func newNUMA(nodes []host.Node, threads int) *numa {
	if len(nodes) < 2 || threads < len(nodes) || os.Getenv("M40_LLM_NUMA") == "off" {
		return nil
	}
	n := &numa{host.Divide(nodes, threads), map[unsafe.Pointer]bool{}}
	probe, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil
	}
	defer unix.Munmap(probe)
	for node := range nodes {
		if n.prefer(unsafe.Pointer(unsafe.SliceData(probe)), int64(len(probe)), preferNode, node) != nil {
			return nil
		}
	}
	return n
}

// keepThreads keeps the threads of an engine on the processors of their nodes.
func (n *numa) keepThreads(e *C.struct_engine) error {
	most := 0
	for _, node := range n.Nodes {
		most = max(most, slices.Max(node.Processors))
	}
	bytes := (most/64 + 1) * 8
	var masks []byte // of a thread after the other
	for i, node := range n.Nodes {
		mask := make([]byte, bytes)
		for _, p := range node.Processors {
			mask[p/8] |= 1 << (p % 8)
		}
		first, last := n.Threads(i)
		masks = append(masks, slices.Repeat(mask, last-first)...)
	}
	if C.engine_keep_threads(e, (*C.uint8_t)(unsafe.SliceData(masks)), C.size_t(bytes)) == 0 {
		return errors.New("cpu: there is no memory for the processors of threads")
	}
	return nil
}

// Memory policies of Linux.
const (
	preferNode = 1 // the first node of the mask, others where it is full
	interleave = 3 // page by page, all nodes of the mask
	movePages  = 2 // pages that are in use already too
)

// prefer sets the policy for the whole pages of bytes bytes at p: preferNode with a node of n, or interleave. It is a hint: memory that
// is not placed is slower to read.
func (n *numa) prefer(p unsafe.Pointer, bytes int64, policy, node int) error {
	page := uintptr(os.Getpagesize())
	from, to := (uintptr(p)+page-1)/page*page, (uintptr(p)+uintptr(bytes))/page*page
	if from >= to {
		return nil
	}
	var mask [1024 / 64]uint64
	for i, of := range n.Nodes {
		if policy == interleave || i == node {
			mask[of.ID/64%len(mask)] |= 1 << (of.ID % 64)
		}
	}
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, from, to-from, uintptr(policy), uintptr(unsafe.Pointer(&mask)), 64*uintptr(len(mask))+1, movePages)
	if errno != 0 {
		return errno
	}
	return nil
}

// divide places bytes bytes at p that all threads read, each a contiguous part.
func (n *numa) divide(p unsafe.Pointer, bytes int64) {
	if n == nil {
		return
	}
	for node := range n.Nodes {
		first, last := n.Part(node, bytes)
		n.prefer(unsafe.Add(p, first), last-first, preferNode, node)
	}
}

// spread places bytes bytes at p that any thread reads on all nodes in turn.
func (n *numa) spread(p unsafe.Pointer, bytes int64) {
	if n != nil {
		n.prefer(p, bytes, interleave, 0)
	}
}

// placeWeights places the packed weights of products where a program's threads read them. Weights that another program placed stay there: the
// shares of the threads are the same but for rounding. Which experts a row chooses is not known before, so those are spread.
func (l *lowering) placeWeights() {
	n := l.device.numa
	if n == nil {
		return
	}
	copies := map[*C.uint8_t]unsafe.Pointer{} // that Pack will write, by the data in the file
	for _, w := range l.device.unpacked {
		copies[(*C.uint8_t)(unsafe.SliceData(w.data))] = w.to
	}
	for _, phase := range l.phases {
		if phase.kind != C.PHASE_MATMUL {
			continue
		}
		first := 0
		for _, op := range l.ops[phase.first:phase.last] {
			last := first + int((op.outs+op.chunk-1)/op.chunk)
			if at, stride := copyOf(op, copies); at != nil && !n.placed[at] {
				n.placed[at] = true
				n.placeWeight(at, stride, op, first, last, int(phase.items))
			}
			first = last
		}
	}
}

// placeWeight places the copy of a product's weight: stride bytes at a time, a panel or, of F32 weights, a row. Its chunks are first … last-1
// of the items of a phase, of which threads have contiguous parts: see divide in engine.c.
func (n *numa) placeWeight(at unsafe.Pointer, stride int64, op C.struct_op, first, last, items int) {
	each := C.PANEL
	if panelBytes(gguf.Type(op._type), int(op.cols)) == 0 {
		each = 1
	}
	strides := func(rows int) int64 { return int64((rows+each-1)/each) * stride }
	if op.experts > 0 {
		n.spread(at, strides(int(op.w_rows)))
		return
	}
	for node := range n.Nodes {
		begin, end := n.Part(node, int64(items))
		if from, to := max(int(begin), first), min(int(end), last); from < to {
			begins, ends := strides((from-first)*int(op.chunk)), strides(min((to-first)*int(op.chunk), int(op.outs)))
			n.prefer(unsafe.Add(at, begins), ends-begins, preferNode, node)
		}
	}
}

// copyOf returns where the copy of a product's weight is or will be, and its stride; nil: it stays in the file.
func copyOf(op C.struct_op, later map[*C.uint8_t]unsafe.Pointer) (unsafe.Pointer, int64) {
	if op.in_file == 0 {
		return unsafe.Pointer(op.w), int64(op.w_stride)
	}
	return later[op.w], panelBytes(gguf.Type(op._type), int(op.cols))
}
