package infer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"m40-llm/infer/grammar"
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
		f.lead = s.format.Lead(s.gbnf(nil), f.Prompt)
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

// gbnf is how grammars for the model are written; schemas is nil where they hold none.
func (s *source) gbnf(schemas *schemaRules) reply.GBNF {
	return reply.GBNF{Literal: s.literal, Rules: schemas.write}
}

// schemaRules writes the rules of schemas.
type schemaRules struct {
	ctx     context.Context
	ignored []string // what the rules leave out
}

func (w *schemaRules) write(s reply.Schema) (string, error) {
	rules, ignored, err := grammar.SchemaRules(w.ctx, s.Name, s.Text, s.Strict)
	for _, what := range ignored {
		if s.Of != "" {
			what += " of " + s.Of
		}
		w.ignored = append(w.ignored, what)
	}
	return rules, err
}

// literal is an expression of GBNF for text, in which control tokens are tokens.
func (s *source) literal(text string) string {
	var parts []string
	plain := 0
	add := func(end int) {
		if end > plain {
			parts = append(parts, grammar.Literal(text[plain:end]))
		}
	}
	for at := 0; at < len(text); {
		id, length := s.controlAt(text[at:])
		if length == 0 {
			at++
			continue
		}
		add(at)
		parts = append(parts, fmt.Sprintf("<[%d]>", id))
		at += length
		plain = at
	}
	add(len(text))
	return strings.Join(parts, " ")
}

// controlAt returns the longest control token that text begins with, and its length.
func (s *source) controlAt(text string) (id int32, length int) {
	if !s.controlFirst[text[0]] {
		return 0, 0
	}
	for spelling, control := range s.controls {
		if len(spelling) > length && strings.HasPrefix(text, spelling) {
			id, length = control, len(spelling)
		}
	}
	return id, length
}
