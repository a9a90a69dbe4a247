package chat

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
)

func TestRenderGivesMessagesToolsAndVariablesToTheTemplate(t *testing.T) {
	tmpl, err := Parse(`{{ bos_token }}{% for m in messages %}{{ m | tojson }}{{ eos_token }}{% endfor %}{{ tools | tojson }}{{ documents }}{{ level }}{{ add_generation_prompt }}{{ strftime_now('%Y') }}`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tmpl.Render(context.Background(), Input{
		Messages: []Message{
			{Role: "user", Content: "bad \xff byte"},
			{Role: "assistant", ReasoningContent: "hm", ToolCalls: json.RawMessage(`[{"z":1.0,"a":1}]`)},
			{Role: "tool", Content: "4", Name: "add", ToolCallID: "c1"},
		},
		Tools:               json.RawMessage(`[{"b":1,"a":2}]`),
		AddGenerationPrompt: true,
		Vars:                map[string]json.RawMessage{"level": json.RawMessage(`"high"`), "messages": json.RawMessage(`[]`), "bos_token": json.RawMessage(`"x"`)},
		BOSToken:            "<s>",
		EOSToken:            "</s>",
		Now:                 testNow,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `<s>{"role": "user", "content": "bad ` + "\uFFFD" + ` byte"}</s>` +
		`{"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [{"z": 1.0, "a": 1}]}</s>` +
		`{"role": "tool", "content": "4", "name": "add", "tool_call_id": "c1"}</s>` +
		`[{"b": 1, "a": 2}]NonehighTrue2025`
	if p.String() != want {
		t.Error(fixtures.FirstDifference(p.String(), want))
	}
}

func TestToolsAreNoneWhereThereAreNone(t *testing.T) {
	tmpl, err := Parse(`{{ tools is none }}{{ documents is none }}{{ enable_thinking is defined }}`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tmpl.Render(context.Background(), Input{})
	if err != nil || p.String() != "TrueTrueFalse" {
		t.Errorf("got %q, %v", p.String(), err)
	}
}

func TestAMalformedVariableIsNamed(t *testing.T) {
	for what, in := range map[string]Input{
		`"tools"`: {Tools: json.RawMessage(`[1`)},
		`"level"`: {Vars: map[string]json.RawMessage{"level": json.RawMessage(`{} {}`)}},
		"message": {Messages: []Message{{Role: "assistant", ToolCalls: json.RawMessage(`{`)}}},
	} {
		if _, err := ChatML.Render(context.Background(), in); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want an error that names %s", err, what)
		}
	}
}

func TestChatMLIsTheFormatThatTheNameStandsFor(t *testing.T) {
	p, err := ChatML.Render(context.Background(), Input{
		Messages:            []Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "  Hi\n"}, {Role: "assistant"}},
		AddGenerationPrompt: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n  Hi\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n"
	if p.String() != want {
		t.Error(fixtures.FirstDifference(p.String(), want))
	}
}

func TestRenderJSONTakesTheVariablesFromTheRequest(t *testing.T) {
	tmpl, err := Parse(`{{ bos_token }}{{ tools is defined }}{{ messages | tojson }}{{ x }}{{ eos_token }}{{ strftime_now('%F') }}`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tmpl.RenderJSON(context.Background(), []byte(`{"messages":[{"z":1,"a":1.0}],"x":[1],"eos_token":"E"}`), Options{BOSToken: "B", EOSToken: "lost", Now: testNow})
	if want := `BFalse⟦[{"z": 1, "a": 1.0}]⟧[1]⟦E⟧2025-03-14`; err != nil || show(p) != want {
		t.Errorf("got %s, %v, want %s", show(p), err, want)
	}
	for _, request := range []string{"", "[]", "{", `{} x`, `{"a": tru}`} {
		if _, err := tmpl.RenderJSON(context.Background(), []byte(request), Options{}); err == nil {
			t.Errorf("request %q: no error", request)
		}
	}
}

func TestChatMLTakesContentInPartsAndNone(t *testing.T) {
	p, err := render(ChatMLSource, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]},{"role":"assistant","content":null}]}`, Options{})
	if want := "<|im_start|>user\n⟦ab⟧<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"; err != nil || show(p) != want {
		t.Errorf("got %s, %v, want %s", show(p), err, want)
	}
}
