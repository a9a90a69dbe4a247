package cpu_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

func TestOpenSaysWhatItFound(t *testing.T) {
	for _, path := range cpu.Paths() {
		t.Run(path, func(t *testing.T) {
			d, err := cpu.OpenWith(cpu.Options{Threads: 3, Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if i := d.Info(); i.Kind != "cpu" || i.Name == "" || i.Path != path || i.Threads != 3 || i.Memory < 0 {
				t.Errorf("got %+v", i)
			}
		})
	}
	t.Run("0 threads are one a core, on the first path", func(t *testing.T) {
		d, err := cpu.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if i := d.Info(); i.Threads < 1 || i.Path != cpu.Paths()[0] {
			t.Errorf("got %+v", i)
		}
	})
}

func TestOpenRefusesWhatItCannotDo(t *testing.T) {
	for _, c := range []struct {
		name    string
		threads int
		path    string
		says    string
	}{
		{"a negative number of threads", -1, "portable", "-1"},
		{"more threads than anyone has", 5000, "portable", "5000"},
		{"a path that does not exist", 1, "mmx", `"mmx"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := cpu.OpenWith(cpu.Options{Threads: c.threads, Path: c.path}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestErrorsNameTheTrouble(t *testing.T) {
	d, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	other, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	weight := upload(t, d, gguf.F32, 4, 4, make([]byte, 64))
	x := alloc(t, d, 4, 4)
	stranger := alloc(t, other, 5, 4)
	for _, c := range []struct {
		name string
		do   func() error
		says string
	}{
		{"a weight type without a kernel", func() error {
			_, err := d.Upload(gguf.Q1_0, 1, 256, make([]byte, 36))
			return err
		}, "type Q1_0; there are kernels for F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, IQ1_M, BF16, TQ1_0, TQ2_0, MXFP4, NVFP4"},
		{"a row that is no whole number of blocks", func() error {
			_, err := d.Upload(gguf.Q8_0, 1, 33, make([]byte, 34))
			return err
		}, "33"},
		{"a weight without rows", func() error {
			_, err := d.Upload(gguf.F32, 0, 4, nil)
			return err
		}, "(0, 4)"},
		{"an activation larger than the machine", func() error {
			_, err := d.Alloc(1<<31-1, 1<<20)
			return err
		}, "MiB"},
		{"a KV cache larger than the machine", func() error {
			_, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1 << 24, Layers: 16, KVHeads: 8, HeadDim: 128})
			return err
		}, "MiB"},
		{"a KV cache larger than any address", func() error {
			_, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1 << 30, Layers: 1 << 30, KVHeads: 1 << 20, HeadDim: 1 << 20})
			return err
		}, "fit in memory"},
		{"a KV cache without heads", func() error {
			_, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1, Layers: 1, HeadDim: 64})
			return err
		}, "positive"},
		{"writing to a weight", func() error {
			p := device.NewProgram(4, 4)
			p.Add(weight, x)
			_, err := d.Compile(p)
			return err
		}, "is a weight"},
		{"a tensor of another device", func() error {
			p := device.NewProgram(4, 4)
			p.Add(stranger, stranger)
			_, err := d.Compile(p)
			return err
		}, "not belong to this device"},
		{"a KV cache of another device", func() error {
			p := device.NewProgram(4, 4)
			p.StoreKV(allocKV(t, other, device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: 4}), 0, x, x)
			_, err := d.Compile(p)
			return err
		}, "not belong to this device"},
		{"reading a weight", func() error { return d.Read(make([]float32, 4), weight, 0) }, "is a weight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.do(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
		})
	}
}

func TestAClosedDeviceRefusesEverything(t *testing.T) {
	d, err := cpu.Open(2)
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
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCloseEndsEveryThread(t *testing.T) {
	const threads = 40
	count := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			fixtures.Skip(t, "this system does not list a process's threads in /proc/self/task")
		}
		return len(tasks)
	}
	before := count()
	for range 3 {
		d, err := cpu.Open(threads)
		if err != nil {
			t.Fatal(err)
		}
		if n := count(); n < before+threads-1 {
			t.Errorf("%d threads before Open, %d after it", before, n)
		}
		d.Close()
	}
	// The Go runtime may start some of its own, and a thread that was joined leaves the
	// list a moment later.
	n := count()
	for deadline := time.Now().Add(2 * time.Minute); n >= before+threads-1 && time.Now().Before(deadline); n = count() {
		time.Sleep(time.Millisecond)
	}
	if n >= before+threads-1 {
		t.Errorf("%d threads before Open, %d after Close", before, n)
	}
}

// Many short steps with pauses between them: workers fall asleep and are woken in
// every order. A lost wake-up hangs, a phase that begins too early changes bits.
func TestStepsAfterPausesKeepTheirBits(t *testing.T) {
	for _, threads := range []int{2, 3, 8} {
		d, err := cpu.Open(threads)
		if err != nil {
			t.Fatal(err)
		}
		const width, rows = 256, 4
		rng := rand.New(rand.NewPCG(19, 20))
		p := device.NewProgram(rows, rows)
		x, y := feed(t, d, p, width, normal(rng, rows*width)), alloc(t, d, rows, width)
		for range 6 {
			w := upload(t, d, gguf.Q8_0, width, width, devicetest.RandomWeight(rng, gguf.Q8_0, width, width, 0.1))
			p.MatMul(y, w, x)
			p.Add(x, y)
		}
		e := compile(t, d, p)
		b := upTo(0, rows)
		run(t, e, b)
		want := read(t, d, x, rows-1)
		for i := range 400 {
			if i%4 == 0 {
				time.Sleep(time.Duration(rng.IntN(200)) * time.Microsecond)
			}
			run(t, e, b)
			if !sameBits(read(t, d, x, rows-1), want) {
				t.Fatalf("%d threads, step %d has other bits than the first", threads, i)
			}
		}
		d.Close()
	}
}
