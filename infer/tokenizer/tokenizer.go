// Package tokenizer converts text to the token ids of a model and back, as the model's
// GGUF file specifies: byte-level byte-pair encoding (tokenizer.ggml.model "gpt2", with
// the pre-tokenizers listed in preTokenizers), SentencePiece's byte-pair encoding
// ("llama"), SentencePiece with a list of merges ("gemma4"), byte-pair encoding of words
// ("whitespace"), SentencePiece's unigram model ("t5") and BERT's WordPiece ("bert").
//
// The ids equal those of the model family's own tokenizer, except for normalisation that
// the GGUF file does not contain. The file is untrusted: New rejects inconsistent
// vocabularies, and encoding any text of n bytes takes O(n log n) steps and constant
// stack; with a unigram model it takes up to n times the bytes of the longest token.
//
// Three kinds of token are never produced by merges:
//   - Control tokens (and the unknown token) are recognised only in text that the caller
//     asks to parse, and decode to nothing unless asked for.
//   - User-defined tokens are texts that always become one token; they are recognised
//     before any other. Those written like a control token, such as <|user|>, are also
//     recognised in parsed text only.
//   - Byte tokens encode a single byte that no other token covers.
//
// A Tokenizer is immutable and safe for concurrent use.
package tokenizer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
)

// Metadata gives access to the metadata of a model file; *gguf.File implements it. A
// getter returns an error if the key is missing or its value has another type.
type Metadata interface {
	Has(key string) bool
	Str(key string) (string, error)
	Strs(key string) ([]string, error)
	Floats(key string) ([]float32, error)
	Ints(key string) ([]int32, error)
	Uint(key string) (uint64, error)
	Bool(key string) (bool, error)
}

const (
	keyModel          = "tokenizer.ggml.model"
	keyPre            = "tokenizer.ggml.pre"
	keyTokens         = "tokenizer.ggml.tokens"
	keyTypes          = "tokenizer.ggml.token_type"
	keyScores         = "tokenizer.ggml.scores"
	keyMerges         = "tokenizer.ggml.merges"
	keyBOS            = "tokenizer.ggml.bos_token_id"
	keyEOS            = "tokenizer.ggml.eos_token_id"
	keyEOT            = "tokenizer.ggml.eot_token_id"
	keyEOM            = "tokenizer.ggml.eom_token_id"
	keyUnknown        = "tokenizer.ggml.unknown_token_id"
	keyAddBOS         = "tokenizer.ggml.add_bos_token"
	keyAddEOS         = "tokenizer.ggml.add_eos_token"
	keyAddSeparator   = "tokenizer.ggml.add_sep_token"
	keySeparator      = "tokenizer.ggml.seperator_token_id" // spelled so in the format
	keyCLS            = "tokenizer.ggml.cls_token_id"
	keyLowercase      = "tokenizer.ggml.normalizer.lowercase"
	keyStripAccents   = "tokenizer.ggml.normalizer.strip_accents"
	keySpacePrefix    = "tokenizer.ggml.add_space_prefix"
	keyCharsMap       = "tokenizer.ggml.precompiled_charsmap"
	keyCollapseSpaces = "tokenizer.ggml.remove_extra_whitespaces"
	keyName           = "general.name"
)

// Tokenizer encodes and decodes the text of one model.
type Tokenizer struct {
	vocab       *vocabulary
	algorithm   algorithm
	notice      string
	spacePrefix bool // Encode inserts a space at the start of a prompt and after each special token

	encoders sync.Pool // of *encoder: for long texts, allocating takes longer than encoding
}

// algorithm encodes text that contains no special tokens.
type algorithm interface {
	encode(e *encoder, text string) error // appends to e.ids
}

// New reads and validates the vocabulary of a model file. md is not used after it returns.
func New(md Metadata) (*Tokenizer, error) {
	model, err := md.Str(keyModel)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: cannot read the kind of tokenizer: %w", err)
	}
	load, ok := algorithms[model]
	if !ok {
		return nil, fmt.Errorf("tokenizer: %s is %.80q, which is not supported; supported are %s", keyModel, model, strings.Join(slices.Sorted(maps.Keys(algorithms)), ", "))
	}
	t := &Tokenizer{}
	if t.vocab, err = loadVocabulary(md); err != nil {
		return nil, err
	}
	if err := load(t, md); err != nil {
		return nil, err
	}
	return t, nil
}

