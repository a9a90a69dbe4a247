package browser

import (
	"testing"

	"m40-llm/handlers/handlerstest"
)

// TestWhatThePageIsForIsFewClicksAway counts what a person presses, from reading an answer.
func TestWhatThePageIsForIsFewClicksAway(t *testing.T) {
	t.Parallel()
	server, _ := handlerstest.ServeStored(t, handlerstest.OpenGuide(t))
	for _, device := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1440, 900}, {"phone", 390, 844}} {
		t.Run(device.name, func(t *testing.T) {
			b := openBrowser(t, server)
			b.size(device.width, device.height, device.name == "phone")
			b.open("/")
			b.say("Tell me a story about a fox in a forest.")
			b.until("document.querySelector('[data-tokens]:not([hidden])') && " + idle)
			chat := b.value("location.pathname")
			picker := ".top .engine-chip"
			if device.name == "phone" {
				picker = ".top .title [data-picker]"
			}
			for _, task := range []struct {
				name, presses, then, ends string
			}{
				{"the microscope", "[data-tokens]:not([hidden])", ".token [data-stages]", "document.querySelector('.micro .chosen, .micro .ledger li')"},
				{"a fork at a word", "[data-tokens]:not([hidden])", ".token .alt:not(.chosen)", "document.querySelector('.turn:last-child .vers')?.innerText.includes('2/2') && " + idle},
				{"another model", picker, "#model-menu button[value=guide]", "!document.querySelector('#model-menu').matches(':popover-open')"},
				{"twelve answers", "[data-ask-sheet]", "", "location.pathname.endsWith('/sheet')"},
			} {
				b.open(chat)
				b.fill("#message", "Tell me a joke")
				b.click(task.presses)
				if task.then != "" {
					b.until("document.querySelector('" + task.then + "')?.checkVisibility()")
					b.click(task.then)
				}
				b.until(task.ends)
			}
			b.clean()
		})
	}
}

func TestTheCandidatesOnAPhoneAreBelowTheirWord(t *testing.T) {
	t.Parallel()
	source := axe(t)
	server, _ := handlerstest.ServeStored(t, handlerstest.OpenGuide(t))
	b := openBrowser(t, server)
	b.size(390, 844, true)
	b.open("/")
	b.say("Tell me a story about a fox in a forest.")
	b.until("document.querySelector('[data-tokens]:not([hidden])') && " + idle)
	b.click("[data-tokens]:not([hidden])")
	b.until("document.querySelector('.token .alt')")
	inside := `(() => {
		const of = q => document.querySelector(q).getBoundingClientRect()
		const word = of('.tok[aria-pressed=true]'), text = of('#scroll'), card = of('.token'), chosen = of('.alt.chosen'), list = of('.alts')
		const wrong = []
		if (word.top < text.top - 1 || word.bottom > text.bottom + 1) wrong.push('the word is out of sight')
		if (card.top < text.bottom - 1) wrong.push('the candidates cover the answer')
		if (card.bottom > innerHeight + 1) wrong.push('the candidates are cut')
		if (chosen.top < list.top - 1 || chosen.bottom > list.bottom + 1) wrong.push('the word is not among the candidates in sight')
		return wrong.join()
	})()`
	for _, height := range []int64{844, 667} {
		b.size(390, height, true)
		b.script("document.querySelector('.toks .tok:last-child').click()")
		b.until("document.querySelector('.token [data-place]')?.innerText.match(/^token (\\d+) of \\1$/)")
		b.frames()
		if got := b.value(inside); got != "" {
			t.Errorf("390 x %d px: %s", height, got)
		}
		if got, want := b.text(".token [data-p]"), b.text(".alt.chosen .mono"); got != want || got == "" {
			t.Errorf("the head says %q of the word, the list %q", got, want)
		}
		b.look(source, "the candidates on a phone", "heading-order", "region", "landmark-unique")
	}
	b.size(1440, 900, false)
	b.until("document.querySelector('.tokview > .token')")
	b.click("[data-close-token]")
	b.until("!document.querySelector('.token')")
	b.clean()
}
