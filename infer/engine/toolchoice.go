package infer

import (
	"slices"

	"m40-llm/infer/reply"
)

// Values of Request.ToolChoice that are no names of tools.
const (
	ToolChoiceAuto     = "auto"
	ToolChoiceNone     = "none"
	ToolChoiceRequired = "required"
)

// forces reports whether the answer must be a call.
func (r *Request) forces() bool {
	return r.ToolChoice != "" && r.ToolChoice != ToolChoiceAuto && r.ToolChoice != ToolChoiceNone
}

// form returns what the answer to r is held to behind a prompt; nil for nothing. Calls are
// an alternative to content that is held to a schema, where the reply is read for calls and
// the model may choose.
func (s *source) form(r *Request, prompt string) (*form, error) {
	f := &form{param: "grammar", text: r.Grammar}
	schema := len(r.JSONSchema) > 0 && !r.forces()
	calls := r.forces() || schema && len(r.Tools) > 0 && r.ParseReply && r.ToolChoice != ToolChoiceNone && !r.Continue
	switch {
	case r.Grammar != "":
		return f, nil
	case !schema && !calls:
		return nil, nil
	}
	if r.ParseReply || r.forces() {
		f.Prompt = s.opening(*r, prompt)
		f.lead = s.format.Lead(f.Prompt)
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

// toolsToCall returns the tools that the answer to r may call, and whether there may be one
// call only.
func toolsToCall(r *Request) (tools []reply.Tool, single bool, err error) {
	tools, err = reply.ParseTools(r.Tools)
	if err != nil {
		return nil, false, invalid("tools", "%s", err)
	}
	single = r.SingleCall
	if r.forces() && r.ToolChoice != ToolChoiceRequired {
		i := slices.IndexFunc(tools, func(t reply.Tool) bool { return t.Name == r.ToolChoice })
		if i < 0 {
			return nil, false, invalid("tool_choice", "tool_choice names the function %q, which is not among the tools", r.ToolChoice)
		}
		tools, single = tools[i:i+1], true
	}
	return tools, single, nil
}
