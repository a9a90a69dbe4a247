package tokenizer

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// charsMap is the normalisation that SentencePiece compiles into a model, NFKC in most:
// a trie of byte sequences, and what to put in the place of each.
//
// The trie is a double array. A unit has the byte that leads to it in its low eight bits,
// a flag for the end of a sequence in bit 8, and from bit 10 on the distance to its
// children, shifted left by 8 if bit 9 is set: the child for byte b is at the place
// reached, xor b. The end of a sequence is a unit with bit 31, whose other bits are the
// place of the replacement in texts.
type charsMap struct {
	units []uint32
	texts string // replacements, each with a zero byte behind it
}

// Limits of a charsMap: what it can cost to normalise a byte of hostile text. The longest
// sequences and replacements of NFKC have some 30 bytes.
const (
	maxSequence    = 64
	maxReplacement = 64
)

func parseCharsMap(data []byte) (*charsMap, error) {
	if len(data) < 4 {
		return nil, fmt.Errorf("tokenizer: %s has %d bytes, too few for its size", keyCharsMap, len(data))
	}
	size := int(binary.LittleEndian.Uint32(data))
	data = data[4:]
	if size == 0 || size%4 != 0 || size > len(data) {
		return nil, fmt.Errorf("tokenizer: %s says that its trie has %d bytes, which does not fit the %d that follow", keyCharsMap, size, len(data))
	}
	m := &charsMap{units: make([]uint32, size/4), texts: string(data[size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	rest := m.texts
	for rest != "" {
		n := strings.IndexByte(rest, 0)
		if n < 0 || n > maxReplacement {
			return nil, fmt.Errorf("tokenizer: %s has a replacement that does not end within %d bytes", keyCharsMap, maxReplacement)
		}
		rest = rest[n+1:]
	}
	return m, nil
}

// longest returns the length of the longest sequence that text begins with, 0 for none,
// and its replacement. What leads out of the map leads nowhere.
func (m *charsMap) longest(text string) (n int, replacement string) {
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
		if at := int(m.units[node] &^ (1 << 31)); at < len(m.texts) {
			end := strings.IndexByte(m.texts[at:], 0)
			n, replacement = i+1, m.texts[at:at+end]
		}
	}
	return n, replacement
}

// children returns the distance from a unit to its children.
func (m *charsMap) children(node uint32) uint32 {
	unit := m.units[node]
	return unit >> 10 << (unit & (1 << 9) >> 6)
}

// normalize replaces the longest sequence at each place, from the left. Bytes that are not
// UTF-8 become U+FFFD.
func (m *charsMap) normalize(e *encoder, text string) (string, error) {
	var b strings.Builder
	for at := 0; at < len(text); {
		n, with := m.longest(text[at:])
		if n == 0 {
			var r rune
			r, n = utf8.DecodeRuneInString(text[at:])
			with = string(r)
		}
		b.WriteString(with)
		at += n
		if err := e.tick(n + len(with)); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}
