package grammar

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// program is a grammar compiled to instructions that read bytes or tokens or call rules.
// Rules share no instructions; each ends with its own opcodeEnd.
type program struct {
	code      []instruction
	outs      []int32     // of opcodeSplit
	ranges    []byteRange // of opcodeRanges
	rules     []rule
	root      int32
	classOf   [256]uint8 // by byte; bytes that all instructions treat alike have one class
	classByte []byte     // one byte of each class
}

type rule struct {
	name     string
	start    int32 // instruction
	nullable bool  // matches the empty text
	minDepth int32 // open calls that the derivation with the fewest of them needs
	order    int32 // a rule comes before those that it can call before it reads anything
}

// instruction is kept small because waiting requests hold their grammars.
type instruction struct {
	opcode    opcode
	tail      bool  // of opcodeCall: the rule ends where the call returns
	low, high byte  // of opcodeByte
	out       int32 // the next instruction; of opcodeSplit and opcodeRanges the end of its list
	arg       int32 // of opcodeToken the id, of opcodeCall the rule, of opcodeSplit and opcodeRanges the start of its list
	minDepth  int32 // as of a rule, from here to the rule's end
}

type opcode uint8

const (
	opcodeSplit  opcode = iota // continues at each of a list of instructions
	opcodeByte                 // reads a byte from low to high
	opcodeRanges               // reads a byte in one of a sorted list of ranges
	opcodeToken                // reads a token
	opcodeCall                 // calls a rule and continues at out
	opcodeEnd                  // returns from the rule
)

// byteRange are the bytes from low to high; out is the next instruction.
type byteRange struct {
	low, high byte
	out       int32
}

// splitOuts returns the instructions at which a split continues.
func (p *program) splitOuts(in *instruction) []int32 { return p.outs[in.arg:in.out] }

// after returns the instruction after in has read byte b; -1 if in does not read b.
func (p *program) after(in *instruction, b byte) int32 {
	switch in.opcode {
	case opcodeByte:
		if in.low <= b && b <= in.high {
			return in.out
		}
	case opcodeRanges:
		list := p.ranges[in.arg:in.out]
		i := sort.Search(len(list), func(i int) bool { return b <= list[i].high })
		if i < len(list) && list[i].low <= b {
			return list[i].out
		}
	}
	return -1
}

// bytes returns the approximate size of the program in memory.
func (p *program) bytes() int {
	total := len(p.code)*int(unsafe.Sizeof(instruction{})) + len(p.outs)*4 + len(p.ranges)*int(unsafe.Sizeof(byteRange{}))
	for _, r := range p.rules {
		total += int(unsafe.Sizeof(r)) + len(r.name)
	}
	return total
}

// unreachable is the minDepth of rules and instructions from which no end can be reached.
const unreachable = math.MaxInt32

// compiler turns syntax into a program.
type compiler struct {
	ctx context.Context
	*syntax
	program
	current    int     // rule whose instructions are written
	ruleNumber []int32 // by rule of the syntax: its number in the program; -1 if not used yet
	queue      []int32 // by rule of the program: its number in the syntax
	repeated   []*expr // by rule of the program: its body if it was created for a repetition
}

func compile(ctx context.Context, s *syntax) (*program, error) {
	c := &compiler{ctx: ctx, syntax: s, ruleNumber: make([]int32, len(s.names))}
	for i := range c.ruleNumber {
		c.ruleNumber[i] = -1
	}
	c.program.root = c.use(s.root)
	for i := 0; i < len(c.rules); i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.current = i
		body := c.repeated[i]
		if body == nil {
			body = s.bodies[c.queue[i]]
		}
		end, err := c.add(instruction{opcode: opcodeEnd})
		if err != nil {
			return nil, err
		}
		start, err := c.emit(body, end)
		if err != nil {
			return nil, err
		}
		c.rules[i].start = start
	}
	for i := range c.code {
		if in := &c.code[i]; in.opcode == opcodeCall {
			in.tail = c.code[in.out].opcode == opcodeEnd
		}
	}
	c.code, c.outs, c.ranges = slices.Clip(c.code), slices.Clip(c.outs), slices.Clip(c.ranges)
	c.findClasses()
	c.findMinDepths()
	for _, r := range c.rules {
		if r.minDepth == unreachable {
			return nil, fmt.Errorf("the rule %s can never end: each of its alternatives needs the rule again", r.name)
		}
	}
	if need := c.rules[c.program.root].minDepth; need > maxDepth {
		return nil, fmt.Errorf("the grammar needs rules nested %d deep; the limit is %d", need, maxDepth)
	}
	return &c.program, c.findOrder()
}

