// Package resident runs the steps of models in a kernel that stays on the GPU, in place of a graph for each step.
//
// A [Kernel] is loaded for one type of weights. A [Program] is the list of launches of a step, in device memory. Push gives
// the kernel a step as a command in a ring, without a call of the driver, and Wait returns its result.
//
// The kernel is launched in a stream. What is enqueued in that stream later waits until it leaves, and calls that wait for the whole
// GPU, such as those that allocate, would wait too: Leave must be called first. The next Push starts the kernel again.
// All of it is used by one goroutine at a time.
package resident

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"m40-llm/cudakern"
)

// Kernel is a resident kernel for weights of one type: persist.cu. Graphs compute the same with the same bits.
type Kernel struct {
	context *cudakern.Context
	stream  *cudakern.Stream
	alloc   func(bytes int64) (cudakern.Ptr, error)
	limits  Limits

	walk, has *cudakern.Function
	blocks    int // on a multiprocessor, for all programs so far; 0: there are none
	shared    int // of a block, in bytes

	memory    cudakern.Ptr // kernelBytes
	programs  int          // in memory
	layout    ringLayout
	residence *residence // nil: no program was added
}

// Limits are when a kernel leaves, and when it is given up.
type Limits struct {
	Commands int           // it leaves after so many
	Idle     time.Duration // it leaves if no command comes for so long
	Hang     time.Duration // it is given up if it neither answers nor shows progress for so long
}

// kernelTypes are the weight types that modules.txt has such kernels for. Those of integers have a kernel for each way to multiply.
var kernelTypes = []string{"f16", "q8_0", "q4_0"}

// New loads the kernel for a weight type, whose steps run in the stream. It takes device memory from alloc.
func New(c *cudakern.Context, s *cudakern.Stream, weights string, limits Limits, alloc func(bytes int64) (cudakern.Ptr, error)) (*Kernel, error) {
	if !slices.Contains(kernelTypes, weights) {
		return nil, fmt.Errorf("there is no resident kernel for weights of type %s", strings.ToUpper(weights))
	}
	name := "persist_" + weights
	if weights != "f16" && c.Units != cudakern.UnitsXMAD {
		name = "persist_exact_" + weights
	}
	module, err := c.Family(name)
	if err != nil {
		return nil, err
	}
	k := &Kernel{context: c, stream: s, alloc: alloc, limits: limits}
	if k.walk, err = module.Function(name); err != nil {
		return nil, err
	}
	if k.has, err = module.Function(name + "_has"); err != nil {
		return nil, err
	}
	k.memory, err = alloc(kernelBytes)
	return k, err
}

// The device memory of a kernel: its grid barrier, what it has taken from the ring, and its programs.
const (
	barrierBytes = 16 // struct Barrier of barrier.cuh
	orderAt      = 128
	programsAt   = 256
	maxPrograms  = 1024
	kernelBytes  = programsAt + maxPrograms*programBytes
)

// resetBarrier enqueues the initialisation of the grid barrier at b, before a launch of the kernel that uses it. arrived
// is the count that it begins with, any number.
func resetBarrier(s *cudakern.Stream, b cudakern.Ptr, arrived uint32) error {
	return s.Upload(b, wordBytes([]uint32{arrived, arrived, 0, 0}))
}

// Phase is a launch of a step.
type Phase struct {
	*cudakern.Launch
	Barrier bool // a grid barrier follows: later launches may read what this one writes
	Saves   bool // the logits are complete, and are copied to Memory.Saved
}

// The sizes of structs Launch, Program and Head of persist.cu, in bytes.
const (
	phaseBytes   = 8*4 + 8*cudakern.MaxParameters
	programBytes = 9*8 + 6*4
	persistHead  = 8*32 + 16 + 2*phaseBytes + programBytes + 64
)

const (
	threads          = 256      // of each block of the kernel
	blocksPerSM      = 2        // that the kernel is compiled for
	guaranteedShared = 48 << 10 // shared memory that every block may have, in bytes
)

