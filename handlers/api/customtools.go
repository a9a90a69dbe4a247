package api

import (
	"encoding/json"
	"fmt"
)

// Tools of type custom take a text of the model instead of arguments. The engine gets a function with one
// argument, the text. Grammars of such a text are for the model to read: they are not enforced.

// customTool is a tool of type custom.
type customTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Format      struct {
		Type       string `json:"type"` // text or grammar
		Syntax     string `json:"syntax"`
		Definition string `json:"definition"`
		Grammar    struct {
			Syntax     string `json:"syntax"`
			Definition string `json:"definition"`
		} `json:"grammar"` // chat completions have both here
	} `json:"format"`
}

// customArguments are the parameters of a function with one text.
var customArguments = json.RawMessage(`{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`)

// customCall is a call of a tool of type custom.
type customCall struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

func (t *customTool) offer(where string) offer {
	o := offer{where: where, name: t.Name, description: t.Description, parameters: customArguments, takesText: true}
	if f := &t.Format; f.Type == "grammar" {
		if f.Definition == "" {
			f.Syntax, f.Definition = f.Grammar.Syntax, f.Grammar.Definition
		}
		o.description += fmt.Sprintf("\n\nThe input must match this grammar (%s):\n%s", f.Syntax, f.Definition)
	}
	return o
}

// call returns c as the call of a function.
func (c *customCall) call(id string) oneCall {
	call := oneCall{ID: id, Type: "function"}
	call.Function.Name, call.Function.Arguments = c.Name, mustMarshal(customInput(c.Input))
	return call
}

// customInput returns a text as the arguments of a function.
func customInput(text string) string { return string(mustMarshal(map[string]string{"input": text})) }

// textOf returns the text in the arguments of a function with one text, or arguments unchanged if they have another form.
func textOf(arguments string) string {
	var a struct {
		Input *string `json:"input"`
	}
	if json.Unmarshal([]byte(arguments), &a) != nil || a.Input == nil {
		return arguments
	}
	return *a.Input
}

// takesText reports whether the tool that the client calls name takes text.
func (n *toolNames) takesText(name string) bool { return n != nil && n.text[name] }

// shown returns calls as the client expects them.
func (n *toolNames) shown(calls []toolCall) []toolCall {
	if n == nil || len(n.text) == 0 {
		return calls
	}
	list := make([]toolCall, len(calls))
	for i, c := range calls {
		if list[i] = c; n.takesText(c.Function.Name) {
			list[i].Type, list[i].Function, list[i].Custom = "custom", nil, &customCall{c.Function.Name, textOf(c.Function.Arguments)}
		}
	}
	return list
}
