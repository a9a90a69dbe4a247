package reply

import (
	"slices"
	"strings"
)

// Tag is a pair between which models think before they answer.
type Tag struct{ Open, Close string }

// tags are those of all model families.
var tags = []Tag{
	{"<think>", "</think>"},
	{"<thinking>", "</thinking>"},
	{"<thought>", "</thought>"},
	{"<reasoning>", "</reasoning>"},
	{"<seed:think>", "</seed:think>"},
	{"[THINK]", "[/THINK]"},
	{"◁think▷", "◁/think▷"},
	{"<|START_THINKING|>", "<|END_THINKING|>"},
	{"<|inner_prefix|>", "<|inner_suffix|>"},
	{"<|channel>thought", "<channel|>"},
}

// frame is the pair between which Granite answers, behind its thought.
var frame = Tag{"<response>", "</response>"}

// Tags returns the pairs of all model families.
func Tags() []Tag { return slices.Clone(tags) }

// Opening cuts the tag off with which text begins. Only what stands first is a thought:
// an answer may write about tags.
func Opening(text string) (tag Tag, rest string, found bool) {
	text = strings.TrimLeft(text, " \t\r\n")
	for _, tag := range tags {
		if rest, found := strings.CutPrefix(text, tag.Open); found {
			return tag, rest, true
		}
	}
	return Tag{}, "", false
}

// OpenedBy returns the tag that closes the thought which a prompt opens with its last
// words; "" if it opens none.
func (f *Syntax) OpenedBy(prompt string) (close string) {
	prompt = strings.TrimRight(prompt, " \t\r\n")
	for _, tag := range append(Tags(), f.tag) {
		if tag.Open != "" && strings.HasSuffix(prompt, tag.Open) {
			return tag.Close
		}
	}
	return ""
}

// tagOf returns the pair between which the models of a family and template think, as far
// as that shows it, or the vocabulary.
func tagOf(f family, template string, control func(text string) bool) Tag {
	if f.harmony || f.tag.Open != "" {
		return f.tag
	}
	for _, knows := range []func(text string) bool{control, func(text string) bool { return strings.Contains(template, text) }} {
		if i := slices.IndexFunc(tags, func(t Tag) bool { return knows(t.Close) }); i >= 0 {
			return tags[i]
		}
	}
	return tags[0]
}
