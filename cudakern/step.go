package cudakern

import "fmt"

// Step is the batch of one step, in device memory: arrays of int32.
//
// A launch has the size of a row bucket, its capacity. The kernels read the actual number of rows
// from Rows, or from Outs after GatherRows. So one captured graph runs every step of its bucket. Pos, Last and
// Seq have places for capacity rows: kernels may read those past the last row, and ignore them.
type Step struct {
	Rows   Ptr // (1) number of rows
	Tokens Ptr // (rows) token of each row
	Pos    Ptr // (rows) position of the row in its sequence
	Last   Ptr // (rows) last position that the row's sequence has in the batch
	Seq    Ptr // (rows) where the table of the row's sequence begins, in units of Stride; different for each sequence
	Tables Ptr // block tables of the sequences
	Stride int // unit of Seq in elements of Tables: 1 if tables are concatenated
	Blocks int // maximum blocks of one sequence
	Outs   Ptr // (1) number of rows to gather
	Out    Ptr // (outs) rows to gather

	// Of programs with recurrent state: the rows of sequence s are Order[Begin[s]] … Order[Begin[s+1]-1].
	Sequences Ptr // (1) number of sequences with rows
	Begin     Ptr // (sequences + 1)
	Order     Ptr // (rows) rows by sequence, in the order of their positions
	Slots     Ptr // (sequences) slot of the sequence's state
}

// Cache is a paged KV cache in device memory: [block][layer][K|V][kv head][32][dim].
type Cache struct {
	Data    Ptr
	Half    bool // float16 instead of float32
	Layers  int
	KVHeads int
	HeadDim int
	Latent  int // elements of a value in a latent cache, the first ones of the key; 0: the cache stores values
}

// element returns the name of the cache's element type in names of modules and kernels.
func element(half bool) string {
	if half {
		return "f16"
	}
	return "f32"
}

// elementBytes returns the size of an element of the cache.
func elementBytes(half bool) int {
	if half {
		return 2
	}
	return 4
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
