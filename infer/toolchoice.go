package infer

import (
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

// forceCall holds the answer to r to a call, written in the format of the model, if the
// request insists on one.
func (s *source) forceCall(r *Request, prompt string) error {
	if !r.forces() {
		return nil
	}
	tools, err := reply.ParseTools(r.Tools)
	if err != nil {
		return invalid("tools", "%s", err)
	}
	single := r.SingleCall
	if r.ToolChoice != ToolChoiceRequired {
		i := slices.IndexFunc(tools, func(t reply.Tool) bool { return t.Name == r.ToolChoice })
		if i < 0 {
			return invalid("tool_choice", "tool_choice names the function %q, which is not among the tools", r.ToolChoice)
		}
		tools, single = tools[i:i+1], true
	}
	if len(tools) == 0 {
		return invalid("tool_choice", "tool_choice asks for a call, but there are no tools")
	}
	r.Grammar, err = s.format.Grammar(s.gbnf(), tools, s.opening(*r, prompt), single)
	if err != nil {
		return invalid("tools", "%s", err)
	}
	return nil
}

// gbnf is how grammars for the model are written.
func (s *source) gbnf() reply.GBNF { return reply.GBNF{Literal: s.literal, Rules: grammar.SchemaRules} }

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
