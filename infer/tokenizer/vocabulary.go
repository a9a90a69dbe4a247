package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Limits of a vocabulary. The largest published ones have about 300,000 tokens of up to
// 512 bytes.
const (
	maxTokens       = 1 << 22
	maxTokenBytes   = 4096
	maxSpecialBytes = 512 // bounds the work of matching special tokens at one position
)

// vocabulary is the part of a tokenizer that all algorithms share.
type vocabulary struct {
	texts     []string // as spelled in the file
	pieces    []string // the bytes of each token
	kinds     []kind
	rstrip    []bool // the token includes the white space after it; nil if no token does
	endTokens map[int32]bool

	bos, eos, unknown int32    // -1 for none
	prefix, suffix    int32    // tokens that AddSpecial adds around a prompt, -1 for none
	separator         int32    // token that Pair adds in front of the document, besides suffix; -1 for none
	notices           []string // for the user
	specials          *tokenIndex
}

// loadVocabulary reads the texts and kinds of the tokens.
func loadVocabulary(md Metadata) (*vocabulary, error) {
	texts, err := md.Strs(keyTokens)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: cannot read the vocabulary: %w", err)
	}
	if len(texts) == 0 || len(texts) > maxTokens {
		return nil, fmt.Errorf("tokenizer: %s has %d entries; 1 to %d are supported", keyTokens, len(texts), maxTokens)
	}
	v := &vocabulary{texts: texts, kinds: make([]kind, len(texts)), endTokens: map[int32]bool{}}
	if err := v.loadKinds(md); err != nil {
		return nil, err
	}
	return v, nil
}

func (v *vocabulary) loadKinds(md Metadata) error {
	for id, text := range v.texts {
		if len(text) > maxTokenBytes {
			return fmt.Errorf("tokenizer: token %d is %d bytes long; the limit is %d", id, len(text), maxTokenBytes)
		}
		v.kinds[id] = kindNormal
	}
	if !md.Has(keyTypes) {
		return nil
	}
	types, err := md.Ints(keyTypes)
	if err != nil {
		return fmt.Errorf("tokenizer: cannot read the token types: %w", err)
	}
	if len(types) != len(v.texts) {
		return fmt.Errorf("tokenizer: %s has %d entries for %d tokens", keyTypes, len(types), len(v.texts))
	}
	for id, t := range types {
		if t < int32(kindUndefined) || t > int32(kindByte) {
			return fmt.Errorf("tokenizer: token %d %.80q has type %d; 0 to 6 are defined", id, v.texts[id], t)
		}
		v.kinds[id] = kind(t)
	}
	return nil
}

// idsByText maps texts to token ids. It returns an error if two tokens have the same text.
// Empty texts, which fill gaps in some files, are omitted.
func (v *vocabulary) idsByText() (map[string]int32, error) {
	ids := make(map[string]int32, len(v.texts))
	for id, text := range v.texts {
		if text == "" {
			continue
		}
		if first, ok := ids[text]; ok {
			return nil, fmt.Errorf("tokenizer: tokens %d and %d are both %.80q", first, id, text)
		}
		ids[text] = int32(id)
	}
	return ids, nil
}

// tokenID returns the token id stored under key. If the file lacks the key it returns
// fallback, or -1 if fallback is outside the vocabulary.
func (v *vocabulary) tokenID(md Metadata, key string, fallback int32) (int32, error) {
	if !md.Has(key) {
		if int(fallback) >= len(v.texts) {
			return -1, nil
		}
		return fallback, nil
	}
	id, err := md.Uint(key)
	if err != nil {
		return -1, fmt.Errorf("tokenizer: cannot read a token id: %w", err)
	}
	if id >= uint64(len(v.texts)) {
		return -1, fmt.Errorf("tokenizer: %s is %d, but the vocabulary has %d tokens", key, id, len(v.texts))
	}
	return int32(id), nil
}

