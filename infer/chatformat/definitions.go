package chatformat

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"m40-llm/infer/chat"
)

// Templates read members of tool definitions that clients may leave out or set to null, and print or
// fail on what they then find. So definitions are completed first; a template that fails on them gets
// definitions with simple schemas.

// completeTools returns definitions of tools with all members that templates read: type, name,
// description and parameters, which have a type and properties. Members that are null are left out.
// The order of the others is kept. Definitions that are no array of objects are returned as they are.
func completeTools(definitions json.RawMessage) json.RawMessage {
	return mapTools(definitions, func(function object) object {
		function = withoutNulls(function).(object)
		for _, missing := range []member{{"description", ""}, {"parameters", object{}}} {
			if function.index(missing.name) < 0 {
				function.set(missing.name, missing.value)
			}
		}
		if parameters, ok := function.get("parameters").(object); ok {
			function.set("parameters", completeParameters(parameters))
		}
		return function
	})
}

// mapTools applies change to the function of each definition.
func mapTools(definitions json.RawMessage, change func(function object) object) json.RawMessage {
	if len(definitions) == 0 {
		return definitions
	}
	value, err := decodeOrdered(definitions)
	tools, ok := value.([]any)
	if err != nil || !ok {
		return definitions
	}
	for i, t := range tools {
		tool, ok := t.(object)
		if !ok {
			return definitions
		}
		function, ok := tool.get("function").(object)
		if !ok {
			return definitions
		}
		tool = withoutNulls(tool).(object)
		if tool.index("type") < 0 {
			tool = slices.Insert(tool, 0, member{"type", "function"})
		}
		tool.set("function", change(function))
		tools[i] = tool
	}
	changed, err := encodeOrdered(tools)
	if err != nil {
		return definitions
	}
	return changed
}

// withoutNulls returns a value without the members of objects that are null. Properties that are null
// become empty schemas, and a schema whose one value is null gets that type. Null in lists stays: it is a value of an enum.
func withoutNulls(value any) any {
	switch v := value.(type) {
	case object:
		kept := object{}
		for _, m := range v {
			if properties, ok := m.value.(object); ok && m.name == "properties" {
				for i := range properties {
					if properties[i].value == nil {
						properties[i].value = object{}
					}
				}
			}
			switch {
			case m.value != nil:
				kept = append(kept, member{m.name, withoutNulls(m.value)})
			case m.name == "const":
				kept.set("type", "null")
			}
		}
		return kept
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = withoutNulls(item)
		}
		return list
	}
	return value
}

// completeParameters returns the schema of parameters with a type and properties. A property that is
// true, any value, becomes an empty schema.
func completeParameters(parameters object) object {
	if parameters.index("type") < 0 && parameters.index("anyOf") < 0 && parameters.index("$ref") < 0 {
		parameters = slices.Insert(parameters, 0, member{"type", "object"})
	}
	properties, ok := parameters.get("properties").(object)
	if !ok {
		properties = object{}
	}
	for i := range properties {
		if _, ok := properties[i].value.(object); !ok {
			properties[i].value = object{}
		}
	}
	parameters.set("properties", properties)
	return parameters
}

// describeNulls returns definitions without null in the lists of schemas, for templates that print it as None. The
// description of a schema that has it as a value of its enum says so instead.
func describeNulls(definitions json.RawMessage) json.RawMessage {
	return mapTools(definitions, func(function object) object {
		if parameters, ok := function.get("parameters").(object); ok {
			function.set("parameters", withNullsDescribed(parameters))
		}
		return function
	})
}

// nullable is what the description of a schema says in place of a null in its enum.
const nullable = "May be null."

func withNullsDescribed(value any) any {
	isNull := func(v any) bool { return v == nil }
	switch v := value.(type) {
	case object:
		described := slices.Clone(v)
		for i, m := range described {
			described[i].value = withNullsDescribed(m.value)
		}
		values, _ := v.get("enum").([]any)
		switch {
		case slices.ContainsFunc(values, func(v any) bool { return v != nil }) && slices.ContainsFunc(values, isNull):
			text, _ := v.get("description").(string)
			described.set("description", strings.TrimSpace(text+" "+nullable))
		case len(values) > 0 && slices.ContainsFunc(values, isNull):
			described = slices.DeleteFunc(described, func(m member) bool { return m.name == "enum" })
			described.set("type", "null")
		}
		return described
	case []any:
		list := slices.DeleteFunc(slices.Clone(v), isNull)
		for i, item := range list {
			list[i] = withNullsDescribed(item)
		}
		return list
	}
	return value
}

// simpleTools returns definitions in which each property has one type and a description.
func simpleTools(definitions json.RawMessage) json.RawMessage {
	return mapTools(definitions, func(function object) object {
		if parameters, ok := function.get("parameters").(object); ok {
			function.set("parameters", simpleSchema(parameters))
		}
		return function
	})
}

// simpleSchema returns a schema in which each property has one type and a description.
func simpleSchema(schema object) object {
	simple := slices.Clone(schema)
	simple.set("type", typeOf(schema))
	if simple.index("description") < 0 {
		simple.set("description", "")
	}
	if values, ok := simple.get("enum").([]any); ok {
		simple.set("enum", slices.DeleteFunc(slices.Clone(values), func(v any) bool { return v == nil }))
	}
	if properties, ok := simple.get("properties").(object); ok {
		changed := slices.Clone(properties)
		for i, p := range changed {
			if s, ok := p.value.(object); ok {
				changed[i].value = simpleSchema(s)
			}
		}
		simple.set("properties", changed)
	} else if simple.get("type") == "object" {
		simple.set("properties", object{})
	}
	if simple.get("type") == "object" && simple.index("additionalProperties") < 0 {
		simple.set("additionalProperties", false)
	}
	if items, ok := simple.get("items").(object); ok {
		simple.set("items", simpleSchema(items))
	}
	return simple
}

// typeOf returns the first type of a schema that is not null; string if it has none.
func typeOf(schema object) string {
	switch t := schema.get("type").(type) {
	case string:
		return t
	case []any:
		for _, one := range t {
			if one, ok := one.(string); ok && one != "null" {
				return one
			}
		}
	}
	for _, name := range []string{"anyOf", "oneOf", "allOf"} {
		alternatives, _ := schema.get(name).([]any)
		for _, a := range alternatives {
			if a, ok := a.(object); ok && a.get("type") != "null" {
				return typeOf(a)
			}
		}
	}
	if schema.index("properties") >= 0 {
		return "object"
	}
	return "string"
}

// acceptedTools returns definitions in a form on which the template does not fail; nil if there is
// none.
func (f *Format) acceptedTools(ctx context.Context, definitions json.RawMessage) json.RawMessage {
	for _, form := range []json.RawMessage{definitions, simpleTools(definitions)} {
		in := chat.Input{Messages: []chat.Message{probeQuestion}, Tools: form, AddGenerationPrompt: true}
		if _, err := f.probe.render(ctx, in); err == nil {
			return form
		}
	}
	return nil
}
