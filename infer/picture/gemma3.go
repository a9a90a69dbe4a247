package picture

// gemma3 stretches every picture to one square.
type gemma3 struct{ side, grid int }

// gemma3Pooling is the published width and height of the patches that become a token.
const gemma3Pooling = 4

func newGemma3(p *parameters, _ Options) rule {
	g := gemma3{side: p.side("clip.vision.image_size")}
	step := p.side("clip.vision.patch_size") * p.sideOr("clip.vision.projector.scale_factor", gemma3Pooling)
	p.multiple("clip.vision.image_size in pixels of a token", g.side, step)
	g.grid = g.side / step
	return g
}

func (g gemma3) size(int, int) (Size, error) {
	return Size{Tiles: 1, Width: g.side, Height: g.side, Rows: g.grid, Columns: g.grid}, nil
}

func (g gemma3) most() int { return g.grid * g.grid }

func (g gemma3) tiles(img *Image, s Size) []*Image {
	return []*Image{resize(img, s.Width, s.Height, bilinear)}
}
