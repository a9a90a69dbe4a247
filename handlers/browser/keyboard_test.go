package browser

import (
	"fmt"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// shown makes screenshots of a state, on a phone and a desktop and in both themes. Afterwards the page
// has the size that it had.
func (b *browser) shown(state string, phone bool) {
	b.t.Helper()
	for _, width := range []int64{390, 1440} {
		b.size(width, 844, width < 1000)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.settled()
			if wide := b.value("document.documentElement.scrollWidth - innerWidth"); wide != "0" && !strings.HasPrefix(wide, "-") {
				b.t.Errorf("%s, %d px: the page is %s px too wide", state, width, wide)
			}
			b.shot(fmt.Sprintf("keyboard-%s-%d-%s", state, width, scheme))
		}
	}
	if phone {
		b.size(390, 844, true)
	}
}

// write puts text into a field, as keys do.
func (b *browser) write(selector, text string) {
	b.t.Helper()
	b.do(chromedp.Focus(selector))
	command(b, input.InsertText, input.InsertTextParams{Text: text})
}

func TestTwoPeopleWriteInOneChat(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	owner, phone := openBrowser(t, server), openBrowser(t, server)
	owner.open("/")
	owner.ask(engine, "What is rain?", "Water that falls.")
	path := owner.sharedPath()
	owner.press("Escape", 27)
	owner.until("!document.querySelector('#share[open]')")
	phone.followed(server.URL + path)
	phone.until("!document.querySelector('[data-ask-write]').hidden")
	phone.shown("button", true)

	phone.click("[data-ask-write]")
	phone.write("#name", "Ada <b>")
	phone.shown("name", true)
	phone.click("#ask [type=submit]")
	phone.until("document.querySelector('[data-asked]').innerText === 'You asked to write here. The owner decides.'")
	phone.shown("asked", true)
	owner.until("document.querySelector('[data-asks]').innerText.includes('Ada <b> asks to write in this chat.')")
	owner.shown("notice", false)

	owner.settled() // a click at once would be one on what stood there before
	owner.click("[data-asks] [data-set=writes]")
	phone.until("!document.querySelector('#composer').hidden && document.querySelector('[data-own-name]').innerText === 'Ada <b>'")
	owner.until("document.querySelector('#keyboard [data-writers]').innerText.includes('Ada <b> can write here')")
	phone.seesTyping()
	owner.seesTyping()
	phone.write("#message", "And snow?")
	owner.until("seen.includes('Ada <b> is typing')")
	phone.script("const data = new DataTransfer(); data.items.add(new File(['b'], 'beside.txt'))\n" +
		"for (const kind of ['dragover', 'drop']) { const e = new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true })\n" +
		"document.querySelector('#thread').dispatchEvent(e); globalThis[kind] = e.defaultPrevented }")
	phone.until("dragover && drop && document.querySelector('#writeerror').innerText.includes('Only the owner of a shared chat can attach files.')")
	phone.script("document.querySelector('#writeerror').hidden = true; const data = new DataTransfer(); data.items.add(new File(['b'], 'screen.png', { type: 'image/png' }))\n" +
		"document.querySelector('#message').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }))")
	phone.until("document.querySelector('#writeerror').checkVisibility() && document.querySelector('#writeerror').innerText.includes('Only the owner of a shared chat can attach files.')")
	owner.shown("typing-owner", false)
	owner.size(1440, 900, false)
	owner.write("#message", "Or ")
	phone.until("seen.includes('The owner is typing')")
	phone.shown("writes", true)

	phone.click("[data-send]")
	answer := engine.Next(t)
	for _, m := range answer.Request.Messages {
		if strings.Contains(m.Content, "Ada") {
			t.Errorf("the model is told the name of the writer: %q", m.Content)
		}
	}
	owner.until("[...document.querySelectorAll('.turn.you .who')].at(-1).innerText.includes('Ada <b>')")
	owner.until("document.querySelector('#composer [data-typing]').hidden")
	answer.Write("Slow ", "rain.")
	owner.until(lastAnswerIs("Slow rain."))
	phone.until(fmt.Sprintf("%s.endsWith('And snow?|Slow rain.')", shownTurns))
	phone.until("document.querySelector('#message').value === '' && !document.querySelector('[data-stop]').hidden")
	phone.shown("answer", true)
	owner.shown("answer-owner", false)
	owner.size(1440, 900, false)
	owner.click("[data-share]")
	owner.until("document.querySelector('#share [data-writers]')?.innerText.includes('Ada <b> can write')")
	owner.shown("dialog", false)
	owner.press("Escape", 27)
	owner.until("!document.querySelector('#share[open]')")
	phone.click("[data-stop]")
	phone.until("!document.querySelector('[aria-busy]') && document.querySelector('[data-stop]').hidden")
	owner.until(idle)

	phone.do(chromedp.Navigate(phone.value("location.href")), chromedp.WaitReady("#thread"))
	phone.until("!document.querySelector('#composer').hidden") // a reload keeps the keyboard
	owner.click("#keyboard [data-writers] [data-set=ended]")
	phone.until("document.querySelector('[data-asked]').innerText === 'The owner has taken the keyboard back.' && document.querySelector('#composer').hidden")
	owner.until("document.querySelector('#keyboard [data-writers]').hidden")
	phone.shown("taken-back", true)
	if got := phone.value("document.querySelector('[data-ask-write]').innerText"); got != "Ask again" {
		t.Errorf("the button says %q", got)
	}
	status := `fetch(document.body.dataset.write, { method: 'POST', headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
		body: JSON.stringify({ do: 'send', text: 'once more' }) }).then(r => globalThis.refused = r.status)`
	phone.script("void " + status)
	phone.until("globalThis.refused === 403")
	owner.clean()
	for _, trouble := range phone.seen() {
		if !strings.Contains(trouble, "403") {
			t.Errorf("the page had trouble: %s", trouble)
		}
	}
}

