package model

import (
	"fmt"
	"math"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// qwen3Tower is that of Qwen 3 VL and 3.5: as that of Qwen 2 VL, with position embeddings that are interpolated for the size of a
// picture. The results of some layers are added after the first layers of the language model.
var qwen3Tower = towerFamily{
	see:     qwenPictures,
	pool:    2,
	poolKey: "spatial_merge_size",
	varies:  true,
	blocks:  true,
	added:   interpolatedPositions,
	read: func(c *towerConfig, f *gguf.File) error {
		const key = "clip.vision.is_deepstack_layers"
		if !f.Has(key) {
			return nil
		}
		layers, _, _, err := f.First(key, c.layers)
		for i, v := range layers {
			if used, _ := v.(bool); used {
				c.deepstack = append(c.deepstack, i)
			}
		}
		return err
	},
	record: func(r *towerRecording) []towerStage {
		r.readPositions()
		return recordQwen(r)
	},
	join:   joinPatches,
	joined: joinedPatches,
	project: func(r *towerRecording, joined device.Tensor, deepstack int) device.Tensor {
		if deepstack < 0 {
			return r.twoLayers(joined, "mm.0", "mm.2")
		}
		name := fmt.Sprintf("v.deepstack.%d.", deepstack)
		n := r.buffer(joined.Cols)
		r.norm(n, joined, name+"norm", joined.Cols)
		return r.twoLayers(n, name+"fc1", name+"fc2")
	},
	text: outputsOf("mm.2.weight"),
}

// readPositions reads the square table of position embeddings.
func (r *towerRecording) readPositions() {
	t, err := r.f.Tensor("v.position_embd.weight")
	if err == nil {
		r.t.table = r.values(t.Name, t.Elements())
		if side := tableSide(r.t); len(r.t.table) != side*side*r.t.dim {
			err = fmt.Errorf("tensor %s has the shape %v, want a square of positions of width %d", t.Name, t.Shape, r.t.dim)
		}
	}
	if err != nil {
		r.fail(err)
	}
}

// tableSide returns the side of the square of positions in the table.
func tableSide(t *Tower) int { return int(math.Sqrt(float64(len(t.table) / t.dim))) }

// interpolatedPositions returns the embeddings of the positions of a tile: those of the table, whose corners are those of the tile,
// interpolated linearly in both directions.
func interpolatedPositions(t *Tower, g grid) []float32 {
	side := tableSide(t)
	at := func(i, n int) (low, high int, share float64) { // of n positions over the side
		x := 0.0
		if n > 1 {
			x = float64(i) * float64(side-1) / float64(n-1)
		}
		low = int(x)
		return low, min(low+1, side-1), x - float64(low)
	}
	added := make([]float32, 0, g.patches()*t.dim)
	for _, p := range t.places(g) {
		top, bottom, down := at(p.row, g.rows)
		left, right, across := at(p.column, g.columns)
		for i := range t.dim {
			value := func(row, column int) float64 { return float64(t.table[(row*side+column)*t.dim+i]) }
			upper := (1-across)*value(top, left) + across*value(top, right)
			lower := (1-across)*value(bottom, left) + across*value(bottom, right)
			added = append(added, float32((1-down)*upper+down*lower))
		}
	}
	return added
}
