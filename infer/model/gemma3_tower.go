package model

import (
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/picture"
)

// gemma3Tower is the SigLIP tower of Gemma 3. Its patches are averaged in squares, and the tokens of a picture see each
// other in the language model.
var gemma3Tower = towerFamily{
	see: Pictures{Attend: true, Placeholder: "<start_of_image>", Token: "<image_soft_token>"},
	shown: func(s picture.Size, tokens string) string {
		return "\n\n<start_of_image>" + tokens + "<end_of_image>\n\n"
	},
	pool:    4,
	poolKey: "projector.scale_factor",
	record:  recordSigLIP,
	join:    averagePatches,
	joined:  func(c *towerConfig) int { return c.dim },
	project: func(r *towerRecording, joined device.Tensor, _ int) device.Tensor {
		n, vectors := r.buffer(joined.Cols), r.buffer(r.t.text)
		r.RMSNorm(n, joined, r.vector("mm.soft_emb_norm.weight", joined.Cols), r.t.eps)
		// The file has the matrix with a row for each input.
		stored := r.values("mm.input_projection.weight", joined.Cols*r.t.text)
		if stored == nil {
			return vectors
		}
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

// recordSigLIP returns the stages of SigLIP: the embedding of patches, the layers, and a norm.
func recordSigLIP(r *towerRecording) []towerStage {
	stages := []towerStage{{record: func() {
		r.embedPatches()
		if r.t.added.None() {
			r.embedPositions()
		} else {
			r.Add(r.t.features, r.t.added)
		}
	}}}
	stages = append(stages, towerLayers{}.record(r)...)
	return append(stages, towerStage{record: func() { r.norm(r.t.features, r.t.features, "v.post_ln", r.t.dim) }})
}

// averagePatches returns the means of the squares of patches that become tokens.
func averagePatches(t *Tower, g grid, features []float32) []float32 {
	means := make([]float32, 0, t.tokens(g)*t.dim)
	for token := range t.tokens(g) {
		for i := range t.dim {
			sum := 0.0
			for _, patch := range t.patchesOf(g, token) {
				sum += float64(features[patch*t.dim+i])
			}
			means = append(means, float32(sum/float64(t.pool*t.pool)))
		}
	}
	return means
}