// algorithms maps each value of tokenizer.ggml.model to the function that loads the rest
// of a Tokenizer.
var algorithms = map[string]func(*Tokenizer, Metadata) error{
	"gpt2":     loadBytePair,
	"llama":    loadSentencePiece,
	"bert":     loadWordPiece,
	"t5":       loadUnigram,
	gemma4:     loadGemma4,
	whitespace: loadSpacedWords,
}

// Options controls how Encode treats special tokens.
type Options struct {
	AddSpecial   bool // add the tokens that the file asks for at the start and end of a prompt
	ParseSpecial bool // recognise control tokens in the text
}

// Span is a part of a prompt: text of a chat template, in which control tokens are
// recognised, or content of a message, in which they are not.
type Span struct {
	Text         string
	ParseSpecial bool
}

// Encode returns the token ids of text. The only error is that of ctx, which is checked
// about every 64 KiB.
func (t *Tokenizer) Encode(ctx context.Context, text string, o Options) ([]int32, error) {
	return t.EncodeSpans(ctx, []Span{{text, o.ParseSpecial}}, o.AddSpecial)
}

// Suffixes returns how many tokens AddSpecial adds at the end of a text.
func (t *Tokenizer) Suffixes() int {
	if t.vocab.suffix < 0 {
		return 0
	}
	return 1
}

// EncodeSpans returns the token ids of the concatenated spans. Span boundaries affect
// control tokens only: one is recognised only where all of its text lies in spans with
// ParseSpecial. The only error is that of ctx.
func (t *Tokenizer) EncodeSpans(ctx context.Context, spans []Span, addSpecial bool) ([]int32, error) {
	e, _ := t.encoders.Get().(*encoder)
	if e == nil {
		e = &encoder{}
	}
	e.Tokenizer, e.ctx, e.ids, e.steps, e.nextCheck = t, ctx, e.ids[:0], 0, stepsPerCheck
	if addSpecial && t.vocab.prefix >= 0 {
		e.ids = append(e.ids, t.vocab.prefix)
	}
	if err := e.encode(spans); err != nil {
		return nil, err
	}
	if addSpecial && t.vocab.suffix >= 0 {
		e.ids = append(e.ids, t.vocab.suffix)
	}
	ids := slices.Clone(e.ids)
	if max(cap(e.ids), cap(e.merger.symbols), cap(e.spellings)) <= maxPooledLength {
		e.ctx = nil
		t.encoders.Put(e)
	}
	return ids, nil
}

// encoder holds the state of one call of EncodeSpans.
type encoder struct {
	*Tokenizer
	ctx       context.Context
	ids       []int32
	merger    merger
	starts    []int32    // offsets of the symbols in a SentencePiece piece
	spellings []spelling // of a piece, by offset, for unigram models
	atStart   bool       // the next text begins the prompt or follows a special token

	steps     int // work done in this call: bytes read and queue keys visited
	nextCheck int // number of steps at which ctx is checked again
}

const stepsPerCheck = 64 << 10

// maxPooledLength is the capacity up to which an encoder's lists are reused by later
// calls. A mebibyte of text without a word boundary fits.
const maxPooledLength = 3 << 19

// addSteps counts work. It returns the error of ctx, which it checks every stepsPerCheck.
func (e *encoder) addSteps(steps int) error {
	e.steps += steps
	if e.steps < e.nextCheck {
		return nil
	}
	e.nextCheck = e.steps + stepsPerCheck
	return e.ctx.Err()
}

func (e *encoder) encode(spans []Span) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	text, parsed := join(spans)
	e.atStart = true
	plain := 0 // text[plain:at] is ordinary text not encoded yet
	for at := 0; at < len(text); {
		candidate := e.vocab.specials.nextCandidate(text[:min(len(text), at+stepsPerCheck)], at)
		if err := e.addSteps(candidate - at + 1); err != nil {
			return err
		}
		at = candidate
		if at == len(text) {
			break
		}
		id, end := e.vocab.specials.match(text, at, parsed.endAt(at))
		if id < 0 {
			at++
			continue
		}
		if err := e.encodeText(text[plain:at]); err != nil {
			return err
		}
		e.ids = append(e.ids, id)
		e.atStart = true
		at = e.vocab.skipStripped(id, text, end)
		plain = at
	}
	return e.encodeText(text[plain:])
}

// intervals lists the parsed parts of a text in order. No two of them touch.
type intervals []interval

// interval is text[start:end].
type interval struct{ start, end int }

// endAt returns the end of the interval that contains at, 0 for none. at must not decrease
// between calls: endAt drops the intervals before it.
func (p *intervals) endAt(at int) int {
	for len(*p) > 0 && (*p)[0].end <= at {
		*p = (*p)[1:]
	}
	if len(*p) > 0 && (*p)[0].start <= at {
		return (*p)[0].end
	}
	return 0
}

