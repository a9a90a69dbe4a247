package hub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub"
)

func TestAModelUsesTheChatTemplateBesideIt(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{Template: "of the file"})
	parts := gguftest.SplitTinyLlama(gguftest.Llama{Template: "of the file"}, 2)
	dir := folder(t, map[string][]byte{
		"own.gguf": file, "own.jinja": []byte("\uFEFF{{ 'own' }}\n"),
		"plain.gguf":                file,
		"empty.gguf":                file,
		"empty.jinja":               nil,
		"split-00001-of-00002.gguf": parts[0], "split-00002-of-00002.gguf": parts[1], "split.jinja": []byte("of a split model"),
	})
	for _, c := range []struct{ given, model, used, described, from string }{
		{"", "own", "{{ 'own' }}\n", "{{ 'own' }}\n", "own.jinja"},
		{"", "split", "of a split model", "of a split model", "split.jinja"},
		{"", "plain", "", "of the file", ""},
		{"", "empty", "", "of the file", ""},
		{"of all", "own", "of all", "of all", ""},
		{"of all", "plain", "of all", "of all", ""},
		{"of all", "builtin", "", "of the file", ""},
	} {
		h := hub.New(hub.Options{Dir: dir, Builtin: map[string][]byte{"builtin": file}})
		h.SetTemplate(c.given)
		opened, info, err := h.Open(c.model)
		if err != nil {
			t.Fatal(err)
		}
		opened.Close()
		details, err := h.Details(c.model)
		if err != nil {
			t.Fatal(err)
		}
		from := ""
		if details.Template.File != "" {
			from = filepath.Base(details.Template.File)
		}
		if info.ChatTemplate != c.used || details.Template.Source != c.described || from != c.from {
			t.Errorf("%s with %q for all: uses %q, is described with %q from %q; want %q, %q, %q", c.model, c.given, info.ChatTemplate, details.Template.Source, from, c.used, c.described, c.from)
		}
	}
}

func TestAModelWithoutAChatTemplateContinuesText(t *testing.T) {
	bare := gguftest.TinyLlama(gguftest.Llama{NoTemplate: true})
	dir := folder(t, map[string][]byte{
		"bare.gguf":     bare,
		"template.gguf": gguftest.TinyLlama(gguftest.Llama{}),
		"named.gguf":    gguftest.TinyLlama(gguftest.Llama{NoTemplate: true, Keys: map[string]any{"tokenizer.chat_template.tool_use": "x"}}),
		"given.gguf":    bare, "given.jinja": []byte("x"),
	})
	h := hub.New(hub.Options{Dir: dir})
	check := func(want map[string]bool) {
		t.Helper()
		for _, m := range models(t, h) {
			if m.Continues != want[m.Name] || m.Error != "" {
				t.Errorf("%s: continues text %v, want %v; %s", m.Name, m.Continues, want[m.Name], m.Error)
			}
		}
	}
	check(map[string]bool{"bare": true})
	if err := os.WriteFile(filepath.Join(dir, "bare.jinja"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(nil)
}

func TestAChatTemplateThatCannotBeReadIsAnError(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{})
	dir := folder(t, map[string][]byte{"large.gguf": file, "large.jinja": make([]byte, 300<<10), "folder.gguf": file})
	if err := os.Mkdir(filepath.Join(dir, "folder.jinja"), 0o700); err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{"large": "large.jinja: it has more than 262144 bytes", "folder": "not a regular file"} {
		_, _, err := hub.New(hub.Options{Dir: dir}).Open(model)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that says %q", model, err, want)
		}
	}
}

func TestModelsSayWhyTheirChatTemplatesCannotBeUsed(t *testing.T) {
	model := func(template string, keys map[string]any) []byte {
		return gguftest.TinyLlama(gguftest.Llama{Template: template, Keys: keys})
	}
	dir := folder(t, map[string][]byte{
		"good.gguf":        model("", nil),
		"unclosed.gguf":    model("{% for m in messages %}", nil),
		"operator.gguf":    model("{{ 1 + }}", nil),
		"tools.gguf":       model("", map[string]any{"tokenizer.chat_template.tool_use": "{% if %}"}),
		"bare.gguf":        gguftest.TinyLlama(gguftest.Llama{NoTemplate: true}),
		"mended.gguf":      model("{% for m in messages %}", nil),
		"mended.jinja":     []byte("{{ messages[0].content }}"),
		"worsened.gguf":    model("", nil),
		"worsened.jinja":   []byte("{% endif %}"),
		"unreadable.gguf":  model("", nil),
		"unreadable.jinja": []byte("\xff\xfe\xff"),
	})
	problems, errors := map[string]string{}, map[string]string{}
	for _, m := range models(t, hub.New(hub.Options{Dir: dir})) {
		problems[m.Name], errors[m.Name] = m.TemplateProblem, m.Error
	}
	for name, want := range map[string]string{
		"good": "", "bare": "", "mended": "", "unreadable": "",
		"unclosed": "cannot be used", "operator": "cannot be used", "tools": "tool_use: ", "worsened": "endif",
	} {
		if got := problems[name]; (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: the problem of its template is %q, want %q in it", name, got, want)
		}
	}
	if got := errors["unreadable"]; !strings.Contains(got, "template cannot be read") {
		t.Errorf("a template that cannot be read: the list says %q", got)
	}
}

func TestAModelIsRemovedWithItsOwnChatTemplate(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{})
	dir := folder(t, map[string][]byte{"mine.gguf": file, "mine.jinja": []byte("x"), "other.gguf": file, "other.jinja": []byte("y")})
	h := hub.New(hub.Options{Dir: dir})
	if err := h.Remove("mine"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"mine.gguf": false, "mine.jinja": false, "other.gguf": true, "other.jinja": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", name, err == nil, want)
		}
	}
}
