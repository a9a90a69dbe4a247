package chatformat

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/chat"
	"m40-llm/infer/gguf/gguftest"
)

// conversationOf spells a conversation: s for a system message, u and a for one of the user and the
// assistant, c for a call, d for two calls, x and y for text with one or two, and t for a result. Each has a text of its own.
func conversationOf(shape string) (list []chat.Message) {
	n := map[rune]int{}
	for _, kind := range strings.ReplaceAll(shape, " ", "") {
		n[kind]++
		text := fmt.Sprintf("%c%d-text", kind, n[kind])
		id := fmt.Sprintf("call0000%d", n[kind])
		switch kind {
		case 's':
			list = append(list, chat.Message{Role: "system", Content: text})
		case 'u':
			list = append(list, chat.Message{Role: "user", Content: text})
		case 'a':
			list = append(list, chat.Message{Role: "assistant", Content: text})
		case 'c':
			calls := fmt.Sprintf(`[{"id": %q, "type": "function", "function": {"name": "get_weather", "arguments": "{\"place\": \"%s\"}"}}]`, id, text)
			list = append(list, chat.Message{Role: "assistant", ToolCalls: json.RawMessage(calls)})
		case 'x', 'y':
			calls := map[rune]string{'x': strings.Repeat("c", n[kind]), 'y': "d"}[kind]
			m := conversationOf(calls)[len(calls)-1]
			m.Content = text
			list = append(list, m)
		case 'd':
			list = append(list, conversationOf("c")[0], conversationOf("cc")[1])
			list = joinNeighbours(chat.Input{Messages: list})
		case 't':
			list = append(list, chat.Message{Role: "tool", ToolCallID: id, Content: text})
		}
	}
	return list
}

// textsOf are the texts of a conversation that its prompt must show.
func textsOf(messages []chat.Message) (texts []string) {
	for _, m := range messages {
		if m.Content != "" {
			texts = append(texts, m.Content)
		}
		for _, c := range decodeCalls(m) {
			var arguments string
			json.Unmarshal(c.Function.Arguments, &arguments)
			texts = append(texts, arguments[len(`{"place": "`):len(arguments)-len(`"}`)])
		}
	}
	return texts
}

func missingOf(prompt string, texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return strings.Contains(prompt, text) })
}

// refused are the templates, and their conversations, that fail in Jinja2 too, whatever the order.
var refused = map[string]func(shape string) bool{
	"ai-sage-GigaChat-20B-A3B-instruct-t": func(string) bool { return true },                                      // needs a list of tokens that files lack
	"MiroThinker":                         func(shape string) bool { return strings.ContainsAny(shape, "acdxy") }, // assigns to a message
}

