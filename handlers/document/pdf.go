package document

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ledongthuc/pdf"
)

const maxForms = 8 // forms in forms

func readPDF(file []byte) (text string, pages int, err error) {
	r, err := pdf.NewReader(bytes.NewReader(file), int64(len(file)))
	switch {
	case errors.Is(err, pdf.ErrInvalidPassword):
		return "", 0, errLocked
	case err != nil && strings.Contains(err.Error(), "encrypt"):
		return "", 0, failed("is encrypted in a way that cannot be read: save a copy without encryption, and attach that")
	case err != nil:
		return "", 0, failed("is broken, or only a part of it: %v", err)
	}
	pages = r.NumPage()
	if pages < 1 {
		return "", 0, failed("is broken: it has no pages")
	}
	if pages > maxPages {
		return "", 0, failed("has %d pages, and a document can have %d: attach the part that matters", pages, maxPages)
	}
	var out strings.Builder
	fonts := map[string]*font{}
	found, broken := false, 0
	for n := 1; n <= pages; n++ {
		page, err := readPage(r, n, fonts)
		if err != nil {
			if broken++; page == "" {
				page = "(this page cannot be read)"
			}
		} else if strings.TrimSpace(page) != "" {
			found = true
		}
		if pages > 1 {
			fmt.Fprintf(&out, "[Page %d]\n", n)
		}
		out.WriteString(page)
		out.WriteString("\n\n")
		if out.Len() > maxText {
			return "", 0, failed("has more than %d MB of text on its first %d pages: attach the part that matters", maxText>>20, n)
		}
	}
	switch {
	case !found && broken > 0:
		return "", 0, failed("is broken: none of its %d pages can be read", pages)
	case !found:
		return "", 0, errScanned
	}
	return out.String(), pages, nil
}

// readPage returns the text of a page as far as it can be read. The package panics on what it does not expect.
func readPage(r *pdf.Reader, n int, fonts map[string]*font) (text string, err error) {
	var l layout
	defer func() {
		if v := recover(); v != nil {
			text, err = l.out.String(), fmt.Errorf("page %d: %v", n, v)
		}
	}()
	p := r.Page(n)
	if p.V.IsNull() || p.V.Key("Contents").IsNull() {
		return "", nil
	}
	i := interpreter{layout: &l, fonts: fonts}
	i.run(p.V.Key("Contents"), p.Resources(), identity, 0)
	return l.out.String(), nil
}

// matrix is a transformation: x' = ax + cy + e, y' = bx + dy + f.
type matrix struct{ a, b, c, d, e, f float64 }

var identity = matrix{a: 1, d: 1}

// then returns the transformation that applies m first.
func (m matrix) then(n matrix) matrix {
	return matrix{
		m.a*n.a + m.b*n.c, m.a*n.b + m.b*n.d,
		m.c*n.a + m.d*n.c, m.c*n.b + m.d*n.d,
		m.e*n.a + m.f*n.c + n.e, m.e*n.b + m.f*n.d + n.f,
	}
}

// font is what text in a font needs.
type font struct {
	decode   pdf.TextEncoding
	wide     bool // codes have two bytes
	widths   map[int]float64
	fallback float64
	simple   pdf.Font
}

func newFont(f pdf.Font) *font {
	out := &font{decode: f.Encoder(), simple: f, fallback: 500}
	if f.V.Key("Subtype").Name() != "Type0" {
		return out
	}
	out.wide, out.fallback, out.widths = true, 1000, map[int]float64{}
	descendant := f.V.Key("DescendantFonts").Index(0)
	if w := descendant.Key("DW"); !w.IsNull() {
		out.fallback = w.Float64()
	}
	list := descendant.Key("W")
	for i := 0; i+1 < list.Len(); {
		first, next := int(list.Index(i).Int64()), list.Index(i+1)
		if next.Kind() == pdf.Array {
			for j := range min(next.Len(), 1<<16) {
				out.widths[first+j] = next.Index(j).Float64()
			}
			i += 2
			continue
		}
		last := min(int(next.Int64()), 1<<16)
		for code := max(0, first); code <= last; code++ {
			out.widths[code] = list.Index(i + 2).Float64()
		}
		i += 3
	}
	return out
}

