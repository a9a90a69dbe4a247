// Package mathml converts formulas from TeX to MathML Core, which browsers draw without fonts or
// scripts of the page. It knows the part of TeX that models write; symbols.go lists it. Render refuses
// a formula with anything else as a whole, and the caller shows its source.
//
// Formulas are hostile: Render bounds their length, nests at most maxDepth deep, and
// writes no text of a formula that is not escaped.
package mathml

import (
	"errors"
	"html"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxSource = 4 << 10 // bytes
	maxDepth  = 40      // of groups within groups
)

var (
	errUnknown = errors.New("the formula has a command that is not known, or is not complete")
	errLimit   = errors.New("the formula is too long, or too deep")
)

// Render returns a formula as a math element. display puts it on a line of its own.
func Render(source string, display bool) (string, error) {
	if len(source) > maxSource || !utf8.ValidString(source) {
		return "", errLimit
	}
	p := &parser{rest: source, display: display}
	rows, err := p.table("")
	if err != nil {
		return "", err
	}
	body := rows.only()
	if body == "" && len(rows) > 1 {
		body = rows.html("aligned")
	}
	if body == "" {
		return "", errUnknown
	}
	if display {
		return `<math display="block">` + body + "</math>", nil
	}
	return "<math>" + body + "</math>", nil
}

// parser reads a formula from its beginning.
type parser struct {
	rest    string
	depth   int
	display bool
}

// token is the next piece of a formula: a command with its backslash, or a character. "" is the end.
func (p *parser) peek() string {
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	if p.rest == "" {
		return ""
	}
	if p.rest[0] != '\\' {
		_, n := utf8.DecodeRuneInString(p.rest)
		return p.rest[:n]
	}
	n := 1
	for n < len(p.rest) && isLetter(p.rest[n]) {
		n++
	}
	if n == 1 && len(p.rest) > 1 {
		_, size := utf8.DecodeRuneInString(p.rest[1:])
		n += size
	}
	return p.rest[:n]
}

func (p *parser) next() string {
	token := p.peek()
	p.rest = p.rest[len(token):]
	return token
}

func (p *parser) take(token string) bool {
	if p.peek() != token {
		return false
	}
	p.next()
	return true
}

