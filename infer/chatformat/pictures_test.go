package chatformat

import (
	"strings"
	"testing"

	"m40-llm/infer/chat"
	"m40-llm/infer/gguf/gguftest"
)

func TestPicturesAreShownByEachTemplate(t *testing.T) {
	pictures := Pictures{Placeholder: "<image>", Texts: []string{"[one]", "[two]"}}
	messages := []chat.Message{
		{Role: "user", Content: chat.PictureMark + "What is <image>?", Pictures: [][]byte{nil}},
		{Role: "assistant", Content: "A cat."},
		{Role: "user", Content: "And this: " + chat.PictureMark, Pictures: [][]byte{nil}},
	}
	for name, c := range map[string]struct{ template, want string }{
		"with lists of texts and pictures": {
			"{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}{% endif %}|{% endfor %}",
			"[one]What is <image>?|A cat.|And this: [two]|",
		},
		"with texts alone":           {"{% for m in messages %}{{ m.content }}|{% endfor %}", "[one]\nWhat is <image>?|A cat.|And this: [two]\n|"},
		"which fails on lists":       {"{% for m in messages %}{{ m.role + ': ' + m.content + '|' }}{% endfor %}", "user: [one]\nWhat is <image>?|assistant: A cat.|user: And this: [two]\n|"},
		"which refuses lists":        {"{% for m in messages %}{% if m.content is not string %}{{ raise_exception('no list') }}{% endif %}{{ m.content }}|{% endfor %}", "[one]\nWhat is <image>?|A cat.|And this: [two]\n|"},
		"the one for a file without": {"", "<|im_start|>user\n[one]\nWhat is <image>?<|im_end|>\n<|im_start|>assistant\nA cat.<|im_end|>\n<|im_start|>user\nAnd this: [two]\n<|im_end|>\n<|im_start|>assistant\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := read(t, gguftest.Llama{Template: c.template}, "")
			got, err := f.Prompt(t.Context(), chat.Input{Messages: messages}, pictures)
			if err != nil || got.Text != c.want {
				t.Errorf("got %q, %v, want %q", got.Text, err, c.want)
			}
		})
	}
	t.Run("which leaves contents out", func(t *testing.T) {
		f := read(t, gguftest.Llama{Template: "{% for m in messages %}{{ m.role }}{% endfor %}"}, "")
		if got, err := f.Prompt(t.Context(), chat.Input{Messages: messages}, pictures); err == nil || !strings.Contains(err.Error(), "shows 0 of 2 pictures") {
			t.Errorf("got %q, %v", got.Text, err)
		}
	})
}
