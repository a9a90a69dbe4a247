package chatformat

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/chat"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/reply"
)

type fixtureTemplate struct {
	Name          string            `json:"name"`
	Source        string            `json:"source"`
	SpecialTokens map[string]string `json:"special_tokens"`
}

func loadTemplates(t testing.TB) []fixtureTemplate {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "templates", "chat_templates.json"))
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Templates []fixtureTemplate `json:"templates"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	return set.Templates
}

const weatherTools = `[
	{"type": "function", "function": {"name": "get_weather", "description": "Weather of a place", "parameters": {"type": "object", "properties": {
		"place": {"type": "string", "description": "A town"}, "days": {"type": "integer", "description": "How many"}, "deep": {"type": "object", "description": "Any", "additionalProperties": {"type": "integer"}}, "exact": {"type": "boolean", "description": "Or about"}, "list": {"type": "array", "description": "Names", "items": {"type": "string"}}}, "required": ["place"]}}},
	{"type": "function", "function": {"name": "find-docs", "description": "Search", "parameters": {"type": "object", "properties": {"query": {"type": "string", "description": "Words"}}}}}]`

type wantedCall struct{ name, arguments string }

// theirTurn renders a conversation in which the assistant calls and cuts the
// assistant's part out of the prompt: what is not there if it says something else.
func theirTurn(t *testing.T, ft fixtureTemplate, calls []wantedCall, content, reasoning string) (common, turn string, f *Format, err error) {
	t.Helper()
	tmpl, err := chat.Parse(ft.Source)
	if err != nil {
		t.Fatal(err)
	}
	bos, eos := ft.SpecialTokens["bos_token"], ft.SpecialTokens["eos_token"]
	p := newProbe(tmpl, ft.Source, bos, eos)
	f = newFormat(p, func(string) bool { return false })
	style := f.callStyle()
	accepted, err := p.reasoning(context.Background(), style)
	if err != nil {
		t.Fatal(err)
	}
	var list []toolCall
	for i, c := range calls {
		call := toolCall{ID: fmt.Sprintf("abcdef12%d", i)}
		call.Function.Name = c.name
		call.Function.Arguments, _ = json.Marshal(c.arguments)
		list = append(list, call)
	}
	raw, _ := json.Marshal(list)
	messages := []chat.Message{{Role: "user", Content: "What is it like?"}}
	render := func(extra ...chat.Message) (string, error) {
		m, style, err := f.toolMessages(append(messages[:1:1], extra...))
		if err != nil {
			return "", err
		}
		p, err := tmpl.Render(context.Background(), chat.Input{
			Messages: m, Tools: json.RawMessage(weatherTools), NullContent: style.nullContent, Reasoning: accepted,
			AddGenerationPrompt: len(extra) == 0, BOSToken: bos, EOSToken: eos, Now: time.Unix(1e9, 0).UTC(),
		})
		return p.String(), err
	}
	prompt, err := render()
	if err != nil {
		return "", "", f, err
	}
	var results []chat.Message
	for i := range calls {
		results = append(results, chat.Message{Role: "tool", ToolCallID: list[i].ID, Content: "RESULT"})
	}
	whole, err := render(append([]chat.Message{{Role: "assistant", Content: content, ReasoningContent: reasoning, ToolCalls: raw}}, results...)...)
	if err != nil {
		return "", "", f, err
	}
	// After what both have in common comes what the model writes, from the marker on
	// in which they part.
	n := 0
	for n < len(prompt) && n < len(whole) && prompt[n] == whole[n] {
		n++
	}
	if i := strings.LastIndexByte(whole[:n], '<'); i >= 0 && !strings.Contains(whole[i:n], ">") {
		n = i
	}
	return whole[:n], whole[n:], f, nil
}

// unshown are the templates, or the cases of one, that do not show what they are given,
// so that nothing can be read back.
var unshown = map[string]string{
	"Kimi-K2-Thinking":                                 "appends to a list, which the sandbox refuses as Jinja2's does",
	"MiroThinker":                                      "reads a variable that does not exist",
	"fireworks-ai-llama-3-firefunction-v2":             "reads a variable that does not exist",
	"llama-cpp-deepseek-r1":                            "writes a generator as JSON, which fails in Jinja2 too",
	"GigaChat3-10B-A1.8B/two":                          "shows the first call only",
	"GigaChat3.1-10B-A1.8B/two":                        "shows the first call only",
	"openai-gpt-oss-120b/two":                          "shows the first call only",
	"meta-llama-Llama-3.1-8B-Instruct/two":             "refuses more than one call",
	"deepseek-ai-DeepSeek-R1-Distill-Llama-8B/content": "shows content or calls, not both",
	"openai-gpt-oss-120b/content":                      "shows the content in front of a call as reasoning",
}

// TestCallsOfEveryTemplateAreReadBack renders calls with each template that shows them
// and reads them out of the prompt again.
func TestCallsOfEveryTemplateAreReadBack(t *testing.T) {
	tools, err := reply.ParseTools(json.RawMessage(weatherTools))
	if err != nil {
		t.Fatal(err)
	}
	first := wantedCall{"get_weather", `{"place": "Zürich \"CH\" </b> {x}", "days": 2, "exact": true, "list": ["a", "b"], "deep": {"x": [1, null]}}`}
	second := wantedCall{"find-docs", `{"query": "it's, here"}`}
	read, without := 0, 0
	for _, ft := range loadTemplates(t) {
		if !strings.Contains(ft.Source, "tool_calls") {
			continue
		}
		for _, c := range []struct {
			name, content, reasoning string
			calls                    []wantedCall
		}{
			{name: "one", calls: []wantedCall{first}},
			{name: "two", calls: []wantedCall{first, second}},
			{name: "content", content: "Let me look.", calls: []wantedCall{first}},
			{name: "reasoning", reasoning: "I should look.", calls: []wantedCall{first}},
		} {
			name := ft.Name + "/" + c.name
			if why := unshown[ft.Name] + unshown[name]; why != "" {
				t.Logf("%s: %s", name, why)
				without++
				continue
			}
			prompt, turn, f, err := theirTurn(t, ft, c.calls, c.content, c.reasoning)
			if err != nil {
				t.Errorf("%s (%s): %v", name, f.syntax.Name, err)
				continue
			}
			turn, _, _ = strings.Cut(turn, "RESULT")
			for _, whole := range []bool{true, false} {
				p := f.Parser(reply.Options{Tools: tools, BufferCalls: whole, Prompt: prompt})
				got := p.Text(turn)
				end := p.End(true)
				got.Content += end.Content
				got.Calls = append(got.Calls, end.Calls...)
				if !sameCalls(got.Calls, c.calls) {
					t.Errorf("%s (%s): %q reads as %+v", name, f.syntax.Name, turn, got)
				}
				if strings.Contains(turn, "look.") && (!strings.Contains(got.Content, c.content) || got.Reasoning != c.reasoning) {
					t.Errorf("%s (%s): %q reads as content %q and reasoning %q", name, f.syntax.Name, turn, got.Content, got.Reasoning)
				}
			}
			read++
		}
	}
	t.Logf("%d conversations are read back, %d cannot be", read, without)
	if read < 130 {
		t.Errorf("only %d conversations were tried", read)
	}
}

func sameCalls(got []reply.CallDelta, want []wantedCall) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range want {
		var a, b any
		if json.Unmarshal([]byte(got[i].Arguments), &a) != nil || json.Unmarshal([]byte(want[i].arguments), &b) != nil {
			return false
		}
		if got[i].Name != want[i].name || !reflect.DeepEqual(a, b) {
			return false
		}
	}
	return true
}

// What a model once wrote wrongly stays in its conversation, whatever the template.
func TestArgumentsThatAreNoObjectAreShownAsTheyAre(t *testing.T) {
	for given, want := range map[string]string{
		`{"a":1}`:                  `{"a":1}`,
		`"{\"a\": 1} "`:            `{"a": 1}`,
		`" "`:                      `{}`,
		`null`:                     `{}`,
		`"null"`:                   `{}`,
		`"{\"a\":"`:                `{"invalid_json":"{\"a\":"}`,
		`"[1]"`:                    `{"invalid_json":"[1]"}`,
		`"{\"a\":1}{\"b\":2}"`:     `{"invalid_json":"{\"a\":1}{\"b\":2}"}`,
		`" {'a': '<|im_end|>'}\n"`: `{"invalid_json":" {'a': '\u003c|im_end|\u003e'}\n"}`,
	} {
		if got, err := callArguments(json.RawMessage(given)); err != nil || string(got) != want {
			t.Errorf("%s is %s, %v, want %s", given, got, err, want)
		}
	}
	for _, given := range []string{`[1]`, `7`, `true`} {
		if got, err := callArguments(json.RawMessage(given)); err == nil {
			t.Errorf("%s is %s", given, got)
		}
	}
	shown := 0
	for _, ft := range loadTemplates(t) {
		tmpl, err := chat.Parse(ft.Source)
		if err != nil {
			continue
		}
		p := newProbe(tmpl, ft.Source, ft.SpecialTokens["bos_token"], ft.SpecialTokens["eos_token"])
		style := p.calls(context.Background())
		if style.unknown {
			continue
		}
		call := toolCall{ID: probeResult.ToolCallID, Type: "function"}
		call.Function.Name, call.Function.Arguments = probeName, json.RawMessage(`"{place: Paris"`)
		calls, err := style.calls([]toolCall{call})
		if err != nil {
			t.Fatal(err)
		}
		prompt, err := p.render(context.Background(), chat.Input{
			Messages:    []chat.Message{probeQuestion, {Role: "assistant", ToolCalls: calls}, probeResult},
			NullContent: style.nullContent, AddGenerationPrompt: true,
		})
		if err != nil || !strings.Contains(prompt, "{place: Paris") {
			t.Errorf("%s: %v: %q", ft.Name, err, prompt)
		}
		shown++
	}
	if shown == 0 {
		t.Error("no template shows calls")
	}
}
