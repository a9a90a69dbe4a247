package browser

import (
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
)

func TestTheDraftIsCountedWhileItIsWritten(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	engine.Set(func(s *infer.Status) { s.ContextLength = 40 })
	server := handlerstest.Serve(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)

	run("the meter shows what the next prompt would take", func(t *testing.T) {
		b.open("/")
		b.unfold()
		b.fill("#message", "one two three")
		b.until("document.querySelector('[data-cost]').innerText === '3 tokens, 6 of 40 after this'")
		b.until("document.querySelector('[data-context]').innerText === '6 of 40'")
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
		if got, want := b.text("[data-cost]"), "46 of 40 tokens: 6 too many. Shorten it, or start a new chat with a summary of this one."; got != want {
			t.Errorf("the page says %q, want %q", got, want)
		}
		b.shot("count-over")
		b.press("Enter", 13)
		engine.Set(func(s *infer.Status) { s.ContextLength = 80 })
		b.until("!document.querySelector('[data-send]').disabled && document.querySelector('[data-cost]').innerText.includes('of 80')")
		engine.Set(func(s *infer.Status) { s.ContextLength = 40 })
		b.until("document.querySelector('[data-send]').disabled")
		b.fill("#message", "short")
		b.until("!document.querySelector('[data-send]').disabled")
		b.ask(engine, "", "Fine.")
		if got := b.value("document.querySelectorAll('.you').length"); got != "2" {
			t.Errorf("%s questions were sent", got)
		}
	})
	b.clean()
}

func TestARawChatInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	const text = "[...document.querySelectorAll('.turn .prose')].map(p => p.textContent).join('|')"

	run("the text goes on in place, without a template and as it is", func(t *testing.T) {
		b.open("/")
		b.click("[data-raw]")
		b.until("document.querySelector('[data-system]').hidden")
		b.say("# Once *upon*")
		answer := engine.Next(t)
		if got := answer.Request.Prompt; got != "# Once *upon*" {
			t.Errorf("the prompt is %q", got)
		}
		answer.Write(" a\n\n<think>", "time")
		b.until(text + " === '# Once *upon*| a\\n\\n<think>time'")
		b.shot("raw-running")
		b.reload()
		b.until(text + " === '# Once *upon*| a\\n\\n<think>time'")
		answer.Write(" **there**")
		answer.Finish()
		b.until(text + " === '# Once *upon*| a\\n\\n<think>time **there**'")
		b.until(idle)
	})

	run("it is written on, also where the model has ended", func(t *testing.T) {
		b.click(".answer:last-child [data-continue]")
		answer := engine.Next(t)
		if got, want := answer.Request.Prompt, "# Once *upon* a\n\n<think>time **there**"; got != want {
			t.Errorf("the prompt is %q, want %q", got, want)
		}
		answer.Write(" was")
		answer.Finish()
		b.until(text + ".endsWith('time **there** was')")
		b.until(idle)
		b.say(" a fox")
		answer = engine.Next(t)
		answer.Write(" and a hen.")
		answer.Finish()
		b.until(text + ".endsWith(' was| a fox| and a hen.')")
		b.until(idle)
		b.shot("raw")
		b.reload()
		b.until(text + ".endsWith(' was| a fox| and a hen.')")
		b.until("document.querySelector('[data-raw-chip]').checkVisibility()")
		b.until(idle)
	})

	run("another version takes its place", func(t *testing.T) {
		b.click(".answer:last-child .acts [data-again]")
		answer := engine.Next(t)
		answer.Write(" and an owl.")
		answer.Finish()
		b.until(text + ".endsWith(' was| a fox| and an owl.')")
		b.until(idle)
		b.click(".answer:last-child [data-version='-1']")
		b.until(text + ".endsWith(' was| a fox| and a hen.')")
	})

	run("a new chat has its template again", func(t *testing.T) {
		b.open("/")
		b.ask(engine, "Hello", "Hi.")
		if got := b.value("document.querySelector('#thread').classList.contains('raw')"); got != "false" {
			t.Error("it is raw")
		}
	})

	run("a new chat with a model that has no template is raw, unless the user decides otherwise", func(t *testing.T) {
		const pressed = "document.querySelector('[data-raw]').getAttribute('aria-pressed')"
		choose := func(name string) {
			b.chooseModel(name)
		}
		chats := engine.Current.Model
		engine.List(chats, infer.ModelInfo{Name: "base", Continues: true})
		b.open("/")
		b.until(pressed + " === 'false'")
		choose("base")
		b.until(pressed + " === 'true' && document.querySelector('#message').placeholder === 'Text that the model goes on from'")
		choose(chats.Name)
		b.until(pressed + " === 'false'")
		choose("base")
		b.click("[data-raw]")
		b.until(pressed + " === 'false'")
		choose(chats.Name)
		choose("base")
		b.until(pressed + " === 'false'")
	})
	b.clean()
	b.size(390, 844, true)
	b.open("/")
	b.shot("raw-phone")
}
