package jinja

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// parser parses tokens by recursive descent.
type parser struct {
	tokens     []token
	pos        int
	depth      int
	loops      int             // open loops inside the current macro
	localNames map[string]int  // loop variables and parameters in scope, with their number
	uses       map[string]bool // names that are read and not local
	macros     []*macroDef     // open macros
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) peekSecond() token { return p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEOF {
		p.pos++
	}
	return t
}

func (p *parser) accept(text string) bool {
	if p.peek().is(text) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) fail(format string, args ...any) {
	throw(&SyntaxError{p.peek().line, fmt.Sprintf(format, args...)})
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.fail("expected %q, got %s", text, p.peek().describe())
	}
}

func (p *parser) expectKind(kind tokenKind, what string) token {
	if p.peek().kind != kind {
		p.fail("expected %s, got %s", what, p.peek().describe())
	}
	return p.next()
}

func (p *parser) ident() string { return p.expectKind(tokenName, "a name").text }

// enter limits the recursion of the parser, and later that of the interpreter.
func (p *parser) enter() {
	if p.depth++; p.depth > maxDepth {
		throw(overLimit("nesting depth", maxDepth, "levels"))
	}
}

func (p *parser) leave() { p.depth-- }

// checkChain limits chains such as a.b.c.d, which the interpreter evaluates recursively
// although the parser reads them in a loop.
func (p *parser) checkChain(n int) {
	if n > maxDepth {
		throw(overLimit("nesting depth", maxDepth, "levels"))
	}
}

// bind calls f, for which names are local.
func (p *parser) bind(names []string, f func()) {
	for _, n := range names {
		p.localNames[n]++
	}
	f()
	for _, n := range names {
		p.localNames[n]--
	}
}

// statements parses up to and including the name of a block that is one of ends; without
// ends, up to the end of the template.
func (p *parser) statements(ends ...string) (body []stmt, end string) {
	p.enter()
	defer p.leave()
	for {
		t := p.next()
		switch t.kind {
		case tokenEOF:
			if len(ends) > 0 {
				p.fail("unexpected end of template, expected %q", ends[len(ends)-1])
			}
			return body, ""
		case tokenData:
			body = append(body, &dataStmt{t.text})
		case tokenVariableBegin:
			x := p.tuple(true, nil)
			p.expectKind(tokenVariableEnd, "'}}'")
			body = append(body, &outputStmt{x, t.line})
		case tokenBlockBegin:
			name := p.expectKind(tokenName, "a tag name")
			if slices.Contains(ends, name.text) {
				return body, name.text
			}
			body = append(body, p.statement(name))
			p.blockEnd()
		default:
			p.pos--
			p.fail("unexpected %s", t.describe())
		}
	}
}

func (p *parser) blockEnd() { p.expectKind(tokenBlockEnd, "'%}'") }

// block parses the body of a tag up to one of ends.
func (p *parser) block(ends ...string) ([]stmt, string) {
	p.accept(":")
	p.blockEnd()
	return p.statements(ends...)
}

func (p *parser) body(end string) []stmt {
	b, _ := p.block(end)
	return b
}

func (p *parser) statement(tag token) stmt {
	switch tag.text {
	case "if":
		return p.ifTag(tag.line)
	case "for":
		return p.forTag(tag.line)
	case "set":
		return p.setTag(tag.line)
	case "macro":
		name := p.ident()
		return &macroStmt{tag.line, p.macro(name, "endmacro")}
	case "call":
		return p.callTag(tag.line)
	case "filter":
		f := p.filters(nil, true)
		return &filterStmt{tag.line, f, p.body("endfilter")}
	case "with":
		return p.withTag(tag.line)
	case "generation":
		return &scopeStmt{p.body("endgeneration")}
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%q outside of a loop", tag.text)
		}
		if tag.text == "break" {
			return breakStmt{}
		}
		return continueStmt{}
	case "include", "import", "from", "extends", "block":
		p.fail("tag %q is refused: a chat template stands alone", tag.text)
	}
	p.fail("unknown tag %q", tag.text)
	return nil
}

func (p *parser) ifTag(line int) stmt {
	s := &ifStmt{line: line}
	for {
		s.tests = append(s.tests, p.tuple(false, nil))
		body, end := p.block("elif", "else", "endif")
		s.bodies = append(s.bodies, body)
		switch end {
		case "elif":
			continue
		case "else":
			s.elseBody = p.body("endif")
		}
		return s
	}
}

