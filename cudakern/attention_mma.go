package cudakern

import "fmt"

const (
	matrixHeads      = 8   // query heads of a row that share a block of attention_mma.cu
	matrixRowThreads = 256 // ROW_THREADS
	matrixQueries    = 64  // ROWS_QUERIES
	matrixThreads    = 128 // ROWS_THREADS
)

// matrixAttention has the kernels of attention_mma.cu for some heads.
type matrixAttention struct {
	row, rows             *Function
	rowShared, rowsShared int // shared memory of a block in bytes
	perRow                int // query heads of a row that share a block
}

// hasMatrixAttention reports whether attention_mma.cu has the kernels: for GPUs and heads with which it was measured. With heads of 64 elements answers were
// slower than with the other kernels.
func hasMatrixAttention(c *Context, t CacheType, dim, latent int, capped bool) bool {
	fits := c.properties.overlaps() && c.properties.MaxShared >= largeShared
	return c.Units == UnitsMMA && fits && t.half() && latent == 0 && !capped && dim == 128
}

// newMatrixAttention loads the kernels for groups of group query heads that share keys and values.
func newMatrixAttention(c *Context, group, dim int) (*matrixAttention, error) {
	unit, queries := 2*2*unitPositions*dim, 2*2*dim // queries: of one
	m := &matrixAttention{perRow: blocksFor(group, blocksFor(group, matrixHeads))}
	m.rowShared = unit + 8*queries + 8*32*16 + 4*8*8 + 4*2*8 + 2*2*dim + 16                        // RowMemory
	m.rowsShared = unit + matrixQueries*queries + 8*matrixQueries + 48 + (4+8)*matrixQueries + 8*4 // RowsMemory
	module := fmt.Sprint("attention_mma_d", dim)
	for _, k := range []struct {
		to     **Function
		name   string
		shared int
	}{{&m.row, "row", m.rowShared}, {&m.rows, "rows", m.rowsShared}} {
		f, err := c.kernel(module, module+"_"+k.name)
		if err != nil {
			return nil, err
		}
		if err := f.SetMaxShared(k.shared); err != nil {
			return nil, err
		}
		*k.to = f
	}
	m.row.divides = true
	return m, nil
}

// launch returns how capacity rows are computed. shares: neighbouring rows of a sequence share a block. overlaps: launches of few rows can.
func (m *matrixAttention) launch(capacity int, shares, overlaps bool) attentionLaunch {
	if shares {
		return attentionLaunch{kernel: *m.rows, heads: m.perRow, rows: matrixQueries / m.perRow, threads: matrixThreads, shared: m.rowsShared}
	}
	k := attentionLaunch{kernel: *m.row, heads: m.perRow, rows: 1, threads: matrixRowThreads, together: 2, shared: m.rowShared}
	k.kernel.overlaps = overlaps && capacity <= headsRows
	return k
}

// MatrixUnits reports whether matrix units compute the attention: then its bits also depend on the generation of the GPU.
func (a *Attention) MatrixUnits() bool { return a.matrix != nil }
