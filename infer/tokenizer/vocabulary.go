package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Limits of a vocabulary. The largest real ones hold some 300,000 tokens of up to
// 512 bytes.
const (
	maxTokens       = 1 << 22
	maxTokenBytes   = 4096
	maxSpecialBytes = 512 // bounds the work of one step in a text full of beginnings of special tokens
)

// vocabulary is the part of a tokenizer that every model has.
type vocabulary struct {
	texts  []string // as the file spells them
	pieces []string // the bytes they stand for
	kinds  []kind
	strip  []bool // white space behind the token belongs to it; nil for none
	ends   map[int32]bool

	bos, eos, unknown int32 // -1 for none
	first, last       int32 // what AddSpecial puts around a prompt, -1 for nothing
	specials          *specials
}

// loadVocabulary reads what does not depend on the model.
func loadVocabulary(md Metadata) (*vocabulary, error) {
	texts, err := md.Strs(keyTokens)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: the vocabulary cannot be read: %w", err)
	}
	if len(texts) == 0 || len(texts) > maxTokens {
		return nil, fmt.Errorf("tokenizer: %s has %d entries; 1 to %d are supported", keyTokens, len(texts), maxTokens)
	}
	v := &vocabulary{texts: texts, kinds: make([]kind, len(texts)), ends: map[int32]bool{}}
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
		return fmt.Errorf("tokenizer: the token types cannot be read: %w", err)
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

