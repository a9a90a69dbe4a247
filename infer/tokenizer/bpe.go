package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bytePair implements byte-level byte-pair encoding: the bytes of a piece are its first
// symbols, which the merges of the vocabulary join. A byte without a token is omitted: some
// vocabularies have none for bytes that UTF-8 never uses or for control characters.
type bytePair struct {
	rules       bytePairRules
	byteTokens  [256]int32 // token id by byte, -1 for none
	merges      mergeTable
	canMerge    [256][256]bool   // [a][b]: some merge joins a token that ends with byte a to one that begins with byte b
	wholeTokens map[string]int32 // token id by its bytes; nil unless rules.wholeTokens

	cache *pieceCache
}

func loadBytePair(t *Tokenizer, md Metadata) error {
	v := t.vocab
	pre := "default"
	if !md.Has(keyPre) {
		t.notice = "the file does not name its pre-tokenizer (" + keyPre + "), which splits text into words; a common one is used, so answers may be worse than the model allows"
	} else {
		var err error
		if pre, err = md.Str(keyPre); err != nil {
			return fmt.Errorf("tokenizer: %w", err)
		}
	}
	if load, ok := spacedBytePairs[pre]; ok {
		return load(t, md)
	}
	rules, ok := preTokenizers[pre]
	if !ok {
		return fmt.Errorf("tokenizer: %s is %.80q, which is not supported: use another model, or set the key to one of these if its rules are the same: %s", keyPre, pre, supportedPreTokenizers())
	}
	if err := v.loadSpecials(md, specialDefaults{bos: -1, eos: -1, unknown: -1, addBOS: rules.addBOS}); err != nil {
		return err
	}
	ids, err := v.idsByText()
	if err != nil {
		return err
	}
	m := &bytePair{rules: rules, cache: newPieceCache()}
	for b := range m.byteTokens {
		m.byteTokens[b] = -1
		if id, ok := ids[string(byteRunes[b])]; ok && !v.needsParsing(id) {
			m.byteTokens[b] = id
		}
	}
	if m.merges, err = loadMerges(md, v, ids, m.allowMerge); err != nil {
		return err
	}
	t.algorithm = m
	return m.loadPieces(v)
}

// allowMerge records in canMerge the two bytes that touch when left and right are joined.
// A token with a rune that encodes no byte is skipped: text never becomes one.
func (m *bytePair) allowMerge(left, right string) {
	last, _ := utf8.DecodeLastRuneInString(left)
	first, _ := utf8.DecodeRuneInString(right)
	before, ok1 := runeBytes[last]
	after, ok2 := runeBytes[first]
	if ok1 && ok2 {
		m.canMerge[before][after] = true
	}
}

func (m *bytePair) loadPieces(v *vocabulary) error {
	v.pieces = make([]string, len(v.texts))
	if m.rules.wholeTokens {
		m.wholeTokens = make(map[string]int32, len(v.texts))
	}
	for id, text := range v.texts {
		switch v.kinds[id] {
		case kindControl, kindUnknown, kindUserDefined:
			v.pieces[id] = text
			continue
		case kindByte:
			b, ok := parseByteToken(text)
			if !ok {
				return fmt.Errorf("tokenizer: byte token %d is %.80q; want <0x00> to <0xFF>", id, text)
			}
			v.pieces[id] = string([]byte{b})
			continue
		}
		v.pieces[id] = byteText(text)
		if m.wholeTokens != nil {
			m.wholeTokens[v.pieces[id]] = int32(id)
		}
	}
	return nil
}

// byteRunes maps each byte to the printable rune that byte-level vocabularies write for it:
// printable Latin-1 characters to themselves, the others to U+0100 and up.
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

// byteText returns the bytes of a token written in byteRunes. Other runes are unchanged.
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
	return m.rules.split.split(text, e.addSteps, func(piece string) error { return m.encodePiece(e, piece) })
}

func (m *bytePair) encodePiece(e *encoder, piece string) error {
	if ids, ok := m.cache.get(piece); ok {
		e.ids = append(e.ids, ids...)
		return nil
	}
	first := len(e.ids)
	if id, ok := m.wholeTokens[piece]; ok {
		e.ids = append(e.ids, id)
	} else {
		for start, end := 0, 1; start < len(piece); end++ {
			if end < len(piece) && m.canMerge[piece[end-1]][piece[end]] {
				continue // a token may cover both bytes
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

// mergePart appends the tokens of a part of a piece whose ends no merge crosses.
func (m *bytePair) mergePart(e *encoder, part string) error {
	if len(part) == 1 {
		if id := m.byteTokens[part[0]]; id >= 0 {
			e.ids = append(e.ids, id)
		}
		return e.addSteps(1)
	}
	symbols := e.merger.begin(len(part))
	for i := range symbols {
		symbols[i] = newSymbol(i, m.byteTokens[part[i]])
	}
	if err := e.merger.merge(m.merges.join, e.addSteps); err != nil {
		return err
	}
	for i := int32(0); i < int32(len(symbols)); i = symbols[i].next {
		if symbols[i].id >= 0 {
			e.ids = append(e.ids, symbols[i].id)
		}
	}
	return nil
}
