package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/readtext"
)

// formFields constrain the answer: response_format as in OpenAI's API, or grammar or
// json_schema as in llama-server's.
type formFields struct {
	ResponseFormat struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema   json.RawMessage `json:"schema" schema:"object|boolean"` // alongside name and description
			Strict   bool            `json:"strict"`
			keywords `schema:"-"`
		} `json:"json_schema"`
		Schema   json.RawMessage `json:"schema" schema:"object|boolean"` // llama-server's place for it, with json_object
		keywords `schema:"-"`
	} `json:"response_format"`
	Grammar    string          `json:"grammar"`
	JSONSchema json.RawMessage `json:"json_schema" schema:"object|boolean"`
}

// keywords are members of schemas that say what a value must be. What has one of them, and should have a schema in it, is
// itself a schema.
type keywords struct {
	Properties json.RawMessage `json:"properties,omitempty"`
	Items      json.RawMessage `json:"items,omitempty"`
	Enum       json.RawMessage `json:"enum,omitempty"`
	Const      json.RawMessage `json:"const,omitempty"`
	Ref        json.RawMessage `json:"$ref,omitempty"`
	AnyOf      json.RawMessage `json:"anyOf,omitempty"`
	OneOf      json.RawMessage `json:"oneOf,omitempty"`
	AllOf      json.RawMessage `json:"allOf,omitempty"`
}

// given reports whether there is a keyword.
func (k *keywords) given() bool {
	return slices.ContainsFunc([]json.RawMessage{k.Properties, k.Items, k.Enum, k.Const, k.Ref, k.AnyOf, k.OneOf, k.AllOf}, given)
}

// anyObject is the schema of json_object.
var anyObject = json.RawMessage(`{"type":"object"}`)

// fill adds the constraint to r.
func (f *formFields) fill(r *infer.Request) error {
	r.Grammar = readtext.Trim(f.Grammar)
	if given(f.JSONSchema) {
		r.JSONSchema = f.JSONSchema
	}
	var schema json.RawMessage
	format := &f.ResponseFormat
	if err := misplacedSchema("response_format", format.Type, &format.keywords); err != nil {
		return err
	}
	switch format.Type {
	case "":
		if given(format.Schema) || given(format.JSONSchema.Schema) {
			return fault.Invalid("response_format.type", "response_format.type is missing: it must be json_schema, or json_object with a schema next to it")
		}
		return nil
	case "text":
		return nil
	case "json_object":
		if schema = anyObject; given(format.Schema) {
			schema = format.Schema
		}
	case "json_schema":
		if schema = format.JSONSchema.Schema; !given(schema) && (given(format.Schema) || format.JSONSchema.given()) {
			return fault.Invalid("response_format.json_schema.schema", "response_format.json_schema.schema is missing: the schema belongs there, as in {\"type\":\"json_schema\",\"json_schema\":{\"name\":\"…\",\"schema\":{…}}}")
		}
		if !given(schema) {
			return fault.Invalid("response_format.json_schema.schema", "response_format.json_schema.schema is missing: it is the schema of the answer")
		}
		r.StrictSchema = format.JSONSchema.Strict
	default:
		return fault.Invalid("response_format.type", "response_format.type is %q: must be text, json_object or json_schema", httpio.Shorten(format.Type))
	}
	if r.Grammar != "" || len(r.JSONSchema) > 0 {
		return fault.Invalid("response_format", "response_format, grammar and json_schema exclude each other: give only one")
	}
	r.JSONSchema = schema
	return nil
}

// schemaTypes are the types of JSON Schema.
var schemaTypes = map[string]bool{"array": true, "boolean": true, "integer": true, "null": true, "number": true, "object": true, "string": true}

// misplacedSchema returns an error if the field called param, which says what form an answer has, is itself a
// schema.
func misplacedSchema(param, kind string, k *keywords) error {
	if !schemaTypes[kind] && !(kind == "" && k.given()) {
		return nil
	}
	where := `{"type":"json_schema","json_schema":{"name":"…","schema":{…}}}`
	if param == "text.format" {
		where = `{"type":"json_schema","name":"…","schema":{…}}`
	}
	return fault.Invalid(param, "%s is a schema itself: it belongs into %s", param, where)
}

// given reports whether a field is present and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && firstByte(raw) != 'n' }

// about replaces the engine's name of the schema in an error by response_format, where the
// schema came from.
func (f *formFields) about(err error) error {
	if given(f.JSONSchema) {
		return err
	}
	return renamed(err, "json_schema", "response_format")
}

// renamed replaces the name of a field in an engine's error by another one.
func renamed(err error, param, by string) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Param != param {
		return err
	}
	named := *e
	named.Param = by
	return &named
}

// maxNotesHeader bounds a header of notes in bytes.
const maxNotesHeader = 1024

// setNoteHeaders sets the headers that say which keywords of the schemas are not enforced, and how the
// prompt differs from the conversation, if an event reports that.
func setNoteHeaders(c echo.Context, e infer.Event) {
	if e.Schema != nil {
		setListHeader(c, httpio.IgnoredHeader, e.Schema.Ignored)
	}
	if e.Prompt != nil {
		setListHeader(c, httpio.NotesHeader, e.Prompt.Notes)
	}
}

// setListHeader sets a header to a list, as far as maxNotesHeader allows.
func setListHeader(c echo.Context, name string, list []string) {
	var b strings.Builder
	for i, what := range list {
		what = headerItem(what)
		if b.Len()+len(what) > maxNotesHeader {
			fmt.Fprintf(&b, ", and %d more", len(list)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(what)
	}
	c.Response().Header().Set(name, b.String())
}

// headerItem returns text as an item of a list in a header: what is not printable ASCII is
// written as in a URL, and so are commas.
func headerItem(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == ',' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
