package picture

import (
	"fmt"
	"math"
)

// gemma4 scales every picture, up or down, to a budget of tokens, and keeps its ratio nearly.
type gemma4 struct {
	patch, step int // pixels of a patch's and a token's side
	pooled      int // patches of a token
	tokens      int
}

// Published values of Gemma 4.
const (
	gemma4MaxTokens = 280
	gemma4Pooling   = 3 // patches of a token's side
)

func newGemma4(p *parameters, o Options) rule {
	_, most := o.tokens(p, 1, gemma4MaxTokens)
	patch, k := p.side("clip.vision.patch_size"), p.sideOr("clip.vision.projector.scale_factor", gemma4Pooling)
	return gemma4{patch: patch, step: patch * k, pooled: k * k, tokens: most}
}

func (g gemma4) size(width, height int) (Size, error) {
	budget := float64(g.tokens * g.pooled * g.patch * g.patch)
	scale := math.Sqrt(budget / (float64(width) * float64(height)))
	steps := func(side int) int { return int(math.Floor(float64(scale*float64(side)) / float64(g.step))) }
	columns, rows := steps(width), steps(height)
	switch {
	case columns == 0 && rows == 0:
		return Size{}, fmt.Errorf("the picture of %d x %d pixels does not fit into %d tokens", width, height, g.tokens)
	case rows == 0:
		columns, rows = min(width/height, g.tokens), 1
	case columns == 0:
		columns, rows = 1, min(height/width, g.tokens)
	}
	return Size{Tiles: 1, Width: columns * g.step, Height: rows * g.step, Rows: rows, Columns: columns}, nil
}

func (g gemma4) most() int { return g.tokens }

func (g gemma4) tiles(img *Image, s Size) []*Image {
	return []*Image{resize(img, s.Width, s.Height, bicubic)}
}
