package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"
)

// interp is one rendering: it executes the statements of a template. Its methods throw
// their errors.
type interp struct {
	budget *budget
	now    time.Time
	line   int // of the statement that is executed
	out    *builder
}

// scope holds the variables of one block of the template. A block reads the variables of
// the scopes around it and sets its own.
type scope struct {
	vars   map[string]Value
	parent *scope
}

func (s *scope) child() *scope { return &scope{parent: s} }

func (s *scope) set(name string, v Value) {
	if s.vars == nil {
		s.vars = map[string]Value{}
	}
	s.vars[name] = v
}

// set sets a variable of s and counts its memory.
func (in *interp) set(s *scope, name string, v Value) {
	if s.vars == nil {
		in.budget.alloc(scopeSize)
	}
	in.budget.alloc(nameSize)
	s.set(name, v)
}

func (s *scope) lookup(name string) Value {
	for at := s; at != nil; at = at.parent {
		if v, ok := at.vars[name]; ok {
			return v
		}
	}
	return missing("'%s' is undefined", name)
}

// run renders the body with vars as global variables.
func (in *interp) run(body []stmt, vars *Dict) (out Text, err error) {
	defer func() {
		var render *RenderError
		var raised *RaisedError
		if errors.As(err, &render) {
			render.Line = in.line
		} else if errors.As(err, &raised) {
			raised.Line = in.line
		}
	}()
	defer catch(&err)
	root := &scope{vars: globals()}
	for i, k := range vars.keys {
		root.set(k.(Text).s, vars.vals[i])
	}
	in.out = &builder{budget: in.budget, output: true}
	in.exec(body, root.child())
	return in.out.take(), nil
}

// flow is where execution continues after a statement.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

func (in *interp) exec(body []stmt, s *scope) flow {
	for _, st := range body {
		in.budget.step(1)
		if f := in.statement(st, s); f != flowNext {
			return f
		}
	}
	return flowNext
}

func (in *interp) statement(st stmt, s *scope) flow {
	switch st := st.(type) {
	case *dataStmt:
		in.out.literal(st.s)
	case *outputStmt:
		in.line = st.line
		in.out.text(in.str(in.eval(st.x, s)))
	case *ifStmt:
		in.line = st.line
		for i, test := range st.tests {
			if truth(in.eval(test, s)) {
				return in.exec(st.bodies[i], s)
			}
		}
		return in.exec(st.elseBody, s)
	case *forStmt:
		in.line = st.line
		in.loop(st, s, in.eval(st.iter, s), 1)
	case *setStmt:
		in.line = st.line
		in.assign(s, s, st.target, in.eval(st.x, s))
	case *setBlockStmt:
		in.line = st.line
		body := in.capture(func() { in.exec(st.body, s.child()) })
		if st.filter != nil {
			in.assign(s, s, st.target, in.filterBody(st.filter, body, s))
		} else {
			in.assign(s, s, st.target, body)
		}
	case *macroStmt:
		in.line = st.line
		in.set(s, st.def.name, in.macro(st.def, s))
	case *callStmt:
		in.line = st.line
		a := in.args(st.call.args, s)
		a.names, a.vals = append(a.names, Literal("caller")), append(a.vals, in.macro(st.def, s))
		in.out.text(in.str(in.call(in.eval(st.call.fn, s), a)))
	case *filterStmt:
		in.line = st.line
		body := in.capture(func() { in.exec(st.body, s.child()) })
		in.out.text(in.str(in.filterBody(st.filter, body, s)))
	case *withStmt:
		in.line = st.line
		inner := s.child()
		for i, t := range st.targets {
			in.assign(inner, inner, t, in.eval(st.vals[i], s))
		}
		return in.exec(st.body, inner)
	case *scopeStmt:
		return in.exec(st.body, s.child())
	case breakStmt:
		return flowBreak
	case continueStmt:
		return flowContinue
	}
	return flowNext
}

// capture returns the text that f prints.
func (in *interp) capture(f func()) Text {
	outer := in.out
	in.out = in.builder()
	f()
	out := in.out.take()
	in.out = outer
	return out
}

