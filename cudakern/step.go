package cudakern

import "fmt"

// Step is the batch of one step, in device memory: arrays of int32.
//
// A launch is sized for a row bucket, its capacity; how many rows there really are, the
// kernels read from Rows (or from Outs, for what follows GatherRows). So one captured
// graph serves every step of its bucket.
type Step struct {
	Rows   Ptr // (1) number of rows
	Tokens Ptr // (rows) token of each row
	Pos    Ptr // (rows) its position in its own sequence
	Seq    Ptr // (rows) where the table of its sequence begins, in units of Stride; other sequences begin elsewhere
	Tables Ptr // KV blocks of the sequences
	Stride int // elements of Tables that Seq counts in: 1 where tables lie close together
	Blocks int // most blocks of one sequence
	Outs   Ptr // (1) number of rows to gather
	Out    Ptr // (outs) their numbers
}

// Cache is a paged KV cache in device memory: [block][layer][K|V][kv head][32][dim].
type Cache struct {
	Data    Ptr
	Half    bool // float16, or else float32
	Layers  int
	KVHeads int
	HeadDim int
	Latent  int // values are so many first elements of the keys; 0: there are values beside keys
}

// parts returns 1 where there are only keys, otherwise 2.
func (c Cache) parts() int32 {
	if c.Latent > 0 {
		return 1
	}
	return 2
}

// values returns the width of a head's value.
func (c Cache) values() int {
	if c.Latent > 0 {
		return c.Latent
	}
	return c.HeadDim
}

// element is the name of the cache's number format in module and kernel names.
func element(half bool) string {
	if half {
		return "f16"
	}
	return "f32"
}

// blockPositions is the number of positions in one block of a KV cache.
const blockPositions = 32

// threads is the size of a block of all kernels that say nothing else.
const threads = 256

// kernel loads the kernel called name of a module.
func (c *Context) kernel(module, name string) (*Function, error) {
	m, err := c.Family(module)
	if err != nil {
		return nil, err
	}
	return m.Function(name)
}

// blocksFor returns the number of blocks of size that cover n.
func blocksFor(n, size int) int { return (n + size - 1) / size }

// checkLaunch refuses what no kernel can run over.
func checkLaunch(what string, capacity, cols int) error {
	// The second and third extents of a grid end at 65535.
	if capacity < 1 || capacity > 65535 || cols < 1 {
		return fmt.Errorf("%s cannot run over %d rows of %d", what, capacity, cols)
	}
	return nil
}
