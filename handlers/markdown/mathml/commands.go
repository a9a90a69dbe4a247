package mathml

import (
	"html"
	"strings"
)

// command reads a command with its arguments.
func (p *parser) command() (part string, limits bool, err error) {
	name := p.next()
	if symbol, ok := identifiers[name]; ok {
		return element("mi", symbol), false, nil
	}
	if symbol, ok := operators[name]; ok {
		return operator(symbol), false, nil
	}
	if symbol, ok := bigOperators[name]; ok {
		return `<mo movablelimits="true">` + symbol + "</mo>", !strings.Contains("∫∬∭∮", symbol), nil
	}
	if width, ok := spaces[name]; ok {
		return `<mspace width="` + width + `"></mspace>`, false, nil
	}
	if text, ok := functions[name]; ok {
		return element("mi", text), false, nil
	}
	if text, ok := limitFunctions[name]; ok {
		return `<mo movablelimits="true">` + text + "</mo>", true, nil
	}
	if mark, ok := accents[name]; ok {
		inner, err := p.argument()
		return `<mover accent="true">` + inner + mark + "</mover>", false, err
	}
	if alphabet, ok := alphabets[name]; ok {
		return p.lettered(alphabet)
	}
	if ignored[name] {
		return "", false, nil
	}
	part, err = p.construct(name)
	return part, strings.HasSuffix(name, "brace"), err
}

// construct reads a command that has a layout of its own.
func (p *parser) construct(name string) (string, error) {
	switch name {
	case `\frac`, `\dfrac`, `\tfrac`, `\cfrac`:
		return p.two("<mfrac>", "</mfrac>")
	case `\binom`, `\dbinom`, `\tbinom`:
		return p.two(`<mrow><mo>(</mo><mfrac linethickness="0">`, "</mfrac><mo>)</mo></mrow>")
	case `\sqrt`:
		return p.root()
	case `\text`, `\textrm`, `\textit`, `\textbf`, `\texttt`, `\mbox`:
		text, err := p.raw()
		return spacedText(text), err
	case `\operatorname`, `\mathrm`, `\mathsf`, `\mathtt`, `\mathit`:
		text, err := p.raw()
		if err == nil && strings.ContainsAny(text, `\{}_^&`) {
			err = errUnknown
		}
		return element("mi", html.EscapeString(strings.TrimSpace(text))), err
	case `\overline`, `\underline`, `\overbrace`, `\underbrace`, `\overrightarrow`, `\overset`, `\underset`, `\stackrel`:
		return p.above(name)
	case `\left`:
		return p.fenced()
	case `\big`, `\Big`, `\bigg`, `\Bigg`, `\bigl`, `\bigr`, `\Bigl`, `\Bigr`, `\biggl`, `\biggr`, `\middle`:
		return p.delimiter()
	case `\not`:
		symbol, ok := negated[p.next()]
		if !ok {
			return "", errUnknown
		}
		return operator(symbol), nil
	case `\boxed`:
		return p.argument()
	case `\pmod`:
		inner, err := p.argument()
		return `<mrow><mspace width="1em"></mspace><mo stretchy="false">(</mo><mi>mod</mi><mspace width="0.33em"></mspace>` + inner + `<mo stretchy="false">)</mo></mrow>`, err
	case `\tag`:
		text, err := p.raw()
		return `<mspace width="2em"></mspace>` + spacedText("("+text+")"), err
	case `\begin`:
		return p.environment()
	}
	return "", errUnknown
}

// two reads two arguments.
func (p *parser) two(before, after string) (string, error) {
	first, err := p.argument()
	if err != nil {
		return "", err
	}
	second, err := p.argument()
	return before + first + second + after, err
}

func (p *parser) root() (string, error) {
	degree := p.optional()
	inner, err := p.argument()
	if err != nil || degree == "" {
		return element("msqrt", inner), err
	}
	index := &parser{rest: degree, depth: p.depth}
	shown, err := index.row()
	if err == nil && index.rest != "" {
		err = errUnknown
	}
	return element("mroot", inner+shown), err
}

