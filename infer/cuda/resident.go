package cuda

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"m40-llm/cudakern"
	"m40-llm/cudakern/resident"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Programs of few rows can run in a resident kernel (package resident) instead of their graph. Only this file knows of it: compile offers
// it the launches of a program, and begin, which every call that uses the stream does first, makes it leave.
// The kernel is launched in the stream of all steps, so that their order stays what it is with graphs alone.

// residentRows is the most rows of a program that the resident kernel runs: larger ones are bound by arithmetic, not by
// the time between launches.
const residentRows = 4

// residentLimits are when the kernel leaves by itself, and when it is given up. Between two tokens of an answer the host needs less than
// a millisecond; starting the kernel takes as long as some barriers. A kernel that computes reports progress every 20 ms.
var residentLimits = resident.Limits{Commands: 1 << 16, Idle: 5 * time.Millisecond, Hang: 30 * time.Second}

// residents are the resident kernels of a device.
type residents struct {
	chosen  device.Decode
	limits  resident.Limits
	kernels map[gguf.Type]*resident.Kernel // by type of the weights
}

// ChooseDecode implements device.DecodeChooser.
func (d *cuda) ChooseDecode(how device.Decode) { d.residents.chosen = how }

// leave makes the kernels leave after the steps that were started.
func (r *residents) leave() error {
	for _, k := range r.kernels {
		if err := k.Leave(); err != nil {
			return err
		}
	}
	return nil
}

