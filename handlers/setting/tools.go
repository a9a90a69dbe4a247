package setting

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/grammar"
)

// ToolsBytes is how long the definitions of a chat's tools can be.
const ToolsBytes = 32 << 10

// checkTools returns a *fault.Error if text is not empty and does not define tools.
func checkTools(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if len(text) > ToolsBytes {
		return fault.Invalid("tools", "the tools have %d bytes, and the maximum is %d", len(text), ToolsBytes)
	}
	var tools []infer.ToolDefinition
	if err := json.Unmarshal([]byte(text), &tools); err != nil {
		return fault.Invalid("tools", "tools must be an array of {\"type\": \"function\", \"function\": {\"name\", \"description\", \"parameters\"}}: %v%s", err, place(text, err))
	}
	if _, err := infer.CheckTools(tools); err != nil {
		return fault.Invalid("tools", "%v", err)
	}
	for i, t := range tools {
		schema := bytes.TrimSpace(t.Function.Parameters)
		if len(schema) == 0 || string(schema) == "null" {
			continue
		}
		if _, _, err := grammar.SchemaRules(context.Background(), "arguments", schema, false); err != nil {
			return fault.Invalid("tools", "the schema of the parameters of tool %d, %q, is invalid: %v", i+1, t.Function.Name, err)
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
