package live

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/store"
)

const weather = `[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`

// withTools returns a question of a chat that has tools.
func withTools(text string) Question {
	q := question(text)
	q.Settings.Tools = weather
	return q
}

// call ends an answer with a call.
func (a *answer) call(id, name, arguments string) {
	a.do(infer.Event{Type: infer.EventDone, Done: &infer.Done{
		Calls:  []reply.CallDelta{{ID: id, Name: name, Arguments: arguments[:1]}, {Arguments: arguments[1:]}, {Index: 1, ID: "another", Name: "other", Arguments: "{}"}},
		Answer: record.Answer{End: record.End{Reason: infer.FinishCalls}, Usage: record.Usage{CompletionTokens: 3}, Receipt: record.Receipt{Params: a.request.Params}},
	}}, nil)
}

func TestAPersonGivesTheResultOfACall(t *testing.T) {
	ctx := context.Background()
	for _, temporary := range []bool{false, true} {
		db := openStore(t, filepath.Join(t.TempDir(), "chats.db"))
		s, engine := newService(t, Options{Store: db})
		c, err := s.Start(ctx, me, withTools("Which weather has Oslo?"), temporary)
		must(t, err)
		a := <-engine.asked
		if string(a.request.Tools) != weather || !a.request.WholeCalls || !a.request.SingleCall || a.request.ToolChoice != "" {
			t.Errorf("the engine was asked with the tools %s, %+v", a.request.Tools, a.request)
		}
		a.call("c1", "weather", `{"city":"Oslo"}`)
		settle(c)
		called := lastMessage(t, c)
		want := &store.Call{ID: "c1", Name: "weather", Arguments: `{"city":"Oslo"}`}
		if !reflect.DeepEqual(called.Answer.Call, want) || called.Text != "" {
			t.Fatalf("the answer ended with the call %+v", called.Answer.Call)
		}
		var wrong *fault.Error
		if err := c.Continue(ctx, me, called.ID, setting.Default()); !errors.As(err, &wrong) || !strings.Contains(wrong.Message, `a call of "weather": give its result`) {
			t.Errorf("to continue it: %v", err)
		}
		must(t, c.Result(ctx, me, called.ID, withTools("4 degrees, rain")))
		a = <-engine.asked
		asked := a.request.Messages
		if len(asked) != 3 || len(asked[1].ToolCalls) == 0 || !reflect.DeepEqual(asked[2], chat.Message{Role: "tool", Content: "4 degrees, rain", Name: "weather", ToolCallID: "c1"}) {
			t.Fatalf("the engine was asked %+v", asked)
		}
		var calls []map[string]any
		if err := json.Unmarshal(asked[1].ToolCalls, &calls); err != nil || calls[0]["id"] != "c1" {
			t.Errorf("its calls are %s: %v", asked[1].ToolCalls, err)
		}
		a.write("It rains.")
		a.finish()
		settle(c)
		if err := c.Result(ctx, me, called.ID, withTools("again")); !errors.As(err, &wrong) || !strings.Contains(wrong.Message, "not the last one") {
			t.Errorf("a second result: %v", err)
		}
		if err := c.Result(ctx, me, 0, withTools("again")); !errors.As(err, &wrong) || !strings.Contains(wrong.Message, "calls no tool") {
			t.Errorf("a result of an answer without a call: %v", err)
		}
		result := c.branch[2].ID
		if c.branch[2].Role != RoleTool {
			t.Errorf("the result is a message of %s", c.branch[2].Role)
		}
		must(t, c.Edit(ctx, me, result, withTools("20 degrees")))
		a = <-engine.asked
		if m := a.request.Messages[len(a.request.Messages)-1]; m.Role != "tool" || m.Content != "20 degrees" {
			t.Errorf("with the other result the engine was asked %+v", m)
		}
		a.write("It is warm.")
		a.finish()
		settle(c)
		if temporary {
			continue
		}
		s.Close()
		again, _ := newService(t, Options{Store: db})
		loaded, err := again.Chat(ctx, me, c.ID())
		must(t, err)
		if b := loaded.branch; len(b) != 4 || b[2].Role != RoleTool || b[2].Text != "20 degrees" || b[2].Versions != 2 || !reflect.DeepEqual(b[1].Answer.Call, want) {
			t.Errorf("the store gave back %+v", b.messages())
		}
	}
}

func TestACallWithoutAResultIsNotPartOfTheConversation(t *testing.T) {
	s, engine := newService(t, Options{})
	c, err := s.Start(context.Background(), me, withTools("one"), false)
	must(t, err)
	(<-engine.asked).call("c1", "weather", `{}`)
	settle(c)
	must(t, c.Send(context.Background(), me, withTools("two")))
	a := <-engine.asked
	if m := a.request.Messages; len(m) != 1 || m[0].Content != "two" {
		t.Errorf("the engine was asked %+v", m)
	}
	a.finish()
	settle(c)
}
