package cuda_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/cudakern/emutest"
	"m40-llm/cudakern/resident"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
)

// patient are limits that no test reaches.
var patient = resident.Limits{Commands: 1 << 30, Idle: time.Minute, Hang: time.Minute}

// openResident opens a device that decodes in a resident kernel with the given limits, on a small GPU.
func openResident(t *testing.T, seed int, limits resident.Limits) device.Device {
	t.Helper()
	t.Setenv("M40_LLM_EMU_SMS", "1")
	t.Setenv("M40_LLM_EMU_SEED", fmt.Sprint(seed))
	t.Setenv("M40_LLM_LIBCUDA", emutest.Library(t))
	d, err := cuda.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	d.(device.DecodeChooser).ChooseDecode(device.DecodePersistent)
	cuda.Limit(d, limits)
	return d
}

// loadTiny loads a model of one layer.
func loadTiny(t *testing.T, d device.Device, typ gguf.Type, dim int) *model.Model {
	t.Helper()
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: typ, Layers: 1, Dim: dim, Heads: dim / 64, KVHeads: 1}))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(t.Context(), f, d, model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 4, MaxRows: 4, MaxOut: 4})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// oneRow is the step of the token at pos of a sequence, behind which another one can be submitted.
func oneRow(pos int) *device.Batch {
	return &device.Batch{
		Tokens: []int32{int32(7*pos%50 + 5)}, Pos: []int32{int32(pos)}, Seq: []int32{0}, Out: []int32{0}, Tables: [][][]int32{{{1, 0, 3}}},
		Draws: []device.Draw{{Temperature: 1, TopK: 40, TopP: 1, Seed: 3, Pos: pos + 1}},
	}
}

// rowOf returns the logits of the last step.
func rowOf(t *testing.T, m *model.Model) []float32 {
	t.Helper()
	row := make([]float32, m.Config().Vocab)
	if err := m.Logits(row, 0); err != nil {
		t.Fatal(err)
	}
	return row
}

// Whatever else uses the GPU makes the kernel leave first; the emulation refuses what would wait for it. The next step starts it again,
// with the same bits. Nothing else makes it leave, not even reading all logits.
func TestTheResidentKernelLeavesForWhateverElseUsesTheGPU(t *testing.T) {
	d := openResident(t, 3, patient)
	m := loadTiny(t, d, gguf.Q8_0, 128)
	x, y := alloc(t, d, 4, 128), alloc(t, d, 4, 128)
	kv, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 2, Layers: 1, KVHeads: 1, HeadDim: 64})
	if err != nil {
		t.Fatal(err)
	}
	state, err := d.AllocState(device.StateLayout{Slots: 2, Values: 8})
	if err != nil {
		t.Fatal(err)
	}
	block, slot, row := make([]byte, kv.Layout.BlockBytes()), make([]byte, state.Layout.SlotBytes()), make([]float32, 128)
	uses := []struct {
		name string
		call func() error
	}{
		{"Upload", func() error { _, err := d.Upload(gguf.F32, 1, 128, make([]byte, 512)); return err }},
		{"Alloc", func() error { _, err := d.Alloc(1, 128); return err }},
		{"AllocKV", func() error { _, err := d.AllocKV(kv.Layout); return err }},
		{"AllocState", func() error { _, err := d.AllocState(state.Layout); return err }},
		{"ReadKV", func() error { return d.ReadKV(block, kv, 1) }},
		{"WriteKV", func() error { return d.WriteKV(kv, 1, block) }},
		{"CopyState", func() error { return d.CopyState(state, 1, 0) }},
		{"ReadState", func() error { return d.ReadState(slot, state, 1) }},
		{"WriteState", func() error { return d.WriteState(state, 1, slot) }},
		{"Write", func() error { return d.Write(x, 0, row) }},
		{"Read", func() error { return d.Read(row, x, 0) }},
		{"CopyFrom", func() error { _, err := d.(device.Peer).CopyFrom(y, d, x, 1); return err }},
		{"a graph", func() error {
			d.(device.DecodeChooser).ChooseDecode(device.DecodeGraph)
			defer d.(device.DecodeChooser).ChooseDecode(device.DecodePersistent)
			return m.Forward(oneRow(0))
		}},
		{"Compile", func() error {
			p := device.NewProgram(1, 0)
			p.Add(x, y)
			_, err := d.Compile(p)
			return err
		}},
	}
	var rows [][]float32
	for i, use := range uses {
		if err := m.Forward(oneRow(i)); err != nil {
			t.Fatal(err)
		}
		if rows = append(rows, rowOf(t, m)); !cuda.Resides(d) {
			t.Fatal("the kernel has left before anything else uses the GPU")
		}
		if err := use.call(); err != nil {
			t.Fatalf("%s: %v", use.name, err)
		}
		if cuda.Resides(d) {
			t.Errorf("%s: the kernel stays", use.name)
		}
	}
	if n := cuda.ResidentLaunches(d); n != len(uses) {
		t.Errorf("the kernel was launched %d times, want %d", n, len(uses))
	}
	d.(device.DecodeChooser).ChooseDecode(device.DecodeGraph)
	for i, want := range rows {
		if err := m.Forward(oneRow(i)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(rowOf(t, m), want) {
			t.Errorf("step %d has other bits than a graph, after %s", i, uses[max(0, i-1)].name)
		}
	}
}

