package handlers

import (
	"strings"
	"testing"
)

func TestPathAt(t *testing.T) {
	const body = `{"a": 1, "b": [10, {"c": "x,]:", "d": [[7]]}], "e": {"f": true}}`
	for value, want := range map[string]string{
		"1,":    "a",
		"10":    "b[0]",
		`"x,]`:  "b[1].c",
		"7":     "b[1].d[0][0]",
		"true":  "e.f",
		`"e":`:  "",
		`, "e"`: "",
	} {
		end := strings.Index(body, value)
		if strings.HasPrefix(value, ",") {
			end++
		}
		if got := pathAt([]byte(body), end); got != want {
			t.Errorf("before %s the path is %q, want %q", value, got, want)
		}
	}
	if got := pathAt([]byte(`{"`+strings.Repeat("k", 1000)+`":1`), 2000); len(got) > 80 {
		t.Errorf("a long key makes a path of %d bytes", len(got))
	}
}
