package cuda

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// describe tells an operation by its kind, what it computes from what, and what it has
// taken in.
func describe(o operation) string {
	s := fmt.Sprintf("%s %d", o.Kind, o.Dst.ID)
	for _, other := range o.also {
		s += fmt.Sprintf(",%d", other.Dst.ID)
	}
	if o.add {
		s += " added"
	}
	if o.producer != nil {
		s += fmt.Sprintf(" of %s %d", o.producer.Kind, o.producer.X.ID)
	}
	if o.normed {
		s += " in its launch"
	}
	if o.glu != nil {
		s += fmt.Sprintf(" as GLU %d", o.glu.Dst.ID)
	}
	if o.mixture != nil {
		s += fmt.Sprintf(" as mixture %d", o.mixture.sum.Dst.ID)
		if o.mixture.add {
			s += " added"
		}
	}
	if o.keys != nil {
		s += fmt.Sprintf(",%d", o.keys.Dst.ID)
	}
	if o.silu {
		s += " with SiLU"
	}
	if o.decay != nil {
		s += " as decays"
	}
	if o.rope != nil {
		s = fmt.Sprintf("StoreKV %d after RoPE %d", o.X.ID, o.rope.Dst.ID)
	}
	if o.stores != nil {
		s += fmt.Sprintf(" with %s", describe(*o.stores))
	}
	if o.product != nil {
		s += fmt.Sprintf(" for MatMul %d", o.product.Dst.ID)
	}
	return s
}