// Program is a list of phases in device memory.
type Program struct {
	kernel *Kernel
	number int
	phases cudakern.Ptr
	count  int
	memory Memory
}

// Memory is the device memory that a program uses in addition to the parameters of its launches.
type Memory struct {
	Inputs  cudakern.Ptr // where the inputs of a step are copied to
	Tokens  cudakern.Ptr // of the rows, among the inputs
	Drawn   cudakern.Ptr // tokens that the step before drew
	Results cudakern.Ptr // cudakern.CandidateBytes for each output row; 0: there are none
	Logits  cudakern.Ptr // of the output rows, Vocab float32 each
	Saved   cudakern.Ptr // where the logits are copied to: SavedRows rows for each slot of a step
	Vocab   int

	InputWords, Outs int // of a step, at most
	Slots, SavedRows int // steps whose results were not taken, at most, and rows of logits that are copied of each
}

// Program adds a program. An error that is not of the driver says why the kernel cannot run it. It must have left.
func (k *Kernel) Program(phases []Phase, m Memory) (*Program, error) {
	missing, err := k.missing(phases)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the resident kernel has no %s", strings.Join(missing, ", "))
	}
	if err := k.fit(phases); err != nil {
		return nil, err
	}
	p := &Program{kernel: k, number: k.programs, count: len(phases), memory: m}
	var records []byte
	for _, phase := range phases {
		records = append(records, k.record(phase)...)
	}
	if p.phases, err = k.alloc(int64(len(records))); err != nil {
		return nil, err
	}
	if err := k.stream.Upload(p.phases, records); err != nil {
		return nil, err
	}
	k.programs++
	if err := p.upload(0); err != nil {
		return nil, err
	}
	return p, k.openRing(m)
}

