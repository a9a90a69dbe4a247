package setting

import (
	"errors"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
)

const weather = `[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]`

func TestOnlyTheAnswerToAQuestionHasToBeACall(t *testing.T) {
	s := Default()
	s.Tools, s.MustCall = weather, 1
	for _, tc := range []struct {
		name, last string
		resumed    bool
		want       string
	}{
		{"a question", "user", false, infer.ToolChoiceRequired},
		{"a result", "tool", false, ""},
		{"an answer that is continued", "user", true, ""},
	} {
		r := infer.Request{Messages: []chat.Message{{Role: tc.last}}, Continue: tc.resumed}
		if s.Apply(&r); r.ToolChoice != tc.want || len(r.Tools) == 0 {
			t.Errorf("%s: the choice is %q, the tools %s", tc.name, r.ToolChoice, r.Tools)
		}
	}
	raw := infer.Request{Prompt: "x"}
	if s.Apply(&raw); raw.Tools != nil {
		t.Errorf("a raw chat is asked with the tools %s", raw.Tools)
	}
}

func TestToolsThatAreInvalidAreRefusedWithTheReason(t *testing.T) {
	for _, tc := range []struct{ name, tools, want string }{
		{"no JSON", "[\n{,", "(line 2)"},
		{"an object", `{"type":"function"}`, "tools must be an array"},
		{"no function", `[{"type":"function"}]`, "tools[0].function is missing"},
		{"another type", `[{"type":"retrieval"}]`, `tools[0].type must be function, not "retrieval"`},
		{"a name with a space", `[{"type":"function","function":{"name":"a b"}}]`, `tools[0].function.name must be 1 to 64 letters`},
		{"two of one name", `[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}]`, "the name of another tool"},
		{"parameters that are no schema", `[{"type":"function","function":{"name":"a","parameters":[]}}]`, "must be a JSON schema"},
		{"a schema with an unknown type", `[{"type":"function","function":{"name":"a","parameters":{"type":"object","properties":{"x":{"type":"strin"}}}}}]`, `the schema of the parameters of tool 1, "a", is invalid`},
		{"too long", "[" + strings.Repeat(" ", ToolsBytes) + "]", "the maximum is 32768"},
	} {
		s := Default()
		s.Tools = tc.tools
		var wrong *fault.Error
		if err := s.Validate(); !errors.As(err, &wrong) || wrong.Param != "tools" || !strings.Contains(wrong.Message, tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
	for _, valid := range []string{"", " ", "[]", weather} {
		s := Default()
		s.Tools = valid
		if err := s.Validate(); err != nil {
			t.Errorf("%q: %v", valid, err)
		}
	}
}
