package chatformat

import (
	"strings"
	"testing"

	"m40-llm/infer/chat"
	"m40-llm/infer/reply"
)

// reasoningRow is what a template does with reasoning: the form in which it takes it, and
// what becomes of one in an earlier turn, in the last message and alongside a call.
type reasoningRow struct{ form, earlier, last, call string }

// formatOf returns the format of a template, and how that takes reasoning.
func formatOf(t *testing.T, ft fixtureTemplate) (*Format, probe, reasoningRow) {
	t.Helper()
	tmpl, err := chat.Parse(ft.Source)
	if err != nil {
		t.Fatalf("%s: %v", ft.Name, err)
	}
	p := newProbe(tmpl, ft.Source, ft.SpecialTokens["bos_token"], ft.SpecialTokens["eos_token"])
	f := newFormat(p, func(string) bool { return false })
	style := f.callStyle()
	form, err := p.reasoning(t.Context(), style)
	if err != nil {
		t.Fatalf("%s: %v", ft.Name, err)
	}

	shows := func(messages ...chat.Message) string {
		switch prompt, err := p.renderThinking(t.Context(), style, form, messages); {
		case err != nil:
			return "refused"
		case strings.Contains(prompt, probeReasoning):
			return "shown"
		}
		return "dropped"
	}
	answer := chat.Message{Role: "assistant", Content: probeSaid, ReasoningContent: probeReasoning}
	row := reasoningRow{"none", shows(probeQuestion, answer, probeQuestion, probeAnswer, probeQuestion), shows(probeQuestion, answer), "unknown"}
	if call, err := probeCall(style); err == nil && !style.unknown {
		row.call = shows(probeQuestion, chat.Message{Role: "assistant", ReasoningContent: probeReasoning, ToolCalls: call}, probeResult)
	}
	switch {
	case form.Field != "":
		row.form = form.Field
	case form.AsParts:
		row.form = "parts"
	case form.Close != "":
		row.form = form.Close
	}
	if form.DropWithCalls {
		row.form += " alone"
	}
	return f, p, row
}

