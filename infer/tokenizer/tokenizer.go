// Package tokenizer turns text into the tokens of a model and back, as the model's
// GGUF file says: byte-level byte-pair encoding (tokenizer.ggml.model "gpt2", with
// the pre-tokenizers that preTokenizers lists), SentencePiece's byte-pair encoding
// ("llama"), the same with merges ("gemma4") and BERT's WordPiece ("bert").
//
// The ids are those of the model family's own tokenizer, but for normalisation that
// GGUF does not carry. The file is not trusted: New refuses what does not fit
// together, and no text, however long or odd, takes more than O(n log n) steps or
// more than a constant stack.
//
// Three kinds of token are not made of text. Control tokens (and unknown ones) steer
// the model: they come out of text only where the caller has it parsed, spell
// nothing unless asked, and are never made by merges. User-defined tokens are text
// that is always one token, cut out before anything else; those written like a
// control token, such as <|user|>, also need parsing. Byte tokens spell one byte
// that no other token does.
//
// A Tokenizer does not change and is safe for concurrent use.
package tokenizer

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Metadata is what a Tokenizer reads of a model file; *gguf.File has it. A getter
// fails on a key that is missing or of another type.
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
	keyModel       = "tokenizer.ggml.model"
	keyPre         = "tokenizer.ggml.pre"
	keyTokens      = "tokenizer.ggml.tokens"
	keyTypes       = "tokenizer.ggml.token_type"
	keyScores      = "tokenizer.ggml.scores"
	keyMerges      = "tokenizer.ggml.merges"
	keyBOS         = "tokenizer.ggml.bos_token_id"
	keyEOS         = "tokenizer.ggml.eos_token_id"
	keyEOT         = "tokenizer.ggml.eot_token_id"
	keyEOM         = "tokenizer.ggml.eom_token_id"
	keyUnknown     = "tokenizer.ggml.unknown_token_id"
	keyAddBOS      = "tokenizer.ggml.add_bos_token"
	keyAddEOS      = "tokenizer.ggml.add_eos_token"
	keySeparator   = "tokenizer.ggml.seperator_token_id" // spelled so in the format
	keySpacePrefix = "tokenizer.ggml.add_space_prefix"
	keyCharsMap    = "tokenizer.ggml.precompiled_charsmap"
	keyMergeSpaces = "tokenizer.ggml.remove_extra_whitespaces"
	keyName        = "general.name"
)

// Tokenizer encodes and decodes the text of one model.
type Tokenizer struct {
	vocab       *vocabulary
	algorithm   algorithm
	notice      string
	spacePrefix bool // Encode puts a space before text that begins a prompt or follows a special token

	encoders sync.Pool // of *encoder: fresh memory costs a long text more than its tokens do
}

// algorithm encodes text without special tokens.
type algorithm interface {
	encode(e *encoder, text string) error
}