func TestEveryTextOfEveryKindOfConversationReachesThePromptOfEveryTemplate(t *testing.T) {
	shapes := []string{
		"u", "s u", "s s u", "s s s u a u", "u s", "u a s u", "s u a s u", "s u s", "s u s u", "s u a u s a u", "s", "s s", "s a u", // system text
		"u u", "u u u a u u", "a u", "a a u", "a", "u a a u", "u a u u", // turns
		"u c t", "u c t a u", "u c t u", "u c t u u", "u c u", "u c a u", "u c", "u t u", "u c t c t", "u c t c t u", "u d t t", "u d t t a u", "s u d t t u", // calls
		"c t", "s c t u", "c c t t u", "s a c t u", "c a u", "d t t u", "u c t a c t a u", "u a a c t", "u d u", // calls without a question
		"u x", "u x t", "u x t a u", "s x t u", "s u x t x t a u", "u x t x t", "u y t t u", "u y t t a u", "u x u", // text alongside calls
		"s u c t u", "u c t s", "u c t s u", "u c s t", "s s u u a a u c t u s", // all of it
	}
	notes := map[string]int{}
	for _, ft := range loadTemplates(t) {
		f, p, _ := formatOf(t, ft)
		for _, shape := range shapes {
			if fails := refused[ft.Name]; fails != nil && fails(shape) {
				continue
			}
			in := chat.Input{Messages: conversationOf(shape)}
			if strings.ContainsAny(shape, "cdtxy") {
				in.Tools = json.RawMessage(weatherTools)
			}
			got, err := f.conversation(t.Context(), in)
			if err != nil {
				t.Errorf("%s, %s: %v", ft.Name, shape, err)
				continue
			}
			prompt := got.prompt.String()
			for _, text := range missingOf(prompt, textsOf(in.Messages)) {
				t.Errorf("%s, %s: %s is not in %q", ft.Name, shape, text, prompt)
			}
			for _, note := range got.notes {
				notes[note]++
			}
			if len(in.Tools) > 0 {
				continue
			}
			// What a template takes is not changed.
			in.AddGenerationPrompt = true
			plain, _, err := p.renderShown(t.Context(), in)
			changed := err != nil || plain.String() != prompt
			if taken := err == nil && len(missingOf(plain.String(), textsOf(in.Messages))) == 0; taken && changed {
				t.Errorf("%s, %s: got %q, want what the template makes, %q", ft.Name, shape, prompt, plain.String())
			}
			if changed != (len(got.notes) > 0) {
				t.Errorf("%s, %s: changed %v, with the notes %q", ft.Name, shape, changed, got.notes)
			}
		}
	}
	for _, c := range slices.Concat(systemChanges, roleChanges) {
		if c.note != "" && notes[c.note] == 0 {
			t.Errorf("no template needs the change of which is said %q", c.note)
		}
	}
	t.Logf("%v", notes)
}

