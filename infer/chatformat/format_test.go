package chatformat

import (
	"slices"
	"testing"

	"m40-llm/infer/chat"
)

func TestFormat_NamesWhatItsTemplateReadsAboutThinking(t *testing.T) {
	for text, want := range map[string][]string{
		"{{ messages }}": nil,
		"{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}": {"enable_thinking"},
		"{% if thinking %}<think>{% endif %}{{ reasoning_effort }}":                                  {"thinking", "reasoning_effort"},
	} {
		template, err := chat.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Format{probe: probe{template: template}}).ThinkingVars(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := new(Format).ThinkingVars(); got != nil {
		t.Errorf("without a template: %q", got)
	}
}
