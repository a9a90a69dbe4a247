package model_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/picture"
)

// towerShape is the shape of a published tower.
type towerShape struct {
	projector      string
	size           picture.Size // of the picture that is encoded
	patch, pool    int
	dim, ffn, text int
	layers, heads  int
}

var towerShapes = map[string]towerShape{
	"gemma3-4b 896x896":       {"gemma3", picture.Size{Width: 896, Height: 896, Tiles: 1, Tokens: 256}, 14, 4, 1152, 4304, 2560, 27, 16},
	"qwen2.5-vl-7b 1036x784":  {"qwen2.5vl_merger", picture.Size{Width: 1036, Height: 784, Tiles: 1, Tokens: 37 * 28}, 14, 2, 1280, 3420, 3584, 32, 16},
	"gemma3-4b, two layers":   {"gemma3", picture.Size{Width: 896, Height: 896, Tiles: 1, Tokens: 256}, 14, 4, 1152, 4304, 2560, 2, 16},
	"qwen2.5-vl-7b, 8 layers": {"qwen2.5vl_merger", picture.Size{Width: 1036, Height: 784, Tiles: 1, Tokens: 37 * 28}, 14, 2, 1280, 3420, 3584, 8, 16},
}

// file returns a companion file of the shape with random weights, as published files have them: matrices in F16.
func (s towerShape) file(b *testing.B) *gguf.File {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	drawn := make([]float32, 1<<20)
	for i := range drawn {
		drawn[i] = float32(rng.NormFloat64() * 0.02)
	}
	halves := gguftest.Quantize(gguf.F16, drawn)
	g := gguftest.New()
	matrix := func(name string, shape ...int) {
		n := 2
		for _, side := range shape {
			n *= side
		}
		data := make([]byte, 0, n+len(halves))
		for len(data) < n {
			data = append(data, halves...)
		}
		g.Tensor(name, gguf.F16, shape, data[:n])
	}
	vector := func(name string, n int) { g.Tensor(name, gguf.F32, []int{n}, gguftest.Quantize(gguf.F32, drawn[:n])) }
	for key, value := range map[string]any{
		"general.architecture": "clip", "general.type": "mmproj", "clip.has_vision_encoder": true, "clip.projector_type": s.projector,
		"clip.vision.image_size": uint32(s.size.Width), "clip.vision.patch_size": uint32(s.patch), "clip.vision.projection_dim": uint32(s.text),
		"clip.vision.embedding_length": uint32(s.dim), "clip.vision.feed_forward_length": uint32(s.ffn),
		"clip.vision.block_count": uint32(s.layers), "clip.vision.attention.head_count": uint32(s.heads),
		"clip.vision.attention.layer_norm_epsilon": float32(1e-6),
		"clip.vision.image_mean":                   []float32{0.5, 0.5, 0.5}, "clip.vision.image_std": []float32{0.5, 0.5, 0.5},
	} {
		g.Set(key, value)
	}
	qwen := s.projector != "gemma3"
	matrix("v.patch_embd.weight", s.patch, s.patch, 3, s.dim)
	if qwen {
		g.Set("clip.use_silu", true).Set("clip.vision.n_wa_pattern", uint32(8))
		matrix("v.patch_embd.weight.1", s.patch, s.patch, 3, s.dim)
		matrix("mm.0.weight", 4*s.dim, 4*s.dim)
		vector("mm.0.bias", 4*s.dim)
		matrix("mm.2.weight", 4*s.dim, s.text)
		vector("mm.2.bias", s.text)
	} else {
		g.Set("clip.use_gelu", true)
		vector("v.patch_embd.bias", s.dim)
		matrix("v.position_embd.weight", s.dim, s.size.Width/s.patch*s.size.Height/s.patch)
		matrix("mm.input_projection.weight", s.text, s.dim)
		vector("mm.soft_emb_norm.weight", s.dim)
		vector("v.post_ln.bias", s.dim)
	}
	vector("v.post_ln.weight", s.dim)
	for layer := range s.layers {
		name := func(part string) string { return fmt.Sprintf("v.blk.%d.%s", layer, part) }
		linear := func(part string, in, out int) {
			matrix(name(part+".weight"), in, out)
			vector(name(part+".bias"), out)
		}
		for _, part := range []string{"attn_q", "attn_k", "attn_v", "attn_out"} {
			linear(part, s.dim, s.dim)
		}
		linear("ffn_up", s.dim, s.ffn)
		linear("ffn_down", s.ffn, s.dim)
		for _, norm := range []string{"ln1", "ln2"} {
			vector(name(norm+".weight"), s.dim)
			if !qwen {
				vector(name(norm+".bias"), s.dim)
			}
		}
		if qwen {
			linear("ffn_gate", s.dim, s.ffn)
		}
	}
	f, err := gguf.Parse(g.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// BenchmarkTower encodes one picture with the shapes of published towers.
func BenchmarkTower(b *testing.B) {
	devices := map[string]func() (device.Device, error){
		"cpu": func() (device.Device, error) { return cpu.Open(0) },
	}
	if cuda.Check() == nil {
		devices["cuda"] = cuda.Open
	}
	for name, s := range towerShapes {
		for kind, open := range devices {
			b.Run(name+"/"+kind, func(b *testing.B) {
				dev, err := open()
				if err != nil {
					b.Fatal(err)
				}
				defer dev.Close()
				tower, err := model.LoadTower(s.file(b), dev, s.size)
				if err != nil {
					b.Fatal(err)
				}
				pixels := &picture.Pixels{Size: s.size, Data: make([]float32, 3*s.size.Width*s.size.Height)}
				for i := range pixels.Data {
					pixels.Data[i] = float32(i%255)/127.5 - 1
				}
				for b.Loop() {
					if _, err := tower.Encode(b.Context(), pixels); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
