package reply

import "testing"

func TestSplitThought_FindsWhatStandsFirst(t *testing.T) {
	for _, c := range []struct {
		name, text    string
		thought, said string
		found         bool
	}{
		{"no thought", "Hello.", "", "Hello.", false},
		{"nothing", "", "", "", false},
		{"a thought", "<think>\na\n</think>\n\nb", "\na\n", "\n\nb", true},
		{"a thought of another family", "[THINK]a[/THINK]b", "a", "b", true},
		{"blank lines before it", " \n<think>a</think>b", "a", "b", true},
		{"one without an end", "<think>a\n\nb", "a\n\nb", "", true},
		{"one that the prompt opened", "a\n</think>\n\nb", "a\n", "\n\nb", true},
		{"the first end counts", "<think>a<think>b</think>c</think>d", "a<think>b", "c</think>d", true},
		{"tags of two families do not pair", "<think>a</thinking>b", "a</thinking>b", "", true},
		{"an answer about the tag", "The tag `</think>` ends it.", "", "The tag `</think>` ends it.", false},
		{"an answer that shows both tags", "So:\n<think>\na\n</think>\n", "", "So:\n<think>\na\n</think>\n", false},
		{"an end in a block of code", "```\n</think>\n```\n", "", "```\n</think>\n```\n", false},
	} {
		thought, said, found := SplitThought(c.text)
		if thought != c.thought || said != c.said || found != c.found {
			t.Errorf("%s: got %q, %q, %v", c.name, thought, said, found)
		}
	}
}

func TestOpenedBy_FindsTheThoughtThatAPromptOpens(t *testing.T) {
	for prompt, want := range map[string]string{
		"<|im_start|>assistant\n<think>\n":               "</think>",
		"<|im_start|>assistant\n<think>\n\n</think>\n\n": "",
		"<|CHATBOT_TOKEN|><|START_THINKING|>":            "<|END_THINKING|>",
		"say <think> please\n<|im_start|>assistant\n":    "",
	} {
		if got := OpenedBy(prompt); got != want {
			t.Errorf("%q: %q, want %q", prompt, got, want)
		}
	}
}
