package device

import "fmt"

// Batch is the input of one step: rows of several sequences, prefill and decode
// mixed. The rows of one sequence are in the order of their positions.
type Batch struct {
	Tokens []int32   // (rows) token of each row
	Pos    []int32   // (rows) position of the row in its sequence
	Seq    []int32   // (rows) sequence of the row, an index into Tables
	Tables [][]int32 // per sequence: KV block of positions 0-31, 32-63, …
	Out    []int32   // rows whose logits are computed, ascending
}

// Check returns an error if b would make a program with the limits l read or write outside its
// memory. The error names the first wrong row, sequence or count.
func (b *Batch) Check(l Limits) error {
	n := len(b.Tokens)
	switch {
	case n == 0 || n > l.Rows:
		return fmt.Errorf("batch has %d rows, want 1 to %d", n, l.Rows)
	case len(b.Pos) != n || len(b.Seq) != n:
		return fmt.Errorf("batch has %d tokens, %d positions and %d sequence numbers", n, len(b.Pos), len(b.Seq))
	case len(b.Out) > l.Out:
		return fmt.Errorf("batch requests the logits of %d rows, the limit is %d", len(b.Out), l.Out)
	}
	for i := range n {
		if b.Tokens[i] < 0 || int(b.Tokens[i]) >= l.Vocab {
			return fmt.Errorf("row %d: token %d is outside the vocabulary of %d", i, b.Tokens[i], l.Vocab)
		}
		if b.Seq[i] < 0 || int(b.Seq[i]) >= len(b.Tables) {
			return fmt.Errorf("row %d: sequence %d is outside the batch's %d block tables", i, b.Seq[i], len(b.Tables))
		}
		if b.Pos[i] < 0 || int(b.Pos[i])/BlockSize >= len(b.Tables[b.Seq[i]]) {
			return fmt.Errorf("row %d: position %d is outside its block table of %d blocks", i, b.Pos[i], len(b.Tables[b.Seq[i]]))
		}
		if int(b.Pos[i]) >= l.Positions {
			return fmt.Errorf("row %d: position %d is outside the embedding table of %d positions", i, b.Pos[i], l.Positions)
		}
	}
	for s, table := range b.Tables {
		for _, id := range table {
			if id < 0 || int(id) >= l.Blocks {
				return fmt.Errorf("sequence %d: KV block %d is outside the cache of %d blocks", s, id, l.Blocks)
			}
		}
	}
	last := int32(-1)
	for _, r := range b.Out {
		if r <= last || int(r) >= n {
			return fmt.Errorf("output row %d is out of order or outside the batch of %d rows", r, n)
		}
		last = r
	}
	return nil
}