// index returns token by text, and fails where two tokens have the same text. Empty
// texts, which fill gaps in some files, are left out.
func (v *vocabulary) index() (map[string]int32, error) {
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

// tokenID returns the token that key names: absent where the file does not have
// the key.
func (v *vocabulary) tokenID(md Metadata, key string, absent int32) (int32, error) {
	if !md.Has(key) {
		if int(absent) >= len(v.texts) {
			return -1, nil
		}
		return absent, nil
	}
	id, err := md.Uint(key)
	if err != nil {
		return -1, fmt.Errorf("tokenizer: a token id cannot be read: %w", err)
	}
	if id >= uint64(len(v.texts)) {
		return -1, fmt.Errorf("tokenizer: %s is %d, but the vocabulary has %d tokens", key, id, len(v.texts))
	}
	return int32(id), nil
}

// idDefaults says what a file means that does not name a token or an addition.
type idDefaults struct {
	bos, eos, unknown int32
	addBOS            bool
}

func (v *vocabulary) loadSpecials(md Metadata, d idDefaults) (err error) {
	if v.bos, err = v.tokenID(md, keyBOS, d.bos); err != nil {
		return err
	}
	if v.eos, err = v.tokenID(md, keyEOS, d.eos); err != nil {
		return err
	}
	if v.unknown, err = v.tokenID(md, keyUnknown, d.unknown); err != nil {
		return err
	}
	if v.first, err = addition(md, keyAddBOS, d.addBOS, v.bos); err != nil {
		return err
	}
	if v.last, err = addition(md, keyAddEOS, false, v.eos); err != nil {
		return err
	}
	if err := v.loadEnds(md); err != nil {
		return err
	}
	return v.indexSpecials()
}

// addition returns id if key, or absent without it, wants it added to each prompt,
// else -1. To want a token that the file does not name is an error.
func addition(md Metadata, key string, absent bool, id int32) (int32, error) {
	add := absent && id >= 0
	if md.Has(key) {
		var err error
		if add, err = md.Bool(key); err != nil {
			return -1, fmt.Errorf("tokenizer: %w", err)
		}
	}
	switch {
	case !add:
		return -1, nil
	case id < 0:
		return -1, fmt.Errorf("tokenizer: %s is true, but the file does not say which token that is", key)
	}
	return id, nil
}

// loadEnds finds the tokens that end an answer: those that the file names and those
// of endTexts.
func (v *vocabulary) loadEnds(md Metadata) error {
	if v.eos >= 0 {
		v.ends[v.eos] = true
	}
	for _, key := range []string{keyEOT, keyEOM} {
		id, err := v.tokenID(md, key, -1)
		if err != nil {
			return err
		}
		if id >= 0 {
			v.ends[id] = true
		}
	}
	byText := map[string]int32{}
	for id, text := range v.texts {
		if !endTexts[text] {
			continue
		}
		if text == "</s>" && v.kinds[id] == kindNormal && int32(id) != v.eos {
			continue // the HTML tag, in vocabularies that end otherwise
		}
		v.ends[int32(id)] = true
		v.kinds[id] = kindControl
		byText[text] = int32(id)
	}
	// gpt-oss ends messages inside an answer with <|end|>; the answer ends with one
	// of the two others.
	_, returns := byText["<|return|>"]
	_, calls := byText["<|call|>"]
	if end, ok := byText["<|end|>"]; ok && returns && calls && end != v.eos {
		delete(v.ends, end)
	}
	return nil
}

func (v *vocabulary) indexSpecials() error {
	var found []special
	for id, text := range v.texts {
		if !v.cut(int32(id)) || text == "" {
			continue
		}
		if len(text) > maxSpecialBytes {
			return fmt.Errorf("tokenizer: special token %d is %d bytes long; the limit is %d", id, len(text), maxSpecialBytes)
		}
		found = append(found, special{text, int32(id), v.parsedOnly(int32(id))})
	}
	v.specials = newSpecials(found)
	return nil
}

// cut reports whether the token is found in a text by its spelling, before
// anything else.
func (v *vocabulary) cut(id int32) bool {
	return v.hidden(id) || v.kinds[id] == kindUserDefined
}

// parsedOnly reports whether the token comes out of parsed text alone.
func (v *vocabulary) parsedOnly(id int32) bool {
	return v.hidden(id) || v.kinds[id] == kindUserDefined && isMarker(v.texts[id])
}

// hidden reports whether the token steers the model and spells nothing.
func (v *vocabulary) hidden(id int32) bool {
	return v.kinds[id] == kindControl || v.kinds[id] == kindUnknown
}

// loadStrip marks the special tokens of Phi-3, which swallow the white space behind
// them. The file does not say so; the model's name tells.
func (v *vocabulary) loadStrip(md Metadata) error {
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
	v.strip = make([]bool, len(v.texts))
	for id, text := range v.texts {
		v.strip[id] = v.cut(int32(id)) && text != "<unk>" && text != "<s>" && text != "<|endoftext|>"
	}
	return nil
}

// afterSpecial returns where the text goes on behind special token id, which ends at
// end.
func (v *vocabulary) afterSpecial(id int32, text string, end int) int {
	for v.strip != nil && v.strip[id] && end < len(text) && strings.IndexByte(" \t\n\v\f\r", text[end]) >= 0 {
		end++
	}
	return end
}

// parseByteToken reads a token <0xHH>, two capital hexadecimal digits.
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

// loadScores reads one finite score for each token.
func (v *vocabulary) loadScores(md Metadata) ([]float32, error) {
	scores, err := md.Floats(keyScores)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: the token scores cannot be read: %w", err)
	}
	if len(scores) != len(v.texts) {
		return nil, fmt.Errorf("tokenizer: %s has %d entries for %d tokens", keyScores, len(scores), len(v.texts))
	}
	for id, s := range scores {
		if math.IsNaN(float64(s)) || math.IsInf(float64(s), 0) {
			return nil, fmt.Errorf("tokenizer: token %d %.80q has score %v", id, v.texts[id], s)
		}
	}
	return scores, nil
}

// splitMerge splits "left right" at its first space but for one that left begins with.
func splitMerge(merge string) (left, right string, err error) {
	if len(merge) > 1 {
		if i := strings.IndexByte(merge[1:], ' '); i >= 0 && i+2 < len(merge) {
			return merge[:i+1], merge[i+2:], nil
		}
	}
	return "", "", errors.New("not two tokens with a space between them")
}
