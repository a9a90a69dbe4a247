package markdown

import (
	"bytes"
	"regexp"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"m40-llm/handlers/markdown/mathml"
)

// Formulas are between \( and \), \[ and \], $ and $, or $$ and $$, or are an environment such as \begin{align} to
// \end{align}. To Markdown their backslashes and underscores would be marks. One that package mathml cannot convert is
// shown as the model wrote it.

// maxFormula is how many bytes a formula has at most: its end is looked for so far.
const maxFormula = 4 << 10

var kindFormula = ast.NewNodeKind("Formula")

// formula is a formula within a line, or on lines of its own.
type formula struct {
	ast.BaseInline
	source []byte // with what is around it
	marks  marks
	own    bool // on lines of its own
}

func (*formula) Kind() ast.NodeKind              { return kindFormula }
func (f *formula) Dump(source []byte, level int) { ast.DumpHelper(f, source, level, nil, nil) }

// marks are what is around a formula.
type marks struct {
	open, shut []byte // nil: there is no formula
	part       bool   // of the formula, as those of an environment
}

// display reports whether a formula with these marks is shown apart from the text around it.
func (m marks) display() bool { return m.part || string(m.shut) == `\]` || string(m.shut) == `$$` }

var beginsEnvironment = regexp.MustCompile(`^\\begin\{([a-zA-Z]{1,16}\*?)\}`)

// marksOf returns the marks of the formula that text begins with.
func marksOf(text []byte) marks {
	for _, m := range []marks{{[]byte(`\(`), []byte(`\)`), false}, {[]byte(`\[`), []byte(`\]`), false}, {[]byte(`$$`), []byte(`$$`), false}, {[]byte(`$`), []byte(`$`), false}} {
		if bytes.HasPrefix(text, m.open) {
			return m
		}
	}
	if environment := beginsEnvironment.FindSubmatch(text); environment != nil && mathml.IsEnvironment(string(environment[1])) {
		return marks{environment[0], []byte(`\end{` + string(environment[1]) + `}`), true}
	}
	return marks{}
}

// inlineFormulas parses formulas within paragraphs.
type inlineFormulas struct{}

func (inlineFormulas) Trigger() []byte { return []byte{'\\', '$'} }

func (inlineFormulas) Parse(_ ast.Node, block text.Reader, _ parser.Context) ast.Node {
	line, _ := block.PeekLine()
	m := marksOf(line)
	dollar := len(m.shut) == 1
	if m.shut == nil || dollar && !opensDollar(line, block.PrecendingCharacter()) {
		return nil
	}
	from, at := block.Position()
	var source []byte
	for from := len(m.open); len(source) < maxFormula; from = 0 {
		line, _ := block.PeekLine()
		if line == nil {
			break
		}
		line = line[:min(len(line), maxFormula-len(source))]
		if end := findClosing(line[min(from, len(line)):], m.shut); end >= 0 {
			stop := from + end + len(m.shut)
			if dollar && isPrice(line[from:from+end]) {
				break
			}
			block.Advance(stop)
			return &formula{source: append(source, line[:stop]...), marks: m}
		}
		if dollar {
			break // a single dollar is more often a price
		}
		source = append(source, line...)
		block.AdvanceLine()
	}
	block.SetPosition(from, at)
	return nil
}

// opensDollar reports whether a dollar may begin a formula: not one of a price or within a word.
func opensDollar(line []byte, before rune) bool {
	next, _ := utf8.DecodeRune(line[1:])
	return len(line) > 1 && !unicode.IsSpace(next) && !unicode.IsLetter(before) && !unicode.IsDigit(before) && before != '\\'
}

// price matches what is between the dollars of two prices: a number, and then a word with others after it, or what
// makes another currency of the second dollar.
var price = regexp.MustCompile(`^[0-9].*([\s,;]\pL{2,}[,;]?\s|[\s/–-](US|CA|AU|NZ|HK|SG|NT|MX|A|C|R|S)$)`)

var textCommand = regexp.MustCompile(`\\[a-zA-Z]+\{[^{}]*\}`)

// isPrice reports whether what is between two dollars is more likely the text between two prices.
func isPrice(between []byte) bool { return price.Match(textCommand.ReplaceAll(between, []byte("x"))) }

