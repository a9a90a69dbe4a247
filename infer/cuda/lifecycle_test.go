package cuda_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
)

// emulated opens the emulated device as its users do.
func emulated(t *testing.T, open func() (device.Device, error)) (device.Device, error) {
	t.Helper()
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	thread := devicetest.NewThread()
	t.Cleanup(thread.Close)
	d, err := thread.Open(open)
	if err == nil {
		t.Cleanup(func() { d.Close() })
	}
	return d, err
}

func TestOpenSaysWhatItFound(t *testing.T) {
	for capability, path := range map[string]string{"5.2": "i16", "6.1": "i16", "7.0": "i16", "9.0": "i16"} {
		t.Run("compute capability "+capability, func(t *testing.T) {
			t.Setenv("M40_LLM_EMU_CAPABILITY", capability)
			d, err := emulated(t, cuda.Open)
			if err != nil {
				t.Fatal(err)
			}
			i := d.Info()
			if i.Kind != "cuda" || !strings.Contains(i.Name, "Tesla M40") || i.Path != path || !i.Dedicated || i.Memory < 11<<30 || i.Memory > 12<<30 {
				t.Errorf("got %+v", i)
			}
		})
	}
}

func TestOpenSaysWhyItCannot(t *testing.T) {
	for _, c := range []struct {
		name, variable, value, says string
	}{
		{"no driver", "M40_LLM_LIBCUDA", "/nowhere/libcuda.so.1", "no usable CUDA driver: /nowhere/libcuda.so.1"},
		{"no device", "M40_LLM_EMU_DEVICES", "0", "finds no device"},
		{"only a device that is too old", "M40_LLM_EMU_CAPABILITY", "3.5", "compute capability 3.5; the kernels need 5.2 or later"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := emulated(t, func() (device.Device, error) {
				t.Setenv(c.variable, c.value)
				return cuda.Open()
			})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
		})
	}
}

func TestInstalledDoesNotAskTheDriver(t *testing.T) {
	faults := emutest.NewFaults(t)
	t.Setenv("M40_LLM_LIBCUDA", faults.Library)
	if err := cuda.Installed(); err != nil {
		t.Error(err)
	}
	if n := faults.Calls(); n != 0 {
		t.Errorf("%d calls of the driver", n)
	}
	t.Setenv("M40_LLM_LIBCUDA", "/nowhere/libcuda.so.1")
	if err := cuda.Installed(); err == nil {
		t.Error("a driver that is not there is installed")
	}
}

func TestErrorsNameTheTrouble(t *testing.T) {
	t.Setenv("M40_LLM_EMU_MEMORY", "268435456")
	d, err := emulated(t, cuda.Open)
	if err != nil {
		t.Fatal(err)
	}
	alloc := func(cols int) device.Tensor {
		a, err := d.Alloc(4, cols)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	weight, err := d.Upload(gguf.F32, 4, 4, make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	x := alloc(4)
	kv, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 2, Layers: 1, KVHeads: 1, HeadDim: 4})
	if err != nil {
		t.Fatal(err)
	}
	strange := x
	strange.Cols = 5
	strangeKV := kv
	strangeKV.Layout.Blocks = 3
	compile := func(record func(p *device.Program)) error {
		p := device.NewProgram(4, 4)
		record(p)
		_, err := d.Compile(p)
		return err
	}
	for _, c := range []struct {
		name string
		do   func() error
		says string
	}{
		{"a weight type without a kernel", func() error {
			_, err := d.Upload(gguf.Q1_0, 1, 256, make([]byte, 36))
			return err
		}, "type Q1_0; there are kernels for F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K"},
		{"the size of a weight type without a kernel", func() error {
			_, err := d.WeightBytes(gguf.Q1_0, 1, 256)
			return err
		}, "type Q1_0"},
		{"a row that is no whole number of blocks", func() error {
			_, err := d.Upload(gguf.Q8_0, 1, 33, make([]byte, 34))
			return err
		}, "33"},
		{"a weight without rows", func() error {
			_, err := d.Upload(gguf.F32, 0, 4, nil)
			return err
		}, "(0, 4)"},
		{"an activation larger than the device", func() error {
			_, err := d.Alloc(1<<20, 1<<10)
			return err
		}, "4096.0 MiB of GPU memory are needed, but only"},
		{"a KV cache larger than the device", func() error {
			_, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1 << 24, Layers: 16, KVHeads: 8, HeadDim: 128})
			return err
		}, "MiB of GPU memory are needed"},
		{"a KV cache larger than any address", func() error {
			_, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1 << 30, Layers: 1 << 30, KVHeads: 1 << 20, HeadDim: 1 << 20})
			return err
		}, "fit in memory"},
		{"writing to a weight", func() error { return compile(func(p *device.Program) { p.Add(weight, x) }) }, "is a weight"},
		{"multiplying by an activation", func() error { return compile(func(p *device.Program) { p.MatMul(alloc(4), x, alloc(4)) }) }, "is an activation"},
		{"a tensor of another device", func() error { return compile(func(p *device.Program) { p.Add(strange, strange) }) }, "not belong to this device"},
		{"a KV cache of another device", func() error {
			return compile(func(p *device.Program) { p.StoreKV(strangeKV, 0, x, x) })
		}, "not belong to this device"},
		{"heads that no kernel takes", func() error {
			wide, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 2, Layers: 1, KVHeads: 1, HeadDim: 257})
			if err != nil {
				t.Fatal(err)
			}
			return compile(func(p *device.Program) {
				p.Attention(alloc(257), alloc(257), wide, 0, device.Attention{Heads: 1, Scale: 1})
			})
		}, "heads of 257"},
		{"reading a weight", func() error { return d.Read(make([]float32, 4), weight, 0) }, "is a weight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.do(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
		})
	}
	t.Run("the device works on after all of them", func(t *testing.T) {
		if err := compile(func(p *device.Program) { p.Add(x, alloc(4)) }); err != nil {
			t.Error(err)
		}
	})
}

