package grammar

import (
	"context"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// program is a grammar as instructions that a byte, a token or a call of a rule
// leads through. Each rule has instructions of its own, and ends in its own opcodeEnd.
type program struct {
	code    []instruction
	rules   []rule
	root    int32
	classes [256]uint8 // bytes that no instruction tells apart have the same class
	class   []byte     // one byte of each class
}

type rule struct {
	name     string
	start    int32 // instruction
	nullable bool  // matches nothing, too
	need     int32 // most calls that must be open at once on the easiest way through
	order    int32 // rules that can be called before anything is read come later
}

type instruction struct {
	opcode opcode
	tail   bool        // opcodeCall: the rule ends where the call returns
	out    int32       // the next instruction of opcodeToken and opcodeCall
	arg    int32       // opcodeToken: id; opcodeCall: rule
	need   int32       // like that of a rule, from here to the rule's end
	outs   []int32     // opcodeSplit
	ranges []byteRange // opcodeBytes: sorted
}

type opcode uint8

const (
	opcodeSplit opcode = iota // goes on at each of outs
	opcodeBytes               // reads a byte
	opcodeToken               // reads a token
	opcodeCall                // goes on in a rule, then at out
	opcodeEnd                 // the end of the rule
)

// byteRange is the bytes from low to high, and where they lead.
type byteRange struct {
	low, high byte
	out       int32
}

// unreachable is the need of what never ends.
const unreachable = math.MaxInt32

// compiler turns syntax into a program.
type compiler struct {
	ctx context.Context
	*syntax
	program
	current int     // rule that is being written
	number  []int32 // of each rule of the syntax in the program; -1: not used so far
	queue   []int32 // rules of the syntax whose instructions are still to be written
	hoist   []*expr // by rule of the program: the body of a rule that repetition made, nil for others
}

func compile(ctx context.Context, s *syntax) (*program, error) {
	c := &compiler{ctx: ctx, syntax: s, number: make([]int32, len(s.names))}
	for i := range c.number {
		c.number[i] = -1
	}
	c.program.root = c.use(s.root)
	for i := 0; i < len(c.rules); i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.current = i
		body := c.hoist[i]
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
	c.findClasses()
	c.findNeeds()
	for _, r := range c.rules {
		if r.need == unreachable {
			return nil, fmt.Errorf("the rule %s can never end: each of its alternatives needs the rule again", r.name)
		}
	}
	if need := c.rules[c.program.root].need; need > maxDepth {
		return nil, fmt.Errorf("the grammar needs rules nested %d deep; the limit is %d", need, maxDepth)
	}
	return &c.program, c.findOrder()
}

// use returns the number in the program of a rule of the syntax.
func (c *compiler) use(i int32) int32 {
	if c.number[i] < 0 {
		c.number[i] = int32(len(c.rules))
		c.rules = append(c.rules, rule{name: c.names[i]})
		c.queue = append(c.queue, i)
		c.hoist = append(c.hoist, nil)
	}
	return c.number[i]
}

func (c *compiler) add(in instruction) (int32, error) {
	if len(c.code) == maxInstructions {
		return 0, fmt.Errorf("the grammar is too large: it takes more than %d steps when repetitions are written out", maxInstructions)
	}
	c.code = append(c.code, in)
	return int32(len(c.code) - 1), nil
}

// emit writes the instructions of e, which lead on to next, and returns the first.
func (c *compiler) emit(e *expr, next int32) (at int32, err error) {
	switch e.op {
	case opLiteral:
		at = next
		for i := len(e.literal) - 1; i >= 0 && err == nil; i-- {
			b := e.literal[i]
			at, err = c.add(instruction{opcode: opcodeBytes, ranges: []byteRange{{b, b, at}}})
		}
		return at, err
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
		outs := make([]int32, len(e.list))
		for i, alternative := range e.list {
			if outs[i], err = c.emit(alternative, next); err != nil {
				return 0, err
			}
		}
		return c.add(instruction{opcode: opcodeSplit, outs: outs})
	default:
		return c.emitRepeat(e, next)
	}
}

// oneInstruction reports whether e takes a single instruction.
func (e *expr) oneInstruction() bool {
	switch e.op {
	case opLiteral:
		return len(e.literal) == 1
	case opSet:
		return len(e.set) == 0 || e.set[len(e.set)-1].high < utf8.RuneSelf
	default:
		return e.op == opRule || e.op == opToken
	}
}

// emitRepeat writes an item as often as it may come. What comes more than a few
// times becomes a rule of its own, so that each time costs one instruction.
func (c *compiler) emitRepeat(e *expr, next int32) (at int32, err error) {
	item := e.list[0]
	if e.min+max(e.max, 1) > 3 && !item.oneInstruction() {
		c.rules = append(c.rules, rule{name: c.rules[c.current].name})
		c.queue = append(c.queue, -1)
		c.hoist = append(c.hoist, item)
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
		if at, err = c.add(instruction{opcode: opcodeSplit}); err != nil {
			return 0, err
		}
		again, err := once(at)
		if err != nil {
			return 0, err
		}
		c.code[at].outs = []int32{again, next}
	}
	for range max(0, e.max-e.min) {
		if at, err = once(at); err != nil {
			return 0, err
		}
		if at, err = c.add(instruction{opcode: opcodeSplit, outs: []int32{at, next}}); err != nil {
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

// findClasses puts bytes together that every instruction treats alike.
func (c *compiler) findClasses() {
	var begins [257]bool
	for i := range c.code {
		for _, r := range c.code[i].ranges {
			begins[r.low], begins[int(r.high)+1] = true, true
		}
	}
	for b := range 256 {
		if b == 0 || begins[b] {
			c.class = append(c.class, byte(b))
		}
		c.classes[b] = uint8(len(c.class) - 1)
	}
}

// predecessors lists, for each instruction, those whose need depends on its own. A
// call depends on the first instruction of its rule and on the one it returns to.
func (c *compiler) predecessors() (list []int32, from []int32) {
	each := func(visit func(at, before int32)) {
		for i := range c.code {
			in, i := &c.code[i], int32(i)
			switch in.opcode {
			case opcodeSplit:
				for _, out := range in.outs {
					visit(out, i)
				}
			case opcodeBytes:
				for _, r := range in.ranges {
					visit(r.out, i)
				}
			case opcodeToken:
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

// findNeeds finds which rules are nullable and what every instruction needs:
// Dijkstra's way, generalised to grammars by Knuth, with a list for each distance.
func (c *compiler) findNeeds() {
	list, from := c.predecessors()
	empty := make([]bool, len(c.code)) // the rule may end here with nothing more read
	var todo []int32
	lists := [][]int32{nil}
	for i := range c.code {
		c.code[i].need = unreachable
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
			if c.code[at].need != unreachable {
				continue
			}
			c.code[at].need = need
			for _, before := range list[from[at]:from[at+1]] {
				in, through := &c.code[before], need
				if in.opcode == opcodeCall {
					called := c.code[c.rules[in.arg].start].need
					if called == unreachable || c.code[in.out].need == unreachable {
						continue // the other of its two comes later
					}
					if !in.tail {
						called++
					}
					through = max(called, c.code[in.out].need)
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
		r.nullable, r.need = empty[r.start], c.code[r.start].need
	}
}

// findOrder orders the rules so that each comes before those that it can call with
// nothing read. Where that is a circle the grammar is left-recursive.
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
				todo = append(todo, in.outs...)
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