func (p *parser) forTag(line int) stmt {
	s := &forStmt{line: line}
	s.target = p.target(false)
	p.expect("in")
	s.iter = p.tuple(false, []string{"recursive"})
	names := append(s.target.names(), "loop")
	p.bind(names, func() {
		if p.accept("if") {
			s.filter = p.expression()
		}
		s.recursive = p.accept("recursive")
		p.loops++
		var end string
		s.body, end = p.block("endfor", "else")
		p.loops--
		if end == "else" {
			s.elseBody = p.body("endfor")
		}
	})
	return s
}

func (t target) names() []string {
	if t.tuple == nil {
		return []string{t.name}
	}
	var names []string
	for _, e := range t.tuple {
		names = append(names, e.names()...)
	}
	return names
}

// target parses the left side of an assignment; namespaces permits attributes.
func (p *parser) target(namespaces bool) target {
	p.enter()
	defer p.leave()
	one := func() target {
		if p.accept("(") {
			t := p.target(namespaces)
			p.expect(")")
			return t
		}
		name := p.ident()
		switch name {
		case "true", "false", "none", "True", "False", "None":
			p.fail("cannot assign to %q", name)
		}
		t := target{name: name}
		if namespaces && p.accept(".") {
			t.attr = p.ident()
		}
		return t
	}
	first := one()
	if !p.peek().is(",") {
		return first
	}
	tuple := target{tuple: []target{first}}
	for p.accept(",") {
		if t := p.peek(); t.kind != tokenName && !t.is("(") || t.is("in") {
			break
		}
		tuple.tuple = append(tuple.tuple, one())
	}
	return tuple
}

func (p *parser) setTag(line int) stmt {
	t := p.target(true)
	if p.accept("=") {
		return &setStmt{line, t, p.tuple(true, nil)}
	}
	var f expr
	if p.peek().is("|") {
		f = p.filters(nil, false)
	}
	return &setBlockStmt{line, t, f, p.body("endset")}
}

// macro parses the parameters and the body of a macro or call block.
func (p *parser) macro(name, end string) *macroDef {
	def := &macroDef{name: name}
	p.signature(def)
	p.macroBody(def, end)
	return def
}

func (p *parser) signature(def *macroDef) {
	p.expect("(")
	for !p.accept(")") {
		if len(def.params) > 0 {
			p.expect(",")
		}
		def.params = append(def.params, p.ident())
		if p.accept("=") {
			def.defaults = append(def.defaults, p.expression())
		} else if len(def.defaults) > 0 {
			p.fail("parameter without default follows parameter with default")
		}
	}
}

func (p *parser) macroBody(def *macroDef, end string) {
	loops := p.loops
	p.loops = 0
	p.macros = append(p.macros, def)
	p.bind(append([]string{"caller", "varargs", "kwargs"}, def.params...), func() { def.body = p.body(end) })
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = loops
	if n := len(p.macros); n > 0 { // what an inner macro reads, the outer one must provide
		outer := p.macros[n-1]
		outer.varargs = outer.varargs || def.varargs
		outer.kwargs = outer.kwargs || def.kwargs
		outer.caller = outer.caller || def.caller
	}
}

func (p *parser) callTag(line int) stmt {
	def := &macroDef{name: "caller", anonymous: true}
	if p.peek().is("(") {
		p.signature(def)
	}
	call, ok := p.expression().(*callExpr)
	if !ok {
		p.fail("expected a macro call")
	}
	p.macroBody(def, "endcall")
	return &callStmt{line, call, def}
}

func (p *parser) withTag(line int) stmt {
	s := &withStmt{line: line}
	for p.peek().kind != tokenBlockEnd {
		if len(s.targets) > 0 {
			p.expect(",")
		}
		s.targets = append(s.targets, p.target(false))
		p.expect("=")
		s.vals = append(s.vals, p.expression())
	}
	var names []string
	for _, t := range s.targets {
		names = append(names, t.names()...)
	}
	p.bind(names, func() { s.body = p.body("endwith") })
	return s
}

// tuple parses an expression or several separated by commas. conditional permits inline if;
// a name in ends after a comma ends the tuple.
func (p *parser) tuple(conditional bool, ends []string) expr {
	one := p.expression
	if !conditional {
		one = p.or
	}
	first := one()
	if !p.peek().is(",") {
		return first
	}
	t := &listExpr{items: []expr{first}, tuple: true}
	for p.accept(",") {
		next := p.peek()
		if next.kind == tokenVariableEnd || next.kind == tokenBlockEnd || next.is(")") ||
			next.kind == tokenName && slices.Contains(ends, next.text) {
			break
		}
		t.items = append(t.items, one())
	}
	return t
}

