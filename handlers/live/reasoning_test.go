package live

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
)

func TestTheReasoningIsABlockThatEndsWhereTheTextGoesOn(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "Why?")
	sub, _, err := c.Subscribe(context.Background(), me, 0)
	must(t, err)
	defer sub.Close()
	a.think("First.\n\n", "Second.")
	if m := lastMessage(t, c); !m.Answer.Thinking || len(m.FinishedBlocks()) != 0 || m.Reasoning != "First.\n\nSecond." || m.Text != "" {
		t.Errorf("while it thinks: %q, %+v with the blocks %+v", m.Reasoning, m.Answer, m.FinishedBlocks())
	}
	a.write("Because.\n\n", "So")
	if m := lastMessage(t, c); m.Answer.Thinking || !slices.Equal(m.FinishedBlocks(), []string{"Because.\n\n"}) {
		t.Errorf("when it answers: %+v with the blocks %+v", m.Answer, m.FinishedBlocks())
	}
	a.finish()
	settle(c)
	var texts, thoughts, blocks strings.Builder
	events, _ := sub.Take()
	for _, e := range events {
		switch {
		case e.Type == EventBlock && e.Thinking:
			blocks.WriteString(e.Reasoning)
		case e.Type == EventText:
			if texts.Len()+len(e.Text) > 0 && blocks.Len() == 0 {
				t.Errorf("the text %q came before the end of the reasoning", e.Text)
			}
			texts.WriteString(e.Text)
			thoughts.WriteString(e.Reasoning)
		}
	}
	if blocks.String() != "First.\n\nSecond." || thoughts.String() != blocks.String() || texts.String() != "Because.\n\nSo" {
		t.Errorf("a reader got the reasoning %q, finished as %q, and the text %q", thoughts.String(), blocks.String(), texts.String())
	}
}

func TestAModelThatThinksAgainAddsToItsReasoning(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "Why?")
	a.think("First.")
	a.write("I look.")
	a.think("Second", ".")
	if m := lastMessage(t, c); !m.Answer.Thinking || m.Reasoning != "First.\n\nSecond." || m.Text != "I look." {
		t.Errorf("while it thinks again: %+v, %+v", m, m.Answer)
	}
	a.write(" It rains.")
	a.finish()
	settle(c)
	if m := lastMessage(t, c); m.Answer.Thinking || m.Reasoning != "First.\n\nSecond." || m.Text != "I look. It rains." {
		t.Errorf("at the end: %+v, %+v", m, m.Answer)
	}
}

func TestTheEngineGetsTheReasoningApartFromTheText(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "one")
	if !a.request.ParseReply {
		t.Error("the engine is not asked to tell the reasoning apart")
	}
	a.think("It ends with </think>", ", so.")
	a.write("First")
	must(t, c.Stop(context.Background(), me, 0))
	settle(c)
	must(t, c.Continue(context.Background(), me, 0, setting.Default()))
	a = <-engine.asked
	last := a.request.Messages[len(a.request.Messages)-1]
	if !a.request.Continue || last.ReasoningContent != "It ends with </think>, so." || last.Content != "First" {
		t.Errorf("continued with %+v", last)
	}
	a.write(" of all.")
	a.finish()
	settle(c)
	if got := lastMessage(t, c); got.Reasoning != "It ends with </think>, so." || got.Text != "First of all." {
		t.Errorf("it is stored as %q and %q", got.Reasoning, got.Text)
	}
	must(t, c.Send(context.Background(), me, question("two")))
	a = <-engine.asked
	if got := a.request.Messages[1]; got.Role != "assistant" || got.ReasoningContent != "It ends with </think>, so." || got.Content != "First of all." {
		t.Errorf("the next question comes behind %+v", got)
	}
	a.think("Hm")
	must(t, c.Stop(context.Background(), me, 0))
	settle(c)
	must(t, c.Continue(context.Background(), me, 0, setting.Default()))
	a = <-engine.asked
	if got := a.request.Messages[3]; got.ReasoningContent != "Hm" || got.Content != "" {
		t.Errorf("the reasoning goes on behind %+v", got)
	}
	if m := lastMessage(t, c); m.Answer.State != Waiting || !m.Answer.Thinking || m.Answer.Blocks != 0 {
		t.Errorf("while it waits it is %+v", m.Answer)
	}
	a.think(", yes.")
	a.write("<think> is a tag")
	a.finish()
	settle(c)
	if got := lastMessage(t, c); got.Reasoning != "Hm, yes." || got.Text != "<think> is a tag" {
		t.Errorf("it is stored as %q and %q", got.Reasoning, got.Text)
	}
}

func TestAnAnswerGoesOnWithoutThoughtsThatAreStopped(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "Why?")
	a.think("Hm", ", so.")
	before := c.panel
	must(t, c.StopThinking(context.Background(), me, 0))
	a = <-engine.asked
	last := a.request.Messages[len(a.request.Messages)-1]
	if r := a.request; !r.Continue || r.ReasoningBudget == nil || *r.ReasoningBudget != 0 || last.ReasoningContent != "Hm, so." || last.Content != "" {
		t.Errorf("the engine is asked to go on with %+v behind %+v", r, last)
	}
	if now := c.panel; !reflect.DeepEqual(now, before) {
		t.Errorf("the panel changed from %+v to %+v", before, now)
	}
	a.write("Because.")
	var wrong *fault.Error
	if err := c.StopThinking(context.Background(), me, 0); !errors.As(err, &wrong) || wrong.Param != "answer" {
		t.Errorf("an answer that does not think any more: %v", err)
	}
	a.finish()
	settle(c)
	if m := lastMessage(t, c); m.Reasoning != "Hm, so." || m.Text != "Because." || m.Answer.Settings.ThinkingBudget != 2 {
		t.Errorf("at the end it is %+v, %+v", m, m.Answer)
	}
}
