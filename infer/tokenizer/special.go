package tokenizer

import (
	"slices"
	"sort"
	"strings"
)

// kind is the type of a token as encoded in tokenizer.ggml.token_type.
type kind uint8

const (
	kindUndefined kind = iota
	kindNormal
	kindUnknown
	kindControl
	kindUserDefined
	kindUnused
	kindByte
)

// endTokenTexts lists the texts of tokens by which the model families end an answer. Files
// often name only one of them or list them as normal tokens: a model would then not stop,
// and the content of a message could contain them.
var endTokenTexts = map[string]bool{
	"<|im_end|>": true, "<|eot_id|>": true, "<|eom_id|>": true, "<|end|>": true, "<|endoftext|>": true,
	"<|end_of_text|>": true, "<|return|>": true, "<|call|>": true, "<end_of_turn>": true, "<end_of_utterance>": true,
	"<｜end▁of▁sentence｜>": true, "<EOT>": true, "_<EOT>": true, "[EOT]": true, "[EOS]": true, "</s>": true,
	"<|END_OF_TURN_TOKEN|>": true, "<|fim_pad|>": true, "<|repo_name|>": true, "<|file_sep|>": true,
	"<turn|>": true, "<|assistant_end|>": true, "<seed:eos>": true,
	// Emitted after a tool call, where the result must follow.
	"<|observation|>": true, "<|tool_response>": true, "<start_function_response>": true,
}

// isMarker reports whether text is written like a marker of a chat template. Some files
// list their markers as user-defined tokens, which would be recognised in plain text.
func isMarker(text string) bool {
	return enclosed(text, "<|", "|>") || enclosed(text, "<｜", "｜>") ||
		text == "<start_of_turn>" || text == "[INST]" || text == "[/INST]"
}

func enclosed(text, before, after string) bool {
	return len(text) > len(before)+len(after) && strings.HasPrefix(text, before) && strings.HasSuffix(text, after)
}

// specials finds special tokens in a text: the leftmost, and at one position the longest.
type specials struct {
	sorted      []special  // by text; texts are unique
	firstByByte [257]int32 // [b]: index in sorted of the first text whose first byte is at least b
}

type special struct {
	text         string
	id           int32
	needsParsing bool // recognised in parsed text only
}

// newSpecials returns an index of tokens. Of tokens with the same text it keeps the last.
func newSpecials(tokens []special) *specials {
	slices.SortStableFunc(tokens, func(a, b special) int { return strings.Compare(a.text, b.text) })
	s := &specials{}
	for i, t := range tokens {
		if i+1 == len(tokens) || tokens[i+1].text != t.text {
			s.sorted = append(s.sorted, t)
		}
	}
	for _, t := range s.sorted {
		s.firstByByte[int(t.text[0])+1]++
	}
	for b := range 256 {
		s.firstByByte[b+1] += s.firstByByte[b]
	}
	return s
}

// nextCandidate returns the first offset from at on where a token can start, len(text) for
// none.
func (s *specials) nextCandidate(text string, at int) int {
	for at < len(text) && s.firstByByte[text[at]] == s.firstByByte[int(text[at])+1] {
		at++
	}
	return at
}

// match returns the longest token at text[at:] and its end; id is -1 for none. Tokens that
// need parsing match only up to parsedEnd.
func (s *specials) match(text string, at, parsedEnd int) (id int32, end int) {
	id = -1
	// same holds the tokens that begin with text[at:i].
	same := s.sorted[s.firstByByte[text[at]]:s.firstByByte[int(text[at])+1]]
	for i := at + 1; len(same) > 0; i++ {
		if t := same[0]; len(t.text) == i-at {
			if !t.needsParsing || i <= parsedEnd {
				id, end = t.id, i
			}
			same = same[1:]
		}
		if i == len(text) {
			break
		}
		same = narrow(same, i-at, text[i])
	}
	return id, end
}

// narrow returns the tokens whose text has byte b at offset at. The texts must be longer
// than at, sorted, and equal up to at.
func narrow(tokens []special, at int, b byte) []special {
	if len(tokens) == 1 {
		if tokens[0].text[at] != b {
			return nil
		}
		return tokens
	}
	from := sort.Search(len(tokens), func(i int) bool { return tokens[i].text[at] >= b })
	tokens = tokens[from:]
	return tokens[:sort.Search(len(tokens), func(i int) bool { return tokens[i].text[at] > b })]
}
