package reply

import "strings"

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
func OpenedBy(prompt string) (close string) {
	prompt = strings.TrimRight(prompt, " \t\r\n")
	for _, tag := range tags {
		if strings.HasSuffix(prompt, tag.Open) {
			return tag.Close
		}
	}
	return ""
}

// openedBy is OpenedBy that knows the format's own tag too.
func (f *Format) openedBy(prompt string) (close string) {
	if f.tag.Open != "" && strings.HasSuffix(strings.TrimRight(prompt, " \t\r\n"), f.tag.Open) {
		return f.tag.Close
	}
	return OpenedBy(prompt)
}
