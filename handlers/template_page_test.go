package handlers_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/gguf/gguftest"
)

func TestTheOwnerEditsTheChatTemplateOfAModel(t *testing.T) {
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t))
	server.Put(t, "mine.gguf", gguftest.TinyLlama(gguftest.Llama{}))
	own := filepath.Join(server.Dir, "mine.jinja")
	show := func(query string) handlerstest.Response {
		return handlerstest.Call(t, server.Server, http.MethodGet, "/models/template?"+query, "", "Accept", handlerstest.BrowserAccept)
	}
	submit := func(do, source, chat string) handlerstest.Response {
		return handlerstest.Submit(t, server.Server, "/models/template", url.Values{"name": {"mine"}, "do": {do}, "source": {source}, "chat": {chat}})
	}
	prompt := func() string {
		var rendered struct{ Prompt string }
		mustDecode(t, handlerstest.Post(t, server.Server, "/apply-template", `{"model":"mine","messages":[{"role":"user","content":"hello"}]}`), &rendered)
		return rendered.Prompt
	}
	before := prompt()

	if got := show("name=mine"); got.Status != http.StatusOK || !strings.Contains(got.Body, "&lt;|im_start|&gt;user\nWhat is the capital of France?&lt;|im_end|&gt;") {
		t.Errorf("the page does not show what the template makes of a conversation: %d, %s", got.Status, got.Body)
	}
	if got := submit("preview", "[{{ messages[-1].content }}]\r\n", ""); got.Status != http.StatusOK || !strings.Contains(got.Body, ">[And of Italy?]</pre>") {
		t.Errorf("the preview: %d, %s", got.Status, got.Body)
	}
	if _, err := os.Stat(own); err == nil || prompt() != before {
		t.Error("a preview changed the model")
	}
	chat := handlerstest.ChatOf(t, handlerstest.Submit(t, server.Server, "/", url.Values{"text": {"a question"}, "system": {""}, "once": {"a"}}))
	if got := submit("preview", "[{{ messages[0].content }}]", chat); !strings.Contains(got.Body, ">[a question]</pre>") {
		t.Errorf("the preview on a chat: %s", got.Body)
	}

	for name, c := range map[string]struct{ source, says string }{
		"a template that cannot be parsed": {"{% for m in messages %}", "cannot be used"},
		"an empty one":                     {" \n", "is empty"},
		"one that is too long":             {strings.Repeat("x", 300_000), "at most 262144 are possible"},
	} {
		got := submit("save", c.source, "")
		if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, c.says) || !strings.Contains(got.Body, strings.TrimSpace(c.source)+"\n</textarea>") && !strings.Contains(got.Body, strings.TrimSpace(c.source)+"</textarea>") {
			t.Errorf("%s: %d, want 400 with %q and the text as it was sent: %.2000s", name, got.Status, c.says, got.Body)
		}
	}
	if prompt() != before {
		t.Error("a template that was refused is used")
	}

	if got := submit("save", "own: {{ messages[0].content }}", ""); got.Status != http.StatusSeeOther {
		t.Fatalf("saved: %d, %s", got.Status, got.Body)
	}
	if got := prompt(); got != "own: hello" {
		t.Errorf("after the template was saved, the prompt is %q", got)
	}
	if got := show("name=mine&saved=1"); !strings.Contains(got.Body, "mine.jinja") || !strings.Contains(got.Body, "Saved.") {
		t.Error("the page does not say where the template is from")
	}
	if got := submit("reset", "whatever is in the field", ""); got.Status != http.StatusSeeOther {
		t.Fatalf("reset: %d, %s", got.Status, got.Body)
	}
	if _, err := os.Stat(own); err == nil || prompt() != before {
		t.Error("the template is not that of the file again")
	}

	for name, c := range map[string]struct {
		query  string
		status int
	}{
		"a model that there is not": {"name=none", http.StatusNotFound},
		"a path":                    {"name=../mine", http.StatusNotFound},
		"a chat that there is not":  {"name=mine&chat=0000000000000000", http.StatusNotFound},
		"the template of the guide": {"name=guide", http.StatusOK},
	} {
		if got := show(c.query); got.Status != c.status {
			t.Errorf("%s: %d, want %d", name, got.Status, c.status)
		}
	}
	if got := handlerstest.Submit(t, server.Server, "/models/template", url.Values{"name": {"guide"}, "do": {"save"}, "source": {"x"}}); got.Status != http.StatusConflict || !strings.Contains(got.Body, "built into the program") {
		t.Errorf("to change the built-in model: %d", got.Status)
	}
}

func TestATemplateThatCannotBeUsedIsShownInTheListOfModels(t *testing.T) {
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t))
	server.Put(t, "broken.gguf", gguftest.TinyLlama(gguftest.Llama{Template: "{% for m in messages %}"}))
	got := handlerstest.Call(t, server.Server, http.MethodGet, "/models", "", "Accept", handlerstest.BrowserAccept).Body
	if !strings.Contains(got, "chat template cannot be used") || !strings.Contains(got, "raw text only") {
		t.Error("the page does not say that the template cannot be used")
	}
}

func TestOnlyTheOwnerSeesAndChangesChatTemplates(t *testing.T) {
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t), func(c *handlers.Config) { handlerstest.Lock(t, c, "open sesame") })
	if got := handlerstest.Submit(t, server.Server, "/models/template", url.Values{"name": {"guide"}, "do": {"preview"}}); got.Status != http.StatusUnauthorized {
		t.Errorf("without the key: %d", got.Status)
	}
}
