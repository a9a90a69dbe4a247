package tokenizer

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// bytePair is byte-level byte-pair encoding: a piece begins as its bytes, a token
// each, and the merges of the vocabulary join them. A byte that the vocabulary lacks
// is left out: some vocabularies have no token for bytes that UTF-8 never uses, or
// for a control character.
type bytePair struct {
	rules  bytePairRules
	bytes  [256]int32        // token of each byte, -1 for none
	merges map[uint64]merged // left token<<32 | right token
	whole  map[string]int32  // token by the bytes it stands for, where rules.wholeTokens

	cache pieceCache
}

type merged struct {
	rank uint32
	id   int32
}

func loadBytePair(t *Tokenizer, md Metadata) error {
	v := t.vocab
	pre := "default"
	if md.Has(keyPre) {
		var err error
		if pre, err = md.Str(keyPre); err != nil {
			return fmt.Errorf("tokenizer: %w", err)
		}
	}
	rules, ok := preTokenizers[pre]
	if !ok {
		return fmt.Errorf("tokenizer: %s is %.80q, which is not supported; these are: %s", keyPre, pre, supportedPreTokenizers())
	}
	if err := v.loadSpecials(md, idDefaults{bos: -1, eos: -1, unknown: -1, addBOS: rules.addBOS}); err != nil {
		return err
	}
	ids, err := v.index()
	if err != nil {
		return err
	}
	m := &bytePair{rules: rules}
	for b := range m.bytes {
		m.bytes[b] = -1
		if id, ok := ids[string(byteRunes[b])]; ok && !v.parsedOnly(id) {
			m.bytes[b] = id
		}
	}
	if err := m.loadMerges(md, v, ids); err != nil {
		return err
	}
	t.algorithm = m
	return m.loadPieces(v)
}

func (m *bytePair) loadMerges(md Metadata, v *vocabulary, ids map[string]int32) error {
	merges, err := md.Strs(keyMerges)
	if err != nil {
		return fmt.Errorf("tokenizer: the merges cannot be read: %w", err)
	}
	m.merges = make(map[uint64]merged, len(merges))
	for rank, text := range merges {
		left, right, err := splitMerge(text)
		if err != nil {
			return fmt.Errorf("tokenizer: merge %d %.80q: %w", rank, text, err)
		}
		var tokens [3]int32
		control := false
		for i, part := range []string{left, right, left + right} {
			id, ok := ids[part]
			if !ok {
				return fmt.Errorf("tokenizer: merge %d %.80q: %.80q is not in the vocabulary", rank, text, part)
			}
			tokens[i] = id
			control = control || v.parsedOnly(id)
		}
		key := pairKey(tokens[0], tokens[1])
		// What text spells is never a control token, so such a merge cannot happen.
		if _, ok := m.merges[key]; !ok && !control {
			m.merges[key] = merged{uint32(rank), tokens[2]}
		}
	}
	return nil
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

func (m *bytePair) loadPieces(v *vocabulary) error {
	v.pieces = make([]string, len(v.texts))
	if m.rules.wholeTokens {
		m.whole = make(map[string]int32, len(v.texts))
	}
	for id, text := range v.texts {
		switch v.kinds[id] {
		case kindControl, kindUnknown, kindUserDefined:
			v.pieces[id] = text
			continue
		case kindByte:
			b, ok := parseByteToken(text)
			if !ok {
				return fmt.Errorf("tokenizer: byte token %d is %.80q instead of <0x00> to <0xFF>", id, text)
			}
			v.pieces[id] = string([]byte{b})
			continue
		}
		v.pieces[id] = byteText(text)
		if m.whole != nil {
			m.whole[v.pieces[id]] = int32(id)
		}
	}
	return nil
}

// byteRunes spells each byte as a printable rune, as byte-level vocabularies do:
// the printable ones of Latin-1 stand for themselves, the others are numbered from
// U+0100.
var byteRunes = func() (runes [256]rune) {
	next := rune(0x100)
	for b := range runes {
		if '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xAC || 0xAE <= b {
			runes[b] = rune(b)
			continue
		}
		runes[b] = next
		next++
	}
	return runes
}()

// runeBytes is the inverse of byteRunes.
var runeBytes = func() map[rune]byte {
	m := make(map[rune]byte, len(byteRunes))
	for b, r := range byteRunes {
		m[r] = byte(b)
	}
	return m
}()

// byteText returns the bytes that a token spells. A rune that spells none stands
// for itself.
func byteText(token string) string {
	var b strings.Builder
	for i, r := range token {
		if c, ok := runeBytes[r]; ok {
			b.WriteByte(c)
			continue
		}
		_, size := utf8.DecodeRuneInString(token[i:])
		b.WriteString(token[i : i+size])
	}
	return b.String()
}

// encode appends the tokens of text.
func (m *bytePair) encode(e *encoder, text string) error {
	ends, err := m.rules.split.split(text, e.tick)
	if err != nil {
		return err
	}
	start := 0
	for _, end := range ends {
		if err := m.encodePiece(e, text[start:end]); err != nil {
			return err
		}
		start = end
	}
	return nil
}

func (m *bytePair) encodePiece(e *encoder, piece string) error {
	if id, ok := m.whole[piece]; ok {
		e.ids = append(e.ids, id)
		return nil
	}
	if ids, ok := m.cache.get(piece); ok {
		e.ids = append(e.ids, ids...)
		return nil
	}
	first := len(e.ids)
	e.merger.reset(len(piece))
	for i := range len(piece) {
		e.merger.add(i, i+1, m.bytes[piece[i]])
	}
	if err := e.merger.merge(m.join, e.tick); err != nil {
		return err
	}
	for i := int32(0); i >= 0; i = e.merger.symbols[i].next {
		if id := e.merger.symbols[i].id; id >= 0 {
			e.ids = append(e.ids, id)
		}
	}
	m.cache.put(piece, e.ids[first:])
	return nil
}

func (m *bytePair) join(left, right mergeSymbol) (int32, uint32, bool) {
	p, ok := m.merges[pairKey(left.id, right.id)]
	return p.id, p.rank, ok
}

// pieceCache keeps the tokens of short pieces: most of a text is words met before.
// The zero value is ready. It is safe for concurrent use.
type pieceCache struct {
	mu  sync.RWMutex
	ids map[string][]int32
}

const (
	cachedPieces     = 1 << 14
	cachedPieceBytes = 24
)

func (c *pieceCache) get(piece string) ([]int32, bool) {
	if len(piece) > cachedPieceBytes {
		return nil, false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	ids, ok := c.ids[piece]
	return ids, ok
}

// put begins anew when the cache is full, so that no text can fill it for good.
func (c *pieceCache) put(piece string, ids []int32) {
	if len(piece) > cachedPieceBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil || len(c.ids) >= cachedPieces {
		c.ids = make(map[string][]int32)
	}
	c.ids[strings.Clone(piece)] = append([]int32(nil), ids...)
}
