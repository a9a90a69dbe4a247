package picture

// internvl cuts a picture into squares, and adds an overview of the same size.
type internvl struct {
	squares
	grid int // tokens of a square's side
}

// Published values of InternVL.
const (
	internvlMinSquares = 1
	internvlMaxSquares = 12
	internvlScale      = 2 // patches of a token's side
)

// mostSquares bounds the squares that a companion asks for.
const mostSquares = 64

func newInternVL(p *parameters, o Options) rule {
	side := p.side("clip.vision.image_size")
	step := p.side("clip.vision.patch_size") * p.sideOr("clip.vision.projector.scale_factor", internvlScale)
	p.multiple("clip.vision.image_size in pixels of a token", side, step)
	r := internvl{grid: max(1, side/step)}
	r.squares = squares{side, p.sideOr("clip.vision.preproc_min_tiles", internvlMinSquares), p.sideOr("clip.vision.preproc_max_tiles", internvlMaxSquares)}
	if r.min > r.max || r.max > mostSquares {
		p.fail("clip.vision.preproc_min_tiles and preproc_max_tiles are %d and %d, and must be in this order and at most %d", r.min, r.max, mostSquares)
	}
	r.squares = r.within(o.Within, r.grid*r.grid, r.grid*r.grid)
	return r
}

func (r internvl) size(width, height int) (Size, error) {
	s := Size{Tiles: 1, Width: r.side, Height: r.side, Rows: r.grid, Columns: r.grid}
	if rows, columns := r.squares.grid(width, height); rows*columns > 1 {
		s.TileRows, s.TileColumns = rows, columns
		s.Tiles = rows*columns + 1
	}
	return s, nil
}

func (r internvl) most() int {
	tiles := r.max
	if tiles > 1 {
		tiles++
	}
	return tiles * r.grid * r.grid
}

func (r internvl) tiles(img *Image, s Size) []*Image {
	overview := resize(img, r.side, r.side, bicubic)
	if s.Tiles == 1 {
		return []*Image{overview}
	}
	return append(r.cut(img, s.TileRows, s.TileColumns, bicubic), overview)
}
