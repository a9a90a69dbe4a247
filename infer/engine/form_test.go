package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf/gguftest"
)

const formSchema = `{"type":"object","properties":{"city":{"enum":["Bonn","Bern"]},"warm":{"type":"boolean"}},"required":["city","warm"],"additionalProperties":false}`

// TestForm_ASchemaIsAnAlternativeToACall asks the toy, in the format of each family, for
// content of a schema or calls.
func TestForm_ASchemaIsAnAlternativeToACall(t *testing.T) {
	for _, source := range []string{
		"", "<tool_call>", "<tool_call> <function=", "<|python_tag|>", "[TOOL_CALLS][ARGS]", "<|START_ACTION|>", "<|start|><|channel|><|message|>",
		"<｜tool▁call▁begin｜>", "｜DSML｜ tool_calls>", "<|tool_call>", "<|tool_call_argument_begin|>", "<function=", "<seed:tool_call>", "functools[",
	} {
		t.Run(source, func(t *testing.T) {
			b := newBench(t, func(b *bench, _ *Options) {
				b.files["toy"] = gguftest.TinyLlama(gguftest.Llama{Context: 2048, Template: gguftest.ChatML + "{# " + source + " #}{% if tools %}{{ tools[0].function.name }}{% endif %}"})
			})
			texts, calls := 0, 0
			for seed := range int64(12) {
				r := forcedRequest(seed)
				r.ToolChoice, r.JSONSchema, r.SingleCall = infer.ToolChoiceAuto, json.RawMessage(formSchema), true
				r.Params.Temperature, r.MaxTokens = 3, 1500
				if strings.HasPrefix(source, "<|start|>") {
					b.recite("<|channel|>analysis<|message|>Hm.<|end|>")
				}
				a := b.ask(r)
				h := hear(t, a)
				switch {
				case h.reason == infer.FinishLength:
				case len(h.calls) > 0:
					calls++
					if err := checkForced(h); err != nil {
						t.Errorf("seed %d: %v in %s", seed, err, detokenised(a))
					}
				default:
					texts++
					if err := validJSON(r.JSONSchema, h.text); err != nil || h.reason != infer.FinishStop {
						t.Errorf("seed %d: %v, %s in %q", seed, err, h.reason, detokenised(a))
					}
				}
			}
			if texts+calls < 6 {
				t.Errorf("%d answers are texts and %d calls", texts, calls)
			}
		})
	}
	t.Run("what the model would write decides", func(t *testing.T) {
		b := parseBench(t, gguftest.ChatML+"{# <tool_call> #}{% if tools %}{{ tools[0].function.name }}{% endif %}")
		ask := func(text, choice string) heard {
			b.recite(text)
			r := forcedRequest(1)
			r.ToolChoice, r.JSONSchema, r.SingleCall = choice, json.RawMessage(formSchema), true
			return hear(t, b.ask(r))
		}
		call := "<tool_call>\n" + `{"name": "find-docs", "arguments": {"ids": [1]}}` + "\n</tool_call>"
		content := `{"city":"Bonn","warm":true}`
		for _, c := range []struct {
			text, choice string
			calls        int
		}{{call, infer.ToolChoiceAuto, 1}, {content, infer.ToolChoiceAuto, 0}, {content, infer.ToolChoiceRequired, 1}, {call, infer.ToolChoiceNone, 0}, {content, "find-docs", 1}} {
			h := ask(c.text, c.choice)
			if len(h.calls) != c.calls {
				t.Errorf("%s, with %.20q: got %+v", c.choice, c.text, h)
			}
			if c.calls > 0 {
				if err := checkForced(h); err != nil {
					t.Errorf("%s: %v", c.choice, err)
				}
			} else if err := validJSON(json.RawMessage(formSchema), h.text); err != nil {
				t.Errorf("%s: %q: %v", c.choice, h.text, err)
			}
		}
	})
}

func TestForm_WhatIsLeftOutOfASchemaIsTheFirstEvent(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	r := callRequest()
	r.JSONSchema = json.RawMessage(`{"type":"array","items":{"type":"boolean"},"maxItems":2,"contains":{"const":true}}`)
	a := b.ask(r)
	if first := a.events[0]; first.Type != infer.EventSchema || !slices.Equal(first.Schema.Ignored, []string{"contains at #"}) {
		t.Errorf("got %+v, %v", first, a.err)
	}
	r = forcedRequest(1)
	r.Tools = json.RawMessage(`[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"},"maxItems":2,"uniqueItems":true}}}}}]`)
	a = b.ask(r)
	if first := a.events[0]; first.Type != infer.EventSchema || !slices.Equal(first.Schema.Ignored, []string{"uniqueItems at #/properties/a of f"}) {
		t.Errorf("got %+v, %v", first, a.err)
	}
	r.Tools = json.RawMessage(strings.Replace(string(r.Tools), `"name":"f"`, `"name":"f","strict":true`, 1))
	a = b.ask(r)
	if e, _ := a.err.(*fault.Error); e == nil || e.Code != fault.CodeInvalid || e.Param != "tools" || !strings.Contains(e.Message, "uniqueItems") {
		t.Errorf("strict: got %v", a.err)
	}
}

func TestForm_NoToolsAreNone(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	r := callRequest()
	r.Tools, r.MaxTokens = nil, 1
	without := b.ask(r)
	for _, none := range []string{"null", "[]", " [ ] "} {
		r.Tools = json.RawMessage(none)
		if a := b.ask(r); a.err != nil || a.done.Usage.PromptTokens != without.done.Usage.PromptTokens {
			t.Errorf("tools %s: got %+v, %v, want %d tokens", none, a.done, a.err, without.done.Usage.PromptTokens)
		}
		view, err := b.Render(t.Context(), r)
		if err != nil || strings.Contains(view.Prompt, "tools") {
			t.Errorf("tools %s: got %q, %v", none, view.Prompt, err)
		}
	}
}

func TestForm_AnswersOfOneFormShareItsGrammar(t *testing.T) {
	m := openSource(t)
	constrain := func(n int) *constraint {
		t.Helper()
		r := request(span(10, 20), 60)
		r.JSONSchema = fmt.Appendf(nil, `{"const":"number %d"}`, n)
		c, err := m.constrain(t.Context(), &r, prompt{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var held []*constraint
	for n := range 3 * maxCompiled {
		held = append(held, constrain(n))
	}
	for n, c := range held {
		if constrain(n).compiled != c.compiled {
			t.Errorf("grammar %d is compiled again while an answer has it", n)
		}
		if size := c.matcher.Bytes(); size < 1000 || size > 100<<10 {
			t.Errorf("grammar %d takes %d bytes", n, size)
		}
	}
	if n := len(m.constraints.last); n != maxCompiled {
		t.Errorf("%d grammars are kept", n)
	}
	runtime.KeepAlive(held)
}

func TestForm_ARequestThatWaitsToCompileCanLeave(t *testing.T) {
	m := openSource(t)
	for range cap(compiling) {
		compiling <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		r := request(span(10, 20), 60)
		r.Grammar = `root ::= "one that waits"`
		_, err := m.constrain(ctx, &r, prompt{}, slog.New(slog.DiscardHandler))
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	for range cap(compiling) {
		<-compiling
	}
}

// openSource opens the toy without a request.
func openSource(t *testing.T) *openModel {
	t.Helper()
	b := newBench(t, nil)
	m, err := b.models.acquire(t.Context(), "toy", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.models.release(m) })
	return m
}
