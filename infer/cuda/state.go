package cuda

import (
	"fmt"
	"math"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// state is a device.State with its memory.
type state struct {
	device.State
	at cudakern.Ptr
}

// AllocState allocates zeroed recurrent state.
func (d *cuda) AllocState(l device.StateLayout) (_ device.State, err error) {
	defer mark(&err)
	if err := d.begin(); err != nil {
		return device.State{}, err
	}
	if l.Slots <= 0 || l.Values <= 0 || int64(l.Values) > math.MaxInt64/8/int64(l.Slots) {
		return device.State{}, fmt.Errorf("cuda: recurrent state of %d slots of %d values: sizes must be positive and fit in memory", l.Slots, l.Values)
	}
	at, err := d.zeroed(l.Bytes())
	if err != nil {
		return device.State{}, fmt.Errorf("cuda: recurrent state of %d slots: %w", l.Slots, err)
	}
	s := device.State{ID: int32(len(d.states) + 1), Layout: l}
	d.states = append(d.states, state{s, at})
	return s, nil
}

// CopyState enqueues the copy, which is done before the next step.
func (d *cuda) CopyState(s device.State, to, from int32) (err error) {
	defer mark(&err)
	memory, err := d.slots(s, s.Layout.CheckSlots(to, from))
	if err == nil && to != from {
		err = d.stream.Copy(memory.slot(to), memory.slot(from), s.Layout.SlotBytes())
	}
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

func (d *cuda) ReadState(dst []byte, s device.State, slot int32) (err error) {
	defer mark(&err)
	memory, err := d.slots(s, s.Layout.CheckSlot(slot, dst))
	if err == nil {
		err = d.stream.Download(dst, memory.slot(slot))
	}
	if err == nil {
		err = d.stream.Sync()
	}
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

func (d *cuda) WriteState(s device.State, slot int32, src []byte) (err error) {
	defer mark(&err)
	memory, err := d.slots(s, s.Layout.CheckSlot(slot, src))
	if err == nil {
		err = d.stream.Upload(memory.slot(slot), src)
	}
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

// slots returns the state that s is a handle of. invalid is what is wrong with the slots that are asked
// for, or nil.
func (d *cuda) slots(s device.State, invalid error) (state, error) {
	if err := d.begin(); err != nil {
		return state{}, err
	}
	memory, err := d.state(s)
	if err == nil {
		err = invalid
	}
	return memory, err
}

// slot returns the address of slot i.
func (s state) slot(i int32) cudakern.Ptr { return s.at + cudakern.Ptr(int64(i)*s.Layout.SlotBytes()) }

// state returns the state that s is a handle of.
func (d *cuda) state(s device.State) (state, error) {
	if s.ID < 1 || int(s.ID) > len(d.states) || d.states[s.ID-1].State != s {
		return state{}, fmt.Errorf("state %d does not belong to this device", s.ID)
	}
	return d.states[s.ID-1], nil
}

// stateOf returns the part of the recurrent state that op reads and writes.
func (l *lowering) stateOf(op device.Op) (cudakern.State, error) {
	s, err := l.device.state(op.State)
	return cudakern.State{Data: s.at + cudakern.Ptr(4*op.At), Slots: s.Layout.Slots, Values: s.Layout.Values}, err
}

func (l *lowering) conv(op operation, at operands) error {
	s, err := l.stateOf(op.Op)
	if err != nil {
		return err
	}
	return l.device.kernels.recurrent.EnqueueConv(&l.recording, at.dst, at.x, at.w, at.bias, op.Dst.Cols, op.W.Cols, op.silu, s, l.step, l.capacity)
}

func (l *lowering) scan(op operation, at operands) error {
	s, err := l.stateOf(op.Op)
	if err != nil {
		return err
	}
	a := op.Scan
	scan := cudakern.Scan{
		Heads: a.Heads, KeyHeads: a.KeyHeads, KeyDim: a.KeyDim, ValueDim: a.ValueDim, Decays: a.Decay.Cols / a.Heads,
		Tiled: a.Tiled, Delta: a.Delta,
	}
	for _, t := range []struct {
		named device.Tensor
		to    *cudakern.Ptr
	}{{a.V, &scan.V}, {a.Decay, &scan.Decay}, {a.Step, &scan.Step}} {
		x, err := l.device.activation(t.named)
		if err != nil {
			return err
		}
		*t.to = x.rows
	}
	if scan.Skip, err = l.vector(a.Skip); err != nil {
		return err
	}
	return l.device.kernels.recurrent.EnqueueScan(&l.recording, at.dst, at.x, at.y, scan, s, l.step, l.capacity)
}
