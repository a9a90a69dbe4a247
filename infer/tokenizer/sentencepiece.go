package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// sentencePiece implements SentencePiece's byte-pair encoding: the runes of a text are its
// first symbols, and the adjacent pair that forms the token of the highest score is joined
// first. A rune without a token becomes byte tokens. Spaces are written ▁.
// tokenizer.ggml.pre is ignored.
//
// Gemma 4 and Sarvam use a list of merges instead of scores, and no token crosses the end of a line.
type sentencePiece struct {
	ids           map[string]int32 // ordinary tokens by text
	longest       int              // length in bytes of the longest of them
	crossesWords  bool             // some token has ▁ after another character
	ranks         []uint32         // by token; 0 for the highest score
	merges        *mergeTable      // used instead of ranks; nil for none
	wholeLineEnds bool             // a run of line ends that is a token is not merged
	byteTokens    [256]int32       // token id by byte, -1 for none
	unknown       int32            // token for bytes without a byte token, -1 to omit them
	unknownRunes  bool             // it is the token for runes without a token, which have no byte tokens

	normalizer
	cache *pieceCache
}

const spaceMark = "▁"

func loadSentencePiece(t *Tokenizer, md Metadata) error {
	v := t.vocab
	if err := v.loadSpecials(md, specialDefaults{bos: 1, eos: 2, unknown: 0, addBOS: true}); err != nil {
		return err
	}
	if err := v.loadRstrip(md); err != nil {
		return err
	}
	scores, err := v.loadScores(md)
	if err != nil {
		return err
	}
	m := &sentencePiece{unknown: v.unknown, ranks: rankDescending(scores), cache: newPieceCache()}
	if t.spacePrefix, err = boolOf(md, keySpacePrefix, true); err != nil {
		return err
	}
	if err := m.normalizer.load(md); err != nil {
		return err
	}
	if m.ids, err = v.idsByText(); err != nil {
		return err
	}
	t.algorithm = m
	return m.loadPieces(v)
}

// gemma4 is a value of tokenizer.ggml.model, and of tokenizer.ggml.pre.
const gemma4 = "gemma4"

// spacedBytePairs are the values of tokenizer.ggml.pre of tokenizers with a list of merges that write spaces as ▁ and merge runes
// instead of bytes.
var spacedBytePairs = map[string]func(*Tokenizer, Metadata) error{
	gemma4:                     loadGemma4,
	"granite-embed-multi-311m": loadGemma4,
	"sarvam-moe":               loadSarvam,
}

func loadGemma4(t *Tokenizer, md Metadata) error {
	v := t.vocab
	if err := v.loadSpecials(md, specialDefaults{bos: -1, eos: -1, unknown: -1, addBOS: true}); err != nil {
		return err
	}
	v.prefix = v.bos // ignores the file's add_bos_token: the model needs BOS, and the first published files said otherwise
	return loadMergedRunes(t, md, &sentencePiece{wholeLineEnds: true})
}

// loadSarvam is for files that do not mark byte tokens.
func loadSarvam(t *Tokenizer, md Metadata) error {
	v := t.vocab
	if err := v.loadSpecials(md, specialDefaults{bos: -1, eos: -1, unknown: -1}); err != nil {
		return err
	}
	for id, text := range v.texts {
		if _, ok := parseByteToken(text); ok && v.kinds[id] == kindNormal {
			v.kinds[id] = kindByte
		}
	}
	return loadMergedRunes(t, md, &sentencePiece{})
}

// loadMergedRunes makes m merge runes by the file's list of merges.
func loadMergedRunes(t *Tokenizer, md Metadata, m *sentencePiece) error {
	v := t.vocab
	m.unknown, m.ids, m.cache = v.unknown, map[string]int32{}, newPieceCache()
	all := map[string]int32{}
	for id, text := range v.texts { // of the few duplicate texts the last counts
		if all[text] = int32(id); !v.isSpecial(int32(id)) {
			m.ids[text] = int32(id)
		}
	}
	merges, err := loadMerges(md, v, all, func(left, right string) {
		m.crossesWords = m.crossesWords || nextWord(left+right) < len(left+right)
	})
	if err != nil {
		return err
	}
	m.merges = &merges
	t.algorithm = m
	return m.loadPieces(v)
}

