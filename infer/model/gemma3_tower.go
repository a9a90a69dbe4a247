package model

import (
	"fmt"
	"math"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// gemma3Tower is the SigLIP tower of Gemma 3. Its patches are averaged in squares, and the tokens of a picture see each
// other in the language model.
var gemma3Tower = towerFamily{
	see: Pictures{
		Attend:      true,
		Placeholder: "<start_of_image>",
		Token:       "<image_soft_token>",
		Before:      "\n\n<start_of_image>",
		After:       "<end_of_image>\n\n",
	},
	pool:   4,
	record: recordSigLIP,
	join:   averagePatches,
	joined: func(c *towerConfig) int { return c.dim },
	project: func(r *towerRecording, joined device.Tensor) device.Tensor {
		n, vectors := r.buffer(joined.Cols), r.buffer(r.t.text)
		r.RMSNorm(n, joined, r.vector("mm.soft_emb_norm.weight", joined.Cols), r.t.eps)
		// The file has the matrix with a row for each input.
		stored := r.values("mm.input_projection.weight", joined.Cols*r.t.text)
		matrix := make([]float32, len(stored))
		for i := range joined.Cols {
			for o := range r.t.text {
				matrix[o*joined.Cols+i] = stored[i*r.t.text+o]
			}
		}
		r.MatMul(vectors, r.upload("mm.input_projection.weight", gguf.F32, r.t.text, joined.Cols, bytesOf(matrix)), n)
		return vectors
	},
	text: func(f *gguf.File) (int, error) {
		t, err := f.Tensor("mm.input_projection.weight")
		if err != nil {
			return 0, err
		}
		return t.Shape[0], nil
	},
}

// recordSigLIP returns the stages of SigLIP over the patches x: the embedding of patches, and each layer.
func recordSigLIP(r *towerRecording, x device.Tensor) []func() {
	t := r.t
	h, n, wide := t.features, r.buffer(t.dim), r.buffer(t.ffn)
	q, k, v, att := r.buffer(t.dim), r.buffer(t.dim), r.buffer(t.dim), r.buffer(t.dim)
	attention := device.Attention{Heads: t.heads, Scale: float32(1 / math.Sqrt(float64(t.dim/t.heads))), Bidirectional: true}

	stages := []func(){func() {
		r.linear(h, "v.patch_embd", x)
		r.EmbedPositions(n, r.matrix("v.position_embd.weight", r.rows, t.dim))
		r.Add(h, n)
	}}
	for i := range t.layers {
		name := func(s string) string { return fmt.Sprintf("v.blk.%d.%s", i, s) }
		stages = append(stages, func() {
			r.norm(n, h, name("ln1"))
			r.linear(q, name("attn_q"), n)
			r.linear(k, name("attn_k"), n)
			r.linear(v, name("attn_v"), n)
			r.StoreKV(t.kv, 0, k, v)
			r.Attention(att, q, t.kv, 0, attention)
			r.linear(n, name("attn_out"), att)
			r.Add(h, n)
			r.norm(n, h, name("ln2"))
			r.linear(wide, name("ffn_up"), n)
			r.Activate(wide, wide, device.GELU)
			r.linear(n, name("ffn_down"), wide)
			r.Add(h, n)
			if i == t.layers-1 {
				r.norm(h, h, "v.post_ln")
			}
		})
	}
	return stages
}

// averagePatches returns the means of the squares of patches that become tokens.
func averagePatches(c *towerConfig, features []float32) []float32 {
	side := c.grid() / c.pool
	means := make([]float32, 0, side*side*c.dim)
	for at := range side * side {
		for i := range c.dim {
			sum := 0.0
			for p := range c.pool * c.pool {
				row, column := at/side*c.pool+p/c.pool, at%side*c.pool+p%c.pool
				sum += float64(features[(row*c.grid()+column)*c.dim+i])
			}
			means = append(means, float32(sum/float64(c.pool*c.pool)))
		}
	}
	return means
}
