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
	w, h := fitted(width, height, q.step, 0, q.min, q.max)
	return Size{Tiles: 1, Width: w, Height: h, Rows: h / q.step, Columns: w / q.step}, nil
}

func (q qwen) most() int { return q.max / (q.step * q.step) }

func (q qwen) tiles(img *Image, s Size) []*Image {
	return []*Image{resize(img, s.Width, s.Height, bicubic)}
}

// fitted returns the size of a picture each of whose sides is the nearest multiple of step, and not below least. If that is outside the
// limits in pixels, it is one within them that keeps the ratio nearly.
func fitted(width, height, step, least, fewest, most int) (w, h int) {
	f := float64(step)
	scaled := func(side int, by float64, round func(float64) float64) int {
		return int(round(float64(side)*by/f)) * step
	}
	w, h = max(least, scaled(width, 1, math.RoundToEven)), max(least, scaled(height, 1, math.RoundToEven))
	area := float64(width) * float64(height)
	switch {
	case w*h > most:
		beta := math.Sqrt(area / float64(most))
		shrunk := func(side int) int { return max(step, int(math.Floor(float64(side)/beta/f))*step) }
		w, h = shrunk(width), shrunk(height)
	case w*h < fewest:
		beta := math.Sqrt(float64(fewest) / area)
		w, h = scaled(width, beta, math.Ceil), scaled(height, beta, math.Ceil)
	}
	return w, h
}
