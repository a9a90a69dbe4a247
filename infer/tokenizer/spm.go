package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// sentencePiece is SentencePiece's byte-pair encoding: a text begins as its runes,
// and neighbours join into the token of the highest score. A rune that is in no
// token is spelled by byte tokens. Spaces are written ▁. There is no pre-tokenizer:
// tokenizer.ggml.pre has no meaning here.
//
// In Gemma 4 a list of merges joins instead of scores, and no token lies across the end
// of a line.
type sentencePiece struct {
	ids         map[string]int32 // ordinary tokens
	longest     int              // bytes of the longest of them
	acrossWords bool             // one of them has ▁ behind something else
	priorities  []uint32         // place of each token's score among all, the highest first
	merges      *mergeTable      // in place of priorities; nil for none
	bytes       [256]int32       // byte tokens, -1 for none
	lost        int32            // token of a byte that has none, -1 to leave it out

	normal      *charsMap // nil for none
	mergeSpaces bool      // runs of spaces are one, and none are left at the ends

	cache *pieceCache
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
	m := &sentencePiece{lost: v.unknown, priorities: ranks(scores), cache: newPieceCache()}
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

// gemma4 is a value of tokenizer.ggml.model, and of tokenizer.ggml.pre.
const gemma4 = "gemma4"

func loadGemma4(t *Tokenizer, md Metadata) error {
	v := t.vocab
	if err := v.loadSpecials(md, idDefaults{bos: -1, eos: -1, unknown: -1, addBOS: true}); err != nil {
		return err
	}
	v.first = v.bos // whatever the file says: the first ones were wrong, and the model needs it
	m := &sentencePiece{lost: v.unknown, ids: map[string]int32{}, cache: newPieceCache()}
	all := map[string]int32{}
	for id, text := range v.texts { // of the few that are there twice, the later ones
		if all[text] = int32(id); !v.cut(int32(id)) {
			m.ids[text] = int32(id)
		}
	}
	merges, err := loadMerges(md, v, all, func(left, right string) {
		m.acrossWords = m.acrossWords || wordEnd(left+right) < len(left+right)
	})
	if err != nil {
		return err
	}
	m.merges = &merges
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
			m.forget(text, id)
		case kindByte:
			b, ok := parseByteToken(text)
			if !ok {
				return fmt.Errorf("tokenizer: byte token %d is %.80q instead of <0x00> to <0xFF>", id, text)
			}
			v.pieces[id] = string([]byte{b})
			m.bytes[b] = int32(id)
			m.forget(text, id)
		default:
			v.pieces[id] = strings.ReplaceAll(text, spaceMark, " ")
			m.longest = max(m.longest, len(text))
			m.acrossWords = m.acrossWords || wordEnd(text) < len(text)
		}
	}
	return nil
}

func (m *sentencePiece) forget(text string, id int) {
	if m.ids[text] == int32(id) {
		delete(m.ids, text)
	}
}

// ranks returns the place of each number among all, the highest first; equals have the
// same.
func ranks(numbers []float32) []uint32 {
	order := make([]int, len(numbers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(numbers[b], numbers[a]) })
	ranks := make([]uint32, len(numbers))
	for n, i := range order {
		ranks[i] = uint32(n)
		if n > 0 && numbers[i] == numbers[order[n-1]] {
			ranks[i] = ranks[order[n-1]]
		}
	}
	return ranks
}

// wordEnd returns where the first ▁ is that has something else before it, len(text) if
// none has.
func wordEnd(text string) int {
	at := 0
	for strings.HasPrefix(text[at:], spaceMark) {
		at += len(spaceMark)
	}
	if i := strings.Index(text[at:], spaceMark); i >= 0 {
		return at + i
	}
	return len(text)
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
	return m.rules().cut(text, e.tick, func(piece string) error { return m.encodePiece(e, piece) })
}

// rules cut text where no tokens are joined.
func (m *sentencePiece) rules() (p preTokenizer) {
	if m.merges != nil {
		p = append(p, lines)
	}
	if !m.acrossWords {
		p = append(p, words)
	}
	return p
}

// words matches ▁*[^▁]*
func words(text string, at int) (int, bool) { return at + wordEnd(text[at:]), true }

func (m *sentencePiece) encodePiece(e *encoder, piece string) error {
	if ids, ok := m.cache.get(piece); ok {
		e.ids = append(e.ids, ids...)
		return nil
	}
	if m.merges != nil && piece[0] == '\n' {
		if id, ok := m.ids[piece]; ok { // as a whole, whatever the merges say
			e.ids = append(e.ids, id)
			return nil
		}
	}
	first := len(e.ids)
	e.starts = e.starts[:0]
	for at := range piece {
		e.starts = append(e.starts, int32(at))
	}
	symbols := e.merger.begin(len(e.starts))
	e.starts = append(e.starts, int32(len(piece)))
	for i := range symbols {
		symbols[i] = newSymbol(i, m.token(piece[e.starts[i]:e.starts[i+1]]))
		if err := e.tick(1); err != nil {
			return err
		}
	}
	join := func(symbols []mergeSymbol, left int32) (int32, uint32) {
		right := symbols[left].next
		id := m.token(piece[e.starts[left]:e.starts[symbols[right].next]])
		if id < 0 {
			return id, unjoinable
		}
		return id, m.priorities[id]
	}
	if m.merges != nil {
		join = m.merges.join
	}
	if err := e.merger.merge(join, e.tick); err != nil {
		return err
	}
	for i := int32(0); i < int32(len(symbols)); i = symbols[i].next {
		if symbols[i].id >= 0 {
			e.ids = append(e.ids, symbols[i].id)
			continue
		}
		for _, b := range []byte(piece[e.starts[i]:e.starts[symbols[i].next]]) {
			if id := m.bytes[b]; id >= 0 {
				e.ids = append(e.ids, id)
			} else if m.lost >= 0 {
				e.ids = append(e.ids, m.lost)
			}
		}
	}
	m.cache.put(piece, e.ids[first:])
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
