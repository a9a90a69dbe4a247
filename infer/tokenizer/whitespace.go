package tokenizer

import (
	"strings"
	"unicode"
)

// whitespace is a value of tokenizer.ggml.model, of Jina Embeddings 2 for Chinese.
const whitespace = "whitespace"

// spacedWords implements byte-pair encoding of words: white space separates them and has no tokens, and the runes of a word are its first
// symbols, which the file's merges join. A rune without a token becomes the unknown token.
type spacedWords struct {
	pieces    sentencePiece
	lowercase bool
}

func loadSpacedWords(t *Tokenizer, md Metadata) error {
	if err := t.vocab.loadSpecials(md, specialDefaults{bos: -1, eos: -1, unknown: -1}); err != nil {
		return err
	}
	m := &spacedWords{pieces: sentencePiece{unknownRunes: true}}
	var err error
	if m.lowercase, err = boolOf(md, keyLowercase, false); err != nil {
		return err
	}
	if err := loadMergedRunes(t, md, &m.pieces); err != nil {
		return err
	}
	t.algorithm = m
	return nil
}

// encode appends the tokens of text.
func (m *spacedWords) encode(e *encoder, text string) error {
	for word := range strings.FieldsFuncSeq(text, unicode.IsSpace) {
		if m.lowercase {
			word = strings.Map(unicode.ToLower, word)
		}
		if err := m.pieces.encodePiece(e, word); err != nil {
			return err
		}
	}
	return e.addSteps(len(text))
}
