package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/engine"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/hub"
)

// TestThePageWithSmolLM2 looks into the answers of a model with real weights, computed by the CPU, and steers them. make world installs
// the model.
func TestThePageWithSmolLM2(t *testing.T) {
	models := filepath.Join(os.Getenv("M40_LLM_WORLD"), "models")
	if _, err := os.Stat(filepath.Join(models, "smollm2.gguf")); os.Getenv("M40_LLM_WORLD") == "" || err != nil {
		t.Skip("make world sets M40_LLM_WORLD, a folder with models/smollm2.gguf")
	}
	source := axe(t)
	server, _ := handlerstest.ServeStored(t, handlerstest.OpenGuide(t, func(o *engine.Options) {
		o.Catalog, o.Model, o.ContextLength = hub.New(hub.Options{Dir: models}), "smollm2", 2048
	}))
	b := openBrowser(t, server)
	step := steps(t, b)
	run := func(feature string, test func(t *testing.T)) {
		step(feature, func(t *testing.T) {
			fixtures.ReportAtEnd(t, "Chromium with SmolLM2-135M-Instruct", "", feature)
			test(t)
		})
	}
	b.open("/")

	run("chat: a second question", func(t *testing.T) {
		b.set("temperature", "0.00")
		b.set("max_tokens", "32")
		b.say("Explain in two sentences why the sky is blue.")
		b.until("document.querySelector('[data-tokens]:not([hidden])') && " + idle)
		if got := b.value(lastAnswer); !strings.HasPrefix(got, "The ") { // the likeliest beginning by far
			t.Errorf("the answer is %q", got)
		}
		b.set("temperature", "1.00")
		b.fill("#n-seed", "7")
		b.say("Tell me more about it.")
		b.until("document.querySelectorAll('.answer').length === 2 && " + idle)
		if got := b.value(lastAnswer); len(got) < 20 {
			t.Errorf("the second answer is %q", got)
		}
	})
	run("microscope: stored candidates go through each sampler", func(t *testing.T) {
		b.click(".turn:last-child [data-tokens]:not([hidden])")
		b.until("document.querySelectorAll('.toks .tok').length > 2")
		b.script("document.querySelectorAll('.toks .tok')[1].click()")
		b.until("document.querySelector('.token [data-place]')?.innerText.startsWith('token 2 ')")
		b.press("m", 77)
		b.until("document.querySelector('.micro .wf .chosen')")
		if got, want := b.text(".micro .chosen code"), b.text(".token .alt.chosen code"); got != want || got == "" {
			t.Errorf("the drawn token is %q, want %q", got, want)
		}
		if got := b.text(".micro [data-source]"); got != "from stored candidates" {
			t.Errorf("the source is %q", got)
		}
		b.look(source, "the microscope with real weights", "heading-order", "region", "landmark-unique")
		b.press("m", 77)
		b.until("!document.querySelector('.micro')")
		b.press("Escape", 27)
	})
	run("slider: top-k 1 strikes out what was not the likeliest token", func(t *testing.T) {
		b.set("top_k", "1")
		b.until("document.querySelector('.turn:last-child .judged')?.innerText.includes('would be impossible')")
		gone := b.value("document.querySelectorAll('.toks .tok.gone').length")
		if all := b.value("document.querySelectorAll('.toks .tok').length"); gone == "0" || gone == all {
			t.Errorf("%s of %s tokens are struck out", gone, all)
		}
		b.set("top_k", "40")
		b.until("document.querySelectorAll('.tok.gone').length === 0")
	})
	run("fork: the second likeliest token goes on as a version", func(t *testing.T) {
		before := b.value("document.querySelectorAll('.toks .tok')[0].textContent")
		b.script("document.querySelectorAll('.toks .tok')[1].click()")
		b.until("document.querySelector('.token [data-place]')?.innerText.startsWith('token 2 ') && document.querySelectorAll('.token .alt').length > 2")
		b.script("document.querySelector('.token .alt:not(.chosen)').click()")
		b.until("document.querySelector('.turn:last-child .vers')?.innerText.includes('2/2') && " + idle)
		b.until("document.querySelectorAll('.toks .tok')[1]?.matches('.forked')")
		if after := b.value("document.querySelectorAll('.toks .tok')[0].textContent"); after != before {
			t.Errorf("the version begins with %q, want %q", after, before)
		}
		b.press("Escape", 27)
	})
	run("contact sheet: twelve answers beside each other", func(t *testing.T) {
		b.open("/")
		b.fill("#message", "Name a colour.")
		b.click("[data-ask-sheet]")
		b.until("location.pathname.endsWith('/sheet') && document.querySelector('[data-count]')?.innerText === '12 answers'")
		b.until(sheetEnded)
		if got := b.text(".sheetbar [data-states]"); got != "12 done" {
			t.Errorf("the states are %q", got)
		}
		if got := b.value("new Set([...document.querySelectorAll('.cell')].map(c => c.querySelector('.txt').textContent.trim())).has('')"); got != "false" {
			t.Error("an answer is empty")
		}
	})
	b.clean()
}
