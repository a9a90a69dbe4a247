package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// metadata is a model file built in a test.
type metadata map[string]any

var errNoKey = errors.New("no such key, or of another type")

func get[T any](m metadata, key string) (T, error) {
	v, ok := m[key].(T)
	if !ok {
		return v, fmt.Errorf("%s: %w", key, errNoKey)
	}
	return v, nil
}

func (m metadata) Has(key string) bool                  { _, ok := m[key]; return ok }
func (m metadata) Str(key string) (string, error)       { return get[string](m, key) }
func (m metadata) Strs(key string) ([]string, error)    { return get[[]string](m, key) }
func (m metadata) Floats(key string) ([]float32, error) { return get[[]float32](m, key) }
func (m metadata) Ints(key string) ([]int32, error)     { return get[[]int32](m, key) }
func (m metadata) Uint(key string) (uint64, error)      { return get[uint64](m, key) }
func (m metadata) Bool(key string) (bool, error)        { return get[bool](m, key) }

// with returns a copy in which key is set to v, or deleted if v is nil.
func (m metadata) with(key string, v any) metadata {
	c := maps.Clone(m)
	c[key] = v
	if v == nil {
		delete(c, key)
	}
	return c
}

// Token ids in byteLevelFile. The ids of the 256 bytes are their values.
const (
	tokLL = 256 + iota
	tokHe
	tokHell
	tokLo
	tokLlo
	tokStart // <|im_start|>, control
	tokEnd   // <|im_end|>, control
	tokThink // <think>, user-defined
	tokUser  // <|user|>, user-defined
)

// byteLevelFile returns a byte-level vocabulary small enough to compute tokens by hand.
func byteLevelFile() metadata {
	var texts []string
	for _, r := range byteRunes {
		texts = append(texts, string(r))
	}
	texts = append(texts, "ll", "he", "hell", "lo", "llo", "<|im_start|>", "<|im_end|>", "<think>", "<|user|>")
	types := make([]int32, len(texts))
	for i := range types {
		types[i] = int32(kindNormal)
	}
	types[tokStart], types[tokEnd] = int32(kindControl), int32(kindControl)
	types[tokThink], types[tokUser] = int32(kindUserDefined), int32(kindUserDefined)
	return metadata{
		keyModel: "gpt2", keyPre: "gpt-2", keyTokens: texts, keyTypes: types,
		keyMerges: []string{"l l", "h e", "he ll", "l o", "ll o"},
		keyBOS:    uint64(tokStart), keyEOS: uint64(tokEnd),
	}
}

// Token ids in sentencePieceFile, which begins with <unk>, <s>, </s> and 256 byte tokens.
const (
	spmByte0 = 3
	spmSpace = 259 + iota - 1
	spmA
	spmB
	spmAB
	spmSpaceA
	spmSpaceAB
	spmBB
	spmTool // [TOOL], user-defined
)

// sentencePieceFile returns a SentencePiece vocabulary small enough to compute tokens by hand.
func sentencePieceFile() metadata {
	texts := []string{"<unk>", "<s>", "</s>"}
	types := []int32{int32(kindUnknown), int32(kindControl), int32(kindControl)}
	scores := []float32{0, 0, 0}
	for b := range 256 {
		texts = append(texts, fmt.Sprintf("<0x%02X>", b))
		types = append(types, int32(kindByte))
		scores = append(scores, 0)
	}
	for _, t := range []struct {
		text  string
		kind  kind
		score float32
	}{
		{"▁", kindNormal, -1}, {"a", kindNormal, -2}, {"b", kindNormal, -3}, {"ab", kindNormal, -0.5}, {"▁a", kindNormal, -0.4},
		{"▁ab", kindNormal, -5}, {"bb", kindNormal, -0.6}, {"[TOOL]", kindUserDefined, 0},
	} {
		texts, types, scores = append(texts, t.text), append(types, int32(t.kind)), append(scores, t.score)
	}
	return metadata{keyModel: "llama", keyTokens: texts, keyTypes: types, keyScores: scores}
}

