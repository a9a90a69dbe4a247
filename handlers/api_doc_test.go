package handlers_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
)

// docExample is a request of docs/api.md with the answer that the page shows.
type docExample struct{ method, path, body, answer string }

var (
	docCurl  = regexp.MustCompile("(?s)```\ncurl (?:-N )?localhost:8080(\\S+)(?: -d '([^']*)')?\n```\n```(?:json)?\n(.*?)\n```")
	docTools = regexp.MustCompile(`(?m)^(POST) +(/\S+) +(\{.*?\}) +(\{.*\})$`)
)

func docExamples(t *testing.T) (examples []docExample) {
	data, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range docCurl.FindAllStringSubmatch(string(data), -1) {
		method := http.MethodPost
		if m[2] == "" {
			method = http.MethodGet
		}
		examples = append(examples, docExample{method, m[1], m[2], m[3]})
	}
	for _, m := range docTools.FindAllStringSubmatch(string(data), -1) {
		examples = append(examples, docExample{m[1], m[2], m[3], strings.ReplaceAll(m[4], "[…]", "[]")})
	}
	return examples
}

// Each request of docs/api.md is sent to the server with the built-in model; the answer
// has the fields that the page shows, no others, of the same types.
func TestDocs_TheExamplesOfTheAPIAreTrue(t *testing.T) {
	examples := docExamples(t)
	if len(examples) < 16 {
		t.Fatalf("%d examples are found", len(examples))
	}
	s := handlerstest.Server(t, handlerstest.OpenGuide(t), func(c *handlers.Config) { c.Version = "0.1.0" })
	for _, x := range examples {
		t.Run(fmt.Sprintf("%s %s %.60s", x.method, x.path, x.body), func(t *testing.T) {
			got := handlerstest.Call(t, s, x.method, x.path, x.body)
			want, is := docValues(t, x.answer), docValues(t, got.Body)
			if strings.Contains(x.answer, "data: ") {
				if !slices.Equal(shapes(want), shapes(is)) || !strings.HasSuffix(got.Body, "data: [DONE]\n\n") {
					t.Errorf("the page shows\n%s\nthe stream has\n%s", strings.Join(shapes(want), "\n"), strings.Join(shapes(is), "\n"))
				}
				return
			}
			for _, v := range is {
				if !slices.ContainsFunc(want, func(w any) bool { return sameShape(w, v) }) {
					t.Errorf("the page does not show an answer like\n%s", indent(v))
				}
			}
		})
	}
}

// docValues reads JSON values one after another, or those of the events of a stream.
func docValues(t *testing.T, text string) (values []any) {
	t.Helper()
	text = regexp.MustCompile(`(?m)^: .*$|^data: \[DONE\]$|^data: `).ReplaceAllString(text, "")
	d := json.NewDecoder(strings.NewReader(text))
	for d.More() {
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		values = append(values, v)
	}
	return values
}

// shapes are those of the events of a stream, of like ones in a row the first.
func shapes(values []any) (list []string) {
	for _, v := range values {
		if s := shape(v); len(list) == 0 || list[len(list)-1] != s {
			list = append(list, s)
		}
	}
	return list
}

// shape writes a value with types in place of texts and numbers. Of an array the first
// element counts; timings, which the page shows once, have no fields.
func shape(v any) string {
	switch v := v.(type) {
	case map[string]any:
		fields := []string{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if key == "timings" {
				fields = append(fields, "timings")
				continue
			}
			fields = append(fields, key+":"+shape(v[key]))
		}
		return "{" + strings.Join(fields, ",") + "}"
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return "[" + shape(v[0]) + "]"
	case nil:
		return "null"
	}
	return fmt.Sprintf("%T", v)
}

// sameShape reports whether what is has the fields and types that a page shows. A field …
// stands for all others; of an array the first element counts.
func sameShape(shown, is any) bool {
	switch shown := shown.(type) {
	case map[string]any:
		other, ok := is.(map[string]any)
		if !ok {
			return false
		}
		_, more := shown["…"]
		for key, v := range shown {
			if w, there := other[key]; key != "…" && (!there || !sameShape(v, w)) {
				return false
			}
		}
		return more || len(shown) == len(other)
	case []any:
		other, ok := is.([]any)
		if !ok {
			return false
		}
		return len(shown) == 0 || len(other) == 0 || slices.ContainsFunc(shown, func(v any) bool { return sameShape(v, other[0]) })
	}
	return fmt.Sprintf("%T", shown) == fmt.Sprintf("%T", is)
}
