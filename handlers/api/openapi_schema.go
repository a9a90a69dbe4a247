package api

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// schemaSet are JSON Schemas of Go types, by name. Requests and responses of one type have schemas of their own:
// a field of a request may be absent or null unless its tag says required, one of a response is present unless it
// may be omitted, and null where it is a pointer.
//
// A tag schema:"…" of a field says what the type does not: required; null; a hyphen, if the field is not for
// clients; or the types that it may have, as in string|[string]|$name, where $name is one of namedSchemas.
type schemaSet struct {
	schemas map[string]any
	names   map[schemaKey]string
}

type schemaKey struct {
	of      reflect.Type
	request bool
}

func newSchemaSet() *schemaSet {
	return &schemaSet{schemas: map[string]any{}, names: map[schemaKey]string{}}
}

// namedSchemas are types of values that fields have as raw JSON.
var namedSchemas = map[string]any{
	"call":     oneCall{},
	"choice":   choiceFields{},
	"document": rankedText{},
	"options":  ollamaOptions{},
	"part":     contentPart{},
	"tool":     toolDefinition{},
}

// hiddenFields are fields of the engine's requests that the server sets itself.
var hiddenFields = map[string]bool{"client": true, "sibling": true, "kv_file": true, "row_file": true, "cache_scope": true, "public_system": true}

// anyOf are values of which a body is one.
type anyOf []any

// of returns a schema for the JSON of v, which refers to those in the set.
func (s *schemaSet) of(v any, request bool) any {
	if list, several := v.(anyOf); several {
		var schemas []any
		for _, one := range list {
			schemas = append(schemas, s.of(one, request))
		}
		return map[string]any{"anyOf": schemas}
	}
	return s.ofType(schemaKey{reflect.TypeOf(v), request})
}

var (
	rawJSON   = reflect.TypeFor[json.RawMessage]()
	timeType  = reflect.TypeFor[time.Time]()
	marshaler = reflect.TypeFor[json.Marshaler]()
)

func kind(name string) any { return map[string]any{"type": name} }

func (s *schemaSet) ofType(k schemaKey) any {
	t := k.of
	switch {
	case t == timeType:
		return map[string]any{"type": "string", "format": "date-time"}
	case t == rawJSON || t.Kind() == reflect.Interface || t.Implements(marshaler):
		return map[string]any{} // anything
	case t.Kind() == reflect.Pointer:
		return s.ofType(schemaKey{t.Elem(), k.request})
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
		return map[string]any{"type": "array", "items": s.ofElement(k)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.ofElement(k)}
	case reflect.Struct:
		return s.ofStruct(k)
	}
	return kind("integer")
}

// ofElement returns the schema of an element of a slice, array or map.
func (s *schemaSet) ofElement(k schemaKey) any {
	e := k.of.Elem()
	schema := s.ofType(schemaKey{e, k.request})
	if e.Kind() == reflect.Pointer || e.Kind() == reflect.Map {
		return nullable(schema)
	}
	return schema
}

// nullable returns a schema that allows null as well.
func nullable(schema any) any {
	fields, _ := schema.(map[string]any)
	if name, one := fields["type"].(string); one {
		fields["type"] = []any{name, "null"}
		return fields
	}
	if list, several := fields["anyOf"].([]any); several {
		fields["anyOf"] = append(list, kind("null"))
		return fields
	}
	if fields["$ref"] != nil {
		return map[string]any{"anyOf": []any{fields, kind("null")}}
	}
	return schema // anything, or null already
}

// ofStruct adds the schema of a struct to the set, if it has a name, and refers to it.
func (s *schemaSet) ofStruct(k schemaKey) any {
	schema := map[string]any{"type": "object"}
	name := k.of.Name()
	if name != "" {
		if known := s.names[k]; known != "" {
			return refer(known)
		}
		if name = k.of.String(); s.schemas[name] != nil {
			name += map[bool]string{true: "Input", false: "Output"}[k.request]
		}
		s.schemas[name], s.names[k] = schema, name // before its fields, which may refer to it
	}
	f := structFields{set: s, request: k.request, properties: map[string]any{}, required: map[string]bool{}}
	f.add(k.of, false)
	schema["properties"] = f.properties
	if names := f.requiredNames(); len(names) > 0 {
		schema["required"] = names
	}
	if name == "" {
		return schema
	}
	return refer(name)
}

func refer(name string) any { return map[string]any{"$ref": "#/components/schemas/" + name} }

// structFields are the fields of a struct, and of those embedded in it, as encoding/json names them.
type structFields struct {
	set        *schemaSet
	request    bool
	engine     bool // the struct is one of the engine's
	properties map[string]any
	required   map[string]bool
}

func (f *structFields) requiredNames() (names []string) {
	for name, required := range f.required {
		if required {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// add adds the fields of t; optional: they may all be absent.
func (f *structFields) add(t reflect.Type, optional bool) {
	outer := f.engine
	f.engine = !strings.Contains(t.PkgPath(), "/handlers/")
	defer func() { f.engine = outer }()
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-" || !field.IsExported() && !field.Anonymous || field.Tag.Get("schema") == "-":
		case f.request && hiddenFields[name]:
		case field.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			f.add(inner, optional || field.Type.Kind() == reflect.Pointer)
		default:
			if name == "" {
				name = field.Name
			}
			f.addField(name, field, optional || strings.Contains(options, "omit"))
		}
	}
}

// addField adds one field; optional: a response may lack it.
func (f *structFields) addField(name string, field reflect.StructField, optional bool) {
	tags := strings.Split(field.Tag.Get("schema"), ",")
	has := func(tag string) bool { return slices.Contains(tags, tag) }
	var schema any
	if types := tags[len(tags)-1]; types == "" || types == "required" || types == "null" {
		schema = f.set.ofType(schemaKey{field.Type, f.request})
	} else {
		schema = f.set.ofTypes(types, f.request)
	}
	f.required[name] = has("required") || !f.request && !optional
	null := has("null") || f.request && !has("required")
	if !f.request && !optional {
		null = null || f.canBeNil(field.Type)
	}
	if null {
		schema = nullable(schema)
	}
	f.properties[name] = schema
}

// canBeNil reports whether a value of t that is always sent may be null: pointers, and lists of the engine, whose
// empty ones may be nil.
func (f *structFields) canBeNil(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer || f.engine && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map)
}

// ofTypes returns the schema of the types of a tag.
func (s *schemaSet) ofTypes(types string, request bool) any {
	var schemas []any
	for _, one := range splitTypes(types) {
		switch {
		case one[0] == '[':
			schemas = append(schemas, map[string]any{"type": "array", "items": s.ofTypes(one[1:len(one)-1], request)})
		case one[0] == '$':
			schemas = append(schemas, s.of(namedSchemas[one[1:]], request))
		default:
			schemas = append(schemas, kind(one))
		}
	}
	if len(schemas) == 1 {
		return schemas[0]
	}
	return map[string]any{"anyOf": schemas}
}

// splitTypes splits types at the | that are in no brackets.
func splitTypes(types string) (list []string) {
	depth, begin := 0, 0
	for i, c := range types {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		case '|':
			if depth == 0 {
				list, begin = append(list, types[begin:i]), i+1
			}
		}
	}
	return append(list, types[begin:])
}
