package device

import (
	"testing"

	"m40-llm/infer/gguf"
)

func TestNamesOfCacheFormats(t *testing.T) {
	for _, c := range []struct {
		name string
		want CacheType
	}{
		{"f16", CacheOf(gguf.F16)},
		{"f32", CacheOf(gguf.F32)},
		{"q8_0", CacheOf(gguf.Q8_0)},
		{"q8_0/q4_0", CacheType{gguf.Q8_0, gguf.Q4_0}},
		{"f16/q8_0", CacheType{gguf.F16, gguf.Q8_0}},
	} {
		if got, err := ParseCacheType(c.name); err != nil || got != c.want || got.String() != c.name {
			t.Errorf("%s: got %v, %v", c.name, got, err)
		}
	}
	for _, name := range []string{"", "F16", "q5_0", "q8_0/", "/q8_0", "q8_0/q8_0/q8_0", "f32/q8_0", "q4_0/f32"} {
		if got, err := ParseCacheType(name); err == nil {
			t.Errorf("%q is taken for %v", name, got)
		}
	}
}

func FuzzParseCacheType(f *testing.F) {
	for _, name := range []string{"f16", "q8_0/q4_0", "q4_0/q4_0", "f32/f16", "/"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, err := ParseCacheType(name)
		if err != nil {
			return
		}
		if again, err := ParseCacheType(c.String()); !c.Known() || err != nil || again != c {
			t.Errorf("%q is %v, whose name is %v, %v", name, c, again, err)
		}
	})
}

func TestBytesOfQuantizedCaches(t *testing.T) {
	for _, c := range []struct {
		layout KVLayout
		want   int64
	}{
		{KVLayout{Type: CacheOf(gguf.F16), Layers: 3, KVHeads: 2, HeadDim: 64}, 3 * 2 * 32 * 2 * 128},
		{KVLayout{Type: CacheOf(gguf.Q8_0), Layers: 3, KVHeads: 2, HeadDim: 64}, 3 * 2 * 32 * 2 * 68},
		{KVLayout{Type: CacheType{gguf.Q8_0, gguf.Q4_0}, Layers: 3, KVHeads: 2, HeadDim: 64}, 3 * 2 * 32 * (68 + 36)},
		{KVLayout{Type: CacheOf(gguf.Q4_0), Layers: 3, KVHeads: 1, HeadDim: 96, Latent: 64}, 3 * 32 * 54},
	} {
		if got := c.layout.BlockBytes(); got != c.want {
			t.Errorf("%+v: %d bytes, want %d", c.layout, got, c.want)
		}
	}
}