// specialID is tokenID for a special token, without which a model can be used: an id outside the
// vocabulary counts as none and is a notice.
func (v *vocabulary) specialID(md Metadata, key string, fallback int32) (int32, error) {
	id, err := md.Uint(key)
	if err != nil || id < uint64(len(v.texts)) {
		return v.tokenID(md, key, fallback)
	}
	v.notices = append(v.notices, fmt.Sprintf("%s is %d, but the vocabulary has %d tokens: it is ignored", key, id, len(v.texts)))
	if int(fallback) >= len(v.texts) {
		return -1, nil
	}
	return fallback, nil
}

// specialDefaults holds the values for keys that a file lacks; -1 for no token.
type specialDefaults struct {
	bos, eos, unknown int32
	addBOS, addEOS    bool
	addSeparator      bool
}

func (v *vocabulary) loadSpecials(md Metadata, d specialDefaults) (err error) {
	if v.bos, err = v.specialID(md, keyBOS, d.bos); err != nil {
		return err
	}
	if v.eos, err = v.specialID(md, keyEOS, d.eos); err != nil {
		return err
	}
	if v.unknown, err = v.specialID(md, keyUnknown, d.unknown); err != nil {
		return err
	}
	if v.prefix, err = addedToken(md, keyAddBOS, d.addBOS, v.bos); err != nil {
		return err
	}
	if v.suffix, err = addedToken(md, keyAddEOS, d.addEOS, v.eos); err != nil {
		return err
	}
	if v.separator, err = v.specialID(md, keySeparator, v.eos); err != nil {
		return err
	}
	if add, err := boolOf(md, keyAddSeparator, d.addSeparator); err != nil {
		return err
	} else if !add {
		v.separator = -1
	}
	if err := v.loadEndTokens(md); err != nil {
		return err
	}
	return v.indexSpecials()
}

// boolOf returns the value of key, or fallback if the file lacks the key.
func boolOf(md Metadata, key string, fallback bool) (bool, error) {
	if !md.Has(key) {
		return fallback, nil
	}
	value, err := md.Bool(key)
	if err != nil {
		return fallback, fmt.Errorf("tokenizer: %w", err)
	}
	return value, nil
}

// addedToken returns id if prompts get the token, else -1. The boolean under key decides,
// or fallback if the file lacks the key. It returns an error if key is true and id is -1.
func addedToken(md Metadata, key string, fallback bool, id int32) (int32, error) {
	add, err := boolOf(md, key, fallback && id >= 0)
	switch {
	case err != nil:
		return -1, err
	case !add:
		return -1, nil
	case id < 0:
		return -1, fmt.Errorf("tokenizer: %s is true, but the file does not give the id of the token to add", key)
	}
	return id, nil
}

// loadEndTokens collects the tokens that end an answer: those given by key in the file and
// those listed in endTokenTexts, which it makes control tokens.
func (v *vocabulary) loadEndTokens(md Metadata) error {
	if v.eos >= 0 {
		v.endTokens[v.eos] = true
	}
	for _, key := range []string{keyEOT, keyEOM} {
		id, err := v.tokenID(md, key, -1)
		if err != nil {
			return err
		}
		if id >= 0 {
			v.endTokens[id] = true
		}
	}
	byText := map[string]int32{}
	for id, text := range v.texts {
		if !endTokenTexts[text] {
			continue
		}
		if text == "</s>" && v.kinds[id] == kindNormal && int32(id) != v.eos {
			continue // an HTML tag, in vocabularies with other end tokens
		}
		v.endTokens[int32(id)] = true
		v.kinds[id] = kindControl
		byText[text] = int32(id)
	}
	// In gpt-oss <|end|> ends a message within an answer; <|return|> or <|call|> ends the
	// answer.
	_, returns := byText["<|return|>"]
	_, calls := byText["<|call|>"]
	if end, ok := byText["<|end|>"]; ok && returns && calls && end != v.eos {
		delete(v.endTokens, end)
	}
	return nil
}

