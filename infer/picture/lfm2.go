package picture

import (
	"fmt"
	"math"
)

// lfm2 (LFM2-VL) keeps a picture's ratio: each side becomes the nearest multiple of a token's side, within limits of tokens. A picture that
// is much larger than that is cut into squares, followed by its overview.
type lfm2 struct {
	squares
	patch, step  int // pixels of a patch's and a token's side
	fewest, many int // tokens of a picture that is not cut, and of an overview
}

// Published values of LFM2-VL.
const (
	lfm2MinTokens  = 64
	lfm2MaxTokens  = 256
	lfm2MinSquares = 2
	lfm2MaxSquares = 10
	lfm2Scale      = 2 // patches of a token's side
	lfm2Tolerance  = 2 // times the most tokens of a picture that is not cut
)

func newLFM2(p *parameters, o Options) rule {
	within := o.Within
	o.Within = 0
	r := lfm2{patch: p.side("clip.vision.patch_size")}
	r.step = r.patch * p.sideOr("clip.vision.projector.scale_factor", lfm2Scale)
	r.fewest, r.many = o.tokens(p, lfm2MinTokens, lfm2MaxTokens)
	side := int(math.Sqrt(float64(max(1, r.many)))) // tokens; a square is no larger than a picture that is not cut
	r.squares = squares{side * r.step, lfm2MinSquares, lfm2MaxSquares}.within(within, side*side, r.many)
	if within > 0 {
		r.fewest, r.many = min(r.fewest, within), min(r.many, within)
	}
	return r
}

func (r lfm2) size(width, height int) (Size, error) {
	pixels := r.step * r.step // of a token
	w, h := fitted(width, height, r.step, r.step, r.fewest*pixels, r.many*pixels)
	if w*h > r.many*pixels {
		return Size{}, fmt.Errorf("the picture of %d x %d pixels does not fit into %d tokens; cut it", width, height, r.many)
	}
	s := Size{Tiles: 1, Width: w, Height: h, Rows: h / r.step, Columns: w / r.step}
	if r.max < lfm2MinSquares || !r.large(width, height) {
		return s, nil
	}
	if overview, side := s.Tile(0), r.side/r.step; overview != (Tile{r.side, r.side, side, side}) {
		s = Size{Width: r.side, Height: r.side, Rows: side, Columns: side, Overview: overview}
	}
	s.TileRows, s.TileColumns = r.grid(width, height)
	s.Tiles = s.TileRows*s.TileColumns + 1
	return s, nil
}

// large reports whether a picture has too many pixels not to be cut.
func (r lfm2) large(width, height int) bool {
	rounded := func(side int) int {
		return max(r.patch, int(math.RoundToEven(float64(side)/float64(r.step)))*r.step)
	}
	return rounded(width)*rounded(height) > lfm2Tolerance*r.many*r.step*r.step
}

func (r lfm2) most() int {
	if r.max < lfm2MinSquares {
		return r.many
	}
	side := r.side / r.step
	return r.max*side*side + r.many
}

func (r lfm2) tiles(img *Image, s Size) (list []*Image) {
	if s.TileRows > 0 {
		list = r.cut(img, s.TileRows, s.TileColumns, bilinear)
	}
	last := s.Tile(s.Tiles - 1)
	return append(list, resize(img, last.Width, last.Height, bilinear))
}