// use returns the number in the program of rule i of the syntax.
func (c *compiler) use(i int32) int32 {
	if c.ruleNumber[i] < 0 {
		c.ruleNumber[i] = int32(len(c.rules))
		c.rules = append(c.rules, rule{name: strings.Clone(c.names[i])}) // a substring would hold the whole text
		c.queue = append(c.queue, i)
		c.repeated = append(c.repeated, nil)
	}
	return c.ruleNumber[i]
}

func (c *compiler) add(in instruction) (int32, error) {
	if len(c.code) == maxInstructions || len(c.outs)+len(c.ranges) > 2*maxInstructions {
		return 0, fmt.Errorf("the grammar is too large: it takes more than %d steps when repetitions are written out", maxInstructions)
	}
	c.code = append(c.code, in)
	return int32(len(c.code) - 1), nil
}

// split writes an instruction that continues at each of outs.
func (c *compiler) split(outs ...int32) (int32, error) {
	first := int32(len(c.outs))
	c.outs = append(c.outs, outs...)
	return c.add(instruction{opcode: opcodeSplit, arg: first, out: int32(len(c.outs))})
}

// read writes an instruction that reads a byte in one of ranges, which are sorted.
func (c *compiler) read(ranges []byteRange) (int32, error) {
	if len(ranges) == 1 {
		r := ranges[0]
		return c.add(instruction{opcode: opcodeByte, low: r.low, high: r.high, out: r.out})
	}
	first := int32(len(c.ranges))
	c.ranges = append(c.ranges, ranges...)
	return c.add(instruction{opcode: opcodeRanges, arg: first, out: int32(len(c.ranges))})
}

// emit writes the instructions of e, which continue at next, and returns the first one.
func (c *compiler) emit(e *expr, next int32) (at int32, err error) {
	switch e.op {
	case opLiteral:
		return c.emitLiteral(e.literal, next)
	case opSet:
		return c.emitSet(e.set, next)
	case opRule:
		return c.add(instruction{opcode: opcodeCall, arg: c.use(e.rule), out: next})
	case opToken:
		return c.add(instruction{opcode: opcodeToken, arg: e.token, out: next})
	case opSequence:
		at = next
		for i := len(e.list) - 1; i >= 0 && err == nil; i-- {
			at, err = c.emit(e.list[i], at)
		}
		return at, err
	case opAlternatives:
		return c.emitAlternatives(e.list, next)
	default:
		return c.emitRepeat(e, next)
	}
}

func (c *compiler) emitLiteral(text string, next int32) (at int32, err error) {
	at = next
	for i := len(text) - 1; i >= 0 && err == nil; i-- {
		at, err = c.read([]byteRange{{text[i], text[i], at}})
	}
	return at, err
}

// emitAlternatives writes alternatives. Literals among them become a trie, so that a text
// has one position in it however many there are.
func (c *compiler) emitAlternatives(list []*expr, next int32) (at int32, err error) {
	var literals []string
	var outs []int32
	for _, alternative := range list {
		if alternative.op == opLiteral {
			literals = append(literals, alternative.literal)
			continue
		}
		if at, err = c.emit(alternative, next); err != nil {
			return 0, err
		}
		outs = append(outs, at)
	}
	if len(literals) > 0 {
		slices.Sort(literals)
		if at, err = c.emitTrie(slices.Compact(literals), 0, next); err != nil {
			return 0, err
		}
		outs = append(outs, at)
	}
	if len(outs) == 1 {
		return outs[0], nil
	}
	return c.split(outs...)
}

