package model

import (
	"math"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// qwen2Tower is that of Qwen 2 VL and 2.5 VL. The patches of a token follow each other. In most layers of 2.5 VL patches see those of
// their window alone.
var qwen2Tower = towerFamily{
	see:     qwenPictures,
	pool:    2,
	poolKey: "spatial_merge_size",
	varies:  true,
	blocks:  true,
	read: func(c *towerConfig, f *gguf.File) error {
		period, err := gguf.Optional(f.Uint, "clip.vision.n_wa_pattern", 0)
		c.period = int(min(period, 1<<16))
		return err
	},
	record: recordQwen,
	join:   joinPatches,
	joined: joinedPatches,
	project: func(r *towerRecording, joined device.Tensor, _ int) device.Tensor {
		return r.twoLayers(joined, "mm.0", "mm.2")
	},
	text: outputsOf("mm.2.weight"),
}

var qwenPictures = Pictures{Placeholder: "<|image_pad|>", Token: "<|image_pad|>", Before: "<|vision_start|>", After: "<|vision_end|>"}

// recordQwen returns the stages of the towers of Qwen: the embedding of patches, the layers, and a norm.
func recordQwen(r *towerRecording) []towerStage {
	t := r.t
	head := r.headWidth()
	stages := []towerStage{{record: func() {
		r.embedFrames()
		if !t.added.None() {
			r.Add(t.features, t.added)
		}
	}}}
	layers := towerLayers{rotate: func(r *towerRecording, x device.Tensor) {
		rows, columns := make([]float64, head/2), make([]float64, head/2)
		for i := range head / 4 {
			rows[i] = math.Pow(1e4, -float64(4*i)/float64(head))
			columns[head/4+i] = rows[i]
		}
		r.rotateAxis(x, head, true, 1, rows)
		r.rotateAxis(x, head, true, 2, columns)
	}}
	stages = append(stages, layers.record(r)...)
	return append(stages, towerStage{record: func() { r.norm(t.features, t.features, "v.post_ln", t.dim) }})
}

// embedFrames records the embedding of patches of two frames, which are the same picture.
func (r *towerRecording) embedFrames() {
	t := r.t
	sum := r.values("v.patch_embd.weight", t.dim*t.patches.Cols)
	for i, v := range r.values("v.patch_embd.weight.1", len(sum)) {
		sum[i] += v
	}
	r.MatMul(t.features, r.upload("both frames", gguf.F32, t.dim, t.patches.Cols, bytesOf(sum)), t.patches)
	if name := "v.patch_embd.bias"; r.has(name) {
		r.AddBias(t.features, r.vector(name, t.dim))
	}
}