func mustNew(t testing.TB, md Metadata) *Tokenizer {
	t.Helper()
	tok, err := New(md)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestNewRejectsInconsistentVocabularies(t *testing.T) {
	bpe, spm := byteLevelFile(), sentencePieceFile()
	texts := func(m metadata, id int, text string) []string {
		c := append([]string(nil), m[keyTokens].([]string)...)
		c[id] = text
		return c
	}
	types := func(m metadata, id int, kind int32) []int32 {
		c := append([]int32(nil), m[keyTypes].([]int32)...)
		c[id] = kind
		return c
	}
	score := func(s float32) []float32 {
		c := append([]float32(nil), spm[keyScores].([]float32)...)
		c[spmA] = s
		return c
	}
	for name, c := range map[string]struct {
		file metadata
		want string
	}{
		"a file without a tokenizer":             {metadata{}, "kind of tokenizer"},
		"an unknown kind of tokenizer":           {bpe.with(keyModel, "rwkv"), `"rwkv", which is not supported; supported are bert, gemma4, gpt2, llama, t5`},
		"an unknown pre-tokenizer":               {bpe.with(keyPre, "gpt-9"), `"gpt-9", which is not supported: use another model, or set the key to one of these if its rules are the same: a.x-4.0, afmoe, bailingmoe, `},
		"a pre-tokenizer that is not a string":   {bpe.with(keyPre, uint64(1)), keyPre},
		"no tokens":                              {bpe.with(keyTokens, []string{}), "has 0 entries"},
		"no list of tokens":                      {bpe.with(keyTokens, nil), keyTokens},
		"too many tokens":                        {bpe.with(keyTokens, make([]string, maxTokens+1)), "4194305 entries"},
		"a token that is too long":               {bpe.with(keyTokens, texts(bpe, 7, strings.Repeat("a", maxTokenBytes+1))), "token 7 is 4097 bytes long"},
		"a special token that is too long":       {bpe.with(keyTokens, texts(bpe, tokStart, strings.Repeat("a", maxSpecialBytes+1))), "special token 261 is 513 bytes long"},
		"a token of ten megabytes":               {bpe.with(keyTokens, texts(bpe, 7, strings.Repeat("a", 10<<20))), "token 7 is 10485760 bytes long"},
		"a merge of ten megabytes":               {bpe.with(keyMerges, []string{"l " + strings.Repeat("l", 10<<20)}), "is not in the vocabulary"},
		"a merge of ten megabytes and no space":  {bpe.with(keyMerges, []string{strings.Repeat("l", 10<<20)}), "not two tokens"},
		"a kind of tokenizer of ten megabytes":   {bpe.with(keyModel, strings.Repeat("l", 10<<20)), "which is not supported"},
		"a pre-tokenizer of ten megabytes":       {bpe.with(keyPre, strings.Repeat("l", 10<<20)), "which is not supported"},
		"the same token twice":                   {bpe.with(keyTokens, texts(bpe, tokLL, "he")), `tokens 256 and 257 are both "he"`},
		"a list of types of another length":      {bpe.with(keyTypes, []int32{1}), "1 entries for 265 tokens"},
		"a type that does not exist":             {bpe.with(keyTypes, types(bpe, 4, 7)), "has type 7"},
		"a negative type":                        {bpe.with(keyTypes, types(bpe, 4, -1)), "has type -1"},
		"an end of turn outside the vocabulary":  {bpe.with(keyEOT, uint64(1<<32)), "eot_token_id is 4294967296"},
		"a BOS to add without an id":             {bpe.with(keyBOS, nil).with(keyAddBOS, true), "add_bos_token is true, but"},
		"an EOS to add without an id":            {bpe.with(keyEOS, nil).with(keyAddEOS, true), "add_eos_token is true, but"},
		"an addition that is not a bool":         {bpe.with(keyAddBOS, "yes"), keyAddBOS},
		"no merges":                              {bpe.with(keyMerges, nil), keyMerges},
		"a merge of one token":                   {bpe.with(keyMerges, []string{"ll"}), `merge 0 "ll"`},
		"a merge with nothing on the right":      {bpe.with(keyMerges, []string{"l l", "l "}), `merge 1 "l "`},
		"an empty merge":                         {bpe.with(keyMerges, []string{""}), `merge 0 ""`},
		"a merge of a token that is missing":     {bpe.with(keyMerges, []string{"l xyz"}), `"xyz" is not in the vocabulary`},
		"a merge into a token that is missing":   {bpe.with(keyMerges, []string{"l h"}), `"lh" is not in the vocabulary`},
		"no scores":                              {spm.with(keyScores, nil), keyScores},
		"a list of scores of another length":     {spm.with(keyScores, []float32{1, 2}), "2 entries for 267 tokens"},
		"a score that is not a number":           {spm.with(keyScores, score(float32(math.NaN()))), "has score NaN"},
		"an infinite score":                      {spm.with(keyScores, score(float32(math.Inf(1)))), "has score +Inf"},
		"a byte token of a negative byte":        {spm.with(keyTokens, texts(spm, 3, "<0x-1>")), `byte token 3 is "<0x-1>"`},
		"a byte token in lower case":             {spm.with(keyTokens, texts(spm, 3, "<0xff>")), `"<0xff>"`},
		"a byte token that is too long":          {spm.with(keyTokens, texts(spm, 3, "<0x000>")), `"<0x000>"`},
		"an unterminated byte token":             {spm.with(keyTokens, texts(spm, 3, "<0x00")), `"<0x00"`},
		"a hostile byte token in a BPE file":     {bpe.with(keyTypes, types(bpe, 4, int32(kindByte))), `byte token 4`},
		"a space prefix that is not a bool":      {spm.with(keySpacePrefix, "yes"), keySpacePrefix},
		"two SentencePiece tokens of equal text": {spm.with(keyTokens, texts(spm, spmA, "b")), `are both "b"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.file)
			if err == nil {
				t.Fatal("the vocabulary was accepted")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %q, want one with %q", err, c.want)
			}
			if len(err.Error()) > 4<<10 {
				t.Errorf("the error text has %d bytes, want at most 4096", len(err.Error()))
			}
		})
	}
}

func TestNewAcceptsFilesWithoutOptionalKeys(t *testing.T) {
	for name, md := range map[string]metadata{
		"a file without a pre-tokenizer":                          byteLevelFile().with(keyPre, nil),
		"a file without token types":                              byteLevelFile().with(keyTypes, nil),
		"a file without special tokens":                           byteLevelFile().with(keyBOS, nil).with(keyEOS, nil),
		"a BOS that the pre-tokenizer implies and the file lacks": byteLevelFile().with(keyPre, "llama-bpe").with(keyBOS, nil),
		"empty tokens that fill gaps": byteLevelFile().with(keyTypes, nil).with(keyTokens,
			append(append([]string(nil), byteLevelFile()[keyTokens].([]string)...), "", "")),
	} {
		t.Run(name, func(t *testing.T) {
			tok := mustNew(t, md)
			text := "hello, 1234 wörld"
			if got := tok.Decode(encode(t, tok, text, Options{}), false); got != text {
				t.Errorf("%q was decoded as %q", text, got)
			}
			if tok.AddsBOS() {
				t.Error("AddsBOS is true, but the file has no BOS or does not ask for it")
			}
		})
	}
}

func TestBytesAreSpelledAsPrintableRunes(t *testing.T) {
	// Taken from GPT-2's vocabulary file.
	for b, want := range map[byte]rune{' ': 'Ġ', '\n': 'Ċ', '\t': 'ĉ', 0: 'Ā', 'a': 'a', '!': '!', 0x7F: 'ġ', 0xA0: 'ł', 0xAD: 'Ń', 0xFF: 'ÿ'} {
		if got := byteRunes[b]; got != want {
			t.Errorf("byte %#x is spelled %q, want %q", b, got, want)
		}
	}
	if len(runeBytes) != 256 {
		t.Errorf("%d bytes have a rune of their own, want 256", len(runeBytes))
	}
}

func TestEndTokensAreFoundByKeyAndByText(t *testing.T) {
	file := func(kindOfTexts kind, texts ...string) metadata {
		md := byteLevelFile().with(keyEOS, nil)
		all := append([]string(nil), md[keyTokens].([]string)...)
		types := append([]int32(nil), md[keyTypes].([]int32)...)
		for _, text := range texts {
			all, types = append(all, text), append(types, int32(kindOfTexts))
		}
		return md.with(keyTokens, all).with(keyTypes, types)
	}
	const first = 265 // id of the first added text
	for name, c := range map[string]struct {
		file metadata
		ends []int32
		not  []int32
	}{
		"end of text by key":                             {byteLevelFile().with(keyEOS, uint64(tokLo)), []int32{tokLo, tokEnd}, []int32{tokStart, tokHe, -1, 9999}},
		"end of turn by key":                             {byteLevelFile().with(keyEOT, uint64(tokHe)), []int32{tokHe}, []int32{tokLo}},
		"end of message by key":                          {byteLevelFile().with(keyEOM, uint64(tokHe)), []int32{tokHe}, []int32{tokLo}},
		"end tokens by text":                             {file(kindControl, "<|eot_id|>", "<end_of_turn>", "<|end|>"), []int32{tokEnd, first, first + 1, first + 2}, []int32{tokStart}},
		"tokens before the result of a tool call":        {file(kindControl, "<|eom_id|>", "<|observation|>", "<|tool_response>", "<start_function_response>"), []int32{first, first + 1, first + 2, first + 3}, nil},
		"an end token listed as normal":                  {file(kindNormal, "<|eot_id|>"), []int32{first}, nil},
		"</s> listed as normal is an HTML tag":           {file(kindNormal, "</s>"), nil, []int32{first}},
		"</s> listed as a control token is an end token": {file(kindControl, "</s>"), []int32{first}, nil},
		"<|end|> ends a message in gpt-oss":              {file(kindControl, "<|end|>", "<|return|>", "<|call|>"), []int32{first + 1, first + 2}, []int32{first}},
		"<|end|> ends an answer without <|call|>":        {file(kindControl, "<|end|>", "<|return|>"), []int32{first, first + 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tok := mustNew(t, c.file)
			for _, id := range c.ends {
				if !tok.IsEnd(id) {
					t.Errorf("token %d %q is not an end token", id, tok.Text(id))
				}
			}
			for _, id := range c.not {
				if tok.IsEnd(id) {
					t.Errorf("token %d %q is an end token", id, tok.Text(id))
				}
			}
		})
	}
}

func TestAnEndTokenListedAsNormalBecomesAControlToken(t *testing.T) {
	md := byteLevelFile()
	types := append([]int32(nil), md[keyTypes].([]int32)...)
	types[tokEnd] = int32(kindNormal)
	tok := mustNew(t, md.with(keyTypes, types))
	if !tok.IsControl(tokEnd) {
		t.Error("<|im_end|> is not a control token")
	}
	if got, want := encode(t, tok, "a<|im_end|>b", Options{ParseSpecial: true}), []int32{'a', tokEnd, 'b'}; !slices.Equal(got, want) {
		t.Errorf("parsed text: got %v, want %v", got, want)
	}
	if got := encode(t, tok, "a<|im_end|>b", Options{}); slices.Contains(got, tokEnd) {
		t.Errorf("plain text: got %v, which contains <|im_end|>", got)
	}
}

func TestPlainTextNeverBecomesAControlTokenOfTheSameText(t *testing.T) {
	// With llama-bpe a piece whose text is a token becomes that token without merging. Here
	// "hell" is a normal token in the first file and a control token in the second.
	ordinary := byteLevelFile().with(keyPre, "llama-bpe").with(keyAddBOS, false)
	types := append([]int32(nil), ordinary[keyTypes].([]int32)...)
	types[tokHell] = int32(kindControl)
	for name, c := range map[string]struct {
		file metadata
		want []int32
	}{
		"a normal token is emitted":      {ordinary.with(keyMerges, []string{"l l"}), []int32{tokHell}},
		"a control token is not emitted": {ordinary.with(keyTypes, types), []int32{tokHe, tokLL}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := encode(t, mustNew(t, c.file), "hell", Options{}); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestIDsOfSpecialTokensOutsideTheVocabularyAreIgnoredWithANotice(t *testing.T) {
	for _, c := range []struct {
		name string
		file metadata
		want string // in the notice
	}{
		{"an end one behind the last token", byteLevelFile().with(keyEOS, uint64(265)), "eos_token_id is 265, but the vocabulary has 265 tokens: it is ignored"},
		{"a beginning that would overflow", byteLevelFile().with(keyBOS, uint64(math.MaxUint64)), "bos_token_id is 18446744073709551615"},
		{"an unknown token", byteLevelFile().with(keyUnknown, uint64(1000)), "unknown_token_id is 1000"},
		{"all of them", byteLevelFile().with(keyUnknown, uint64(1000)).with(keyEOS, uint64(1<<40)), "; "},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, c.file)
			if got := tok.Notice(); !strings.Contains(got, c.want) {
				t.Errorf("the notice is %q, want %q in it", got, c.want)
			}
			for _, id := range encode(t, tok, "hello", Options{AddSpecial: true}) {
				if !tok.valid(id) {
					t.Errorf("id %d is outside the vocabulary", id)
				}
			}
		})
	}
	if got := mustNew(t, byteLevelFile()).Notice(); got != "" {
		t.Errorf("a file without faults has the notice %q", got)
	}
}
