package infer_test

import (
	"testing"

	"m40-llm/infer"
)

func TestCompleteTools_TemplatesGetWhatTheyExpect(t *testing.T) {
	const rest = `"parameters":{"type":"object","properties":{}}`
	for name, c := range map[string][2]string{
		"a complete definition stays as it is": {`[{"type":"function", "x":1, "function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"default":null,"enum":[null,1]}}}}}]`, ""},
		"no description":                       {`[{"type":"function","function":{"name":"f",` + rest + `}}]`, `[{"type":"function","function":{"name":"f",` + rest + `,"description":""}}]`},
		"no parameters":                        {`[{"type":"function","function":{"name":"f","description":"d"}}]`, `[{"type":"function","function":{"name":"f","description":"d",` + rest + `}}]`},
		"no properties":                        {`[{"function":{"name":"f","description":"d","parameters":{"type":"object","required":[]}}}]`, `[{"function":{"name":"f","description":"d","parameters":{"type":"object","required":[],"properties":{}}}}]`},
		"no type":                              {`[{"function":{"name":"f","description":"d","parameters":{}}}]`, `[{"function":{"name":"f","description":"d",` + rest + `}}]`},
		"null":                                 {`[{"type":"function","function":{"name":"f","description":null,"parameters":null,"strict":null}}]`, `[{"type":"function","function":{"name":"f","description":"",` + rest + `}}]`},
		"null within, in its order":            {`[{"function":{"name":"f","description":"d","parameters":{"properties":{"z":{"type":"string","description":null},"a":{"default":null}},"type":"object"}}}]`, `[{"function":{"name":"f","description":"d","parameters":{"properties":{"z":{"type":"string"},"a":{"default":null}},"type":"object"}}}]`},
		"the other tool stays as it is":        {`[{"function":{"name":"f","description":"d", ` + rest + `}},{"function":{"name":"g"}}]`, `[{"function":{"name":"f","description":"d", ` + rest + `}},{"function":{"name":"g","description":"",` + rest + `}}]`},
		"what is no definition":                {`[1,{"function":2},{"function":{"name":"f","parameters":3,"description":""}}]`, ""},
		"no list":                              {`{}`, ""},
	} {
		want := c[1]
		if want == "" {
			want = c[0]
		}
		if got := string(infer.CompleteTools([]byte(c[0]))); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if got := infer.CompleteTools(nil); got != nil {
		t.Errorf("no tools are %s", got)
	}
}
