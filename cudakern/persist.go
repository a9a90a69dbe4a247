package cudakern

// #include "driver.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Persist is a resident kernel that runs the launches of steps, for weights of one type: persist.cu. It takes the
// inputs of each step from a ring.
type Persist struct {
	*Residence // nil until Reside

	context   *Context
	walk, has *Function
	blocks    int // on a multiprocessor, for all walks so far; 0: there are none
	shared    int // of a block, in bytes

	memory   Ptr
	programs int // in memory
	layout   RingLayout
}

// persistTypes are the weight types that modules.txt has such kernels for.
var persistTypes = []string{"f16", "q8_0", "q4_0"}

// NewPersist loads the kernel for a weight type and caches of float16. memory has PersistBytes bytes of device memory.
func NewPersist(c *Context, weights string, memory Ptr) (*Persist, error) {
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
	k := &Persist{context: c, memory: memory}
	if k.walk, err = c.kernel(name, name); err != nil {
		return nil, err
	}
	k.has, err = c.kernel(name, name+"_has")
	return k, err
}

// The memory of a Persist: its barrier, what it has taken from the ring, and its programs.
const (
	orderAt      = 128
	programsAt   = 256
	maxPrograms  = 1024
	PersistBytes = programsAt + maxPrograms*programBytes // of device memory
)

// Phase is a launch of a step in a resident kernel.
type Phase struct {
	*Launch
	Meets bool // launches behind it may read what it writes: all blocks meet
	Keeps bool // the logits are complete, and are kept
}

// The sizes of structs Launch, Program and Head of persist.cu, in bytes.
const (
	phaseBytes   = 8*4 + 8*C.MAX_PARAMS
	programBytes = 9*8 + 6*4
	persistHead  = 8*32 + 16 + 2*phaseBytes + programBytes + 64
)

// Walk is a list of phases in device memory, a program of the kernel.
type Walk struct {
	kernel  *Persist
	phases  Ptr
	count   int
	memory  WalkMemory
	program int
}

