package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf/gguftest"
)

const forcedTools = `[
	{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
		"city": {"type": "string", "enum": ["Bonn", "St. Gallen"]}, "days": {"type": "integer", "minimum": 1, "maximum": 99}, "exact": {"type": "boolean"}, "note": {"type": "string", "maxLength": 6}},
		"required": ["city", "exact"], "additionalProperties": false}}},
	{"type": "function", "function": {"name": "find-docs", "parameters": {"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 1, "maxItems": 3}}, "required": ["ids"], "additionalProperties": false}}}]`

// checkForced reports what is wrong with an answer that had to be a call.
func checkForced(h heard, names ...string) error {
	if h.reason != infer.FinishCalls || strings.TrimSpace(h.text) != "" || len(h.calls) == 0 {
		return fmt.Errorf("it ends with %s, text %q and %d calls", h.reason, h.text, len(h.calls))
	}
	var tools []struct {
		Function struct {
			Name       string
			Parameters json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(forcedTools), &tools); err != nil {
		return err
	}
	for _, c := range h.calls {
		known := false
		for _, tool := range tools {
			if tool.Function.Name != c.Name || len(names) > 0 && names[0] != c.Name {
				continue
			}
			known = true
			if err := validJSON(tool.Function.Parameters, c.Arguments); err != nil {
				return fmt.Errorf("%s %s: %w", c.Name, c.Arguments, err)
			}
		}
		if !known {
			return fmt.Errorf("a call of %q", c.Name)
		}
	}
	return nil
}

func forcedRequest(seed int64) infer.Request {
	r := infer.DefaultRequest()
	r.Messages = []chat.Message{{Role: "user", Content: "What is the weather?"}}
	r.Tools = json.RawMessage(forcedTools)
	r.ParseReply, r.ToolChoice, r.MaxTokens = true, infer.ToolChoiceRequired, 700
	r.Params.Seed = seed
	return r
}

// TestToolChoice_FormatsOfAllFamiliesAreHeldToCalls makes the toy call in each format, as
// its template's source tells it. Now and then it calls on and on: what is cut at its
// length does not count.
func TestToolChoice_FormatsOfAllFamiliesAreHeldToCalls(t *testing.T) {
	rounds := int64(1)
	if fixtures.Torture() {
		rounds = 20
	}
	for _, source := range []string{
		"", "<tool_call>", "<tool_call> <function=", "<tool_call> <arg_key>", "<|python_tag|>", "[TOOL_CALLS]", "[TOOL_CALLS][ARGS]", "[TOOL_CALLS][CALL_ID][ARGS]",
		"<|START_ACTION|>", "Action: ```json tool_name", "<|start|><|channel|><|message|>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁begin｜>```json", "｜DSML｜ function_calls>", "｜DSML｜ tool_calls>",
		"<|tool_call>", "<start_function_call>", "<|tool_call_argument_begin|>", "<function=", ">>> recipient", "<|tools_prefix|>", "<|tool_call_start|>", "<|tool_call|>",
		"<seed:tool_call>", "<tool_calls>[", "<|function_call|>", "function call <|role_sep|>", "functools[",
	} {
		t.Run(source, func(t *testing.T) {
			b := newBench(t, func(b *bench, _ *Options) {
				end := ""
				if strings.HasPrefix(source, ">>>") {
					end = ">>>"
				}
				b.files["toy"] = gguftest.TinyLlama(gguftest.Llama{Context: 2048, Template: gguftest.ChatML + "{# " + source + " #}{% if tools %}{{ tools[0].function.name }}{% endif %}" + end})
			})
			cut := int64(0)
			for seed := range 2 * rounds {
				if strings.HasPrefix(source, "<|start|>") {
					b.recite("<|channel|>analysis<|message|>Hm.<|end|>")
				}
				r := forcedRequest(seed)
				r.Params.Temperature, r.MaxTokens = 2, 1500
				var names []string
				if seed%2 == 1 {
					r.ToolChoice, names = "find-docs", []string{"find-docs"}
				}
				a := b.ask(r)
				h := hear(t, a)
				if seed%2 == 0 && h.reason == infer.FinishLength {
					cut++
					continue
				}
				if err := checkForced(h, names...); err != nil || seed%2 == 1 && len(h.calls) != 1 {
					t.Errorf("seed %d: %v; %d calls of %s", seed, err, len(h.calls), detokenised(a))
				}
			}
			if cut > rounds/4 {
				t.Errorf("%d of %d answers were cut at their length", cut, rounds)
			}
		})
	}
}

func detokenised(a outcome) string {
	var b strings.Builder
	for _, tok := range a.tokens {
		b.Write(tok.Bytes)
	}
	return b.String()
}

func TestToolChoice_AThoughtThatThePromptOpenedComesFirst(t *testing.T) {
	b := parseBench(t, gguftest.ChatML+"{# <tool_call> #}{% if tools %}{{ tools[0].function.name }}{% endif %}{% if add_generation_prompt %}<think>\n{% endif %}")
	b.recite("Hm, < and </think>")
	h := hear(t, b.ask(forcedRequest(1)))
	if err := checkForced(h); err != nil || h.reasoning != "Hm, < and" {
		t.Errorf("%v, %+v", err, h)
	}
}

func TestTools_TemplatesGetCompleteDefinitions(t *testing.T) {
	b := parseBench(t, gguftest.ChatML+"{% for t in tools %}[{{ t.function.name + ': ' + t.function.description }} {{ t.function.parameters.properties | tojson }}]{% endfor %}")
	for definition, want := range map[string]string{
		`{"type":"function","function":{"name":"f"}}`:                                                        "[f:  {}]",
		`{"type":"function","function":{"name":"f","description":null,"parameters":null}}`:                   "[f:  {}]",
		`{"type":"function","function":{"name":"f","description":"d","parameters":{"properties":{"a":{}}}}}`: `[f: d {"a": {}}]`,
	} {
		r := callRequest()
		r.Tools = json.RawMessage("[" + definition + "]")
		if view, err := b.Render(t.Context(), r); err != nil || !strings.Contains(view.Prompt, want) {
			t.Errorf("%s: got %q, %v, want %s", definition, view.Prompt, err, want)
		}
	}
}

func TestToolChoice_ACallThatIsCutOffIsNoText(t *testing.T) {
	b := parseBench(t, gguftest.ChatML+"{# <tool_call> #}{% if tools %}{{ tools[0].function.name }}{% endif %}")
	for _, whole := range []bool{true, false} {
		for limit := range 20 {
			r := forcedRequest(1)
			r.WholeCalls, r.MaxTokens = whole, limit
			if h := hear(t, b.ask(r)); h.text != "" || h.reason != infer.FinishLength || whole && len(h.calls) > 0 {
				t.Errorf("whole %t, at most %d tokens: got %+v", whole, limit, h)
			}
		}
	}
}

func TestToolChoice_NoneLeavesTheToolsOut(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	b.recite(`<tool_call>{"name": "add", "arguments": {}}</tool_call>`)
	r := callRequest()
	r.ToolChoice = infer.ToolChoiceNone
	if got := hear(t, b.ask(r)); got.calls != nil || got.reason != infer.FinishStop || !strings.HasPrefix(got.text, "<tool_call>") {
		t.Errorf("%+v", got)
	}
	view, err := b.Render(t.Context(), r)
	if err != nil || strings.Contains(view.Prompt, "add") {
		t.Errorf("%q, %v", view.Prompt, err)
	}
}

func TestToolChoice_WhatCannotBeIsRefused(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	for _, c := range []struct {
		name, param string
		set         func(*infer.Request)
	}{
		{"no tools", "tool_choice", func(r *infer.Request) { r.Tools = nil }},
		{"an empty list of tools", "tool_choice", func(r *infer.Request) { r.Tools = json.RawMessage(`[]`) }},
		{"a function that is not among them", "tool_choice", func(r *infer.Request) { r.ToolChoice = "rm" }},
		{"a grammar too", "tool_choice", func(r *infer.Request) { r.Grammar = `root ::= "a"` }},
		{"a schema that cannot be held to", "tools", func(r *infer.Request) {
			r.Tools = json.RawMessage(`[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "not": {}}}}]`)
		}},
	} {
		r := forcedRequest(0)
		c.set(&r)
		a := b.ask(r)
		if e, _ := a.err.(*fault.Error); e == nil || e.Code != fault.CodeInvalid || e.Param != c.param {
			t.Errorf("%s: %v", c.name, a.err)
		}
	}
}

// TestGuide_ForcedCallsAreValid makes the built-in model call, whose template knows no
// tools.
func TestGuide_ForcedCallsAreValid(t *testing.T) {
	n := 20
	if fixtures.Torture() {
		n = 200
	}
	b := newGuideBench(t)
	var all sync.WaitGroup
	for seed := range int64(n) {
		all.Go(func() {
			r := forcedRequest(seed)
			r.MaxTokens, r.SingleCall = 300, true
			a := b.ask(r)
			if a.err != nil {
				t.Errorf("seed %d: %v", seed, a.err)
				return
			}
			if err := checkForced(hear(t, a)); err != nil {
				t.Errorf("seed %d: %v in %s", seed, err, detokenised(a))
			}
		})
	}
	all.Wait()
}
