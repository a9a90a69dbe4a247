package model

import (
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/picture"
)

// internvlTower is that of InternVL: a tower with a class, each of whose additions is scaled, over each tile of a picture. The patches of
// a token are joined.
var internvlTower = towerFamily{
	see:     Pictures{Placeholder: "<IMG_CONTEXT>", Token: "<IMG_CONTEXT>"},
	shown:   func(s picture.Size, tokens string) string { return "<img>" + tokens + "</img>" },
	pool:    2,
	poolKey: "projector.scale_factor",
	class:   true,
	read: func(c *towerConfig, f *gguf.File) error {
		if c.activation == device.GELU { // files have one key for both kinds
			c.activation = device.ExactGELU
		}
		return nil
	},
	record: recordCLIP,
	join: func(t *Tower, g grid, features []float32) []float32 {
		return joinPatches(t, g, features[t.dim:]) // without the class
	},
	joined: joinedPatches,
	project: func(r *towerRecording, joined device.Tensor, _ int) device.Tensor {
		n := r.buffer(joined.Cols)
		r.LayerNorm(n, joined, r.vector("mm.model.mlp.0.weight", joined.Cols), r.vector("mm.model.mlp.0.bias", joined.Cols), projectorEps)
		return r.twoLayers(n, "mm.model.mlp.1", "mm.model.mlp.3")
	},
	text: outputsOf("mm.model.mlp.3.weight"),
}

// projectorEps is the epsilon of norms in projectors, which no file has.
const projectorEps = 1e-5
