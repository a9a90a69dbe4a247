package picture

import (
	"fmt"
	"math"
)

// qwen keeps a picture's ratio: each side becomes the nearest multiple of a token's side, within limits of tokens.
type qwen struct {
	step     int // pixels of a token's side
	min, max int // pixels of the picture
}

// Published limits of Qwen's vision models, in tokens.
const (
	qwen2MinTokens = 4
	qwen3MinTokens = 64
	qwenMaxTokens  = 16384

	qwenMerge = 2 // patches of a token's side
)

// qwenMaxRatio is the ratio of sides above which the published preprocessor refuses a picture.
const qwenMaxRatio = 200

func newQwen2(p *parameters, o Options) rule { return newQwen(p, o, qwen2MinTokens) }
func newQwen3(p *parameters, o Options) rule { return newQwen(p, o, qwen3MinTokens) }

func newQwen(p *parameters, o Options, minTokens int) rule {
	least, most := o.tokens(p, minTokens, qwenMaxTokens)
	step := p.side("clip.vision.patch_size") * p.sideOr("clip.vision.spatial_merge_size", qwenMerge)
	return qwen{step: step, min: least * step * step, max: most * step * step}
}

func (q qwen) size(width, height int) (Size, error) {
	if max(width, height) > qwenMaxRatio*min(width, height) {
		return Size{}, fmt.Errorf("a side of the picture of %d x %d pixels is more than %d times the other; cut it", width, height, qwenMaxRatio)
	}
	f := float64(q.step)
	scaled := func(side int, by float64, round func(float64) float64) int {
		return int(round(float64(side)*by/f)) * q.step
	}
	w, h := scaled(width, 1, math.RoundToEven), scaled(height, 1, math.RoundToEven)
	area := float64(width) * float64(height)
	switch {
	case w*h > q.max:
		beta := math.Sqrt(area / float64(q.max))
		shrunk := func(side int) int { return max(q.step, int(math.Floor(float64(side)/beta/f))*q.step) }
		w, h = shrunk(width), shrunk(height)
	case w*h < q.min:
		beta := math.Sqrt(float64(q.min) / area)
		w, h = scaled(width, beta, math.Ceil), scaled(height, beta, math.Ceil)
	}
	return Size{Tiles: 1, Width: w, Height: h, Rows: h / q.step, Columns: w / q.step}, nil
}

func (q qwen) most() int { return q.max / (q.step * q.step) }

func (q qwen) tiles(img *Image, s Size) []*Image {
	return []*Image{resize(img, s.Width, s.Height, bicubic)}
}
