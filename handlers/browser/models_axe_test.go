package browser

import (
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// TestEverybodyCanUseTheModels looks at the page about models and the menu in both
// themes, and takes their pictures.
func TestEverybodyCanUseTheModels(t *testing.T) {
	t.Parallel()
	fixtures.NeedCheck(t)
	source := axe(t)
	registry := handlerstest.NewModelRegistry(t)
	server := handlerstest.ServeModels(t, t.TempDir(), registry)
	server.Put(t, "mine/qwen2.5-0.5b-instruct-q8_0.gguf", gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0}))
	server.Put(t, "a-model-with-a-very-long-name-that-somebody-gave-it-to-tell-it-apart-from-all-the-others.gguf", gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0}))
	server.Put(t, "broken.gguf", []byte("GGUF and no more"))
	b := openBrowser(t, server.Server)
	looked := 0
	look := func(state string) {
		t.Helper()
		b.look(source, "models "+state)
		looked++
		if wide := b.value("document.documentElement.scrollWidth - innerWidth"); wide != "0" {
			t.Errorf("%s: the page is %s px too wide", state, wide)
		}
	}
	phone := func(on bool) {
		if on {
			b.size(390, 844, true)
		} else {
			b.size(1440, 900, false)
		}
	}
	for _, device := range []string{"desktop", "phone"} {
		phone(device == "phone")
		server.Memory.Store(8e9)
		b.openModels("/models")
		look(device + " list")
		b.lookUp("mistral")
		b.until("document.querySelector('#find .fielderr')")
		look(device + " wrong name")
		b.forgive("the server responded with a status of 40")
		b.lookUp("org/repo:Q1_0")
		b.until("document.querySelector('#found .verdict')?.innerText.includes('cannot be used')")
		look(device + " useless")
		server.Memory.Store(500e3)
		b.lookUp("org/repo:Q8_0")
		b.until("document.querySelector('#found .verdict')?.innerText.includes('does not fit')")
		look(device + " too large")
		server.Memory.Store(8e9)
		b.lookUp("org/repo:Q8_0")
		b.until("document.querySelector('#found .verdict')?.innerText.startsWith('fits')")
		look(device + " found")
		handlerstest.HoldBack(registry, len(handlerstest.RemoteModel)*62/100)
		b.click("#found form[action$=pull] button")
		b.until(card("running"))
		b.until("document.querySelector('[data-field=rate]').innerText !== ''")
		look(device + " downloading")
		b.click("[data-download] form[action$=pause] button")
		b.until(card("paused"))
		look(device + " paused")
		b.click("[data-download] form[action$=cancel] button")
		b.until("!document.querySelector('[data-download]')")
		b.script("document.querySelector('#list a[href*=qwen]').click()") // at once: the list is about to be another one
		b.until("document.querySelector('#h-model')?.innerText === 'qwen2.5-0.5b-instruct-q8_0'")
		look(device + " details")
		b.click("#details a[href*=delete]")
		b.until("document.querySelector('#details form[action$=delete]')")
		look(device + " delete")
		b.do(chromedp.Navigate(b.origin+"/?model=qwen2.5-0.5b-instruct-q8_0"), chromedp.WaitReady("#message"))
		b.until("document.querySelector('[data-chosen-name]').textContent === 'qwen2.5-0.5b-instruct-q8_0'")
		look(device + " new chat")
		if device == "phone" {
			b.click(".top .title [data-picker]")
		} else {
			b.click(".top .engine-chip")
		}
		b.until("document.querySelector('#model-menu').matches(':popover-open')")
		look(device + " menu")
	}
	if looked != 22 {
		t.Errorf("axe-core looked at %d states", looked)
	}
	b.clean()
}
