package ref_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/gguf"
	"m40-llm/infer/ref"
)

func TestDeviceContract(t *testing.T) {
	open := func() (device.Device, error) { return ref.New(), nil }
	devicetest.Run(t, devicetest.Suite{
		Open:  []func() (device.Device, error){open},
		Types: []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.MXFP4},
	})
}

// The suite compares a device with this one, so this one is compared with numbers
// worked out by hand.
func TestOperationsByHand(t *testing.T) {
	tests := []struct {
		name  string
		input []float32
		op    func(p *device.Program, x device.Tensor, weight func(values ...float32) device.Tensor)
		want  []float32
	}{
		{"RMSNorm of (3, 4) divides by the root of the mean square, 12.5, plus eps", []float32{3, 4},
			func(p *device.Program, x device.Tensor, weight func(...float32) device.Tensor) {
				p.RMSNorm(x, x, weight(1, 2), 3.5)
			}, []float32{0.75, 2}},
		{"AddBias adds", []float32{1, 2},
			func(p *device.Program, x device.Tensor, weight func(...float32) device.Tensor) {
				p.AddBias(x, weight(10, 20))
			}, []float32{11, 22}},
		{"Sparsify of (1, 3), with mean 2 and deviation 1, cuts at 2.5", []float32{1, 3},
			func(p *device.Program, x device.Tensor, weight func(...float32) device.Tensor) {
				p.Sparsify(x, 0.5)
			}, []float32{0, 0.5}},
		{"GLU of gate 0 is 0 and of a large gate is gate times up", []float32{0, 50},
			func(p *device.Program, x device.Tensor, weight func(...float32) device.Tensor) {
				p.GLU(x, x, x, device.SiLU)
			}, []float32{0, 2500}},
		{"RoPE at position 1 turns the pair (1, 0) by one radian", []float32{1, 0},
			func(p *device.Program, x device.Tensor, weight func(...float32) device.Tensor) {
				p.RoPE(x, device.RoPE{HeadDim: 2, Dims: 2, Base: 100, Scale: 1})
			}, []float32{0.5403023, 0.8414710}},
		{"RoPE turns the second pair by base^(-2/4) = 1/10 radian", []float32{1, 0, 1, 0},
			func(p *device.Program, x device.Tensor, weight func(...float32) device.Tensor) {
				p.RoPE(x, device.RoPE{HeadDim: 4, Dims: 4, Base: 100, Scale: 1})
			}, []float32{0.5403023, 0.8414710, 0.9950042, 0.0998334}},
		{"RoPE of halves pairs element 0 with 2 and 1 with 3", []float32{1, 1, 0, 0},
			func(p *device.Program, x device.Tensor, weight func(...float32) device.Tensor) {
				p.RoPE(x, device.RoPE{HeadDim: 4, Dims: 4, Base: 100, Scale: 1, NeoX: true})
			}, []float32{0.5403023, 0.9950042, 0.8414710, 0.0998334}},
		{"RoPE divides the angle by the factor and multiplies it by the scale", []float32{1, 0},
			func(p *device.Program, x device.Tensor, weight func(...float32) device.Tensor) {
				p.RoPE(x, device.RoPE{HeadDim: 2, Dims: 2, Base: 100, Scale: 0.5, Factors: weight(5)})
			}, []float32{0.9950042, 0.0998334}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := ref.New()
			p := device.NewProgram(1, 1)
			x, err := d.Alloc(1, len(test.input))
			if err != nil {
				t.Fatal(err)
			}
			weight := func(values ...float32) device.Tensor {
				w, err := d.Upload(gguf.F32, 1, len(values), bytesOf(values))
				if err != nil {
					t.Fatal(err)
				}
				return w
			}
			p.Embed(x, weight(test.input...))
			test.op(p, x, weight)
			run(t, d, p, &device.Batch{Tokens: []int32{0}, Pos: []int32{1}, Seq: []int32{0}, Tables: [][][]int32{{{0}}}})
			expect(t, d, x, 0, test.want)
		})
	}
}

