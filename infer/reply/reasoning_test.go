package reply

import "testing"

func TestDetect_FindsTheTagOfTheFamily(t *testing.T) {
	for _, c := range []struct{ template, control, want string }{
		{"", "", "<think>"},
		{"content.split('[/THINK]')", "", "[THINK]"},
		{"content.split('</think>')", "<|END_THINKING|>", "<|START_THINKING|>"},
		{templates["apriel"], "", "Here are my reasoning steps:"},
	} {
		f := Detect(c.template, true, func(text string) bool { return text == c.control })
		if f.Tag.Open != c.want {
			t.Errorf("%q with the control token %q: %q, want %q", c.template, c.control, f.Tag.Open, c.want)
		}
	}
}

func TestOpenedBy_FindsTheReasoningThatAPromptOpens(t *testing.T) {
	for prompt, want := range map[string]string{
		"<|im_start|>assistant\n<think>\n":               "</think>",
		"<|im_start|>assistant\n<think>\n\n</think>\n\n": "",
		"<|CHATBOT_TOKEN|><|START_THINKING|>":            "<|END_THINKING|>",
		"say <think> please\n<|im_start|>assistant\n":    "",
	} {
		if got := formatOf(t, "generic").OpenedBy(prompt); got != want {
			t.Errorf("%q: %q, want %q", prompt, got, want)
		}
	}
}

func TestEnd_DropsATruncatedHeader(t *testing.T) {
	f := formatOf(t, "harmony")
	for _, c := range []struct {
		text  string
		whole bool
		want  string
	}{
		{"<|channel|>ana", false, ""},
		{"assistant<|channel|>", false, ""},
		{"assis", false, ""},
		{"assis", true, "assis"},
		{"Hi.", false, "Hi."},
	} {
		p := f.Parser(Options{Prompt: "<|start|>assistant"})
		d := p.Text(c.text)
		d.Add(p.End(c.whole))
		if d.Content != c.want || d.Reasoning != "" {
			t.Errorf("%q, %t: %+v, want %q", c.text, c.whole, d, c.want)
		}
	}
}

func TestParser_RemovesTheTagsAroundGranitesContent(t *testing.T) {
	f := Detect("<|tool_call|> between <think></think> and <response></response>", true, func(string) bool { return false })
	for _, c := range []struct{ text, content, reasoning string }{
		{"<think>Hm.</think>\n<response>\nHi <response>.\n</response>\n", "Hi <response>.", "Hm."},
		{"<response>Hi.</response>", "Hi.", ""},
		{"Hi <response>.</response>", "Hi <response>.</response>", ""},
		{"<think>Hm.</think><response>Hi", "Hi", "Hm."},
	} {
		for n := range len(c.text) + 1 {
			got := read(f, Options{}, c.text[:n], c.text[n:])
			if got.Content != c.content || got.Reasoning != c.reasoning {
				t.Fatalf("%q, cut at %d: %+v, want %q and %q", c.text, n, got, c.content, c.reasoning)
			}
		}
	}
	other := formatOf(t, "granite")
	if got := read(other, Options{}, "<response>Hi.</response>"); got.Content != "<response>Hi.</response>" {
		t.Errorf("where the template does not say so: %+v", got)
	}
}