// One that takes too long to tell is asked again, and not in every form.
func TestReasoning_ATemplateThatTakesTooLongIsNotAskedInEveryForm(t *testing.T) {
	tmpl, err := chat.Parse(`{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}{% endfor %}{% endfor %}{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	form := remember(func() (chat.ReasoningForm, error) {
		asked++
		return probe{template: tmpl}.reasoning(t.Context(), callStyle{unknown: true})
	})
	for range 2 {
		if got := form(); got != (chat.ReasoningForm{}) {
			t.Errorf("it takes %+v", got)
		}
	}
	if asked != 2 {
		t.Errorf("it was asked %d times", asked)
	}
}

// Templates of our own that take reasoning in each form, or in none.
func TestReasoning_TheFormIsFoundByRendering(t *testing.T) {
	message := func(assistant string) string {
		return `{% for message in messages %}<{{ message.role }}>{% if message.role == 'assistant' %}` + assistant + `{% else %}{{ message.content }}{% endif %}{% endfor %}`
	}
	for _, c := range []struct {
		name, source string
		want         reasoningRow
	}{
		{"ChatML knows no reasoning", chat.ChatMLSource, reasoningRow{"none", "dropped", "dropped", "unknown"}},
		{"a field", message(`{% if message.reasoning_content %}<t>{{ message.reasoning_content }}</t>{% endif %}{{ message.content }}`), reasoningRow{"reasoning_content", "shown", "shown", "unknown"}},
		{"a field of another name", message(`{% if 'thinking' in message %}<t>{{ message.thinking }}</t>{% endif %}{{ message.content }}`), reasoningRow{"thinking", "shown", "shown", "unknown"}},
		{"a field of the last message", message(`{% if loop.last %}{{ message.reasoning }}{% endif %}{{ message.content }}`), reasoningRow{"reasoning", "dropped", "shown", "unknown"}},
		{"a field that is named and not shown", message(`{# reasoning_content #}{% if message.reasoning_content %}{% endif %}{{ message.content }}`), reasoningRow{"none", "dropped", "dropped", "unknown"}},
		{"parts", message(`{% if message.content is string %}{{ message.content }}{% else %}{% for p in message.content %}{{ p[p.type] }}{% endfor %}{% endif %}`), reasoningRow{"parts", "shown", "shown", "unknown"}},
		{"parts that are data", message(`{{ message.content | tojson }}`), reasoningRow{"none", "dropped", "dropped", "unknown"}},
		{"parts in the words of Python", message(`{{ message.content | string }}`), reasoningRow{"none", "dropped", "dropped", "unknown"}},
		{"tags that are dropped", message(`{{ message.content.split('</think>')[-1] }}`), reasoningRow{"</think>", "dropped", "dropped", "unknown"}},
		{"tags of another family that are dropped", message(`{{ message.content.split('[/THINK]')[-1] }}`), reasoningRow{"[/THINK]", "dropped", "dropped", "unknown"}},
		{"tags that are written anew", message(`{% set p = message.content.split('</think>') %}{% if p|length == 2 %}<think>{{ p[0].split('<think>')[-1].strip() }}</think>{% endif %}{{ p[-1].strip() }}`), reasoningRow{"</think>", "shown", "shown", "unknown"}},
		{"tags that mean nothing", message(`{{ message.content }}`) + `{# </think> #}`, reasoningRow{"none", "dropped", "dropped", "unknown"}},
	} {
		if _, _, got := formatOf(t, fixtureTemplate{Name: c.name, Source: c.source}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// The table of the public templates. What it says of a handful is what their makers mean.
func TestReasoning_PublicTemplates(t *testing.T) {
	want := map[string]reasoningRow{
		"Qwen-Qwen3-0.6B":     {"reasoning_content", "dropped", "shown", "shown"},
		"GLM-4.6":             {"reasoning_content", "dropped", "shown", "shown"},
		"openai-gpt-oss-120b": {"thinking alone", "dropped", "shown", "shown"},
		"mistralai-Ministral-3-14B-Reasoning-2512":      {"parts", "shown", "shown", "shown"},
		"CohereForAI-c4ai-command-r7b-12-2024-tool_use": {"reasoning_content", "dropped", "dropped", "shown"},
		"ByteDance-Seed-OSS":                            {"reasoning_content", "shown", "shown", "shown"},
		"google-gemma-4-31B-it":                         {"reasoning_content", "dropped", "dropped", "shown"},
		"deepseek-ai-DeepSeek-R1-Distill-Llama-8B":      {"</think> alone", "dropped", "dropped", "dropped"},
		"deepseek-ai-DeepSeek-V3.1":                     {"</think>", "dropped", "dropped", "shown"},
		"LFM2.5-Instruct":                               {"</think>", "dropped", "shown", "unknown"},
		"HuggingFaceTB-SmolLM3-3B":                      {"none", "dropped", "dropped", "unknown"},
	}
	forms := map[string]int{}
	for _, ft := range loadTemplates(t) {
		f, p, row := formatOf(t, ft)
		t.Logf("%-52s %-20s %-8s %-8s %s", ft.Name, row.form, row.earlier, row.last, row.call)
		forms[row.form]++
		if w, known := want[ft.Name]; known && row != w {
			t.Errorf("%s: %+v, want %+v", ft.Name, row, w)
		}
		delete(want, ft.Name)

		ours := func(prompt chat.Prompt) { // reasoning is data, wherever it stands
			for _, span := range prompt {
				if !span.Content && strings.Contains(span.Text, harmless) {
					t.Errorf("%s makes reasoning its own words: %q", ft.Name, span.Text)
				}
			}
		}

		// Reasoning makes no template refuse a conversation that it takes without it.
		answer := chat.Message{Role: "assistant", Content: "yes"}
		in := chat.Input{Messages: []chat.Message{probeQuestion, answer, probeQuestion}, AddGenerationPrompt: true, BOSToken: p.bos, EOSToken: p.eos}
		if _, _, err := f.render(t.Context(), in); err != nil {
			continue
		}
		in.Messages[1].ReasoningContent, in.Reasoning = harmless, f.reasoning()
		prompt, _, err := f.render(t.Context(), in)
		if err != nil {
			t.Errorf("%s refuses reasoning: %v", ft.Name, err)
		}
		ours(prompt)
		// Reasoning without an end can be written on in every one of them.
		in.Messages = []chat.Message{probeQuestion, {Role: "assistant", ReasoningContent: harmless + "Let me see "}}
		in.Continue = true
		prompt, _, err = f.render(t.Context(), in)
		if err != nil {
			t.Errorf("%s: reasoning cannot be written on: %v", ft.Name, err)
			continue
		}
		ours(prompt)
		parser := f.Parser(reply.Options{Prompt: f.Continued(in.Messages[1], prompt.String())})
		if !strings.HasSuffix(prompt.String(), "Let me see ") || !parser.InReasoning() {
			t.Errorf("%s: what goes on behind %q is no reasoning", ft.Name, prompt.String()[max(0, len(prompt.String())-80):])
		}
	}
	for name := range want {
		t.Errorf("there is no template %s", name)
	}
	t.Logf("forms: %v", forms)
}