func TestOperationsAreFusedOnlyIfNothingElseCanTell(t *testing.T) {
	tensor := func(id int32, typ gguf.Type) device.Tensor { return device.Tensor{ID: id, Type: typ, Rows: 8, Cols: 8} }
	x, y, z := tensor(1, gguf.F32), tensor(2, gguf.F32), tensor(3, gguf.F32)
	a, b, c, d := tensor(4, gguf.F32), tensor(5, gguf.F32), tensor(6, gguf.F32), tensor(7, gguf.F32)
	w, half, bias := tensor(10, gguf.F32), tensor(11, gguf.F16), device.Tensor{ID: 12, Type: gguf.F32, Rows: 1, Cols: 8}
	rope := device.RoPE{HeadDim: 8, Dims: 8, Base: 1e4}
	kv := device.KV{ID: 1, Layout: device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: 8}}
	state := device.State{ID: 1, Layout: device.StateLayout{Slots: 1, Values: 64}}
	for _, c := range []struct {
		name   string
		record func(p *device.Program)
		want   string
	}{
		{"products of one x are one launch, up to three", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.MatMul(b, w, x)
			p.MatMul(c, w, x)
			p.MatMul(d, w, x)
		}, "MatMul 4,5,6; MatMul 7"},
		{"biases between them come after them", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.AddBias(a, bias)
			p.MatMul(b, w, x)
			p.AddBias(b, bias)
		}, "MatMul 4,5; AddBias 4; AddBias 5"},
		{"what reads their results comes after them", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.Activate(d, a, device.SiLU)
			p.MatMul(b, w, x)
			p.Add(b, d)
			p.MatMul(c, w, x)
		}, "MatMul 4,5,6; GLU 7; Add 5"},
		{"not with weights of another type", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.MatMul(b, half, x)
			p.MatMul(c, w, x)
		}, "MatMul 4,6; MatMul 5"},
		{"not if something before reads or writes the result", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.Add(z, b)
			p.MatMul(b, w, x)
			p.AddBias(c, bias)
			p.MatMul(c, w, x)
		}, "MatMul 4; Add 3; MatMul 5; AddBias 6; MatMul 6"},
		{"not of the rows that are left after others were dropped", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.GatherRows(y, z)
			p.MatMul(b, w, x)
		}, "MatMul 4; GatherRows 2; MatMul 5"},
		{"a convolution with the SiLU of its result", func(p *device.Program) {
			p.Conv(a, x, w, device.Tensor{}, state, 0)
			p.Activate(a, a, device.SiLU)
			p.Conv(a, x, w, device.Tensor{}, state, 0)
			p.Activate(a, a, device.Sigmoid)
			p.Conv(a, x, w, device.Tensor{}, state, 0)
			p.Activate(b, a, device.SiLU)
		}, "Conv 4 with SiLU; Conv 4; GLU 4; Conv 4; GLU 5"},
		{"norms of queries and keys in place", func(p *device.Program) {
			p.RMSNorm(a, a, bias, 1)
			p.RMSNorm(b, b, bias, 1)
		}, "RMSNorm 4,5"},
		{"not of the same tensor twice, not if one is not in place, and not with another epsilon", func(p *device.Program) {
			p.RMSNorm(a, a, bias, 1)
			p.RMSNorm(a, a, bias, 1)
			p.RMSNorm(c, b, bias, 1)
			p.RMSNorm(b, b, bias, 1)
			p.RMSNorm(d, d, bias, 2)
			p.Add(z, c)
		}, "RMSNorm 4; RMSNorm 4; RMSNorm 6; RMSNorm 5; RMSNorm 7; Add 3"},
		{"the decays of a recurrence", func(p *device.Program) {
			p.AddBias(a, bias)
			p.Activate(a, a, device.Softplus)
			p.Multiply(a, bias)
			p.Activate(a, a, device.Exp)
			p.AddBias(a, bias)
			p.Activate(a, a, device.Softplus)
			p.Multiply(b, bias)
			p.Activate(a, a, device.Exp)
		}, "AddBias 4 as decays; AddBias 4; GLU 4; Multiply 5; GLU 4"},
		{"not of another x", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.MatMul(b, w, y)
		}, "MatMul 4; MatMul 5"},
		{"not into the same result", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.MatMul(a, half, x)
			p.MatMul(b, w, x)
			p.MatMul(b, w, x)
		}, "MatMul 4,5; MatMul 4; MatMul 5"},
		{"not past what changes x", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.AddBias(x, bias)
			p.MatMul(b, w, x)
		}, "MatMul 4; AddBias 1; MatMul 5"},
		{"a product that is only added is added at once", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.Add(z, a)
			p.RMSNorm(y, z, bias, 1)
			p.MatMul(a, w, y)
		}, "MatMul 3 added; RMSNorm 2; MatMul 4"},
		{"a norm that only products read is not computed by itself", func(p *device.Program) {
			p.RMSNorm(y, x, bias, 1)
			p.MatMul(a, w, y)
			p.MatMul(b, half, y)
			p.RMSNorm(y, z, bias, 1)
		}, "MatMul 4 of RMSNorm 1; MatMul 5 of RMSNorm 1; RMSNorm 2"},
		{"but it is gone where a product that shares a launch takes its place", func(p *device.Program) {
			p.GLU(c, a, b, device.SiLU)
			p.MatMul(d, w, c)
			p.MatMul(a, w, x)
			p.MatMul(c, w, x)
			p.MatMul(b, w, c)
		}, "MatMul 7 of GLU 4; MatMul 4,6; MatMul 5"},
		{"nor is one in place, or a GLU", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.RMSNorm(x, x, bias, 1)
			p.MatMul(b, half, x)
			p.GLU(x, a, b, device.SiLU)
			p.MatMul(c, w, x)
			p.Embed(x, w)
		}, "MatMul 4; MatMul 5 of RMSNorm 1; MatMul 6 of GLU 4; Embed 1"},
		{"but if something else reads it", func(p *device.Program) {
			p.RMSNorm(y, x, bias, 1)
			p.MatMul(a, w, y)
			p.Add(z, y)
			p.RMSNorm(y, z, bias, 1)
		}, "RMSNorm 2; MatMul 4; Add 3; RMSNorm 2"},
		{"or if it is changed in place", func(p *device.Program) {
			p.RMSNorm(y, x, bias, 1)
			p.AddBias(y, bias)
			p.MatMul(a, w, y)
			p.Embed(y, w)
		}, "RMSNorm 2; AddBias 2; MatMul 4; Embed 2"},
		{"or if it is left at the end", func(p *device.Program) {
			p.RMSNorm(y, x, bias, 1)
			p.MatMul(a, w, y)
		}, "RMSNorm 2; MatMul 4"},
		{"or if a product reads it after what it was made of has changed", func(p *device.Program) {
			p.RMSNorm(y, x, bias, 1)
			p.MatMul(x, half, y)
			p.MatMul(a, w, y)
			p.Embed(y, w)
		}, "RMSNorm 2; MatMul 1; MatMul 4; Embed 2"},
		{"queries and keys are turned on the keys' way to the cache", func(p *device.Program) {
			p.RoPE(a, rope)
			p.RoPE(b, rope)
			p.StoreKV(kv, 0, b, c)
			p.Attention(d, a, kv, 0, device.Attention{Heads: 1})
			p.MatMul(b, w, x)
		}, "StoreKV 5 after RoPE 4; Attention 7; MatMul 5"},
		{"not if somebody reads the keys", func(p *device.Program) {
			p.RoPE(a, rope)
			p.RoPE(b, rope)
			p.StoreKV(kv, 0, b, c)
			p.Add(a, b)
			p.MatMul(b, w, x)
		}, "RoPE 4; RoPE 5; StoreKV 0; Add 4; MatMul 5"},
		{"not if they are turned by other angles", func(p *device.Program) {
			p.RoPE(a, rope)
			p.RoPE(b, device.RoPE{HeadDim: 8, Dims: 8, Base: 2})
			p.StoreKV(kv, 0, b, c)
			p.MatMul(b, w, x)
		}, "RoPE 4; RoPE 5; StoreKV 0; MatMul 5"},
		{"not if the values are what is turned", func(p *device.Program) {
			p.RoPE(b, rope)
			p.RoPE(c, rope)
			p.StoreKV(kv, 0, b, c)
			p.MatMul(b, w, x)
			p.MatMul(c, w, x)
		}, "RoPE 5; RoPE 6; StoreKV 0; MatMul 5,6"},
		{"not if it is read once more", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.Add(z, a)
			p.Add(y, a)
			p.MatMul(a, w, y)
		}, "MatMul 4; Add 3; Add 2; MatMul 4"},
		{"not if it is changed in place", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.Add(z, a)
			p.RoPE(a, device.RoPE{HeadDim: 8, Dims: 8})
			p.MatMul(a, w, x)
		}, "MatMul 4; Add 3; RoPE 4; MatMul 4"},
		{"not if it is what is left at the end", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.Add(z, a)
		}, "MatMul 4; Add 3"},
		{"but if it is not among the results", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.Add(z, a)
			p.RMSNorm(y, z, bias, 1)
			p.MatMul(b, w, y)
			p.MatMul(c, w, z)
			p.Results = []device.Tensor{b}
		}, "MatMul 3 added; MatMul 5 of RMSNorm 3; MatMul 6"},
		{"not if it is one", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.Add(z, a)
			p.RMSNorm(y, z, bias, 1)
			p.MatMul(b, w, y)
			p.Results = []device.Tensor{a, y, b}
		}, "MatMul 4; Add 3; RMSNorm 2; MatMul 5"},
		{"not if it has a bias", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.AddBias(a, bias)
			p.Add(z, a)
			p.MatMul(a, w, x)
		}, "MatMul 4; AddBias 4; Add 3; MatMul 4"},
		{"not if it is added to itself", func(p *device.Program) {
			p.MatMul(a, w, x)
			p.Add(a, a)
			p.MatMul(a, w, x)
		}, "MatMul 4; Add 4; MatMul 4"},
	} {
		p := device.NewProgram(8, 8)
		c.record(p)
		if err := p.Err(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, o := range fuse(p, upTo(1)) {
			got = append(got, describe(o))
		}
		if want := strings.Split(c.want, "; "); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, want)
		}
	}
}

