package devicetest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

var rowCounts = []int{1, 2, 3, 8, 9, 33}

// operations compares every operation with the reference.
func (s Suite) operations(t *testing.T) {
	t.Run("Write sets what a program reads", s.write)
	t.Run("Embed picks rows", s.embed)
	t.Run("RMSNorm", s.rmsNorm)
	t.Run("LayerNorm", s.layerNorm)
	t.Run("EmbedPositions and ScaleByPosition", s.positions)
	t.Run("Activate", s.activate)
	t.Run("MatMul", s.matMul)
	t.Run("AddBias", s.addBias)
	t.Run("Add", s.add)
	t.Run("GLU", s.glu)
	t.Run("Scale", s.scale)
	t.Run("Gate", s.gate)
	t.Run("Multiply", s.multiply)
	t.Run("Copy", s.copyColumns)
	t.Run("Mix", s.mix)
	t.Run("MatchRMS", s.matchRMS)
	t.Run("Sparsify", s.sparsify)
	t.Run("RoPE", s.rope)
	t.Run("RoPE by coordinates", s.ropeAxes)
	if !s.OnlyProducts {
		t.Run("Conv", s.conv)
		t.Run("Scan", s.scan)
	}
	t.Run("Attention over what StoreKV stored", s.attention)
	t.Run("bidirectional Attention", s.bidirectional)
	t.Run("GatherRows", s.gather)
	t.Run("Candidates", s.candidates)
	t.Run("Route", s.routing)
	t.Run("ExpertMatMul", s.expertMatMul)
	t.Run("ExpertMatMul without routes", s.ownWeights)
	t.Run("ExpertBias", s.expertBias)
	t.Run("ExpertSum", s.expertSum)
}

// compare builds the same program on the device and on the reference for each of rowCounts, runs
// both and compares the tensor that build returns: |got-want| may be up to tolerance times the
// largest |want| of the row.
func (s Suite) compare(t *testing.T, name string, tolerance float64, build func(r *rig) device.Tensor) {
	t.Run(name, func(t *testing.T) {
		for _, rows := range rowCounts {
			want, got := newRig(t, open(t, openRef), rows), newRig(t, open(t, s.Open[0]), rows)
			wantOut, gotOut := build(want), build(got)
			batch := counting(rows, 0, []int32{0, 1})
			want.run(want.compile(), batch)
			got.run(got.compile(), batch)
			for r := range rows {
				w := want.read(wantOut, r)
				allowed := tolerance*largest(w) + 1e-37
				near(t, fmt.Sprintf("row %d of %d", r, rows), got.read(gotOut, r), w, func(int) float64 { return allowed })
			}
		}
	})
}

func near(t *testing.T, what string, got, want []float32, allowed func(i int) float64) {
	t.Helper()
	for i := range want {
		// Negated, so that a NaN fails too.
		if difference := math.Abs(float64(got[i]) - float64(want[i])); !(difference <= allowed(i)) {
			t.Fatalf("%s, element %d: got %g, want %g, off by %.2g where %.2g is allowed", what, i, got[i], want[i], difference, allowed(i))
		}
	}
}

func largest(x []float32) (m float64) {
	for _, v := range x {
		m = max(m, math.Abs(float64(v)))
	}
	return m
}

