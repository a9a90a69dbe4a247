package tokenizer

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// charsMap is the normalisation that SentencePiece compiles into a model, usually NFKC: a
// trie of byte sequences and the replacement of each.
//
// The trie is a double array of 32-bit units:
//   - bits 0 to 7: the byte that leads to this unit
//   - bit 8: a sequence ends here
//   - bits 10 to 30: the offset of the children, shifted left by 8 if bit 9 is set. The
//     child for byte b has the index of this unit, xor the offset, xor b.
//   - bit 31: this unit is the child for byte 0 of a unit where a sequence ends; its other
//     bits are the offset of the replacement in replacements.
type charsMap struct {
	units        []uint32
	replacements string // each terminated by a zero byte
}

// Limits of a charsMap in bytes. They bound the cost of normalising one byte of hostile
// text. The longest sequences and replacements of NFKC have about 30 bytes.
const (
	maxSequence    = 64
	maxReplacement = 64
)

func parseCharsMap(data []byte) (*charsMap, error) {
	if len(data) < 4 {
		return nil, fmt.Errorf("tokenizer: %s has %d bytes, too few for the size of its trie", keyCharsMap, len(data))
	}
	size := int(binary.LittleEndian.Uint32(data))
	data = data[4:]
	if size == 0 || size%4 != 0 || size > len(data) {
		return nil, fmt.Errorf("tokenizer: %s has a trie of %d bytes, which does not fit the %d bytes that follow; want a multiple of 4", keyCharsMap, size, len(data))
	}
	m := &charsMap{units: make([]uint32, size/4), replacements: string(data[size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	rest := m.replacements
	for rest != "" {
		n := strings.IndexByte(rest, 0)
		if n < 0 || n > maxReplacement {
			return nil, fmt.Errorf("tokenizer: %s has a replacement that does not end within %d bytes", keyCharsMap, maxReplacement)
		}
		rest = rest[n+1:]
	}
	return m, nil
}

// longestMatch returns the length of the longest sequence at the start of text, 0 for none,
// and its replacement. Indices outside the map count as no match.
func (m *charsMap) longestMatch(text string) (n int, replacement string) {
	node := m.children(0)
	for i := range min(len(text), maxSequence) {
		c := uint32(text[i])
		node ^= c
		if c == 0 || int(node) >= len(m.units) || m.units[node]&(1<<31|0xff) != c {
			break
		}
		ends := m.units[node]>>8&1 == 1
		node ^= m.children(node)
		if !ends || int(node) >= len(m.units) {
			continue
		}
		if at := int(m.units[node] &^ (1 << 31)); at < len(m.replacements) {
			end := strings.IndexByte(m.replacements[at:], 0)
			n, replacement = i+1, m.replacements[at:at+end]
		}
	}
	return n, replacement
}

// children returns the offset of the children of a unit.
func (m *charsMap) children(node uint32) uint32 {
	unit := m.units[node]
	return unit >> 10 << (unit & (1 << 9) >> 6)
}

// normalize replaces the longest sequence at each position, from the left. Bytes that are
// not UTF-8 become U+FFFD.
func (m *charsMap) normalize(e *encoder, text string) (string, error) {
	var b strings.Builder
	for at := 0; at < len(text); {
		n, with := m.longestMatch(text[at:])
		if n == 0 {
			var r rune
			r, n = utf8.DecodeRuneInString(text[at:])
			with = string(r)
		}
		b.WriteString(with)
		at += n
		if err := e.addSteps(n + len(with)); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}