func isLetter(b byte) bool { return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' }

// rows are the cells of a table.
type rows [][]string

// only returns the content if there is one cell, else "".
func (r rows) only() string {
	if len(r) == 1 && len(r[0]) == 1 {
		return r[0][0]
	}
	return ""
}

// html returns the table, with the class that aligns its cells.
func (r rows) html(class string) string {
	var b strings.Builder
	b.WriteString("<mtable")
	if class != "" {
		b.WriteString(` class="` + class + `"`)
	}
	b.WriteString(">")
	for _, row := range r {
		b.WriteString("<mtr>")
		for _, cell := range row {
			b.WriteString("<mtd>" + cell + "</mtd>")
		}
		b.WriteString("</mtr>")
	}
	b.WriteString("</mtable>")
	return b.String()
}

// table reads cells up to end, "" or \end, and takes that.
func (p *parser) table(end string) (rows, error) {
	all := rows{{}}
	for {
		cell, err := p.row()
		if err != nil {
			return nil, err
		}
		at := len(all) - 1
		all[at] = append(all[at], cell)
		switch token := p.next(); token {
		case "&":
		case `\\`, `\cr`:
			p.optional()
			all = append(all, []string{})
		case end:
			if last := all[at]; len(last) == 1 && last[0] == emptyRow && len(all) > 1 {
				all = all[:at] // after the last line break
			}
			return all, nil
		default:
			return nil, errUnknown
		}
	}
}

const emptyRow = "<mrow></mrow>"

// row reads up to what ends a cell or a group, and leaves that.
func (p *parser) row() (string, error) {
	if p.depth++; p.depth > maxDepth {
		return "", errLimit
	}
	defer func() { p.depth-- }()
	var parts []string
	for {
		switch p.peek() {
		case "", "}", "&", `\\`, `\cr`, `\end`, `\right`:
			if len(parts) == 1 {
				return parts[0], nil
			}
			return "<mrow>" + strings.Join(parts, "") + "</mrow>", nil
		}
		part, err := p.scripted()
		if err != nil {
			return "", err
		}
		if part != "" {
			parts = append(parts, part)
		}
	}
}

// scripted reads an atom with what is above and below it.
func (p *parser) scripted() (string, error) {
	base, limits, err := p.atom()
	if err != nil {
		return "", err
	}
	for p.take(`\limits`) {
		limits = true
	}
	for p.take(`\nolimits`) {
		limits = false
	}
	sub, sup := "", ""
	for {
		switch token := p.peek(); {
		case token == "_" && sub == "":
			p.next()
			if sub, err = p.argument(); err != nil {
				return "", err
			}
		case token == "^" && sup == "":
			p.next()
			if sup, err = p.argument(); err != nil {
				return "", err
			}
		case token == "'":
			primes := 0
			for p.take("'") {
				primes++
			}
			mark := "<mo>" + strings.Repeat("′", primes) + "</mo>"
			if sup != "" {
				return "", errUnknown // TeX refuses it too
			}
			if sup = mark; p.take("^") {
				more, err := p.argument()
				if err != nil {
					return "", err
				}
				sup = "<mrow>" + mark + more + "</mrow>"
			}
		case token == "_" || token == "^":
			return "", errUnknown
		default:
			return attach(base, sub, sup, limits), nil
		}
	}
}

func attach(base, sub, sup string, limits bool) string {
	if base == "" && sub+sup != "" {
		base = emptyRow
	}
	names := [3]string{"msub", "msup", "msubsup"}
	if limits {
		names = [3]string{"munder", "mover", "munderover"}
	}
	switch {
	case sub != "" && sup != "":
		return element(names[2], base+sub+sup)
	case sub != "":
		return element(names[0], base+sub)
	case sup != "":
		return element(names[1], base+sup)
	}
	return base
}

func element(name, content string) string { return "<" + name + ">" + content + "</" + name + ">" }

// argument reads what a command or a script applies to: a group or one atom.
func (p *parser) argument() (string, error) {
	switch p.peek() {
	case "", "}", "&", "_", "^", `\\`, `\end`, `\right`:
		return "", errUnknown
	case "{":
		return p.group()
	}
	if c := p.peek(); c[0] >= '0' && c[0] <= '9' { // x^10 is x¹0
		return element("mn", p.next()), nil
	}
	if p.depth++; p.depth > maxDepth {
		return "", errLimit
	}
	defer func() { p.depth-- }()
	part, _, err := p.atom()
	if err == nil && part == "" {
		err = errUnknown
	}
	return part, err
}

func (p *parser) group() (string, error) {
	if !p.take("{") {
		return "", errUnknown
	}
	inner, err := p.row()
	if err == nil && !p.take("}") {
		err = errUnknown
	}
	return inner, err
}

// raw reads a group as text.
func (p *parser) raw() (string, error) {
	if !p.take("{") {
		return "", errUnknown
	}
	depth := 1
	for i := 0; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				text := p.rest[:i]
				p.rest = p.rest[i+1:]
				return text, nil
			}
		}
	}
	return "", errUnknown
}

// optional reads an argument in brackets, as \\[2pt] has, and returns its text.
func (p *parser) optional() string {
	if p.peek() != "[" {
		return ""
	}
	text, rest, found := strings.Cut(p.rest[1:], "]")
	if !found || strings.ContainsAny(text, "{}\\&") {
		return ""
	}
	p.rest = rest
	return text
}

// atom reads one piece without its scripts. limits: they are above and below it.
func (p *parser) atom() (part string, limits bool, err error) {
	token := p.peek()
	switch {
	case token == "{":
		part, err = p.group()
		return part, false, err
	case token[0] == '\\':
		return p.command()
	case token[0] >= '0' && token[0] <= '9':
		return element("mn", p.number()), false, nil
	}
	p.next()
	r, _ := utf8.DecodeRuneInString(token)
	switch {
	case token == "~":
		return `<mspace width="0.33em"></mspace>`, false, nil
	case token == "$" || token == "#" || token == "%":
		return "", false, errUnknown
	case token == "_" || token == "^":
		p.rest = token + p.rest // scripts of nothing
		return "", false, nil
	case token == "*":
		token = "∗"
	case token == "-":
		token = "−"
	case unicode.IsLetter(r):
		return element("mi", html.EscapeString(token)), false, nil
	case unicode.IsMark(r), unicode.IsControl(r), unicode.In(r, unicode.Cf):
		return "", false, errUnknown
	}
	return operator(token), false, nil
}

// operator returns an operator. Brackets grow with \left and \right alone.
func operator(symbol string) string {
	if strings.Contains("()[]|{}‖⟨⟩⌊⌋⌈⌉/", symbol) {
		return `<mo stretchy="false">` + html.EscapeString(symbol) + "</mo>"
	}
	return element("mo", html.EscapeString(symbol))
}

func (p *parser) number() string {
	n := 0
	for n < len(p.rest) && (p.rest[n] >= '0' && p.rest[n] <= '9' || n+1 < len(p.rest) && n > 0 && p.rest[n] == '.' && p.rest[n+1] >= '0' && p.rest[n+1] <= '9') {
		n++
	}
	text := p.rest[:n]
	p.rest = p.rest[n:]
	return text
}
