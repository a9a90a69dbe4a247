package tokenizer

import (
	"slices"
	"sort"
	"strings"
)

// kind is the type of a token, numbered as in tokenizer.ggml.token_type.
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

// endTexts are the tokens by which the model families end a turn. Files often name
// only one of theirs, or list them as ordinary text: a model would then write on
// past its end, and a message could spell them.
var endTexts = map[string]bool{
	"<|im_end|>": true, "<|eot_id|>": true, "<|eom_id|>": true, "<|end|>": true, "<|endoftext|>": true,
	"<|end_of_text|>": true, "<|return|>": true, "<|call|>": true, "<end_of_turn>": true, "<end_of_utterance>": true,
	"<｜end▁of▁sentence｜>": true, "<EOT>": true, "_<EOT>": true, "[EOT]": true, "[EOS]": true, "</s>": true,
	"<|END_OF_TURN_TOKEN|>": true, "<|fim_pad|>": true, "<|repo_name|>": true, "<|file_sep|>": true,
	"<turn|>": true, "<|assistant_end|>": true, "<seed:eos>": true,
	// What a model of these families writes behind its calls, where the result is to follow.
	"<|observation|>": true, "<|tool_response>": true, "<start_function_response>": true,
}

// isMarker reports whether text is written as the markers of chat templates are.
// Some files list theirs as user-defined tokens, which plain text may spell.
func isMarker(text string) bool {
	return enclosed(text, "<|", "|>") || enclosed(text, "<｜", "｜>") ||
		text == "<start_of_turn>" || text == "[INST]" || text == "[/INST]"
}

func enclosed(text, before, after string) bool {
	return len(text) > len(before)+len(after) && strings.HasPrefix(text, before) && strings.HasSuffix(text, after)
}

// specials finds the tokens that are cut out of a text before anything else: the
// leftmost, and of those that begin there the longest.
type specials struct {
	sorted []special  // by text, each of which is there once
	begins [257]int32 // where those that begin with a byte, or a larger one, begin in sorted
}

type special struct {
	text   string
	id     int32
	parsed bool // only in text whose special tokens are parsed
}

// newSpecials keeps the last of those that have the same text.
func newSpecials(tokens []special) *specials {
	slices.SortStableFunc(tokens, func(a, b special) int { return strings.Compare(a.text, b.text) })
	s := &specials{}
	for i, t := range tokens {
		if i+1 == len(tokens) || tokens[i+1].text != t.text {
			s.sorted = append(s.sorted, t)
		}
	}
	for _, t := range s.sorted {
		s.begins[int(t.text[0])+1]++
	}
	for b := range 256 {
		s.begins[b+1] += s.begins[b]
	}
	return s
}

// next returns the first place from text[at:] on where a token can begin, len(text)
// for none.
func (s *specials) next(text string, at int) int {
	for at < len(text) && s.begins[text[at]] == s.begins[int(text[at])+1] {
		at++
	}
	return at
}

// match returns the longest token at text[at:] and its end. Those that must be
// parsed end by parsedEnd. The id is -1 where there is none.
func (s *specials) match(text string, at, parsedEnd int) (id int32, end int) {
	id = -1
	// Those that begin as text[at:i] does, narrowed byte by byte.
	same := s.sorted[s.begins[text[at]]:s.begins[int(text[at])+1]]
	for i := at + 1; len(same) > 0; i++ {
		if t := same[0]; len(t.text) == i-at {
			if !t.parsed || i <= parsedEnd {
				id, end = t.id, i
			}
			same = same[1:]
		}
		if i == len(text) {
			break
		}
		same = withByte(same, i-at, text[i])
	}
	return id, end
}

// withByte returns those of tokens whose byte at is b. The tokens are longer than that, and
// the same up to it.
func withByte(tokens []special, at int, b byte) []special {
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