// join concatenates spans and returns which parts of the text are parsed.
func join(spans []Span) (text string, parsed intervals) {
	if len(spans) == 1 { // avoids a copy
		if spans[0].ParseSpecial {
			parsed = intervals{{0, len(spans[0].Text)}}
		}
		return spans[0].Text, parsed
	}
	var b strings.Builder
	for _, s := range spans {
		start := b.Len()
		b.WriteString(s.Text)
		switch n := len(parsed); {
		case !s.ParseSpecial || s.Text == "":
		case n > 0 && parsed[n-1].end == start:
			parsed[n-1].end = b.Len()
		default:
			parsed = append(parsed, interval{start, b.Len()})
		}
	}
	return b.String(), parsed
}

// maxText is the most bytes encoded at once, because offsets in a merger are 32 bits wide.
// Longer text is encoded in parts.
const maxText = math.MaxInt32 / 8

// encodeText appends the tokens of text that contains no special tokens.
func (e *encoder) encodeText(text string) error {
	for text != "" {
		part := text[:min(len(text), maxText)]
		text = text[len(part):]
		if err := e.algorithm.encode(e, part); err != nil {
			return err
		}
		e.atStart = false
	}
	return nil
}

// Decode returns the text of ids, which must start at the first token of a prompt. With
// special, control tokens are included as the vocabulary spells them; without, they are
// omitted. Invalid ids are skipped.
//
// Decode concatenates the pieces and removes the spaces that Encode inserts at the start of
// a prompt and after special tokens. To decode a continuation of a prompt, concatenate the
// results of Piece instead. WordPiece does not preserve case, accents or spaces.
func (t *Tokenizer) Decode(ids []int32, special bool) string {
	var b strings.Builder
	begins := t.spacePrefix
	for _, id := range ids {
		if !t.valid(id) {
			continue
		}
		cut := t.vocab.isSpecial(id)
		piece := t.piece(id, special)
		if begins && !cut {
			piece = strings.TrimPrefix(piece, " ")
		}
		b.WriteString(piece)
		begins = t.spacePrefix && cut
	}
	return b.String()
}

// Piece returns the bytes of one token, which may be part of a rune. They are empty for a
// control token unless special is set, and nil for an id outside the vocabulary. The caller
// owns them.
func (t *Tokenizer) Piece(id int32, special bool) []byte {
	if !t.valid(id) {
		return nil
	}
	return []byte(t.piece(id, special))
}

func (t *Tokenizer) piece(id int32, special bool) string {
	if !special && t.vocab.isControl(id) {
		return ""
	}
	return t.vocab.pieces[id]
}

func (t *Tokenizer) valid(id int32) bool { return id >= 0 && int(id) < len(t.vocab.texts) }

// Notice returns a warning for the user about the tokenizer, "" for none.
func (t *Tokenizer) Notice() string {
	notices := t.vocab.notices
	if t.notice != "" {
		notices = append([]string{t.notice}, notices...)
	}
	return strings.Join(notices, "; ")
}

// VocabSize returns the number of tokens in the vocabulary.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.texts) }

// BOS returns the beginning-of-sequence token; ok is false if there is none.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.vocab.bos, t.vocab.bos >= 0 }

// EOS returns the end-of-sequence token; ok is false if there is none. Other tokens may
// also end an answer, see IsEnd.
func (t *Tokenizer) EOS() (id int32, ok bool) { return t.vocab.eos, t.vocab.eos >= 0 }

// AddsBOS reports whether the file asks for BOS at the start of every prompt.
func (t *Tokenizer) AddsBOS() bool { return t.vocab.prefix >= 0 }

// IsEnd reports whether a token ends an answer: an end of text, of turn or of message.
func (t *Tokenizer) IsEnd(id int32) bool { return t.vocab.endTokens[id] }

// Ends returns the tokens that end an answer, in ascending order.
func (t *Tokenizer) Ends() []int32 { return slices.Sorted(maps.Keys(t.vocab.endTokens)) }

// IsControl reports whether a token is a control token or the unknown token, which Decode
// omits by default.
func (t *Tokenizer) IsControl(id int32) bool { return t.valid(id) && t.vocab.isControl(id) }

// Text returns a token as the vocabulary spells it, "" for an id outside the vocabulary.
func (t *Tokenizer) Text(id int32) string {
	if !t.valid(id) {
		return ""
	}
	return t.vocab.texts[id]
}
