package grammar

import (
	"fmt"
	"strings"
)

// writeChar writes a character with the escape that a literal or class needs.
func writeChar(b *strings.Builder, r rune) {
	switch {
	case strings.ContainsRune(`\"[]`, r):
		b.WriteByte('\\')
		b.WriteRune(r)
	case r == '\n':
		b.WriteString(`\n`)
	case r == '-' || r == '^' || r < ' ' || r == 0x7f:
		fmt.Fprintf(b, `\x%02x`, r)
	default:
		b.WriteRune(r)
	}
}

// writeClass writes a set of characters as a class.
func writeClass(set []runeRange) string {
	var b strings.Builder
	b.WriteByte('[')
	for _, r := range set {
		writeChar(&b, r.low)
		if r.high > r.low {
			b.WriteByte('-')
			writeChar(&b, r.high)
		}
	}
	b.WriteByte(']')
	return b.String()
}
