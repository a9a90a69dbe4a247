package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// What a prompt takes on a Tesla M40: products of many rows (matmul_many.cu), which arithmetic limits. Attention and the time to read weights are not
// counted.
const (
	busyOfMany  = 0.75             // of the rate that the busiest unit allows; not measured
	tile        = 8 * 8            // results of a thread
	blockInputs = 32               // each a product for every result
	leafInputs  = 32 * blockInputs // of a row, for each block of a leaf
	mostCycles  = 1.5              // that a kernel may take for a product
)

// many is what the loops of a kernel for many rows cost.
type many struct {
	block cost // of a block of inputs
	leaf  cost // of what follows the blocks of a leaf
}

// perProduct returns the cycles of the busiest unit for a product of every lane, with inputs inputs.
func (m many) perProduct(inputs int) float64 {
	blocks := float64(inputs) / leafInputs
	cycles := func(of func(cost) int) float64 { return float64(of(m.block)) + float64(of(m.leaf))/blocks }
	return max(cycles(func(c cost) int { return c.issue }), cycles(func(c cost) int { return c.alu }), cycles(func(c cost) int { return c.conversion }),
		cycles(func(c cost) int { return c.memory })) / (tile * blockInputs)
}

// many returns the costs of a kernel's loops: those over words, which multiply, in that over blocks, in that over leaves.
func (k kernel) many() (m many, err error) {
	products := func(loop [2]int) (n int) {
		for _, i := range k.code[loop[0] : loop[1]+1] {
			if strings.HasPrefix(i.op, "XMAD") || strings.HasPrefix(i.op, "FFMA") {
				n++
			}
		}
		return n
	}
	loops := k.loops()
	inner := slices.DeleteFunc(slices.Clone(loops), func(l [2]int) bool { return products(l) < 4*tile || slices.ContainsFunc(loops, within(l)) })
	if len(inner) == 0 {
		return m, fmt.Errorf("%s has no loop over words", k.name)
	}
	around := func(l [2]int) ([2]int, error) {
		found := slices.DeleteFunc(slices.Clone(loops), func(outer [2]int) bool { return !within(outer)(l) })
		if len(found) == 0 {
			return l, fmt.Errorf("%s has no loop around that over words or blocks", k.name)
		}
		return slices.MinFunc(found, func(a, b [2]int) int { return a[1] - a[0] - b[1] + b[0] }), nil
	}
	blocks, err := around(inner[0])
	if err != nil {
		return m, err
	}
	leaves, err := around(blocks)
	if err != nil {
		return m, err
	}
	var wrong []error
	costOf := func(l [2]int) cost {
		c, err := count(k.code[l[0] : l[1]+1])
		wrong = append(wrong, err)
		return c
	}
	m.block = costOf(blocks)
	m.leaf = costOf(leaves).plus(m.block, -1)
	all := 0 // products of all inner loops, each once; a few XMAD compute addresses
	for _, l := range inner {
		all += products(l) / (4 * tile) * (4 * tile)
	}
	for _, l := range inner {
		m.block = m.block.plus(costOf(l), tile*blockInputs/all-1)
	}
	return m, errors.Join(wrong...)
}

// within returns whether a loop is in outer and is not outer.
func within(outer [2]int) func([2]int) bool {
	return func(l [2]int) bool { return l != outer && l[0] >= outer[0] && l[1] <= outer[1] }
}

// plus returns c and times other.
func (c cost) plus(other cost, times int) cost {
	c.instructions += times * other.instructions
	c.issue += times * other.issue
	c.alu += times * other.alu
	c.conversion += times * other.conversion
	c.memory += times * other.memory
	return c
}

// printPrompts prints what kernels for many rows take, and how many tokens of prompts a second that would allow.
func printPrompts(out io.Writer) error {
	fmt.Fprintln(out, "\n| many rows | instructions | issue | ALU | conversion | load/store | cycles for a product, 4096 inputs |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	costs := map[string]many{}
	for _, w := range weights {
		if w.loads >= 256 {
			continue // floats have no such kernel
		}
		kernels, err := kernelsOf("many_" + w.name)
		if err != nil {
			return err
		}
		m, err := kernels[0].many()
		if err != nil {
			return err
		}
		costs[w.name] = m
		each := func(n int) float64 { return float64(n) / (tile * blockInputs) }
		fmt.Fprintf(out, "| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", w.name, each(m.block.instructions), each(m.block.issue), each(m.block.alu),
			each(m.block.conversion), each(m.block.memory), m.perProduct(4096))
		if cycles := m.perProduct(4096); cycles > mostCycles {
			return fmt.Errorf("%s takes %.2f cycles for a product, more than %.2f", kernels[0].name, cycles, mostCycles)
		}
	}
	fmt.Fprintln(out, "\n| model | prompt, tokens/s |")
	fmt.Fprintln(out, "|---|---|")
	for _, s := range shapes() {
		cycles := 0.0
		for _, m := range s.matrices {
			if m.count > 1 { // the output layer has one row
				cycles += float64(m.outputs) * float64(m.inputs) * float64(m.count) * costs[m.typ].perProduct(m.inputs)
			}
		}
		fmt.Fprintf(out, "| %s | %.0f |\n", s.name, busyOfMany*multiprocessors*lanes*clock/cycles)
	}
	return nil
}
