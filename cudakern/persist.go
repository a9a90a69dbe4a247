package cudakern

// #include "driver.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Persist is a resident kernel that runs the launches of a step, for weights of one type: persist.cu.
type Persist struct {
	context   *Context
	walk, has *Function
}

// persistTypes are the weight types that modules.txt has such kernels for.
var persistTypes = []string{"f16", "q8_0", "q4_0"}

// NewPersist loads the kernel for a weight type and caches of float16.
func NewPersist(c *Context, weights string) (*Persist, error) {
	format, err := formatOf(weights)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(persistTypes, weights) {
		return nil, fmt.Errorf("there is no resident kernel for weights of type %s", strings.ToUpper(weights))
	}
	name := "persist_" + weights
	if format.isQuantized() && c.Units != UnitsXMAD {
		name = "persist_exact_" + weights
	}
	k := &Persist{context: c}
	if k.walk, err = c.kernel(name, name); err != nil {
		return nil, err
	}
	k.has, err = c.kernel(name, name+"_has")
	return k, err
}

// Phase is a launch of a step in a resident kernel.
type Phase struct {
	*Launch
	Meets bool    // launches behind it may read what it writes: all blocks meet
	Ahead []Range // memory that launches behind it read, to be requested for the L2 cache; at most MaxAhead
}

// Range is a range of device memory.
type Range struct {
	At    Ptr
	Bytes int64
}

// MaxAhead is how many ranges of memory a phase can request.
const MaxAhead = 4

// The sizes of structs Launch and Head of persist.cu, in bytes.
const (
	phaseBytes  = 8*4 + MaxAhead*16 + 40*8
	persistHead = 8*32 + 2*8 + 16 + 2*phaseBytes
)

// Walk is a list of phases in device memory, and how the kernel runs them.
type Walk struct {
	kernel *Persist
	phases Ptr
	count  int
	meets  uint32 // barriers
	blocks int
	shared int
}

