package chatformat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"m40-llm/infer/chat"
)

// aTool returns the definitions of one tool; function and parameters are members of these objects.
func aTool(function, parameters string) json.RawMessage {
	if parameters != "" {
		function += `, "parameters": {` + parameters + `}`
	}
	return json.RawMessage(`[{"type": "function", "function": {"name": "look_up"` + function + `}}]`)
}

func TestToolDefinitionsAreCompletedInOrder(t *testing.T) {
	for _, c := range []struct{ name, given, want string }{
		{"a complete definition is not changed", `[{"type":"function","function":{"name":"f","description":"a <b> & c","parameters":{"type":"object","properties":{"z":{"type":"number","minimum":1.0},"a":{"type":"string"}},"required":["z"]},"strict":true}}]`, ""},
		{"what is missing is added", `[{"function":{"name":"f"}}]`, `[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{}}}}]`},
		{"null is as missing", `[{"type":null,"function":{"name":"f","description":null,"parameters":null,"strict":null}}]`, `[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{}}}}]`},
		{"null as the one value is a type", `[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{"a":{"const":null},"b":{"type":"null","const":null}}}}}]`, `[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}}}}}]`},
		{"nulls in schemas go, and not those in lists", `[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{"a":{"default":null,"enum":[null,1]},"b":null,"c":true},"required":null}}}]`, `[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{"a":{"enum":[null,1]},"b":{},"c":{}}}}}]`},
		{"what is no definition is not changed", `[{"name":"f"}, 7]`, ""},
		{"no tools stay none", ``, ""},
	} {
		want := c.want
		if want == "" {
			want = c.given
		}
		if got := string(completeTools(json.RawMessage(c.given))); got != want {
			t.Errorf("%s: got %s, want %s", c.name, got, want)
		}
	}
}

func TestEveryTemplateThatShowsToolsTakesDefinitionsOfEveryShape(t *testing.T) {
	const described, property = `, "description": "d"`, `"type": "object", "properties": {"place": %s}`
	shapes := map[string]json.RawMessage{
		"complete":            aTool(described, fmt.Sprintf(property, `{"type": "string", "description": "p"}`)+`, "required": ["place"]`),
		"no description":      aTool(``, fmt.Sprintf(property, `{"type": "string", "description": "p"}`)),
		"null description":    aTool(`, "description": null`, fmt.Sprintf(property, `{"type": "string"}`)),
		"a name alone":        aTool(``, ``),
		"no parameters":       aTool(described, ``),
		"null parameters":     aTool(described+`, "parameters": null`, ``),
		"empty parameters":    aTool(described+`, "parameters": {}`, ``),
		"no properties":       aTool(described, `"type": "object"`),
		"null properties":     aTool(described, `"type": "object", "properties": null, "required": null`),
		"untyped parameters":  aTool(described, `"properties": {"place": {"type": "string"}}`),
		"no type of the tool": json.RawMessage(`[{"function": {"name": "look_up", "description": "d", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}]`),
		"nulls everywhere":    aTool(described+`, "strict": null`, fmt.Sprintf(property, `{"type": "string", "description": null, "enum": null, "default": null}`)+`, "additionalProperties": null`),
	}
	for name, schema := range map[string]string{
		"no description": `{"type": "string"}`, "empty": `{}`, "true": `true`, "null": `null`, "const": `{"const": "x"}`, "enum": `{"enum": ["a", "b"]}`, "ref": `{"$ref": "#/$defs/x"}`,
		"optional":  `{"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": "Place"}`,
		"two types": `{"type": ["string", "null"], "description": "p"}`, "object": `{"type": "object"}`, "array": `{"type": "array"}`,
		"enum with null": `{"enum": ["a", null]}`, "optional enum": `{"type": ["string", "null"], "description": "p", "enum": [null, "a"]}`, "const null": `{"const": null}`, "enum of null": `{"enum": [null]}`,
		"examples": `{"type": "string", "examples": ["a", null]}`, "array of an enum": `{"type": "array", "items": {"type": "integer", "enum": [1, null]}}`,
		"nested": `{"type": "array", "items": {"type": "object", "properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}}}`,
	} {
		shapes["a property: "+name] = aTool(described, fmt.Sprintf(property, schema))
	}
	for _, ft := range loadTemplates(t) {
		f, _, _ := formatOf(t, ft)
		if !f.probe.template.Uses("tools") || refused[ft.Name] != nil && refused[ft.Name]("u") {
			continue
		}
		for name, tools := range shapes {
			got, err := f.conversation(t.Context(), chat.Input{Messages: conversationOf("u"), Tools: tools})
			if err != nil {
				t.Errorf("%s, %s: %v", ft.Name, name, err)
				continue
			}
			prompt := strings.ReplaceAll(got.prompt.String(), " = None", "") // of optional arguments in Python
			shows := strings.Contains(prompt, "look_up") && (!strings.Contains(string(tools), "place") || strings.Contains(prompt, "place"))
			if !shows || strings.Contains(prompt, "None") || len(got.notes) > 0 {
				t.Errorf("%s, %s: the notes are %q, the prompt is %q", ft.Name, name, got.notes, prompt)
			}
		}
	}
}

func TestNullInAnEnumKeepsItsMeaningInEveryTemplate(t *testing.T) {
	tools := aTool(`, "description": "d"`, `"type": "object", "properties": {"place": {"type": "string", "description": "A town.", "enum": ["Bern", null]}, "list": {"type": "array", "description": "l", "items": {"type": "string", "description": "i", "enum": ["Bern", null]}}}, "required": ["place"]`)
	described := 0
	for _, ft := range loadTemplates(t) {
		f, _, _ := formatOf(t, ft)
		if !f.probe.template.Uses("tools") || refused[ft.Name] != nil && refused[ft.Name]("u") {
			continue
		}
		got, err := f.conversation(t.Context(), chat.Input{Messages: conversationOf("u"), Tools: tools})
		prompt := got.prompt.String()
		inPlace, inText := strings.Contains(prompt, "null"), strings.Contains(prompt, "A town. May be null.")
		if err != nil || strings.Contains(prompt, "Bern") && !inPlace && !inText {
			t.Errorf("%s: %v, %q", ft.Name, err, prompt)
		}
		if inText {
			described++
		}
	}
	t.Logf("%d templates get null as a description", described)
	if described == 0 || described > 10 {
		t.Errorf("%d templates get null as a description", described)
	}
}

func TestNullsAreDescribedInSchemas(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{`{"enum":["a",null],"description":"d"}`, `{"enum":["a"],"description":"d May be null."}`},
		{`{"enum":[1]}`, `{"enum":[1]}`},
		{`{"enum":[null]}`, `{"type":"null"}`},
		{`{"items":{"type":"integer","enum":[null,1]}}`, `{"items":{"type":"integer","enum":[1],"description":"May be null."}}`},
		{`{"examples":[null,"x"]}`, `{"examples":["x"]}`},
	} {
		given, err := decodeOrdered(json.RawMessage(c.given))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := encodeOrdered(withNullsDescribed(given)); err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.given, got, err, c.want)
		}
	}
}
