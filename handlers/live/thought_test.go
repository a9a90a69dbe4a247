package live

import (
	"strings"
	"testing"
)

func TestAThoughtIsOneBlock(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "Why?")
	sub, _, err := c.Subscribe(0)
	must(t, err)
	defer sub.Close()
	a.think("First.\n\n", "Second.")
	if m := lastMessage(t, c); !m.Answer.Thinking || len(m.FinishedBlocks()) != 0 || m.Text != "<think>\nFirst.\n\nSecond." {
		t.Errorf("while it thinks: %q, %+v with the blocks %+v", m.Text, m.Answer, m.FinishedBlocks())
	}
	a.write("Because.\n\n", "So")
	m := lastMessage(t, c)
	blocks := m.FinishedBlocks()
	if m.Answer.Thinking || len(blocks) != 2 || !blocks[0].Thought || blocks[0].Text != "<think>\nFirst.\n\nSecond.\n</think>" || blocks[1].Thought || strings.TrimSpace(blocks[1].Text) != "Because." {
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
	if thoughts.String() != blocks[0].Text || texts.String() != "<think>\nFirst.\n\nSecond.\n</think>\n\nBecause.\n\nSo" {
		t.Errorf("a reader got the thought %q of %q", thoughts.String(), texts.String())
	}
}

func TestTheEngineGetsThoughtsApartFromWhatWasSaid(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "one")
	if !a.request.ParseReply {
		t.Error("the engine is not asked to tell thoughts apart")
	}
	a.think("It ends with </think>", ", so.")
	a.write("First")
	must(t, c.Stop(0))
	settle(c)
	must(t, c.Continue(0, DefaultSettings()))
	a = <-engine.asked
	last := a.request.Messages[len(a.request.Messages)-1]
	if !a.request.Continue || last.ReasoningContent != "It ends with </think>, so." || last.Content != "First" {
		t.Errorf("continued with %+v", last)
	}
	a.write(" of all.")
	a.finish()
	settle(c)
	if got := lastMessage(t, c).Text; got != "<think>\nIt ends with <\\/think>, so.\n</think>\n\nFirst of all." {
		t.Errorf("it is kept as %q", got)
	}
	must(t, c.Send(question("two")))
	a = <-engine.asked
	if got := a.request.Messages[1]; got.Role != "assistant" || got.ReasoningContent != "It ends with </think>, so." || got.Content != "First of all." {
		t.Errorf("the next question comes behind %+v", got)
	}
	a.think("Hm")
	must(t, c.Stop(0))
	settle(c)
	must(t, c.Continue(0, DefaultSettings()))
	a = <-engine.asked
	if got := a.request.Messages[3]; got.ReasoningContent != "Hm" || got.Content != "" {
		t.Errorf("the thought goes on behind %+v", got)
	}
	if m := lastMessage(t, c); m.Answer.State != Waiting || !m.Answer.Thinking || m.Answer.Blocks != 0 {
		t.Errorf("while it waits it is %+v", m.Answer)
	}
	a.think(", yes.")
	a.write("<think> is a tag")
	a.finish()
	settle(c)
	if got := lastMessage(t, c).Text; got != "<think>\nHm, yes.\n</think>\n\n<think> is a tag" {
		t.Errorf("it is kept as %q", got)
	}
}

func TestAnAnswerThatIsStoppedKeepsWhatWasHeldBackOfIt(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "one")
	a.write("<thi")
	must(t, c.Stop(0))
	settle(c)
	if got := lastMessage(t, c).Text; got != "<thi" {
		t.Errorf("it is kept as %q", got)
	}
}
