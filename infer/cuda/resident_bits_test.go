package cuda_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
)

// openDecoding is gpu.open for a device that decodes in the given way.
func (g *gpu) openDecoding(how device.Decode) (device.Device, error) {
	return g.thread.Open(func() (device.Device, error) {
		d, err := cuda.OpenIn(g.context)
		if err == nil {
			d.(device.DecodeChooser).ChooseDecode(how)
		}
		return d, err
	})
}

// resident opens a device in the resident kernel's mode, whose kernel has few blocks so that the emulation is fast.
func residentGPU(t *testing.T, multiprocessors, seed int) *gpu {
	t.Setenv("M40_LLM_EMU_SMS", fmt.Sprint(multiprocessors))
	t.Setenv("M40_LLM_EMU_SEED", fmt.Sprint(seed))
	return openGPU(t)
}

// Rows that are computed in one resident kernel have the bits of the same rows in larger steps, which graphs compute.
func TestDeviceContractInAResidentKernel(t *testing.T) {
	if !fixtures.Torture() {
		t.SkipNow() // TestAResidentKernelHasTheBitsOfAGraph has the same kernels
	}
	types := []gguf.Type{gguf.F16, gguf.Q8_0, gguf.Q4_0}
	g := residentGPU(t, 1, 1)
	devicetest.Run(t, devicetest.Suite{
		Open:         []func() (device.Device, error){func() (device.Device, error) { return g.openDecoding(device.DecodePersistent) }},
		Types:        types,
		OnlyProducts: true,
	})
}

var f16Cache = device.CacheOf(gguf.F16)

// The models have all kernels that a model of this shape needs, on both units, and blocks in several orders.
func TestAResidentKernelHasTheBitsOfAGraph(t *testing.T) {
	for _, c := range []struct {
		typ                   gguf.Type
		cache                 device.CacheType
		capability            string
		multiprocessors, seed int
		model                 gguftest.Llama
	}{
		{gguf.Q8_0, f16Cache, "5.2", 2, 0, gguftest.Llama{Dim: 1024, Heads: 16, KVHeads: 4, FFN: 256, Layers: 1}}, // attention quantises its result
		{gguf.Q8_0, device.CacheType{Keys: gguf.Q8_0, Values: gguf.Q4_0}, "5.2", 2, 0, gguftest.Llama{Dim: 1024, Heads: 16, KVHeads: 4, FFN: 256, Layers: 1}},
		{gguf.Q4_0, f16Cache, "7.0", 1, 5, gguftest.Llama{Dim: 256, Heads: 2, KVHeads: 1, FFN: 512}},
		{gguf.Q4_0, device.CacheOf(gguf.Q8_0), "9.0", 1, 5, gguftest.Llama{Dim: 256, Heads: 2, KVHeads: 1, FFN: 512}},
		{gguf.F16, f16Cache, "6.1", 3, 6, gguftest.Llama{Dim: 128, Heads: 2, KVHeads: 2, Tied: true}},
		{gguf.F16, device.CacheOf(gguf.Q4_0), "6.1", 3, 6, gguftest.Llama{Dim: 128, Heads: 2, KVHeads: 2, Tied: true}},
	} {
		if (c.typ == gguf.Q8_0 || c.typ == gguf.Q4_0 && c.cache != f16Cache) && !fixtures.Check() {
			continue // the slowest; the others have both kinds of caches
		}
		t.Run(fmt.Sprintf("%s %s, cache %s", c.typ, c.capability, c.cache), func(t *testing.T) {
			t.Setenv("M40_LLM_EMU_CAPABILITY", c.capability)
			c.model.Type = c.typ
			f, err := gguf.Parse(gguftest.TinyLlama(c.model))
			if err != nil {
				t.Fatal(err)
			}
			g := residentGPU(t, c.multiprocessors, c.seed)
			want, got := g.logits(t, f, c.cache, device.DecodeGraph), g.logits(t, f, c.cache, device.DecodePersistent)
			for i := range want {
				if !slices.Equal(want[i], got[i]) {
					t.Errorf("step %d has other bits", i)
				}
			}
		})
	}
}

// compiles keeps the programs that are compiled on a device, by their rows.
type compiles struct {
	device.Device
	programs map[int]device.Executable
}

func (c compiles) Compile(p *device.Program) (device.Executable, error) {
	x, err := c.Device.Compile(p)
	c.programs[p.Rows] = x
	return x, err
}

// A layer of a llama has five launches for one row, with a grid barrier of the resident kernel after each, and six for a few rows.
func TestALayerHasFiveLaunchesAndBarriers(t *testing.T) {
	t.Setenv("M40_LLM_EMU_CAPABILITY", "9.0")
	g := residentGPU(t, 2, 0)
	type counts struct{ launches, barriers int }
	of := func(layers int) (one, few counts) {
		f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Dim: 1024, Heads: 16, KVHeads: 4, FFN: 256, Layers: layers, Type: gguf.Q8_0}))
		if err != nil {
			t.Fatal(err)
		}
		g.thread.Do(func() {
			var d device.Device
			if d, err = cuda.OpenIn(g.context); err != nil {
				return
			}
			c := compiles{d, map[int]device.Executable{}}
			if _, err = model.Load(context.Background(), f, c, model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 1, MaxRows: 4, MaxOut: 4}); err == nil {
				one.launches, one.barriers = cuda.Launches(c.programs[1])
				few.launches, few.barriers = cuda.Launches(c.programs[4])
			}
			d.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		return one, few
	}
	one, few := of(1)
	more, moreFew := of(4)
	if got, want := (counts{more.launches - one.launches, more.barriers - one.barriers}), (counts{3 * 5, 3 * 5}); got != want {
		t.Errorf("for one row three layers have %+v, want %+v", got, want)
	}
	if got, want := moreFew.launches-few.launches, 3*6; got != want {
		t.Errorf("for 4 rows three layers have %d launches, want %d", got, want)
	}
	if want := (counts{10, 10}); one != want {
		t.Errorf("for one row a model of one layer has %+v, want %+v", one, want)
	}
}