// assign sets a target in the scope dst. It looks the namespace of an attribute up in s.
func (in *interp) assign(dst, s *scope, t target, v Value) {
	switch {
	case t.tuple != nil:
		if !iterable(v) {
			fail("cannot unpack non-iterable %s object", TypeName(v))
		}
		items := in.iterate(v)
		if len(items) != len(t.tuple) {
			fail("expected %d values to unpack, got %d", len(t.tuple), len(items))
		}
		for i, e := range t.tuple {
			in.assign(dst, s, e, items[i])
		}
	case t.attr != "":
		ns, ok := s.lookup(t.name).(*namespace)
		if !ok {
			fail("cannot assign attribute on non-namespace object %q", t.name)
		}
		in.put(ns.attrs, Literal(t.attr), v)
	default:
		in.set(dst, t.name, v)
	}
}

// loopState is the variable loop of a for tag. It reads ahead only if the template asks for
// a later item or the length, because the filter may depend on what the body sets.
type loopState struct {
	rest    []Value          // not read
	filter  func(Value) bool // nil if the loop has none
	ahead   []Value          // read and not visited
	index0  int
	depth   int
	prev    Value
	current Value
	changed []Value
	recurse func(in *interp, v Value) Value // renders the loop over v; nil if the loop is not recursive
}

func (l *loopState) read() (Value, bool) {
	for len(l.rest) > 0 {
		v := l.rest[0]
		l.rest = l.rest[1:]
		if l.filter == nil || l.filter(v) {
			return v, true
		}
	}
	return nil, false
}

func (l *loopState) next() (Value, bool) {
	if len(l.ahead) > 0 {
		v := l.ahead[0]
		l.ahead = l.ahead[1:]
		return v, true
	}
	return l.read()
}

func (l *loopState) peek() (Value, bool) {
	if len(l.ahead) == 0 {
		v, ok := l.read()
		if !ok {
			return nil, false
		}
		l.ahead = append(l.ahead, v)
	}
	return l.ahead[0], true
}

func (l *loopState) length() int {
	if l.filter == nil {
		return l.index0 + 1 + len(l.ahead) + len(l.rest)
	}
	for v, ok := l.read(); ok; v, ok = l.read() {
		l.ahead = append(l.ahead, v)
	}
	return l.index0 + 1 + len(l.ahead)
}

func (l *loopState) String() string {
	return fmt.Sprintf("<LoopContext %d/%d>", l.index0+1, l.length())
}

func (l *loopState) attr(name string) Value {
	switch name {
	case "index":
		return int64(l.index0 + 1)
	case "index0":
		return int64(l.index0)
	case "first":
		return l.index0 == 0
	case "last":
		_, more := l.peek()
		return !more
	case "length":
		return int64(l.length())
	case "revindex":
		return int64(l.length() - l.index0)
	case "revindex0":
		return int64(l.length() - l.index0 - 1)
	case "depth":
		return int64(l.depth)
	case "depth0":
		return int64(l.depth - 1)
	case "previtem":
		if l.index0 == 0 {
			return missing("there is no previous item")
		}
		return l.prev
	case "nextitem":
		if v, ok := l.peek(); ok {
			return v
		}
		return missing("there is no next item")
	case "cycle":
		return &callable{name: "cycle", call: func(_ *interp, a args) Value {
			if len(a.pos) == 0 {
				fail("no items for cycling given")
			}
			return a.pos[l.index0%len(a.pos)]
		}}
	case "changed":
		return &callable{name: "changed", call: func(in *interp, a args) Value {
			if l.changed != nil && in.equalItems(l.changed, a.pos) {
				return false
			}
			l.changed = append([]Value{}, a.pos...)
			return true
		}}
	}
	return missing("'loop' has no attribute '%s'", name)
}