// show calls each with the text and the width, in thousandths of the size, of each code of a string.
func (f *font) show(raw string, each func(code int, text string, width float64)) {
	step := 1
	if f.wide {
		step = 2
	}
	for ; len(raw) >= step; raw = raw[step:] {
		code := int(raw[0])
		if f.wide {
			code = code<<8 | int(raw[1])
		}
		text := ""
		if f.decode != nil {
			text = f.decode.Decode(raw[:step])
		}
		each(code, text, f.width(code))
	}
}

func (f *font) width(code int) float64 {
	if w, known := f.widths[code]; known {
		return w
	}
	if !f.wide {
		if w := f.simple.Width(code); w > 0 {
			return w
		}
	}
	return f.fallback
}

// textState is the part of the graphics state that text depends on.
type textState struct {
	ctm                                matrix
	font                               *font
	size, character, word, scale, lead float64
	rise                               float64
}

// interpreter runs the content of a page.
type interpreter struct {
	layout *layout
	fonts  map[string]*font // of the whole document, by what they are, as several names may mean the same
}

// run runs a content stream, and those of the forms that it shows.
func (i *interpreter) run(content, resources pdf.Value, ctm matrix, depth int) {
	c := contentStream{
		interpreter: i, resources: resources, depth: depth, named: map[string]*font{},
		textState: textState{ctm: ctm, scale: 1}, line: identity, at: identity,
	}
	pdf.Interpret(content, func(stack *pdf.Stack, op string) {
		args := make(operands, stack.Len())
		for j := len(args) - 1; j >= 0; j-- {
			args[j] = stack.Pop()
		}
		c.setState(op, args)
		c.move(op, args)
		c.show(op, args)
	})
}

// contentStream is a content stream that is run.
type contentStream struct {
	*interpreter
	resources pdf.Value
	depth     int              // of forms in forms
	named     map[string]*font // by the name in resources

	textState
	saved    []textState
	line, at matrix // from the coordinates of text to those of the stream: at the beginning of the line, and at the next character
}

// operands are the operands of an operator.
type operands []pdf.Value

// number returns an operand, or 0 if there are fewer.
func (o operands) number(j int) float64 {
	if j >= len(o) {
		return 0
	}
	return o[j].Float64()
}

// matrix returns the first six operands.
func (o operands) matrix() matrix {
	return matrix{o.number(0), o.number(1), o.number(2), o.number(3), o.number(4), o.number(5)}
}

// setState runs the operators that change the graphics state.
func (c *contentStream) setState(op string, args operands) {
	switch {
	case op == "q" && len(c.saved) < 256:
		c.saved = append(c.saved, c.textState)
	case op == "Q" && len(c.saved) > 0:
		last := len(c.saved) - 1
		c.textState, c.saved = c.saved[last], c.saved[:last]
	case op == "cm" && len(args) >= 6:
		c.ctm = args.matrix().then(c.ctm)
	case op == "Tf" && len(args) >= 2:
		name := args[0].Name()
		if c.named[name] == nil {
			c.named[name] = c.fontOf(c.resources.Key("Font").Key(name))
		}
		c.font, c.size = c.named[name], args.number(1)
	case op == "TL":
		c.lead = args.number(0)
	case op == "TD":
		c.lead = -args.number(1)
	case op == "Tc":
		c.character = args.number(0)
	case op == "Tw":
		c.word = args.number(0)
	case op == "\"" && len(args) >= 3:
		c.word, c.character = args.number(0), args.number(1)
	case op == "Tz":
		c.scale = args.number(0) / 100
	case op == "Ts":
		c.rise = args.number(0)
	}
}

// move runs the operators that move to another place, as some that show text do first.
func (c *contentStream) move(op string, args operands) {
	switch {
	case op == "BT":
		c.line, c.at = identity, identity
	case op == "Tm" && len(args) >= 6:
		c.line = args.matrix()
		c.at = c.line
	case op == "Td", op == "TD":
		c.next(args.number(0), args.number(1))
	case op == "T*", op == "'" && len(args) >= 1, op == "\"" && len(args) >= 3:
		c.next(0, -c.lead)
	}
}

