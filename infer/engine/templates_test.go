package engine

import (
	"encoding/json"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/gguf/gguftest"
)

func TestARequestWithToolsUsesTheTemplateAndTheSyntaxForTools(t *testing.T) {
	const reply = `[TOOL_CALLS][{"name": "add", "arguments": {}}]`
	plain, forTools := gguftest.ChatML, "{{ messages[0].content }}[AVAILABLE_TOOLS]{{ tools[0].function.name }}{# [TOOL_CALLS] #}"
	b := newBench(t, func(b *bench, _ *Options) {
		b.files["toy"] = gguftest.TinyLlama(gguftest.Llama{Context: 1024, Template: plain, Keys: map[string]any{"tokenizer.chat_template.tool_use": forTools}})
	})
	hashes := map[string]bool{}
	for _, c := range []struct {
		name   string
		tools  bool
		prompt string
		calls  int
	}{
		{"with tools", true, "x[AVAILABLE_TOOLS]add", 1},
		{"without tools", false, "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n", 0},
	} {
		r := callRequest()
		r.Messages = []chat.Message{{Role: "user", Content: "x"}}
		if !c.tools {
			r.Tools = json.RawMessage(nil)
		}
		b.recite(reply)
		view, err := b.Render(t.Context(), r)
		if err != nil || view.Prompt != c.prompt {
			t.Errorf("%s: the prompt is %q, %v, want %q", c.name, view.Prompt, err, c.prompt)
		}
		var done *infer.Done
		calls := 0
		for e, err := range b.Generate(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Token != nil {
				for _, call := range e.Token.Calls {
					if call.Name != "" {
						calls++
					}
				}
			}
			if e.Done != nil {
				done = e.Done
				for _, call := range e.Done.Calls {
					if call.Name != "" {
						calls++
					}
				}
			}
		}
		if calls != c.calls {
			t.Errorf("%s: %d calls, want %d", c.name, calls, c.calls)
		}
		hashes[done.Receipt.TemplateHash] = true
	}
	if len(hashes) != 2 {
		t.Errorf("the receipts name %d templates, want 2", len(hashes))
	}
}
