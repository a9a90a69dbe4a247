package engine

import (
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/gguf/gguftest"
)

func TestMarkersOfATemplateThatWasChosenEndAnAnswer(t *testing.T) {
	user := []chat.Message{{Role: "user", Content: "hi"}}
	for _, c := range []struct {
		name      string
		template  string
		set       func(r *infer.Request)
		says      string
		want      string
		reason    infer.FinishReason
		stop      string
		hasNotice bool
	}{
		{"the end of a turn", "", nil, "Yes.<|im_end|>\nmore", "Yes.", infer.FinishStop, "", true},
		{"the beginning of another turn", "", nil, "Yes.\n<|im_start|>user\nmore", "Yes.\n", infer.FinishStop, "", true},
		{"a stop string of the request before it", "", func(r *infer.Request) { r.Stop = []string{"es"} }, "Yes.<|im_end|>", "Y", infer.FinishStop, "es", true},
		{"a marker that the request names too", "", func(r *infer.Request) { r.Stop = []string{"<|im_end|>"} }, "Yes.<|im_end|>", "Yes.", infer.FinishStop, "<|im_end|>", true},
		{"a part of a marker is text", "", nil, "Yes.<|im_", "Yes.<|im_", infer.FinishStop, "", true},
		{"ends are ignored", "", func(r *infer.Request) { r.IgnoreEOS, r.MaxTokens = true, 14 }, "Yes.<|im_end|>", "Yes.<|im_end|>", infer.FinishLength, "", true},
		{"the file has a template", gguftest.ChatML, nil, "Yes.<|im_end|>", "Yes.<|im_end|>", infer.FinishStop, "", false},
		{"a raw prompt", "", func(r *infer.Request) { r.Messages, r.Prompt, r.ParseReply = nil, "hi", false }, "Yes.<|im_end|>", "Yes.<|im_end|>", infer.FinishStop, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, func(b *bench, _ *Options) {
				b.files["toy"] = gguftest.TinyLlama(gguftest.Llama{Context: 1024, Template: c.template, NoTemplate: c.template == ""})
			})
			r := infer.DefaultRequest()
			r.Messages, r.MaxTokens, r.Params.Temperature, r.ParseReply = user, 100, 0, true
			if c.set != nil {
				c.set(&r)
			}
			b.recite(c.says)
			var text strings.Builder
			var done *infer.Done
			for e, err := range b.Generate(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Token != nil {
					text.WriteString(e.Token.Text)
				}
				if e.Done != nil {
					text.WriteString(e.Done.Text)
					done = e.Done
				}
			}
			if text.String() != c.want || done.Reason != c.reason || done.StopString != c.stop {
				t.Errorf("got %q, %s, stop string %q; want %q, %s, %q", text.String(), done.Reason, done.StopString, c.want, c.reason, c.stop)
			}
			if slices.Contains(done.Notes, chatformat.NoTemplate) != c.hasNotice {
				t.Errorf("the notes are %q", done.Notes)
			}
		})
	}
}