// New reads and checks the vocabulary of a model file.
func New(md Metadata) (*Tokenizer, error) {
	model, err := md.Str(keyModel)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: the kind of tokenizer cannot be read: %w", err)
	}
	load, ok := algorithms[model]
	if !ok {
		return nil, fmt.Errorf("tokenizer: %s is %.80q, which is not supported; these are: bert, gemma4, gpt2, llama", keyModel, model)
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

// algorithms is what each value of tokenizer.ggml.model stands for: how the rest of
// a Tokenizer is read.
var algorithms = map[string]func(*Tokenizer, Metadata) error{
	"gpt2":  loadBytePair,
	"llama": loadSentencePiece,
	"bert":  loadWordPiece,
	gemma4:  loadGemma4,
}

// Options says how Encode treats special tokens.
type Options struct {
	AddSpecial   bool // add the tokens that the file wants at the beginning and end of a prompt
	ParseSpecial bool // text that spells a control token becomes it
}

// Span is a part of a prompt: text of a chat template, whose control tokens are
// parsed, or content of a message, which is text and nothing else.
type Span struct {
	Text         string
	ParseSpecial bool
}

// Encode returns the tokens of text. The error is that of ctx, which is looked at
// every 64 KiB.
func (t *Tokenizer) Encode(ctx context.Context, text string, o Options) ([]int32, error) {
	return t.EncodeSpans(ctx, []Span{{text, o.ParseSpecial}}, o.AddSpecial)
}

// EncodeSpans returns the tokens of the spans put together: where they are cut makes
// no difference but to control tokens, which come only out of text that lies in
// parsed spans from its first byte to its last. The error is that of ctx.
func (t *Tokenizer) EncodeSpans(ctx context.Context, spans []Span, addSpecial bool) ([]int32, error) {
	e, _ := t.encoders.Get().(*encoder)
	if e == nil {
		e = &encoder{}
	}
	e.Tokenizer, e.ctx, e.ids, e.steps, e.look = t, ctx, e.ids[:0], 0, stepsPerLook
	if addSpecial && t.vocab.first >= 0 {
		e.ids = append(e.ids, t.vocab.first)
	}
	if err := e.encode(spans); err != nil {
		return nil, err
	}
	if addSpecial && t.vocab.last >= 0 {
		e.ids = append(e.ids, t.vocab.last)
	}
	ids := slices.Clone(e.ids)
	if max(cap(e.ids), cap(e.merger.symbols)) <= mostKept {
		e.ctx = nil
		t.encoders.Put(e)
	}
	return ids, nil
}

// encoder is one call of EncodeSpans.
type encoder struct {
	*Tokenizer
	ctx    context.Context
	ids    []int32
	merger merger
	starts []int32 // of the symbols of a piece of SentencePiece's
	begins bool    // the next text begins the prompt or follows a special token

	steps int // of the whole call: bytes read, keys that the queue of merges looked at
	look  int // steps at which to look at ctx again
}

const stepsPerLook = 64 << 10

// mostKept is the length of the longest lists whose memory is kept for other calls: what
// a mebibyte without a break needs.
const mostKept = 3 << 19

// tick counts work and now and then looks whether it is still wanted.
func (e *encoder) tick(steps int) error {
	e.steps += steps
	if e.steps < e.look {
		return nil
	}
	e.look = e.steps + stepsPerLook
	return e.ctx.Err()
}

func (e *encoder) encode(spans []Span) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	text, parsed := join(spans)
	e.begins = true
	plain := 0 // text[plain:at] is not yet encoded
	for at := 0; at < len(text); {
		candidate := e.vocab.specials.next(text[:min(len(text), at+stepsPerLook)], at)
		if err := e.tick(candidate - at + 1); err != nil {
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
		e.begins = true
		at = e.vocab.afterSpecial(id, text, end)
		plain = at
	}
	return e.encodeText(text[plain:])
}

// intervals are the parsed parts of a text, in order, each as large as it can be.
type intervals []interval

// interval is text[start:end].
type interval struct{ start, end int }

// endAt returns the end of the part that at lies in, 0 for none. at never goes back:
// parts before it are dropped.
func (p *intervals) endAt(at int) int {
	for len(*p) > 0 && (*p)[0].end <= at {
		*p = (*p)[1:]
	}
	if len(*p) > 0 && (*p)[0].start <= at {
		return (*p)[0].end
	}
	return 0
}

// join puts spans together and says which parts of the text are parsed.
func join(spans []Span) (text string, parsed intervals) {
	if len(spans) == 1 { // which needs no copy
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

// maxText bounds the offsets of a merger, which are 32 bits wide: longer text is
// encoded in parts.
const maxText = math.MaxInt32 / 8

// encodeText encodes text without special tokens.
func (e *encoder) encodeText(text string) error {
	for text != "" {
		part := text[:min(len(text), maxText)]
		text = text[len(part):]
		if err := e.algorithm.encode(e, part); err != nil {
			return err
		}
		e.begins = false
	}
	return nil
}

// Decode returns the text of a prompt from its first token on. special shows control
// tokens as they are spelled in the vocabulary, else they are left out.
//
// It is the pieces put together, less the spaces that Encode added: SentencePiece
// puts one before text that begins a prompt or follows a special token. What goes
// on from a prompt is its pieces put together, nothing taken away. WordPiece keeps
// neither case, accents nor spaces, so its text comes back without them.
func (t *Tokenizer) Decode(ids []int32, special bool) string {
	var b strings.Builder
	begins := t.spacePrefix
	for _, id := range ids {
		if !t.valid(id) {
			continue
		}
		cut := t.vocab.cut(id)
		piece := t.piece(id, special)
		if begins && !cut {
			piece = strings.TrimPrefix(piece, " ")
		}
		b.WriteString(piece)
		begins = t.spacePrefix && cut
	}
	return b.String()
}

// Piece returns the bytes that one token spells: perhaps part of a rune, none for a
// control token unless special, nil for an id that is not in the vocabulary.
func (t *Tokenizer) Piece(id int32, special bool) []byte {
	if !t.valid(id) {
		return nil
	}
	return []byte(t.piece(id, special))
}

func (t *Tokenizer) piece(id int32, special bool) string {
	if !special && t.vocab.hidden(id) {
		return ""
	}
	return t.vocab.pieces[id]
}

func (t *Tokenizer) valid(id int32) bool { return id >= 0 && int(id) < len(t.vocab.texts) }

// Notice returns what a person should know of the tokenizer, "" for nothing.
func (t *Tokenizer) Notice() string { return t.notice }

// VocabSize returns the number of tokens.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.texts) }

// BOS returns the token that begins a text, if there is one.
func (t *Tokenizer) BOS() (int32, bool) { return t.vocab.bos, t.vocab.bos >= 0 }

// EOS returns the token that ends a text, if there is one. Others may end an answer:
// see IsEnd.
func (t *Tokenizer) EOS() (int32, bool) { return t.vocab.eos, t.vocab.eos >= 0 }

// AddsBOS reports whether the file wants BOS at the beginning of every prompt.
func (t *Tokenizer) AddsBOS() bool { return t.vocab.first >= 0 }

// IsEnd reports whether a token ends an answer: end of text, turn or message.
func (t *Tokenizer) IsEnd(id int32) bool { return t.vocab.ends[id] }

// IsControl reports whether a token steers the model and spells nothing.
func (t *Tokenizer) IsControl(id int32) bool { return t.valid(id) && t.vocab.hidden(id) }

// Text returns a token as the vocabulary spells it, "" for an id that is not in it.
func (t *Tokenizer) Text(id int32) string {
	if !t.valid(id) {
		return ""
	}
	return t.vocab.texts[id]
}
