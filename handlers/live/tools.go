package live

import (
	"context"
	"encoding/json"

	"m40-llm/handlers/access"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/reply"
	"m40-llm/store"
)

// The tools of a chat. Its settings define them; the model writes a call, with which its answer ends; a
// person gives the result, a message of its own, and the model goes on.

// call takes the parts of the first call from the engine. Servers that do not know SingleCall may send more.
func (r *run) call(parts []reply.CallDelta) {
	for _, p := range parts {
		a := r.turn.Answer
		if p.Index > 0 {
			continue
		}
		if a.Call == nil {
			a.Call = &store.Call{ID: p.ID, Name: p.Name}
		}
		r.arguments.WriteString(p.Arguments)
		a.Call.Arguments = r.arguments.String() // shares the memory
	}
}

// calls returns the call of an answer as the engine gets it.
func calls(c *store.Call) json.RawMessage {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	list, _ := json.Marshal([]struct { // cannot fail: text alone
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{{c.ID, "function", function{c.Name, c.Arguments}}})
	return list
}

// withResult returns the call with which turn number i ended, if a result follows it; else nil. A call
// without a result is not part of the conversation.
func withResult(turns []*turn, i int) *store.Call {
	if i < 0 || i+1 >= len(turns) || turns[i+1].Role != RoleTool || turns[i].Answer == nil {
		return nil
	}
	return turns[i].Answer.Call
}

// result returns a result as the engine gets it.
func result(call *store.Call, text string) chat.Message {
	return chat.Message{Role: "tool", Content: text, Name: call.Name, ToolCallID: call.ID}
}

// Result gives the result of the call with which the last answer of the branch ended, and begins the
// answer to it.
func (c *Chat) Result(ctx context.Context, who Principal, answer int64, q Question) error {
	if err := q.validate(); err != nil {
		return err
	}
	at, done, err := c.commandOn(ctx, who, access.ActionAsk, "give a result", "answer", answer, RoleModel)
	if err != nil {
		return err
	}
	defer done()
	switch t := c.branch[at]; {
	case t.Answer.Call == nil:
		return fault.Invalid("answer", "message %d calls no tool that could have a result", t.ID)
	case at != len(c.branch)-1:
		return fault.Invalid("answer", "message %d is not the last one: edit the result that follows it instead", t.ID)
	}
	q.result = true
	return c.ask(ctx, c.branch.leaf(), q)
}
