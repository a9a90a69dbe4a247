package cuda

import (
	"encoding/binary"
	"fmt"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// inputs is the GPU memory for the batches of a program, and the page-locked host memory that
// they are copied from. Both are int32 words: the two counts, the arrays at their maximum size, and
// the block tables, concatenated. A step copies only the part that it uses.
type inputs struct {
	step  cudakern.Step    // with the block tables of cache group 0
	seq   []cudakern.Ptr   // per cache group: where the table of each row's sequence begins
	axes  []cudakern.Ptr   // by axis: the coordinates of the rows
	draws cudakern.Draws   // without Tokens; none if the program has no logits
	hosts []*cudakern.Host // for each of the steps that may be started; one in programs for more rows than those ahead have
	rows  int              // maximum rows of a batch

	// Of the running batch: the sequences that have rows; and for each sequence and cache group the
	// word where its table begins, or -1.
	used  []int32
	place [][]int32
	last  []int32 // of each row, the last position of its sequence

	states bool // the program has recurrent state
}

const word = 4 // bytes of an int32

// drawWords are the words of a device.Draw.
const drawWords = cudakern.DrawBytes / word

// inputLayout determines where a batch of a program has what.
type inputLayout struct {
	rows, out, groups, blocks, axes int
	states                          bool
}

// inputsOf returns memory for batches of p, as newInputs does. Programs share it if their batches have one
// layout, because they run one after another: a model that is cut at each layer has many of them.
func (d *cuda) inputsOf(p *device.Program, blocks int) (*inputs, error) {
	limits := p.Limits()
	key := inputLayout{p.Rows, p.Out, len(limits.Blocks), blocks, limits.Axes, limits.States > 0}
	if in := d.inputs[key]; in != nil {
		return in, nil
	}
	in, err := d.newInputs(p, blocks)
	if err == nil {
		d.inputs[key] = in
	}
	return in, err
}

// newInputs allocates memory for batches of p. A table has up to blocks KV blocks; 0: the program
// reads no tables.
func (d *cuda) newInputs(p *device.Program, blocks int) (*inputs, error) {
	limits := p.Limits()
	groups := len(limits.Blocks)
	words := inputWords(p, limits)
	bytes := inputBytes(p, blocks)
	at, err := d.memory.alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("batches of %d rows: %w", p.Rows, err)
	}
	copies := 1
	if p.Rows <= device.MaxDraws {
		copies = depth
	}
	var hosts []*cudakern.Host
	for range copies {
		host, err := d.allocHost(int(bytes))
		if err != nil {
			return nil, fmt.Errorf("batches of %d rows: %w", p.Rows, err)
		}
		hosts = append(hosts, host)
	}
	array := func(word0 int) cudakern.Ptr { return at + cudakern.Ptr(word*word0) }
	in := &inputs{
		step: cudakern.Step{
			Rows:   array(0),
			Outs:   array(1),
			Tokens: array(2),
			Pos:    array(2 + p.Rows),
			Last:   array(2 + (2+groups)*p.Rows),
			Out:    array(2 + (3+groups)*p.Rows),
			Tables: array(words),
			Stride: 1,
			Blocks: blocks,
		},
		hosts: hosts,
		rows:  p.Rows,
		place: make([][]int32, groups),

		states: limits.States > 0,
	}
	if p.Out > 0 {
		first := words - drawWords*min(p.Out, device.MaxDraws)
		in.draws = cudakern.Draws{Count: array(first - 2), Settings: array(first)}
	}
	for axis := range limits.Axes {
		in.axes = append(in.axes, array(2+(3+groups+axis)*p.Rows+p.Out))
	}
	if in.states {
		first := 2 + (3+groups+limits.Axes)*p.Rows + p.Out
		in.step.Sequences, in.step.Begin, in.step.Order, in.step.Slots = array(first), array(first+1), array(first+2+p.Rows), array(first+2+2*p.Rows)
	}
	for g := range groups {
		in.seq = append(in.seq, array(2+(2+g)*p.Rows))
	}
	in.step.Seq = in.seq[0]
	return in, nil
}