func (in *interp) loop(st *forStmt, s *scope, over Value, depth int) {
	in.budget.enter()
	defer in.budget.leave()
	state := &loopState{rest: in.iterate(over), depth: depth}
	if st.filter != nil {
		state.filter = func(v Value) bool {
			in.budget.alloc(itemSize)
			in.budget.enter() // the filter may ask for the length of a loop, which applies its filter
			defer in.budget.leave()
			test := s.child()
			in.assign(test, s, st.target, v)
			return truth(in.eval(st.filter, test))
		}
	}
	if st.recursive {
		state.recurse = func(in *interp, v Value) Value {
			return in.capture(func() { in.loop(st, s, v, depth+1) })
		}
	}
	variable := &callable{name: "loop", attr: state.attr, show: state.String, call: func(in *interp, a args) Value {
		if state.recurse == nil {
			fail("the loop is called but its for tag does not say recursive")
		}
		return state.recurse(in, a.bind("loop", "iterable").need(0))
	}}
	visited, completed := false, false // any item; the body to its end
	for v, ok := state.next(); ok; v, ok = state.next() {
		in.budget.step(1)
		if visited {
			state.index0++
			state.prev = state.current
		}
		visited = true
		state.current = v
		body := s.child()
		in.set(body, "loop", variable)
		in.assign(body, s, st.target, v)
		end := in.exec(st.body, body)
		if end == flowBreak {
			break
		}
		completed = completed || end == flowNext
	}
	if !completed { // Jinja2 differs from Python, where only a break skips else
		in.exec(st.elseBody, s.child())
	}
}

// macro returns the macro of a definition in the scope s.
func (in *interp) macro(def *macroDef, s *scope) *callable {
	m := &callable{name: def.name, show: func() string {
		if def.anonymous {
			return "<Macro anonymous>"
		}
		return "<Macro '" + def.name + "'>"
	}}
	m.call = func(in *interp, a args) Value {
		in.budget.enter()
		defer in.budget.leave()
		line := in.line
		inner := s.child()
		in.bindMacro(def, a, inner)
		out := in.capture(func() { in.exec(def.body, inner) })
		in.line = line
		return out
	}
	m.attr = func(name string) Value {
		switch name {
		case "name":
			if def.anonymous {
				return nil
			}
			return Literal(def.name)
		case "arguments":
			names := &List{tuple: true}
			for _, p := range def.params {
				names.Items = append(names.Items, Literal(p))
			}
			return names
		case "catch_varargs":
			return def.varargs
		case "catch_kwargs":
			return def.kwargs
		case "caller":
			return def.caller
		}
		return missing("macro '%s' has no attribute '%s'", def.name, name)
	}
	return m
}

// bindMacro sets the parameters of a macro from the arguments of a call.
func (in *interp) bindMacro(def *macroDef, a args, s *scope) {
	in.budget.alloc(len(def.params) * nameSize)
	given := map[string]Value{}
	for i, v := range a.pos {
		if i < len(def.params) {
			given[def.params[i]] = v
		}
	}
	var varargs []Value
	if len(a.pos) > len(def.params) {
		varargs = a.pos[len(def.params):]
		if !def.varargs {
			fail("macro '%s' takes not more than %d argument(s)", def.name, len(def.params))
		}
	}
	kwargs := in.bindKeywords(def, a, given, s)
	if def.caller {
		if _, ok := s.vars["caller"]; !ok && given["caller"] == nil {
			in.set(s, "caller", missing("no caller defined"))
		}
	}
	if def.varargs {
		in.set(s, "varargs", tuple(varargs...))
	}
	if def.kwargs {
		in.set(s, "kwargs", kwargs)
	}
	required := len(def.params) - len(def.defaults)
	for i, p := range def.params {
		if v, ok := given[p]; ok {
			in.set(s, p, v)
		} else if i >= required {
			in.set(s, p, in.eval(def.defaults[i-required], s))
		} else {
			in.set(s, p, missing("parameter '%s' was not provided", p))
		}
	}
}

// bindKeywords adds the keyword arguments that are parameters to given, sets caller, and
// returns the others.
func (in *interp) bindKeywords(def *macroDef, a args, given map[string]Value, s *scope) *Dict {
	kwargs := NewDict()
	in.budget.step(len(a.names) * len(def.params) / 16)
	for i, keyword := range a.names {
		name := keyword.s
		switch {
		case slices.Contains(def.params, name):
			if _, twice := given[name]; twice {
				fail("macro '%s' got several values for argument '%s'", def.name, name)
			}
			given[name] = a.vals[i]
		case name == "caller" && def.caller:
			in.set(s, "caller", a.vals[i])
		case name == "caller" && !def.kwargs:
			fail("macro '%s' was invoked with a call block but does not use caller", def.name)
		case def.kwargs:
			in.put(kwargs, keyword, a.vals[i])
		default:
			fail("macro '%s' takes no keyword argument '%s'", def.name, name)
		}
	}
	return kwargs
}

