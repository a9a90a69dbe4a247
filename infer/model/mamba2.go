package model

import "slices"

// mambaTwo is Mamba 2: recurrent state in every layer, and no attention.
var mambaTwo = architecture{
	hybrid:  true,
	tensors: slices.Concat(ends, oneNorm, mamba),
	read:    func(m *metadata, c *Config) { c.recurWithoutAttention(m.scan(mamba2)) },
}