func (s Suite) write(t *testing.T) {
	r := newRig(t, open(t, s.Open[0]), 3)
	x := r.alloc(5)
	r.p.AddBias(x, r.vector([]float32{1, 2, 2, 0, 2}))
	program := r.compile()
	for row := range 3 {
		if err := r.dev.Write(x, row, []float32{float32(row), -1, 0.5, 1e9, 3}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.dev.Write(x, 1, []float32{1, -1, 0.5, 1e9, 3, 2, -1, 0.5, 1e9, 3}); err != nil { // two rows at once
		t.Fatal(err)
	}
	r.run(program, counting(2, 0, []int32{0}))
	both := make([]float32, 10)
	if err := r.dev.Read(both, x, 1); err != nil || !slices.Equal(both, []float32{2, 1, 2.5, 1e9, 5, 2, -1, 0.5, 1e9, 3}) {
		t.Errorf("rows 1 and 2 are %v, %v", both, err)
	}
	for row, want := range [][]float32{{1, 1, 2.5, 1e9, 5}, {2, 1, 2.5, 1e9, 5}, {2, -1, 0.5, 1e9, 3}} {
		if got := r.read(x, row); !slices.Equal(got, want) {
			t.Errorf("row %d is %v, want %v", row, got, want)
		}
	}
}

func (s Suite) embed(t *testing.T) {
	for _, typ := range s.Types {
		for _, cols := range widths(typ, 32, 96, 512) {
			s.compare(t, fmt.Sprintf("of %d %s values", cols, typ), 1e-7, func(r *rig) device.Tensor {
				x := r.alloc(cols)
				r.p.Embed(x, r.weight(typ, 40, cols))
				return x
			})
		}
	}
}

// matMul compares MatMul of many shapes. Products of one weight type and width are parts of one
// large product, which the reference computes once, and share a device.
func (s Suite) matMul(t *testing.T) {
	for _, typ := range s.Types {
		for _, cols := range widths(typ, 1, 7, 32, 33, 64, 96, 255, 256, 288, 512, 1056, 1280) {
			whole, dev := s.newProduct(t, typ, cols), open(t, s.Open[0])
			for i, outs := range []int{1, 2, 3, 5, 17, productOuts} {
				t.Run(fmt.Sprintf("%s (%d, %d)", typ, outs, cols), func(t *testing.T) {
					for j, rows := range rowCounts {
						whole.compare(t, dev, outs, rows, i+j)
					}
				})
			}
		}
	}
}

// widths returns the candidates that are multiples of the block size of typ.
func widths(typ gguf.Type, candidates ...int) []int {
	elements, _ := typ.Block()
	return slices.DeleteFunc(candidates, func(n int) bool { return n%int(elements) != 0 })
}

// product is a matrix product as the reference computes it, with the allowed error of each
// output. Devices may quantise activations to 8 bits in blocks of 32. Even rows of activations are
// exact in 8 bits: integers, of which the largest of each block is 127. There, only the order of
// float32 sums may differ. In odd rows, the error of every term may be half a quantisation step.
type product struct {
	typ     gguf.Type
	cols    int
	weights []byte      // productOuts rows
	x       []float32   // (productRows, cols)
	want    [][]float32 // (productRows, productOuts)
	allowed [][]float64 // of want
}

const (
	productOuts = 64
	productRows = 48 // at least the largest of rowCounts plus the largest first row of compare
)

func (s Suite) newProduct(t *testing.T, typ gguf.Type, cols int) *product {
	ref := newRig(t, open(t, openRef), productRows)
	p := &product{
		typ: typ, cols: cols,
		weights: RandomWeight(ref.rng, typ, productOuts, cols, 1),
		x:       normal(ref.rng, productRows*cols, 1),
	}
	for i := range p.x {
		if exactRow(i / cols) {
			p.x[i] = float32(ref.rng.IntN(255) - 127)
			if i%cols%32 == 0 {
				p.x[i] = 127
			}
		}
	}
	out := p.record(ref, productOuts)
	ref.run(ref.compile(), counting(productRows, 0, []int32{0, 1}))

	w := make([]float32, productOuts*cols)
	if err := gguf.Dequantize(typ, p.weights, w); err != nil {
		t.Fatal(err)
	}
	for r := range productRows {
		p.want = append(p.want, ref.read(out, r))
		block, _ := typ.Block()
		rounds := !exactRow(r) && block > 1
		allowed := make([]float64, productOuts)
		for i := range allowed {
			allowed[i] = productError(w[i*cols:(i+1)*cols], p.x[r*cols:(r+1)*cols], rounds)
			if s.Halves && (typ == gguf.F16 || typ == gguf.BF16) && !exactRow(r) {
				allowed[i] += halfError(w[i*cols:(i+1)*cols], p.x[r*cols:(r+1)*cols])
			}
		}
		p.allowed = append(p.allowed, allowed)
	}
	return p
}

func exactRow(r int) bool { return r%2 == 0 }

// record records the product with the first outs rows of the weights.
func (p *product) record(r *rig, outs int) (out device.Tensor) {
	out = r.alloc(outs)
	w := r.upload(p.typ, outs, p.cols, p.weights[:outs*p.typ.RowBytes(p.cols)])
	r.p.MatMul(out, w, r.input(p.x, p.cols))
	return out
}

// compare compares the first outs columns of rows first … first+rows-1.
func (p *product) compare(t *testing.T, dev device.Device, outs, rows, first int) {
	t.Helper()
	got := newRig(t, dev, rows)
	out := p.record(got, outs)
	batch := counting(rows, 0, []int32{0, 1})
	for i := range batch.Tokens {
		batch.Tokens[i] += int32(first)
	}
	got.run(got.compile(), batch)
	for r := range rows {
		near(t, fmt.Sprintf("row %d of %d", r, rows), got.read(out, r), p.want[first+r][:outs], func(i int) float64 { return p.allowed[first+r][i] })
	}
}

// productError returns the allowed error of a dot product w·x in float32; rounds tells whether x
// may be quantised to 8 bits. It is excluded from the race detector, which makes it ten times
// slower, because only one goroutine builds a product.
//
//go:norace
func productError(w, x []float32, rounds bool) (bound float64) {
	for first := 0; first < len(x); first += 32 {
		var terms, weights, most float64
		for i := first; i < min(first+32, len(x)); i++ {
			a, b := float64(max(w[i], -w[i])), float64(max(x[i], -x[i]))
			terms += a * b
			weights += a
			most = max(most, b)
		}
		bound += 1e-5 * terms
		if rounds {
			halfStep := most / 127 / 2 * 1.001
			bound += halfStep * weights
		}
	}
	return bound
}

// halfError returns the error of a dot product w·x if x is rounded to halves.
//
//go:norace
func halfError(w, x []float32) (bound float64) {
	for i := range x {
		bound += math.Abs(float64(w[i])*float64(x[i])) * 0x1p-11
	}
	return bound
}

// ropeAxes checks that rows are rotated by coordinates as by positions, to the bits.
func (s Suite) ropeAxes(t *testing.T) {
	inf := float32(math.Inf(1))
	const rows = 40
	results := func(ropes []device.RoPE, factors [][]float32, coordinates func(axis, row int) int32) (list [][]float32) {
		r := newRig(t, open(t, s.Open[0]), rows)
		q, k, v := r.random(32, 1), r.random(16, 1), r.random(16, 1)
		for _, x := range []device.Tensor{q, k} {
			for i, rope := range ropes {
				if factors != nil {
					rope.Factors = r.vector(factors[i])
				}
				r.p.RoPE(x, rope)
			}
		}
		kv, out := r.kv(device.KVLayout{Type: f32, Blocks: 4, Layers: 1, KVHeads: 2, HeadDim: 8}), r.alloc(32)
		r.p.StoreKV(kv, 0, k, v)
		r.p.Attention(out, q, kv, 0, device.Attention{Heads: 4, Scale: 0.35})
		b := counting(rows, 50, []int32{3, 1, 0})
		for axis := range device.MaxAxes {
			b.Coordinates = append(b.Coordinates, nil)
			for row := range rows {
				b.Coordinates[axis] = append(b.Coordinates[axis], coordinates(axis, row))
			}
		}
		r.run(r.compile(), b)
		for row := range rows {
			list = append(list, r.read(out, row))
		}
		return list
	}
	rope := device.RoPE{HeadDim: 8, Dims: 8, Base: 1e4, Scale: 1, NeoX: true}
	sections := []device.RoPE{rope, rope, rope}
	for axis := range sections {
		sections[axis].Axis = axis + 1
	}
	masks := [][]float32{{1, inf, inf, 1}, {inf, 1, inf, inf}, {inf, inf, 1, inf}}
	want := results([]device.RoPE{rope}, nil, func(int, int) int32 { return -1 })
	got := results(sections, masks, func(_, row int) int32 { return int32(50 + row) })
	for row := range rows {
		near(t, fmt.Sprintf("row %d, coordinates that are its position", row), got[row], want[row], func(int) float64 { return 0 })
	}
	for i, row := range results(sections, masks, func(axis, row int) int32 { return int32(50 + (row * axis % 3)) }) {
		if i > 0 && slices.Equal(row, want[i]) {
			t.Errorf("row %d does not depend on its coordinates", i)
		}
	}
}

func (s Suite) rope(t *testing.T) {
	for _, c := range []struct {
		name    string
		rope    device.RoPE
		factors []float32
	}{
		{"of neighbouring pairs", device.RoPE{HeadDim: 16, Dims: 16, Base: 1e4, Scale: 1}, nil},
		{"of halves", device.RoPE{HeadDim: 16, Dims: 16, Base: 1e4, Scale: 1, NeoX: true}, nil},
		{"of part of each head", device.RoPE{HeadDim: 10, Dims: 6, Base: 1e4, Scale: 1}, nil},
		{"of halves of part of each head", device.RoPE{HeadDim: 10, Dims: 6, Base: 5e5, Scale: 1, NeoX: true}, nil},
		{"scaled", device.RoPE{HeadDim: 64, Dims: 64, Base: 1e4, Scale: 0.25}, nil},
		{"of YaRN", device.RoPE{HeadDim: 64, Dims: 64, Base: 1e4, Scale: 0.25, Low: 3, High: 17, Magnitude: 1.1386}, nil},
		{"of YaRN, of part of each head", device.RoPE{HeadDim: 10, Dims: 6, Base: 1e4, Scale: 0.25, Low: 0, High: 2, NeoX: true, Magnitude: 1.3}, nil},
		{"with frequency factors", device.RoPE{HeadDim: 8, Dims: 8, Base: 1e4, Scale: 1}, []float32{1, 2.5, 8, 32}},
		{"by the first coordinate", device.RoPE{HeadDim: 16, Dims: 16, Base: 1e4, Scale: 1, NeoX: true, Axis: 1}, nil},
		{"of some pairs by the last coordinate", device.RoPE{HeadDim: 8, Dims: 8, Base: 1e4, Scale: 1, Axis: 3}, []float32{1, float32(math.Inf(1)), float32(math.Inf(1)), 32}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, start := range []int{0, 1, 1000, 131000} {
				for _, rows := range rowCounts {
					build := func(dev device.Device) (*rig, device.Tensor) {
						r := newRig(t, dev, rows)
						x, rope := r.random(3*c.rope.HeadDim, 1), c.rope
						if c.factors != nil {
							rope.Factors = r.vector(c.factors)
						}
						r.p.RoPE(x, rope)
						return r, x
					}
					want, wantOut := build(open(t, openRef))
					got, gotOut := build(open(t, s.Open[0]))
					batch := counting(rows, start, make([]int32, (start+rows)/device.BlockSize+1))
					for axis := range device.MaxAxes {
						batch.Coordinates = append(batch.Coordinates, nil)
						for r := range rows {
							batch.Coordinates[axis] = append(batch.Coordinates[axis], int32((7*r+start+13*axis)%(start+29)))
						}
					}
					want.run(want.compile(), batch)
					got.run(got.compile(), batch)
					for r := range rows {
						near(t, fmt.Sprintf("row %d at position %d", r, start+r), got.read(gotOut, r), want.read(wantOut, r), func(int) float64 { return 2e-6 })
					}
				}
			}
		})
	}
}

// attentionCase is a shape of attention, with the tolerance of its results.
type attentionCase struct {
	typ                   device.CacheType
	heads, kvHeads, dim   int
	window                int
	scale                 float32
	tolerance, inputScale float64
	limit                 float32
	latent                int // width of values in a latent cache
	sinks                 bool
}

var (
	f16, f32, q8, q4 = device.CacheOf(gguf.F16), device.CacheOf(gguf.F32), device.CacheOf(gguf.Q8_0), device.CacheOf(gguf.Q4_0)
	q8q4             = device.CacheType{Keys: gguf.Q8_0, Values: gguf.Q4_0}
)

var attentionCases = []attentionCase{
	{f32, 1, 1, 16, 0, 0.25, 2e-6, 1, 0, 0, false},
	{f32, 4, 2, 16, 0, 0.25, 2e-6, 1, 0, 0, false},
	{f32, 6, 2, 64, 0, 0.125, 2e-6, 1, 0, 0, false},
	{f32, 8, 1, 128, 0, 0.0884, 2e-6, 1, 0, 0, false},
	{f32, 3, 3, 7, 0, 0.4, 2e-6, 1, 0, 0, false},
	{f32, 2, 1, 80, 0, 0.1, 2e-6, 1, 0, 0, false},
	{f32, 4, 2, 16, 1, 0.25, 2e-6, 1, 0, 0, false},
	{f32, 4, 2, 16, 16, 0.25, 2e-6, 1, 0, 0, false},
	{f32, 4, 2, 16, 50, 0.25, 2e-6, 1, 0, 0, false},
	{f32, 4, 2, 16, 0, 0.25, 5e-5, 30, 0, 0, false}, // scores in the hundreds: one position takes nearly all
	{f16, 4, 2, 16, 0, 0.25, 2e-6, 1, 0, 0, false},
	{f16, 6, 2, 64, 33, 0.125, 2e-6, 1, 0, 0, false},
	{f16, 3, 1, 7, 0, 0.4, 2e-6, 1, 0, 0, false},
	{f32, 4, 2, 16, 16, 0.25, 1e-5, 30, 50, 0, false},
	{f16, 6, 2, 64, 0, 0.125, 2e-6, 1, 0.5, 0, false},
	{f32, 6, 2, 16, 0, 0.25, 2e-6, 1, 0, 0, true},
	{f16, 4, 4, 64, 20, 0.125, 5e-6, 3, 0, 0, true},
	{f32, 6, 1, 40, 0, 0.2, 2e-6, 1, 0, 24, false},
	{f16, 5, 1, 20, 33, 0.2, 2e-6, 1, 0, 7, true},
	{f16, 9, 1, 544, 0, 0.05, 3e-6, 1, 0, 512, false},
	{f32, 2, 1, 288, 0, 0.05, 3e-6, 1, 0, 0, false},
	{q8, 6, 2, 64, 0, 0.125, 2e-6, 1, 0, 0, false},
	{q4, 6, 2, 64, 33, 0.125, 2e-6, 1, 0, 0, false},
	{q8q4, 8, 1, 128, 0, 0.0884, 2e-6, 1, 0, 0, true},
	{device.CacheType{Keys: gguf.Q4_0, Values: gguf.F16}, 3, 3, 96, 0, 0.1, 2e-6, 1, 0.5, 0, false},
	{device.CacheType{Keys: gguf.F16, Values: gguf.Q8_0}, 5, 1, 256, 50, 0.05, 2e-6, 1, 0, 0, false},
	{q4, 2, 1, 288, 0, 0.05, 3e-6, 1, 0, 0, false},
	{q8, 5, 1, 96, 33, 0.1, 2e-6, 1, 0, 40, true},
	{q4, 9, 1, 544, 0, 0.05, 3e-6, 1, 0, 512, false},
}

func (s Suite) attention(t *testing.T) {
	for _, c := range attentionCases {
		name := fmt.Sprintf("%s cache, %d heads over %d of %d, window %d, capped at %g, inputs of size %g, values of %d, sinks %t", c.typ, c.heads, c.kvHeads, c.dim, c.window, c.limit, c.inputScale, c.latent, c.sinks)
		t.Run(name, func(t *testing.T) {
			const chunk, chunks = 33, 4
			want, got := newRig(t, open(t, openRef), chunk), newRig(t, open(t, s.Open[0]), chunk)
			wantOut, gotOut := c.record(want), c.record(got)
			wantX, gotX := want.compile(), got.compile()
			for i := range chunks {
				batch := counting(chunk, i*chunk, []int32{3, 0, 6, 1, 5})
				for r := range batch.Tokens { // other keys in every chunk
					batch.Tokens[r] = int32((r*7 + i*5) % chunk)
				}
				want.run(wantX, batch)
				got.run(gotX, batch)
				for r := range chunk {
					near(t, fmt.Sprintf("position %d", i*chunk+r), got.read(gotOut, r), want.read(wantOut, r), func(int) float64 { return c.tolerance * 3 })
				}
			}
		})
	}
}

// bidirectional compares attention to whole texts, or to spans of them, with the reference, and a text that shares a batch
// with others with the text alone, bit for bit.
func (s Suite) bidirectional(t *testing.T) {
	for _, spans := range []bool{false, true} {
		t.Run(fmt.Sprintf("spans %t", spans), func(t *testing.T) { s.ahead(t, spans) })
	}
}

func (s Suite) ahead(t *testing.T, spans bool) {
	const spanFrom, spanTo = 20, 51 // of each text
	lengths := []int{1, 33, 97, 2, 130, 64}
	for _, typ := range []device.CacheType{f32, f16, q8q4} {
		dim := 16
		if typ == q8q4 {
			dim = 32
		}
		for _, window := range []int{0, 1, 16, 33, 140} {
			for _, bias := range []float32{0, 8} {
				t.Run(fmt.Sprintf("%s cache, window %d, ALiBi %g", typ, window, bias), func(t *testing.T) {
					batch := &device.Batch{Tables: [][][]int32{{}}}
					for seq, length := range lengths {
						var table []int32
						for b := range (length + device.BlockSize - 1) / device.BlockSize {
							table = append(table, int32((7*seq+3*b)%41)) // no block twice
						}
						batch.Tables[0] = append(batch.Tables[0], table)
						for pos := range length {
							batch.Tokens = append(batch.Tokens, int32(len(batch.Tokens)))
							batch.Pos, batch.Seq = append(batch.Pos, int32(pos)), append(batch.Seq, int32(seq))
							end := pos
							if spanFrom <= pos && pos < spanTo {
								end = min(spanTo, length) - 1
							}
							if spans {
								batch.Ends = append(batch.Ends, int32(end))
							}
						}
					}
					rows := len(batch.Tokens)
					a := device.Attention{Heads: 6, Scale: 0.25, Window: window, Bidirectional: !spans, Spans: spans, MaxBias: bias}
					record := func(r *rig) (device.Executable, device.Tensor) {
						kv := r.kv(device.KVLayout{Type: typ, Blocks: 41, Layers: 1, KVHeads: 2, HeadDim: dim})
						q, k, v := r.random(6*dim, 1), r.random(2*dim, 1), r.random(2*dim, 1)
						r.p.StoreKV(kv, 0, k, v)
						out := r.alloc(6 * dim)
						r.p.Attention(out, q, kv, 0, a)
						return r.compile(), out
					}
					want, got := newRig(t, open(t, openRef), rows), newRig(t, open(t, s.Open[0]), rows)
					wantX, wantOut := record(want)
					gotX, gotOut := record(got)
					want.run(wantX, batch)
					got.run(gotX, batch)
					var together [][]float32
					for r := range rows {
						together = append(together, got.read(gotOut, r))
						near(t, fmt.Sprintf("row %d", r), together[r], want.read(wantOut, r), func(int) float64 { return 6e-6 })
					}
					first := 0
					for seq, length := range lengths {
						own := &device.Batch{Tokens: batch.Tokens[first : first+length], Pos: batch.Pos[first : first+length], Seq: make([]int32, length), Tables: [][][]int32{batch.Tables[0][seq : seq+1]}}
						if spans {
							own.Ends = batch.Ends[first : first+length]
						}
						got.run(gotX, own)
						for r := range length {
							if !slices.Equal(got.read(gotOut, r), together[first+r]) {
								t.Fatalf("text %d alone, row %d: other bits than among others", seq, r)
							}
						}
						first += length
					}
				})
			}
		}
	}
}

// record records attention over the second of two layers. The first layer stores other keys and
// values, so that reading the wrong layer changes the result.
func (c attentionCase) record(r *rig) (out device.Tensor) {
	kv := r.kv(device.KVLayout{Type: c.typ, Blocks: 7, Layers: 2, KVHeads: c.kvHeads, HeadDim: c.dim, Latent: c.latent})
	q := r.random(c.heads*c.dim, c.inputScale)
	k := r.random(c.kvHeads*c.dim, c.inputScale)
	v := r.random(c.kvHeads*c.dim, 1)
	attention, values := device.Attention{Heads: c.heads, Scale: c.scale, Window: c.window, Cap: c.limit}, c.dim
	if c.sinks {
		attention.Sinks = r.vector(normal(r.rng, c.heads, 2))
	}
	if c.latent > 0 {
		values = c.latent
		r.p.StoreKV(kv, 0, v, device.Tensor{})
		r.p.StoreKV(kv, 1, k, device.Tensor{})
	} else {
		r.p.StoreKV(kv, 0, v, k)
		r.p.StoreKV(kv, 1, k, v)
	}
	out = r.alloc(c.heads * values)
	r.p.Attention(out, q, kv, 1, attention)
	return out
}

func (s Suite) gather(t *testing.T) {
	got := newRig(t, open(t, s.Open[0]), 9)
	values := normal(got.rng, 9*5, 1)
	out := got.alloc(5)
	got.p.GatherRows(out, got.input(values, 5))
	got.p.Add(out, out)
	x := got.compile()
	for _, rows := range [][]int32{{0}, {8}, {1, 4, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {}} {
		batch := counting(9, 0, []int32{0})
		batch.Out = rows
		got.run(x, batch)
		for i, row := range rows {
			for j, v := range got.read(out, i) {
				if want := 2 * values[int(row)*5+j]; v != want {
					t.Errorf("row %d, gathered from row %d, element %d is %g, want %g", i, row, j, v, want)
				}
			}
		}
	}
}
