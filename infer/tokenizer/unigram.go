package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// unigram implements SentencePiece's unigram model, which spells a word with the tokens whose scores have the largest sum. A rune that
// is no token may be unknown; neighbours that are become one unknown token. Spaces are written ▁. Scores are added up in float64, as
// the tokenizers of the models' makers do.
type unigram struct {
	tokens       *tokenIndex // of ordinary tokens
	scores       []float64   // by token
	crossesWords bool        // some token has ▁ after another character
	unknown      int32       // token for runes that are no token, -1 to omit them
	unknownScore float64

	normalizer
	cache *pieceCache
}

// unknownPenalty is by how much SentencePiece's score of the unknown token is below that of the worst ordinary token.
const unknownPenalty = 10

func loadUnigram(t *Tokenizer, md Metadata) error {
	v := t.vocab
	if err := v.loadSpecials(md, specialDefaults{bos: -1, eos: 1, unknown: 2, addEOS: true, addSeparator: true}); err != nil {
		return err
	}
	scores, err := v.loadScores(md)
	if err != nil {
		return err
	}
	m := &unigram{unknown: v.unknown, cache: newPieceCache(), scores: make([]float64, len(scores))}
	if err := m.normalizer.load(md); err != nil {
		return err
	}
	if t.spacePrefix, err = boolOf(md, keySpacePrefix, false); err != nil {
		return err
	}
	if err := m.loadPieces(v, scores); err != nil {
		return err
	}
	t.algorithm = m
	return nil
}

// loadPieces sets the bytes of each token and indexes those that ordinary text can become.
func (m *unigram) loadPieces(v *vocabulary, scores []float32) error {
	var ordinary []indexed
	lowest := math.Inf(1)
	v.pieces = make([]string, len(v.texts))
	for id, text := range v.texts {
		v.pieces[id] = text
		m.scores[id] = float64(scores[id])
		switch v.kinds[id] {
		case kindByte:
			return fmt.Errorf("tokenizer: token %d %.80q is a byte token; unigram models have none", id, text)
		case kindControl, kindUnknown, kindUserDefined, kindUnused:
		default:
			v.pieces[id] = strings.ReplaceAll(text, spaceMark, " ")
			lowest = min(lowest, m.scores[id])
			if text != "" {
				ordinary = append(ordinary, indexed{text: text, id: int32(id)})
				m.crossesWords = m.crossesWords || nextWord(text) < len(text)
			}
		}
	}
	m.tokens, m.unknownScore = newTokenIndex(ordinary), lowest-unknownPenalty
	return nil
}

// encode appends the tokens of text.
func (m *unigram) encode(e *encoder, text string) error {
	text, err := m.normalize(e, text)
	if err != nil {
		return err
	}
	var rules preTokenizer
	if !m.crossesWords {
		rules = preTokenizer{words}
	}
	return rules.split(text, e.addSteps, func(piece string) error { return m.encodePiece(e, piece) })
}

// spelling is the best way to spell a piece up to some offset.
type spelling struct {
	score float64 // sum of its tokens
	from  int32   // offset of the last token
	id    int32   // last token; -1: an unknown rune, or none
}

func (m *unigram) encodePiece(e *encoder, piece string) error {
	if ids, ok := m.cache.get(piece); ok {
		e.ids = append(e.ids, ids...)
		return nil
	}
	best := e.spellings[:0]
	for range len(piece) + 1 {
		best = append(best, spelling{score: math.Inf(-1), id: -1})
	}
	e.spellings = best
	best[0].score = 0
	for at := 0; at < len(piece); {
		_, size := utf8.DecodeRuneInString(piece[at:])
		offer := func(n int, id int32, score float64) {
			if score += best[at].score; score > best[at+n].score {
				best[at+n] = spelling{score, int32(at), id}
			}
		}
		known := false
		read := m.tokens.prefixes(piece[at:], func(t indexed) {
			known = known || len(t.text) == size
			offer(len(t.text), t.id, m.scores[t.id])
		})
		if !known {
			offer(size, -1, m.unknownScore)
		}
		if err := e.addSteps(read); err != nil {
			return err
		}
		at += size
	}
	first := len(e.ids)
	e.ids = m.appendSpelling(e.ids, best)
	m.cache.put(piece, e.ids[first:])
	return nil
}

// appendSpelling appends the tokens of the best spelling of a whole piece.
func (m *unigram) appendSpelling(ids []int32, best []spelling) []int32 {
	first := len(ids)
	unknown := false // the token to the right is
	for at := len(best) - 1; at > 0; at = int(best[at].from) {
		id := best[at].id
		if id < 0 && !unknown && m.unknown >= 0 {
			ids = append(ids, m.unknown)
		}
		if unknown = id < 0; !unknown {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids[first:])
	return ids
}
