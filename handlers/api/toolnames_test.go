package api

import (
	"testing"

	"m40-llm/infer/reply"
)

func TestToolNames_AFunctionCallIsTheFirstCallWithAllItsArguments(t *testing.T) {
	for _, c := range []struct {
		name  string
		calls []reply.CallDelta
		want  *toolCallFunction
	}{
		{"a call in one piece", []reply.CallDelta{{ID: "c", Name: "f", Arguments: "{}"}}, &toolCallFunction{"f", "{}"}},
		{"several pieces of a call in one event", []reply.CallDelta{{ID: "c", Name: "f"}, {Arguments: `{"x"`}, {Arguments: ":1}"}}, &toolCallFunction{"f", `{"x":1}`}},
		{"another call behind the first", []reply.CallDelta{{Arguments: "}"}, {Index: 1, ID: "d", Name: "g", Arguments: "{}"}}, &toolCallFunction{"", "}"}},
		{"a piece of another call", []reply.CallDelta{{Index: 1, Arguments: "{}"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := (&toolNames{single: true}).chatCalls(toolCallDeltas(c.calls)).FunctionCall
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	whole := joinToolCalls(nil, []reply.CallDelta{{ID: "c", Name: "f", Arguments: "{"}, {Arguments: "}"}, {Index: 1, ID: "d", Name: "g", Arguments: "{}"}})
	if got := (&toolNames{single: true}).chatCalls(whole).FunctionCall; *got != (toolCallFunction{"f", "{}"}) {
		t.Errorf("of the whole message got %+v", got)
	}
}
