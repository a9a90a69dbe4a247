package model

import "m40-llm/infer/picture"

// Layers returns what enters the first layer of the tower for a tile of a picture, the results of all layers, and the rows of the tile
// that the projector gets.
func (t *Tower) Layers(p *picture.Pixels, tile int) (layers [][]float32, result []float32, err error) {
	pixels := p.Data
	for i := range tile {
		pixels = pixels[p.Tile(i).Values():]
	}
	g := t.gridOf(p.Tile(tile))
	if err := t.write(g, pixels[:p.Tile(tile).Values()]); err != nil {
		return nil, nil, err
	}
	for i, stage := range t.stages {
		b := t.batch(g)
		if stage.windowed {
			b = t.windows(g)
		}
		if err := stage.run.Run(b); err != nil {
			return nil, nil, err
		}
		features, err := t.result(g)
		if err != nil {
			return nil, nil, err
		}
		if i == 0 || stage.ends > 0 {
			layers = append(layers, features)
		}
		result = features
	}
	return layers, result, nil
}

// Joined returns the input of the projector.
func (t *Tower) Joined(p *picture.Pixels, result []float32) []float32 {
	return t.family.join(t, t.gridOf(p.Tile(0)), result)
}

// Width returns the width of the tower.
func (t *Tower) Width() int { return t.dim }
