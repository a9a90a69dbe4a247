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

func TestRenderShown_ReportsWhatThePromptShowsOfEachMessage(t *testing.T) {
	const call, noArguments, number = `[{"function": {"name": "f", "arguments": {"a": "b"}}}]`, `[{"function": {"name": "f", "arguments": {}}}]`, `[{"function": {"name": "f", "arguments": {"a": 1}}}, {"function": {"name": "g"}}]`
	const all = `{% for m in messages %}{{ m.content | tojson }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}`
	const names = `{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}`
	const first = `{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function }}{% endif %}{% endfor %}`
	for _, c := range []struct {
		name, template string
		message        Message
		form           ReasoningForm
		want           Shown
	}{
		{"a text, as JSON", all, Message{Content: "x"}, ReasoningForm{}, Shown{Content: true, Calls: true}},
		{"a text that is left out", names, Message{Content: "x"}, ReasoningForm{}, Shown{Calls: true}},
		{"white space", all, Message{Content: "  "}, ReasoningForm{}, Shown{Calls: true}},
		{"a text behind reasoning", all, Message{Content: "x", ReasoningContent: "y"}, ReasoningForm{Open: "<t>", Close: "</t>"}, Shown{Content: true, Calls: true}},
		{"a text in a part beside reasoning", all, Message{Content: "x", ReasoningContent: "y"}, ReasoningForm{AsParts: true}, Shown{Content: true, Calls: true}},
		{"a text of which the reasoning alone is shown", `{{ messages[0].content.split('</t>')[0] }}`, Message{Content: "x", ReasoningContent: "y"}, ReasoningForm{Open: "<t>", Close: "</t>"}, Shown{Calls: true}},
		{"a call", all, Message{ToolCalls: json.RawMessage(call)}, ReasoningForm{}, Shown{Calls: true}},
		{"a call without its arguments", names, Message{ToolCalls: json.RawMessage(call)}, ReasoningForm{}, Shown{}},
		{"a call that has no arguments", names, Message{ToolCalls: json.RawMessage(noArguments)}, ReasoningForm{}, Shown{Calls: true}},
		{"arguments that are numbers", all, Message{ToolCalls: json.RawMessage(number)}, ReasoningForm{}, Shown{Calls: true}},
		{"the first of two calls", first, Message{ToolCalls: json.RawMessage(number)}, ReasoningForm{}, Shown{}},
	} {
		tmpl, err := Parse(c.template)
		if err != nil {
			t.Fatal(err)
		}
		c.message.Role = "assistant"
		prompt, shown, err := tmpl.RenderShown(t.Context(), Input{Messages: []Message{c.message}, Reasoning: c.form})
		if err != nil || len(shown) != 1 || shown[0] != c.want {
			t.Errorf("%s: got %+v of %q, %v, want %+v", c.name, shown, prompt.String(), err, c.want)
		}
	}
}
