package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEOF tokenKind = iota
	tokenData
	tokenVariableBegin
	tokenVariableEnd
	tokenBlockBegin
	tokenBlockEnd
	tokenName
	tokenString
	tokenInteger
	tokenFloat
	tokenOperator
)

type token struct {
	kind tokenKind
	text string
	line int
}

// is reports whether the token is this operator or name.
func (t token) is(text string) bool {
	return (t.kind == tokenOperator || t.kind == tokenName) && t.text == text
}

// describe returns the token as error messages name it.
func (t token) describe() string {
	switch t.kind {
	case tokenEOF:
		return "end of template"
	case tokenVariableEnd:
		return "'}}'"
	case tokenBlockEnd:
		return "'%}'"
	case tokenData, tokenVariableBegin, tokenBlockBegin:
		return "template text"
	}
	return strconv.Quote(t.text)
}

// lexer splits a template into tokens. White space around tags is treated as by Jinja with
// trim_blocks (the newline after a block or comment is removed) and lstrip_blocks (blanks
// before a block or comment that starts its line are removed). A minus sign in a tag
// removes all white space on its side, a plus sign none.
type lexer struct {
	src       string
	pos       int
	line      int
	lineStart bool // the last tag ended with a newline
	tokens    []token
}

func tokenize(source string) []token {
	source = normalizeNewlines(source)
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.pos < len(l.src) {
		l.textAndTag()
	}
	l.emit(tokenEOF, "")
	return l.tokens
}

func normalizeNewlines(s string) string {
	if !strings.Contains(s, "\r") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

func (l *lexer) fail(message string) { throw(&SyntaxError{l.line, message}) }

// advance skips n bytes and counts their lines.
func (l *lexer) advance(n int) {
	l.line += strings.Count(l.src[l.pos:l.pos+n], "\n")
	l.pos += n
}

// textAndTag reads text up to the next tag, and that tag.
func (l *lexer) textAndTag() {
	rest := l.src[l.pos:]
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			l.emit(tokenData, rest)
			l.advance(len(rest))
			return
		}
		at += i
		if c := rest[at+1]; c == '%' || c == '{' || c == '#' {
			break
		}
		at++
	}
	opener := rest[at+1]
	sign := signAt(rest, at+2)
	l.data(rest[:at], sign, opener != '{')
	l.advance(at)
	if n := rawTag(rest[at:], "raw"); n > 0 {
		l.advance(n)
		l.lineStart = l.src[l.pos-1] == '\n'
		l.raw()
		return
	}
	l.advance(2 + len(sign))
	switch opener {
	case '#':
		l.comment()
	case '%':
		l.emit(tokenBlockBegin, "")
		l.tag("%}", tokenBlockEnd)
	default:
		l.emit(tokenVariableBegin, "")
		l.tag("}}", tokenVariableEnd)
	}
}

func signAt(s string, i int) string {
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		return s[i : i+1]
	}
	return ""
}

// data emits the text before a tag, of which the tag's sign may strip white space.
func (l *lexer) data(s, sign string, block bool) {
	switch {
	case sign == "-":
		s = strings.TrimRightFunc(s, IsSpace)
	case sign == "" && block:
		lineAt := strings.LastIndexByte(s, '\n') + 1
		if (lineAt > 0 || l.lineStart) && strings.TrimFunc(s[lineAt:], IsSpace) == "" {
			s = s[:lineAt]
		}
	}
	if s != "" {
		l.emit(tokenData, s)
	}
}

// rawTag returns the length of the tag {% name %} at the start of s, including the white
// space that its signs remove; 0 if s starts with another tag.
func rawTag(s, name string) int {
	if !strings.HasPrefix(s, "{%") {
		return 0
	}
	i := 2 + len(signAt(s, 2))
	skip := func() {
		i = len(s) - len(strings.TrimLeftFunc(s[i:], IsSpace))
	}
	skip()
	if !strings.HasPrefix(s[i:], name) {
		return 0
	}
	i += len(name)
	skip()
	sign := signAt(s, i)
	if !strings.HasPrefix(s[i+len(sign):], "%}") || sign == "+" && name == "raw" {
		return 0
	}
	i += len(sign) + 2
	if sign == "-" {
		skip()
	} else if sign == "" && name == "endraw" && strings.HasPrefix(s[i:], "\n") {
		i++
	}
	return i
}

// raw reads up to {% endraw %}.
func (l *lexer) raw() {
	rest := l.src[l.pos:]
	for at := 0; ; at += 2 {
		i := strings.Index(rest[at:], "{%")
		if i < 0 {
			l.fail("missing end of raw directive")
		}
		at += i
		if n := rawTag(rest[at:], "endraw"); n > 0 {
			l.data(rest[:at], signAt(rest, at+2), true)
			l.advance(at + n)
			l.lineStart = l.src[l.pos-1] == '\n'
			return
		}
	}
}

// comment reads up to the end of a comment.
func (l *lexer) comment() {
	i := strings.Index(l.src[l.pos:], "#}")
	if i < 0 {
		l.fail("missing end of comment tag")
	}
	sign := ""
	if i > 0 {
		sign = signAt(l.src, l.pos+i-1)
	}
	l.advance(i)
	l.closeTag("#}", sign)
}

// closeTag skips the end of a tag and the white space that it removes.
func (l *lexer) closeTag(closer, sign string) {
	l.advance(len(closer))
	rest := l.src[l.pos:]
	switch {
	case sign == "-":
		l.advance(len(rest) - len(strings.TrimLeftFunc(rest, IsSpace)))
	case sign == "" && closer != "}}" && strings.HasPrefix(rest, "\n"):
		l.advance(1)
	}
	l.lineStart = l.src[l.pos-1] == '\n'
}

