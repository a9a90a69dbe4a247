package model

import (
	"fmt"
	"math"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/picture"
)

// lfm2Tower is that of LFM2-VL: SigLIP 2 over each tile of a picture, with position embeddings that are resampled for its size. The
// patches of a token are joined.
var lfm2Tower = towerFamily{
	see: Pictures{Placeholder: lfm2Token, Token: lfm2Token},
	shown: func(s picture.Size, tokens string) string {
		var b strings.Builder
		b.WriteString("<|image_start|>")
		for row := range s.TileRows {
			for column := range s.TileColumns {
				fmt.Fprintf(&b, "<|img_row_%d_col_%d|>%s", row+1, column+1, tokens)
			}
		}
		if s.Tiles > 1 {
			b.WriteString("<|img_thumbnail|>")
		}
		b.WriteString(strings.Repeat(lfm2Token, s.Tile(s.Tiles-1).Tokens()))
		b.WriteString("<|image_end|>")
		return b.String()
	},
	runs: func(s picture.Size) (runs []int) {
		for i := range s.Tiles {
			runs = append(runs, s.Tile(i).Tokens())
		}
		return runs
	},
	pool:    2,
	poolKey: "projector.scale_factor",
	varies:  true,
	added:   resampledPositions,
	record: func(r *towerRecording) []towerStage {
		r.readPositions()
		return recordSigLIP(r)
	},
	join:   joinPatches,
	joined: joinedPatches,
	project: func(r *towerRecording, joined device.Tensor, _ int) device.Tensor {
		if r.has("mm.input_norm.weight") {
			n := r.buffer(joined.Cols)
			r.LayerNorm(n, joined, r.vector("mm.input_norm.weight", joined.Cols), r.vector("mm.input_norm.bias", joined.Cols), projectorEps)
			joined = n
		}
		return r.twoLayers(joined, "mm.1", "mm.2")
	},
	text: outputsOf("mm.2.weight"),
}

const lfm2Token = "<image>"

// resampledPositions returns the embeddings of the positions of a tile: those of the table, scaled to its size linearly, each an average of
// all that lie near it where the tile is smaller.
func resampledPositions(t *Tower, g grid) []float32 {
	side := tableSide(t)
	rows, columns := resamplingWeights(side, g.rows), resamplingWeights(side, g.columns)
	added := make([]float32, 0, g.patches()*t.dim)
	sums := make([]float64, t.dim)
	for _, p := range t.places(g) {
		clear(sums)
		for row, down := range rows[p.row] {
			for column, across := range columns[p.column] {
				if down*across == 0 {
					continue
				}
				for i, v := range t.table[(row*side+column)*t.dim:][:t.dim] {
					sums[i] += down * across * float64(v)
				}
			}
		}
		for _, v := range sums {
			added = append(added, float32(v))
		}
	}
	return added
}

// resamplingWeights returns for each of to positions the weights of the from positions that it is made of.
func resamplingWeights(from, to int) [][]float64 {
	scale := float64(from) / float64(to)
	support := max(1, scale)
	list := make([][]float64, to)
	for i := range list {
		centre, sum := (float64(i)+0.5)*scale-0.5, 0.0
		list[i] = make([]float64, from)
		for x := range list[i] {
			list[i][x] = max(0, 1-math.Abs(float64(x)-centre)/support)
			sum += list[i][x]
		}
		for x := range list[i] {
			list[i][x] /= sum
		}
	}
	return list
}
