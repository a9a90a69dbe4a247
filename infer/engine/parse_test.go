package engine

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/reply"
)

// recite makes the toy answer with text, byte by byte, and then with its end token.
// <END> stands for that, and <CONTROL> for a control token that ends nothing.
func (b *bench) recite(text string) {
	var ids []int32
	for len(text) > 0 {
		if rest, found := strings.CutPrefix(text, "<CONTROL>"); found {
			ids, text = append(ids, 1), rest
			continue
		}
		ids, text = append(ids, 3+int32(text[0])), text[1:]
	}
	b.reciteTokens(append(ids, toyEnd))
}

// reciteTokens makes the toy answer with ids.
func (b *bench) reciteTokens(ids []int32) {
	first := int32(-1)
	b.onLogits = func(logits []float32, pos int32) {
		if first < 0 {
			first = pos
		}
		if i := int(pos - first); i < len(ids) {
			logits[ids[i]] = 1000
		}
	}
}

func callRequest() infer.Request {
	r := infer.DefaultRequest()
	r.Messages = []chat.Message{{Role: "user", Content: "x"}}
	r.Tools = json.RawMessage(`[{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]`)
	r.ParseReply, r.MaxTokens, r.Params.Temperature = true, 200, 0
	return r
}

// heard is an answer put together from its events.
type heard struct {
	text, reasoning string
	calls           []reply.CallDelta
	reason          infer.FinishReason
}

func hear(t *testing.T, a outcome) (h heard) {
	t.Helper()
	if a.err != nil {
		t.Fatal(a.err)
	}
	add := func(calls []reply.CallDelta) {
		for _, c := range calls {
			if c.Index == len(h.calls) {
				h.calls = append(h.calls, reply.CallDelta{Index: c.Index, ID: c.ID, Name: c.Name})
			}
			h.calls[c.Index].Arguments += c.Arguments
		}
	}
	for _, tok := range a.tokens {
		h.reasoning += tok.Reasoning
		add(tok.Calls)
	}
	h.text, h.reasoning, h.reason = a.text, h.reasoning+a.done.Reasoning, a.done.Reason
	add(a.done.Calls)
	return h
}

func TestParseReply_TellsThoughtsTextAndCallsApart(t *testing.T) {
	const call = `<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>`
	const broken = `<tool_call>{"name": "add", "arguments": {"a": `
	for _, c := range []struct {
		name, reply string
		set         func(*infer.Request)
		want        heard
		calls       string // name and arguments
	}{
		{"all three", "<think>Hm.</think>\nHi.\n" + call, nil, heard{text: "Hi.", reasoning: "Hm.", reason: infer.FinishCalls}, `add {"a": 1}`},
		{"two calls", call + call, nil, heard{reason: infer.FinishCalls}, `add {"a": 1} add {"a": 1}`},
		{"one is enough", call + call, func(r *infer.Request) { r.SingleCall = true }, heard{reason: infer.FinishCalls}, `add {"a": 1}`},
		{"no call", "Hi <b>.", nil, heard{text: "Hi <b>.", reason: infer.FinishStop}, ""},
		{"a call of no tool", `<tool_call>{"name": "sub"}</tool_call>`, nil, heard{text: `<tool_call>{"name": "sub"}</tool_call>`, reason: infer.FinishStop}, ""},
		{"a call that breaks off", broken, func(r *infer.Request) { r.WholeCalls = true }, heard{text: broken, reason: infer.FinishStop}, ""},
		{"a call that breaks off while it is told", broken + "x", nil, heard{text: "x", reason: infer.FinishStop}, `add {"a": `},
		{"a limit in a call", broken + "1}}", func(r *infer.Request) { r.WholeCalls, r.MaxTokens = true, len(broken) }, heard{text: broken, reason: infer.FinishLength}, ""},
		{"a stop string counts in the raw text", "Hi." + call, func(r *infer.Request) { r.Stop = []string{"<tool"} }, heard{text: "Hi.", reason: infer.FinishStop}, ""},
		{"a banned string too", "Hi." + call, func(r *infer.Request) { r.BannedStrings = []string{"no"} }, heard{text: "Hi.", reason: infer.FinishCalls}, `add {"a": 1}`},
		{"as it is", "<think>Hm.</think>" + call, func(r *infer.Request) { r.ParseReply = false }, heard{text: "<think>Hm.</think>" + call, reason: infer.FinishStop}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := parseBench(t, gguftest.ChatML)
			b.recite(c.reply)
			r := callRequest()
			if c.set != nil {
				c.set(&r)
			}
			got := hear(t, b.ask(r))
			var calls []string
			for i, call := range got.calls {
				if len(call.ID) != 9 || call.Index != i {
					t.Errorf("call %d is %+v", i, call)
				}
				calls = append(calls, call.Name+" "+call.Arguments)
			}
			got.calls = nil
			if got.text != c.want.text || got.reasoning != c.want.reasoning || got.reason != c.want.reason || strings.Join(calls, " ") != c.calls {
				t.Errorf("%+v with calls %q, want %+v with %q", got, calls, c.want, c.calls)
			}
		})
	}
}

