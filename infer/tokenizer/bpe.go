package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bytePair is byte-level byte-pair encoding: a piece begins as its bytes, a token
// each, and the merges of the vocabulary join them. A byte that the vocabulary lacks
// is left out: some vocabularies have no token for bytes that UTF-8 never uses, or
// for a control character.
type bytePair struct {
	rules  bytePairRules
	bytes  [256]int32 // token of each byte, -1 for none
	merges mergeTable
	meet   [256][256]bool   // a merge joins a token that ends with the one byte to one that begins with the other
	whole  map[string]int32 // token by the bytes it stands for, where rules.wholeTokens

	cache *pieceCache
}

func loadBytePair(t *Tokenizer, md Metadata) error {
	v := t.vocab
	pre := "default"
	if !md.Has(keyPre) {
		t.notice = "the file does not say how its tokenizer cuts text into words (" + keyPre + "); a common way is used, answers may be worse than the model's own"
	} else {
		var err error
		if pre, err = md.Str(keyPre); err != nil {
			return fmt.Errorf("tokenizer: %w", err)
		}
	}
	if pre == gemma4 {
		return loadGemma4(t, md)
	}
	rules, ok := preTokenizers[pre]
	if !ok {
		return fmt.Errorf("tokenizer: %s is %.80q, which is not supported: use another model, or set the key to one of these if its rules are the same: %s", keyPre, pre, supportedPreTokenizers())
	}
	if err := v.loadSpecials(md, idDefaults{bos: -1, eos: -1, unknown: -1, addBOS: rules.addBOS}); err != nil {
		return err
	}
	ids, err := v.index()
	if err != nil {
		return err
	}
	m := &bytePair{rules: rules, cache: newPieceCache()}
	for b := range m.bytes {
		m.bytes[b] = -1
		if id, ok := ids[string(byteRunes[b])]; ok && !v.parsedOnly(id) {
			m.bytes[b] = id
		}
	}
	if m.merges, err = loadMerges(md, v, ids, m.letMeet); err != nil {
		return err
	}
	t.algorithm = m
	return m.loadPieces(v)
}

// letMeet notes where two tokens that can be joined touch. One with a rune that spells no
// byte does not come out of text.
func (m *bytePair) letMeet(left, right string) {
	last, _ := utf8.DecodeLastRuneInString(left)
	first, _ := utf8.DecodeRuneInString(right)
	before, ok1 := runeBytes[last]
	behind, ok2 := runeBytes[first]
	if ok1 && ok2 {
		m.meet[before][behind] = true
	}
}

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
	return m.rules.split.cut(text, e.tick, func(piece string) error { return m.encodePiece(e, piece) })
}

func (m *bytePair) encodePiece(e *encoder, piece string) error {
	if ids, ok := m.cache.get(piece); ok {
		e.ids = append(e.ids, ids...)
		return nil
	}
	first := len(e.ids)
	if id, ok := m.whole[piece]; ok {
		e.ids = append(e.ids, id)
	} else {
		for start, end := 0, 1; start < len(piece); end++ {
			if end < len(piece) && m.meet[piece[end-1]][piece[end]] {
				continue // no token lies across a place where nothing can meet
			}
			if err := m.mergePart(e, piece[start:end]); err != nil {
				return err
			}
			start = end
		}
	}
	m.cache.put(piece, e.ids[first:])
	return nil
}

// mergePart appends the tokens of a part of a piece that no merge leads out of.
func (m *bytePair) mergePart(e *encoder, part string) error {
	if len(part) == 1 {
		if id := m.bytes[part[0]]; id >= 0 {
			e.ids = append(e.ids, id)
		}
		return e.tick(1)
	}
	symbols := e.merger.begin(len(part))
	for i := range symbols {
		symbols[i] = newSymbol(i, m.bytes[part[i]])
	}
	if err := e.merger.merge(m.merges.join, e.tick); err != nil {
		return err
	}
	for i := int32(0); i < int32(len(symbols)); i = symbols[i].next {
		if symbols[i].id >= 0 {
			e.ids = append(e.ids, symbols[i].id)
		}
	}
	return nil
}
