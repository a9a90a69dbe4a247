package browser

import (
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
)

const replayBox = "document.querySelector('.answer .replay')"

func (b *browser) answerMenu(item string) {
	b.t.Helper()
	b.click(".answer [data-receipt]")
	b.until("document.querySelector('#answer-menu').matches(':popover-open')")
	b.click("#answer-menu " + item)
	b.until("!document.querySelector('#answer-menu').matches(':popover-open')")
}

func TestReceiptsInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.say("What is rain?")
	a := engine.Next(t)
	a.Tokens("Rain ", "is ", "water.")
	a.Sign("0.2.0")
	b.until(idle)

	run("the request is copied in each language", func(t *testing.T) {
		// A clipboard that the test can read: the browser's own asks a person.
		b.script("Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { globalThis.copied = text }}, configurable: true})")
		for language, want := range map[string]string{"curl": "curl 'http://", "python": "urllib.request", "javascript": "fetch("} {
			b.answerMenu("[data-code=" + language + "]")
			b.until("document.querySelector('#spoken').innerText.startsWith('Copied as ')")
			text := b.value("globalThis.copied")
			if !strings.Contains(text, want) || !strings.Contains(text, "What is rain?") {
				t.Errorf("as %s the clipboard has %q", language, text)
			}
			b.script("document.querySelector('#spoken').textContent = ''")
		}
	})

	run("without a clipboard, as over plain http, it is copied by selecting it", func(t *testing.T) {
		b.script(`Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})
			document.addEventListener('copy', () => { globalThis.copied = document.activeElement.value }, { once: true })`)
		b.answerMenu("[data-code=curl]")
		b.until("document.querySelector('#spoken').innerText.startsWith('Copied as ')")
		if text := b.value("globalThis.copied"); !strings.Contains(text, "curl 'http://") {
			t.Errorf("what is selected is %q", text)
		}
	})

	run("where copying is not allowed the program is shown", func(t *testing.T) {
		b.script("Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true}); document.execCommand = () => false")
		b.answerMenu("[data-code=python]")
		b.until("document.querySelector('#code').open && getSelection().toString().includes('urllib')")
		b.press("Escape", 27)
		b.until("!document.querySelector('#code').open")
	})

	run("a replay that is equal says so and adds nothing", func(t *testing.T) {
		b.answerMenu("[data-replay]")
		again := engine.Next(t)
		again.Tokens("Rain ", "is ")
		b.until(replayBox + ".innerText.includes('of 3 tokens') && !" + replayBox + ".querySelector('[data-stop-replay]').hidden")
		again.Tokens("water.")
		again.Sign("0.2.0")
		b.until(replayBox + ".innerText.replace(/\\s+/g, ' ').trim() === 'equal 3 of 3 tokens'")
		if got := b.value("document.querySelectorAll('.turn').length + ' ' + document.querySelector('.answer .vers').hidden"); got != "2 true" {
			t.Errorf("turns and versions: %s", got)
		}
		b.reload()
		b.until(replayBox + ".innerText.includes('equal')")
	})

	run("a replay is stopped with escape", func(t *testing.T) {
		b.answerMenu("[data-replay]")
		again := engine.Next(t)
		again.Tokens("Rain ")
		b.until(replayBox + ".innerText.includes('replaying')")
		b.press("Escape", 27)
		b.until(replayBox + ".innerText.includes('stopped')")
		b.click("[data-close-replay]")
		b.until(replayBox + ".hidden")
	})

	run("one that differs says where, and what has changed", func(t *testing.T) {
		b.answerMenu("[data-replay]")
		again := engine.Next(t)
		again.Tokens("Rain ")
		again.Count = 6
		again.Tokens("\n\t")
		receipt := engine.Next(t)
		receipt.Sign("0.3.0")
		b.until(replayBox + ".innerText.includes('differs')")
		got := strings.Join(strings.Fields(b.value(replayBox+".innerText")), " ")
		for _, want := range []string{"equal: 1 of 3 tokens", `Token 2 was “[2]” and is “\n\t” now.`, "engine 0.2.0 → 0.3.0"} {
			if !strings.Contains(got, want) {
				t.Errorf("the box says %q, without %q", got, want)
			}
		}
	})

	run("one whose model is gone says so", func(t *testing.T) {
		b.answerMenu("[data-replay]")
		engine.Next(t).Fail(&fault.Error{Code: fault.CodeNotFound, Message: "there is no model \"guide\" here"})
		b.until(replayBox + ".innerText.includes('There is no such model')")
	})
	b.clean()
}

// TestEverybodyCanUseReceipts looks at the states of a replay in both themes, on a
// desktop and on a phone.
func TestEverybodyCanUseReceipts(t *testing.T) {
	t.Parallel()
	fixtures.NeedCheck(t)
	source := axe(t)
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	b.say("What is rain?")
	a := engine.Next(t)
	a.Tokens("Rain ", "is ", "water ", "that ", "falls.")
	a.Sign("0.2.0")
	b.until(idle)
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1440, 900}, {"phone", 390, 844}} {
		b.size(size.width, size.height, size.name == "phone")
		look := func(state string) {
			t.Helper()
			b.look(source, "receipt "+state+" "+size.name)
		}
		b.click(".answer [data-receipt]")
		b.until("document.querySelector('#answer-menu').matches(':popover-open')")
		look("menu")
		b.click("#answer-menu [data-replay]")
		again := engine.Next(t)
		again.Tokens("Rain ", "is ")
		b.until(replayBox + ".innerText.includes('replaying')")
		look("running")
		again.Count = 8
		again.Tokens("wet")
		receipt := engine.Next(t)
		receipt.Sign("0.3.0")
		b.until(replayBox + ".innerText.includes('differs')")
		look("differs")
		b.answerMenu("[data-replay]")
		again = engine.Next(t)
		again.Tokens("Rain ", "is ", "water ", "that ", "falls.")
		again.Sign("0.2.0")
		b.until(replayBox + ".innerText.includes('equal')")
		look("equal")
	}
}
