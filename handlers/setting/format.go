package setting

import (
	"context"
	"encoding/json"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/grammar"
)

// OutputFormat is what the answers of a chat are constrained to. The zero value leaves them free.
type OutputFormat struct {
	Type    OutputType `json:"type"`
	Schema  string     `json:"schema,omitempty"`  // of OutputSchema: a JSON Schema
	Grammar string     `json:"grammar,omitempty"` // of OutputGrammar: GBNF
}

// OutputType is a kind of OutputFormat.
type OutputType string

// The kinds of OutputFormat. The empty one is text.
const (
	OutputJSON    OutputType = "json" // any object
	OutputSchema  OutputType = "json_schema"
	OutputGrammar OutputType = "grammar"
)

// FormatBytes is how long a schema or a grammar can be.
const FormatBytes = 32 << 10

// anyObject is the schema of OutputJSON.
const anyObject = `{"type":"object"}`

// validate returns a *fault.Error if answers cannot be constrained to f.
func (f OutputFormat) validate() error {
	const name = "output_format"
	refuse := func(text string, values ...any) error { return fault.Invalid(name, text, values...) }
	switch f.Type {
	case "", OutputJSON, OutputSchema, OutputGrammar:
	default:
		return refuse("the type of %s is %q, but it must be json, json_schema or grammar, or be left out", name, string(f.Type))
	}
	switch {
	case f.Schema != "" && f.Type != OutputSchema:
		return refuse("%s has a schema, but its type is %q: a schema needs the type json_schema", name, string(f.Type))
	case f.Grammar != "" && f.Type != OutputGrammar:
		return refuse("%s has a grammar, but its type is %q: a grammar needs the type grammar", name, string(f.Type))
	case len(f.Schema)+len(f.Grammar) > FormatBytes:
		return refuse("%s has %d bytes, and the maximum is %d", name, len(f.Schema)+len(f.Grammar), FormatBytes)
	}
	if err := fault.CheckUTF8(name, f.Schema+f.Grammar); err != nil {
		return err
	}
	switch {
	case f.Type == OutputSchema:
		return checkSchema(name, f.Schema)
	case f.Type == OutputGrammar && strings.TrimSpace(f.Grammar) == "":
		return refuse("the grammar is empty: write one, or choose another output format")
	case f.Type == OutputGrammar:
		if _, err := grammar.Parse(context.Background(), f.Grammar); err != nil {
			return refuse("the grammar is invalid: %v", err)
		}
	}
	return nil
}

// checkSchema returns a *fault.Error about the field called name if answers cannot be constrained to all that the schema says.
func checkSchema(name, schema string) error {
	if strings.TrimSpace(schema) == "" {
		return fault.Invalid(name, "the schema is empty: add a field, or choose another output format")
	}
	var value any
	if err := json.Unmarshal([]byte(schema), &value); err != nil {
		return fault.Invalid(name, "the schema is not JSON: %v%s", err, place(schema, err))
	}
	if _, _, err := grammar.SchemaRules(context.Background(), "json", []byte(schema), true); err != nil {
		return fault.Invalid(name, "the schema is invalid: %v", err)
	}
	return nil
}

// constrain writes the format into a request. What the request continues is the beginning of it.
func (f OutputFormat) constrain(r *infer.Request) {
	switch f.Type {
	case "":
		return
	case OutputJSON:
		r.JSONSchema = json.RawMessage(anyObject)
	case OutputSchema:
		r.JSONSchema = json.RawMessage(f.Schema)
	case OutputGrammar:
		r.Grammar = f.Grammar
	}
	r.ContinueForm = r.Continue
}
