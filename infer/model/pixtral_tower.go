package model

import (
	"math"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/picture"
)

// pixtralTower is that of Pixtral and Mistral 3: RoPE by the row and the column of a patch. The model reads a token at the end of each
// row.
var pixtralTower = towerFamily{
	see: Pictures{Placeholder: "[IMG]", Token: "[IMG]"},
	shown: func(s picture.Size, tokens string) string {
		return strings.Repeat(tokens+"[IMG_BREAK]", s.Rows-1) + tokens + "[IMG_END]"
	},
	runs:    func(s picture.Size) []int { return repeated(s.Rows, s.Columns) },
	pool:    1,
	poolKey: "spatial_merge_size",
	varies:  true,
	record:  recordPixtral,
	join:    joinPixtral,
	joined:  joinedPatches,
	project: func(r *towerRecording, joined device.Tensor, _ int) device.Tensor {
		if r.has("mm.patch_merger.weight") {
			merged := r.buffer(r.t.dim)
			r.linear(merged, "mm.patch_merger", joined)
			joined = merged
		}
		return r.twoLayers(joined, "mm.1", "mm.2")
	},
	text:     outputsOf("mm.2.weight"),
	unneeded: []string{"v.token_embd.img_break"}, // an embedding that the language model has, too
}

// recordPixtral returns the stages of Pixtral: the embedding of patches, the layers, and the norm of the projector if it has one.
func recordPixtral(r *towerRecording) []towerStage {
	h, head := r.t.features, r.headWidth()
	stages := []towerStage{{record: func() {
		r.embedPatches()
		r.norm(h, h, "v.pre_ln", h.Cols)
	}}}
	layers := towerLayers{rotate: func(r *towerRecording, x device.Tensor) {
		rows, columns := make([]float64, head/2), make([]float64, head/2)
		for i := range head / 4 {
			rows[i] = math.Pow(1e4, -float64(4*i)/float64(head))
			columns[head/4+i] = math.Pow(1e4, -float64(4*i+2)/float64(head))
		}
		r.rotateAxis(x, head, false, 1, rows)
		r.rotateAxis(x, head, false, 2, columns)
	}}
	stages = append(stages, layers.record(r)...)
	if r.has("mm.input_norm.weight") {
		stages = append(stages, towerStage{record: func() { r.norm(h, h, "mm.input_norm", h.Cols) }})
	}
	return stages
}

// joinPixtral returns the features of the patches of each token: for each feature, those of the patches.
func joinPixtral(t *Tower, g grid, features []float32) []float32 {
	joined := make([]float32, 0, len(features))
	for token := range t.tokens(g) {
		patches := t.patchesOf(g, token)
		for i := range t.dim {
			for _, patch := range patches {
				joined = append(joined, features[patch*t.dim+i])
			}
		}
	}
	return joined
}