// upTo is the rule of a device whose products compute the norm of up to so many rows, and mixtures of as many.
type upTo int

func (most upTo) canNormalize(_ device.Op, rows int) bool       { return rows <= int(most) }
func (most upTo) canNormBoth() bool                             { return true }
func (most upTo) canMix(_ device.Op, _ *mixture, rows int) bool { return rows <= int(most) }

func TestProductsOfFewRowsComputeTheirNormAndGLU(t *testing.T) {
	tensor := func(id int32, typ gguf.Type) device.Tensor { return device.Tensor{ID: id, Type: typ, Rows: 8, Cols: 8} }
	x, y, z := tensor(1, gguf.F32), tensor(2, gguf.F32), tensor(3, gguf.F32)
	a, b, d := tensor(4, gguf.F32), tensor(5, gguf.F32), tensor(7, gguf.F32)
	w, half, bias := tensor(10, gguf.F32), tensor(11, gguf.F16), device.Tensor{ID: 13, Type: gguf.F32, Rows: 1, Cols: 8}
	pair := func(p *device.Program) {
		p.RMSNorm(y, x, bias, 1)
		p.MatMul(a, w, y)
		p.MatMul(b, w, y)
	}
	gated := func(p *device.Program) {
		pair(p)
		p.GLU(a, a, b, device.SiLU)
		p.MatMul(d, w, a)
		p.Embed(y, w)
		p.Embed(a, w)
		p.Embed(b, w)
	}
	for _, c := range []struct {
		name   string
		rows   int // 0: 2 rows, of which one has logits
		most   int // rows whose norm products compute on the device
		record func(p *device.Program)
		want   string
	}{
		{"each launch of products computes the norm", 1, 1, func(p *device.Program) {
			pair(p)
			p.MatMul(d, half, y)
			p.Embed(y, w)
		}, "MatMul 4,5 of RMSNorm 1 in its launch; MatMul 7 of RMSNorm 1 in its launch; Embed 2"},
		{"of more rows where the device does", 2, 2, gated, "MatMul 4,5 of RMSNorm 1 in its launch as GLU 4 for MatMul 7; MatMul 7 of GLU 4; Embed 2; Embed 4; Embed 5"},
		{"not of more rows elsewhere", 2, 1, func(p *device.Program) {
			pair(p)
			p.GLU(a, a, b, device.SiLU)
			p.MatMul(d, w, a)
			p.Embed(y, w)
			p.Embed(a, w)
		}, "MatMul 4,5 of RMSNorm 1; MatMul 7 of GLU 4; Embed 2; Embed 4"},
		{"not where the device does not", 1, 0, func(p *device.Program) {
			pair(p)
			p.Embed(y, w)
		}, "MatMul 4,5 of RMSNorm 1; Embed 2"},
		{"not onto what the norm is of", 1, 1, func(p *device.Program) {
			p.RMSNorm(y, x, bias, 1)
			p.MatMul(a, w, y)
			p.MatMul(x, w, y)
			p.Embed(y, w)
		}, "MatMul 4,1 of RMSNorm 1; Embed 2"},
		{"of the row that is left after others were dropped", 0, 1, func(p *device.Program) {
			p.GatherRows(x, z)
			pair(p)
			p.RMSNorm(y, z, bias, 1)
		}, "GatherRows 1; MatMul 4,5 of RMSNorm 1 in its launch; RMSNorm 2"},
		{"a product that is added normalizes without adding", 1, 1, func(p *device.Program) {
			p.RMSNorm(y, x, bias, 1)
			p.MatMul(a, w, y)
			p.Add(z, a)
			p.Embed(y, w)
			p.Embed(a, w)
		}, "MatMul 4 of RMSNorm 1 in its launch; Add 3; Embed 2; Embed 4"},
		{"with the GLU of two products that only a product reads", 1, 1, gated, "MatMul 4,5 of RMSNorm 1 in its launch as GLU 4 for MatMul 7; MatMul 7 of GLU 4; Embed 2; Embed 4; Embed 5"},
		{"also in the place of the up projection", 1, 1, func(p *device.Program) {
			pair(p)
			p.GLU(b, a, b, device.SiLU)
			p.MatMul(d, w, b)
			p.Embed(y, w)
			p.Embed(a, w)
			p.Embed(b, w)
		}, "MatMul 4,5 of RMSNorm 1 in its launch as GLU 5 for MatMul 7; MatMul 7 of GLU 4; Embed 2; Embed 4; Embed 5"},
		{"not with the GLU if the operands change places", 1, 1, func(p *device.Program) {
			pair(p)
			p.GLU(a, b, a, device.SiLU)
			p.MatMul(d, w, a)
			p.Embed(y, w)
			p.Embed(a, w)
			p.Embed(b, w)
		}, "MatMul 4,5 of RMSNorm 1 in its launch; MatMul 7 of GLU 5; Embed 2; Embed 4; Embed 5"},
		{"not if something else reads a projection", 1, 1, func(p *device.Program) {
			pair(p)
			p.GLU(a, a, b, device.SiLU)
			p.MatMul(d, w, a)
			p.Add(z, b)
			p.Embed(y, w)
			p.Embed(a, w)
		}, "MatMul 4,5 of RMSNorm 1 in its launch; MatMul 7 of GLU 4; Add 3; Embed 2; Embed 4"},
		{"not if two launches read its result", 1, 1, func(p *device.Program) {
			pair(p)
			p.GLU(a, a, b, device.SiLU)
			p.MatMul(d, w, a)
			p.MatMul(z, half, a)
			p.Embed(y, w)
			p.Embed(a, w)
			p.Embed(b, w)
		}, "MatMul 4,5 of RMSNorm 1 in its launch; MatMul 7 of GLU 4; MatMul 3 of GLU 4; Embed 2; Embed 4; Embed 5"},
		{"not if a bias is between", 1, 1, func(p *device.Program) {
			pair(p)
			p.AddBias(b, bias)
			p.GLU(a, a, b, device.SiLU)
			p.MatMul(d, w, a)
			p.Embed(y, w)
			p.Embed(a, w)
			p.Embed(b, w)
		}, "MatMul 4,5 of RMSNorm 1 in its launch; AddBias 5; MatMul 7 of GLU 4; Embed 2; Embed 4; Embed 5"},
	} {
		p := device.NewProgram(cmp.Or(c.rows, 2), max(c.rows, 1))
		c.record(p)
		if err := p.Err(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, o := range fuse(p, upTo(c.most)) {
			got = append(got, describe(o))
		}
		if want := strings.Split(c.want, "; "); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, want)
		}
	}
}

