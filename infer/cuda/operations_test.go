package cuda

import (
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// TestEveryOperationHasAKernel checks the table of lowerings, and that of the kernels that are loaded
// before a capture, against the operations that a program can record.
func TestEveryOperationHasAKernel(t *testing.T) {
	k := newKernels(nil)
	for _, kind := range device.OpKinds() {
		if err := check(device.Op{Kind: kind, GLU: device.SiLU, KV: device.KV{Layout: device.KVLayout{KVHeads: 1, HeadDim: 64}}, Attention: device.Attention{Heads: 1}}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if len(k.needs(device.Op{Kind: kind}, false)) == 0 {
			t.Errorf("%s loads no module", kind)
		}
	}
	for a := device.SiLU; a <= device.LastActivation; a++ {
		if _, err := gateOf(device.Op{GLU: a}); err != nil {
			t.Errorf("activation %d: %v", a, err)
		}
	}
}

func TestWhatHasNoKernelIsRefusedByName(t *testing.T) {
	kv := device.KV{Layout: device.KVLayout{Type: device.CacheOf(gguf.F16), KVHeads: 1, HeadDim: 1100}}
	quantized := device.KV{Layout: device.KVLayout{Type: device.CacheType{Keys: gguf.Q8_0, Values: gguf.Q4_0}, KVHeads: 1, HeadDim: 80}}
	for _, c := range []struct {
		op   device.Op
		says string
	}{
		{device.Op{Kind: device.OpAttention, KV: kv, Attention: device.Attention{Heads: 1}}, "operation 0, Attention: no attention kernel supports heads of 1100 elements"},
		{device.Op{Kind: device.OpAttention, KV: quantized, Attention: device.Attention{Heads: 1}}, "Attention: a KV cache in the format q8_0/q4_0 cannot have heads of 80 elements, which are no multiple of 32; use f16"},
		{device.Op{Kind: device.OpStoreKV, KV: quantized}, "StoreKV: a KV cache in the format q8_0/q4_0 cannot have heads of 80 elements"},
		{device.Op{Kind: device.OpRoute, Routing: device.Routing{Experts: 1025}}, "operation 0, Route: chooses among 1025 experts, the limit is 1024"},
		{device.Op{Kind: device.OpScan, Scan: device.Scan{KeyDim: 513}}, "operation 0, Scan: has keys of 513 elements, the limit is 512"},
		{device.Op{Kind: device.OpGLU, GLU: 99}, "operation 0, GLU: activation 99 has no kernel"},
	} {
		err := (&cuda{}).Check(&device.Program{Ops: []device.Op{c.op}})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error with %q", c.op.Kind, err, c.says)
		}
	}
}