// expression parses an expression, including an inline if: a if test else b.
func (p *parser) expression() expr {
	p.enter()
	defer p.leave()
	x := p.or()
	for n := 1; p.accept("if"); n++ {
		p.checkChain(n)
		c := &condExpr{then: x, test: p.or()}
		if p.accept("else") {
			c.otherwise = p.expression()
		}
		x = c
	}
	return x
}

func (p *parser) or() expr { return p.boolean("or", p.and) }

func (p *parser) and() expr { return p.boolean("and", p.not) }

func (p *parser) boolean(op string, part func() expr) expr {
	x := part()
	if !p.peek().is(op) {
		return x
	}
	b := &boolExpr{or: op == "or", parts: []expr{x}}
	for p.accept(op) {
		b.parts = append(b.parts, part())
	}
	return b
}

func (p *parser) not() expr {
	if !p.accept("not") {
		return p.compare()
	}
	p.enter()
	defer p.leave()
	return &notExpr{p.not()}
}

func (p *parser) compare() expr {
	x := p.sum()
	c := &compareExpr{first: x}
	for {
		op := p.peek()
		switch {
		case op.is("=="), op.is("!="), op.is("<"), op.is("<="), op.is(">"), op.is(">="), op.is("in"):
			p.next()
		case op.is("not") && p.peekSecond().is("in"):
			p.pos += 2
			op.text = "not in"
		default:
			if len(c.rest) == 0 {
				return x
			}
			return c
		}
		c.rest = append(c.rest, operand{op.text, p.sum()})
	}
}

// chain parses left-associative operators of one precedence.
func (p *parser) chain(part func() expr, ops ...string) expr {
	x := part()
	var c *chainExpr
	for {
		t := p.peek()
		if t.kind != tokenOperator || !slices.Contains(ops, t.text) {
			return x
		}
		if c == nil {
			c = &chainExpr{first: x}
			x = c
		}
		p.next()
		c.rest = append(c.rest, operand{t.text, part()})
	}
}

func (p *parser) sum() expr { return p.chain(p.concat, "+", "-") }

