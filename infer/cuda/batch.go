package cuda

import (
	"encoding/binary"
	"fmt"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// inputs is the GPU memory for the batches of one program, and the page-locked host memory that
// they are copied from. Both are int32 words: the two counts, the arrays at their maximum size, and
// the block tables, concatenated. A step copies only the part that it uses.
type inputs struct {
	step cudakern.Step
	host *cudakern.Host
	rows int // maximum rows of a batch

	// Of the running batch: the sequences that have rows, in the order of their tables on the
	// GPU; and for each sequence the word where its table begins, or -1.
	used  []int32
	place []int32
}

const word = 4 // bytes of an int32

// newInputs allocates memory for batches of p. A table has up to blocks KV blocks; 0: the program
// reads no tables.
func (d *cuda) newInputs(p *device.Program, blocks int) (*inputs, error) {
	words := 2 + 3*p.Rows + p.Out
	bytes := inputBytes(p, blocks)
	at, err := d.memory.alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("batches of %d rows: %w", p.Rows, err)
	}
	host, err := d.allocHost(int(bytes))
	if err != nil {
		return nil, fmt.Errorf("batches of %d rows: %w", p.Rows, err)
	}
	array := func(word0 int) cudakern.Ptr { return at + cudakern.Ptr(word*word0) }
	return &inputs{
		step: cudakern.Step{
			Rows:   array(0),
			Outs:   array(1),
			Tokens: array(2),
			Pos:    array(2 + p.Rows),
			Seq:    array(2 + 2*p.Rows),
			Out:    array(2 + 3*p.Rows),
			Tables: array(words),
			Stride: 1,
			Blocks: blocks,
		},
		host: host,
		rows: p.Rows,
	}, nil
}

// inputBytes returns the maximum size of a batch of p in bytes: every row belongs to another
// sequence, and each sequence has a table of blocks KV blocks.
func inputBytes(p *device.Program, blocks int) int64 {
	return word * (int64(2+3*p.Rows+p.Out) + int64(p.Rows)*int64(blocks))
}

// write writes b to host memory and returns the part to copy to the GPU. Only sequences that have
// rows get a table, so that there are at most as many tables as rows.
func (in *inputs) write(b *device.Batch) ([]byte, error) {
	in.used, in.place = in.used[:0], in.place[:0]
	for range b.Tables {
		in.place = append(in.place, -1)
	}
	words := int32(0) // of the tables so far
	for _, s := range b.Seq {
		if in.place[s] >= 0 {
			continue
		}
		length := len(b.Tables[s])
		if in.step.Blocks > 0 && length > in.step.Blocks {
			return nil, fmt.Errorf("sequence %d has a table of %d KV blocks, the cache has %d", s, length, in.step.Blocks)
		}
		in.place[s] = words
		in.used = append(in.used, s)
		words += int32(length)
	}

	memory := in.host.Bytes()
	put := func(at cudakern.Ptr, values ...int32) {
		to := memory[at-in.step.Rows:]
		for i, v := range values {
			binary.NativeEndian.PutUint32(to[word*i:], uint32(v))
		}
	}
	put(in.step.Rows, int32(len(b.Tokens)), int32(len(b.Out)))
	put(in.step.Tokens, b.Tokens...)
	put(in.step.Pos, b.Pos...)
	for i, s := range b.Seq {
		put(in.step.Seq+cudakern.Ptr(word*i), in.place[s])
	}
	put(in.step.Out, b.Out...)
	end := in.step.Tables
	if in.step.Blocks > 0 {
		for _, s := range in.used {
			put(end, b.Tables[s]...)
			end += cudakern.Ptr(word * len(b.Tables[s]))
		}
	}
	return memory[:end-in.step.Rows], nil
}