func TestAttentionByHand(t *testing.T) {
	d := ref.New()
	kv, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: 1})
	if err != nil {
		t.Fatal(err)
	}
	x, _ := d.Alloc(2, 1)
	out, _ := d.Alloc(2, 1)
	table, err := d.Upload(gguf.F32, 2, 1, bytesOf([]float32{0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	p := device.NewProgram(2, 2)
	p.Embed(x, table)
	p.StoreKV(kv, 0, x, x)
	p.Attention(out, x, kv, 0, device.Attention{Heads: 1, Scale: float32(math.Log(3))})
	run(t, d, p, &device.Batch{Tokens: []int32{0, 1}, Pos: []int32{0, 1}, Seq: []int32{0, 0}, Tables: [][][]int32{{{0}}}})
	// Position 0 sees itself alone. Position 1 weighs values 0 and 1 by e^0 and e^ln3.
	expect(t, d, out, 0, []float32{0})
	expect(t, d, out, 1, []float32{0.75})
}

func TestRecurrentStateByHand(t *testing.T) {
	d := ref.New()
	alloc := func(cols int) device.Tensor {
		x, err := d.Alloc(3, cols)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	upload := func(rows, cols int, values ...float32) device.Tensor {
		w, err := d.Upload(gguf.F32, rows, cols, bytesOf(values))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	conv, delta, sum, x, one, half := alloc(1), alloc(1), alloc(1), alloc(1), alloc(1), alloc(1)
	state, err := d.AllocState(device.StateLayout{Slots: 2, Values: 4})
	if err != nil {
		t.Fatal(err)
	}
	p := device.NewProgram(3, 3)
	p.Embed(x, upload(3, 1, 1, 2, 4))
	p.Embed(one, upload(3, 1, 1, 1, 1))
	p.Embed(half, upload(3, 1, 0.5, 0.5, 0.5))
	p.Conv(conv, x, upload(1, 3, 100, 10, 1), upload(1, 1, 1000), state, 0)
	recurrence := device.Scan{Heads: 1, KeyHeads: 1, KeyDim: 1, ValueDim: 1, V: x, Decay: half, Step: one, Skip: upload(1, 1, 10)}
	p.Scan(sum, one, one, recurrence, state, 2)
	recurrence.Delta, recurrence.Skip, recurrence.Step = true, device.Tensor{}, half
	p.Scan(delta, one, one, recurrence, state, 3)
	run(t, d, p, &device.Batch{Tokens: []int32{0, 1, 2}, Pos: []int32{0, 1, 2}, Seq: []int32{0, 0, 0}, Tables: [][][]int32{{{0}}}, States: []int32{1}})
	// Values before position 0 are zeros. The state is halved before each value is added, or half of
	// its difference from the value.
	for row, want := range [][3]float32{{1001, 1 + 10, 0.5}, {1012, 2.5 + 20, 0.25 + 0.875}, {1124, 5.25 + 40, 0.5625 + 1.71875}} {
		expect(t, d, conv, row, want[:1])
		expect(t, d, sum, row, want[1:2])
		expect(t, d, delta, row, want[2:])
	}
}

// Two experts of two outputs over inputs of one value, of which the second is ten times the
// first.
func TestExpertsByHand(t *testing.T) {
	d := ref.New()
	logits, _ := d.Alloc(1, 3)
	routes, _ := d.Alloc(1, 4)
	x, _ := d.Alloc(1, 1)
	each, _ := d.Alloc(1, 4)
	sum, _ := d.Alloc(1, 2)
	upload := func(rows, cols int, values ...float32) device.Tensor {
		w, err := d.Upload(gguf.F32, rows, cols, bytesOf(values))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	p := device.NewProgram(1, 1)
	p.Embed(logits, upload(1, 3, 0, float32(math.Log(3)), 0))
	p.Embed(x, upload(1, 1, 2))
	p.Route(routes, logits, device.Routing{Experts: 3, Used: 2, Scale: 2})
	p.ExpertMatMul(each, upload(6, 1, 1, 2, 10, 20, 100, 200), x, routes, 3)
	p.ExpertSum(sum, each, routes)
	run(t, d, p, &device.Batch{Tokens: []int32{0}, Pos: []int32{0}, Seq: []int32{0}, Tables: [][][]int32{{{0}}}})
	// Softmax gives 1/5, 3/5 and 1/5; of the equal ones the first is chosen.
	expect(t, d, routes, 0, []float32{1, 0, 1.2, 0.4})
	expect(t, d, each, 0, []float32{20, 40, 2, 4})
	expect(t, d, sum, 0, []float32{24.8, 49.6})

	p = device.NewProgram(1, 1)
	p.Embed(logits, upload(1, 3, 0, float32(math.Log(3)), 0))
	p.Route(routes, logits, device.Routing{Experts: 3, Used: 2, Scale: 1, Normalize: true})
	run(t, d, p, &device.Batch{Tokens: []int32{0}, Pos: []int32{0}, Seq: []int32{0}, Tables: [][][]int32{{{0}}}})
	expect(t, d, routes, 0, []float32{1, 0, 0.75, 0.25})
}

func TestRoutingThatIsNotKnownDoesNotCompile(t *testing.T) {
	d := ref.New()
	logits, _ := d.Alloc(1, 3)
	routes, _ := d.Alloc(1, 4)
	p := device.NewProgram(1, 1)
	p.Route(routes, logits, device.Routing{Experts: 3, Used: 2, Scale: 1, Score: 99})
	if _, err := d.Compile(p); err == nil || !strings.Contains(err.Error(), "Route: score function 99 does not exist") {
		t.Errorf("got %v", err)
	}
}

func run(t *testing.T, d device.Device, p *device.Program, b *device.Batch) {
	t.Helper()
	x, err := d.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Run(b); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, d device.Device, x device.Tensor, row int, want []float32) {
	t.Helper()
	got := make([]float32, x.Cols)
	if err := d.Read(got, x, row); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-6*math.Max(1, math.Abs(float64(want[i]))) {
			t.Errorf("row %d is %v, want %v", row, got, want)
			return
		}
	}
}

func bytesOf(values []float32) (data []byte) {
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}
