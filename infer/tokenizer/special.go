package tokenizer

import "strings"

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
	first    [256]bool        // a token begins with the byte
	children map[uint64]int32 // trie: node<<8|byte -> node; 0 is the root
	nodes    []specialNode
}

type specialNode struct {
	id     int32 // the token that ends here, -1 for none
	parsed bool  // only in text whose special tokens are parsed
}

func newSpecials() specials {
	return specials{children: map[uint64]int32{}, nodes: []specialNode{{id: -1}}}
}

func (s *specials) add(text string, id int32, parsed bool) {
	s.first[text[0]] = true
	node := int32(0)
	for i := range len(text) {
		key := uint64(node)<<8 | uint64(text[i])
		child, ok := s.children[key]
		if !ok {
			child = int32(len(s.nodes))
			s.nodes = append(s.nodes, specialNode{id: -1})
			s.children[key] = child
		}
		node = child
	}
	s.nodes[node] = specialNode{id, parsed}
}

// next returns the first place from text[at:] on where a token can begin, len(text)
// for none.
func (s *specials) next(text string, at int) int {
	for at < len(text) && !s.first[text[at]] {
		at++
	}
	return at
}

// match returns the longest token at text[at:] and its end. Those that must be
// parsed end by parsedEnd. The id is -1 where there is none.
func (s *specials) match(text string, at, parsedEnd int) (id int32, end int) {
	id = -1
	node := int32(0)
	for i := at; i < len(text); i++ {
		child, ok := s.children[uint64(node)<<8|uint64(text[i])]
		if !ok {
			break
		}
		node = child
		if n := s.nodes[node]; n.id >= 0 && (!n.parsed || i < parsedEnd) {
			id, end = n.id, i+1
		}
	}
	return id, end
}