// inputWords returns the maximum size of a batch of p, whose limits are l, without its block tables, in
// words.
func inputWords(p *device.Program, l device.Limits) int {
	words := 2 + (3+len(l.Blocks)+l.Axes)*p.Rows + p.Out
	if l.States > 0 {
		words += stateWords(p)
	}
	if p.Out > 0 {
		words += words%2 + 2 + drawWords*min(p.Out, device.MaxDraws) // the settings are aligned to 8 bytes
	}
	return words
}

// stateWords is the part of inputWords for recurrent state.
func stateWords(p *device.Program) int { return 2 + 3*p.Rows }

// inputBytes returns the maximum size of a batch of p in bytes: every row belongs to another
// sequence, and each sequence has a table of blocks KV blocks in each cache group.
func inputBytes(p *device.Program, blocks int) int64 {
	limits := p.Limits()
	return word * (int64(inputWords(p, limits)) + int64(len(limits.Blocks))*int64(p.Rows)*int64(blocks))
}

// write writes b to the host memory of a slot and returns the part to copy to the GPU.
func (in *inputs) write(b *device.Batch, slot int) ([]byte, error) {
	if err := in.arrange(b); err != nil {
		return nil, err
	}
	memory := in.hosts[slot%len(in.hosts)].Bytes()
	put := func(at cudakern.Ptr, values ...int32) {
		to := memory[at-in.step.Rows:]
		for i, v := range values {
			binary.NativeEndian.PutUint32(to[word*i:], uint32(v))
		}
	}
	put(in.step.Rows, int32(len(b.Tokens)), int32(len(b.Out)))
	put(in.step.Tokens, b.Tokens...)
	put(in.step.Pos, b.Pos...)
	for g, at := range in.seq {
		for i, s := range b.Seq {
			put(at+cudakern.Ptr(word*i), in.place[g][s])
		}
	}
	in.last = b.LastPos(in.last[:0])
	put(in.step.Last, in.last...)
	put(in.step.Out, b.Out...)
	for axis, at := range in.axes {
		put(at, b.Coordinates[axis]...)
	}
	if in.states {
		in.putStates(b, put)
	}
	if in.draws.Count != 0 {
		put(in.draws.Count, int32(len(b.Draws)))
		settings := memory[in.draws.Settings-in.step.Rows:]
		for i, d := range b.Draws {
			drawOf(d).Put(settings[i*cudakern.DrawBytes:])
		}
	}
	end := in.step.Tables
	for g := range in.seq {
		for _, s := range in.used {
			if table := b.Tables[g][s]; in.step.Blocks > 0 {
				put(end, table...)
				end += cudakern.Ptr(word * len(table))
			}
		}
	}
	return memory[:end-in.step.Rows], nil
}

// putStates writes the rows of each sequence that has any, and its slot.
func (in *inputs) putStates(b *device.Batch, put func(at cudakern.Ptr, values ...int32)) {
	put(in.step.Sequences, int32(len(in.used)))
	begin := int32(0)
	for i, s := range in.used {
		put(in.step.Begin+cudakern.Ptr(word*i), begin)
		put(in.step.Slots+cudakern.Ptr(word*i), b.States[s])
		for row, of := range b.Seq {
			if of == s {
				put(in.step.Order+cudakern.Ptr(word*begin), int32(row))
				begin++
			}
		}
	}
	put(in.step.Begin+cudakern.Ptr(word*len(in.used)), begin)
}

// arrange sets used and place. Only sequences that have rows get tables, so that there are at most as
// many tables as rows in each cache group.
func (in *inputs) arrange(b *device.Batch) error {
	in.used = in.used[:0]
	words := int32(0) // of the tables so far
	for g := range in.place {
		in.place[g] = in.place[g][:0]
		for range b.Tables[g] {
			in.place[g] = append(in.place[g], -1)
		}
		for _, s := range b.Seq {
			if in.place[g][s] >= 0 {
				continue
			}
			length := len(b.Tables[g][s])
			if in.step.Blocks > 0 && length > in.step.Blocks {
				return fmt.Errorf("sequence %d has a table of %d KV blocks, the longest has %d", s, length, in.step.Blocks)
			}
			in.place[g][s] = words
			words += int32(length)
			if g == 0 {
				in.used = append(in.used, s)
			}
		}
	}
	return nil
}
