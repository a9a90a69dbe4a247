package handlers

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// The built-in model, steered in a browser.
func TestSteeringTheGuideInABrowser(t *testing.T) {
	server, _ := serveStored(t, openGuide(t))
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.set("temperature", "0")
	const answer = "document.querySelector('.turn:last-child')"
	text := func() string { return b.value(answer + ".querySelector('.prose').innerText") }

	run("an answer that the model ended goes on with the end banned once", func(t *testing.T) {
		b.say("What does temperature do?")
		b.until(idle + " && !" + answer + ".querySelector('[data-past-end]').hidden")
		name := b.value(answer + ".querySelector('[data-past-end]').title")
		if !strings.HasPrefix(name, "Go on, with the end banned once. The model ended it here, with probability ") {
			t.Errorf("the button says %q", name)
		}
		before := text()
		b.script(answer + ".querySelector('[data-past-end]').click()")
		b.until(idle + " && " + answer + ".querySelector('.prose').innerText.length > " + b.value(answer+".querySelector('.prose').innerText.length"))
		if !strings.HasPrefix(text(), before) {
			t.Errorf("%q went on as %q", before, text())
		}
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
	b.clean()
}