// call calls a function value.
func (in *interp) call(fn Value, a args) Value {
	switch fn := fn.(type) {
	case *callable:
		return fn.call(in, a)
	case *undefined:
		fn.fail()
	}
	fail("'%s' object is not callable", TypeName(fn))
	return nil
}

func (in *interp) evalAll(xs []expr, s *scope) []Value {
	in.budget.alloc(len(xs) * itemSize)
	out := make([]Value, len(xs))
	for i, x := range xs {
		out[i] = in.eval(x, s)
	}
	return out
}

func (in *interp) args(c callArgs, s *scope) args {
	a := args{pos: in.evalAll(c.pos, s), vals: in.evalAll(c.vals, s)}
	in.budget.alloc(len(c.names) * valueSize)
	for _, name := range c.names {
		a.names = append(a.names, Literal(name))
	}
	if c.star != nil {
		rest := in.iterate(in.eval(c.star, s))
		in.budget.alloc(len(rest) * itemSize)
		a.pos = append(a.pos, rest...)
	}
	if c.doubleStar != nil {
		d, ok := in.eval(c.doubleStar, s).(*Dict)
		if !ok {
			fail("the argument after ** must be a mapping")
		}
		in.budget.alloc(len(d.keys) * (itemSize + valueSize))
		for i, k := range d.keys {
			a.names, a.vals = append(a.names, in.str(k)), append(a.vals, d.vals[i])
		}
	}
	return a
}

// filterBody applies the filters of a filter tag or block assignment to its body.
func (in *interp) filterBody(f expr, body Value, s *scope) Value {
	fx := f.(*filterExpr)
	if fx.x != nil {
		body = in.filterBody(fx.x, body, s)
	}
	return in.filter(fx.name, body, in.args(fx.args, s))
}

func (in *interp) eval(x expr, s *scope) Value {
	in.budget.enterExpression()
	var v Value
	switch x := x.(type) {
	case *constExpr:
		v = x.v
	case *nameExpr:
		if v = s.lookup(x.name); isUndefined(v) {
			in.budget.allocValue()
		}
	default:
		in.budget.allocValue()
		v = in.compute(x, s)
	}
	in.budget.leaveExpression()
	return v
}

// compute evaluates an expression that is neither a constant nor a name.
func (in *interp) compute(x expr, s *scope) Value {
	switch x := x.(type) {
	case *listExpr:
		return &List{Items: in.evalAll(x.items, s), tuple: x.tuple}
	case *dictExpr:
		return in.evalDict(x, s)
	case *attrExpr:
		return in.attr(in.eval(x.x, s), x.name)
	case *itemExpr:
		if sl, ok := x.key.(*sliceExpr); ok {
			return in.slice(in.eval(x.x, s), sl, s)
		}
		v := in.eval(x.x, s)
		return in.item(v, in.eval(x.key, s))
	case *callExpr:
		fn := in.eval(x.fn, s)
		return in.call(fn, in.args(x.args, s))
	case *filterExpr:
		v := in.eval(x.x, s)
		return in.filter(x.name, v, in.args(x.args, s))
	case *testExpr:
		v := in.eval(x.x, s)
		return in.test(x.name, v, in.args(x.args, s))
	case *notExpr:
		return !truth(in.eval(x.x, s))
	case *signExpr:
		return in.sign(x.minus, in.eval(x.x, s))
	case *chainExpr:
		v := in.eval(x.first, s)
		for _, o := range x.rest {
			v = in.arithmetic(o.op, v, in.eval(o.x, s))
		}
		return v
	case *compareExpr:
		return in.evalCompare(x, s)
	case *boolExpr:
		return in.evalBool(x, s)
	case *concatExpr:
		b := in.builder()
		for _, part := range x.parts {
			b.text(in.str(in.eval(part, s)))
		}
		return b.take()
	case *condExpr:
		return in.evalCond(x, s)
	case *sliceExpr:
		fail("a slice cannot be part of a key")
	}
	panic(fmt.Sprintf("chat: unknown expression %T", x))
}

func (in *interp) evalDict(x *dictExpr, s *scope) Value {
	d := NewDict()
	for i, k := range x.keys {
		key := in.eval(k, s)
		in.keyOf(key) // an unhashable key fails before its value is evaluated
		in.put(d, key, in.eval(x.vals[i], s))
	}
	return d
}

