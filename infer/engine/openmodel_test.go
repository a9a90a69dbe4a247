package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// countingCatalog serves one file under the names "m" and "alias", and counts how
// often it is opened.
type countingCatalog struct {
	file  []byte
	info  infer.ModelInfo // without its name
	opens atomic.Int64
}

func (c *countingCatalog) Models(context.Context) ([]infer.ModelInfo, error) { return nil, nil }

func (c *countingCatalog) Open(name string) (*gguf.File, infer.ModelInfo, error) {
	c.opens.Add(1)
	if name != "m" && name != "alias" {
		return nil, infer.ModelInfo{}, fault.Errorf(fault.CodeNotFound, "there is no model %q", name)
	}
	f, err := gguf.Parse(c.file)
	c.info.Name = "m"
	return f, c.info, err
}

func (c *countingCatalog) OwnTemplate(infer.ModelInfo) (string, error) {
	return c.info.ChatTemplate, nil
}

func newSources(c infer.Catalog) *openModels {
	return &openModels{catalog: c, log: slog.New(slog.DiscardHandler), open: map[openName]*openModel{}}
}

func TestSources_OneOpenFileIsShared(t *testing.T) {
	c := &countingCatalog{file: gguftest.TinyLlama(gguftest.Llama{})}
	l := newSources(c)
	first, err := l.acquire(t.Context(), "alias", "")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			m, err := l.acquire(t.Context(), []string{"alias", "m"}[i%2], "")
			if m != first || err != nil {
				t.Errorf("acquired another source, %v", err)
				return
			}
			l.release(m)
		})
	}
	wg.Wait()
	if n := c.opens.Load(); n != 1 {
		t.Errorf("the file was opened %d times", n)
	}
	l.release(first)
	if len(l.open) != 0 || len(first.file.Header()) != 0 {
		t.Errorf("%d sources are left, %d bytes of the file's header are held", len(l.open), len(first.file.Header()))
	}
}

func TestSources_AFailureIsNotRemembered(t *testing.T) {
	c := &countingCatalog{file: []byte("rubbish")}
	l := newSources(c)
	for range 2 {
		if _, err := l.acquire(t.Context(), "m", ""); err == nil {
			t.Fatal("rubbish was opened")
		}
	}
	if len(l.open) != 0 || c.opens.Load() != 2 {
		t.Errorf("%d sources are left after %d tries", len(l.open), c.opens.Load())
	}
	c.file = gguftest.TinyLlama(gguftest.Llama{})
	m, err := l.acquire(t.Context(), "m", "")
	if err != nil {
		t.Fatal(err)
	}
	l.release(m)
}

func TestSource_Prompt(t *testing.T) {
	user := []chat.Message{{Role: "user", Content: "hi"}}
	const plain = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
	tests := []struct {
		name     string
		template string // "": none
		addBOS   bool
		request  infer.Request
		prompt   string
		first    int32
		code     fault.Code
		message  string
	}{
		{"a conversation is rendered by the file's template", "{{ messages[0].content }}!", false, infer.Request{Messages: user}, "hi!", 3 + 'h', "", ""},
		{"a model without a template gets ChatML", "", false, infer.Request{Messages: user}, plain, 1, "", ""},
		{"the first token is added where the template leaves it out", gguftest.ChatML, true, infer.Request{Messages: user}, plain, 0, "", ""},
		{"the first token is not added where the template writes it", "{{ bos_token }}x", true, infer.Request{Messages: user}, "<|endoftext|>x", 0, "", ""},
		{"a raw prompt gets the tokens that the file adds", "", true, infer.Request{Prompt: "<|im_start|>x"}, "<|im_start|>x", 0, "", ""},
		{"a message is continued", gguftest.ChatML, false, infer.Request{Messages: append(user, chat.Message{Role: "assistant", Content: "yes, "}), Continue: true},
			"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes, ", 1, "", ""},
		{"a refusal by the template is told", "{{ raise_exception('roles must alternate') }}", false, infer.Request{Messages: user}, "", 0, fault.CodeTemplate, "roles must alternate"},
		{"a template that cannot be read is told", "{% if %}", false, infer.Request{Messages: user}, "", 0, fault.CodeTemplate, "only raw prompts work"},
		{"a template that cannot be read does not stop raw prompts", "{% if %}", false, infer.Request{Prompt: "x"}, "x", 3 + 'x', "", ""},
		{"a prompt that comes to nothing is refused", "{{ '' }}", false, infer.Request{Messages: user}, "", 0, fault.CodeInvalid, "no tokens"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := gguftest.TinyLlama(gguftest.Llama{Template: tt.template, NoTemplate: tt.template == "", AddBOS: tt.addBOS})
			l := newSources(&countingCatalog{file: file})
			m, err := l.acquire(t.Context(), "m", "")
			if err != nil {
				t.Fatal(err)
			}
			defer l.release(m)
			p, err := m.prompt(t.Context(), tt.request, time.Time{})
			text, tokens := p.text, p.tokens
			if tt.code != "" {
				if e := fault.Of("", err); e.Code != tt.code || !strings.Contains(e.Message, tt.message) {
					t.Errorf("error %+v, want %s with %q", e, tt.code, tt.message)
				}
				return
			}
			if err != nil || text != tt.prompt || tokens[0] != tt.first {
				t.Errorf("%q, %v, %v; want %q and first token %d", text, tokens, err, tt.prompt, tt.first)
			}
		})
	}
}

