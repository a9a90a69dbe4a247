package tokenizer

import (
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// wordPiece implements BERT's encoding: words are lower-cased and stripped of accents, unless
// the file says otherwise, and split into the longest tokens from the left. In GGUF files
// tokens that start a word begin with ▁; the others continue one.
type wordPiece struct {
	lowercase    bool
	stripAccents bool

	ids     map[string]int32 // ordinary tokens by text
	longest int              // length in bytes of the longest of them
	unknown int32            // token for a word that the others cannot spell, -1 to omit it
}

// maxWordRunes is the number of runes beyond which BERT treats a word as unknown.
const maxWordRunes = 100

func loadWordPiece(t *Tokenizer, md Metadata) error {
	v := t.vocab
	first, err := v.tokenID(md, keyCLS, 101)
	if err != nil {
		return err
	}
	if err := v.loadSpecials(md, specialDefaults{bos: first, eos: -1, unknown: 100, addBOS: true}); err != nil {
		return err
	}
	if v.suffix < 0 {
		v.separator = -1 // it is the suffix
	}
	if v.suffix, err = v.tokenID(md, keySeparator, 102); err != nil {
		return err
	}
	m := &wordPiece{unknown: v.unknown}
	if err := m.loadNormaliser(md); err != nil {
		return err
	}
	if m.ids, err = v.idsByText(); err != nil {
		return err
	}
	v.pieces = make([]string, len(v.texts))
	for id, text := range v.texts {
		v.pieces[id] = text
		switch v.kinds[id] {
		case kindByte:
			return fmt.Errorf("tokenizer: token %d %.80q is a byte token; WordPiece has none", id, text)
		case kindControl, kindUnknown, kindUserDefined:
			delete(m.ids, text)
		default:
			v.pieces[id] = strings.ReplaceAll(text, spaceMark, " ")
			m.longest = max(m.longest, len(text))
		}
	}
	t.algorithm, t.spacePrefix = m, true
	return nil
}

// loadNormaliser reads what is done to text before it is split into words. Accents are
// stripped where words are lower-cased, unless the file says otherwise.
func (m *wordPiece) loadNormaliser(md Metadata) (err error) {
	if m.lowercase, err = boolOf(md, keyLowercase, true); err != nil {
		return err
	}
	m.stripAccents, err = boolOf(md, keyStripAccents, m.lowercase)
	return err
}

// segments yields the parts of text in order, decomposed where accents are stripped.
func (m *wordPiece) segments(text string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if m.stripAccents {
			var decomposed norm.Iter
			decomposed.InitString(norm.NFD, text)
			for !decomposed.Done() && yield(decomposed.Next()) {
			}
			return
		}
		var one [utf8.UTFMax]byte
		for _, r := range text {
			if !yield(one[:utf8.EncodeRune(one[:], r)]) {
				return
			}
		}
	}
}

// encode appends the tokens of text.
func (m *wordPiece) encode(e *encoder, text string) error {
	var word []byte
	runes := 0
	finish := func() {
		if runes > 0 {
			e.ids = m.encodeWord(e.ids, spaceMark+string(word), runes)
		}
		word, runes = word[:0], 0
	}
	for segment := range m.segments(text) {
		if err := e.addSteps(len(segment)); err != nil {
			return err
		}
		for len(segment) > 0 {
			r, size := utf8.DecodeRune(segment)
			segment = segment[size:]
			switch c := classOf(r); {
			case r == '\t' || r == '\n' || r == '\r':
				finish()
			case r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) || m.stripAccents && unicode.Is(unicode.Mn, r):
				// other control characters, such as a form feed, and accents are removed
			case c&space != 0:
				finish()
			case c&punct != 0 || c&symbol != 0 && r < utf8.RuneSelf || isIdeograph(r):
				finish()
				word, runes = utf8.AppendRune(word, r), 1
				finish()
			default:
				if m.lowercase {
					r = unicode.ToLower(r)
				}
				word = utf8.AppendRune(word, r)
				runes++
			}
		}
	}
	finish()
	return nil
}

// encodeWord appends the tokens of a word, or the unknown token if they do not cover it.
func (m *wordPiece) encodeWord(ids []int32, word string, runes int) []int32 {
	first := len(ids)
	for rest := word; rest != "" && runes <= maxWordRunes; {
		n, least := min(len(rest), m.longest), 0
		switch {
		case len(rest) == len(word):
			least = len(spaceMark) // is the continuation that the text spells ▁
		case strings.HasPrefix(rest, spaceMark):
			n = min(n, len(spaceMark)) // longer tokens with a ▁ begin a word
		}
		id, ok := int32(0), false
		for ; n > least; n-- {
			if id, ok = m.ids[rest[:n]]; ok {
				break
			}
		}
		if !ok {
			break
		}
		ids = append(ids, id)
		if rest = rest[n:]; rest == "" {
			return ids
		}
	}
	ids = ids[:first]
	if m.unknown >= 0 {
		ids = append(ids, m.unknown)
	}
	return ids
}

// isIdeograph reports whether BERT treats the rune as a word of its own. Like BERT's table,
// the sixth range starts at U+2B920 although Unicode's block starts at U+2B820.
func isIdeograph(r rune) bool {
	return 0x4E00 <= r && r <= 0x9FFF || 0x3400 <= r && r <= 0x4DBF || 0x20000 <= r && r <= 0x2A6DF ||
		0x2A700 <= r && r <= 0x2B73F || 0x2B740 <= r && r <= 0x2B81F || 0x2B920 <= r && r <= 0x2CEAF ||
		0xF900 <= r && r <= 0xFAFF || 0x2F800 <= r && r <= 0x2FA1F
}
