package ref

import (
	"encoding/binary"
	"fmt"
	"math"

	"m40-llm/infer/device"
)

// states is recurrent state: the values of each slot.
type states struct {
	device.StateLayout
	slots [][]float32
}

func (d *Device) AllocState(l device.StateLayout) (device.State, error) {
	s := states{StateLayout: l}
	for range l.Slots {
		s.slots = append(s.slots, make([]float32, l.Values))
	}
	d.states = append(d.states, s)
	return device.State{ID: int32(len(d.states)), Layout: l}, nil
}

func (d *Device) CopyState(s device.State, to, from int32) error {
	slots, err := d.slots(s, s.Layout.CheckSlots(to, from))
	if err == nil {
		copy(slots[to], slots[from])
	}
	return err
}

func (d *Device) ReadState(dst []byte, s device.State, slot int32) error {
	slots, err := d.slots(s, s.Layout.CheckSlot(slot, dst))
	if err == nil {
		_, err = binary.Encode(dst, binary.LittleEndian, slots[slot])
	}
	return err
}

func (d *Device) WriteState(s device.State, slot int32, src []byte) error {
	slots, err := d.slots(s, s.Layout.CheckSlot(slot, src))
	if err == nil {
		_, err = binary.Decode(src, binary.LittleEndian, slots[slot])
	}
	return err
}

// slots returns the slots of s. invalid is what is wrong with those that are asked for, or nil.
func (d *Device) slots(s device.State, invalid error) ([][]float32, error) {
	if s.ID < 1 || int(s.ID) > len(d.states) || d.states[s.ID-1].StateLayout != s.Layout {
		return nil, fmt.Errorf("ref: state %d does not belong to this device", s.ID)
	}
	if invalid != nil {
		return nil, fmt.Errorf("ref: %w", invalid)
	}
	return d.states[s.ID-1].slots, nil
}

// stateOf returns n values of the state of row r's sequence: zeros if the row is its first.
func (d *Device) stateOf(op device.Op, b *device.Batch, r, n int) []float32 {
	values := d.states[op.State.ID-1].slots[b.States[b.Seq[r]]][op.At:][:n]
	if b.Pos[r] == 0 {
		clear(values)
	}
	return values
}

func (d *Device) conv(op device.Op, b *device.Batch, rows int) {
	width, before, bias := op.W.Rows, op.W.Cols-1, d.vector(op.Bias)
	weights := make([]float32, op.W.Cols)
	for r := range rows {
		inputs := d.stateOf(op, b, r, before*width) // of the positions before, oldest first
		x, dst := d.row(op.X, r), d.row(op.Dst, r)
		for c := range width {
			d.weightRow(weights, op.W, c)
			sum := float64(weights[before]) * float64(x[c])
			for i := range before {
				sum += float64(weights[i]) * float64(inputs[i*width+c])
			}
			if bias != nil {
				sum += float64(bias[c])
			}
			dst[c] = float32(sum)
		}
		if before > 0 {
			copy(inputs, inputs[width:])
			copy(inputs[(before-1)*width:], x)
		}
	}
}

func (d *Device) scan(op device.Op, b *device.Batch, rows int) {
	a := op.Scan
	skip := d.vector(a.Skip)
	for r := range rows {
		state := d.stateOf(op, b, r, a.Values())
		q, k, v := d.row(op.X, r), d.row(op.Y, r), d.row(a.V, r)
		decays, steps := d.row(a.Decay, r), d.row(a.Step, r)
		for h := range a.Heads {
			key := a.KeyHead(h) * a.KeyDim
			decay := decays[h*len(decays)/a.Heads:][:len(decays)/a.Heads]
			values := v[h*a.ValueDim:][:a.ValueDim]
			out := d.row(op.Dst, r)[h*a.ValueDim:][:a.ValueDim]
			scanHead(out, state[h*a.KeyDim*a.ValueDim:], q[key:][:a.KeyDim], k[key:][:a.KeyDim], values, decay, steps[h], a.Delta)
			for j := range out {
				if skip != nil {
					out[j] = float32(float64(out[j]) + float64(skip[h])*float64(values[j]))
				}
			}
		}
	}
}

// scanHead computes one step of a head, whose state is (len(k), len(v)); decay has one value, or one
// for each element of the key. See device.Scan. Excluded from the race detector as dot is.
//
//go:norace
func scanHead(dst, state, q, k, v, decay []float32, step float32, delta bool) {
	for j := range v {
		at := func(i int) *float32 { return &state[i*len(v)+j] }
		seen := 0.0 // by the state for the key, before this step
		for i := range k {
			*at(i) = float32(float64(decay[i%len(decay)]) * float64(*at(i)))
			seen += float64(*at(i)) * float64(k[i])
		}
		e := float64(v[j])
		if delta {
			e -= seen
		}
		e *= float64(step)
		sum := 0.0
		for i := range k {
			*at(i) = float32(float64(*at(i)) + float64(k[i])*e)
			sum += float64(*at(i)) * float64(q[i])
		}
		dst[j] = float32(sum)
	}
}

// softplus: ln(1 + e^x)
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }
