package model

import (
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// llavaTower is the CLIP tower of LLaVA 1.5. Files have one layer less than CLIP, because its last one is not used.
var llavaTower = towerFamily{
	see:    Pictures{Placeholder: "<image>", Token: "<image>"},
	pool:   1,
	class:  true,
	record: recordCLIP,
	join:   func(t *Tower, _ grid, features []float32) []float32 { return features[t.dim:] }, // without the class
	joined: joinedPatches,
	project: func(r *towerRecording, joined device.Tensor, _ int) device.Tensor {
		return r.twoLayers(joined, "mm.0", "mm.2")
	},
	text:     outputsOf("mm.2.weight"),
	unneeded: []string{"v.post_ln"},
}

// recordCLIP returns the stages of CLIP and of towers like it: the embedding of a class and of patches, and the layers.
func recordCLIP(r *towerRecording) []towerStage {
	embed := func() {
		t := r.t
		r.MatMul(t.features, r.matrix("v.patch_embd.weight", t.dim, t.patches.Cols), t.patches) // 0 for the class
		positions, class := r.values("v.position_embd.weight", t.rows*t.dim), r.values("v.class_embd", t.dim)
		if positions == nil || class == nil {
			return
		}
		for i, v := range class {
			positions[i] += v
		}
		if name := "v.patch_embd.bias"; r.has(name) {
			for row, bias := 1, r.values(name, t.dim); row < t.rows; row++ {
				for i, v := range bias {
					positions[row*t.dim+i] += v
				}
			}
		}
		n := r.shared("norm", t.dim)
		r.EmbedPositions(n, r.upload("positions", gguf.F32, t.rows, t.dim, bytesOf(positions)))
		r.Add(t.features, n)
		if name := "v.pre_ln"; r.has(name + ".weight") {
			r.norm(t.features, t.features, name, t.dim)
		}
	}
	return append([]towerStage{{record: embed}}, towerLayers{}.record(r)...)
}