// Models of two types have a kernel each, two of one type share one; their steps take turns, and are started before those of
// the others are waited for.
func TestSeveralModelsTakeTurnsInResidentKernels(t *testing.T) {
	d := openResident(t, 2, patient)
	var models []*model.Model
	for _, typ := range []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.Q8_0} {
		models = append(models, loadTiny(t, d, typ, 64*(len(models)+1)))
	}
	step := func(m *model.Model, b *device.Batch) model.Ticket {
		ticket, err := m.Submit(b)
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	collect := func(m *model.Model, ticket model.Ticket) []float32 {
		if _, err := m.Collect(ticket); err != nil {
			t.Fatal(err)
		}
		return rowOf(t, m)
	}
	var got [2][][]float32
	for i, how := range []device.Decode{device.DecodePersistent, device.DecodeGraph} {
		d.(device.DecodeChooser).ChooseDecode(how)
		for pos := range 4 {
			first := step(models[0], oneRow(pos))
			second := step(models[1], oneRow(pos))
			got[i] = append(got[i], collect(models[0], first))
			third := step(models[2], oneRow(pos))
			got[i] = append(got[i], collect(models[1], second), collect(models[2], third))
		}
	}
	for i := range got[0] {
		if !slices.Equal(got[0][i], got[1][i]) {
			t.Errorf("step %d has other bits than with graphs", i)
		}
	}
	if n := cuda.ResidentLaunches(d); n < 8 {
		t.Errorf("kernels were launched %d times: they do not take turns", n)
	}
}

// A kernel that does not answer is an error of the device, and so are blocks that wait for each other in vain. A device
// that is opened afterwards works.
func TestAResidentKernelThatDoesNotAnswerIsAnErrorOfTheDevice(t *testing.T) {
	for _, c := range []struct {
		name string
		hang time.Duration
		lose bool // a block's arrival at the barrier
		says string
	}{
		{"no progress", time.Nanosecond, false, "hangs"},
		{"a block that never arrives", time.Minute, true, "launch failure"},
	} {
		t.Run(c.name, func(t *testing.T) {
			limits := patient
			limits.Hang = c.hang
			d := openResident(t, 1, limits)
			m := loadTiny(t, d, gguf.Q8_0, 64)
			var err error
			for pos := 0; pos < 20 && err == nil; pos++ {
				if c.lose && pos == 3 {
					cuda.LoseArrival(t, d)
				}
				err = m.Forward(oneRow(pos))
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || !errors.Is(err, device.ErrFailed) {
				t.Errorf("got %v, want an error of the device that says %q", err, c.says)
			}
			if again := m.Forward(oneRow(0)); again == nil {
				t.Error("the device works on")
			}
			d.Close()
			if err := loadTiny(t, openResident(t, 1, patient), gguf.Q8_0, 64).Forward(oneRow(0)); err != nil {
				t.Errorf("a device that is opened afterwards: %v", err)
			}
		})
	}
}
