package cpu

/*
#include "engine.h"
*/
import "C"

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"m40-llm/infer/device"
)

// state is a device.State with its memory.
type state struct {
	device.State
	data unsafe.Pointer
}

// AllocState allocates zeroed recurrent state. A slot takes memory only after its first write.
func (d *cpu) AllocState(l device.StateLayout) (device.State, error) {
	if d.engine == nil {
		return device.State{}, errClosed
	}
	if l.Slots <= 0 || l.Values <= 0 || int64(l.Values) > math.MaxInt64/8/int64(l.Slots) {
		return device.State{}, fmt.Errorf("cpu: recurrent state of %d slots of %d values: sizes must be positive and fit in memory", l.Slots, l.Values)
	}
	data, err := d.alloc(l.Bytes())
	if err != nil {
		return device.State{}, fmt.Errorf("cpu: recurrent state of %d slots: %w", l.Slots, err)
	}
	s := device.State{ID: int32(len(d.states) + 1), Layout: l}
	d.states = append(d.states, state{s, data})
	return s, nil
}

func (d *cpu) CopyState(s device.State, to, from int32) error {
	memory, err := d.slots(s, s.Layout.CheckSlots(to, from))
	if err == nil {
		copy(memory.slot(to), memory.slot(from))
	}
	return err
}

func (d *cpu) ReadState(dst []byte, s device.State, slot int32) error {
	memory, err := d.slots(s, s.Layout.CheckSlot(slot, dst))
	if err == nil {
		copy(dst, memory.slot(slot))
	}
	return err
}

func (d *cpu) WriteState(s device.State, slot int32, src []byte) error {
	memory, err := d.slots(s, s.Layout.CheckSlot(slot, src))
	if err == nil {
		copy(memory.slot(slot), src)
	}
	return err
}

// slots returns the state that s is a handle of. invalid is what is wrong with the slots that are asked
// for, or nil.
func (d *cpu) slots(s device.State, invalid error) (state, error) {
	if d.engine == nil {
		return state{}, errClosed
	}
	memory, err := d.state(s)
	if err == nil {
		err = invalid
	}
	if err != nil {
		return state{}, fmt.Errorf("cpu: %w", err)
	}
	return memory, nil
}

// slot returns the memory of slot i.
func (s state) slot(i int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(s.data, int64(i)*s.Layout.SlotBytes())), s.Layout.SlotBytes())
}

// state returns the state that s is a handle of.
func (d *cpu) state(s device.State) (state, error) {
	if s.ID < 1 || int(s.ID) > len(d.states) || d.states[s.ID-1].State != s {
		return state{}, fmt.Errorf("state %d does not belong to this device", s.ID)
	}
	return d.states[s.ID-1], nil
}

// withState sets the fields for the recurrent state of op.
func (l *lowering) withState(c *C.struct_op, op device.Op) error {
	s, err := l.device.state(op.State)
	c.state = (*C.float)(s.data)
	c.state_values, c.state_at = C.size_t(op.State.Layout.Values), C.size_t(op.At)
	return err
}

func (l *lowering) conv(c C.struct_op, op device.Op) (err error) {
	if op.W.Cols > C.MAX_KERNEL {
		return fmt.Errorf("spans %d positions, the limit is %d", op.W.Cols, int(C.MAX_KERNEL))
	}
	c.kind, c.outs = C.OP_CONV, C.int32_t(op.W.Cols)
	if c.bias, err = l.vector(op.Bias); err != nil {
		return err
	}
	if err := l.withState(&c, op); err != nil {
		return err
	}
	if items := (c.cols + C.CONV_PART - 1) / C.CONV_PART; l.joinsConvs(c) {
		l.ops = append(l.ops, c)
		last := &l.phases[len(l.phases)-1]
		last.last, last.items = last.last+1, last.items+items
	} else {
		l.newPhase(C.PHASE_CONV, c)
		l.phases[len(l.phases)-1].items = items
	}
	l.wrote(op.Dst)
	return nil
}

// joinsConvs reports whether c can join the last phase: its convolutions write neither what c reads nor what
// c writes.
func (l *lowering) joinsConvs(c C.struct_op) bool {
	if len(l.phases) == 0 || l.phases[len(l.phases)-1].kind != C.PHASE_CONV {
		return false
	}
	last := l.phases[len(l.phases)-1]
	return !slices.ContainsFunc(l.ops[last.first:last.last], func(other C.struct_op) bool {
		return other.y == c.x || other.y == c.y || other.x == c.y || other.state == c.state && other.state_at == c.state_at
	})
}

// followsConv makes the last operation compute SiLU of its result, if op is that and the last one a
// convolution.
func (l *lowering) followsConv(op device.Op, c C.struct_op) bool {
	if len(l.ops) == 0 || op.GLU != device.SiLU || !op.Y.None() || op.X != op.Dst {
		return false
	}
	last := &l.ops[len(l.ops)-1]
	if last.kind != C.OP_CONV || last.y != c.y || last.silu != 0 {
		return false
	}
	last.silu = 1
	return true
}

func (l *lowering) scan(c C.struct_op, op device.Op) (err error) {
	a := op.Scan
	c.kind = C.OP_SCAN
	c.heads, c.kv_heads, c.head_dim, c.keys = C.int32_t(a.Heads), C.int32_t(a.KeyHeads), C.int32_t(a.ValueDim), C.int32_t(a.KeyDim)
	c.decays = C.int32_t(a.Decay.Cols / a.Heads)
	c.tiled, c.delta = flag(a.Tiled), flag(a.Delta)
	for _, t := range []struct {
		named device.Tensor
		to    **C.float
	}{{a.V, &c.v}, {a.Decay, &c.decay}, {a.Step, &c.step}} {
		x, err := l.device.activation(t.named)
		if err != nil {
			return err
		}
		*t.to = (*C.float)(x.data)
	}
	if c.factors, err = l.vector(a.Skip); err != nil {
		return err
	}
	if err := l.withState(&c, op); err != nil {
		return err
	}
	l.newPhase(C.PHASE_SCAN, c)
	l.phases[len(l.phases)-1].items = c.heads * ((c.head_dim + C.SCAN_PART - 1) / C.SCAN_PART)
	l.wrote(op.Dst)
	return nil
}