// missing returns the names of the kernels of phases that the resident kernel has no function for.
func (k *Kernel) missing(phases []Phase) (names []string, err error) {
	var kernels []string
	for _, p := range phases {
		if name := p.Kernel.Name(); !slices.Contains(kernels, name) {
			kernels = append(kernels, name)
		}
	}
	// The memory of further programs has room for the hashes and, after them, the answers.
	if left := maxPrograms - k.programs; left == 0 || 8*len(kernels) > left*programBytes {
		return nil, fmt.Errorf("the resident kernel has room for %d programs", maxPrograms)
	}
	hashes := k.memory + cudakern.Ptr(programsAt+k.programs*programBytes)
	words := make([]uint32, len(kernels))
	for i, name := range kernels {
		words[i] = hashOf(name)
	}
	found := hashes + cudakern.Ptr(4*len(words))
	if err := k.stream.Upload(hashes, wordBytes(words)); err != nil {
		return nil, err
	}
	if err := k.has.Launch(k.stream, cudakern.Dim3{X: 1}, cudakern.Dim3{X: threads}, 0, found, hashes, int32(len(kernels))); err != nil {
		return nil, err
	}
	if err := k.stream.Download(wordBytes(words), found); err != nil {
		return nil, err
	}
	if err := k.stream.Sync(); err != nil {
		return nil, err
	}
	for i, name := range kernels {
		if words[i] == 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// hashOf returns the FNV-1a hash of a kernel's name: hash_of in persist.cu.
func hashOf(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}

// fit decides how many blocks there are. If phases do not fit, it changes nothing.
func (k *Kernel) fit(phases []Phase) error {
	p := k.context.Properties()
	if p.ExecTimeout {
		return fmt.Errorf("%s drives a display, and kernels that run for seconds are killed", p.Name)
	}
	shared := k.shared
	for _, phase := range phases {
		if phase.Block.X != threads {
			return fmt.Errorf("the resident kernel cannot run %s, whose blocks have %d threads", phase.Kernel.Name(), phase.Block.X)
		}
		shared = max(shared, persistHead+phase.Shared)
	}
	blocks := 0
	if shared <= max(guaranteedShared, p.MaxShared) {
		if shared > guaranteedShared {
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
	k.blocks, k.shared = min(blocks, blocksPerSM), shared
	return nil
}

// allBlocks returns the number of blocks.
func (k *Kernel) allBlocks() int { return k.blocks * k.context.Properties().SMs }

// record returns struct Launch of a phase.
func (k *Kernel) record(p Phase) []byte {
	x, y, z := max(p.Grid.X, 1), max(p.Grid.Y, 1), max(p.Grid.Z, 1)
	if p.Kernel.Divides() {
		x = min(x, max(1, k.allBlocks()/(y*z))) // no more blocks than there are
	}
	flags := 0
	if p.Barrier {
		flags |= 1
	}
	if p.Saves {
		flags |= 2
	}
	b := binary.NativeEndian.AppendUint32(make([]byte, 0, phaseBytes), hashOf(p.Kernel.Name()))
	for _, n := range []int{flags, x, y, z, x * y * z, 0, 0} {
		b = binary.NativeEndian.AppendUint32(b, uint32(n))
	}
	return append(b, p.Parameters()...)
}

// upload writes struct Program. stamps is where the kernel stores clocks, 0: nowhere.
func (p *Program) upload(stamps cudakern.Ptr) error {
	m := p.memory
	b := make([]byte, 0, programBytes)
	for _, at := range []cudakern.Ptr{p.phases, m.Inputs, m.Tokens, m.Drawn, m.Results, m.Logits, m.Saved, cudakern.Ptr(m.SavedRows * m.Vocab), stamps} {
		b = binary.NativeEndian.AppendUint64(b, uint64(at))
	}
	units := 0
	if m.Results != 0 {
		units = cudakern.CandidateBytes / 16
	}
	for _, n := range []int{p.count, m.Vocab, units} {
		b = binary.NativeEndian.AppendUint32(b, uint32(n))
	}
	return p.kernel.stream.Upload(p.kernel.memory+cudakern.Ptr(programsAt+p.number*programBytes), b[:programBytes])
}

// openRing makes the ring large enough for a program with m.
func (k *Kernel) openRing(m Memory) error {
	l := ringLayout{
		Slots:        max(k.layout.Slots, 1<<bits.Len(uint(m.Slots-1))),
		CommandWords: max(k.layout.CommandWords, m.InputWords),
		ResultWords:  max(k.layout.ResultWords, m.Outs*cudakern.CandidateBytes/4),
	}
	if k.layout == l {
		return nil
	}
	first := uint32(0)
	if k.residence != nil {
		first = k.residence.ring.next
		if err := k.residence.ring.Close(); err != nil {
			return err
		}
		k.residence, k.layout = nil, ringLayout{}
	}
	ring, err := newRing(k.context, l, first)
	if err != nil {
		return err
	}
	k.layout = l
	k.residence = newResidence(ring, k.stream, k.limits, k.launch)
	return nil
}

// launch enqueues a launch of the kernel.
func (k *Kernel) launch(ring cudakern.Ptr) error {
	if err := resetBarrier(k.stream, k.memory, 0); err != nil {
		return err
	}
	return k.walk.Launch(k.stream, cudakern.Dim3{X: k.allBlocks()}, cudakern.Dim3{X: threads}, k.shared,
		ring, k.memory, k.memory+orderAt, k.memory+programsAt, uint64(k.limits.Idle.Nanoseconds()))
}

// Step is what differs between the steps of a program, in addition to the inputs.
type Step struct {
	Ahead int // rows whose tokens are those that the step before drew
	Outs  int // output rows
	Slot  int // of the copies of the logits
}

// Push starts a step with the inputs in Memory.Inputs; nil: they are as they were.
func (p *Program) Push(s Step, inputs []byte) error {
	_, err := p.kernel.residence.Push(command{Program: uint32(p.number), Args: [4]uint32{uint32(s.Ahead), uint32(s.Outs), uint32(s.Slot)}}, wordsOf(inputs))
	return err
}

// Wait returns the candidates of the oldest step that was not waited for. They are valid until the next Push.
func (k *Kernel) Wait() ([]uint32, error) {
	if k.residence == nil {
		return nil, errors.New("no step was pushed")
	}
	r, err := k.residence.Wait()
	if err == nil && r.State != resultDone {
		err = fmt.Errorf("the resident kernel has ended step %d in state %d", r.Number, r.State)
	}
	return r.Data, err
}

// Leave makes the kernel leave after the steps that were pushed, whose results can still be taken.
func (k *Kernel) Leave() error {
	if k.residence == nil {
		return nil
	}
	if err := k.residence.Drain(); err != nil {
		return err
	}
	return k.residence.Yield()
}

// Stop makes the kernel leave without the steps that it has not started.
func (k *Kernel) Stop() error {
	if k.residence != nil {
		k.residence.Cancel()
	}
	return k.Leave()
}

// Close frees the ring. The kernel must have left.
func (k *Kernel) Close() error {
	if k.residence == nil {
		return nil
	}
	return k.residence.ring.Close()
}

// Running reports whether the kernel may be on the GPU.
func (k *Kernel) Running() bool { return k.residence != nil && k.residence.running }

// Launches returns how often the kernel was launched with the present ring.
func (k *Kernel) Launches() int {
	if k.residence == nil {
		return 0
	}
	return int(k.residence.ring.head.launch)
}

// Barrier returns the address of the kernel's grid barrier.
func (k *Kernel) Barrier() cudakern.Ptr { return k.memory }

// Stamps are the cycles of a phase, of all blocks: from when it begins to when the next one does, how many of them blocks compute on
// average, and how many the last one waits.
type Stamps struct{ Cycles, Busy, Last float64 }

// Profile runs the last step again, rounds times, and returns the cycles of the phases in each round. It reads them in stream side, while
// the kernel is on the GPU. The kernel must have left.
func (p *Program) Profile(side *cudakern.Stream, rounds int) (all [][]Stamps, err error) {
	k := p.kernel
	stamps := make([]byte, 8*k.allBlocks()*p.count)
	at, err := k.context.Alloc(int64(len(stamps)))
	if err != nil {
		return nil, err
	}
	defer func() {
		if freeErr := k.context.Free(at); err == nil {
			err = freeErr
		}
	}()
	if err := p.upload(at); err != nil {
		return nil, err
	}
	for range rounds {
		if err := p.Push(Step{}, nil); err != nil {
			return nil, err
		}
		if _, err := k.Wait(); err != nil {
			return nil, err
		}
		if err := side.Download(stamps, at); err != nil {
			return nil, err
		}
		if err := side.Sync(); err != nil {
			return nil, err
		}
		all = append(all, p.decode(stamps))
	}
	if err := k.Leave(); err != nil {
		return nil, err
	}
	return all, p.upload(0)
}

// decode reads the clocks of a step. The last phase has no end: its cycles are those that blocks compute.
func (p *Program) decode(stamps []byte) []Stamps {
	clock := func(block, phase, i int) uint32 {
		return binary.NativeEndian.Uint32(stamps[4*((block*p.count+phase)*2+i):])
	}
	list := make([]Stamps, p.count)
	blocks := p.kernel.allBlocks()
	for phase := range list {
		at := &list[phase]
		at.Last = 1e18
		for block := range blocks {
			begin, done := clock(block, phase, 0), clock(block, phase, 1)
			next := done
			if phase+1 < p.count {
				next = clock(block, phase+1, 0)
			}
			at.Cycles += float64(next-begin) / float64(blocks)
			at.Busy += float64(done-begin) / float64(blocks)
			at.Last = min(at.Last, float64(next-done))
		}
	}
	return list
}