func (in *interp) evalCompare(x *compareExpr, s *scope) Value {
	left := in.eval(x.first, s)
	for _, o := range x.rest {
		right := in.eval(o.x, s)
		if !in.compare(o.op, left, right) {
			return false
		}
		left = right
	}
	return true
}

// evalBool returns the first operand that decides the result, or the last one.
func (in *interp) evalBool(x *boolExpr, s *scope) (v Value) {
	for _, part := range x.parts {
		if v = in.eval(part, s); truth(v) == x.or {
			break
		}
	}
	return v
}

func (in *interp) evalCond(x *condExpr, s *scope) Value {
	if truth(in.eval(x.test, s)) {
		return in.eval(x.then, s)
	}
	if x.otherwise == nil {
		return missing("the inline if has no else and its test is false")
	}
	return in.eval(x.otherwise, s)
}

func (in *interp) compare(op string, a, b Value) bool {
	switch op {
	case "==":
		return in.equal(a, b)
	case "!=":
		return !in.equal(a, b)
	case "in":
		return in.contains(b, a)
	case "not in":
		return !in.contains(b, a)
	}
	order, ok := in.order(op, a, b)
	if !ok {
		return false
	}
	switch op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

func (in *interp) sign(minus bool, v Value) Value {
	if i, ok := integer(v); ok {
		if minus {
			return in.normalize(new(big.Int).Neg(i))
		}
		return in.normalize(i)
	}
	f, ok := v.(float64)
	if !ok {
		if u, ok := v.(*undefined); ok {
			u.fail()
		}
		fail("bad operand type for a sign: '%s'", TypeName(v))
	}
	if minus {
		return -f
	}
	return f
}

// arithmetic evaluates Python's + - * / // % and **.
func (in *interp) arithmetic(op string, a, b Value) Value {
	in.budget.step(1)
	if t, ok := a.(Text); ok && op == "%" {
		return in.percentFormat(t, b)
	}
	if u, ok := firstUndefined(a, b); ok {
		u.fail()
	}
	if x, ok := a.(int64); ok {
		if y, ok := b.(int64); ok && op == "+" && x > math.MinInt64/2 && x < math.MaxInt64/2 && y > math.MinInt64/2 && y < math.MaxInt64/2 {
			return x + y
		}
	}
	if isNumber(a) && isNumber(b) {
		x, xInt := integer(a)
		y, yInt := integer(b)
		if xInt && yInt {
			return in.integerArithmetic(op, x, y)
		}
		f, _ := float(a)
		g, _ := float(b)
		return floatArithmetic(op, f, g)
	}
	switch op {
	case "+":
		if v, ok := in.concatSequences(a, b); ok {
			return v
		}
	case "*":
		if n, ok := smallInt(b); ok {
			if v, ok := in.repeatSequence(a, n); ok {
				return v
			}
		}
		if n, ok := smallInt(a); ok {
			if v, ok := in.repeatSequence(b, n); ok {
				return v
			}
		}
	}
	if _, ok := a.(Text); ok && op == "+" {
		fail("can only concatenate str (not \"%s\") to str", TypeName(b))
	}
	fail("unsupported operand type(s) for %s: '%s' and '%s'", op, TypeName(a), TypeName(b))
	return nil
}

// concatSequences evaluates + on strings and lists; false if a and b are not of one type.
func (in *interp) concatSequences(a, b Value) (Value, bool) {
	switch x := a.(type) {
	case Text:
		y, ok := b.(Text)
		if !ok {
			return nil, false
		}
		if x.safe != y.safe {
			x, y = in.escapeUnlessSafe(x), in.escapeUnlessSafe(y)
		}
		out := in.concat(x, y)
		out.safe = x.safe
		return out, true
	case *List:
		y, ok := b.(*List)
		if !ok || x.tuple != y.tuple || x.bounds != nil || y.bounds != nil {
			return nil, false
		}
		in.budget.alloc(valueSize + (len(x.Items)+len(y.Items))*itemSize)
		items := make([]Value, 0, len(x.Items)+len(y.Items))
		return &List{Items: append(append(items, x.Items...), y.Items...), tuple: x.tuple}, true
	}
	return nil, false
}

func (in *interp) escapeUnlessSafe(t Text) Text {
	if t.safe {
		return t
	}
	return in.escapeHTML(t)
}

// repeatSequence evaluates * on strings and lists; false if v is neither.
func (in *interp) repeatSequence(v Value, n int64) (Value, bool) {
	n = max(n, 0)
	switch v := v.(type) {
	case Text:
		if n > 0 && len(v.s) > 0 && n > int64(in.budget.Output/len(v.s)) {
			throw(overLimit("string", in.budget.Output, "bytes"))
		}
		return in.repeat(v, int(n)), true
	case *List:
		if v.bounds != nil {
			return nil, false
		}
		if len(v.Items) > 0 && n > int64(maxRange/len(v.Items)) {
			throw(overLimit("range", maxRange, "items"))
		}
		if len(v.Items) == 0 {
			n = 0
		}
		in.budget.alloc(valueSize + len(v.Items)*int(n)*itemSize)
		return &List{Items: slices.Repeat(v.Items, int(n)), tuple: v.tuple}, true
	}
	return nil, false
}

func (in *interp) integerArithmetic(op string, x, y *big.Int) Value {
	if (op == "/" || op == "//" || op == "%") && y.Sign() == 0 {
		fail("division by zero")
	}
	z := new(big.Int)
	switch op {
	case "+":
		return in.normalize(z.Add(x, y))
	case "-":
		return in.normalize(z.Sub(x, y))
	case "*":
		return in.normalize(z.Mul(x, y))
	case "/":
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		return f
	case "//", "%":
		q, m := z.DivMod(x, y, new(big.Int)) // Euclidean: m >= 0
		if m.Sign() != 0 && y.Sign() < 0 {
			q.Sub(q, big.NewInt(1))
			m.Add(m, y)
		}
		if op == "//" {
			return in.normalize(q)
		}
		return in.normalize(m)
	}
	if y.Sign() < 0 {
		f, _ := new(big.Float).SetInt(x).Float64()
		g, _ := new(big.Float).SetInt(y).Float64()
		return floatArithmetic("**", f, g)
	}
	if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > maxDigits || int64(x.BitLen()-1)*y.Int64() > maxDigits) {
		throw(overLimit("integer", maxDigits, "bits"))
	}
	in.budget.step(1 + int(min(int64(y.BitLen()), maxDigits)))
	if x.BitLen() <= 1 { // powers of -1, 0 and 1 do not grow
		if y.Sign() == 0 || x.Sign() < 0 && y.Bit(0) == 0 {
			return int64(1)
		}
		return in.normalize(x)
	}
	return in.normalize(z.Exp(x, y, nil))
}

