package devicetest

import (
	"errors"
	"math"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// errors checks that invalid calls return errors.
func (s Suite) errors(t *testing.T) {
	t.Run("a weight type without kernels is refused by name", func(t *testing.T) {
		_, err := open(t, s.Open[0]).Upload(gguf.Q1_0, 1, 256, make([]byte, 36))
		if err == nil || !strings.Contains(err.Error(), "Q1_0") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a weight with too few bytes is refused", func(t *testing.T) {
		if _, err := open(t, s.Open[0]).Upload(gguf.F32, 2, 3, make([]byte, 23)); err == nil {
			t.Error("no error")
		}
	})
	t.Run("a KV cache of a type that is no cache type is refused", func(t *testing.T) {
		for _, typ := range []device.CacheType{device.CacheOf(gguf.Q5_1), {Keys: gguf.F16, Values: gguf.Q4_K}} {
			l := device.KVLayout{Type: typ, Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: 256}
			if _, err := open(t, s.Open[0]).AllocKV(l); err == nil || !strings.Contains(err.Error(), typ.String()) {
				t.Errorf("%s: %v", typ, err)
			}
		}
	})
	t.Run("a KV cache whose heads are not whole blocks of its format is refused", func(t *testing.T) {
		l := device.KVLayout{Type: device.CacheType{Keys: gguf.F16, Values: gguf.Q8_0}, Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: 80}
		if _, err := open(t, s.Open[0]).AllocKV(l); err == nil || !strings.Contains(err.Error(), "80") {
			t.Errorf("got %v, want an error with the elements of a head", err)
		}
	})
	t.Run("a program with a wrong shape does not compile", func(t *testing.T) {
		r := newRig(t, open(t, s.Open[0]), 2)
		r.p.Add(r.alloc(3), r.alloc(4))
		if _, err := r.dev.Compile(r.p); err == nil || !strings.Contains(err.Error(), "Add") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a block that the KV cache does not have is neither read nor written", func(t *testing.T) {
		d := open(t, s.Open[0])
		kv, err := d.AllocKV(device.KVLayout{Type: device.CacheOf(gguf.F16), Blocks: 2, Layers: 1, KVHeads: 1, HeadDim: 4})
		if err != nil {
			t.Fatal(err)
		}
		other := kv
		other.ID++
		data := make([]byte, kv.Layout.BlockBytes())
		if err := errors.Join(d.WriteKV(kv, 1, data), d.ReadKV(data, kv, 1)); err != nil {
			t.Error(err)
		}
		for _, c := range []struct {
			kv    device.KV
			block int32
			data  []byte
		}{{kv, 2, data}, {kv, -1, data}, {kv, 0, data[1:]}, {kv, 0, append(data, 0)}, {other, 0, data}, {device.KV{}, 0, nil}} {
			if d.ReadKV(c.data, c.kv, c.block) == nil || d.WriteKV(c.kv, c.block, c.data) == nil {
				t.Errorf("block %d of cache %d, %d bytes: no error", c.block, c.kv.ID, len(c.data))
			}
		}
	})
	t.Run("invalid or unknown options do not compile", s.invalidOptions)
	t.Run("an invalid batch does not run", s.invalidBatches)
	t.Run("recurrent state", s.invalidStates)
	t.Run("a closed device refuses to run", s.closed)
}

func (s Suite) invalidOptions(t *testing.T) {
	for name, record := range map[string]func(r *rig, x device.Tensor){
		"GLU":       func(r *rig, x device.Tensor) { r.p.GLU(x, x, x, 0) },
		"GLU, 99":   func(r *rig, x device.Tensor) { r.p.GLU(x, x, x, 99) },
		"Scale":     func(r *rig, x device.Tensor) { r.p.Scale(x, 1, -1) },
		"Scale, up": func(r *rig, x device.Tensor) { r.p.Scale(x, 1, float32(math.Inf(1))) },
		"Mix":       func(r *rig, x device.Tensor) { r.p.Mix(x, r.alloc(3), device.Tensor{}, 0, 2) },
		"Mix, to":   func(r *rig, x device.Tensor) { r.p.Mix(x, r.alloc(2), device.Tensor{}, 4, 2) },
		"Mix, few":  func(r *rig, x device.Tensor) { r.p.Mix(x, r.alloc(2), r.alloc(3), 0, 2) },
		"MatchRMS":  func(r *rig, x device.Tensor) { r.p.MatchRMS(x, r.alloc(3), 1) },
		"RMSNorm":   func(r *rig, x device.Tensor) { r.p.RMSNorm(x, x, r.weight(gguf.F32, 1, 3), 0) },
		"Attention": func(r *rig, x device.Tensor) {
			kv := r.kv(device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 1, Layers: 1, KVHeads: 1, HeadDim: 4})
			r.p.Attention(r.alloc(4), x, kv, 0, device.Attention{Heads: 1, Scale: 1, Cap: float32(math.NaN())})
		},
	} {
		r := newRig(t, open(t, s.Open[0]), 2)
		record(r, r.alloc(4))
		operation, _, _ := strings.Cut(name, ",")
		if _, err := r.dev.Compile(r.p); err == nil || !strings.Contains(err.Error(), operation) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func (s Suite) invalidBatches(t *testing.T) {
	r := newRig(t, open(t, s.Open[0]), 4)
	kv := r.kv(device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: 2, Layers: 1, KVHeads: 1, HeadDim: 4})
	x, out := r.alloc(4), r.alloc(4)
	r.p.Embed(x, r.weight(gguf.F32, 5, 4))
	r.p.StoreKV(kv, 0, x, x)
	r.p.Attention(out, x, kv, 0, device.Attention{Heads: 1, Scale: 1})
	executable := r.compile()
	table := [][][]int32{{{0, 1}}}
	for name, b := range map[string]*device.Batch{
		"no rows":                             {Tables: table},
		"more rows than recorded":             {Tokens: make([]int32, 5), Pos: make([]int32, 5), Seq: make([]int32, 5), Tables: table},
		"fewer positions than rows":           {Tokens: []int32{0, 1}, Pos: []int32{0}, Seq: []int32{0, 0}, Tables: table},
		"a token outside the vocabulary":      {Tokens: []int32{5}, Pos: []int32{0}, Seq: []int32{0}, Tables: table},
		"a negative token":                    {Tokens: []int32{-1}, Pos: []int32{0}, Seq: []int32{0}, Tables: table},
		"a position outside the block table":  {Tokens: []int32{0}, Pos: []int32{64}, Seq: []int32{0}, Tables: table},
		"a sequence without a table":          {Tokens: []int32{0}, Pos: []int32{0}, Seq: []int32{1}, Tables: table},
		"a block outside the cache":           {Tokens: []int32{0}, Pos: []int32{0}, Seq: []int32{0}, Tables: [][][]int32{{{2}}}},
		"an output row outside the batch":     {Tokens: []int32{0}, Pos: []int32{0}, Seq: []int32{0}, Tables: table, Out: []int32{1}},
		"output rows that are not ascending":  {Tokens: []int32{0, 1}, Pos: []int32{0, 1}, Seq: []int32{0, 0}, Tables: table, Out: []int32{1, 0}},
		"more output rows than the batch has": {Tokens: []int32{0}, Pos: []int32{0}, Seq: []int32{0}, Tables: table, Out: []int32{0, 0}},
	} {
		t.Run("a batch with "+name+" is refused", func(t *testing.T) {
			if err := executable.Run(b); err == nil {
				t.Error("no error")
			}
		})
	}
	t.Run("a good batch runs after bad ones", func(t *testing.T) {
		r.run(executable, counting(4, 0, []int32{0, 1}))
	})
	t.Run("reading or writing a row that is not there is refused", func(t *testing.T) {
		for _, row := range []int{-1, 4} {
			if err := r.dev.Read(make([]float32, 4), x, row); err == nil {
				t.Errorf("row %d: no error", row)
			}
			if err := r.dev.Write(x, row, make([]float32, 4)); err == nil {
				t.Errorf("row %d was written", row)
			}
		}
		if err := r.dev.Read(make([]float32, 8), x, 3); err == nil {
			t.Error("two rows were read where one is")
		}
		if err := r.dev.Write(x, 0, make([]float32, 3)); err == nil {
			t.Error("a row of 3 values was written where 4 are")
		}
		if err := r.dev.Read(make([]float32, 3), x, 0); err == nil {
			t.Error("into too short a slice: no error")
		}
	})
}

func (s Suite) closed(t *testing.T) {
	d, err := s.Open[0]()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, d, 1)
	y := r.random(4, 1)
	executable := r.compile()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := executable.Run(counting(1, 0, []int32{0})); err == nil {
		t.Error("Run: no error")
	}
	if err := d.Read(make([]float32, 4), y, 0); err == nil {
		t.Error("Read: no error")
	}
	if err := d.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}
