package chat

import (
	"encoding/json"
	"testing"
)

func TestReasoningIsRenderedInTheRequestedForm(t *testing.T) {
	tmpl, err := Parse(`{% for m in messages %}{{ m | tojson }}{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	calls := json.RawMessage(`[1]`)
	tags := ReasoningForm{Open: "<t>", Close: "</t>"}
	for _, c := range []struct {
		name  string
		form  ReasoningForm
		given Message
		want  string
	}{
		{"the usual field", ReasoningForm{}, Message{Content: "b", ReasoningContent: "a"}, `{"role": "", "content": "b", "reasoning_content": "a"}`},
		{"another field", ReasoningForm{Field: "thinking"}, Message{Content: "b", ReasoningContent: "a"}, `{"role": "", "content": "b", "thinking": "a"}`},
		{"a field of no template", ReasoningForm{Field: "role"}, Message{Content: "b", ReasoningContent: "a"}, `{"role": "", "content": "b", "reasoning_content": "a"}`},
		{"parts", ReasoningForm{AsParts: true}, Message{Content: "b", ReasoningContent: "a"}, `{"role": "", "content": [{"type": "thinking", "thinking": "a"}, {"type": "text", "text": "b"}]}`},
		{"reasoning alone in parts", ReasoningForm{AsParts: true}, Message{ReasoningContent: "a"}, `{"role": "", "content": [{"type": "thinking", "thinking": "a"}]}`},
		{"no reasoning in parts", ReasoningForm{AsParts: true}, Message{Content: "b"}, `{"role": "", "content": "b"}`},
		{"tags", tags, Message{Content: "b", ReasoningContent: "a"}, `{"role": "", "content": "<t>\na\n</t>\n\nb"}`},
		{"reasoning that has the tag that ends it", tags, Message{Content: "b", ReasoningContent: "a</t>c"}, `{"role": "", "content": "b"}`},
		{"reasoning and calls", ReasoningForm{DropWithCalls: true}, Message{ReasoningContent: "a", ToolCalls: calls}, `{"role": "", "content": "", "reasoning_content": "a", "tool_calls": [1]}`},
		{"not with content and calls", ReasoningForm{DropWithCalls: true}, Message{Content: "b", ReasoningContent: "a", ToolCalls: calls}, `{"role": "", "content": "b", "tool_calls": [1]}`},
		{"not between tags, which are content, with calls", ReasoningForm{Open: "<t>", Close: "</t>", DropWithCalls: true}, Message{ReasoningContent: "a", ToolCalls: calls}, `{"role": "", "content": "", "tool_calls": [1]}`},
	} {
		p, err := tmpl.Render(t.Context(), Input{Messages: []Message{c.given}, Reasoning: c.form})
		if err != nil || p.String() != c.want {
			t.Errorf("%s: %s, %v, want %s", c.name, p.String(), err, c.want)
		}
	}
}