func (v *vocabulary) indexSpecials() error {
	var found []indexed
	for id, text := range v.texts {
		if !v.isSpecial(int32(id)) || text == "" {
			continue
		}
		if len(text) > maxSpecialBytes {
			return fmt.Errorf("tokenizer: special token %d is %d bytes long; the limit is %d", id, len(text), maxSpecialBytes)
		}
		found = append(found, indexed{text, int32(id), v.needsParsing(int32(id))})
	}
	v.specials = newTokenIndex(found)
	return nil
}

// isSpecial reports whether the token is recognised by its text before ordinary text is
// encoded.
func (v *vocabulary) isSpecial(id int32) bool {
	return v.isControl(id) || v.kinds[id] == kindUserDefined
}

// needsParsing reports whether the token is recognised in parsed text only.
func (v *vocabulary) needsParsing(id int32) bool {
	return v.isControl(id) || v.kinds[id] == kindUserDefined && isMarker(v.texts[id])
}

// isControl reports whether the token is a control token or the unknown token.
func (v *vocabulary) isControl(id int32) bool {
	return v.kinds[id] == kindControl || v.kinds[id] == kindUnknown
}

// loadRstrip marks the special tokens of Phi-3, which include the white space after them.
// GGUF has no key for this, so the model is recognised by its name.
func (v *vocabulary) loadRstrip(md Metadata) error {
	if !md.Has(keyName) {
		return nil
	}
	name, err := md.Str(keyName)
	if err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	name = strings.ToLower(name)
	if !strings.Contains(name, "phi-3") && !strings.Contains(name, "phi3") {
		return nil
	}
	v.rstrip = make([]bool, len(v.texts))
	for id, text := range v.texts {
		v.rstrip[id] = v.isSpecial(int32(id)) && text != "<unk>" && text != "<s>" && text != "<|endoftext|>"
	}
	return nil
}

// skipStripped returns the offset at which text continues after special token id, which
// ends at end.
func (v *vocabulary) skipStripped(id int32, text string, end int) int {
	for v.rstrip != nil && v.rstrip[id] && end < len(text) && strings.IndexByte(" \t\n\v\f\r", text[end]) >= 0 {
		end++
	}
	return end
}

// parseByteToken parses <0xHH> with two upper-case hexadecimal digits.
func parseByteToken(text string) (byte, bool) {
	if len(text) != 6 || !strings.HasPrefix(text, "<0x") || text[5] != '>' {
		return 0, false
	}
	var b byte
	for _, c := range []byte(text[3:5]) {
		switch {
		case '0' <= c && c <= '9':
			b = b<<4 | (c - '0')
		case 'A' <= c && c <= 'F':
			b = b<<4 | (c - 'A' + 10)
		default:
			return 0, false
		}
	}
	return b, true
}

// loadScores reads the scores, one finite number for each token.
func (v *vocabulary) loadScores(md Metadata) ([]float32, error) {
	scores, err := md.Floats(keyScores)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: cannot read the token scores: %w", err)
	}
	if len(scores) != len(v.texts) {
		return nil, fmt.Errorf("tokenizer: %s has %d entries for %d tokens", keyScores, len(scores), len(v.texts))
	}
	for id, s := range scores {
		if math.IsNaN(float64(s)) || math.IsInf(float64(s), 0) {
			return nil, fmt.Errorf("tokenizer: token %d %.80q has score %v; scores must be finite", id, v.texts[id], s)
		}
	}
	return scores, nil
}

// splitMerge splits "left right" at the first space after the first byte: left may begin
// with a space.
func splitMerge(merge string) (left, right string, err error) {
	if len(merge) > 1 {
		if i := strings.IndexByte(merge[1:], ' '); i >= 0 && i+2 < len(merge) {
			return merge[:i+1], merge[i+2:], nil
		}
	}
	return "", "", errors.New("not two tokens separated by a space")
}
