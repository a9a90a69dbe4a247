package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// schemaSet are JSON Schemas of Go types, by name.
type schemaSet map[string]any

// of returns a schema for the JSON of v, which refers to those in the set.
func (s schemaSet) of(v any) any { return s.ofType(reflect.TypeOf(v)) }

var (
	rawJSON   = reflect.TypeFor[json.RawMessage]()
	timeType  = reflect.TypeFor[time.Time]()
	marshaler = reflect.TypeFor[json.Marshaler]()
)

func (s schemaSet) ofType(t reflect.Type) any {
	kind := func(name string) any { return map[string]any{"type": name} }
	switch {
	case t == timeType:
		return map[string]any{"type": "string", "format": "date-time"}
	case t == rawJSON || t.Kind() == reflect.Interface || t.Implements(marshaler):
		return map[string]any{} // anything
	case t.Kind() == reflect.Pointer:
		return s.ofType(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return kind("boolean")
	case reflect.String:
		return kind("string")
	case reflect.Float32, reflect.Float64:
		return kind("number")
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": s.ofType(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.ofType(t.Elem())}
	case reflect.Struct:
		return s.ofStruct(t)
	}
	return kind("integer")
}

// ofStruct adds the schema of a struct to the set, if it has a name, and refers to it.
func (s schemaSet) ofStruct(t reflect.Type) any {
	schema := map[string]any{"type": "object"}
	name := t.Name()
	if name != "" {
		name = t.String()
		if _, known := s[name]; known {
			return map[string]any{"$ref": "#/components/schemas/" + name}
		}
		s[name] = schema // before its fields, which may refer to it
	}
	properties := map[string]any{}
	s.addFields(properties, t)
	schema["properties"] = properties
	if name == "" {
		return schema
	}
	return map[string]any{"$ref": "#/components/schemas/" + name}
}

// addFields adds the fields of a struct, and of those embedded in it, as encoding/json names them.
func (s schemaSet) addFields(properties map[string]any, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			s.addFields(properties, inner)
		default:
			if name == "" {
				name = f.Name
			}
			properties[name] = s.ofType(f.Type)
		}
	}
}
