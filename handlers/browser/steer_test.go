package browser

import (
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

// TestSteeringTheGuide looks into the answers of the built-in model and steers them, in one page.
func TestSteeringTheGuide(t *testing.T) {
	t.Parallel()
	source := axe(t)
	server, _ := handlerstest.ServeStored(t, handlerstest.OpenGuide(t))
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.fill("#n-seed", "7")
	b.set("max_tokens", "40")
	b.say("Tell me a story about a fox in a forest.")
	b.until("document.querySelector('[data-tokens]:not([hidden])') && " + idle)
	b.click("[data-tokens]:not([hidden])")
	b.until("document.querySelectorAll('.toks .tok').length > 20")

	run("the token view says how much is stored, and sets the limits", func(t *testing.T) {
		b.tokenMenu(".stored summary")
		b.until("document.querySelector('[data-stored]').innerText.endsWith(' of 128 MB in all chats, for 30 days')")
		b.script("const f = document.querySelector('.stored form'); f.days.value = 7; f.megabytes.value = 64; f.requestSubmit()")
		b.until("document.querySelector('[data-stored]').innerText.endsWith(' of 64 MB in all chats, for 7 days')")
		b.look(source, "the limits of stored candidates", "heading-order", "region", "landmark-unique")
		b.press("Escape", 27)
	})

	run("the microscope shows what each sampler did, from stored candidates", func(t *testing.T) {
		b.script("document.querySelectorAll('.toks .tok')[1].click()")
		b.until("document.querySelector('.token [data-place]')?.innerText.startsWith('token 2 ')")
		b.press("m", 77)
		b.until("document.querySelector('.micro .wf .chosen') && document.querySelector('.token .alt.chosen')")
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
	run("the minimap jumps to where the model was unsure", func(t *testing.T) {
		b.until("document.querySelectorAll('.minimap rect').length > 0")
		b.click("[data-by=entropy]")
		b.script("const map = document.querySelector('.minimap'), r = map.querySelector('rect').getBoundingClientRect(); map.dispatchEvent(new MouseEvent('click', { clientX: r.x, clientY: r.y, bubbles: true }))")
		b.until("document.querySelector('.token [data-place]')")
		b.until("document.querySelector('.toks .tok[aria-pressed=true]')?.matches('.e2, .e3, .e4, .e5')")
		b.shot("minimap")
		b.script("document.querySelector('.toks .tok').focus()")
		before := b.text(".token [data-place]")
		b.press("u", 85)
		b.until("document.querySelector('.token [data-place]').innerText !== '" + before + "'")
		b.press("Escape", 27)
		b.click("[data-by=p]")
	})

	run("another token goes on as a version of the answer, in the same tokens up to there", func(t *testing.T) {
		before := b.value("[...document.querySelectorAll('.toks .tok')].slice(0, 6).map(t => t.textContent).join('|')")
		b.script("document.querySelectorAll('.toks .tok')[6].click()")
		b.until("document.querySelector('.token [data-place]')?.innerText.startsWith('token 7 ') && document.querySelectorAll('.token .alt').length > 2")
		other := b.value("[...document.querySelectorAll('.token .alt:not(.chosen)')][0].dataset.id")
		b.script("document.querySelector('.token .alt:not(.chosen)').click()")
		b.until("document.querySelector('.turn:last-child .vers')?.innerText.includes('2/2') && " + idle)
		b.until("document.querySelectorAll('.toks .tok')[6]?.matches('.forked[aria-pressed=true]')") // the tokens stay, and the fork is selected
		if after := b.value("[...document.querySelectorAll('.toks .tok')].slice(0, 6).map(t => t.textContent).join('|')"); after != before {
			t.Errorf("the answer begins with %q, want %q", after, before)
		}
		b.until("document.querySelector('.token .alt.chosen')?.dataset.id === '" + other + "'")
		b.look(source, "a token of a branch", "heading-order", "region", "landmark-unique")
	})

	run("a text that is typed in goes on too, and one that ends the answer does not", func(t *testing.T) {
		b.fill(".token .own input", " green")
		b.click(".token .own button")
		b.until("document.querySelector('.turn:last-child .vers')?.innerText.includes('3/3') && " + idle)
		if got := b.text(".turn:last-child .prose"); !strings.Contains(got, "green") {
			t.Errorf("the answer is %q", got)
		}
	})

	run("the tree lists the branches, walks and prunes", func(t *testing.T) {
		b.click("[data-tree]")
		b.until("document.querySelectorAll('.tree .node').length === 4 && document.querySelector('.tree').open")
		b.look(source, "the branches of a chat", "heading-order", "landmark-unique")
		if got := b.text(".tree li li:nth-child(1) .mono"); !strings.Contains(got, "40 tokens · log p −") {
			t.Errorf("the first answer says %q", got)
		}
		b.shot("branches")
		b.press("ArrowUp", 38)
		b.press("Delete", 46)
		b.until("document.querySelector('.tree .danger')?.innerText === 'Delete 1 message'")
		b.press("Delete", 46)
		b.until("document.querySelectorAll('.tree .node').length === 3")
		b.until("document.querySelector('.turn:last-child .vers').innerText.includes('2/2')")
		b.press("ArrowUp", 38)
		b.press("Home", 36)
		b.press("ArrowDown", 40)
		b.script("document.activeElement.click()")
		b.until("!document.querySelector('.tree') && document.querySelector('.turn:last-child .vers').innerText.includes('1/2')")
		b.size(390, 844, true)
		b.until("document.querySelector('.turn:last-child .vers').innerText.includes('1/2')")
		b.answerMenu("[data-branches]")
		b.until("document.querySelector('.tree')?.open && document.querySelector('.tree [data-prune]:not([hidden])').checkVisibility()")
		b.look(source, "the branches on a phone", "heading-order", "landmark-unique")
		b.scheme("dark")
		b.shot("branches-phone")
		b.scheme("light")
		pruned := b.sent("prune")
		for nth := range int64(2) { // a double-click
			b.hold(".tree [data-prune]:not([hidden])", 1+nth)()
			b.until("document.querySelector('.tree .danger')")
		}
		b.settled()
		if got := b.value("document.querySelectorAll('.tree .node').length"); got != "3" || b.sent("prune") != pruned {
			t.Errorf("after a double-click on the button that deletes, %s messages are left of 3", got)
		}
		b.press("Escape", 27)
		b.size(1440, 900, false)
	})
	b.clean()
}