func TestAConversationIsChangedAsLittleAsItsTemplateRequires(t *testing.T) {
	templates := map[string]*Format{}
	for _, ft := range loadTemplates(t) {
		f, _, _ := formatOf(t, ft)
		templates[ft.Name] = f
	}
	for _, c := range []struct{ template, shape, want string }{
		{"google-gemma-2-2b-it", "s u", "<bos><start_of_turn>user\ns1-text\n\nu1-text<end_of_turn>\n<start_of_turn>model\n"},
		{"google-gemma-2-2b-it", "s u a s u", "<bos><start_of_turn>user\ns1-text\n\nu1-text<end_of_turn>\n<start_of_turn>model\na1-text<end_of_turn>\n<start_of_turn>user\ns2-text\n\nu2-text<end_of_turn>\n<start_of_turn>model\n"},
		{"google-gemma-2-2b-it", "s a u", "<bos><start_of_turn>user\ns1-text<end_of_turn>\n<start_of_turn>model\na1-text<end_of_turn>\n<start_of_turn>user\nu1-text<end_of_turn>\n<start_of_turn>model\n"},
		{"google-gemma-2-2b-it", "a u", "<bos><start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\na1-text<end_of_turn>\n<start_of_turn>user\nu1-text<end_of_turn>\n<start_of_turn>model\n"},
		{"google-gemma-2-2b-it", "u u a a u", "<bos><start_of_turn>user\nu1-text\n\nu2-text<end_of_turn>\n<start_of_turn>model\na1-text\n\na2-text<end_of_turn>\n<start_of_turn>user\nu3-text<end_of_turn>\n<start_of_turn>model\n"},
		{"Phi-3-mini-t", "s s u s", "<s><|user|>\ns1-text\n\ns2-text\n\nu1-text\n\ns3-text<|end|>\n<|assistant|>\n"},
		{"mistralai-Mistral-Nemo-Instruct-2407", "s s u a s u", "<s>[INST]u1-text[/INST]a1-text</s>[INST]s1-text\n\ns2-text\n\ns3-text\n\nu2-text[/INST]"}, // which itself places system text there
		{"Qwen3.5-4B", "s u a s u", "<|im_start|>system\ns1-text<|im_end|>\n<|im_start|>user\nu1-text<|im_end|>\n<|im_start|>assistant\na1-text<|im_end|>\n<|im_start|>user\ns2-text\n\nu2-text<|im_end|>\n<|im_start|>assistant\n<think>\n"},
		{"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "s s u", "<｜begin▁of▁sentence｜>s1-text\n\ns2-text<｜User｜>u1-text<｜Assistant｜><think>\n"},
	} {
		got, err := templates[c.template].conversation(t.Context(), chat.Input{Messages: conversationOf(c.shape)})
		if err != nil || got.prompt.String() != c.want {
			t.Errorf("%s, %s: got %q, %v, want %q", c.template, c.shape, got.prompt.String(), err, c.want)
		}
	}
}

// textMarks matches what conversationOf writes, and says from whom a prompt of the templates below has it.
var textMarks = regexp.MustCompile(`[a-z]\d-text|\[/?INST\]|\[TOOL_CALLS\]|<\|start_header_id\|>[a-z]+|<\|start\|>[a-z]+`)

func TestCallsAndTextBesideThemAreChangedAsLittleAsTheirTemplateRequires(t *testing.T) {
	const pairs, first, joined, text = "one call in a message", "before the first answer", "one text of the assistant", "text or the calls"
	templates := map[string]*Format{}
	for _, ft := range loadTemplates(t) {
		f, _, _ := formatOf(t, ft)
		templates[ft.Name] = f
	}
	for _, c := range []struct {
		template, shape, want string
		notes                 []string
	}{
		{"meta-llama-Llama-3.1-8B-Instruct", "s u c t u", "system s1-text user u1-text assistant c1-text ipython t1-text user u2-text assistant", nil},
		{"meta-llama-Llama-3.1-8B-Instruct", "s c t u", "system s1-text user assistant c1-text ipython t1-text user u1-text assistant", []string{first}},
		{"meta-llama-Llama-3.1-8B-Instruct", "a u", "system user assistant a1-text user u1-text assistant", []string{first}},
		{"meta-llama-Llama-3.1-8B-Instruct", "u y t t u", "system user u1-text assistant y1-text assistant c1-text ipython t1-text assistant c2-text ipython t2-text user u2-text assistant", []string{pairs, text}},
		{"mistralai-Mistral-Nemo-Instruct-2407", "u x t", "[INST] u1-text [/INST] x1-text [TOOL_CALLS] c1-text t1-text", []string{text}},
		{"mistralai-Mistral-Nemo-Instruct-2407", "u x t a u", "[INST] u1-text [/INST] [TOOL_CALLS] c1-text t1-text x1-text a1-text [INST] u2-text [/INST]", []string{text, joined}},
		{"mistralai-Mistral-Nemo-Instruct-2407", "u x t x t", "[INST] u1-text [/INST] [TOOL_CALLS] c1-text t1-text x1-text x2-text [TOOL_CALLS] c2-text t2-text", []string{text, joined}},
		{"openai-gpt-oss-120b", "u x t", "system developer user u1-text assistant x1-text assistant c1-text functions t1-text assistant", nil},
		{"openai-gpt-oss-120b", "u d t t", "system developer user u1-text assistant c1-text functions t1-text assistant c2-text functions t2-text assistant", []string{pairs}},
	} {
		got, err := templates[c.template].conversation(t.Context(), chat.Input{Messages: conversationOf(c.shape), Tools: json.RawMessage(weatherTools)})
		if err != nil {
			t.Errorf("%s, %s: %v", c.template, c.shape, err)
			continue
		}
		marks := textMarks.FindAllString(got.prompt.String(), -1)
		for i, m := range marks {
			marks[i] = m[strings.LastIndex(m, ">")+1:]
		}
		if said := strings.Join(marks, " "); said != c.want {
			t.Errorf("%s, %s: got %s, want %s", c.template, c.shape, said, c.want)
		}
		if len(got.notes) != len(c.notes) || !slices.EqualFunc(got.notes, c.notes, strings.Contains) {
			t.Errorf("%s, %s: got the notes %q, want %q", c.template, c.shape, got.notes, c.notes)
		}
	}
}

func TestWhatNoChangeShowsIsSaid(t *testing.T) {
	const users = "{% for m in messages %}{{ m.content if m.role == 'user' }}{% endfor %}"
	for _, c := range []struct {
		name, template, shape string
		want                  bool
	}{
		{"answers that the template leaves out", users, "u a u", true},
		{"messages of the user", "{% for m in messages %}{{ m.content if m.role != 'user' }}{% endfor %}", "u a", true},
		{"what shows all", "{% for m in messages %}{{ m.content }}{% endfor %}", "s u a u a", false},
	} {
		f := read(t, gguftest.Llama{Template: c.template}, "")
		got, err := f.conversation(t.Context(), chat.Input{Messages: conversationOf(c.shape)})
		if err != nil || slices.Contains(got.notes, notAllShown) != c.want {
			t.Errorf("%s: got the notes %q, %v", c.name, got.notes, err)
		}
	}
}

func TestBlankSystemTextAloneIsAnEmptyMessageOfTheUserForATemplateThatNeedsOne(t *testing.T) {
	for _, ft := range loadTemplates(t) {
		if ft.Name != "google-gemma-2-2b-it" {
			continue
		}
		f, _, _ := formatOf(t, ft)
		for _, messages := range [][]chat.Message{
			{{Role: "system"}},
			{{Role: "system", Content: " "}, {Role: "system", Content: "\n"}},
		} {
			got, err := f.conversation(t.Context(), chat.Input{Messages: messages})
			if want := "<bos><start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\n"; err != nil || got.prompt.String() != want {
				t.Errorf("%q: got %q, %v, want %q", messages, got.prompt.String(), err, want)
			}
		}
	}
}

func TestSystemTextThatATemplateReadsAndLeavesOutIsNotLost(t *testing.T) {
	for _, ft := range loadTemplates(t) {
		if ft.Name != "HuggingFaceTB-SmolLM3-3B" {
			continue
		}
		f, _, _ := formatOf(t, ft)
		got, err := f.conversation(t.Context(), chat.Input{Messages: []chat.Message{{Role: "system", Content: "/no_think"}, {Role: "user", Content: "probe text, hello"}}})
		if err != nil || len(got.notes) > 0 || !strings.Contains(got.prompt.String(), "Reasoning Mode: /no_think") {
			t.Errorf("got %q with the notes %q, %v", got.prompt.String(), got.notes, err)
		}
	}
}

func TestAnAnswerIsContinuedInAConversationThatItsTemplateRefuses(t *testing.T) {
	for _, ft := range loadTemplates(t) {
		f, _, _ := formatOf(t, ft)
		for _, shape := range []string{"s u a", "u a s u a", "u u a", "u a a", "u s a", "s a"} {
			if fails := refused[ft.Name]; fails != nil && fails(shape) {
				continue
			}
			in := chat.Input{Messages: conversationOf(shape), Continue: true}
			got, err := f.conversation(t.Context(), in)
			if errors.Is(err, chat.ErrNotContinued) && ft.Name == "yandex-YandexGPT-5-Lite-8B-instruct-t" {
				continue // leaves out a last message of the assistant
			}
			if err != nil {
				t.Errorf("%s, %s: %v", ft.Name, shape, err)
				continue
			}
			prompt := got.prompt.String()
			if missing := missingOf(prompt, textsOf(in.Messages)); len(missing) > 0 || !strings.HasSuffix(prompt, in.Messages[len(in.Messages)-1].Content) {
				t.Errorf("%s, %s: %q is missing, or the prompt does not end in the answer: %q", ft.Name, shape, missing, prompt)
			}
		}
	}
}