// above reads a line, a brace or an arrow above or below its argument, or an argument above another.
func (p *parser) above(name string) (string, error) {
	switch name {
	case `\overset`, `\stackrel`, `\underset`:
		over, err := p.argument()
		if err != nil {
			return "", err
		}
		base, err := p.argument()
		if name == `\underset` {
			return element("munder", base+over), err
		}
		return element("mover", base+over), err
	}
	inner, err := p.argument()
	mark := map[string]string{`\overline`: "‾", `\underline`: "_", `\overbrace`: "⏞", `\underbrace`: "⏟", `\overrightarrow`: "→"}[name]
	if strings.HasPrefix(name, `\under`) {
		return element("munder", inner+`<mo stretchy="true">`+mark+"</mo>"), err
	}
	return element("mover", inner+`<mo stretchy="true">`+mark+"</mo>"), err
}

// fenced reads what is between \left and \right, whose brackets grow with it.
func (p *parser) fenced() (string, error) {
	open, ok := bracket(p.next())
	if !ok {
		return "", errUnknown
	}
	inner, err := p.row()
	if err != nil {
		return "", err
	}
	if !p.take(`\right`) {
		return "", errUnknown
	}
	shut, ok := bracket(p.next())
	if !ok {
		return "", errUnknown
	}
	return "<mrow>" + grown(open) + inner + grown(shut) + "</mrow>", nil
}

func grown(symbol string) string {
	if symbol == "" {
		return ""
	}
	return `<mo stretchy="true">` + html.EscapeString(symbol) + "</mo>"
}

func (p *parser) delimiter() (string, error) {
	symbol, ok := bracket(p.next())
	if !ok || symbol == "" {
		return "", errUnknown
	}
	return operator(symbol), nil
}

// bracket returns what a token after \left or \right shows; "" for a dot.
func bracket(token string) (symbol string, ok bool) {
	switch token {
	case ".":
		return "", true
	case "(", ")", "[", "]", "|", "/", "<", ">":
		return strings.NewReplacer("<", "⟨", ">", "⟩").Replace(token), true
	}
	symbol, ok = operators[token]
	return symbol, ok && strings.Contains("{}‖⟨⟩⌊⌋⌈⌉↑↓|", symbol)
}

// environment reads \begin{name} to \end{name}.
func (p *parser) environment() (string, error) {
	name, err := p.raw()
	if err != nil {
		return "", err
	}
	e, ok := environments[strings.TrimSuffix(name, "*")]
	if !ok {
		return "", errUnknown
	}
	if name == "array" || strings.TrimSuffix(name, "*") == "alignat" {
		if _, err := p.raw(); err != nil { // its columns, or how many there are
			return "", err
		}
	}
	if p.depth++; p.depth > maxDepth {
		return "", errLimit
	}
	defer func() { p.depth-- }()
	cells, err := p.table(`\end`)
	if err != nil {
		return "", err
	}
	if end, err := p.raw(); err != nil || end != name {
		return "", errUnknown
	}
	if e.open+e.shut == "" {
		return cells.html(e.class), nil
	}
	return "<mrow>" + grown(e.open) + cells.html(e.class) + grown(e.shut) + "</mrow>", nil
}

// spacedText returns text with its spaces, which MathML drops at the ends.
func spacedText(text string) string {
	text = strings.NewReplacer(`\ `, " ", `\_`, "_", `\%`, "%", `\$`, "$", `\&`, "&", `\#`, "#", "\n", " ").Replace(text)
	return element("mtext", html.EscapeString(strings.ReplaceAll(text, " ", "\u00a0")))
}

// lettered reads letters of an alphabet, such as ℝ.
func (p *parser) lettered(a alphabet) (string, bool, error) {
	text := p.peek()
	if text == "{" {
		var err error
		if text, err = p.raw(); err != nil {
			return "", false, err
		}
	} else {
		p.next()
	}
	var b strings.Builder
	for _, r := range strings.TrimSpace(text) {
		letter, ok := a.letter(r)
		if !ok {
			return "", false, errUnknown
		}
		b.WriteString(element("mi", string(letter)))
	}
	if b.Len() == 0 {
		return "", false, errUnknown
	}
	return "<mrow>" + b.String() + "</mrow>", false, nil
}
