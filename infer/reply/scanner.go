package reply

// maxNesting bounds arrays and objects in arguments.
const maxNesting = 64

// scanned is what a scanner says of a byte.
type scanned int

const (
	goesOn      scanned = iota
	ended               // the value is complete with the byte
	endedBefore         // the value, a number, was complete in front of the byte
	wrong               // the byte cannot stand here
)

// scanner checks one JSON value, byte by byte. Its zero value is ready. It lets raw
// control characters in strings pass: escape writes them as JSON wants them.
type scanner struct {
	nesting []byte // '{' or '[' of each open container
	next    func(*scanner, byte) scanned
	literal string // what is missing of true, false or null
	hex     int    // digits missing of a \u escape
	quoted  bool   // in a string
	key     bool   // of an object
}

func (s *scanner) step(b byte) scanned {
	if s.next == nil {
		s.next = scanValue
	}
	return s.next(s, b)
}

// escape returns how b is written in the value. It is called in front of step.
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

// finish is called where a value is complete.
func (s *scanner) finish() scanned {
	if len(s.nesting) == 0 {
		return ended
	}
	s.next = scanBehind
	return goesOn
}

func scanValue(s *scanner, b byte) scanned {
	if isSpace(b) {
		return goesOn
	}
	switch {
	case b == '{' || b == '[':
		if len(s.nesting) == maxNesting {
			return wrong
		}
		s.nesting = append(s.nesting, b)
		s.next = scanFirst
	case b == '"':
		s.quoted, s.next = true, scanString
	case b == 't':
		s.literal, s.next = "rue", scanLiteral
	case b == 'f':
		s.literal, s.next = "alse", scanLiteral
	case b == 'n':
		s.literal, s.next = "ull", scanLiteral
	case b == '-':
		s.next = scanMinus
	case b == '0':
		s.next = scanZero
	case isDigit(b):
		s.next = scanDigits
	default:
		return wrong
	}
	return goesOn
}

// scanFirst reads what follows the beginning of a container.
func scanFirst(s *scanner, b byte) scanned {
	switch {
	case isSpace(b):
		return goesOn
	case s.closedBy(b):
		return s.leave()
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

// leave goes on behind the innermost container.
func (s *scanner) leave() scanned {
	s.nesting = s.nesting[:len(s.nesting)-1]
	return s.finish()
}

func scanKey(s *scanner, b byte) scanned {
	if isSpace(b) {
		return goesOn
	}
	if b != '"' {
		return wrong
	}
	s.quoted, s.key, s.next = true, true, scanString
	return goesOn
}

func scanString(s *scanner, b byte) scanned {
	switch b {
	case '\\':
		s.next = scanEscape
	case '"':
		s.quoted = false
		if s.key {
			s.key, s.next = false, scanColon
			return goesOn
		}
		return s.finish()
	}
	return goesOn
}

func scanEscape(s *scanner, b byte) scanned {
	switch b {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.next = scanString
		return goesOn
	case 'u':
		s.hex, s.next = 4, scanHex
		return goesOn
	}
	return wrong
}

func scanHex(s *scanner, b byte) scanned {
	if !isDigit(b) && (b|0x20 < 'a' || b|0x20 > 'f') {
		return wrong
	}
	if s.hex--; s.hex == 0 {
		s.next = scanString
	}
	return goesOn
}

func scanColon(s *scanner, b byte) scanned {
	if isSpace(b) {
		return goesOn
	}
	if b != ':' {
		return wrong
	}
	s.next = scanValue
	return goesOn
}

// scanBehind reads what follows a value in a container.
func scanBehind(s *scanner, b byte) scanned {
	switch {
	case isSpace(b):
	case b == ',' && s.inObject():
		s.next = scanKey
	case b == ',':
		s.next = scanValue
	case s.closedBy(b):
		return s.leave()
	default:
		return wrong
	}
	return goesOn
}

func scanLiteral(s *scanner, b byte) scanned {
	if b != s.literal[0] {
		return wrong
	}
	if s.literal = s.literal[1:]; s.literal == "" {
		return s.finish()
	}
	return goesOn
}

func scanMinus(s *scanner, b byte) scanned {
	switch {
	case b == '0':
		s.next = scanZero
	case isDigit(b):
		s.next = scanDigits
	default:
		return wrong
	}
	return goesOn
}

func scanDigits(s *scanner, b byte) scanned {
	if isDigit(b) {
		return goesOn
	}
	return scanZero(s, b)
}

func scanZero(s *scanner, b byte) scanned {
	switch b {
	case '.':
		s.next = scanPoint
		return goesOn
	case 'e', 'E':
		s.next = scanExponent
		return goesOn
	}
	return s.numberEnds(b)
}

func scanPoint(s *scanner, b byte) scanned {
	if !isDigit(b) {
		return wrong
	}
	s.next = scanFraction
	return goesOn
}

func scanFraction(s *scanner, b byte) scanned {
	switch {
	case isDigit(b):
		return goesOn
	case b|0x20 == 'e':
		s.next = scanExponent
		return goesOn
	}
	return s.numberEnds(b)
}

func scanExponent(s *scanner, b byte) scanned {
	switch {
	case b == '+' || b == '-':
		s.next = scanSign
	case isDigit(b):
		s.next = scanPower
	default:
		return wrong
	}
	return goesOn
}

func scanSign(s *scanner, b byte) scanned {
	if !isDigit(b) {
		return wrong
	}
	s.next = scanPower
	return goesOn
}

func scanPower(s *scanner, b byte) scanned {
	if isDigit(b) {
		return goesOn
	}
	return s.numberEnds(b)
}

func (s *scanner) numberEnds(b byte) scanned {
	if len(s.nesting) == 0 {
		return endedBefore
	}
	s.next = scanBehind
	return scanBehind(s, b)
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }
