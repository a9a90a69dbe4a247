package model

import (
	"fmt"
	"math"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/picture"
)

// gemma4Tower is that of Gemma 4: RoPE by the row and the column of a patch, and embeddings of both. Patches are averaged in squares. The
// tokens of a picture see each other in the layers with a window of language models without per-layer embeddings. Some files have limits of values.
var gemma4Tower = towerFamily{
	see:     Pictures{Attend: true, WindowsOnly: true, Placeholder: "<|image|>", Token: "<|image|>"},
	shown:   func(s picture.Size, tokens string) string { return "<|image>" + tokens + "<image|>" },
	pool:    3,
	poolKey: "projector.scale_factor",
	varies:  true,
	signed:  true,
	added:   rowAndColumn,
	read: func(c *towerConfig, f *gguf.File) error {
		c.activation = device.GELU // files have no key for it
		return nil
	},
	record: recordGemma4,
	join:   joinGemma4,
	joined: func(c *towerConfig) int { return c.dim },
	project: func(r *towerRecording, joined device.Tensor, _ int) device.Tensor {
		n, vectors := r.buffer(joined.Cols), r.buffer(r.t.text)
		r.unweighted(n, joined, joined.Cols)
		r.linear(vectors, "mm.input_projection", n)
		return vectors
	},
	text: outputsOf("mm.input_projection.weight"),
}

// recordGemma4 returns the stages of the tower: the embedding of patches, and the layers.
func recordGemma4(r *towerRecording) []towerStage {
	t := r.t
	half := r.headWidth() / 2
	if w, err := r.f.Tensor("v.position_embd.weight"); err != nil || w.Elements()%(2*t.dim) != 0 {
		r.fail(fmt.Errorf("tensor v.position_embd.weight of two tables of width %d is missing or has another shape: %w", t.dim, err))
	} else {
		t.table = r.values(w.Name, w.Elements())
	}
	if r.has("v.std_bias") || r.has("v.std_scale") {
		t.shift, t.factor = r.values("v.std_bias", t.dim), r.values("v.std_scale", t.dim)
	}
	embed := func() {
		r.embedPatches()
		r.Add(t.features, t.added)
	}
	layers := towerLayers{
		scale:      1,
		normValues: true,
		rotate: func(r *towerRecording, x device.Tensor) {
			frequencies := make([]float64, half/2)
			for i := range frequencies {
				frequencies[i] = math.Pow(100, -2*float64(i)/float64(half))
			}
			r.rotateAxis(x, 2*half, true, 2, frequencies) // the first half of each head
			second := r.shared("second halves", x.Cols/2)
			r.Copy(second, x, device.Columns{Parts: t.heads, From: half, Width: half})
			r.rotateAxis(second, half, true, 1, frequencies)
			r.Copy(x, second, device.Columns{Parts: t.heads, To: half, Width: half})
		},
	}
	return append([]towerStage{{record: embed}}, layers.record(r)...)
}

// rowAndColumn returns the sums of the embeddings of the column and of the row of each patch of a tile.
func rowAndColumn(t *Tower, g grid) []float32 {
	positions := len(t.table) / (2 * t.dim)
	added := make([]float32, 0, g.patches()*t.dim)
	for _, p := range t.places(g) {
		column := t.table[min(p.column, positions-1)*t.dim:]
		row := t.table[(positions+min(p.row, positions-1))*t.dim:]
		for i := range t.dim {
			added = append(added, column[i]+row[i])
		}
	}
	return added
}

// joinGemma4 returns the means of the squares of patches that become tokens, scaled and normalised.
func joinGemma4(t *Tower, g grid, features []float32) []float32 {
	means := averagePatches(t, g, features)
	scale := float32(math.Sqrt(float64(t.dim)))
	for i := range means {
		means[i] *= scale
		if t.shift != nil {
			means[i] = (means[i] - t.shift[i%t.dim]) * t.factor[i%t.dim]
		}
	}
	return means
}
