package picture

import "math"

// idefics3 (Idefics 3, SmolVLM) scales a picture to a fixed longer side, cuts it into squares, and adds an overview.
type idefics3 struct {
	longest int // pixels of the longer side
	side    int // pixels of a square
	grid    int // tokens of a square's side
}

// idefics3Longest is the longest side that the published preprocessor makes.
const idefics3Longest = 4096

func newIdefics3(p *parameters, o Options) rule {
	r := idefics3{side: p.side("clip.vision.image_size")}
	r.longest = p.sideOr("clip.vision.preproc_image_size", uint64(r.side))
	if r.longest > idefics3Longest {
		p.fail("clip.vision.preproc_image_size is %d, and must be at most %d", r.longest, idefics3Longest)
	}
	step := p.side("clip.vision.patch_size") * p.side("clip.vision.projector.scale_factor")
	p.multiple("clip.vision.image_size in pixels of a token", r.side, step)
	r.grid = r.side / step
	if o.Within > 0 {
		squares := r.longest / r.side // of a side of the picture
		for squares > 1 && (squares*squares+1)*r.grid*r.grid > o.Within {
			squares--
		}
		r.longest = min(r.longest, max(1, squares)*r.side)
	}
	return r
}

func (r idefics3) size(width, height int) (Size, error) {
	width, height = r.cut(r.scaled(width, height))
	s := Size{Tiles: 1, Width: r.side, Height: r.side, Rows: r.grid, Columns: r.grid}
	if width > r.side || height > r.side {
		s.TileRows, s.TileColumns = height/r.side, width/r.side
		s.Tiles = s.TileRows*s.TileColumns + 1
	}
	return s, nil
}

// scaled returns the first size: the longer side fixed, the other one even.
func (r idefics3) scaled(width, height int) (int, int) {
	ratio := float64(width) / float64(height)
	if width >= height {
		width, height = r.longest, int(float64(r.longest)/ratio)
		height += height % 2
	} else {
		width, height = int(float64(r.longest)*ratio), r.longest
		width += width % 2
	}
	return max(1, width), max(1, height)
}

// cut returns the second size: whole squares.
func (r idefics3) cut(width, height int) (int, int) {
	up := func(side int) int { return int(math.Ceil(float64(side)/float64(r.side))) * r.side }
	ratio := float64(width) / float64(height)
	if width >= height {
		width = up(width)
		return width, max(r.side, up(int(float64(width)/ratio)))
	}
	height = up(height)
	return max(r.side, up(int(float64(height)*ratio))), height
}

func (r idefics3) most() int {
	side := (r.longest+1)/r.side + 1 // the shorter side is made even
	return (side*side + 1) * r.grid * r.grid
}

func (r idefics3) tiles(img *Image, s Size) (list []*Image) {
	width, height := r.scaled(img.Width, img.Height)
	img = resize(img, width, height, lanczos)
	width, height = r.cut(width, height)
	img = resize(img, width, height, lanczos)
	for row := range s.TileRows {
		for column := range s.TileColumns {
			list = append(list, crop(img, part{column * r.side, row * r.side, r.side, r.side}))
		}
	}
	return append(list, resize(img, r.side, r.side, lanczos))
}
