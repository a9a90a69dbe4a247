package model

import (
	"fmt"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/picture"
)

// idefics3Tower is that of Idefics 3 and SmolVLM: SigLIP over each tile of a picture. The patches of a token are joined.
var idefics3Tower = towerFamily{
	see: Pictures{Placeholder: "<image>", Token: "<image>"},
	shown: func(s picture.Size, tokens string) string {
		const around, whole = "<fake_token_around_image>", "<global-img>"
		var b strings.Builder
		for row := range s.TileRows {
			for column := range s.TileColumns {
				fmt.Fprintf(&b, "%s<row_%d_col_%d>%s", around, row+1, column+1, tokens)
			}
			b.WriteString("\n")
		}
		if s.Tiles > 1 {
			b.WriteString("\n")
		}
		return b.String() + around + whole + tokens + around
	},
	runs:    func(s picture.Size) []int { return repeated(s.Tiles, s.Rows*s.Columns) },
	pool:    4,
	poolKey: "projector.scale_factor",
	record:  recordSigLIP,
	join:    joinPatches,
	joined:  joinedPatches,
	project: func(r *towerRecording, joined device.Tensor, _ int) device.Tensor {
		vectors := r.buffer(r.t.text)
		r.linear(vectors, "mm.model.fc", joined)
		return vectors
	},
	text: outputsOf("mm.model.fc.weight"),
}