// WalkMemory is the memory that a walk uses, beside that of its phases.
type WalkMemory struct {
	Inputs  Ptr // where the data of commands is copied to
	Tokens  Ptr // of the rows, among the inputs
	Drawn   Ptr // tokens that the step before drew
	Results Ptr // CandidateBytes for each output row; 0: there are none
	Logits  Ptr // of the output rows, vocab float32 each
	Kept    Ptr // where the logits are copied to: KeptRows rows for each slot of a command
	Vocab   int

	CommandWords, Outs int // data of a command and output rows, at most
	Slots, KeptRows    int // commands whose results were not taken, at most, and rows that are kept of each
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

// Walk plans phases for the device, and returns what is to be copied to device memory: to where the caller says to Add. The
// error says why the device cannot run them in one kernel.
func (k *Persist) Walk(phases []Phase) (w *Walk, records []byte, err error) {
	w = &Walk{kernel: k, count: len(phases)}
	if err := k.reside(phases); err != nil {
		return nil, nil, err
	}
	for _, p := range phases {
		records = append(records, k.record(p)...)
	}
	return w, records, nil
}

// Add makes w, whose phases are at phases, a program of the kernel, which must not be running. m is the memory of its inputs and results.
func (w *Walk) Add(s *Stream, phases Ptr, m WalkMemory) error {
	k := w.kernel
	if k.programs == maxPrograms {
		return fmt.Errorf("the resident kernel has room for %d programs", maxPrograms)
	}
	w.phases, w.memory, w.program = phases, m, k.programs
	k.programs++
	return w.upload(s, 0)
}

// upload writes struct Program of the walk.
func (w *Walk) upload(s *Stream, stamps Ptr) error {
	m := w.memory
	b := make([]byte, 0, programBytes)
	for _, p := range []Ptr{w.phases, m.Inputs, m.Tokens, m.Drawn, m.Results, m.Logits, m.Kept, Ptr(m.KeptRows * m.Vocab), stamps} {
		b = binary.NativeEndian.AppendUint64(b, uint64(p))
	}
	units := 0
	if m.Results != 0 {
		units = CandidateBytes / 16
	}
	for _, n := range []int{w.count, m.Vocab, units} {
		b = binary.NativeEndian.AppendUint32(b, uint32(n))
	}
	return s.Upload(w.kernel.memory+Ptr(programsAt+w.program*programBytes), b[:programBytes])
}

// Reside makes the ring large enough for w. The kernel must not be running.
func (w *Walk) Reside(s *Stream, limits ResidenceLimits) error {
	k, first := w.kernel, uint32(0)
	l := RingLayout{
		Slots:        max(k.layout.Slots, 1<<bits.Len(uint(w.memory.Slots-1))),
		CommandWords: max(k.layout.CommandWords, w.memory.CommandWords),
		ResultWords:  max(k.layout.ResultWords, w.memory.Outs*CandidateBytes/4),
	}
	if k.layout == l {
		return nil
	}
	if k.Residence != nil {
		first = k.ring.next
		if err := k.ring.Close(); err != nil {
			return err
		}
		k.Residence, k.layout = nil, RingLayout{}
	}
	ring, err := k.context.NewRing(l, first)
	if err != nil {
		return err
	}
	k.layout = l
	k.Residence = NewResidence(ring, s, limits, func(ring Ptr) error { return k.launch(s, ring, limits) })
	return nil
}

// launch enqueues a launch of the kernel.
func (k *Persist) launch(s *Stream, ring Ptr, limits ResidenceLimits) error {
	if err := ResetBarrier(s, k.memory, 0); err != nil {
		return err
	}
	return k.walk.Launch(s, Dim3{X: k.allBlocks()}, Dim3{X: threads}, k.shared,
		ring, k.memory, k.memory+orderAt, k.memory+programsAt, uint64(limits.Idle.Nanoseconds()))
}

// Close frees the ring. The kernel must not be running.
func (k *Persist) Close() error {
	if k.Residence == nil {
		return nil
	}
	return k.ring.Close()
}

// StepCommand is what a command says about a step.
type StepCommand struct {
	Ahead int // rows whose tokens are those that the step before drew
	Outs  int // output rows
	Slot  int // of the kept logits
}

// Push gives the kernel a step: inputs are words that it copies to WalkMemory.Inputs; none: they are as they were. The kernel starts if it is
// not running.
func (w *Walk) Push(c StepCommand, inputs []byte) (uint32, error) {
	return w.kernel.Push(Command{Program: uint32(w.program), Args: [4]uint32{uint32(c.Ahead), uint32(c.Outs), uint32(c.Slot)}}, wordsOf(inputs))
}

// Memory returns the memory of the kernel, which begins with its barrier.
func (k *Persist) Memory() Ptr { return k.memory }

// Kernel returns the kernel that the walk is a program of.
func (w *Walk) Kernel() *Persist { return w.kernel }

// reside decides how many blocks there are. It leaves what there was if phases do not fit.
func (k *Persist) reside(phases []Phase) error {
	p := k.context.Properties()
	if p.ExecTimeout {
		return fmt.Errorf("%s drives a display, and kernels that run for seconds are killed", p.Name)
	}
	shared := k.shared
	for _, phase := range phases {
		if phase.Block.X != threads {
			return fmt.Errorf("the resident kernel cannot run %s, whose blocks have %d threads", phase.Kernel.name, phase.Block.X)
		}
		shared = max(shared, persistHead+phase.Shared)
	}
	blocks := 0
	if shared <= max(leastShared, p.MaxShared) {
		if shared > leastShared {
			if err := k.walk.SetMaxShared(shared); err != nil {
				return err
			}
		}
		var err error
		if blocks, err = k.walk.Occupancy(threads, shared); err != nil {
			return err
		}
	}
	if blocks == 0 {
		return fmt.Errorf("no block of the resident kernel fits on a multiprocessor of %s", p.Name)
	}
	k.blocks, k.shared = min(blocks, persistBlocks), shared
	return nil
}

// allBlocks returns the number of blocks.
func (k *Persist) allBlocks() int { return k.blocks * k.context.Properties().SMs }

// persistBlocks is the number of blocks on a multiprocessor that the kernel is compiled for.
const persistBlocks = 2

// record returns struct Launch of a phase.
func (k *Persist) record(p Phase) []byte {
	grid := p.Grid.extent()
	if p.Kernel.divides {
		grid[0] = min(grid[0], max(1, C.uint(k.allBlocks())/(grid[1]*grid[2]))) // no more blocks than there are
	}
	b := make([]byte, 0, phaseBytes)
	word := func(v uint32) { b = binary.NativeEndian.AppendUint32(b, v) }
	word(hashOf(p.Kernel.name))
	flags := uint32(0)
	if p.Meets {
		flags |= 1
	}
	if p.Keeps {
		flags |= 2
	}
	word(flags)
	for _, n := range grid {
		word(uint32(n))
	}
	word(uint32(grid[0] * grid[1] * grid[2]))
	word(0)
	word(0)
	return append(b, p.values[:]...)
}

// Stamped calls f, which pushes steps and waits for them, while the kernel writes StampBytes bytes of clocks to stamps in each step of
// the walk. idle makes the kernel leave.
func (w *Walk) Stamped(s *Stream, stamps Ptr, idle, f func() error) error {
	if err := w.upload(s, stamps); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	if err := idle(); err != nil {
		return err
	}
	return w.upload(s, 0)
}

// StampBytes is the size of the clocks of a step, in bytes.
func (w *Walk) StampBytes() int64 { return 8 * int64(w.kernel.allBlocks()) * int64(w.count) }

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
		blocks := w.kernel.allBlocks()
		for block := range blocks {
			begin, done := clock(block, phase, 0), clock(block, phase, 1)
			next := done
			if phase+1 < w.count {
				next = clock(block, phase+1, 0)
			}
			at.Cycles += float64(next-begin) / float64(blocks)
			at.Busy += float64(done-begin) / float64(blocks)
			at.Last = min(at.Last, float64(next-done))
		}
	}
	return list
}
