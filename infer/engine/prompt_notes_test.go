package engine

import (
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/gguf/gguftest"
)

func TestAnAnswerSaysWhatTheChatTemplateRequired(t *testing.T) {
	const noSystem = `{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
`
	e := newBench(t, func(b *bench, _ *Options) {
		b.files["toy"] = gguftest.TinyLlama(gguftest.Llama{Context: 1024, Template: noSystem})
	})
	user := chat.Message{Role: "user", Content: "hi"}
	for _, c := range []struct {
		name     string
		messages []chat.Message
		notes    []string
	}{
		{"a conversation that the template takes has no notes", []chat.Message{user}, nil},
		{"a system message is placed elsewhere", []chat.Message{{Role: "system", Content: "Be brief."}, user}, []string{"the chat template takes no system message: system text is in a message of the user"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := infer.DefaultRequest()
			r.Messages, r.MaxTokens = c.messages, 1
			var first, last []string
			for event, err := range e.Generate(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
				if event.Prompt != nil {
					first = event.Prompt.Notes
				}
				if event.Done != nil {
					last = event.Done.Notes
				}
			}
			view, err := e.Render(t.Context(), r)
			if err != nil || !slices.Equal(first, c.notes) || !slices.Equal(last, c.notes) || !slices.Equal(view.Notes, c.notes) {
				t.Errorf("the event has %q, the record %q, the rendered prompt %q, %v; want %q", first, last, view.Notes, err, c.notes)
			}
			if !strings.Contains(view.Prompt, c.messages[0].Content) {
				t.Errorf("%q lacks %q", view.Prompt, c.messages[0].Content)
			}
		})
	}
}