// logits returns the logits of steps of several sizes, of two sequences.
func (g *gpu) logits(t *testing.T, f *gguf.File, cache device.CacheType, how device.Decode) (all [][]float32) {
	t.Helper()
	d, err := g.openDecoding(how)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := model.Load(context.Background(), f, d, model.Options{CacheType: cache, Blocks: 12, MaxRows: 16, MaxOut: 4})
	if err != nil {
		t.Fatal(err)
	}
	if info := d.Info(); info.Decode != how || how == device.DecodePersistent && info.DecodeReason != "" {
		t.Fatalf("decodes as %s: %s", info.Decode, info.DecodeReason)
	}
	next := [2]int32{}
	tables := [][][]int32{{{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}}}
	for _, rows := range []int{16, 1, 2, 4, 3, 16, 16, 16, 16, 16, 16, 16, 16, 1, 4} { // in the end behind more than one unit of attention
		b := &device.Batch{Tables: tables}
		for row := range rows {
			s := int32(row % 2)
			b.Tokens, b.Pos, b.Seq = append(b.Tokens, (7*next[s]+3*s)%300), append(b.Pos, next[s]), append(b.Seq, s)
			next[s]++
			if row >= rows-4 {
				b.Out = append(b.Out, int32(row))
			}
		}
		if err := m.Forward(b); err != nil {
			t.Fatal(err)
		}
		for i := range b.Out {
			logits := make([]float32, m.Config().Vocab)
			if err := m.Logits(logits, i); err != nil {
				t.Fatal(err)
			}
			found, err := m.Candidates(i)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, logits, found.Logits)
		}
	}
	return all
}

func TestGraphsDecodeWhatTheResidentKernelCannot(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t)) // some real GPUs were measured
	g := residentGPU(t, 1, 0)
	for _, c := range []struct {
		name  string
		how   device.Decode
		typ   gguf.Type
		cache device.CacheType
		says  string
	}{
		{"chosen", device.DecodeGraph, gguf.Q8_0, device.CacheOf(gguf.F16), "chosen by --decode"},
		{"a GPU that was not measured", device.DecodeAuto, gguf.Q8_0, device.CacheOf(gguf.F16), "not measured"},
		{"a cache of float32", device.DecodePersistent, gguf.Q8_0, device.CacheOf(gguf.F32), "no KV cache of format f32"},
		{"another type of weights", device.DecodePersistent, gguf.F32, device.CacheOf(gguf.F16), "no resident kernel for weights of type F32"},
	} {
		f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: c.typ, Layers: 1}))
		if err != nil {
			t.Fatal(err)
		}
		d, err := g.openDecoding(c.how)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := model.Load(t.Context(), f, d, model.Options{CacheType: c.cache, Blocks: 2, MaxRows: 4, MaxOut: 1}); err != nil {
			t.Fatal(err)
		}
		if i := d.Info(); i.Decode != device.DecodeGraph || !strings.Contains(i.DecodeReason, c.says) {
			t.Errorf("%s: decodes as %q because of %q, want %q", c.name, i.Decode, i.DecodeReason, c.says)
		}
		d.Close()
	}
}

// Attention by matrix units has a number path of its own, and graphs decode models with it.
func TestMatrixUnitsComputeAttention(t *testing.T) {
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 256, Heads: 2, KVHeads: 1, Layers: 1}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		units  cudakern.Units
		path   string
		decode device.Decode
		says   string
	}{
		{cudakern.UnitsMMA, "i16, matrix attention", device.DecodeGraph, "the resident kernel has no attention_mma_d128_row"},
		{cudakern.UnitsDP2A, "i16", device.DecodePersistent, ""},
	} {
		t.Run(string(c.units), func(t *testing.T) {
			t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
			t.Setenv("M40_LLM_EMU_CAPABILITY", "9.0")
			t.Setenv("M40_LLM_CUDA_UNITS", string(c.units))
			d, err := residentGPU(t, 1, 0).openDecoding(device.DecodePersistent)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if _, err := model.Load(t.Context(), f, d, model.Options{CacheType: f16Cache, Blocks: 2, MaxRows: 4, MaxOut: 1}); err != nil {
				t.Fatal(err)
			}
			if i := d.Info(); i.Path != c.path || i.Decode != c.decode || i.DecodeReason != c.says {
				t.Errorf("has path %q and decodes as %q because of %q, want %q, %q and %q", i.Path, i.Decode, i.DecodeReason, c.path, c.decode, c.says)
			}
		})
	}
}