// stop makes the kernels leave without the steps that they have not started, before the device is closed.
func (r *residents) stop() error {
	for _, k := range r.kernels {
		if err := k.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// decodeReason returns why graphs are chosen, or "".
func (d *cuda) decodeReason() string {
	switch d.residents.chosen {
	case device.DecodePersistent:
		return ""
	case device.DecodeGraph:
		return "chosen by --decode"
	}
	switch measured[d.info.Name].decode {
	case device.DecodePersistent:
		return ""
	case device.DecodeGraph:
		return "faster on this GPU than the resident kernel, by measurements"
	}
	return "the resident kernel was not measured on this GPU"
}

// wantsResident reports whether the resident kernel shall run programs of so many rows.
func (d *cuda) wantsResident(rows int) bool { return rows <= residentRows && d.decodeReason() == "" }

// The resident kernel has functions for some of the launches that graphs have, so that programs that it shall run are lowered to those.

// canTakeRows reports whether a launch may compute products of so many rows as matmul_row.cu does.
func (l *lowering) canTakeRows(rows int) bool { return rows == 1 || !l.resident }

// canNormBoth reports whether a launch can norm the heads of two tensors.
func (l *lowering) canNormBoth() bool { return !l.resident }

// canAttendByRows reports whether attention can have warps for the rows, and not for the heads of a row.
func (l *lowering) canAttendByRows() bool { return !l.resident }

// prefersOne reports whether a launch of one product alone is faster.
func (l *lowering) prefersOne(product *cudakern.MatMul) bool { return product.Overlaps() || l.resident }

// residentProgram runs the steps of a program in the resident kernel.
type residentProgram struct {
	x       *executable
	kernel  *resident.Kernel
	program *resident.Program
}

// offer lets the resident kernel run x, if it is chosen and can, or else says in Info why graphs do.
func (d *cuda) offer(x *executable, p *device.Program) error {
	if p.Rows > residentRows {
		return nil
	}
	reason := d.decodeReason()
	if reason == "" {
		r, err := d.newResidentProgram(x, p)
		if _, failed := errors.AsType[*cudakern.Error](err); failed {
			return err
		}
		if err != nil {
			reason = err.Error()
		} else {
			x.resident = r
		}
	}
	d.info.Decode, d.info.DecodeReason = device.DecodePersistent, ""
	if reason != "" {
		d.info.Decode, d.info.DecodeReason = device.DecodeGraph, reason
	}
	return nil
}

// newResidentProgram adds the launches of x to the resident kernel. An error that is not of the driver says why it cannot run them.
func (d *cuda) newResidentProgram(x *executable, p *device.Program) (*residentProgram, error) {
	kernel, err := d.residentKernel(p)
	if err != nil {
		return nil, err
	}
	in := x.inputs
	m := resident.Memory{Inputs: in.step.Rows, Tokens: in.step.Tokens, Drawn: d.drawn, InputWords: len(in.hosts[0].Bytes()) / word, Slots: depth}
	if len(x.reduced) > 1 {
		return nil, fmt.Errorf("the resident kernel has one list of candidates, the program %d", len(x.reduced))
	}
	for _, r := range x.reduced {
		m.Results, m.Logits, m.Saved, m.SavedRows, m.Vocab, m.Outs = r.at, r.logits, r.saved, r.savedRows, r.vocab, p.Out
	}
	program, err := kernel.Program(phases(x.launches), m)
	return &residentProgram{x, kernel, program}, err
}

// residentKernel returns the resident kernel for the weights and caches of p.
func (d *cuda) residentKernel(p *device.Program) (*resident.Kernel, error) {
	for _, op := range p.Ops {
		if t := cacheType(op.KV.Layout); op.Kind == device.OpStoreKV && t != cudakern.CacheOf(cudakern.FormatF16) && !t.Quantized() {
			return nil, fmt.Errorf("the resident kernel has no KV cache of format %s", op.KV.Layout.Type)
		}
	}
	i := slices.IndexFunc(p.Ops, func(op device.Op) bool { return op.Kind == device.OpMatMul })
	if i < 0 {
		return nil, errors.New("the program has no matrix product")
	}
	r, weights := &d.residents, p.Ops[i].W.Type
	if k := r.kernels[weights]; k != nil {
		return k, nil
	}
	k, err := resident.New(d.context, d.stream, kernelName(weights), r.limits, d.memory.alloc)
	if err != nil {
		return nil, err
	}
	if r.kernels == nil {
		r.kernels = map[gguf.Type]*resident.Kernel{}
	}
	r.kernels[weights] = k
	d.close = append(d.close, k.Close)
	return k, nil
}

// start implements runner.
func (r *residentProgram) start(f *flight, inputs []byte, ahead int) error {
	for _, k := range r.x.device.residents.kernels {
		if k != r.kernel {
			if err := k.Leave(); err != nil {
				return err
			}
		}
	}
	for _, reduced := range r.x.reduced {
		reduced.copied[f.slot()] = f.outs
	}
	f.saved = true
	return r.program.Push(resident.Step{Ahead: ahead, Outs: f.outs, Slot: f.slot()}, inputs)
}

// wait implements runner. It copies the results to where those of graphs are.
func (r *residentProgram) wait(f flight) error {
	results, err := r.kernel.Wait()
	if err != nil {
		return err
	}
	for _, reduced := range r.x.reduced {
		copy(reduced.hosts[f.slot()].Bytes(), bytesOf(results))
	}
	return nil
}

// profile implements runner: the blocks store clocks. The time of a launch includes that of the barrier after it.
func (r *residentProgram) profile(rounds int) ([][]time.Duration, error) {
	d, launches := r.x.device, r.x.launches
	if err := d.begin(); err != nil {
		return nil, err
	}
	all, err := r.program.Profile(d.side, rounds)
	if err != nil {
		return nil, err
	}
	times := make([][]time.Duration, len(launches))
	for _, round := range all {
		for i, s := range round {
			times[i] = append(times[i], d.cycles(s.Cycles))
		}
	}
	if os.Getenv("M40_LLM_STAMPS") != "" && rounds > 0 {
		us := func(cycles float64) float64 { return float64(d.cycles(cycles).Nanoseconds()) / 1e3 }
		for i, s := range all[rounds-1] {
			g := launches[i].Grid
			fmt.Fprintf(os.Stderr, "%3d %-40s %5d blocks %8.2f us busy %8.2f last waits %6.2f\n",
				i, launches[i].Kernel.Name(), max(g.X, 1)*max(g.Y, 1)*max(g.Z, 1), us(s.Cycles), us(s.Busy), us(s.Last))
		}
	}
	return times, nil
}

// cycles returns how long so many cycles of a multiprocessor take at its maximum clock.
func (d *cuda) cycles(n float64) time.Duration {
	return time.Duration(n / float64(d.context.Properties().ClockKHz) * float64(time.Millisecond))
}

// phases returns the launches for the resident kernel, with a barrier before each that depends on one since the last barrier.
func phases(launches []launch) []resident.Phase {
	list, touched := make([]resident.Phase, len(launches)), make([]touches, len(launches))
	for i := range launches {
		list[i].Launch, touched[i] = &launches[i].Launch, touchesOf(launches[i].operation)
	}
	first := 0 // launch after the last barrier
	for i := range list {
		end := i+1 == len(list)
		if end || slices.ContainsFunc(touched[first:i+1], touched[i+1].conflicts) {
			list[i].Barrier, first = true, i+1
		}
		list[i].Saves = launches[i].operation.Kind == device.OpCandidates && (end || launches[i+1].operation.at != launches[i].operation.at)
	}
	return list
}

// touches are what the launches of an operation read and write: IDs of activations, and the memory below.
type touches struct{ reads, writes []int32 }

const (
	quantisedMemory int32 = -1 - iota // quantised activations
	cacheMemory                       // KV caches
	attentionMemory                   // workspace of attention
	candidateMemory                   // workspace of candidates and their results
	otherMemory                       // of all other operations
)

// touchesOf returns what the launches of op touch.
func touchesOf(op operation) (t touches) {
	add := func(op device.Op) {
		t.reads = append(t.reads, op.X.ID, op.Y.ID, op.Dst.ID)
		t.writes = append(t.writes, op.Dst.ID)
	}
	add(op.Op)
	for _, other := range op.also {
		add(other)
	}
	if op.producer != nil {
		add(*op.producer)
	}
	if op.keys != nil {
		add(*op.keys)
	}
	if op.mixture != nil {
		add(op.mixture.sum)
	}
	if op.rope != nil {
		add(*op.rope)
	}
	if op.stores != nil {
		stored := touchesOf(*op.stores)
		t.reads, t.writes = append(t.reads, stored.reads...), append(t.writes, stored.writes...)
	}
	switch op.Kind {
	case device.OpEmbed, device.OpRMSNorm, device.OpAddBias, device.OpRoPE, device.OpGLU, device.OpAdd, device.OpScale, device.OpGatherRows:
	case device.OpMatMul:
		t.writes = append(t.writes, quantisedMemory)
	case device.OpStoreKV:
		t.writes = append(t.writes, cacheMemory)
	case device.OpAttention:
		t.reads = append(t.reads, cacheMemory)
		t.writes = append(t.writes, attentionMemory, quantisedMemory)
	case device.OpCandidates:
		t.writes = append(t.writes, candidateMemory)
	default:
		t.reads, t.writes = append(t.reads, otherMemory), append(t.writes, otherMemory)
	}
	t.reads = slices.DeleteFunc(t.reads, func(id int32) bool { return id == 0 })
	t.writes = slices.DeleteFunc(t.writes, func(id int32) bool { return id == 0 })
	return t
}

// conflicts reports whether the order of launches that touch t and other matters.
func (t touches) conflicts(other touches) bool {
	overlap := func(a, b []int32) bool {
		return slices.ContainsFunc(a, func(id int32) bool { return slices.Contains(b, id) })
	}
	return overlap(t.writes, other.writes) || overlap(t.writes, other.reads) || overlap(t.reads, other.writes)
}