// Missing returns the names of the kernels of launches that the resident kernel does not have. It waits for the stream.
// memory has MissingBytes(launches) bytes that nothing else uses meanwhile.
func (k *Persist) Missing(s *Stream, launches []*Launch, memory Ptr) (names []string, err error) {
	var kernels []string
	for _, l := range launches {
		if !slices.Contains(kernels, l.Kernel.name) {
			kernels = append(kernels, l.Kernel.name)
		}
	}
	words := make([]byte, 4*len(kernels))
	for i, name := range kernels {
		binary.NativeEndian.PutUint32(words[4*i:], hashOf(name))
	}
	found := memory + Ptr(len(words))
	if err := s.Upload(memory, words); err != nil {
		return nil, err
	}
	if err := k.has.Launch(s, Dim3{X: 1}, Dim3{X: threads}, 0, found, memory, int32(len(kernels))); err != nil {
		return nil, err
	}
	if err := s.Download(words, found); err != nil {
		return nil, err
	}
	if err := s.Sync(); err != nil {
		return nil, err
	}
	for i, name := range kernels {
		if binary.NativeEndian.Uint32(words[4*i:]) == 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// MissingBytes is the memory that Missing needs for launches, in bytes.
func MissingBytes(launches int) int64 { return 8 * int64(launches) }

// hashOf returns the FNV-1a hash of a kernel's name: hash_of in persist.cu.
func hashOf(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}

// Walk plans phases for the device, and returns what is to be copied to device memory, PhaseBytes for each: to where At says. The
// error says why the device cannot run them in one kernel.
func (k *Persist) Walk(phases []Phase) (w *Walk, records []byte, err error) {
	w = &Walk{kernel: k, count: len(phases)}
	if err := w.reside(phases); err != nil {
		return nil, nil, err
	}
	for _, p := range phases {
		records = append(records, w.record(p)...)
		if p.Meets {
			w.meets++
		}
	}
	return w, records, nil
}

// At sets where the phases are in device memory.
func (w *Walk) At(phases Ptr) { w.phases = phases }

// reside decides how many blocks there are, and whether both halves of a block compute those of smaller kernels.
func (w *Walk) reside(phases []Phase) error {
	p := w.kernel.context.Properties()
	if p.ExecTimeout {
		return fmt.Errorf("%s drives a display, and kernels that run for seconds are killed", p.Name)
	}
	most := max(48<<10, p.MaxShared)
	each := 0 // blocks of a multiprocessor
	for parts := 2; parts >= 1 && each < persistBlocks; parts-- {
		shared := 0
		for _, phase := range phases {
			shared = max(shared, persistHead+sharedOf(phase, parts))
		}
		if shared > most {
			continue
		}
		if shared > 48<<10 {
			if err := w.kernel.walk.SetMaxShared(shared); err != nil {
				return err
			}
		}
		blocks, err := w.kernel.walk.Occupancy(threads, shared)
		if err != nil {
			return err
		}
		if blocks > each {
			each, w.shared = blocks, shared
		}
	}
	if each = min(each, persistBlocks); each == 0 {
		return fmt.Errorf("no block of the resident kernel fits on a multiprocessor of %s", p.Name)
	}
	w.blocks = each * p.SMs
	return nil
}

// persistBlocks is the number of blocks on a multiprocessor that the kernel is compiled for.
const persistBlocks = 2

// sharedOf returns the shared memory for a phase, if parts halves of a block compute those of smaller kernels.
func sharedOf(p Phase, parts int) int {
	if p.Block.X < threads {
		return parts * halfBytes(p)
	}
	return p.Shared
}

// halfBytes is the shared memory of half a block, in whole units of 16 bytes.
func halfBytes(p Phase) int { return (p.Shared + 15) / 16 * 16 }

// parts returns how many halves of a block compute a phase; 0: it needs whole blocks.
func (w *Walk) parts(p Phase) int {
	switch {
	case p.Block.X == threads:
		return 0
	case persistHead+sharedOf(p, 2) <= w.shared:
		return 2
	}
	return 1
}

// record returns struct Launch of a phase.
func (w *Walk) record(p Phase) []byte {
	parts := w.parts(p)
	grid := p.Grid.extent()
	if strings.HasPrefix(p.Kernel.name, "attention_") {
		// Blocks of one row divide its units among them: no more than there are.
		grid[0] = min(grid[0], max(1, C.uint(w.blocks*max(parts, 1))/(grid[1]*grid[2])))
	}
	b := make([]byte, 0, phaseBytes)
	word := func(v uint32) { b = binary.NativeEndian.AppendUint32(b, v) }
	word(hashOf(p.Kernel.name))
	if p.Meets {
		word(1)
	} else {
		word(0)
	}
	word(uint32(parts))
	word(uint32(halfBytes(p)))
	for _, n := range grid {
		word(uint32(n))
	}
	word(uint32(grid[0] * grid[1] * grid[2]))
	for i := range MaxAhead {
		r := Range{}
		if i < len(p.Ahead) {
			r = p.Ahead[i]
		}
		b = binary.NativeEndian.AppendUint64(b, uint64(r.At))
		b = binary.NativeEndian.AppendUint64(b, uint64(r.At)+uint64(r.Bytes))
	}
	return append(b, p.values[:]...)
}

// Barrier is where the blocks of walks meet.
type Barrier struct {
	At      Ptr // BarrierBytes bytes that are 0 before the first walk
	arrived uint32
}

// Launch enqueues the walk. Walks that use a barrier must not run at the same time. If stamps is not 0, it gets
// StampBytes bytes: see Stamps.
func (w *Walk) Launch(s *Stream, b *Barrier, stamps Ptr) error {
	err := w.kernel.walk.Launch(s, Dim3{X: w.blocks}, Dim3{X: threads}, w.shared, w.phases, int32(w.count), b.At, b.arrived, stamps)
	if err == nil {
		b.arrived += w.meets * uint32(w.blocks)
	}
	return err
}

// Blocks returns the number of blocks.
func (w *Walk) Blocks() int { return w.blocks }

// StampBytes is the size of the clocks that Launch writes, in bytes.
func (w *Walk) StampBytes() int64 { return 8 * int64(w.blocks) * int64(w.count) }

// Stamps are the cycles of a phase, of all blocks: from when it begins to when the next one does, how many of them blocks compute on
// average, and how many the last one waits.
type Stamps struct{ Cycles, Busy, Last float64 }

// Decode reads the clocks. The last phase has no end: its cycles are those that blocks compute.
func (w *Walk) Decode(stamps []byte) []Stamps {
	clock := func(block, phase, i int) uint32 {
		return binary.NativeEndian.Uint32(stamps[4*((block*w.count+phase)*2+i):])
	}
	list := make([]Stamps, w.count)
	for phase := range list {
		at := &list[phase]
		at.Last = 1e18
		for block := range w.blocks {
			begin, done := clock(block, phase, 0), clock(block, phase, 1)
			next := done
			if phase+1 < w.count {
				next = clock(block, phase+1, 0)
			}
			at.Cycles += float64(next-begin) / float64(w.blocks)
			at.Busy += float64(done-begin) / float64(w.blocks)
			at.Last = min(at.Last, float64(next-done))
		}
	}
	return list
}
