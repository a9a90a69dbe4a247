package live

import (
	"context"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/chat"
)

// thoughtTag is a pair between which models think before they answer.
type thoughtTag struct{ open, close string }

var thoughtTags = []thoughtTag{
	{"<think>", "</think>"},
	{"<thinking>", "</thinking>"},
	{"<thought>", "</thought>"},
	{"<reasoning>", "</reasoning>"},
	{"<seed:think>", "</seed:think>"},
	{"[THINK]", "[/THINK]"},
	{"◁think▷", "◁/think▷"},
}

// opening cuts the tag off with which text begins. Only what stands first is a thought:
// an answer may write about tags.
func opening(text string) (tag thoughtTag, rest string, found bool) {
	text = strings.TrimLeft(text, " \t\r\n")
	for _, tag := range thoughtTags {
		if rest, found := strings.CutPrefix(text, tag.open); found {
			return tag, rest, true
		}
	}
	return thoughtTag{}, "", false
}

// SplitThought cuts an answer, or its first block, into what the model thought, without
// the tags, and what it said. A thought without an end is all there is. One without a
// beginning was opened by the prompt, as some chat templates do.
func SplitThought(text string) (thought, said string, found bool) {
	if tag, rest, found := opening(text); found {
		thought, said, _ = strings.Cut(rest, tag.close)
		return thought, said, true
	}
	for _, tag := range thoughtTags {
		thought, said, found = strings.Cut(text, tag.close)
		inCode := strings.Count(thought, "`")%2 == 1
		if found && !inCode && !strings.Contains(thought, tag.open) {
			return thought, said, true
		}
	}
	return "", text, false
}

// Block is a part of an answer's Markdown that ends where nothing can change it.
type Block struct {
	Text    string
	Thought bool
}

// FinishedBlocks are those of an answer that is being written.
func (m *Message) FinishedBlocks() []Block {
	s := splitter{thought: m.Answer.opened}
	text := m.Text[:m.Answer.Blocks]
	var blocks []Block
	for begin := 0; begin < len(text); begin = s.start {
		thought := s.thinks(text)
		end := s.next(text)
		if end == 0 {
			break
		}
		blocks = append(blocks, Block{Text: text[begin:end], Thought: thought})
	}
	return blocks
}

// openedThought returns the closing tag of the thought that the chat template begins
// for the model; "" if it does not. The end of a prompt does not depend on how long it
// is, so that of a short one is looked at.
func (c *Chat) openedThought(ctx context.Context, r infer.Request) string {
	if len(r.Messages) == 0 || r.Continue {
		return ""
	}
	r.Messages = []chat.Message{{Role: "user", Content: "x"}}
	view, err := c.service.engine.Render(ctx, r)
	if err != nil {
		return "" // the answer itself will say what is wrong
	}
	prompt := strings.TrimRight(view.Prompt, " \t\r\n")
	for _, tag := range thoughtTags {
		if strings.HasSuffix(prompt, tag.open) {
			return tag.close
		}
	}
	return ""
}
