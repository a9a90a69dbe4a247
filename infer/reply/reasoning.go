package reply

import (
	"slices"
	"strings"
)

// Tag is a pair of tags around the reasoning of a model.
type Tag struct{ Open, Close string }

// tags are the tags of all model families.
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

// frame are the tags around the content of Granite, after its reasoning.
var frame = Tag{"<response>", "</response>"}

// Tags returns the tags of all model families.
func Tags() []Tag { return slices.Clone(tags) }

// Opening returns the tag with which text begins, and the text after it. Only a tag at the
// start opens reasoning, because an answer may mention tags.
func Opening(text string) (tag Tag, rest string, found bool) {
	text = strings.TrimLeft(text, " \t\r\n")
	for _, tag := range tags {
		if rest, found := strings.CutPrefix(text, tag.Open); found {
			return tag, rest, true
		}
	}
	return Tag{}, "", false
}

// OpenedBy returns the tag that closes the reasoning that the end of a prompt opens; "" if it
// opens none.
func (f *Syntax) OpenedBy(prompt string) (close string) {
	prompt = strings.TrimRight(prompt, " \t\r\n")
	for _, tag := range append(Tags(), f.familyTag) {
		if tag.Open != "" && strings.HasSuffix(prompt, tag.Open) {
			return tag.Close
		}
	}
	return ""
}

// tagOf returns the tags of reasoning of a family: its own, else those in the vocabulary, else
// those in the template, else the first of tags.
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
