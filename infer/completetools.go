package infer

import (
	"bytes"
	"encoding/json"
	"slices"
)

// CompleteTools returns definitions of tools with what chat templates expect of each: a description, and parameters
// with a type and properties. Fields that are null are left out, because templates would print them. Complete
// definitions, and what is no definition, are returned as they are.
func CompleteTools(raw json.RawMessage) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return raw
	}
	changed := false
	for i := range list {
		tool, ok := parseObject(list[i])
		if !ok {
			continue
		}
		function, ok := parseObject(tool.value("function"))
		if !ok {
			continue
		}
		function.complete()
		if !function.changed {
			continue
		}
		tool.set("function", function.json())
		list[i], changed = tool.json(), true
	}
	if !changed {
		return raw
	}
	return slices.Concat([]byte("["), bytes.Join(asBytes(list), []byte(",")), []byte("]"))
}

func asBytes(list []json.RawMessage) [][]byte {
	all := make([][]byte, len(list))
	for i := range list {
		all[i] = list[i]
	}
	return all
}

// object is a JSON object with its members in their order, in which templates print them.
type object struct {
	members []member
	changed bool
}

type member struct {
	key   string
	value json.RawMessage
}

// parseObject returns raw as an object; ok is false if it is none.
func parseObject(raw json.RawMessage) (o object, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return o, false
	}
	for d.More() {
		key, err := d.Token()
		var m member
		if err != nil || d.Decode(&m.value) != nil {
			return o, false
		}
		m.key, _ = key.(string)
		o.members = append(o.members, m)
	}
	return o, true
}

func (o *object) value(key string) json.RawMessage {
	for _, m := range o.members {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// set sets a member, a new one at the end.
func (o *object) set(key string, value json.RawMessage) {
	o.changed = true
	for i := range o.members {
		if o.members[i].key == key {
			o.members[i].value = value
			return
		}
	}
	o.members = append(o.members, member{key, value})
}

func (o *object) json() json.RawMessage {
	b := []byte("{")
	for i, m := range o.members {
		if i > 0 {
			b = append(b, ',')
		}
		key, _ := json.Marshal(m.key) // a string
		b = append(append(append(b, key...), ':'), m.value...)
	}
	return append(b, '}')
}

// complete adds to a function what it lacks.
func (o *object) complete() {
	o.dropNulls()
	if o.value("description") == nil {
		o.set("description", json.RawMessage(`""`))
	}
	parameters, ok := parseObject(o.value("parameters"))
	if !ok && o.value("parameters") != nil {
		return // it is refused elsewhere
	}
	parameters.dropNulls()
	if parameters.value("type") == nil {
		parameters.set("type", json.RawMessage(`"object"`))
	}
	if parameters.value("properties") == nil {
		parameters.set("properties", json.RawMessage(`{}`))
	}
	if parameters.changed {
		o.set("parameters", parameters.json())
	}
}

// literal are the members of a schema in which null is a value.
var literal = map[string]bool{"const": true, "default": true, "enum": true, "examples": true}

// dropNulls removes the members that are null, here and in the objects within.
func (o *object) dropNulls() {
	o.members = slices.DeleteFunc(o.members, func(m member) bool {
		null := string(m.value) == "null" && !literal[m.key]
		o.changed = o.changed || null
		return null
	})
	for i, m := range o.members {
		inner, ok := parseObject(m.value)
		if !ok || literal[m.key] {
			continue
		}
		if inner.dropNulls(); inner.changed {
			o.members[i].value, o.changed = inner.json(), true
		}
	}
}
