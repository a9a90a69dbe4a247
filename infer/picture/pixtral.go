package picture

import "math"

// pixtral shrinks a picture whose longer side is too long, never enlarges it, and stretches each side to the next
// multiple of a token's.
type pixtral struct{ longest, step int }

func newPixtral(p *parameters, o Options) rule {
	x := pixtral{
		longest: p.side("clip.vision.image_size"),
		step:    p.side("clip.vision.patch_size") * p.sideOr("clip.vision.spatial_merge_size", 1),
	}
	if o.Within > 0 {
		x.longest = min(x.longest, max(1, int(math.Sqrt(float64(o.Within))))*x.step)
	}
	return x
}

func (x pixtral) size(width, height int) (Size, error) {
	ratio := max(1, float64(width)/float64(x.longest), float64(height)/float64(x.longest))
	tokens := func(side int) int { return max(1, (int(math.Floor(float64(side)/ratio))+x.step-1)/x.step) }
	columns, rows := tokens(width), tokens(height)
	return Size{Tiles: 1, Width: columns * x.step, Height: rows * x.step, Rows: rows, Columns: columns}, nil
}

func (x pixtral) most() int {
	side := (x.longest + x.step - 1) / x.step
	return side * side
}

func (x pixtral) tiles(img *Image, s Size) []*Image {
	return []*Image{resize(img, s.Width, s.Height, bicubic)}
}
