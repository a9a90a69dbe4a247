package reply

import "testing"

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