func TestAClosedDeviceRefusesEverything(t *testing.T) {
	d, err := openGPU(t).open()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"Upload": func() error { _, err := d.Upload(gguf.F32, 1, 1, make([]byte, 4)); return err },
		"Alloc":  func() error { _, err := d.Alloc(1, 1); return err },
		"AllocKV": func() error {
			_, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: 1})
			return err
		},
		"Compile": func() error { _, err := d.Compile(device.NewProgram(1, 1)); return err },
		"Read":    func() error { return d.Read(make([]float32, 1), device.Tensor{}, 0) },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// A table can be longer than any sequence needs, but not than the cache has blocks.
func TestTablesLongerThanTheCacheAreRefused(t *testing.T) {
	g := openGPU(t)
	d, err := g.open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	kv, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 2, Layers: 1, KVHeads: 1, HeadDim: 4})
	if err != nil {
		t.Fatal(err)
	}
	x, err := d.Alloc(1, 4)
	if err != nil {
		t.Fatal(err)
	}
	p := device.NewProgram(1, 0)
	p.StoreKV(kv, 0, x, x)
	e, err := d.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	b := &device.Batch{Tokens: []int32{0}, Pos: []int32{0}, Seq: []int32{0}, Tables: [][][]int32{{{0, 1, 0}}}}
	if err := e.Run(b); err == nil || !strings.Contains(err.Error(), "3 KV blocks") {
		t.Errorf("got %v", err)
	}
	b.Tables[0][0] = b.Tables[0][0][:2]
	if err := e.Run(b); err != nil {
		t.Error(err)
	}
}

// On a GPU that the program brings no code for, all kernels that a model needs are compiled
// while it is loaded, and who watches sees how many.
func TestLoadingTellsOfKernelsThatAreCompiled(t *testing.T) {
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Layers: 1}))
	if err != nil {
		t.Fatal(err)
	}
	for capability, compiles := range map[string]bool{"5.2": false, "6.1": true, "9.0": true} {
		t.Run("compute capability "+capability, func(t *testing.T) {
			t.Setenv("M40_LLM_EMU_CAPABILITY", capability)
			d, err := emulated(t, cuda.Open)
			if err != nil {
				t.Fatal(err)
			}
			var told []model.Progress
			o := model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 2, MaxRows: 4, Progress: func(p model.Progress) { told = append(told, p) }}
			if _, err := model.Load(t.Context(), f, d, o); err != nil {
				t.Fatal(err)
			}
			weights := model.WeightBytes(f)
			kernels := told[:slices.IndexFunc(told, func(p model.Progress) bool { return p.Done > 0 })]
			for i, p := range kernels {
				if want := (model.Progress{Total: weights, Kernels: i, KernelsTotal: len(kernels) - 1}); p != want {
					t.Errorf("report %d is %+v, want %+v", i, p, want)
				}
			}
			if last := told[len(told)-1]; last != (model.Progress{Done: weights, Total: weights}) {
				t.Errorf("the last report is %+v", last)
			}
			// Embedding, norm, product, activations, rope, store, attention, rows, candidates.
			if compiles != (len(kernels) == 9+1) || !compiles && len(kernels) > 0 {
				t.Errorf("%d reports of kernels", len(kernels))
			}
		})
	}
}