// emitTrie writes sorted literals from the byte at depth on; the bytes before are common to all.
func (c *compiler) emitTrie(literals []string, depth int, next int32) (at int32, err error) {
	if len(literals) == 1 {
		return c.emitLiteral(literals[0][depth:], next)
	}
	ends := len(literals[0]) == depth
	if ends {
		literals = literals[1:]
	}
	// The first and the last of sorted literals have the prefix of all.
	first, last := literals[0][depth:], literals[len(literals)-1][depth:]
	common := 0
	for common < min(len(first), len(last)) && first[common] == last[common] {
		common++
	}
	if len(literals) == 1 {
		at, err = c.emitLiteral(first, next)
	} else if common > 0 {
		if at, err = c.emitTrie(literals, depth+common, next); err == nil {
			at, err = c.emitLiteral(first[:common], at)
		}
	} else {
		at, err = c.emitBranches(literals, depth, next)
	}
	if err == nil && ends {
		at, err = c.split(at, next)
	}
	return at, err
}

// emitBranches writes sorted literals of which at least two differ in the byte at depth.
func (c *compiler) emitBranches(literals []string, depth int, next int32) (int32, error) {
	var ranges []byteRange
	for len(literals) > 0 {
		b := literals[0][depth]
		n := sort.Search(len(literals), func(i int) bool { return literals[i][depth] > b })
		out, err := c.emitTrie(literals[:n], depth+1, next)
		if err != nil {
			return 0, err
		}
		ranges = join(ranges, byteRange{b, b, out})
		literals = literals[n:]
	}
	return c.read(ranges)
}

// isSingleInstruction reports whether e compiles to one instruction.
func (e *expr) isSingleInstruction() bool {
	switch e.op {
	case opLiteral:
		return len(e.literal) == 1
	case opSet:
		return len(e.set) == 0 || e.set[len(e.set)-1].high < utf8.RuneSelf
	default:
		return e.op == opRule || e.op == opToken
	}
}

// emitRepeat writes a repetition. An item that is repeated more than a few times becomes a
// rule, so that each repetition takes one instruction.
func (c *compiler) emitRepeat(e *expr, next int32) (at int32, err error) {
	item := e.list[0]
	if e.min+max(e.max, 1) > 3 && !item.isSingleInstruction() {
		c.rules = append(c.rules, rule{name: c.rules[c.current].name})
		c.queue = append(c.queue, -1)
		c.repeated = append(c.repeated, item)
		item = nil
	}
	hoisted := int32(len(c.rules) - 1)
	once := func(next int32) (int32, error) {
		if item == nil {
			return c.add(instruction{opcode: opcodeCall, arg: hoisted, out: next})
		}
		return c.emit(item, next)
	}
	at = next
	if e.max < 0 {
		if at, err = c.split(0, next); err != nil {
			return 0, err
		}
		again, err := once(at)
		if err != nil {
			return 0, err
		}
		c.outs[c.code[at].arg] = again
	}
	for range max(0, e.max-e.min) {
		if at, err = once(at); err != nil {
			return 0, err
		}
		if at, err = c.split(at, next); err != nil {
			return 0, err
		}
	}
	for range e.min {
		if at, err = once(at); err != nil {
			return 0, err
		}
	}
	return at, nil
}

// findClasses finds the classes of bytes that all instructions treat alike.
func (c *compiler) findClasses() {
	var begins [257]bool
	for i := range c.code {
		if in := &c.code[i]; in.opcode == opcodeByte {
			begins[in.low], begins[int(in.high)+1] = true, true
		}
	}
	for _, r := range c.ranges {
		begins[r.low], begins[int(r.high)+1] = true, true
	}
	for b := range 256 {
		if b == 0 || begins[b] {
			c.classByte = append(c.classByte, byte(b))
		}
		c.classOf[b] = uint8(len(c.classByte) - 1)
	}
}

