package picture

// llava scales the shorter side to that of a square and takes the middle of the longer one.
type llava struct{ side, grid int }

func newLLaVA(p *parameters, _ Options) rule {
	if p.file.Has("clip.vision.image_grid_pinpoints") {
		p.fail("pictures cut into a grid (clip.vision.image_grid_pinpoints, LLaVA 1.6) are not supported; use LLaVA 1.5")
	}
	l := llava{side: p.side("clip.vision.image_size")}
	patch := p.side("clip.vision.patch_size")
	p.multiple("clip.vision.image_size in patches", l.side, patch)
	l.grid = l.side / patch
	return l
}

func (l llava) size(int, int) (Size, error) {
	return Size{Tiles: 1, Width: l.side, Height: l.side, Rows: l.grid, Columns: l.grid}, nil
}

func (l llava) most() int { return l.grid * l.grid }

func (l llava) tiles(img *Image, s Size) []*Image {
	width, height := l.side, l.side
	if img.Width <= img.Height {
		height = l.side * img.Height / img.Width
	} else {
		width = l.side * img.Width / img.Height
	}
	middle := part{left: (width - l.side) / 2, top: (height - l.side) / 2, width: l.side, height: l.side}
	return []*Image{resizePart(img, width, height, middle, bicubic)}
}