// The plan of what fits counts on WeightBytes. Outputs come in fours on the device.
func TestWeightBytesCountsWhatTheLayoutAdds(t *testing.T) {
	d, err := openGPU(t).open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const cols = 1024
	for _, c := range []struct {
		typ  gguf.Type
		rows int
		want int
	}{
		{gguf.F32, 1, 4 * cols}, // a vector lies as it is
		{gguf.F32, 5, 8 * 4 * cols},
		{gguf.F16, 8, 8 * 2 * cols},
		{gguf.Q8_0, 5, 8 * cols / 32 * 34},
		{gguf.Q4_0, 5, 8 * cols / 32 * 18},
		{gguf.Q4_K, 5, 8 * cols / 256 * (8*18 + 4)}, // its scales are unpacked to bytes
		{gguf.Q6_K, 5, 8 * cols / 256 * 210},
	} {
		if got, err := d.WeightBytes(c.typ, c.rows, cols); err != nil || got != int64(c.want) {
			t.Errorf("%s (%d, %d): %d bytes, %v; want %d", c.typ, c.rows, cols, got, err, c.want)
		}
	}
}

// Matrices of a bit more than half a slab took a whole one each: nearly twice their size.
func TestPiecesOfEverySizeTakeLittleMoreThanTheyHold(t *testing.T) {
	g := openGPU(t)
	free := func() (n int64) {
		var err error
		g.thread.Do(func() { n, _, err = g.context.MemInfo() })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, mebibytes := range []int{1, 3, 5, 9, 17, 25, 31} {
		d, err := g.open()
		if err != nil {
			t.Fatal(err)
		}
		before, held := free(), int64(0)
		for held < 96<<20 {
			if _, err := d.Alloc(mebibytes<<10, 256); err != nil {
				t.Fatal(err)
			}
			held += int64(mebibytes) << 20
		}
		taken := before - free()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		// A slab that is begun, and a page of 2 MiB that is for each of the larger pieces.
		if most := held*5/4 + 32<<20; taken > most {
			t.Errorf("pieces of %d MiB: %d MiB take %d MiB", mebibytes, held>>20, taken>>20)
		}
	}
}

// compiling keeps what is compiled, and what is planned for graphs, which the driver holds.
type compiling struct {
	device.Device
	programs []device.Executable
	graphs   int64
}

func (d *compiling) Compile(p *device.Program) (device.Executable, error) {
	x, err := d.Device.Compile(p)
	d.programs = append(d.programs, x)
	return x, err
}

func (d *compiling) WorkBytes(programs ...*device.Program) int64 {
	for _, p := range programs {
		d.graphs += cuda.GraphBytes(p)
	}
	return d.Device.WorkBytes(programs...)
}

// What is planned for before a model is loaded is what its programs take.
func TestWorkBytesIsWhatProgramsTake(t *testing.T) {
	for _, o := range []model.Options{
		{CacheType: device.CacheOf(gguf.F16), Blocks: 3, MaxRows: 1},
		{CacheType: device.CacheOf(gguf.F32), Blocks: 50, MaxRows: 40, MaxOut: 9},
	} {
		for typ, exact := range map[gguf.Type]bool{gguf.F32: true, gguf.Q8_0: false} { // whose quantised activations are the larger ones
			t.Run(fmt.Sprintf("%d rows, %s weights", o.MaxRows, typ), func(t *testing.T) {
				f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: typ, Layers: 1}))
				if err != nil {
					t.Fatal(err)
				}
				config, err := model.ReadConfig(f)
				if err != nil {
					t.Fatal(err)
				}
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				driver, gpus, err := cuda.Find(emutest.Emulation(t))
				if err != nil {
					t.Fatal(err)
				}
				gpu, err := cuda.OpenGPU(driver, gpus[0])
				if err != nil {
					t.Fatal(err)
				}
				defer gpu.Close()
				d := &compiling{Device: gpu}
				planned := config.WorkBytes(d, o)
				graphs := d.graphs
				if _, err := model.Load(t.Context(), f, d, o); err != nil {
					t.Fatal(err)
				}
				taken := cuda.Work(gpu, d.programs) + graphs
				if taken > planned || exact && taken != planned {
					t.Errorf("%d bytes are planned for %d programs, which take %d", planned, len(d.programs), taken)
				}
			})
		}
	}
}
