package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// sentencePiece is SentencePiece's byte-pair encoding: a text begins as its runes,
// and neighbours join into the token of the highest score. A rune that is in no
// token is spelled by byte tokens. Spaces are written ▁. There is no pre-tokenizer:
// tokenizer.ggml.pre has no meaning here.
type sentencePiece struct {
	ids        map[string]int32 // ordinary tokens
	longest    int              // bytes of the longest of them
	priorities []uint32         // of each token, the highest score first
	bytes      [256]int32       // byte tokens, -1 for none
	lost       int32            // token of a byte that has none, -1 to leave it out

	normal      *charsMap // nil for none
	mergeSpaces bool      // runs of spaces are one, and none are left at the ends
}

const spaceMark = "▁"

func loadSentencePiece(t *Tokenizer, md Metadata) error {
	v := t.vocab
	if err := v.loadSpecials(md, idDefaults{bos: 1, eos: 2, unknown: 0, addBOS: true}); err != nil {
		return err
	}
	if err := v.loadStrip(md); err != nil {
		return err
	}
	scores, err := v.loadScores(md)
	if err != nil {
		return err
	}
	m := &sentencePiece{lost: v.unknown, priorities: make([]uint32, len(scores))}
	for id, s := range scores {
		m.priorities[id] = ^sortable(s)
	}
	t.spacePrefix = true
	if md.Has(keySpacePrefix) {
		if t.spacePrefix, err = md.Bool(keySpacePrefix); err != nil {
			return fmt.Errorf("tokenizer: %w", err)
		}
	}
	if err := m.loadNormalization(md); err != nil {
		return err
	}
	if m.ids, err = v.index(); err != nil {
		return err
	}
	t.algorithm = m
	return m.loadPieces(v)
}

func (m *sentencePiece) loadNormalization(md Metadata) (err error) {
	if md.Has(keyMergeSpaces) {
		if m.mergeSpaces, err = md.Bool(keyMergeSpaces); err != nil {
			return fmt.Errorf("tokenizer: %w", err)
		}
	}
	if !md.Has(keyCharsMap) {
		return nil
	}
	numbers, err := md.Ints(keyCharsMap)
	if err != nil {
		return fmt.Errorf("tokenizer: the normalisation cannot be read: %w", err)
	}
	data := make([]byte, len(numbers))
	for i, n := range numbers {
		if n < -128 || n > 255 {
			return fmt.Errorf("tokenizer: %s: element %d is %d, which is no byte", keyCharsMap, i, n)
		}
		data[i] = byte(n)
	}
	if len(data) > 0 {
		m.normal, err = parseCharsMap(data)
	}
	return err
}

// loadPieces spells the tokens, and leaves in ids those that text can become.
func (m *sentencePiece) loadPieces(v *vocabulary) error {
	for b := range m.bytes {
		m.bytes[b] = -1
	}
	v.pieces = make([]string, len(v.texts))
	for id, text := range v.texts {
		switch v.kinds[id] {
		case kindControl, kindUnknown, kindUserDefined:
			v.pieces[id] = text
			delete(m.ids, text)
		case kindByte:
			b, ok := parseByteToken(text)
			if !ok {
				return fmt.Errorf("tokenizer: byte token %d is %.80q instead of <0x00> to <0xFF>", id, text)
			}
			v.pieces[id] = string([]byte{b})
			m.bytes[b] = int32(id)
			delete(m.ids, text)
		default:
			v.pieces[id] = strings.ReplaceAll(text, spaceMark, " ")
			m.longest = max(m.longest, len(text))
		}
	}
	return nil
}

// sortable maps a finite float to an integer of the same order.
func sortable(f float32) uint32 {
	bits := math.Float32bits(f + 0) // -0 + 0 is +0
	if bits>>31 != 0 {
		return ^bits
	}
	return bits | 1<<31
}

// encode appends the tokens of text.
func (m *sentencePiece) encode(e *encoder, text string) error {
	if m.normal != nil {
		var err error
		if text, err = m.normal.normalize(e, text); err != nil {
			return err
		}
	}
	if m.mergeSpaces {
		text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }), " ")
	}
	if text == "" {
		return nil
	}
	text = strings.ReplaceAll(text, " ", spaceMark)
	if e.begins && e.spacePrefix {
		text = spaceMark + text
	}
	e.merger.reset(utf8.RuneCountInString(text))
	for at := 0; at < len(text); {
		_, size := utf8.DecodeRuneInString(text[at:])
		if err := e.tick(size); err != nil {
			return err
		}
		e.merger.add(at, at+size, m.token(text[at:at+size]))
		at += size
	}
	join := func(left, right mergeSymbol) (int32, uint32, bool) {
		id := m.token(text[left.start:right.end])
		if id < 0 {
			return id, 0, false
		}
		return id, m.priorities[id], true
	}
	if err := e.merger.merge(join, e.tick); err != nil {
		return err
	}
	for i := int32(0); i >= 0; i = e.merger.symbols[i].next {
		s := e.merger.symbols[i]
		if s.id >= 0 {
			e.ids = append(e.ids, s.id)
			continue
		}
		for _, b := range []byte(text[s.start:s.end]) {
			if id := m.bytes[b]; id >= 0 {
				e.ids = append(e.ids, id)
			} else if m.lost >= 0 {
				e.ids = append(e.ids, m.lost)
			}
		}
	}
	return nil
}

func (m *sentencePiece) token(text string) int32 {
	if len(text) > m.longest {
		return -1
	}
	if id, ok := m.ids[text]; ok {
		return id
	}
	return -1
}