// next begins a line at a place relative to the beginning of this one.
func (c *contentStream) next(x, y float64) {
	c.line = matrix{1, 0, 0, 1, x, y}.then(c.line)
	c.at = c.line
}

// show runs the operators that show text or a form.
func (c *contentStream) show(op string, args operands) {
	switch {
	case (op == "Tj" || op == "'") && len(args) >= 1:
		c.text(args[0].RawString())
	case op == "\"" && len(args) >= 3:
		c.text(args[2].RawString())
	case op == "TJ" && len(args) >= 1:
		for j := range args[0].Len() {
			if v := args[0].Index(j); v.Kind() == pdf.String {
				c.text(v.RawString())
			} else {
				c.advance(-v.Float64() / 1000 * c.size)
			}
		}
	case op == "Do" && len(args) >= 1 && c.depth < maxForms:
		c.form(c.resources.Key("XObject").Key(args[0].Name()), c.resources, c.ctm, c.depth)
	}
}

// text shows a string.
func (c *contentStream) text(raw string) {
	if c.font == nil {
		return
	}
	c.font.show(raw, func(code int, text string, width float64) {
		place := matrix{c.size * c.scale, 0, 0, c.size, 0, c.rise}.then(c.at).then(c.ctm)
		advance := width/1000*c.size + c.character
		if code == ' ' && !c.font.wide {
			advance += c.word
		}
		c.advance(advance)
		end := c.at.then(c.ctm)
		c.layout.add(text, place.e, place.f, end.e, end.f, math.Hypot(place.c, place.d))
	})
}

// advance moves along the line, by so much before it is scaled.
func (c *contentStream) advance(x float64) {
	c.at = matrix{1, 0, 0, 1, x * c.scale, 0}.then(c.at)
}

// form runs a form, which is content that is shown by its name.
func (i *interpreter) form(form, resources pdf.Value, ctm matrix, depth int) {
	if form.Key("Subtype").Name() != "Form" {
		return
	}
	if own := form.Key("Resources"); !own.IsNull() {
		resources = own
	}
	if m := form.Key("Matrix"); m.Len() == 6 {
		v := func(j int) float64 { return m.Index(j).Float64() }
		ctm = matrix{v(0), v(1), v(2), v(3), v(4), v(5)}.then(ctm)
	}
	i.run(form, resources, ctm, depth+1)
}

func (i *interpreter) fontOf(v pdf.Value) *font {
	key := v.String()
	if i.fonts[key] == nil {
		i.fonts[key] = newFont(pdf.Font{V: v})
	}
	return i.fonts[key]
}

// layout writes text in the order in which it comes, with spaces and ends of lines where its places leave room.
type layout struct {
	out  strings.Builder
	x, y float64 // where the last text ended
	size float64
	any  bool
}

func (l *layout) add(text string, x, y, endX, endY, size float64) {
	if l.out.Len() > maxText {
		panic(failed("has more than %d MB of text: attach the part that matters", maxText>>20))
	}
	if text == "" || size <= 0 || math.IsNaN(x+y) || math.IsInf(x+y, 0) {
		return
	}
	high := max(size, l.size)
	switch down := l.y - y; {
	case !l.any:
	case math.Abs(down) > 0.6*high:
		l.out.WriteByte('\n')
		if down > 1.9*high || down < 0 {
			l.out.WriteByte('\n')
		}
	case x > l.x+2.5*high:
		l.out.WriteByte('\t')
	case x > l.x+0.18*high:
		if !strings.HasSuffix(l.out.String(), " ") && !strings.HasPrefix(text, " ") {
			l.out.WriteByte(' ')
		}
	case x < l.x-2*high:
		l.out.WriteByte('\n')
	}
	l.out.WriteString(text)
	l.x, l.y, l.size, l.any = endX, endY, size, true
}