func floatArithmetic(op string, x, y float64) Value {
	if (op == "/" || op == "//" || op == "%") && y == 0 || op == "**" && x == 0 && y < 0 {
		fail("division by zero")
	}
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	case "//":
		// The remainder is subtracted before the division: 1.0 // 0.1 is 9.
		m := math.Mod(x, y)
		q := (x - m) / y
		if m != 0 && (m < 0) != (y < 0) {
			q--
		}
		floor := math.Floor(q)
		if q-floor > 0.5 {
			floor++
		}
		return math.Copysign(floor, x/y)
	case "%":
		return floatRemainder(x, y)
	}
	if x < 0 && y != math.Trunc(y) {
		fail("a negative number has no real power of %s", formatFloat(y))
	}
	return math.Pow(x, y)
}

// floatRemainder returns x % y, which in Python has the sign of y.
func floatRemainder(x, y float64) float64 {
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	} else if m == 0 {
		m = math.Copysign(0, y)
	}
	return m
}

// attr evaluates v.name: an attribute or method, else an item.
func (in *interp) attr(v Value, name string) Value {
	switch v := v.(type) {
	case *undefined:
		v.fail()
	case *namespace:
		if a, ok := v.attrs.Get(name); ok && !strings.HasPrefix(name, "__") {
			return a
		}
		return missing("the namespace has no attribute '%s'", name)
	case *callable:
		if v.attr != nil {
			return v.attr(name)
		}
	default:
		if m, ok := method(v, name); ok {
			return m
		}
		if d, ok := v.(*Dict); ok {
			if e, ok := d.Get(name); ok {
				return e
			}
		}
	}
	return noAttribute(v, name)
}

func noAttribute(v Value, name string) *undefined {
	if v == nil {
		return missing("'None' has no attribute '%s'", name)
	}
	return missing("'%s object' has no attribute '%s'", TypeName(v), name)
}

