package devicetest

import (
	"fmt"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// This file tests the operations with recurrent state, from position 0 on.

func (s Suite) conv(t *testing.T) {
	for _, c := range []struct {
		cols, kernel int
		biased       bool
	}{{1, 1, false}, {1, 4, true}, {7, 3, false}, {33, 2, true}, {64, 4, true}, {200, 4, false}, {65, 9, true}} {
		s.compare(t, fmt.Sprintf("of rows of %d over %d positions, biased %v", c.cols, c.kernel, c.biased), 1e-6, func(r *rig) device.Tensor {
			dst, x, w, bias := r.alloc(c.cols), r.random(c.cols, 1), r.weight(gguf.F32, c.cols, c.kernel), device.Tensor{}
			if c.biased {
				bias = r.weight(gguf.F32, 1, c.cols)
			}
			const at = 3
			r.p.Conv(dst, x, w, bias, r.state(at+device.ConvValues(w)), at)
			return dst
		})
	}
}

func (s Suite) scan(t *testing.T) {
	for _, c := range []struct {
		device.Scan
		each, skip bool // a decay for each element of a key; a factor of the values
	}{
		{Scan: device.Scan{Heads: 1, KeyHeads: 1, KeyDim: 1, ValueDim: 1}},
		{Scan: device.Scan{Heads: 1, KeyHeads: 1, KeyDim: 1, ValueDim: 1, Delta: true}, each: true, skip: true},
		{Scan: device.Scan{Heads: 6, KeyHeads: 2, KeyDim: 5, ValueDim: 7, Delta: true, Tiled: true}},
		{Scan: device.Scan{Heads: 6, KeyHeads: 3, KeyDim: 16, ValueDim: 33}, skip: true},
		{Scan: device.Scan{Heads: 4, KeyHeads: 4, KeyDim: 128, ValueDim: 128, Delta: true}, each: true},
		{Scan: device.Scan{Heads: 4, KeyHeads: 2, KeyDim: 128, ValueDim: 128, Delta: true, Tiled: true}},
		{Scan: device.Scan{Heads: 3, KeyHeads: 1, KeyDim: 100, ValueDim: 64}, skip: true},
		// Kernels for keys of up to 64, 128, 256 and 512 values.
		{Scan: device.Scan{Heads: 2, KeyHeads: 1, KeyDim: 64, ValueDim: 5}},
		{Scan: device.Scan{Heads: 2, KeyHeads: 1, KeyDim: 65, ValueDim: 5}},
		{Scan: device.Scan{Heads: 2, KeyHeads: 1, KeyDim: 129, ValueDim: 5, Delta: true}},
		{Scan: device.Scan{Heads: 2, KeyHeads: 1, KeyDim: 200, ValueDim: 5}, skip: true},
		{Scan: device.Scan{Heads: 2, KeyHeads: 1, KeyDim: 256, ValueDim: 5}},
		{Scan: device.Scan{Heads: 2, KeyHeads: 1, KeyDim: 300, ValueDim: 5, Delta: true}, each: true},
		{Scan: device.Scan{Heads: 2, KeyHeads: 1, KeyDim: 512, ValueDim: 5}},
	} {
		s.compare(t, fmt.Sprintf("of %d heads with %d keys, of (%d, %d), tiled %v, delta %v, decays %v, skip %v", c.Heads, c.KeyHeads, c.KeyDim, c.ValueDim, c.Tiled, c.Delta, c.each, c.skip), 2e-5, func(r *rig) device.Tensor {
			a, keys := c.Scan, c.KeyHeads*c.KeyDim
			q, k, dst := r.random(keys, 1), r.random(keys, 0.5/float64(c.KeyDim)), r.alloc(a.Heads*a.ValueDim)
			a.V, a.Step, a.Decay = r.random(a.Heads*a.ValueDim, 1), r.random(a.Heads, 1), r.random(a.Heads, 1)
			if c.each {
				a.Decay = r.random(a.Heads*a.KeyDim, 1)
			}
			if c.skip {
				a.Skip = r.weight(gguf.F32, 1, a.Heads)
			}
			r.p.Activate(a.Decay, a.Decay, device.Sigmoid)
			r.p.Activate(a.Step, a.Step, device.Sigmoid)
			r.p.Scan(dst, q, k, a, r.state(5+a.Values()), 5)
			return dst
		})
	}
}

// state allocates recurrent state of two slots.
func (r *rig) state(values int) device.State {
	r.t.Helper()
	s, err := r.dev.AllocState(device.StateLayout{Slots: 2, Values: values})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (s Suite) invalidStates(t *testing.T) {
	d := open(t, s.Open[0])
	r := newRig(t, d, 1)
	state := r.state(8)
	for name, err := range map[string]error{
		"a copy to a slot that does not exist":   d.CopyState(state, 2, 0),
		"a copy from a slot that does not exist": d.CopyState(state, 0, -1),
		"a copy of a state of another device":    d.CopyState(device.State{ID: 2, Layout: state.Layout}, 0, 1),
		"a slot that is read into too little":    d.ReadState(make([]byte, 31), state, 0),
		"a slot that is written with too much":   d.WriteState(state, 0, make([]byte, 33)),
		"a slot that is read and does not exist": d.ReadState(make([]byte, 32), state, 2),
		"a slot that is written and does not":    d.WriteState(state, -1, make([]byte, 32)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	x, y := r.random(4, 1), r.alloc(4)
	r.p.Conv(y, x, r.weight(gguf.F32, 4, 3), device.Tensor{}, state, 0)
	executable := r.compile()
	for name, states := range map[string][]int32{"no slots": nil, "a slot that does not exist": {2}, "a negative slot": {-1}} {
		b := counting(1, 0, []int32{0})
		b.States = states
		if executable.Run(b) == nil {
			t.Errorf("a batch with %s runs", name)
		}
	}
	b := counting(1, 0, []int32{0})
	b.Tables, b.States = [][][]int32{{{0}, {1}}}, []int32{1, 1}
	if executable.Run(b) == nil {
		t.Error("a batch with two sequences in one slot runs")
	}
	r.run(executable, counting(1, 0, []int32{0}))
}
