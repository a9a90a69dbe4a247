package live

import (
	"context"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/reply"
)

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
	return reply.OpenedBy(view.Prompt)
}
