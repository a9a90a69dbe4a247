package engine

import (
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/reply"
)

// form returns what the answer to r is constrained to after prompt, or nil. Where the reply is
// parsed and the model may choose, it may call tools instead of writing content that matches the
// schema.
func (m *openModel) form(r *infer.Request, prompt string) (*form, error) {
	f := &form{param: "grammar", text: r.Grammar, format: m.formatOf(*r)}
	schema := len(r.JSONSchema) > 0 && !r.ForcesCall()
	calls := r.ForcesCall() || schema && len(r.Tools) > 0 && r.ParseReply && r.ToolChoice != infer.ToolChoiceNone && !r.Continue
	switch {
	case r.Grammar != "":
		return f, nil
	case !schema && !calls:
		return nil, nil
	}
	if r.ParseReply || r.ForcesCall() {
		f.Prompt = m.opening(*r, prompt)
		f.beforeContent = f.format.BeforeContent(f.Prompt)
	}
	if schema {
		f.param, f.Schema, f.Strict = "json_schema", r.JSONSchema, r.StrictSchema
	}
	if calls {
		if f.param = "tools"; schema {
			f.param = "json_schema"
		}
		var err error
		if f.Tools, f.Single, err = toolsToCall(r); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// toolsToCall returns the tools that the answer to r may call, and whether it may make only one
// call.
func toolsToCall(r *infer.Request) (tools []reply.Tool, single bool, err error) {
	tools, err = reply.ParseTools(r.Tools)
	if err != nil {
		return nil, false, fault.Invalid("tools", "%s", err)
	}
	single = r.SingleCall
	if r.ForcesCall() && r.ToolChoice != infer.ToolChoiceRequired {
		i := slices.IndexFunc(tools, func(t reply.Tool) bool { return t.Name == r.ToolChoice })
		if i < 0 {
			return nil, false, fault.Invalid("tool_choice", "tool_choice names the function %q, which is not among the tools", r.ToolChoice)
		}
		tools, single = tools[i:i+1], true
	}
	return tools, single, nil
}
