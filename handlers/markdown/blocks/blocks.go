// Package blocks finds where the blocks of Markdown end while its text still grows. It imports no package of
// this module.
package blocks

import "strings"

// Splitter finds where the blocks of a growing Markdown text end. A block is a
// paragraph, a heading, a list, a fenced code block and so on, with the blank
// lines after it; once it has ended, no further text can change it. It may be
// found later than it could be: a block that is found later is still rendered
// right. Each byte is looked at once, however long the text grows.
type Splitter struct {
	start int // where the open block begins
	line  int // where the line begins that is not decided yet
	seen  int // no line break between line and here
	kind  blockKind
	fence string
	blank bool // the last line of an indented block was blank
}

// Open returns where the open block begins.
func (s *Splitter) Open() int { return s.start }

// Next returns the end of the open block of text, or 0 if it may go on. text begins with that of the calls before.
func (s *Splitter) Next(text string) int {
	for {
		n := strings.IndexByte(text[s.seen:], '\n')
		if n < 0 {
			s.seen = len(text)
			return 0
		}
		at, next := s.line, s.seen+n+1
		end := s.decide(strings.TrimSuffix(text[at:next-1], "\r"), at, next)
		s.line, s.seen = next, next
		if end > 0 {
			*s = Splitter{start: end, line: end, seen: end}
			return end
		}
	}
}

// Split cuts Markdown text where an answer that grew to it had its blocks
// end. The last part is the open end, possibly empty.
func Split(text string) []string {
	var s Splitter
	var parts []string
	for {
		begin := s.start
		end := s.Next(text)
		if end == 0 {
			return append(parts, text[begin:])
		}
		parts = append(parts, text[begin:end])
	}
}

// decide takes the line from at to next and returns where the open block ends, if
// this line shows it.
func (s *Splitter) decide(line string, at, next int) int {
	trimmed := strings.TrimSpace(line)
	switch {
	case s.kind == fenced:
		if closes(trimmed, s.fence) && indent(line) < 4 {
			return next
		}
	case trimmed == "":
		if s.kind == plain {
			return next
		}
		s.blank = s.kind != unknown
	case s.kind == unknown:
		s.fence = opens(trimmed)
		switch {
		case indent(line) >= 4, isListItem(trimmed):
			s.kind = indented
		case s.fence != "":
			s.kind = fenced
		case isHeading(trimmed):
			return next
		default:
			s.kind = plain
		}
	case s.kind == plain:
		if indent(line) < 4 && interrupts(trimmed) {
			return at
		}
	case s.blank: // an indented block goes on after a blank line only with more of its kind
		if indent(line) == 0 && !isListItem(trimmed) {
			return at
		}
		s.blank = false
	}
	return 0
}

type blockKind int

const (
	unknown  blockKind = iota
	plain              // ends at a blank line
	indented           // a list or indented code: may go on after a blank line
	fenced             // ends at its closing fence
)

// opens returns the fence that a line begins, if it begins one.
func opens(line string) string {
	for _, c := range []string{"`", "~"} {
		rest := strings.TrimLeft(line, c)
		if n := len(line) - len(rest); n >= 3 && (c == "~" || !strings.Contains(rest, "`")) {
			return line[:n]
		}
	}
	return ""
}

// interrupts reports whether a line ends the paragraph before it.
func interrupts(line string) bool {
	ordered := line[0] >= '0' && line[0] <= '9'
	list := isListItem(line) && (!ordered || strings.HasPrefix(line, "1.") || strings.HasPrefix(line, "1)"))
	return list || opens(line) != "" || isHeading(line)
}

func closes(line, fence string) bool {
	return len(line) >= len(fence) && strings.Trim(line, fence[:1]) == ""
}

func indent(line string) int {
	n := 0
	for _, c := range line {
		switch c {
		case ' ':
			n++
		case '\t':
			n += 4
		default:
			return n
		}
	}
	return n
}

func isHeading(line string) bool {
	rest := strings.TrimLeft(line, "#")
	n := len(line) - len(rest)
	return n >= 1 && n <= 6 && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}

func isListItem(line string) bool {
	switch line[0] {
	case '-', '*', '+':
		return len(line) > 1 && line[1] == ' '
	}
	rest := strings.TrimLeft(line, "0123456789")
	n := len(line) - len(rest)
	return n >= 1 && n <= 9 && len(rest) > 1 && (rest[0] == '.' || rest[0] == ')') && rest[1] == ' '
}
