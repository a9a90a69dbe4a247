package infer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"m40-llm/infer/fault"
)

const (
	maxTools    = 128
	maxToolName = 64
)

// ToolDefinition has the fields of an element of Request.Tools that are checked. The template gets the
// whole element.
type ToolDefinition struct {
	Type     string        `json:"type"`
	Function *ToolFunction `json:"function"`
}

// ToolFunction is a function that a model may call.
type ToolFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// CheckTools returns the names of the tools, or a *fault.Error for the first invalid one. Whether the schemas
// of their parameters can be enforced is found when they are compiled.
func CheckTools(tools []ToolDefinition) (names map[string]bool, err error) {
	if len(tools) > maxTools {
		return nil, fault.Invalid("tools", "there are %d tools: give at most %d", len(tools), maxTools)
	}
	names = map[string]bool{}
	for i, t := range tools {
		where := fmt.Sprintf("tools[%d]", i)
		switch {
		case t.Type != "function":
			return nil, fault.Invalid(where+".type", "%s.type must be function, not %.40q", where, t.Type)
		case t.Function == nil:
			return nil, fault.Invalid(where+".function", "%s.function is missing", where)
		}
		where += ".function"
		switch parameters := bytes.TrimSpace(t.Function.Parameters); {
		case !isToolName(t.Function.Name):
			return nil, fault.Invalid(where+".name", "%s.name must be 1 to %d letters, digits, _ or -, not %.40q", where, maxToolName, t.Function.Name)
		case names[t.Function.Name]:
			return nil, fault.Invalid(where+".name", "tools[%d] has the name of another tool, %q", i, t.Function.Name)
		case len(parameters) > 0 && parameters[0] != '{' && string(parameters) != "null":
			return nil, fault.Invalid(where+".parameters", "%s.parameters must be a JSON schema, an object", where)
		}
		names[t.Function.Name] = true
	}
	return names, nil
}

func isToolName(name string) bool {
	return name != "" && len(name) <= maxToolName && !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
	})
}