func TestAttentionDoesWhatOnlyItsNeighboursTell(t *testing.T) {
	wide := func(id int32, rows int) device.Tensor {
		return device.Tensor{ID: id, Type: gguf.F32, Rows: rows, Cols: 1024}
	}
	w := device.Tensor{ID: 10, Type: gguf.F16, Rows: 1024, Cols: 1024}
	rope := device.RoPE{HeadDim: 64, Dims: 64, Base: 1e4}
	layout := device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 1, Layers: 2, KVHeads: 16, HeadDim: 64}
	kv, large := device.KV{ID: 1, Layout: layout}, device.KV{ID: 2, Layout: layout}
	large.Layout.Type, large.Layout.KVHeads, large.Layout.HeadDim = device.CacheOf(gguf.F32), 8, 128
	for _, c := range []struct {
		name   string
		rows   int
		record func(p *device.Program, q, k, v, out, x device.Tensor)
		want   string
	}{
		{"one row is stored, and the result quantised", 1, func(p *device.Program, q, k, v, out, x device.Tensor) {
			p.RoPE(q, rope)
			p.RoPE(k, rope)
			p.StoreKV(kv, 0, k, v)
			p.Attention(out, q, kv, 0, device.Attention{Heads: 16})
			p.MatMul(x, w, out)
		}, "Attention 4 with StoreKV 2 after RoPE 1 for MatMul 5; MatMul 5"},
		{"rows that may read each other's keys are not stored", 2, func(p *device.Program, q, k, v, out, x device.Tensor) {
			p.RoPE(q, rope)
			p.RoPE(k, rope)
			p.StoreKV(kv, 0, k, v)
			p.Attention(out, q, kv, 0, device.Attention{Heads: 16})
			p.MatMul(x, w, out)
		}, "StoreKV 2 after RoPE 1; Attention 4 for MatMul 5; MatMul 5"},
		{"nor is another layer", 1, func(p *device.Program, q, k, v, out, x device.Tensor) {
			p.RoPE(q, rope)
			p.RoPE(k, rope)
			p.StoreKV(kv, 1, k, v)
			p.Attention(out, q, kv, 0, device.Attention{Heads: 16})
			p.MatMul(x, w, out)
		}, "StoreKV 2 after RoPE 1; Attention 4 for MatMul 5; MatMul 5"},
		{"nor if something else reads the queries", 1, func(p *device.Program, q, k, v, out, x device.Tensor) {
			p.RoPE(q, rope)
			p.RoPE(k, rope)
			p.StoreKV(kv, 0, k, v)
			p.Attention(out, q, kv, 0, device.Attention{Heads: 16})
			p.MatMul(x, w, out)
			p.Add(x, q)
		}, "StoreKV 2 after RoPE 1; Attention 4 for MatMul 5; MatMul 5; Add 5"},
		{"nor what has no kernel", 1, func(p *device.Program, q, k, v, out, x device.Tensor) {
			p.RoPE(q, device.RoPE{HeadDim: 128, Dims: 128, Base: 1e4})
			p.RoPE(k, device.RoPE{HeadDim: 128, Dims: 128, Base: 1e4})
			p.StoreKV(large, 0, k, v)
			p.Attention(out, q, large, 0, device.Attention{Heads: 8})
			p.MatMul(x, w, out)
		}, "StoreKV 2 after RoPE 1; Attention 4 for MatMul 5; MatMul 5"},
		{"nothing is quantised if something else reads the result", 1, func(p *device.Program, q, k, v, out, x device.Tensor) {
			p.Attention(out, q, kv, 0, device.Attention{Heads: 16})
			p.MatMul(x, w, out)
			p.Add(x, out)
		}, "Attention 4; MatMul 5; Add 5"},
		{"nor for many rows", 32, func(p *device.Program, q, k, v, out, x device.Tensor) {
			p.Attention(out, q, kv, 0, device.Attention{Heads: 16})
			p.MatMul(x, w, out)
		}, "Attention 4; MatMul 5"},
	} {
		p := device.NewProgram(c.rows, c.rows)
		q, k, v, out, x := wide(1, c.rows), wide(2, c.rows), wide(3, c.rows), wide(4, c.rows), wide(5, c.rows)
		c.record(p, q, k, v, out, x)
		for _, t := range []device.Tensor{q, k, v, out} { // nothing is left at the end
			p.MatMul(t, w, x)
		}
		if err := p.Err(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, o := range fuse(p, upTo(1)) {
			got = append(got, describe(o))
		}
		if text := strings.Join(got, "; "); !strings.HasPrefix(text, c.want+"; MatMul 1") {
			t.Errorf("%s:\ngot  %q\nwant %q and more", c.name, text, c.want)
		}
	}
}

