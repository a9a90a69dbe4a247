package live

import (
	"context"
	"strings"
	"testing"

	"m40-llm/infer"
)

// thinker is an engine whose chat template begins a thought.
type thinker struct{ *script }

func (e thinker) Render(ctx context.Context, r infer.Request) (infer.Rendered, error) {
	return infer.Rendered{Prompt: "<|user|>" + r.Messages[0].Content + "<|assistant|><think>\n"}, nil
}

func TestAThoughtThatThePromptOpenedIsOneBlock(t *testing.T) {
	engine := newScript()
	s := New(thinker{engine}, Options{})
	defer s.Close()
	c, err := s.Start(question("Why?"), true)
	if err != nil {
		t.Fatal(err)
	}
	a := <-engine.asked
	sub, _, err := c.Subscribe(0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	a.write("First.\n\n", "Second.")
	if m := lastMessage(t, c); !m.Answer.Thinking || len(m.FinishedBlocks()) != 0 {
		t.Errorf("while it thinks: %+v with the blocks %+v", m.Answer, m.FinishedBlocks())
	}
	a.write("</think>\n\nBecause.\n\n", "So")
	m := lastMessage(t, c)
	blocks := m.FinishedBlocks()
	if m.Answer.Thinking || len(blocks) != 2 || !blocks[0].Thought || blocks[0].Text != "First.\n\nSecond.</think>" || blocks[1].Thought || strings.TrimSpace(blocks[1].Text) != "Because." {
		t.Errorf("when it answers: %+v with the blocks %+v", m.Answer, blocks)
	}
	a.finish()
	settle(c)
	var texts, thoughts strings.Builder
	events, _ := sub.Take()
	for _, e := range events {
		switch {
		case e.Type == EventBlock && e.Thinking:
			thoughts.WriteString(e.Text)
		case e.Type == EventText:
			texts.WriteString(e.Text)
		}
	}
	if thoughts.String() != blocks[0].Text || texts.String() != "First.\n\nSecond.</think>\n\nBecause.\n\nSo" {
		t.Errorf("a reader got the thought %q of %q", thoughts.String(), texts.String())
	}
}
