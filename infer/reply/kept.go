package reply

import (
	"regexp"
	"strings"
)

// The form in which an answer is kept, shown, edited and handed on as one text, whatever
// tags its family has:
//
//	<think>
//	what the model thought
//	</think>
//
//	what it said
//
// Only a text that begins with <think> has a thought. An answer that says so itself has
// an empty thought in front. </think> in a thought is kept as <\/think>.
const (
	keptOpen  = "<think>"
	keptClose = "</think>"
)

// Both take and leave one backslash more: what is written is read as it was.
var (
	closings        = regexp.MustCompile(`<(\\{0,8}/think>)`)
	escapedClosings = regexp.MustCompile(`<\\(\\{0,8}/think>)`)
	partialClosing  = regexp.MustCompile(`<\\{0,8}(/(t(h(i(nk?)?)?)?)?)?$`)
)

// SplitThought takes a kept answer apart. A thought without an end is all there is.
func SplitThought(text string) (thought, said string, found bool) {
	rest, found := strings.CutPrefix(text, keptOpen)
	if !found {
		return "", text, false
	}
	thought, said, ended := strings.Cut(strings.TrimPrefix(rest, "\n"), keptClose)
	if ended {
		thought, said = strings.TrimSuffix(thought, "\n"), strings.TrimPrefix(said, "\n\n")
	}
	return escapedClosings.ReplaceAllString(thought, "<$1"), said, true
}

// InThought returns what ends the thought in which a kept answer, or its first block,
// begins; "" if it begins in none.
func InThought(text string) (end string) {
	if strings.HasPrefix(text, keptOpen) {
		return keptClose
	}
	return ""
}

// Keeper writes an answer in the form in which it is kept, while it is read. The zero
// value begins one.
type Keeper struct {
	part keptPart
	held string // what may be the beginning of a tag
	trim bool   // line breaks that come now are layout
}

type keptPart int

const (
	keptNothing keptPart = iota
	keptThought
	keptSaid
	keptAside // a thought behind what was said: a quote
)

// KeepOn returns a Keeper that goes on at the end of a kept answer.
func KeepOn(text string) *Keeper {
	k := &Keeper{}
	switch {
	case strings.HasPrefix(text, keptOpen) && !strings.Contains(text, keptClose):
		k.part = keptThought
	case text != "":
		k.part = keptSaid
	}
	return k
}

// Add returns what d adds to the text.
func (k *Keeper) Add(d Delta) string {
	var out strings.Builder
	if d.Reasoning != "" {
		k.think(&out, d.Reasoning)
	}
	if d.Content != "" {
		k.say(&out, d.Content)
	}
	return out.String()
}

// End returns what was held back.
func (k *Keeper) End() string {
	var out strings.Builder
	k.letGo(&out)
	return out.String()
}

func (k *Keeper) letGo(out *strings.Builder) {
	out.WriteString(k.held)
	if k.held != "" && k.part == keptNothing {
		k.part = keptSaid
	}
	k.held = ""
}

func (k *Keeper) think(out *strings.Builder, text string) {
	switch k.part {
	case keptNothing:
		if k.letGo(out); k.part == keptNothing {
			out.WriteString(keptOpen + "\n")
			k.part = keptThought
		} else {
			k.aside(out)
		}
	case keptSaid:
		k.aside(out)
	}
	if k.part == keptAside {
		out.WriteString(strings.ReplaceAll(k.trimmed(text), "\n", "\n> "))
		return
	}
	text = k.held + text
	certain := len(text)
	if at := partialClosing.FindStringIndex(text); at != nil {
		certain = at[0]
	}
	k.held = text[certain:]
	out.WriteString(closings.ReplaceAllString(text[:certain], `<\$1`))
}

func (k *Keeper) aside(out *strings.Builder) {
	out.WriteString("\n\n> ")
	k.part, k.trim = keptAside, true
}

func (k *Keeper) say(out *strings.Builder, text string) {
	switch k.part {
	case keptNothing:
		text = k.held + text
		if k.held = ""; strings.HasPrefix(keptOpen, text) && text != keptOpen {
			k.held = text
			return
		}
		if strings.HasPrefix(text, keptOpen) {
			out.WriteString(keptOpen + keptClose)
		}
	case keptThought:
		k.letGo(out)
		out.WriteString("\n" + keptClose + "\n\n")
	case keptAside:
		out.WriteString("\n\n")
		k.trim = true
	}
	k.part = keptSaid
	out.WriteString(k.trimmed(text))
}

// trimmed takes off line breaks behind which nothing has come yet.
func (k *Keeper) trimmed(text string) string {
	if k.trim {
		text = strings.TrimLeft(text, "\n")
		k.trim = text == ""
	}
	return text
}
