package api

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestCompletions_Prompts(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		texts      []string
		tokens     [][]int32
	}{
		{"a string", `"one"`, []string{"one"}, [][]int32{nil}},
		{"an array of strings", `[ "one", "two"]`, []string{"one", "two"}, [][]int32{nil, nil}},
		{"an array of ids", ` [1, 2]`, []string{""}, [][]int32{{1, 2}}},
		{"an array of ids with points", `[1.0, 2e0]`, []string{""}, [][]int32{{1, 2}}},
		{"an array of arrays of ids", `[ [1,2], [3]]`, []string{"", ""}, [][]int32{{1, 2}, {3}}},
	} {
		t.Run("prompt may be "+tc.name, func(t *testing.T) {
			prompts, err := parsePrompts(json.RawMessage(tc.body), "prompt", false)
			if err != nil || len(prompts) != len(tc.texts) {
				t.Fatalf("got %v, %v", prompts, err)
			}
			for i, p := range prompts {
				if p.text != tc.texts[i] || !reflect.DeepEqual(p.tokens, tc.tokens[i]) {
					t.Errorf("prompt %d is %+v, want %q %v", i, p, tc.texts[i], tc.tokens[i])
				}
			}
		})
	}
}