// item evaluates v[key]: an item, else an attribute or method.
func (in *interp) item(v, key Value) Value {
	switch x := v.(type) {
	case *undefined:
		x.fail()
	case *Dict:
		switch key.(type) {
		case *Dict, *view:
			return missing("a %s cannot be a key", TypeName(key))
		case *List:
			if !key.(*List).tuple {
				return missing("a list cannot be a key")
			}
		}
		if i, ok := x.index[in.keyOf(key)]; ok {
			return x.vals[i]
		}
	case *List:
		if i, ok := normalizeIndex(key, len(x.Items)); ok {
			return x.Items[i]
		}
	case Text:
		if _, isInt := integer(key); !isInt {
			break
		}
		in.budget.scan(len(x.s))
		if i, ok := normalizeIndex(key, x.runes()); ok {
			return x.at(x.offset(i))
		}
	}
	if name, ok := key.(Text); ok {
		switch v.(type) {
		case *namespace, *callable:
			return in.attr(v, name.s)
		}
		if m, ok := method(v, name.s); ok {
			return m
		}
		return noAttribute(v, name.s)
	}
	return missing("%s has no element %s", TypeName(v), in.str(key).s)
}

// normalizeIndex returns key as an index into n items, of which negative keys count from
// the end; false if there is no such item.
func normalizeIndex(key Value, n int) (int, bool) {
	i, ok := smallInt(key)
	if !ok {
		return 0, false
	}
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

// slice evaluates v[lo:hi:step].
func (in *interp) slice(v Value, sl *sliceExpr, s *scope) Value {
	bound := func(x expr) Value {
		if x == nil {
			return nil
		}
		return in.eval(x, s)
	}
	lo, hi, step := bound(sl.lo), bound(sl.hi), bound(sl.step)
	switch v := v.(type) {
	case *undefined:
		v.fail()
	case Text:
		in.budget.scan(len(v.s))
		from, to, by := sliceRange(lo, hi, step, v.runes())
		if by == 1 {
			a := v.offset(from)
			return v.Slice(a, a+v.Slice(a, len(v.s)).offset(max(to-from, 0)))
		}
		var chars []Value
		if from != to {
			chars = in.iterate(v)
		}
		b := in.builder()
		for i := from; by > 0 && i < to || by < 0 && i > to; i += by {
			b.text(chars[i].(Text))
		}
		out := b.take()
		out.safe = v.safe
		return out
	case *List:
		from, to, by := sliceRange(lo, hi, step, len(v.Items))
		out := &List{tuple: v.tuple}
		if v.bounds != nil {
			out.bounds = &rangeBounds{v.bounds.start + from*v.bounds.step, v.bounds.start + to*v.bounds.step, by * v.bounds.step}
		}
		if by == 1 {
			out.Items = v.Items[from:max(from, to)]
			return out
		}
		n := max(0, (to-from+by-sign(by))/by)
		in.budget.alloc(n * itemSize)
		out.Items = make([]Value, 0, n)
		for i := from; len(out.Items) < n; i += by {
			out.Items = append(out.Items, v.Items[i])
		}
		return out
	}
	fail("'%s' object cannot be sliced", TypeName(v))
	return nil
}

// sliceRange evaluates Python's slice(lo, hi, step).indices(n).
func sliceRange(lo, hi, step Value, n int) (from, to, by int) {
	number := func(v Value, otherwise int) int {
		if v == nil {
			return otherwise
		}
		i, ok := integer(v)
		if !ok {
			fail("slice indices must be integers or none, not %s", TypeName(v))
		}
		if !i.IsInt64() || i.Int64() > maxSlice || i.Int64() < -maxSlice {
			return i.Sign() * maxSlice
		}
		return int(i.Int64())
	}
	by = number(step, 1)
	if by == 0 {
		fail("slice step cannot be zero")
	}
	least, most := 0, n // limits of both bounds
	if by < 0 {
		least, most = -1, n-1
	}
	clip := func(v Value, otherwise int) int {
		i := number(v, otherwise)
		if v != nil && i < 0 {
			i += n
		}
		return min(max(i, least), most)
	}
	if by < 0 {
		return clip(lo, most), clip(hi, least), by
	}
	return clip(lo, least), clip(hi, most), by
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

const maxSlice = 1 << 40 // beyond any index
