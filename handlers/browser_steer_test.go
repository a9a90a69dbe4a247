package handlers

import (
	"strings"
	"testing"
)

// TestSteeringTheGuide looks into the answers of the built-in model and steers them, in one page.
func TestSteeringTheGuide(t *testing.T) {
	source := axe(t)
	server, _ := serveStored(t, openGuide(t))
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.fill("#n-seed", "7")
	b.set("max_tokens", "40")
	b.say("Tell me a story about a fox in a forest.")
	b.until("document.querySelector('[data-tokens]:not([hidden])') && " + idle)
	b.click("[data-tokens]:not([hidden])")
	b.until("document.querySelectorAll('.toks .tok').length > 20")

	run("the microscope shows what each sampler did, from stored candidates", func(t *testing.T) {
		b.script("document.querySelectorAll('.toks .tok')[1].click()")
		b.until("document.querySelector('.token [data-place]')?.innerText.startsWith('token 2 ')")
		b.press("m", 77)
		b.until("document.querySelector('.micro .wf .chosen')")
		if got := b.text(".micro [data-source]"); got != "from stored candidates" {
			t.Errorf("the source is %q", got)
		}
		for _, stage := range []string{"Model", "Top-k 40", "Top-p 0.95", "Min-p 0.05", "Temperature 0.7"} {
			if got := b.text(".micro thead"); !strings.Contains(got, stage) {
				t.Errorf("there is no stage %q in %q", stage, got)
			}
		}
		if got, want := b.text(".micro .chosen code"), b.text(".token .alt.chosen code"); got != want {
			t.Errorf("the drawn token is %q, want %q", got, want)
		}
		b.look(source, "the microscope", "heading-order", "region", "landmark-unique")
		b.press("ArrowRight", 39)
		b.until("document.querySelector('.micro [data-at]').innerText.endsWith('· 3')")
		b.size(390, 844, true)
		b.until("document.querySelector('.micro .ledger li').checkVisibility()")
		b.look(source, "the microscope on a phone", "heading-order", "region", "landmark-unique")
		b.size(1440, 900, false)
		b.press("m", 77)
		b.until("!document.querySelector('.micro')")
		b.press("Escape", 27)
	})
	b.clean()
}
