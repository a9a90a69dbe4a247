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

// Format is a format of the keys or values in a KV cache: those of formats.cuh, with the bits of device.CacheType.
type Format int32

const (
	FormatF32 Format = iota
	FormatF16
	FormatQ8
	FormatQ4
)

// Quantized reports whether elements are codes with scales.
func (f Format) Quantized() bool { return f >= FormatQ8 }

// CacheType is the format of keys and that of values, which counts for nothing in a latent cache.
type CacheType struct{ Keys, Values Format }

// CacheOf returns the CacheType of keys and values in a format.
func CacheOf(f Format) CacheType { return CacheType{f, f} }

// half reports whether keys and values are float16, for which there are kernels of their own.
func (t CacheType) half() bool { return t == CacheOf(FormatF16) }

// Quantized reports whether keys and values are quantized.
func (t CacheType) Quantized() bool { return t.Keys.Quantized() && t.Values.Quantized() }

// element returns the format in names of modules and kernels.
func (t CacheType) element() string {
	if t.half() {
		return "f16"
	}
	return "any"
}

// elementBytes returns the size of an element that kernels compute with.
func (t CacheType) elementBytes() int {
	if t.half() {
		return 2
	}
	return 4
}

// Cache is a paged KV cache in device memory: [block][layer][K|V][kv head][32][dim].
type Cache struct {
	Data    Ptr
	Type    CacheType
	Layers  int
	KVHeads int
	HeadDim int
	Latent  int // elements of a value in a latent cache, the first ones of the key; 0: the cache stores values
}

// arguments returns the arguments of kernels that say what the cache is.
func (c Cache) arguments() []any {
	if c.Type.half() {
		return []any{c.Data}
	}
	return []any{c.Data, int32(c.Type.Keys), int32(c.Type.Values)}
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
