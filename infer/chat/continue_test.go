package chat

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
)

func TestContinueEndsThePromptBehindTheLastMessage(t *testing.T) {
	thinking := `{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content is defined %}<think>{{ m.reasoning_content.strip() }}</think>{% endif %}{{ m.content | trim }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`
	for _, c := range []struct {
		what, source string
		last         Message
		want, err    string
	}{
		{"content as it is", ChatMLSource, Message{Role: "assistant", Content: "Once upon"}, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nOnce upon", ""},
		{"a blank at the end stays", ChatMLSource, Message{Role: "assistant", Content: "Once "}, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nOnce ", ""},
		{"a blank at the end that the template trims is put back", thinking, Message{Role: "assistant", Content: " Once \n"}, "<|user|>hi<|end|><|assistant|>Once \n", ""},
		{"content that repeats the user's words", ChatMLSource, Message{Role: "assistant", Content: "hi"}, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nhi", ""},
		{"content that spells the end of its turn", ChatMLSource, Message{Role: "assistant", Content: "a<|im_end|>b"}, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\na<|im_end|>b", ""},
		{"nothing yet opens the turn", ChatMLSource, Message{Role: "assistant"}, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", ""},
		{"blanks only open the turn", thinking, Message{Role: "assistant", Content: " \n"}, "<|user|>hi<|end|><|assistant|>", ""},
		{"reasoning without content", thinking, Message{Role: "assistant", ReasoningContent: "Let me see"}, "<|user|>hi<|end|><|assistant|><think>Let me see", ""},
		{"reasoning with content", thinking, Message{Role: "assistant", ReasoningContent: "Let me see", Content: "4"}, "<|user|>hi<|end|><|assistant|><think>Let me see</think>4", ""},
		{"the part behind a split", `{% for m in messages %}{{ m.role }}:{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endfor %}`, Message{Role: "assistant", Content: "<think>a</think>b c"}, "user:hi</s>assistant:b c", ""},
		{"content printed twice ends behind the second", `{% for m in messages %}{{ m.content }}/{{ m.content }};{% endfor %}`, Message{Role: "assistant", Content: "x"}, "hi/hi;x/x", ""},
		{"content that the template drops", `{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}`, Message{Role: "assistant", Content: "x"}, "", "leaves out or changes"},
		{"content that the template changes", `{% for m in messages %}{{ m.content | upper }}{% endfor %}`, Message{Role: "assistant", Content: "x"}, "", "leaves out or changes"},
		{"content cut short", `{% for m in messages %}{{ m.content[:2] }}{% endfor %}`, Message{Role: "assistant", Content: "xyz"}, "", "leaves out or changes"},
		{"a last message of the user", ChatMLSource, Message{Role: "user", Content: "x"}, "", "only an assistant's message"},
	} {
		t.Run(c.what, func(t *testing.T) {
			tmpl, err := Parse(c.source)
			if err != nil {
				t.Fatal(err)
			}
			p, err := tmpl.Render(context.Background(), Input{
				Messages:            []Message{{Role: "user", Content: "hi"}, c.last},
				AddGenerationPrompt: true,
				Continue:            true,
				EOSToken:            "</s>",
			})
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %q, %v, want an error with %q", p.String(), err, c.err)
				}
			case err != nil:
				t.Error(err)
			case p.String() != c.want:
				t.Error(fixtures.FirstDifference(p.String(), c.want))
			}
		})
	}
}

func TestContinueWithoutMessagesIsAnError(t *testing.T) {
	if _, err := ChatML.Render(context.Background(), Input{Continue: true}); err == nil {
		t.Error("no error")
	}
}

func TestContinueFindsTheLastTextPart(t *testing.T) {
	source := `{% for m in messages %}{{ m.role }}:{% for p in m.content %}[{{ p.text }}]{% endfor %};{% endfor %}`
	p, err := render(source, `{"messages":[{"role":"assistant","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]}`, Options{Continue: true})
	if err != nil || show(p) != "assistant:[⟦one⟧][⟦two⟧" {
		t.Errorf("got %s, %v", show(p), err)
	}
}

// The continued prompt must be a prefix of the prompt without Continue, and end with the message.
func TestContinueWorksInThePublicTemplates(t *testing.T) {
	set := loadFixtures(t)
	const last = "The answer, so far, is"
	works := 0
	for _, ft := range set.Templates {
		tmpl, err := Parse(ft.Source)
		if err != nil {
			t.Fatal(err)
		}
		request := []byte(`{"messages":[{"role":"user","content":"And?"},{"role":"assistant","content":` + jsonString(last) + `}],"tools":null,"documents":null,"add_generation_prompt":false}`)
		o := Options{BOSToken: "<s>", EOSToken: "</s>", Now: testNow}
		whole, err := tmpl.renderJSON(context.Background(), request, o, noTime)
		if err != nil || !json.Valid(request) {
			continue // refuses this conversation, continued or not
		}
		o.Continue = true
		p, err := tmpl.renderJSON(context.Background(), request, o, noTime)
		if err != nil {
			t.Logf("%s: %v", ft.Name, err)
			continue
		}
		works++
		if !strings.HasPrefix(whole.String(), p.String()) || !strings.HasSuffix(p.String(), last) {
			t.Errorf("%s: %q is not a beginning of %q that ends with the message", ft.Name, p.String(), whole.String())
		}
	}
	if works < 80 {
		t.Errorf("only %d of %d templates can continue", works, len(set.Templates))
	}
	t.Logf("%d of %d templates can continue", works, len(set.Templates))
}
