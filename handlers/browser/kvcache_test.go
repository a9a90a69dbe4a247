package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

// The page says whether the chat is warm, what that means and how much it takes, and deletes it.
func TestPage_WarmAndColdChats(t *testing.T) {
	t.Parallel()
	source := axe(t)
	h := handlerstest.NewHome(t)
	server := handlerstest.ServeChats(t, h.Engine, h.Chats)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.unfold()
	if b.value("String(document.querySelector('#kvcache').hidden)") != "true" {
		t.Error("an empty page has a cache")
	}
	b.set("max_tokens", "60")
	b.say(handlerstest.LongQuestion)

	run("a chat is warm after its answer", func(t *testing.T) {
		b.until("document.querySelector('[data-warm]').innerText === 'warm'")
		b.until("/The next answer need not read the first \\d+ tokens of this chat again/.test(document.querySelector('#kvcache [data-about]').innerText)")
		if got := b.text("#kvcache [data-size]"); !strings.HasSuffix(got, "MB") && !strings.HasSuffix(got, "kB") {
			t.Errorf("its size is %q", got)
		}
		b.look(source, "a warm chat", "heading-order", "region", "landmark-unique")
	})
	run("its cache can be deleted", func(t *testing.T) {
		b.click("#kvcache [data-remove]")
		b.until("document.querySelector('[data-warm]').innerText === 'cold' && document.querySelector('#kvcache [data-about]').innerText.startsWith('The next answer reads the whole chat again')")
		b.look(source, "a cold chat", "heading-order", "region", "landmark-unique")
	})
	run("the owner sets the limit of all", func(t *testing.T) {
		b.script("const f = document.querySelector('#kvcache form'); f.megabytes.value = 0; f.requestSubmit()")
		b.until("document.querySelector('#kvcache [data-about]').innerText.endsWith('this server does not store keys and values.')")
	})
	if files, err := os.ReadDir(filepath.Join(h.Path, "kv")); err != nil || len(files) != 0 {
		t.Errorf("there are %v, %v", files, err)
	}
	for _, body := range []string{`{}`, `{"megabytes":-1}`, `{"megabytes":1048577}`} {
		if got := handlerstest.Post(t, server, "/caches", body, "Origin", server.URL); got.Status != 400 || !strings.Contains(got.Body, "megabytes") {
			t.Errorf("%s: %s", body, fmt.Sprint(got.Status, got.Body))
		}
	}
}
