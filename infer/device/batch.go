package device

import (
	"fmt"
	"slices"
)

// Batch is the input of one step: rows of several sequences, prefill and decode
// mixed. The rows of one sequence are in the order of their positions.
type Batch struct {
	Tokens []int32 // (rows) token of each row
	Pos    []int32 // (rows) position of the row in its sequence
	Seq    []int32 // (rows) sequence of the row, an index into the tables of each cache group
	Out    []int32 // rows whose logits are computed, ascending

	// Ends has for each row the last position that it attends to, in programs whose attention has Spans: its own, or that of
	// the last row of the batch in a span whose rows see each other. Other programs do not read it.
	Ends []int32

	// Coordinates have for each axis the coordinate of each row, in programs whose RoPE has that Axis. Other programs do not
	// read them.
	Coordinates [][]int32

	// Inputs replace the embeddings of the tokens of some rows. Only package model reads them.
	Inputs []Input

	// Tables are the block tables by cache group and sequence: the KV blocks of positions 0-31, 32-63, ….
	// A block that is outside the windows of all rows has no effect on results, whatever it holds.
	Tables [][][]int32

	States []int32 // by sequence: its slot of the recurrent state, no two the same; not read if the program has none

	// Draws is how each row of Out draws the token that follows it, on a device that is Pipelined; empty: none is
	// drawn. Ahead makes row i have the token that row i of Out of the step before drew, in place of Tokens[i].
	Draws []Draw
	Ahead bool

	// Prompt says that all rows are of prompts: see model.Options.Prompts and Stream. Only package model reads it.
	Prompt bool
}

// Input is what rows of a batch have in place of the embeddings of their tokens.
type Input struct {
	Row    int       // the first of them
	Values []float32 // whole rows, each as wide as the embeddings, and as often more as the model adds vectors after layers
}

// LastPos appends, for each row, Ends or, without these, the last position that its sequence has in the batch, to list.
func (b *Batch) LastPos(list []int32) []int32 {
	if len(b.Ends) > 0 {
		return append(list, b.Ends...)
	}
	last := make([]int32, len(b.Tables[0]))
	for i, s := range b.Seq {
		last[s] = max(last[s], b.Pos[i])
	}
	for _, s := range b.Seq {
		list = append(list, last[s])
	}
	return list
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
		if b.Pos[i] < 0 || int(b.Pos[i]) >= l.Positions {
			return fmt.Errorf("row %d: position %d is outside the embedding table of %d positions", i, b.Pos[i], l.Positions)
		}
	}
	if err := b.checkEnds(l); err != nil {
		return err
	}
	if err := b.checkCoordinates(l); err != nil {
		return err
	}
	if err := b.checkStates(l); err != nil {
		return err
	}
	if err := b.checkDraws(); err != nil {
		return err
	}
	if len(b.Tables) < len(l.Blocks) {
		return fmt.Errorf("batch has block tables of %d cache groups, want %d", len(b.Tables), len(l.Blocks))
	}
	for g, blocks := range l.Blocks {
		if err := b.checkTables(b.Tables[g], blocks); err != nil {
			return err
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

// checkEnds returns an error unless each row of a program with Spans has an end, which is a row of the batch.
func (b *Batch) checkEnds(l Limits) error {
	if !l.Spans && len(b.Ends) == 0 {
		return nil
	}
	if len(b.Ends) != len(b.Pos) {
		return fmt.Errorf("batch has %d ends of spans for %d rows", len(b.Ends), len(b.Pos))
	}
	for i, end := range b.Ends {
		ahead := i + int(end) - int(b.Pos[i])
		if end < b.Pos[i] || ahead >= len(b.Pos) || b.Seq[ahead] != b.Seq[i] || b.Pos[ahead] != end {
			return fmt.Errorf("row %d: position %d, the end of its span, is not in the batch", i, end)
		}
	}
	return nil
}

// checkCoordinates returns an error unless each row has a coordinate on each axis of the program.
func (b *Batch) checkCoordinates(l Limits) error {
	for axis := range l.Axes {
		if axis >= len(b.Coordinates) || len(b.Coordinates[axis]) != len(b.Pos) {
			return fmt.Errorf("batch has no coordinates of %d rows on axis %d", len(b.Pos), axis+1)
		}
		for i, at := range b.Coordinates[axis] {
			if at < 0 {
				return fmt.Errorf("row %d: coordinate %d on axis %d is negative", i, at, axis+1)
			}
		}
	}
	return nil
}

// checkTables returns an error unless tables has a block for each row, and all its blocks are among the
// first blocks. If blocks is 0, nothing reads them.
func (b *Batch) checkTables(tables [][]int32, blocks int) error {
	for i, pos := range b.Pos {
		if b.Seq[i] < 0 || int(b.Seq[i]) >= len(tables) {
			return fmt.Errorf("row %d: sequence %d is outside the batch's %d block tables", i, b.Seq[i], len(tables))
		}
		if table := tables[b.Seq[i]]; blocks > 0 && int(pos)/BlockSize >= len(table) {
			return fmt.Errorf("row %d: position %d is outside its block table of %d blocks", i, pos, len(table))
		}
	}
	for s, table := range tables {
		for _, id := range table {
			if blocks > 0 && (id < 0 || int(id) >= blocks) {
				return fmt.Errorf("sequence %d: KV block %d is outside the cache of %d blocks", s, id, blocks)
			}
		}
	}
	return nil
}

// checkStates returns an error unless each sequence of a row has a slot of its own, if the program has
// recurrent state.
func (b *Batch) checkStates(l Limits) error {
	if l.States == 0 {
		return nil
	}
	for i, s := range b.Seq {
		if s < 0 || int(s) >= len(b.States) {
			return fmt.Errorf("row %d: sequence %d is outside the batch's %d state slots", i, s, len(b.States))
		}
	}
	for s, slot := range b.States {
		if slot < 0 || int(slot) >= l.States {
			return fmt.Errorf("sequence %d: state slot %d does not exist, there are %d", s, slot, l.States)
		}
		if slices.Contains(b.States[:s], slot) {
			return fmt.Errorf("sequence %d: state slot %d belongs to another sequence too", s, slot)
		}
	}
	return nil
}