// findClosing returns where a formula ends; -1 if not in this line.
func findClosing(line, shut []byte) int {
	if len(shut) > 1 {
		return bytes.Index(line, shut)
	}
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '`':
			return -1 // more likely code
		case '$':
			digit := i+1 < len(line) && '0' <= line[i+1] && line[i+1] <= '9'
			if i == 0 || line[i-1] == ' ' || line[i-1] == '\t' || digit {
				return -1
			}
			return i
		}
	}
	return -1
}

// blockFormulas parses formulas on lines of their own. They are no paragraphs, in which a line that
// begins with a minus would be a list.
type blockFormulas struct{}

var kindFormulaBlock = ast.NewNodeKind("FormulaBlock")

type formulaBlock struct {
	ast.BaseBlock
	marks marks
	done  bool // the last line was read
}

func (*formulaBlock) Kind() ast.NodeKind              { return kindFormulaBlock }
func (*formulaBlock) IsRaw() bool                     { return true }
func (b *formulaBlock) Dump(source []byte, level int) { ast.DumpHelper(b, source, level, nil, nil) }

func (blockFormulas) Trigger() []byte { return []byte{'\\', '$'} }

func (blockFormulas) Open(_ ast.Node, reader text.Reader, context parser.Context) (ast.Node, parser.State) {
	line, segment := reader.PeekLine()
	at := context.BlockOffset()
	if at < 0 {
		return nil, parser.NoChildren
	}
	m := marksOf(line[at:])
	if !m.display() {
		return nil, parser.NoChildren
	}
	rest := reader.Source()[segment.Start:]
	rest = rest[min(len(rest), at+len(m.open)):min(len(rest), maxFormula)]
	end := bytes.Index(rest, m.shut)
	if end < 0 || bytes.Contains(rest[:end], []byte("\n\n")) {
		return nil, parser.NoChildren
	}
	after, _, _ := bytes.Cut(rest[end+len(m.shut):], []byte("\n"))
	if len(bytes.TrimSpace(after)) > 0 {
		return nil, parser.NoChildren // there is text after it: it is within a paragraph
	}
	block := &formulaBlock{marks: m, done: !bytes.Contains(rest[:end], []byte("\n"))}
	block.Lines().Append(segment.WithStart(segment.Start + at))
	reader.Advance(segment.Len() - 1)
	return block, parser.NoChildren
}

func (blockFormulas) Continue(node ast.Node, reader text.Reader, _ parser.Context) parser.State {
	block := node.(*formulaBlock)
	if block.done {
		return parser.Close
	}
	line, segment := reader.PeekLine()
	block.done = bytes.Contains(line, block.marks.shut)
	block.Lines().Append(segment)
	reader.Advance(segment.Len() - 1)
	return parser.Continue | parser.NoChildren
}

func (blockFormulas) Close(ast.Node, text.Reader, parser.Context) {}
func (blockFormulas) CanInterruptParagraph() bool                 { return true }
func (blockFormulas) CanAcceptIndentedLine() bool                 { return false }

func renderFormulaBlock(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<p>")
		writeFormula(w, bytes.TrimSpace(linesOf(node.Lines(), source)), node.(*formulaBlock).marks)
		_, _ = w.WriteString("</p>\n")
	}
	return ast.WalkSkipChildren, nil
}

func renderFormula(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if f := node.(*formula); entering {
		writeFormula(w, f.source, f.marks)
	}
	return ast.WalkSkipChildren, nil
}

// writeFormula writes a formula as MathML, or as it is.
func writeFormula(w util.BufWriter, source []byte, m marks) {
	if len(source) >= len(m.open)+len(m.shut) {
		inside := source
		if !m.part {
			inside = source[len(m.open) : len(source)-len(m.shut)]
		}
		if math, err := mathml.Render(string(inside), m.display()); err == nil {
			_, _ = w.WriteString(math)
			return
		}
	}
	for i, line := range bytes.Split(source, []byte("\n")) {
		if i > 0 {
			_, _ = w.WriteString("<br>\n")
		}
		escape(w, bytes.TrimRight(line, " \t\r"))
	}
}
