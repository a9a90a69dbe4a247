package browser

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

// The built-in model, steered in a browser.
func TestSteeringTheGuideInABrowser(t *testing.T) {
	t.Parallel()
	server, _ := handlerstest.ServeStored(t, handlerstest.OpenGuide(t))
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.set("temperature", "0")
	const answer = "document.querySelector('.turn:last-child')"
	text := func() string { return b.value(answer + ".querySelector('.prose').innerText") }

	run("an answer that the model ended goes on with the end banned once", func(t *testing.T) {
		b.say("What does temperature do?")
		b.until(idle)
		b.click(".answer:last-child [data-receipt]")
		b.until("document.querySelector('#answer-menu [data-past-end]').checkVisibility()")
		name := b.value("document.querySelector('#answer-menu [data-past-end]').title")
		if !strings.HasPrefix(name, "Go on, with the end banned once. The model ended it here, with probability ") {
			t.Errorf("the button says %q", name)
		}
		before, length := text(), b.value(answer+".querySelector('.prose').innerText.length")
		b.click("#answer-menu [data-past-end]")
		b.until(idle + " && " + answer + ".querySelector('.prose').innerText.length > " + length)
		if !strings.HasPrefix(text(), before) {
			t.Errorf("%q went on as %q", before, text())
		}
	})

	run("the figures have the pace of the answer", func(t *testing.T) {
		b.script(answer + ".querySelector('.made').open = true")
		if got := b.value(answer + ".querySelector('[data-f=time]').innerText"); !strings.HasPrefix(got, "waiting ") || !strings.Contains(got, ", reading the prompt ") {
			t.Errorf("the time is %q", got)
		}
		// How long an answer takes depends on the machine, so the timeline is drawn of figures.
		b.script(`import(document.querySelector('link[href*="/pace."]').href).then(m => {
			const timings = { queue_ms: 100, load_ms: 400, prefill_ms: 300, first_ms: 800 }
			globalThis.read = [{ bytes: 3e9, us: 250000, bandwidth: 16e9 }, { bytes: 3e9, us: 250000 }, undefined].map(reads => m.reads({ reads })).join('|')
			globalThis.paced = m.timeline(` + answer + `.querySelector('.pace'), { timings, pace: { every_ms: 200, tokens: [4, 0, 8, 8, 1] } })
		})`)
		b.until("globalThis.paced")
		if got := b.value("globalThis.paced"); got != "20.0 to 40.0 tok/s in steps of 0.20 s, 1 of 4 without a token" {
			t.Errorf("in words it is %q", got)
		}
		if got := b.value("globalThis.read"); got != "12.0 GB/s read, 75 % of its bandwidth||" {
			t.Errorf("what it read of the memory is %q in words", got)
		}
		bars := "[..." + answer + ".querySelectorAll('.pace rect')].map(r => [r.getAttribute('class'), parseFloat(r.getAttribute('x')), r.getAttribute('height')].join(' ')).join(', ')"
		if got := b.value(bars); got != "q 0 7, ld 5.56 7, pf 27.78 7, dc 44.44 14, dc 55.56 0, dc 66.67 28, dc 77.78 28, dc 88.89 3.5" {
			t.Errorf("its bars are %s", got)
		}
		if b.value(answer+".querySelector('.pace').checkVisibility()") != "true" {
			t.Error("it is not shown")
		}
		b.shot("timeline")
	})

	run("a loop pauses the answer where that is set, and is left by rewinding with a higher DRY", func(t *testing.T) {
		b.script("document.querySelector('#more').open = true")
		b.set("frequency_penalty", "-2.00") // the model repeats what it wrote
		b.script("document.querySelector('#n-pause_repetition').click()")
		b.say("Tell me a story about a lighthouse.")
		b.until("!" + answer + ".querySelector('.loop').hidden")
		b.until(idle + " && " + answer + ".querySelector('.why').innerText.startsWith('paused, because it repeats itself, at ')")
		tokens := func() (n int) {
			n, _ = strconv.Atoi(strings.ReplaceAll(b.value(answer+".querySelector('[data-f=tokens]').innerText"), ",", ""))
			return n
		}
		var repeated int
		before, all := text(), tokens()
		if _, err := fmt.Sscanf(b.value(answer+".querySelector('[data-rewind]').innerText"), "Rewind %d tokens and raise DRY to 0.8", &repeated); err != nil || repeated < 96 || repeated >= all {
			t.Fatalf("of %d tokens, %d are said to repeat others: %v", all, repeated, err)
		}
		b.set("frequency_penalty", "0.00")
		b.look(axe(t), "an answer that repeats itself")
		b.script(answer + ".querySelector('[data-rewind]').click()")
		b.until(idle + " && " + answer + ".querySelector('.vers').innerText.includes('2/2') && " + answer + ".querySelector('.loop').hidden")
		after := text()
		same := 0
		for same < min(len(before), len(after)) && before[same] == after[same] {
			same++
		}
		if same == 0 || same == len(before) || tokens() < all-repeated {
			t.Errorf("%d tokens, %q, became %d, %q", all, before, tokens(), after)
		}
		if got := b.value("document.querySelector('#n-dry_multiplier').value"); got != "0.80" {
			t.Errorf("the panel has DRY %s", got)
		}
	})

	run("the model calls a tool, a person gives the result, and the model goes on", func(t *testing.T) {
		b.open("/")
		b.unfold()
		b.set("temperature", "0")
		b.fill("#n-tools", `[{"type": "function"`)
		b.until("!document.querySelector('#e-tools').hidden")
		b.fill("#n-tools", `[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": false}}}]`)
		b.until("document.querySelector('#e-tools').hidden && document.querySelector('[data-param=tools] .keep').innerText === '1'")
		b.script("document.querySelector('#n-must_call').click()")
		b.say("Which weather has Oslo?")
		b.until(idle + " && !" + answer + ".querySelector('.giving').hidden")
		if got := text(); !strings.HasPrefix(got, "Calls weather") || !strings.Contains(got, `"city": "`) {
			t.Errorf("the answer shows %q", got)
		}
		if got := b.value(answer + ".querySelector('.why').innerText.replace(/[^a-z]+/g, ' ')"); got != "ended with a call of weather" {
			t.Errorf("it ended with %q", got)
		}
		b.look(axe(t), "a call that waits for its result")
		b.shot("tool-call")
		b.fill(".turn:last-child .giving textarea", "4 degrees and rain")
		b.script(answer + ".querySelector('.giving').requestSubmit()")
		b.until("document.querySelectorAll('.turn').length === 4 && " + idle)
		for selector, want := range map[string]string{".result .who b": "Result", ".result .prose": "4 degrees and rain"} {
			if got := b.text(selector); got != want {
				t.Errorf("%s says %q, want %q", selector, got, want)
			}
		}
		if b.value("document.querySelectorAll('.turn')[1].querySelector('.giving').checkVisibility()") != "false" {
			t.Error("the result can be given once more")
		}
		b.shot("tool-result")
	})

	run("the speeds measured here say when the first word comes, and how many tokens fit into a time", func(t *testing.T) {
		b.script("localStorage.setItem('m40.readings', JSON.stringify({ guide: 10 })); localStorage.setItem('m40.speeds', JSON.stringify({ guide: 20 }))")
		b.open("/")
		b.fill("#message", "What does temperature do to the words that a model writes, and which value suits a story about the sea?")
		b.until("/, adds about [2-4] s before the first word$/.test(document.querySelector('[data-cost]').innerText)")
		b.fill("#message", "Why?")
		b.until("document.querySelector('[data-cost]').innerText.endsWith(' after this')")
		b.fill("#n-budget", "60")
		b.until("document.querySelector('#n-max_tokens').value === '1200'")
		if got := b.text("#k-max_tokens"); got != "up to ≈ 60 s" {
			t.Errorf("the note of the limit is %q", got)
		}
	})
	b.clean()
}