func TestMixturesOfFewRowsAreTwoLaunches(t *testing.T) {
	const width, inner, used, experts = 8, 16, 2, 3
	tensor := func(id int32, cols int) device.Tensor {
		return device.Tensor{ID: id, Type: gguf.F32, Rows: 8, Cols: cols}
	}
	weight := func(id int32, typ gguf.Type, outputs, inputs int) device.Tensor {
		return device.Tensor{ID: id, Type: typ, Rows: experts * outputs, Cols: inputs}
	}
	x, n, logits, routes, sum := tensor(1, width), tensor(2, width), tensor(3, experts), tensor(4, 2*used), tensor(8, width)
	gate, up, down := tensor(5, used*inner), tensor(6, used*inner), tensor(7, used*width)
	norm, router := device.Tensor{ID: 20, Type: gguf.F32, Rows: 1, Cols: width}, device.Tensor{ID: 21, Type: gguf.F32, Rows: experts, Cols: width}
	gates, ups, downs := weight(22, gguf.Q8_0, inner, width), weight(23, gguf.Q8_0, inner, width), weight(24, gguf.Q4_0, width, inner)
	bias := weight(25, gguf.F32, 1, inner)
	begin := func(p *device.Program) {
		p.RMSNorm(n, x, norm, 1)
		p.MatMul(logits, router, n)
		p.Route(routes, logits, device.Routing{Experts: experts, Used: used, Scale: 1})
	}
	gated := func(p *device.Program) {
		p.ExpertMatMul(gate, gates, n, routes, experts)
		p.ExpertMatMul(up, ups, n, routes, experts)
		p.GLU(gate, gate, up, device.SiLU)
	}
	summed := func(p *device.Program) {
		p.ExpertMatMul(down, downs, gate, routes, experts)
		p.ExpertSum(sum, down, routes)
	}
	const routed = "MatMul 3 of RMSNorm 1 in its launch; Route 4; "
	for _, c := range []struct {
		name   string
		rows   int
		record func(p *device.Program)
		want   string
	}{
		{"with the norm, and the sum that is added", 1, func(p *device.Program) {
			begin(p)
			gated(p)
			summed(p)
			p.Add(x, sum)
		}, routed + "ExpertMatMul 5 of RMSNorm 1 as mixture 1 added"},
		{"with the norm; shared experts come between the sum and what it is added to", 1, func(p *device.Program) {
			begin(p)
			gated(p)
			summed(p)
			p.MatMul(logits, router, n)
			p.Add(sum, x)
			p.Add(x, sum)
		}, routed + "ExpertMatMul 5 of RMSNorm 1 as mixture 8; MatMul 3 of RMSNorm 1 in its launch; Add 8; Add 1"},
		{"not of more rows", 2, func(p *device.Program) {
			begin(p)
			gated(p)
			summed(p)
		}, "RMSNorm 2; MatMul 3; Route 4; ExpertMatMul 5; ExpertMatMul 6; GLU 5; ExpertMatMul 7; ExpertSum 8"},
		{"not if rows are not normed", 1, func(p *device.Program) {
			p.Route(routes, logits, device.Routing{Experts: experts, Used: used, Scale: 1})
			gated(p)
			summed(p)
		}, "Route 4; ExpertMatMul 5; ExpertMatMul 6; GLU 5; ExpertMatMul 7; ExpertSum 8"},
		{"not if something else reads the normed rows", 1, func(p *device.Program) {
			begin(p)
			p.Add(x, n)
			gated(p)
			summed(p)
		}, "RMSNorm 2; MatMul 3; Route 4; Add 1; ExpertMatMul 5; ExpertMatMul 6; GLU 5; ExpertMatMul 7; ExpertSum 8"},
		{"not if the rows have changed", 1, func(p *device.Program) {
			begin(p)
			p.Add(x, sum)
			gated(p)
			summed(p)
		}, "RMSNorm 2; MatMul 3; Route 4; Add 1; ExpertMatMul 5; ExpertMatMul 6; GLU 5; ExpertMatMul 7; ExpertSum 8"},
		{"not with a bias", 1, func(p *device.Program) {
			begin(p)
			p.ExpertMatMul(gate, gates, n, routes, experts)
			p.ExpertBias(gate, bias, routes)
			p.ExpertMatMul(up, ups, n, routes, experts)
			p.GLU(gate, gate, up, device.SiLU)
			summed(p)
		}, "RMSNorm 2; MatMul 3; Route 4; ExpertMatMul 5; ExpertBias 5; ExpertMatMul 6; GLU 5; ExpertMatMul 7; ExpertSum 8"},
		{"not if something else reads a product", 1, func(p *device.Program) {
			begin(p)
			gated(p)
			summed(p)
			p.ExpertSum(x, down, routes)
		}, "RMSNorm 2; MatMul 3; Route 4; ExpertMatMul 5; ExpertMatMul 6; GLU 5; ExpertMatMul 7; ExpertSum 8; ExpertSum 1"},
		{"not with gate and up in each other's place", 1, func(p *device.Program) {
			begin(p)
			p.ExpertMatMul(gate, gates, n, routes, experts)
			p.ExpertMatMul(up, ups, n, routes, experts)
			p.GLU(gate, up, gate, device.SiLU)
			summed(p)
		}, "RMSNorm 2; MatMul 3; Route 4; ExpertMatMul 5; ExpertMatMul 6; GLU 5; ExpertMatMul 7; ExpertSum 8"},
		{"not with gates and ups of other types", 1, func(p *device.Program) {
			begin(p)
			p.ExpertMatMul(gate, gates, n, routes, experts)
			p.ExpertMatMul(up, weight(26, gguf.Q4_0, inner, width), n, routes, experts)
			p.GLU(gate, gate, up, device.SiLU)
			summed(p)
		}, "RMSNorm 2; MatMul 3; Route 4; ExpertMatMul 5; ExpertMatMul 6; GLU 5; ExpertMatMul 7; ExpertSum 8"},
	} {
		p := device.NewProgram(c.rows, c.rows)
		c.record(p)
		p.Results = []device.Tensor{x}
		if strings.Contains(c.want, "mixture 8") {
			p.Results = append(p.Results, sum)
		}
		if err := p.Err(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, o := range fuse(p, upTo(1)) {
			got = append(got, describe(o))
		}
		if want := strings.Split(c.want, "; "); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, want)
		}
	}
}