func TestAReaderWithoutScriptsAsksAndWritesByForms(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	owner, reader := openBrowser(t, server), openBrowser(t, server)
	owner.open("/")
	owner.ask(engine, "What is rain?", "Water that falls.")
	path := owner.sharedPath()
	owner.press("Escape", 27)
	reader.size(390, 844, true)
	reader.scriptless()
	reader.do(chromedp.Navigate(server.URL+path+"/write"), chromedp.WaitReady("#name"))
	reader.shot("keyboard-noscript-ask")
	reader.write("#name", "Ada")
	reader.click("[type=submit]")
	reader.do(chromedp.WaitReady("meta[http-equiv=refresh]"))
	reader.shot("keyboard-noscript-asked")
	owner.until("document.querySelector('[data-asker]').innerText === 'Ada'")
	owner.settled()
	owner.click("[data-asks] [data-set=writes]")
	reader.do(chromedp.WaitReady("#message")) // the page looks again by itself
	reader.write("#message", "And snow?")
	reader.shot("keyboard-noscript-writes")
	reader.click("[type=submit]")
	answer := engine.Next(t)
	answer.Write("Slow rain.")
	answer.Finish()
	owner.until(lastAnswerIs("Slow rain."))
	owner.until("[...document.querySelectorAll('.turn.you .who b')].at(-1).innerText === 'Ada'")
	owner.clean()
	reader.clean()
}

// seesTyping has the page keep in seen who was said to be typing, which it says for some seconds alone.
func (b *browser) seesTyping() {
	b.t.Helper()
	b.script(`const line = document.querySelector('#composer [data-typing]'); window.seen = []
		new MutationObserver(() => seen.push(line.textContent)).observe(line, { childList: true, characterData: true, subtree: true })`)
}

// scriptless turns the scripts of pages off.
func (b *browser) scriptless() {
	b.t.Helper()
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}