func (p *parser) concat() expr {
	x := p.product()
	if !p.peek().is("~") {
		return x
	}
	c := &concatExpr{[]expr{x}}
	for p.accept("~") {
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) product() expr { return p.chain(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr {
	return p.chain(func() expr { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) expr {
	var x expr
	if t := p.peek(); t.is("-") || t.is("+") {
		p.next()
		p.enter()
		x = &signExpr{minus: t.is("-"), x: p.unary(false)}
		p.leave()
	} else {
		x = p.primary()
	}
	x = p.postfix(x)
	if filters {
		x = p.filtersAndTests(x)
	}
	return x
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokenName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		p.use(t.text)
		return &nameExpr{t.text}
	case tokenString:
		parts := []string{t.text}
		for p.peek().kind == tokenString {
			parts = append(parts, p.next().text)
		}
		return &constExpr{Literal(strings.Join(parts, ""))}
	case tokenInteger:
		return &constExpr{p.integer(t)}
	case tokenFloat:
		f, _ := strconv.ParseFloat(t.text, 64) // out of range: infinity, as in Python
		return &constExpr{f}
	case tokenOperator:
		p.enter()
		defer p.leave()
		switch t.text {
		case "(":
			if p.accept(")") {
				return &listExpr{tuple: true}
			}
			x := p.tuple(true, nil)
			p.expect(")")
			return x
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	p.pos--
	if t.kind == tokenEOF {
		p.pos = len(p.tokens) - 1
	}
	p.fail("expected an expression, got %s", t.describe())
	return nil
}

// use records that the template reads a variable, unless it is local.
func (p *parser) use(name string) {
	if p.localNames[name] == 0 {
		p.uses[name] = true
	}
	if len(p.macros) > 0 {
		m := p.macros[len(p.macros)-1]
		switch name {
		case "varargs":
			m.varargs = true
		case "kwargs":
			m.kwargs = true
		case "caller":
			m.caller = true
		}
	}
}

func (p *parser) integer(t token) Value {
	if v, err := strconv.ParseInt(t.text, 0, 64); err == nil {
		return v
	}
	if len(t.text) > maxDigits/4 {
		throw(overLimit("integer", maxDigits, "bits"))
	}
	v, ok := new(big.Int).SetString(t.text, 0)
	if !ok {
		p.fail("illegal number %q", t.text)
	}
	return normalize(v)
}

func (p *parser) list() expr {
	l := &listExpr{}
	for !p.accept("]") {
		if len(l.items) > 0 {
			p.expect(",")
			if p.accept("]") {
				break
			}
		}
		l.items = append(l.items, p.expression())
	}
	return l
}

func (p *parser) dict() expr {
	d := &dictExpr{}
	for !p.accept("}") {
		if len(d.keys) > 0 {
			p.expect(",")
			if p.accept("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression())
		p.expect(":")
		d.vals = append(d.vals, p.expression())
	}
	return d
}

// postfix parses .name, [key] and (arguments).
func (p *parser) postfix(x expr) expr {
	for n := 1; ; n++ {
		p.checkChain(n)
		switch t := p.peek(); {
		case t.is("."):
			p.next()
			attr := p.next()
			switch attr.kind {
			case tokenName:
				x = &attrExpr{x, attr.text}
			case tokenInteger:
				x = &itemExpr{x, &constExpr{p.integer(attr)}}
			default:
				p.pos--
				p.fail("expected a name or number after '.', got %s", attr.describe())
			}
		case t.is("["):
			p.next()
			x = &itemExpr{x, p.subscript()}
		case t.is("("):
			x = &callExpr{x, p.arguments()}
		default:
			return x
		}
	}
}

// subscript parses the keys between brackets, after the opening one.
func (p *parser) subscript() expr {
	var keys []expr
	for !p.accept("]") {
		if len(keys) > 0 {
			p.expect(",")
		}
		keys = append(keys, p.subscriptItem())
	}
	if len(keys) == 1 {
		return keys[0]
	}
	return &listExpr{items: keys, tuple: true}
}

func (p *parser) subscriptItem() expr {
	s := &sliceExpr{}
	if !p.peek().is(":") {
		x := p.expression()
		if !p.peek().is(":") {
			return x
		}
		s.lo = x
	}
	p.expect(":")
	bound := func() expr {
		if t := p.peek(); t.is(":") || t.is("]") || t.is(",") {
			return nil
		}
		return p.expression()
	}
	s.hi = bound()
	if p.accept(":") {
		s.step = bound()
	}
	return s
}

func (p *parser) arguments() callArgs {
	p.enter()
	defer p.leave()
	var a callArgs
	p.expect("(")
	for first := true; !p.accept(")"); first = false {
		if !first {
			p.expect(",")
			if p.accept(")") {
				break
			}
		}
		switch t := p.peek(); {
		case t.is("*") && a.star == nil && a.doubleStar == nil:
			p.next()
			a.star = p.expression()
		case t.is("**") && a.doubleStar == nil:
			p.next()
			a.doubleStar = p.expression()
		case t.kind == tokenName && p.peekSecond().is("=") && a.doubleStar == nil:
			p.pos += 2
			a.names = append(a.names, t.text)
			a.vals = append(a.vals, p.expression())
		case a.star == nil && a.doubleStar == nil && len(a.names) == 0:
			a.pos = append(a.pos, p.expression())
		default:
			p.fail("invalid order of arguments")
		}
	}
	return a
}

// filters parses |name(arguments) once or more; with inline the first filter has no bar.
func (p *parser) filters(x expr, inline bool) expr {
	for n := 1; inline || p.accept("|"); n++ {
		inline = false
		p.checkChain(n)
		f := &filterExpr{x: x, name: p.dotted()}
		if p.peek().is("(") {
			f.args = p.arguments()
		}
		x = f
	}
	return x
}

func (p *parser) dotted() string {
	name := p.ident()
	for p.accept(".") {
		name += "." + p.ident()
	}
	return name
}

func (p *parser) filtersAndTests(x expr) expr {
	for n := 1; ; n++ {
		p.checkChain(n)
		switch t := p.peek(); {
		case t.is("|"):
			x = p.filters(x, false)
		case t.is("is"):
			p.next()
			x = p.test(x)
		case t.is("("):
			x = &callExpr{x, p.arguments()}
		default:
			return x
		}
	}
}

func (p *parser) test(x expr) expr {
	negated := p.accept("not")
	t := &testExpr{x: x, name: p.dotted()}
	switch next := p.peek(); {
	case next.is("("):
		t.args = p.arguments()
	case next.is("is"):
		p.fail("tests cannot be chained with is")
	case next.kind == tokenString, next.kind == tokenInteger, next.kind == tokenFloat, next.is("["), next.is("{"),
		next.kind == tokenName && !slices.Contains([]string{"if", "else", "or", "and"}, next.text):
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &notExpr{t}
	}
	return t
}
