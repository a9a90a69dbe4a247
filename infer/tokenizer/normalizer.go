package tokenizer

import (
	"fmt"
	"strings"
)

// normalizer is what SentencePiece does to text before it looks for tokens.
type normalizer struct {
	charsMap       *charsMap // nil for none
	collapseSpaces bool      // replace runs of spaces by one and trim spaces at both ends
}

// load reads the normalisation of a file.
func (m *normalizer) load(md Metadata) (err error) {
	if m.collapseSpaces, err = boolOf(md, keyCollapseSpaces, false); err != nil {
		return err
	}
	if !md.Has(keyCharsMap) {
		return nil
	}
	numbers, err := md.Ints(keyCharsMap)
	if err != nil {
		return fmt.Errorf("tokenizer: cannot read the normalisation: %w", err)
	}
	data := make([]byte, len(numbers))
	for i, n := range numbers {
		if n < -128 || n > 255 {
			return fmt.Errorf("tokenizer: %s: element %d is %d; want a byte, -128 to 255", keyCharsMap, i, n)
		}
		data[i] = byte(n)
	}
	if len(data) > 0 {
		m.charsMap, err = parseCharsMap(data)
	}
	return err
}

// normalize returns text with ▁ for spaces, and one before it where the encoder wants a space.
func (m *normalizer) normalize(e *encoder, text string) (string, error) {
	if m.charsMap != nil {
		var err error
		if text, err = m.charsMap.normalize(e, text); err != nil {
			return "", err
		}
	}
	if m.collapseSpaces {
		text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }), " ")
		text = strings.TrimRight(text, spaceMark)
	}
	if text == "" {
		return "", nil
	}
	text = strings.ReplaceAll(text, " ", spaceMark)
	if e.atStart && e.spacePrefix {
		text = spaceMark + text
	}
	return text, nil
}
