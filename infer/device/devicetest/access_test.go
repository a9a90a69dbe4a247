package devicetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/ref"
)

// TestOperationsReadWhatTheyDeclare runs each operation of a wide net by itself on the reference device,
// with other values in one activation at a time: the results change exactly if the operation reads it. A
// device that fuses operations relies on that.
func TestOperationsReadWhatTheyDeclare(t *testing.T) {
	n := newNet(t, ref.New(), gguf.F32, device.CacheOf(gguf.F32))
	n.widen()
	tested := map[device.OpKind]bool{device.OpCandidates: true} // its results are no activation
	for i, op := range n.record(accessRows).Ops {
		t.Run(fmt.Sprint(i, " ", op.Kind), func(t *testing.T) {
			tested[op.Kind] = true
			a := &accesses{net: n, op: op, x: n.compileAlone(t, op)}
			base := a.results(t, device.Tensor{})
			for name, tensor := range n.buffers {
				reads := !slices.Equal(a.results(t, tensor), base)
				if reads != op.Reads(tensor) {
					t.Errorf("%s: other values in %q change the results: %t, but Reads is %t", op.Kind, name, reads, op.Reads(tensor))
				}
			}
		})
	}
	for _, kind := range device.OpKinds() {
		if !tested[kind] {
			t.Errorf("the net has no %s", kind)
		}
	}
}

// accessRows is the number of rows: with two, attention depends on queries and keys.
const accessRows = 2

// compileAlone returns the program of one operation.
func (n *net) compileAlone(t *testing.T, op device.Op) device.Executable {
	t.Helper()
	p := device.NewProgram(accessRows, accessRows)
	p.Ops = []device.Op{op}
	x, err := n.dev.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// accesses runs one operation.
type accesses struct {
	net *net
	op  device.Op
	x   device.Executable
}

// results returns what the operation computes from activations of random numbers, of which changed has
// others, if it is not none. What the operation does not write is not in it.
func (a *accesses) results(t *testing.T, changed device.Tensor) (values []float32) {
	t.Helper()
	for _, tensor := range a.net.buffers {
		seed := uint64(1)
		if tensor.ID == changed.ID {
			seed = 2
		}
		values := normal(rand.New(rand.NewPCG(seed, uint64(tensor.ID))), accessRows*tensor.Cols, 1)
		if tensor.ID == a.net.buffers["routes"].ID {
			for i := range values {
				values[i] = float32(seed) // numbers and weights of experts
			}
		}
		if err := a.net.dev.Write(tensor, 0, values); err != nil {
			t.Fatal(err)
		}
	}
	return a.run(t, a.x, a.op)
}

// run runs op and returns its results; those of StoreKV are what a fixed query then reads of the cache.
func (a *accesses) run(t *testing.T, x device.Executable, op device.Op) (values []float32) {
	t.Helper()
	b := counting(accessRows, 0, []int32{0})
	b.Out = []int32{0, 1}
	if err := x.Run(b); err != nil {
		t.Fatal(err)
	}
	if op.Kind == device.OpStoreKV {
		return a.attended(t)
	}
	for row := range accessRows {
		values = append(values, a.net.read(op.Dst, row)...)
	}
	return values
}

// attended returns the attention of a fixed query over what StoreKV has stored.
func (a *accesses) attended(t *testing.T) []float32 {
	t.Helper()
	n, l := a.net, a.op.KV.Layout
	op := device.Op{Kind: device.OpAttention, Dst: n.alloc(n.heads * l.ValueDim()), X: n.alloc(n.heads * l.HeadDim), KV: a.op.KV, Layer: a.op.Layer, Attention: device.Attention{Heads: n.heads, Scale: 1}}
	if err := n.dev.Write(op.X, 0, normal(rand.New(rand.NewPCG(3, 3)), accessRows*op.X.Cols, 1)); err != nil {
		t.Fatal(err)
	}
	return a.run(t, n.compileAlone(t, op), op)
}
