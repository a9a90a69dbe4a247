package handlers

import (
	"strings"
	"testing"

	"m40-llm/infer"
)

func TestTheDraftIsCountedWhileItIsWritten(t *testing.T) {
	engine := newScript()
	engine.set(func(s *infer.Status) { s.ContextLength = 40 })
	server := serve(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)

	run("the meter shows what the next prompt would take", func(t *testing.T) {
		b.open("/")
		b.fill("#message", "one two three")
		b.until("document.querySelector('[data-cost]').innerText === '3 tokens, 6 of 40 after this'")
		b.until("document.querySelector('[data-context]').innerText === '6 / 40'")
		b.fill("#message", "")
		b.script(`const m = document.querySelector('#message'); m.value = ''; m.dispatchEvent(new Event('input'))`)
		b.until("document.querySelector('[data-cost]').innerText === ''")
	})

	run("the history counts too", func(t *testing.T) {
		b.ask(engine, "a b c", "d e f g")
		b.fill("#message", "h")
		b.until("document.querySelector('[data-cost]').innerText === '1 token, 17 of 40 after this'")
		b.until("document.querySelector('[data-context-legend]').innerText.replaceAll(/\\s+/g, ' ').trim() === 'history 16 draft 1'")
		b.shot("count")
	})

	run("what does not fit cannot be sent, and the page says why", func(t *testing.T) {
		b.fill("#message", strings.Repeat("word ", 30))
		b.until("document.querySelector('[data-send]').disabled")
		if got, want := b.text("[data-cost]"), "46 of 40 tokens: 7 too many. Shorten it, or start a new chat."; got != want {
			t.Errorf("the page says %q, want %q", got, want)
		}
		b.shot("count-over")
		b.press("Enter", 13)
		b.fill("#message", "short")
		b.until("!document.querySelector('[data-send]').disabled")
		b.ask(engine, "", "Fine.")
		if got := b.value("document.querySelectorAll('.you').length"); got != "2" {
			t.Errorf("%s questions were sent", got)
		}
	})
	b.clean()
}
