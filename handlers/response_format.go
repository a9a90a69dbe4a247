package handlers

import (
	"encoding/json"
	"errors"

	"m40-llm/infer"
)

// formFields say what form an answer must have: response_format as OpenAI has it, or
// grammar or json_schema as llama-server has them.
type formFields struct {
	ResponseFormat struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"` // name, description and strict beside it: it is held to in any case
		} `json:"json_schema"`
		Schema json.RawMessage `json:"schema"` // llama-server's place for it, with json_object
	} `json:"response_format"`
	Grammar    string          `json:"grammar"`
	JSONSchema json.RawMessage `json:"json_schema"`
}

// anyObject is the schema of json_object.
var anyObject = json.RawMessage(`{"type":"object"}`)

// fill adds the form to r.
func (f *formFields) fill(r *infer.Request) error {
	r.Grammar = f.Grammar
	if given(f.JSONSchema) {
		r.JSONSchema = f.JSONSchema
	}
	var schema json.RawMessage
	switch format := &f.ResponseFormat; format.Type {
	case "", "text":
		return nil
	case "json_object":
		if schema = anyObject; given(format.Schema) {
			schema = format.Schema
		}
	case "json_schema":
		if schema = format.JSONSchema.Schema; !given(schema) {
			return invalidf("response_format.json_schema.schema", "response_format.json_schema.schema is missing: it is the schema of the answer")
		}
	default:
		return invalidf("response_format.type", "response_format.type is %q: must be text, json_object or json_schema", shorten(format.Type))
	}
	if r.Grammar != "" || len(r.JSONSchema) > 0 {
		return invalidf("response_format", "response_format, grammar and json_schema exclude each other: give only one")
	}
	r.JSONSchema = schema
	return nil
}

// given reports whether a field holds something else than null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && firstByte(raw) != 'n' }

// about names the field response_format where the engine names the schema that came
// out of it.
func (f *formFields) about(err error) error {
	e, ok := errors.AsType[*infer.Error](err)
	if !ok || e.Param != "json_schema" || given(f.JSONSchema) {
		return err
	}
	named := *e
	named.Param = "response_format"
	return &named
}
