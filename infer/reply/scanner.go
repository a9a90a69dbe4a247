package reply

// maxNesting bounds arrays and objects in arguments.
const maxNesting = 64

// scanner validates one JSON value byte by byte. Its zero value is ready to use. It accepts
// raw control characters in strings, for which escape returns valid JSON.
type scanner struct {
	nesting   []byte // '{' or '[' of each open container
	next      func(*scanner, byte) verdict
	remaining string // of true, false or null
	hex       int    // remaining digits of a \u escape
	quoted    bool   // within a string
	key       bool   // the string is the key of an object
}

func (s *scanner) step(b byte) verdict {
	if s.next == nil {
		s.next = scanValue
	}
	return s.next(s, b)
}

// escape returns b as valid JSON. It must be called before step.
func (s *scanner) escape(b byte) string {
	if !s.quoted || b >= ' ' {
		return string([]byte{b})
	}
	switch b {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	const digits = "0123456789abcdef"
	return `\u00` + string([]byte{digits[b>>4], digits[b&15]})
}

// endValue ends a value, and the whole if it is not nested.
func (s *scanner) endValue() verdict {
	if len(s.nesting) == 0 {
		return done
	}
	s.next = scanAfterValue
	return more
}

func scanValue(s *scanner, b byte) verdict {
	if isSpace(b) {
		return more
	}
	switch {
	case b == '{' || b == '[':
		if len(s.nesting) == maxNesting {
			return invalid
		}
		s.nesting = append(s.nesting, b)
		s.next = scanFirst
	case b == '"':
		s.quoted, s.next = true, scanString
	case b == 't':
		s.remaining, s.next = "rue", scanLiteral
	case b == 'f':
		s.remaining, s.next = "alse", scanLiteral
	case b == 'n':
		s.remaining, s.next = "ull", scanLiteral
	case b == '-':
		s.next = scanMinus
	case b == '0':
		s.next = scanZero
	case isDigit(b):
		s.next = scanDigits
	default:
		return invalid
	}
	return more
}

// scanFirst reads what follows the opening bracket of a container.
func scanFirst(s *scanner, b byte) verdict {
	switch {
	case isSpace(b):
		return more
	case s.closedBy(b):
		return s.endContainer()
	case s.inObject():
		return scanKey(s, b)
	}
	return scanValue(s, b)
}

// inObject reports whether the innermost container is an object, not an array.
func (s *scanner) inObject() bool { return s.nesting[len(s.nesting)-1] == '{' }

// closedBy reports whether b closes the innermost container.
func (s *scanner) closedBy(b byte) bool {
	if s.inObject() {
		return b == '}'
	}
	return b == ']'
}

// endContainer ends the innermost container.
func (s *scanner) endContainer() verdict {
	s.nesting = s.nesting[:len(s.nesting)-1]
	return s.endValue()
}

func scanKey(s *scanner, b byte) verdict {
	if isSpace(b) {
		return more
	}
	if b != '"' {
		return invalid
	}
	s.quoted, s.key, s.next = true, true, scanString
	return more
}

func scanString(s *scanner, b byte) verdict {
	switch b {
	case '\\':
		s.next = scanEscape
	case '"':
		s.quoted = false
		if s.key {
			s.key, s.next = false, scanColon
			return more
		}
		return s.endValue()
	}
	return more
}

func scanEscape(s *scanner, b byte) verdict {
	switch b {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.next = scanString
		return more
	case 'u':
		s.hex, s.next = 4, scanHex
		return more
	}
	return invalid
}

func scanHex(s *scanner, b byte) verdict {
	if !isDigit(b) && (b|0x20 < 'a' || b|0x20 > 'f') {
		return invalid
	}
	if s.hex--; s.hex == 0 {
		s.next = scanString
	}
	return more
}

func scanColon(s *scanner, b byte) verdict {
	if isSpace(b) {
		return more
	}
	if b != ':' {
		return invalid
	}
	s.next = scanValue
	return more
}

// scanAfterValue reads what follows a value in a container.
func scanAfterValue(s *scanner, b byte) verdict {
	switch {
	case isSpace(b):
	case b == ',' && s.inObject():
		s.next = scanKey
	case b == ',':
		s.next = scanValue
	case s.closedBy(b):
		return s.endContainer()
	default:
		return invalid
	}
	return more
}

func scanLiteral(s *scanner, b byte) verdict {
	if b != s.remaining[0] {
		return invalid
	}
	if s.remaining = s.remaining[1:]; s.remaining == "" {
		return s.endValue()
	}
	return more
}

func scanMinus(s *scanner, b byte) verdict {
	switch {
	case b == '0':
		s.next = scanZero
	case isDigit(b):
		s.next = scanDigits
	default:
		return invalid
	}
	return more
}

func scanDigits(s *scanner, b byte) verdict {
	if isDigit(b) {
		return more
	}
	return scanZero(s, b)
}

func scanZero(s *scanner, b byte) verdict {
	switch b {
	case '.':
		s.next = scanPoint
		return more
	case 'e', 'E':
		s.next = scanExponent
		return more
	}
	return s.numberEnds(b)
}

func scanPoint(s *scanner, b byte) verdict {
	if !isDigit(b) {
		return invalid
	}
	s.next = scanFraction
	return more
}

func scanFraction(s *scanner, b byte) verdict {
	switch {
	case isDigit(b):
		return more
	case b|0x20 == 'e':
		s.next = scanExponent
		return more
	}
	return s.numberEnds(b)
}

func scanExponent(s *scanner, b byte) verdict {
	switch {
	case b == '+' || b == '-':
		s.next = scanSign
	case isDigit(b):
		s.next = scanPower
	default:
		return invalid
	}
	return more
}

func scanSign(s *scanner, b byte) verdict {
	if !isDigit(b) {
		return invalid
	}
	s.next = scanPower
	return more
}

func scanPower(s *scanner, b byte) verdict {
	if isDigit(b) {
		return more
	}
	return s.numberEnds(b)
}

func (s *scanner) numberEnds(b byte) verdict {
	if len(s.nesting) == 0 {
		return doneBefore
	}
	s.next = scanAfterValue
	return scanAfterValue(s, b)
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }
