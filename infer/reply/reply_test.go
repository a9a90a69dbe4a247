package reply

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
)

// testTools are the tools offered in these tests.
var testTools = []Tool{
	{Name: "get_weather", Parameters: json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}, "any": {}}}`)},
	{Name: "brave_search", Parameters: json.RawMessage(`{"type": "object", "properties": {"query": {"type": "string"}}}`)},
}

// templates are texts by which Detect finds each family.
var templates = map[string]string{
	"hermes":          "<tool_call> tools",
	"llama":           "<|python_tag|>",
	"mistral":         "[TOOL_CALLS]",
	"command-r":       "Action: ```json tool_name",
	"command-r7b":     "<|START_ACTION|>",
	"harmony":         "<|start|><|channel|><|message|>",
	"deepseek":        "<｜tool▁call▁begin｜>",
	"dsml":            "｜DSML｜",
	"gemma":           "<|tool_call>",
	"functiongemma":   "<start_function_call>",
	"kimi":            "<|tool_call_argument_begin|>",
	"functionary":     "<function=",
	"functionary-3.2": ">>> recipient",
	"apertus":         "<|tools_prefix|>",
	"lfm2":            "<|tool_call_start|>",
	"granite":         "<|tool_call|>",
	"seed":            "<seed:tool_call>",
	"apriel":          "<tool_calls>[",
	"gigachat":        "<|function_call|>",
	"gigachat-3":      "function call <|role_sep|>",
	"functools":       "functools[",
	"generic":         "",
}

func formatOf(t testing.TB, name string) *Syntax {
	t.Helper()
	f := Detect(templates[name], true, func(string) bool { return false })
	if f.Name != name {
		t.Fatalf("the template of %s is taken for one of %s", name, f.Name)
	}
	return f
}

func numbered() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("id%07d", n) }
}

// message is a reply joined from its deltas.
type message struct {
	Content, Reasoning string
	Calls              []CallDelta
	Called             bool
}

func (m *message) add(d Delta) {
	m.Content += d.Content
	m.Reasoning += d.Reasoning
	for _, c := range d.Calls {
		if c.Index == len(m.Calls) {
			m.Calls = append(m.Calls, CallDelta{Index: c.Index, ID: c.ID, Name: c.Name})
		}
		m.Calls[c.Index].Arguments += c.Arguments
	}
}

// read parses a reply whose text comes in the given pieces.
func read(f *Syntax, o Options, pieces ...string) (m message) {
	o.Tools, o.NewID = testTools, numbered()
	p := f.Parser(o)
	for _, piece := range pieces {
		m.add(p.Text(piece))
	}
	m.add(p.End(true))
	m.Called = p.Called()
	return m
}

// calls returns each call as NAME ARGUMENTS.
func (m message) calls() (list []string) {
	for _, c := range m.Calls {
		list = append(list, c.Name+" "+c.Arguments)
	}
	return list
}

// replies are replies in the formats that the makers of models document.
var replies = []struct {
	name, format, prompt, text string
	content, reasoning         string
	calls                      []string
	ids                        []string // where they are the model's
}{
	{name: "plain text", format: "hermes", text: "Hello,\n\n world <b>!\n", content: "Hello,\n\n world <b>!\n"},
	{
		name: "Hermes: text and two calls", format: "hermes",
		text:    "I look.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bonn </tool_call> \\\"x\\\"\"}}\n</tool_call>\n<tool_call>{\"arguments\": {\"query\": \"a\"}, \"name\": \"brave_search\"}</tool_call>\n",
		content: "I look.",
		calls:   []string{`get_weather {"city": "Bonn </tool_call> \"x\""}`, `brave_search {"query": "a"}`},
	},
	{
		name: "Hermes: text behind a call", format: "hermes",
		text:    "<tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call>\n Done. ",
		content: "Done. ", calls: []string{`get_weather {}`},
	},
	{
		name: "Hermes: the end of the call is missing", format: "hermes",
		text:  "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bonn\"}}",
		calls: []string{`get_weather {"city": "Bonn"}`},
	},
	{
		name: "Hermes: arguments as a string, and none", format: "hermes",
		text:  `<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Bonn\"}"}</tool_call><tool_call>{"name": "get_weather"}</tool_call><tool_call>{"name": "get_weather", "arguments": null}</tool_call>`,
		calls: []string{`get_weather {"city": "Bonn"}`, `get_weather {}`, `get_weather {}`},
	},
	{
		name: "Hermes: a line break in a string is escaped", format: "hermes",
		text:  "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\nb\tc\x01\"}}</tool_call>",
		calls: []string{`get_weather {"city": "a\nb\tc\u0001"}`},
	},
	{
		name: "a tool that was not offered is text", format: "hermes",
		text:    "So:\n<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
		content: "So:\n<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
	},
	{
		name: "what is no JSON is text", format: "hermes",
		text:    "<tool_call>\n{name: get_weather}\n</tool_call>",
		content: "<tool_call>\n{name: get_weather}\n</tool_call>",
	},
	{
		name: "arguments that are no object are text", format: "hermes",
		text:    `<tool_call>{"name": "get_weather", "arguments": [1]}</tool_call>`,
		content: `<tool_call>{"name": "get_weather", "arguments": [1]}</tool_call>`,
	},
	{
		name: "a call behind one that is none", format: "hermes",
		text:    `<tool_call>{"name": 1}</tool_call><tool_call>{"name": "get_weather", "arguments": {"days": 1}}</tool_call>`,
		content: `<tool_call>{"name": 1}</tool_call>`,
		calls:   []string{`get_weather {"days": 1}`},
	},
	{
		name: "a marker in reasoning opens no call", format: "hermes",
		text:      "<think>\nI could <tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call> or\n\nnot.\n</think>\n\nNo.",
		reasoning: "I could <tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call> or\n\nnot.", content: "No.",
	},
	{
		name: "reasoning that the prompt opened", format: "hermes", prompt: "<|im_start|>assistant\n<think>\n",
		text: "Hm.\n</think>\n<tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call>", reasoning: "Hm.", calls: []string{`get_weather {}`},
	},
	{name: "reasoning without an end", format: "hermes", text: " <think>Hm. \n", reasoning: "Hm. \n"},
	{name: "an answer that writes about tags", format: "hermes", text: "Use <think> and </think>.", content: "Use <think> and </think>."},
	{
		name: "Qwen3-Coder", format: "hermes",
		text:  "<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=tags>\n[\"a\", 1]\n</parameter>\n<parameter=any>\nTrue\n</parameter>\n</function>\n</tool_call>",
		calls: []string{`get_weather {"city": "New\nYork", "days": 3, "tags": ["a", 1], "any": true}`},
	},
	{
		name: "Qwen3-Coder: without the outer marker", format: "hermes",
		text:  "<function=get_weather>\n<parameter=city>\n42\n</parameter>\n</function>",
		calls: []string{`get_weather {"city": "42"}`},
	},
	{
		name: "Qwen3-Coder: parameters that do not end are text", format: "hermes",
		text:    "<tool_call>\n<function=get_weather>\n<parameter=city>\nBonn\n</function>\n</tool_call>",
		content: "<tool_call>\n<function=get_weather>\n<parameter=city>\nBonn\n</function>\n</tool_call>",
	},
	{
		name: "GLM", format: "hermes",
		text:  "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bonn</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
		calls: []string{`get_weather {"city": "Bonn", "days": 2}`},
	},
	{
		name: "Llama 3.1", format: "llama", text: "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bonn\"}}",
		calls: []string{`get_weather {"city": "Bonn"}`},
	},
	{
		name: "Llama 3.1: two calls, and a type", format: "llama",
		text:  `{"type": "function", "name": "get_weather", "parameters": {"days": 1}}; {"name": "brave_search", "parameters": {}}`,
		calls: []string{`get_weather {"days": 1}`, `brave_search {}`},
	},
	{name: "Llama: an answer in JSON", format: "llama", text: ` {"name": "Bonn", "size": 3}`, content: ` {"name": "Bonn", "size": 3}`},
	{name: "Llama: an answer that is a list", format: "llama", text: `[1, 2, get_weather(city="x")]`, content: `[1, 2, get_weather(city="x")]`},
	{
		name: "Llama 3.1: behind the tag", format: "llama", text: `<|python_tag|>{"name": "get_weather", "parameters": {"city": "Bonn"}}`,
		calls: []string{`get_weather {"city": "Bonn"}`},
	},
	{
		name: "Llama 3.1: a built-in tool", format: "llama", text: `<|python_tag|>brave_search.call(query="a \"b\" (c")`,
		calls: []string{`brave_search {"query": "a \"b\" (c"}`},
	},
	{name: "Llama 3.1: code", format: "llama", text: "<|python_tag|>print(1)", content: "<|python_tag|>print(1)"},
	{
		name: "Llama 3.2 and 4: Python", format: "llama", text: `[get_weather(city='It\'s', days=-2, tags=["a", {'b': None}], any=1.5e3), brave_search(query="""x""")]`,
		calls: []string{`get_weather {"city": "It's", "days": -2, "tags": ["a", {"b": null}], "any": 1.5e3}`, `brave_search {"query": "x"}`},
	},
	{
		name: "Mistral v3", format: "mistral", text: ` [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "VvvODy9mT"}, {"name": "brave_search", "arguments": {}, "id": "abcdefgh1"}]`,
		calls: []string{`get_weather {"city": "Paris"}`, `brave_search {}`}, ids: []string{"VvvODy9mT", "abcdefgh1"},
	},
	{
		name: "Mistral v11", format: "mistral", text: `One moment.[TOOL_CALLS]get_weather[CALL_ID]VvvODy9mT[ARGS]{"city": "[ARGS]"}[TOOL_CALLS]brave_search[CALL_ID]abcdefgh1[ARGS]{}`,
		content: "One moment.", calls: []string{`get_weather {"city": "[ARGS]"}`, `brave_search {}`}, ids: []string{"VvvODy9mT", "abcdefgh1"},
	},
	{
		name: "Mistral v13", format: "mistral", text: `[THINK]Hm.[/THINK][TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}`,
		reasoning: "Hm.", calls: []string{`get_weather {"city": "Paris"}`},
	},
	{
		name: "Command-R", format: "command-r", text: "Action: ```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": {\n            \"city\": \"Bonn\"\n        }\n    }\n]```",
		calls: []string{"get_weather {\n            \"city\": \"Bonn\"\n        }"},
	},
	{
		name: "Command-R: code is text", format: "command-r", text: "Action:\n```json\n{\"a\": 1}\n```", content: "Action:\n```json\n{\"a\": 1}\n```",
	},
	{
		name: "Command-R7B", format: "command-r7b", text: "<|START_THINKING|>I will look.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Bonn\"}}\n]<|END_ACTION|>",
		reasoning: "I will look.", calls: []string{`get_weather {"city": "Bonn"}`},
	},
	{name: "Command-R7B: an answer", format: "command-r7b", prompt: "<|START_THINKING|><|END_THINKING|>", text: "<|START_RESPONSE|>Fine.<|END_RESPONSE|>", content: "Fine."},
	{
		name: "gpt-oss", format: "harmony", prompt: "<|end|><|start|>assistant",
		text:      "<|channel|>analysis<|message|>Need <b>it</b>.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Bonn\"}<|call|>",
		reasoning: "Need <b>it</b>.", content: "I look.", calls: []string{`get_weather {"city":"Bonn"}`},
	},
	{
		name: "gpt-oss: the recipient in the role", format: "harmony", prompt: "<|start|>assistant",
		text: " to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>", calls: []string{`get_weather {}`},
	},
	{name: "gpt-oss: an answer", format: "harmony", prompt: "<|start|>assistant", text: "<|channel|>final<|message|>Hi, \n you.<|return|>", content: "Hi, \n you."},
	{name: "gpt-oss: an answer that goes on", format: "harmony", prompt: "<|start|>assistant<|channel|>final<|message|>Hi,", text: " you.<|return|>", content: " you."},
	{name: "gpt-oss: no header", format: "harmony", prompt: "<|start|>assistant", text: "Hi.", content: "Hi."},
	{
		name: "gpt-oss: an unknown function", format: "harmony", prompt: "<|start|>assistant", text: "<|channel|>commentary to=functions.rm<|message|>{}<|call|>",
		content: "<|channel|>commentary to=functions.rm<|message|>{}",
	},
	{
		name: "DeepSeek V3 and R1", format: "deepseek", text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>brave_search\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		calls: []string{"get_weather {\"city\": \"```\"}", `brave_search {}`},
	},
	{
		name: "DeepSeek V3.1", format: "deepseek", text: "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Bonn\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		content: "Yes.", calls: []string{`get_weather {"city": "Bonn"}`},
	},
	{name: "DeepSeek: an unknown tool", format: "deepseek", text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>rm<｜tool▁sep｜>{}", content: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>rm<｜tool▁sep｜>{}"},
	{
		name: "DeepSeek V3.2", format: "dsml", text: "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Bonn</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
		calls: []string{`get_weather {"city": "Bonn", "days": 2}`},
	},
	{
		name: "Gemma 4", format: "gemma", text: "<|channel>thought\nHm.<channel|><|tool_call>call:get_weather{city:<|\"|>a } <tool_call|> b<|\"|>,days:2,tags:[<|\"|>x<|\"|>,{y:true}]}<tool_call|>",
		reasoning: "Hm.", calls: []string{`get_weather {"city": "a } <tool_call|> b", "days": 2, "tags": ["x", {"y": true}]}`},
	},
	{
		name: "FunctionGemma", format: "functiongemma", text: "<start_function_call>call:get_weather{city:<escape>Bonn<escape>}<end_function_call>",
		calls: []string{`get_weather {"city": "Bonn"}`},
	},
	{
		name: "Gemma 2 and 3: code", format: "generic", text: "```tool_code\nprint(get_weather(city=\"Bonn\"))\n```", calls: []string{`get_weather {"city": "Bonn"}`},
	},
	{
		name: "Gemma 2 and 3: JSON in a block", format: "generic", text: "```tool_call\n{\"name\": \"get_weather\", \"arguments\": {}}\n```", calls: []string{`get_weather {}`},
	},
	{name: "a block of code is text", format: "generic", text: "```tool_code\nx = 1\n```", content: "```tool_code\nx = 1\n```"},
	{
		name: "Kimi K2", format: "kimi", text: "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Bonn\"}<|tool_call_end|><|tool_calls_section_end|>",
		calls: []string{`get_weather {"city": "Bonn"}`}, ids: []string{"functions.get_weather:0"},
	},
	{name: "Functionary 3.1", format: "functionary", text: `<function=get_weather>{"city": "Bonn"}</function>`, calls: []string{`get_weather {"city": "Bonn"}`}},
	{
		name: "Functionary 3.2", format: "functionary-3.2", prompt: ">>>", text: "all\nI look.>>>get_weather\n{\"city\": \"Bonn\"}>>>brave_search\n{}",
		content: "I look.", calls: []string{`get_weather {"city": "Bonn"}`, `brave_search {}`},
	},
	{name: "Apertus", format: "apertus", text: `<|inner_prefix|>Hm.<|inner_suffix|><|tools_prefix|>[{"get_weather": {"city": "Bonn"}}, {"brave_search": {}}]<|tools_suffix|>`, reasoning: "Hm.", calls: []string{`get_weather {"city": "Bonn"}`, `brave_search {}`}},
	{name: "LFM2", format: "lfm2", text: `<|tool_call_start|>[get_weather(city="Bonn")]<|tool_call_end|>Checking.`, content: "Checking.", calls: []string{`get_weather {"city": "Bonn"}`}},
	{name: "Granite", format: "granite", text: `<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Bonn"}}]`, calls: []string{`get_weather {"city": "Bonn"}`}},
	{name: "Seed", format: "seed", text: "<seed:think>\nHm.\n</seed:think>\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Bonn</parameter>\n</function>\n</seed:tool_call>", reasoning: "Hm.", calls: []string{`get_weather {"city": "Bonn"}`}},
	{name: "Apriel", format: "apriel", prompt: "Here are my reasoning steps:\n", text: "Hm.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {}, \"id\": \"call00001\"}]</tool_calls>", reasoning: "Hm.", calls: []string{`get_weather {}`}, ids: []string{"call00001"}},
	{name: "GigaChat 3.1", format: "gigachat", text: `<|function_call|>{"name": "get_weather", "arguments": {}}`, calls: []string{`get_weather {}`}},
	{name: "GigaChat 3", format: "gigachat-3", text: "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"get_weather\", \"arguments\": {}}<|message_sep|>", calls: []string{`get_weather {}`}},
	{name: "Firefunction", format: "functools", text: ` functools[{"name": "get_weather", "arguments": {}}]`, calls: []string{`get_weather {}`}},
}

func TestRepliesOfEveryFamilyAreParsed(t *testing.T) {
	for _, c := range replies {
		t.Run(c.name, func(t *testing.T) {
			f := formatOf(t, c.format)
			for _, whole := range []bool{true, false} {
				got := read(f, Options{Prompt: c.prompt, BufferCalls: whole}, c.text)
				if whole && (got.Content != c.content || got.Reasoning != c.reasoning || !reflect.DeepEqual(got.calls(), c.calls)) {
					t.Errorf("content %q, reasoning %q, calls %q; want %q, %q, %q", got.Content, got.Reasoning, got.calls(), c.content, c.reasoning, c.calls)
				}
				if got.Called != (len(c.calls) > 0) && (whole || len(c.calls) == len(got.Calls)) {
					t.Errorf("Called is %v", got.Called)
				}
				for i, id := range c.ids {
					if got.Calls[i].ID != id {
						t.Errorf("call %d has id %q, want %q", i, got.Calls[i].ID, id)
					}
				}
			}
		})
	}
}

func TestTheResultDoesNotDependOnHowTheTextIsSplit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range replies {
		f := formatOf(t, c.format)
		for _, whole := range []bool{true, false} {
			o := Options{Prompt: c.prompt, BufferCalls: whole}
			want := read(f, o, c.text)
			if got := read(f, o, strings.Split(c.text, "")...); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: rune by rune %+v, at once %+v", c.name, got, want)
			}
			for i := range len(c.text) {
				if got := read(f, o, c.text[:i], c.text[i:]); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: cut at %d %+v, at once %+v", c.name, i, got, want)
				}
			}
			for range 5 {
				if got := read(f, o, randomPieces(random, c.text)...); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: in pieces %+v, at once %+v", c.name, got, want)
				}
			}
		}
	}
}

func randomPieces(random *rand.Rand, text string) (pieces []string) {
	for text != "" {
		n := 1 + random.IntN(min(12, len(text)))
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

// TestATruncatedReplyLosesNothing truncates replies anywhere, as a token limit does: calls
// that are not complete are content.
func TestATruncatedReplyLosesNothing(t *testing.T) {
	for _, c := range replies {
		f := formatOf(t, c.format)
		for i := range len(c.text) {
			p := f.Parser(Options{Tools: testTools, Prompt: c.prompt, BufferCalls: true, NewID: numbered()})
			var m message
			m.add(p.Text(c.text[:i]))
			m.add(p.End(false))
			checkCalls(t, m.Calls, true)
			if len(m.Calls) > 0 || c.format == "harmony" || strings.Contains(c.text[:i], "all\n") {
				continue
			}
			if seen := m.Reasoning + m.Content; !sameLetters(c.text[:i], seen) {
				t.Fatalf("%s: cut behind %q there is left: %q", c.name, c.text[:i], seen)
			}
		}
	}
}

// sameLetters reports whether seen equals text except for white space and the tags of
// reasoning and answers.
func sameLetters(text, seen string) bool {
	drop := []string{" ", "\n", "<|START_RESPONSE|>", "", "<|END_RESPONSE|>", "", "<|message_sep|>", "", "[BEGIN FINAL RESPONSE]", ""}
	for _, tag := range tags {
		drop = append(drop, tag.Open, "", tag.Close, "")
	}
	clean := strings.NewReplacer(append(drop, "\n", "")...)
	squeeze := func(s string) string { return strings.Join(strings.Fields(clean.Replace(s)), "") }
	return squeeze(text) == squeeze(seen)
}

func checkCalls(t *testing.T, calls []CallDelta, whole bool) {
	t.Helper()
	for i, c := range calls {
		if c.Name == "" || c.ID == "" || c.Index != i {
			t.Fatalf("call %d is %+v", i, c)
		}
		if whole && !isObject(c.Arguments) {
			t.Fatalf("call %d has arguments %q", i, c.Arguments)
		}
	}
}

func TestArgumentsAreStreamed(t *testing.T) {
	for _, text := range []string{
		`<tool_call>{"name": "get_weather", "arguments": {"city": "Bonn"}}`,
		`{"name": "get_weather", "parameters": {"city": "Bonn"}}`,
		`[TOOL_CALLS]get_weather[ARGS]{"city": "Bonn"}`,
		`<|channel|>commentary to=functions.get_weather<|message|>{"city": "Bonn"}`,
		`<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Bonn"}`,
		`<|START_ACTION|>[{"tool_name": "get_weather", "parameters": {"city": "Bonn"}}]`,
	} {
		f := Detect(map[byte]string{'<': text, '{': "<|python_tag|>", '[': text}[text[0]], true, func(string) bool { return false })
		if strings.HasPrefix(text, "<|channel") {
			f = formatOf(t, "harmony")
		}
		p := f.Parser(Options{Tools: testTools})
		begin := strings.Index(text, `{"city`)
		d := p.Text(text[:begin+1])
		if len(d.Calls) != 1 || d.Calls[0].Name != "get_weather" || d.Calls[0].ID == "" || d.Calls[0].Arguments != "{" {
			t.Errorf("%s: %s begins with %+v", f.Name, text, d)
		}
		for i := begin + 1; i < strings.Index(text, "}")+1; i++ {
			if d := p.Text(text[i : i+1]); len(d.Calls) != 1 || d.Calls[0].Arguments != text[i:i+1] || d.Calls[0].Name != "" {
				t.Fatalf("%s: byte %q gives %+v", f.Name, text[i], d)
			}
		}
	}
}

func TestCalledIsFalseAfterACallBreaksOffWhileItIsStreamed(t *testing.T) {
	f := formatOf(t, "hermes")
	got := read(f, Options{}, `<tool_call>{"name": "get_weather", "arguments": {"city": "Bonn" oops}}</tool_call>`)
	if got.Called || got.Calls[0].Arguments != `{"city": "Bonn" ` || got.Content != "oops}}</tool_call>" {
		t.Errorf("%+v", got)
	}
}

func TestTextThatCannotBeAMarkerIsNotBuffered(t *testing.T) {
	for name := range templates {
		p := formatOf(t, name).Parser(Options{Tools: testTools, Prompt: "<|start|>assistant<|channel|>final<|message|>"})
		if p.state == inCall {
			continue
		}
		for _, piece := range []string{"Well", ", this", " is", " a < b", " and", " 'x'", "."} {
			if d := p.Text(piece); d.Content != piece {
				t.Errorf("%s: %q gives %q", name, piece, d.Content)
			}
		}
	}
}

func TestTextIsNoMarkerIfTheVocabularyHasItAsAControlToken(t *testing.T) {
	control := func(text string) bool { return strings.HasPrefix(text, "[") || strings.HasPrefix(text, "<|") }
	f := Detect("[TOOL_CALLS]", true, control)
	p := f.Parser(Options{Tools: testTools, NewID: numbered()})
	var m message
	m.add(p.Text(`[TOOL_CALLS]get_weather[ARGS]{} is how `))
	m.add(p.Control("[UNKNOWN]"))
	m.add(p.Text(`it goes.`))
	m.add(p.Control("[TOOL_CALLS]"))
	m.add(p.Text("get_weather"))
	m.add(p.Control("[ARGS]"))
	m.add(p.Text(`{"city": "[TOOL_CALLS]"}`))
	m.add(p.End(true))
	if m.Content != "[TOOL_CALLS]get_weather[ARGS]{} is how it goes." || !reflect.DeepEqual(m.calls(), []string{`get_weather {"city": "[TOOL_CALLS]"}`}) {
		t.Errorf("%+v", m)
	}
	// DeepSeek's token is a part of its markers.
	f = Detect("｜DSML｜", true, func(text string) bool { return text == "｜DSML｜" })
	p = f.Parser(Options{Tools: testTools})
	m = message{}
	for i, piece := range strings.Split("<｜DSML｜function_calls><｜DSML｜invoke name=\"get_weather\"></｜DSML｜invoke></｜DSML｜function_calls>", "｜DSML｜") {
		if i > 0 {
			m.add(p.Control("｜DSML｜"))
		}
		m.add(p.Text(piece))
	}
	m.add(p.End(true))
	if !reflect.DeepEqual(m.calls(), []string{`get_weather {}`}) {
		t.Errorf("%+v", m)
	}
}

func TestTheFormatIsDetectedInTheVocabularyIfTheTemplateShowsNoCall(t *testing.T) {
	has := func(text string) bool { return text == "<|tool_call_start|>" }
	if f := Detect("List of tools: {{ tools }}", true, has); f.Name != "lfm2" {
		t.Errorf("with tools: %s", f.Name)
	}
	if f := Detect("{{ messages }}", false, has); f.Name != "generic" {
		t.Errorf("without: %s", f.Name)
	}
}

func TestNothingIsACallWithoutTools(t *testing.T) {
	for _, c := range replies {
		if c.format == "harmony" || c.format == "gigachat-3" || c.prompt == ">>>" || c.reasoning != "" || c.format == "command-r7b" {
			continue
		}
		p := formatOf(t, c.format).Parser(Options{Prompt: c.prompt})
		var m message
		m.add(p.Text(c.text))
		m.add(p.End(true))
		if m.Content != c.text || m.Calls != nil {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
}

// TestHostileRepliesTakeBoundedMemory feeds long and deep replies to every format.
func TestHostileRepliesTakeBoundedMemory(t *testing.T) {
	size := 1 << 10
	if fixtures.Torture() {
		size = 1 << 16
	}
	for name := range templates {
		f := formatOf(t, name)
		units := []string{"{", "[", `{"a":`, "<", " ", "`", `{"name": "get_weather", "arguments": {"a": [`, "get_weather("}
		for _, m := range f.textMarkers {
			units = append(units, m.text, m.text+"{", m.text[:len(m.text)-1], m.text+`{"name": "get_weather", "arguments": `, m.text+" [")
		}
		for _, unit := range units {
			feedHostile(t, f, "", strings.Repeat(unit, size/len(unit)))
		}
	}
	for format, begin := range map[string]string{
		"hermes": `<tool_call>{"name": "get_weather", "arguments": {"city": "`,
		"llama":  `[get_weather(city="`,
		"gemma":  `<|tool_call>call:get_weather{city:`,
	} {
		feedHostile(t, formatOf(t, format), begin, strings.Repeat("x", maxCallText+1<<16))
	}
}

func feedHostile(t *testing.T, f *Syntax, begin, text string) {
	t.Helper()
	p := f.Parser(Options{Tools: testTools, BufferCalls: true})
	var m message
	m.add(p.Text(begin))
	for i := 0; i < len(text); i += 4096 {
		m.add(p.Text(text[i:min(len(text), i+4096)]))
		if n := len(p.callText) + len(p.pendingSpace) + len(p.lexer.buffer) + len(p.header); n > maxCallText+maxSpace+maxHeader {
			t.Fatalf("%s: %d bytes are buffered of %q%.20q…", f.Name, n, begin, text)
		}
	}
	m.add(p.End(false))
	checkCalls(t, m.Calls, true)
}

// A limit of tokens may cut a call off at any byte.
func TestACallThatIsRequiredAndCutOffIsNoContent(t *testing.T) {
	for _, c := range replies {
		if c.content != "" || len(c.calls) == 0 {
			continue
		}
		for _, whole := range []bool{true, false} {
			for end := range len(c.text) {
				p := formatOf(t, c.format).Parser(Options{Tools: testTools, Prompt: c.prompt, BufferCalls: whole, Required: true, NewID: numbered()})
				var m message
				m.add(p.Text(c.text[:end]))
				m.add(p.End(false))
				if m.Content != "" {
					t.Errorf("%s, whole %t, cut off behind %q: got %+v", c.name, whole, c.text[:end], m)
					break
				}
				checkCalls(t, m.Calls, whole)
			}
		}
	}
}

func TestTheScannerAcceptsExactlyJSON(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"a": [1, -2.5e+3, 0, -0.0E-1, true, false, null, "x\u00e9\n\"", {"b": []}]} `, `[ ]`, `"a"`, `{"a":1,}`, `{,}`, `[1 2]`, `{"a" 1}`, `{"a":01}`,
		`{"a":1.}`, `{"a":.5}`, `{"a":-}`, `{"a":1e}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":tru}`, `{"a":nul1}`, `{a:1}`, `{"a":[}`, `{"a":]}`, `{"a":{"b":1]}`, `{"a":+1}`, `{"a":1e5}`, `{"a":-0}`, `[[[]]]`,
	} {
		if got, want := scans(text), json.Valid([]byte(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	deep := strings.Repeat("[", maxNesting) + strings.Repeat("]", maxNesting)
	if !scans(deep) || scans("["+deep+"]") {
		t.Errorf("the depth is not bounded at %d", maxNesting)
	}
}

// scans reports whether a scanner accepts text as one value.
func scans(text string) bool {
	var s scanner
	for i := range len(text) {
		switch s.step(text[i]) {
		case done:
			return strings.TrimSpace(text[i+1:]) == ""
		case invalid, doneBefore:
			return false
		}
	}
	return false
}

func TestToolsAreParsed(t *testing.T) {
	tools, err := ParseTools(json.RawMessage(`[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]`))
	if err != nil || len(tools) != 1 || tools[0].Name != "f" || string(tools[0].Parameters) != `{"type": "object"}` {
		t.Errorf("%+v, %v", tools, err)
	}
	for _, bad := range []string{`{}`, `[1]`, `[{"type": "function"}]`} {
		if _, err := ParseTools(json.RawMessage(bad)); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestIDsAreNineLettersAndDigits(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		id := NewID()
		if len(id) != 9 || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" || seen[id] {
			t.Fatalf("%q", id)
		}
		seen[id] = true
	}
}

// FuzzParse parses any text in any format: splitting it must make no difference, buffered
// calls must have objects as arguments, and nothing may be lost if there are no calls.
func FuzzParse(f *testing.F) {
	for _, c := range replies {
		f.Add(c.format, c.prompt, c.text, uint64(len(c.text)))
	}
	f.Fuzz(func(t *testing.T, name, prompt, text string, seed uint64) {
		if _, ok := templates[name]; !ok || len(text) > 1<<14 {
			return
		}
		format := formatOf(t, name)
		random := rand.New(rand.NewPCG(seed, 0))
		for _, whole := range []bool{true, false} {
			o := Options{Prompt: prompt, BufferCalls: whole}
			want := read(format, o, text)
			if got := read(format, o, randomPieces(random, text)...); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, whole %v: in pieces %+v, at once %+v", strconv.Quote(text), whole, got, want)
			}
			checkCalls(t, want.Calls, whole || want.Called)
		}
	})
}

// TestASchemaIsParsedOnce calls a tool with a large schema many times, with many arguments.
// Parsing the schema for each call or argument would take minutes.
func TestASchemaIsParsedOnce(t *testing.T) {
	size := 1 << 20
	schema := `{"properties": {"a": {"type": "string", "description": "` + strings.Repeat("x", size) + `"}}}`
	tools := []Tool{{Name: "f", Parameters: json.RawMessage(schema)}}
	const calls, arguments = 10, 10
	call := "<tool_call>\n<function=f>" + strings.Repeat("<parameter=a>\n1\n</parameter>", arguments) + "</function>\n</tool_call>"
	p := formatOf(t, "hermes").Parser(Options{Tools: tools})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d := p.Text(strings.Repeat(call, calls))
	d.Add(p.End(true))
	runtime.ReadMemStats(&after)
	if len(d.Calls) != calls || !strings.Contains(d.Calls[0].Arguments, `"a": "1"`) {
		t.Fatalf("%d calls, the first of them %.200q", len(d.Calls), fmt.Sprint(d.Calls))
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > uint64(8*size) {
		t.Errorf("%d calls with %d arguments each allocate %d times the size of the schema", calls, arguments, used/uint64(size))
	}
}
