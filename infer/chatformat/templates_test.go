package chatformat

import (
	"encoding/json"
	"testing"
	"time"

	"m40-llm/infer/chat"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/tokenizer"
)

// read returns the format of a file with templates; source replaces them.
func read(t *testing.T, o gguftest.Llama, source string) *Format {
	t.Helper()
	file, err := gguf.Parse(gguftest.TinyLlama(o))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(file)
	if err != nil {
		t.Fatal(err)
	}
	return Read(file, tok, source)
}

func TestATemplateIsChosenByWhatTheConversationHas(t *testing.T) {
	keys := func(pairs ...string) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			m["tokenizer.chat_template."+pairs[i]] = pairs[i+1]
		}
		return m
	}
	both := gguftest.Llama{Template: "plain", Keys: keys("tool_use", "tools {{ tools }}", "rag", "documents {{ documents }}")}
	for _, c := range []struct {
		name             string
		file             gguftest.Llama
		source           string
		tools, documents bool
		want             string
	}{
		{"without tools", both, "", false, false, "plain"},
		{"with tools", both, "", true, false, "tools {{ tools }}"},
		{"with documents", both, "", false, true, "documents {{ documents }}"},
		{"with both", both, "", true, true, "tools {{ tools }}"},
		{"one template for all", gguftest.Llama{Template: "plain"}, "", true, true, "plain"},
		{"the default has a name too", gguftest.Llama{NoTemplate: true, Keys: keys("default", "named", "tool_use", "tools")}, "", false, false, "named"},
		{"no default", gguftest.Llama{NoTemplate: true, Keys: keys("tool_use", "tools")}, "", false, false, "tools"},
		{"a template that cannot be parsed is not used", gguftest.Llama{Template: "plain", Keys: keys("tool_use", "{% if %}")}, "", true, false, "plain"},
		{"none", gguftest.Llama{NoTemplate: true}, "", true, false, chat.ChatMLSource},
		{"a given template replaces all", both, "given", true, true, "given"},
	} {
		f := read(t, c.file, c.source)
		if got := f.For(c.tools, c.documents).probe.source; got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestATemplateGetsTheVariablesThatItExpects(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	tools := json.RawMessage(`[{"type":"function","function":{"name":"f","description":"<d>","parameters":{"type":"object","properties":{}}}}]`)
	for _, c := range []struct{ name, template, want string }{
		{"tools as text", "{{ 'x' + functions }}", "x" + string(tools)},
		{"the date without a time of day", "{{ 'x' + datetime }}", "xFeb 03 2026"},
		{"variables that no template needs are not defined", "{{ tools | length }}{{ date_string is defined }}{{ today is defined }}", "1FalseFalse"},
	} {
		f := read(t, gguftest.Llama{Template: c.template + "{# {{ tools }} #}{% if tools %}{% for tool in tools %}{{ '' if tool.function.name else '' }}{% endfor %}{% endif %}{{ messages[0].content if messages[0].content.startswith('probe') }}{{ tools[0].function.name if tools and tools[0].function.name.startswith('probe') }}"}, "")
		got, err := f.Prompt(t.Context(), chat.Input{Messages: []chat.Message{{Role: "user", Content: "hi"}}, Tools: tools, Now: now}, Pictures{})
		if err != nil || got.Text != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, got.Text, err, c.want)
		}
	}
}

func TestAGivenVariableReplacesAnExpectedOne(t *testing.T) {
	f := read(t, gguftest.Llama{Template: "{{ datetime }}"}, "")
	got, err := f.Prompt(t.Context(), chat.Input{Messages: []chat.Message{{Role: "user", Content: "hi"}}, Vars: map[string]json.RawMessage{"datetime": json.RawMessage(`"today"`)}}, Pictures{})
	if err != nil || got.Text != "today" {
		t.Errorf("got %q, %v", got.Text, err)
	}
}
