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

// quantizedHeadsMemory is the same of attention_heads_quantized.cuh: its CodesMemory.
func quantizedHeadsMemory(dim, queries int) int {
	const tiles = headsThreads / 32
	codes, scales := tiles*32*(dim+16), tiles*2*dim
	return 4*(queries*dim+tiles*32*queries+2*2*4*queries+4) + codes + scales
}

// loadHeads loads the kernel of attention_heads.cu for a, if there is one.
func (a *Attention) loadHeads(c *Context, t CacheType) error {
	group := a.heads / a.kvHeads
	if !t.half() && !t.Quantized() || a.latent > 0 || a.dim != 64 && a.dim != 128 {
		return nil
	}
	a.headsPerBlock = blocksFor(group, blocksFor(group, mostHeads))
	queries := 2
	if a.headsPerBlock > 2 {
		queries = 4
	}
	module := "attention_heads"
	a.headsRows, a.headsShared = headsRows, headsMemory(a.dim, queries)
	if t.Quantized() {
		module += "_quantized"
		a.headsRows, a.headsShared = splitRows, quantizedHeadsMemory(a.dim, queries)
	}
	kernel, err := c.kernel(module, fmt.Sprintf("%s_d%d_n%d", module, a.dim, queries))
	if err != nil {
		return err
	}
	kernel.divides, kernel.overlaps = true, a.overlaps
	a.byHeads = kernel
	return nil
}