func parseBench(t *testing.T, template string) *bench {
	return newBench(t, func(b *bench, _ *Options) {
		b.files["toy"] = gguftest.TinyLlama(gguftest.Llama{Context: 1024, Template: template})
	})
}

func TestParseReply_PassesOverControlTokensThatMeanNothingToTheFormat(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	b.recite("<sto<CONTROL>p>")
	r := callRequest()
	r.Stop = []string{"<stop>"}
	if got := hear(t, b.ask(r)); got.reason != infer.FinishStop || got.text != "" {
		t.Errorf("%+v", got)
	}
}

func TestParseReply_ReadsControlTokensOfTheFormat(t *testing.T) {
	b := newBench(t, func(b *bench, _ *Options) {
		// Mistral's marker is as long as the control token that it takes the place of.
		data := gguftest.TinyLlama(gguftest.Llama{Context: 1024, Template: gguftest.ChatML + "{# <|im_start|> #}{% if tools %}{{ tools[0].function.name }}{% endif %}"})
		b.files["toy"] = bytes.ReplaceAll(data, []byte("<|im_start|>"), []byte("[TOOL_CALLS]"))
	})
	const list = `[{"name": "add", "arguments": {}, "id": "abcdefghi"}]`
	r := callRequest()
	r.Stop = []string{"<stop>"}
	b.recite("Hi <sto<CONTROL>" + list)
	if got := hear(t, b.ask(r)); got.text != "Hi <sto" || len(got.calls) != 1 || got.calls[0].ID != "abcdefghi" || got.reason != infer.FinishCalls {
		t.Errorf("the token: %+v", got)
	}
	b.recite("[TOOL_CALLS]" + list)
	if got := hear(t, b.ask(r)); got.text != "[TOOL_CALLS]"+list || got.calls != nil || got.reason != infer.FinishStop {
		t.Errorf("its spelling: %+v", got)
	}
	forced := forcedRequest(1)
	forced.SingleCall, forced.Params.Temperature = true, 2
	a := b.ask(forced)
	if err := checkForced(hear(t, a)); err != nil || a.tokens[0].ID != 1 {
		t.Errorf("a forced call: %v in %s", err, detokenised(a))
	}
}

func TestParseReply_KnowsAThoughtThatThePromptOpened(t *testing.T) {
	b := parseBench(t, gguftest.ChatML+"{% if add_generation_prompt %}<think>\n{% endif %}")
	b.recite("Hm.</think>Hi.")
	if got := hear(t, b.ask(callRequest())); got.text != "Hi." || got.reasoning != "Hm." {
		t.Errorf("%+v", got)
	}
	r := callRequest()
	r.Messages = append(r.Messages, chat.Message{Role: "assistant", Content: "<think>So"})
	r.Continue = true
	b.recite(" Hm.</think>Hi.")
	if got := hear(t, b.ask(r)); got.text != "Hi." || got.reasoning != "Hm." {
		t.Errorf("continued: %+v", got)
	}
}

func TestParseReply_RefusesToolsThatAreNone(t *testing.T) {
	b := parseBench(t, gguftest.ChatML)
	r := callRequest()
	r.Tools = json.RawMessage(`[{"type": "function"}]`)
	if a := b.ask(r); a.code() != fault.CodeInvalid {
		t.Errorf("%v", a.err)
	}
}

func TestReasoningBudget_ClosesTheReasoning(t *testing.T) {
	const marker = "</think>"
	filler := strings.Repeat("-", len(marker)) // what the model would write where the marker comes
	for _, c := range []struct {
		name, template, reply string
		budget                int
		want                  heard
	}{
		{"that the model opens", gguftest.ChatML, "<think>Hm" + filler + "Hi.", 3, heard{text: "Hi.", reasoning: "Hm", reason: infer.FinishStop}}, // the token that opens it counts
		{"that the prompt opens, before it begins", gguftest.ChatML + "{% if add_generation_prompt %}<think>\n{% endif %}", filler + "Hi.", 0, heard{text: "Hi.", reason: infer.FinishStop}},
		{"no earlier than the budget says", gguftest.ChatML, "<think>Hm.</think>Hi.", 50, heard{text: "Hi.", reasoning: "Hm.", reason: infer.FinishStop}},
		{"and leaves answers without reasoning alone", gguftest.ChatML, "Hi.", 0, heard{text: "Hi.", reason: infer.FinishStop}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := parseBench(t, c.template)
			b.recite(c.reply)
			r := callRequest()
			r.Tools, r.ReasoningBudget = nil, &c.budget
			if got := hear(t, b.ask(r)); got.text != c.want.text || got.reasoning != c.want.reasoning || got.reason != c.want.reason {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
