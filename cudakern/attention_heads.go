package cudakern

import "fmt"

const (
	headsRows    = 4   // up to this many rows, attention_heads.cu computes attention
	mostHeads    = 4   // query heads of a block of it
	headsThreads = 256 // of a block of it
)

// headsMemory returns the shared memory of a block of attention_heads.cu for queries query heads of dim elements: its HeadsMemory.
func headsMemory(dim, queries int) int {
	rows, own := unitPositions*(2*dim+16), 2*2*dim
	return rows + own + 4*(queries*dim+queries*unitPositions+4*queries*dim+2*4*queries+4)
}

// loadHeads loads the kernel of attention_heads.cu for a, if there is one.
func (a *Attention) loadHeads(c *Context, half bool) error {
	group := a.heads / a.kvHeads
	if !half || a.latent > 0 || a.dim != 64 && a.dim != 128 {
		return nil
	}
	a.headsPerBlock = blocksFor(group, blocksFor(group, mostHeads))
	queries := 2
	if a.headsPerBlock > 2 {
		queries = 4
	}
	name := fmt.Sprintf("attention_heads_d%d_n%d", a.dim, queries)
	kernel, err := c.kernel("attention_heads", name)
	if err != nil {
		return err
	}
	kernel.divides, kernel.overlaps = true, a.overlaps
	a.byHeads, a.headsQueries = kernel, queries
	return nil
}
