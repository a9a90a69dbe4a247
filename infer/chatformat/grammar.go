package chatformat

import (
	"context"
	"fmt"
	"strings"

	"m40-llm/infer/grammar"
	"m40-llm/infer/reply"
)

// Grammar returns a GBNF grammar of the replies that form allows, and the keywords of schemas
// that it does not enforce.
func (f *Format) Grammar(ctx context.Context, form reply.Form) (text string, ignored []string, err error) {
	rules := func(s reply.Schema) (string, error) {
		text, left, err := grammar.SchemaRules(ctx, s.Name, s.Text, s.Strict)
		for _, what := range left {
			if s.Of != "" {
				what += " of " + s.Of
			}
			ignored = append(ignored, what)
		}
		return text, err
	}
	text, err = f.syntax.Grammar(reply.GBNF{Literal: f.literal, Rules: rules}, form)
	return text, ignored, err
}

// BeforeContent returns a GBNF expression of the text before the content of a reply to prompt.
func (f *Format) BeforeContent(prompt string) string {
	return f.syntax.BeforeContent(reply.GBNF{Literal: f.literal}, prompt)
}

// literal returns a GBNF expression that matches text, in which control tokens are tokens.
func (f *Format) literal(text string) string {
	var parts []string
	plain := 0
	add := func(end int) {
		if end > plain {
			parts = append(parts, grammar.Literal(text[plain:end]))
		}
	}
	for at := 0; at < len(text); {
		id, length := f.controlAt(text[at:])
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
func (f *Format) controlAt(text string) (id int32, length int) {
	if !f.controlFirst[text[0]] {
		return 0, 0
	}
	for spelling, control := range f.controls {
		if len(spelling) > length && strings.HasPrefix(text, spelling) {
			id, length = control, len(spelling)
		}
	}
	return id, length
}