// predecessors returns, for each instruction i, the instructions whose minDepth depends on
// that of i, as list[from[i]:from[i+1]]. A call depends on the first instruction of its rule
// and on the one that it returns to.
func (c *compiler) predecessors() (list []int32, from []int32) {
	each := func(visit func(at, before int32)) {
		for i := range c.code {
			in, i := &c.code[i], int32(i)
			switch in.opcode {
			case opcodeSplit:
				for _, out := range c.splitOuts(in) {
					visit(out, i)
				}
			case opcodeRanges:
				for _, r := range c.ranges[in.arg:in.out] {
					visit(r.out, i)
				}
			case opcodeByte, opcodeToken:
				visit(in.out, i)
			case opcodeCall:
				visit(in.out, i)
				visit(c.rules[in.arg].start, i)
			}
		}
	}
	from = make([]int32, len(c.code)+1)
	each(func(at, _ int32) { from[at+1]++ })
	for i := range c.code {
		from[i+1] += from[i]
	}
	list, fill := make([]int32, from[len(c.code)]), slices.Clone(from)
	each(func(at, before int32) {
		list[fill[at]] = before
		fill[at]++
	})
	return list, from
}

// findMinDepths finds which rules are nullable and the minDepth of all instructions, by
// Knuth's generalisation of Dijkstra's algorithm to grammars, with a list for each distance.
func (c *compiler) findMinDepths() {
	list, from := c.predecessors()
	empty := make([]bool, len(c.code)) // the rule can end here without reading more
	var todo []int32
	lists := [][]int32{nil}
	for i := range c.code {
		c.code[i].minDepth = unreachable
		if c.code[i].opcode == opcodeEnd {
			empty[i] = true
			todo = append(todo, int32(i))
			lists[0] = append(lists[0], int32(i))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, before := range list[from[at]:from[at+1]] {
			in := &c.code[before]
			ends := in.opcode == opcodeSplit ||
				in.opcode == opcodeCall && empty[in.out] && empty[c.rules[in.arg].start]
			if ends && !empty[before] {
				empty[before] = true
				todo = append(todo, before)
			}
		}
	}
	for need := int32(0); int(need) < len(lists); need++ {
		for len(lists[need]) > 0 {
			last := len(lists[need]) - 1
			at := lists[need][last]
			lists[need] = lists[need][:last]
			if c.code[at].minDepth != unreachable {
				continue
			}
			c.code[at].minDepth = need
			for _, before := range list[from[at]:from[at+1]] {
				in, through := &c.code[before], need
				if in.opcode == opcodeCall {
					called := c.code[c.rules[in.arg].start].minDepth
					if called == unreachable || c.code[in.out].minDepth == unreachable {
						continue // visited again when the other of its two is known
					}
					if !in.tail {
						called++
					}
					through = max(called, c.code[in.out].minDepth)
				}
				for int(through) >= len(lists) {
					lists = append(lists, nil)
				}
				lists[through] = append(lists[through], before)
			}
		}
	}
	for i := range c.rules {
		r := &c.rules[i]
		r.nullable, r.minDepth = empty[r.start], c.code[r.start].minDepth
	}
}

// findOrder orders the rules so that each comes before those that it can call before it
// reads anything. If there is no such order, the grammar is left-recursive.
func (c *compiler) findOrder() error {
	const (
		open = -1
		done = 1
	)
	state := make([]int8, len(c.rules))
	seen := make([]bool, len(c.code))
	order := int32(len(c.rules))
	var visitRule func(i int32) error
	visitRule = func(i int32) error {
		switch state[i] {
		case done:
			return nil
		case open:
			return fmt.Errorf("the rule %s is left-recursive: it can begin with itself; write the repetition with * or after what is repeated", c.rules[i].name)
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		state[i] = open
		todo := []int32{c.rules[i].start}
		for len(todo) > 0 {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if seen[at] {
				continue
			}
			seen[at] = true
			in := &c.code[at]
			switch in.opcode {
			case opcodeSplit:
				todo = append(todo, c.splitOuts(in)...)
			case opcodeCall:
				if err := visitRule(in.arg); err != nil {
					return err
				}
				if c.rules[in.arg].nullable {
					todo = append(todo, in.out)
				}
			}
		}
		state[i] = done
		order--
		c.rules[i].order = order
		return nil
	}
	for i := range c.rules {
		if err := visitRule(int32(i)); err != nil {
			return err
		}
	}
	return nil
}