// loadPieces sets the bytes of each token and removes from ids the tokens that ordinary
// text cannot become.
func (m *sentencePiece) loadPieces(v *vocabulary) error {
	for b := range m.byteTokens {
		m.byteTokens[b] = -1
	}
	v.pieces = make([]string, len(v.texts))
	for id, text := range v.texts {
		switch v.kinds[id] {
		case kindControl, kindUnknown, kindUserDefined:
			v.pieces[id] = text
			m.removeID(text, id)
		case kindByte:
			b, ok := parseByteToken(text)
			if !ok {
				return fmt.Errorf("tokenizer: byte token %d is %.80q; want <0x00> to <0xFF>", id, text)
			}
			v.pieces[id] = string([]byte{b})
			m.byteTokens[b] = int32(id)
			m.removeID(text, id)
		default:
			v.pieces[id] = strings.ReplaceAll(text, spaceMark, " ")
			m.longest = max(m.longest, len(text))
			m.crossesWords = m.crossesWords || nextWord(text) < len(text)
		}
	}
	return nil
}

func (m *sentencePiece) removeID(text string, id int) {
	if m.ids[text] == int32(id) {
		delete(m.ids, text)
	}
}

// rankDescending returns the rank of each number, 0 for the highest. Equal numbers have
// equal ranks.
func rankDescending(numbers []float32) []uint32 {
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

// nextWord returns the offset of the first ▁ after another character, len(text) for none.
func nextWord(text string) int {
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
	text, err := m.normalize(e, text)
	if err != nil {
		return err
	}
	return m.preTokenizer().split(text, e.addSteps, func(piece string) error { return m.encodePiece(e, piece) })
}

// preTokenizer returns rules that split text where no token crosses.
func (m *sentencePiece) preTokenizer() (p preTokenizer) {
	if m.merges != nil {
		p = append(p, lines)
	}
	if !m.crossesWords {
		p = append(p, words)
	}
	return p
}

// words matches ▁*[^▁]*
func words(text string, at int) (int, bool) { return at + nextWord(text[at:]), true }

func (m *sentencePiece) encodePiece(e *encoder, piece string) error {
	if ids, ok := m.cache.get(piece); ok {
		e.ids = append(e.ids, ids...)
		return nil
	}
	if m.wholeLineEnds && piece[0] == '\n' {
		if id, ok := m.ids[piece]; ok {
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
		symbols[i] = newSymbol(i, m.tokenOf(piece[e.starts[i]:e.starts[i+1]]))
		if err := e.addSteps(1); err != nil {
			return err
		}
	}
	join := func(symbols []mergeSymbol, left int32) (int32, uint32) {
		right := symbols[left].next
		id := m.tokenOf(piece[e.starts[left]:e.starts[symbols[right].next]])
		if id < 0 {
			return id, cannotMerge
		}
		return id, m.ranks[id]
	}
	if m.merges != nil {
		join = m.merges.join
	}
	if err := e.merger.merge(join, e.addSteps); err != nil {
		return err
	}
	for i := int32(0); i < int32(len(symbols)); i = symbols[i].next {
		if symbols[i].id >= 0 {
			e.ids = append(e.ids, symbols[i].id)
			continue
		}
		bytes := []byte(piece[e.starts[i]:e.starts[symbols[i].next]])
		if m.unknownRunes {
			bytes = bytes[:1]
		}
		for _, b := range bytes {
			if id := m.byteTokens[b]; id >= 0 {
				e.ids = append(e.ids, id)
			} else if m.unknown >= 0 {
				e.ids = append(e.ids, m.unknown)
			}
		}
	}
	m.cache.put(piece, e.ids[first:])
	return nil
}

func (m *sentencePiece) tokenOf(text string) int32 {
	if len(text) > m.longest {
		return -1
	}
	if id, ok := m.ids[text]; ok {
		return id
	}
	return -1
}