func TestAModelIsRenderedByTheChatTemplateThatTheCatalogGivesIt(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{})
	keys := map[string]bool{}
	for _, template := range []string{"", "own {{ messages[0].content }}"} {
		l := newSources(&countingCatalog{file: file, info: infer.ModelInfo{ChatTemplate: template}})
		m, err := l.acquire(t.Context(), "m", "")
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.prompt(t.Context(), infer.Request{Messages: []chat.Message{{Role: "user", Content: "hi"}}}, time.Time{})
		if own := p.text == "own hi"; err != nil || own != (template != "") {
			t.Errorf("with %q: got %q, %v", template, p.text, err)
		}
		keys[m.key()] = true
		l.release(m)
	}
	if len(keys) != 2 {
		t.Error("two templates of a file are the same model")
	}
}

func TestSource_TellsWhatAFileLeavesOpen(t *testing.T) {
	whole := gguftest.TinyLlama(gguftest.Llama{})
	bare := gguftest.TinyLlama(gguftest.Llama{NoTemplate: true})
	withoutPre := func(file []byte) []byte {
		return bytes.ReplaceAll(file, []byte("tokenizer.ggml.pre"), []byte("tokenizer.ggml.xxx"))
	}
	for name, tt := range map[string]struct {
		file []byte
		says []string
	}{
		"nothing":               {whole, nil},
		"the template":          {bare, []string{chatformat.NoTemplate}},
		"how text is cut":       {withoutPre(whole), []string{"does not name its pre-tokenizer (tokenizer.ggml.pre)"}},
		"the template and that": {withoutPre(bare), []string{chatformat.NoTemplate, "; the file does not name its pre-tokenizer"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newSources(&countingCatalog{file: tt.file})
			m, err := l.acquire(t.Context(), "m", "")
			if err != nil {
				t.Fatal(err)
			}
			defer l.release(m)
			got := m.notices()
			if (got == "") != (tt.says == nil) {
				t.Errorf("it says %q", got)
			}
			for _, want := range tt.says {
				if !strings.Contains(got, want) {
					t.Errorf("it says %q, want %q in it", got, want)
				}
			}
		})
	}
}

func TestSources_AChatTemplateThatWasPutBesideAnOpenModelIsUsedByTheNextRequest(t *testing.T) {
	c := &countingCatalog{file: gguftest.TinyLlama(gguftest.Llama{})}
	l := newSources(c)
	acquire := func() *openModel {
		t.Helper()
		m, err := l.acquire(t.Context(), "m", "")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	rendered := func(m *openModel) string {
		t.Helper()
		p, err := m.prompt(t.Context(), infer.Request{Messages: []chat.Message{{Role: "user", Content: "hello"}}}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return p.text
	}
	first := acquire()
	before := rendered(first)
	c.info.ChatTemplate = "own: {{ messages[0].content }}"
	second := acquire()
	if again := acquire(); again != second || second == first || c.opens.Load() != 2 {
		t.Errorf("after a change of the template: opened %d times, want 2, and then the same model for all", c.opens.Load())
	}
	if got := rendered(second); got != "own: hello" || second.key() == first.key() {
		t.Errorf("with another template: the prompt is %q", got)
	}
	if got := rendered(first); got != before {
		t.Errorf("a request that was there before the change: the prompt is %q, want %q", got, before)
	}
	c.info.ChatTemplate = ""
	if got := rendered(acquire()); got != before {
		t.Errorf("after the template was taken away: the prompt is %q, want %q", got, before)
	}
}

func TestRenderPreviewsAnotherChatTemplate(t *testing.T) {
	e := newBench(t, nil)
	r := infer.DefaultRequest()
	r.Messages = []chat.Message{{Role: "user", Content: "hello"}}
	before, err := e.Render(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	r.ChatTemplate = "<{{ messages[0].content }}>"
	if got, err := e.Render(t.Context(), r); err != nil || got.Prompt != "<hello>" || len(got.Tokens) == 0 {
		t.Errorf("the preview is %q with %d tokens, %v", got.Prompt, len(got.Tokens), err)
	}
	r.ChatTemplate = "{% if %}"
	_, err = e.Render(t.Context(), r)
	if known, ok := errors.AsType[*fault.Error](err); !ok || known.Code != fault.CodeInvalid || known.Param != "chat_template" {
		t.Errorf("a template that cannot be parsed: %v", err)
	}
	for _, err := range e.Generate(t.Context(), r) {
		if known, ok := errors.AsType[*fault.Error](err); !ok || known.Code != fault.CodeInvalid || known.Param != "chat_template" {
			t.Errorf("an answer with a template of its own: %v", err)
		}
	}
	r.ChatTemplate = ""
	if got, err := e.Render(t.Context(), r); err != nil || got.Prompt != before.Prompt {
		t.Errorf("after the preview: %q, %v", got.Prompt, err)
	}
}
