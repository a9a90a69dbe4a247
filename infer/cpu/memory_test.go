package cpu_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// resident returns the bytes of memory that this process takes.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		fixtures.Skip(t, "this system does not say in /proc/self/statm what a process takes")
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// A cache of a gigabyte took a gigabyte when it was made, and seconds in which nothing else of
// the process ran.
func TestAKVCacheTakesTheMemoryOfTheBlocksThatAreWritten(t *testing.T) {
	const mb = 1 << 20
	d, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	layout := device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 64, Layers: 32, KVHeads: 16, HeadDim: 128} // of 16 MiB
	p := device.NewProgram(64, 64)
	k := feed(t, d, p, 16*128, make([]float32, 64*16*128))
	before := resident(t)
	within := func(what string, least, most int64) {
		t.Helper()
		if taken := resident(t) - before; taken < least || taken > most {
			t.Errorf("%s, %d MiB are taken, want %d to %d", what, taken/mb, least/mb, most/mb)
		}
	}
	kv := allocKV(t, d, layout)
	for layer := range layout.Layers {
		p.StoreKV(kv, layer, k, k)
	}
	e := compile(t, d, p)
	within("after it was made", -8*mb, 8*mb)
	b := upTo(0, 64)
	b.Tables[0][0] = []int32{60, 3}
	run(t, e, b)
	within("after two blocks were written", 32*mb-4*mb, 32*mb+8*mb)
	run(t, e, b)
	within("after they were written again", 32*mb-4*mb, 32*mb+8*mb)
	first, second := make([]byte, layout.BlockBytes()), make([]byte, layout.BlockBytes())
	read := func(block int32, to []byte) {
		t.Helper()
		if err := d.ReadKV(to, kv, block); err != nil {
			t.Fatal(err)
		}
	}
	read(3, first)
	before = resident(t) - 32*mb // with what the test has read
	for _, block := range []int32{60, 40} {
		if err := d.(device.Releaser).ReleaseKV(kv, block); err != nil {
			t.Fatal(err)
		}
	}
	within("after one of them, and one that was never written, were given back", 16*mb-4*mb, 16*mb+4*mb)
	if read(3, second); !bytes.Equal(first, second) {
		t.Error("the other block has changed")
	}
	before += int64(len(second))
	run(t, e, b)
	within("after it was written again", 32*mb-4*mb, 32*mb+8*mb)
	if d.(device.Releaser).ReleaseKV(kv, 64) == nil {
		t.Error("a block that the cache does not have was given back")
	}
	d.Close()
	within("after the device was closed", -8*mb, 8*mb)
}

func TestActivationsTakeTheMemoryOfTheRowsThatAreUsed(t *testing.T) {
	const mb = 1 << 20
	d, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := resident(t)
	x := alloc(t, d, 64, 1<<20) // rows of 4 MiB
	row := make([]float32, x.Cols)
	if err := d.Read(row, x, 63); err != nil || row[0] != 0 || row[x.Cols-1] != 0 {
		t.Errorf("a new row ends in %v, %v", row[x.Cols-1], err)
	}
	if taken := resident(t) - before; taken > 32*mb {
		t.Errorf("256 MiB of which one row was read take %d MiB", taken/mb)
	}
}

// The plan of what fits counts on WorkBytes.
func TestWorkBytesCountsScratchOnceAndAnglesForEachProgram(t *testing.T) {
	d, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	x := func(cols int) device.Tensor { return device.Tensor{ID: 1, Type: gguf.F32, Rows: 64, Cols: cols} }
	kv := device.KV{ID: 1, Layout: device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: 4096}}
	product := func(rows int) *device.Program {
		p := device.NewProgram(rows, rows)
		p.MatMul(device.Tensor{ID: 2, Type: gguf.F32, Rows: 64, Cols: 8}, device.Tensor{ID: 3, Rows: 8, Cols: 1024}, x(1024))
		return p
	}
	rotation := func(rows int) *device.Program {
		p := device.NewProgram(rows, rows)
		for range 3 { // as layers have them
			p.RoPE(x(4096), device.RoPE{HeadDim: 4096, Dims: 4096, Base: 1e4, Scale: 1})
		}
		return p
	}
	attention := device.NewProgram(1, 1)
	attention.Attention(device.Tensor{ID: 2, Type: gguf.F32, Rows: 64, Cols: 4096}, x(4096), kv, 0, device.Attention{Heads: 1, Scale: 1})
	for _, c := range []struct {
		name        string
		programs    []*device.Program
		least, most int64
	}{
		{"nothing", nil, 0, 0},
		{"a rounded activation", []*device.Program{product(64)}, 64 * 2 * 1024, 64 * 2 * 1024 * 9 / 8},
		{"programs share it", []*device.Program{product(64), product(32)}, 64 * 2 * 1024, 64 * 2 * 1024 * 9 / 8},
		{"angles once for all layers", []*device.Program{rotation(64)}, 4 * 64 * 4096, 4*64*4096 + 8*2048},
		{"angles of each program", []*device.Program{rotation(64), rotation(32)}, 4 * 96 * 4096, 4*96*4096 + 2*8*2048},
		{"scores, sums and queries of each thread", []*device.Program{attention}, 2 * 4 * 3 * 4096, 2 * 4 * 4 * 4096},
	} {
		for _, p := range c.programs {
			if p.Err() != nil {
				t.Fatal(p.Err())
			}
		}
		if got := d.WorkBytes(c.programs...); got < c.least || got > c.most {
			t.Errorf("%s: %d bytes, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

// Norms among the weights took the huge pages of all copies when they were uploaded.
func TestCopiesThatAreMadeLaterTakeMemoryAsTheyAreMade(t *testing.T) {
	const mb, rows, cols, weights = 1 << 20, 4096, 1024, 16
	d, err := openPackingLater(2, cpu.Paths()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	data := make([]byte, rows*gguf.Q8_0.RowBytes(cols)) // 4.25 MiB
	before := resident(t)
	for range weights {
		upload(t, d, gguf.F32, 1, cols, make([]byte, 4*cols))
		upload(t, d, gguf.Q8_0, rows, cols, data)
	}
	if taken := resident(t) - before; taken > 16*mb {
		t.Errorf("before a copy is made, %d MiB are taken", taken/mb)
	}
	for missing := int64(1); missing > 0; {
		if missing, err = d.pack(time.Microsecond); err != nil {
			t.Fatal(err)
		}
		if taken, made := resident(t)-before, int64(weights*len(data))-missing; taken > made+16*mb {
			t.Errorf("with copies of %d MiB, %d MiB are taken", made/mb, taken/mb)
		}
	}
}

// A buffer of 1 GiB was allocated beside any model.
func TestTheReadBandwidthIsMeasuredWithTheCopiesOfWeights(t *testing.T) {
	const mb, rows, cols = 1 << 20, 16 << 10, 1024
	d, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	upload(t, d, gguf.F32, rows, cols, make([]byte, 4*rows*cols))                 // 64 MiB
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // resets VmHWM
		fixtures.Skip(t, "this system does not reset the peak of a process's memory")
	}
	before := resident(t)
	if rate, err := d.(device.BandwidthMeter).ReadBandwidth(); err != nil || rate <= 0 {
		t.Errorf("got %v, %v", rate, err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(peak)[0], 10, 64)
	if taken := kib<<10 - before; err != nil || taken > 16*mb {
		t.Errorf("%d MiB are taken while the bandwidth is measured, %v", taken/mb, err)
	}
}