// tag reads the tokens of a tag up to its closer.
func (l *lexer) tag(closer string, endKind tokenKind) {
	var closers []byte // the brackets that close those that are open, innermost last
	for {
		rest := l.src[l.pos:]
		rest = strings.TrimLeftFunc(rest, IsSpace)
		l.advance(len(l.src) - l.pos - len(rest))
		if rest == "" {
			l.fail("unexpected end of template, expected '" + closer + "'")
		}
		if len(closers) == 0 {
			sign := signAt(rest, 0)
			if closer == "}}" && sign == "+" {
				sign = ""
			}
			if strings.HasPrefix(rest[len(sign):], closer) {
				l.emit(endKind, "")
				l.advance(len(sign))
				l.closeTag(closer, sign)
				return
			}
		}
		c := rest[0]
		r, _ := utf8.DecodeRuneInString(rest)
		switch {
		case c >= '0' && c <= '9':
			l.number(rest)
		case c == '\'' || c == '"':
			l.str(rest)
		case isNameRune(r):
			n := strings.IndexFunc(rest, func(r rune) bool { return !isNameRune(r) })
			if n < 0 {
				n = len(rest)
			}
			l.emit(tokenName, rest[:n])
			l.advance(n)
		default:
			op := operatorAt(rest)
			if op == "" {
				l.fail("unexpected character " + strconv.QuoteRune(r))
			}
			closers = l.matchBracket(closers, op)
			l.emit(tokenOperator, op)
			l.advance(len(op))
		}
	}
}

// matchBracket returns closers as they are after op. It fails if op is a bracket that
// closes another than the innermost one.
func (l *lexer) matchBracket(closers []byte, op string) []byte {
	switch op {
	case "(":
		return append(closers, ')')
	case "[":
		return append(closers, ']')
	case "{":
		return append(closers, '}')
	case ")", "]", "}":
		if len(closers) == 0 {
			l.fail("unexpected '" + op + "'")
		}
		want := closers[len(closers)-1]
		if op[0] != want {
			l.fail("unexpected '" + op + "', expected '" + string(want) + "'")
		}
		return closers[:len(closers)-1]
	}
	return closers
}

func isNameRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) && r != utf8.RuneError
}

func operatorAt(s string) string {
	if len(s) >= 2 {
		switch s[:2] {
		case "//", "**", "==", "!=", "<=", ">=":
			return s[:2]
		}
	}
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", s[0]) >= 0 {
		return s[:1]
	}
	return ""
}

// digits returns the length of the run of digits of the base at the start of s. Single
// underscores are allowed between digits.
func digits(s string, base int) int {
	n := 0
	for n < len(s) {
		at := n
		if s[at] == '_' && n > 0 {
			at++
		}
		if at >= len(s) || digitValue(s[at]) >= base {
			break
		}
		n = at + 1
	}
	return n
}

func digitValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return 99
}

func (l *lexer) number(rest string) {
	n := digits(rest, 10)
	kind := tokenInteger
	afterDot := l.pos > 0 && l.src[l.pos-1] == '.'
	if !afterDot {
		if n+1 < len(rest) && rest[n] == '.' {
			if d := digits(rest[n+1:], 10); d > 0 {
				kind, n = tokenFloat, n+1+d
			}
		}
		if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
			at := n + 1 + len(signAt(rest, n+1))
			if at <= len(rest) {
				if d := digits(rest[at:], 10); d > 0 {
					kind, n = tokenFloat, at+d
				}
			}
		}
	}
	if kind == tokenInteger && rest[0] == '0' {
		n = 1
		if len(rest) > 2 {
			for _, b := range []struct {
				letter byte
				base   int
			}{{'b', 2}, {'o', 8}, {'x', 16}} {
				if rest[1]|0x20 == b.letter {
					if d := digits(rest[2:], b.base); d > 0 {
						n = 2 + d
					}
				}
			}
		}
		for n < len(rest) && (rest[n] == '0' || rest[n] == '_' && n+1 < len(rest) && rest[n+1] == '0') && n < 64 && strings.Trim(rest[:n], "0_") == "" {
			n++
		}
	}
	l.emit(kind, strings.ReplaceAll(rest[:n], "_", ""))
	l.advance(n)
}

// str reads a string literal.
func (l *lexer) str(rest string) {
	quote := rest[0]
	end := 1
	for end < len(rest) && rest[end] != quote {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		l.fail("string literal has no end")
	}
	l.emit(tokenString, l.unescape(rest[1:end]))
	l.advance(end + 1)
}

// unescape replaces the escapes of a Python string literal.
func (l *lexer) unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '\n':
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'a':
			b.WriteByte('\a')
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'v':
			b.WriteByte('\v')
		case '0', '1', '2', '3', '4', '5', '6', '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s[i:i+n], 8, 32)
			b.WriteRune(rune(v))
			i += n - 1
		case 'x', 'u', 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+n >= len(s) {
				l.fail(`truncated \` + string(c) + ` escape in a string`)
			}
			v, err := strconv.ParseUint(s[i+1:i+1+n], 16, 32)
			if err != nil || v > unicode.MaxRune {
				l.fail(`illegal \` + string(c) + ` escape in a string`)
			}
			b.WriteRune(rune(v))
			i += n
		case 'N':
			l.fail(`\N escapes are not supported: write the character itself`)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}
