package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"m40-llm/handlers/access"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/grammar"
	"m40-llm/infer/reply"
	"m40-llm/store"
)

// The tools of a chat. Its settings define them; the model writes a call, with which its answer ends; a
// person gives the result, a message of its own, and the model goes on.

// ToolsBytes is how long the definitions of a chat's tools can be.
const ToolsBytes = 32 << 10

// checkTools returns an *infer.Error if text is not empty and does not define tools.
func checkTools(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if len(text) > ToolsBytes {
		return invalid("tools", "the tools have %d bytes, and the maximum is %d", len(text), ToolsBytes)
	}
	var tools []infer.ToolDefinition
	if err := json.Unmarshal([]byte(text), &tools); err != nil {
		return invalid("tools", "tools must be an array of {\"type\": \"function\", \"function\": {\"name\", \"description\", \"parameters\"}}: %v%s", err, place(text, err))
	}
	if _, err := infer.CheckTools(tools); err != nil {
		return invalid("tools", "%v", err)
	}
	for i, t := range tools {
		schema := bytes.TrimSpace(t.Function.Parameters)
		if len(schema) == 0 || string(schema) == "null" {
			continue
		}
		if _, _, err := grammar.SchemaRules(context.Background(), "arguments", schema, false); err != nil {
			return invalid("tools", "the schema of the parameters of tool %d, %q, is invalid: %v", i+1, t.Function.Name, err)
		}
	}
	return nil
}

// place returns in which line an error of JSON is; empty if the error does not say so.
func place(text string, err error) string {
	wrong, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return ""
	}
	return fmt.Sprintf(" (line %d)", 1+strings.Count(text[:min(int(wrong.Offset), len(text))], "\n"))
}

// offerTools writes the tools into a request. Each answer calls one at most. Only the answer to a question
// can have to be a call: after a result the model decides.
func (s Settings) offerTools(r *infer.Request) {
	if strings.TrimSpace(s.Tools) == "" {
		return
	}
	r.Tools, r.WholeCalls, r.SingleCall = json.RawMessage(s.Tools), true, true
	if s.MustCall == 1 && !r.Continue && r.Messages[len(r.Messages)-1].Role == "user" {
		r.ToolChoice = infer.ToolChoiceRequired
	}
}

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

// withResult returns the call with which turn number i ended, if a result follows it; else nil. A call that
// nobody answered is not part of the conversation.
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
		return invalid("answer", "message %d calls no tool that could have a result", t.ID)
	case at != len(c.branch)-1:
		return invalid("answer", "message %d is not the last one: edit the result that follows it instead", t.ID)
	}
	q.result = true
	return c.ask(ctx, c.branch.leaf(), q)
}
