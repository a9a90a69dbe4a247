package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/fixtures"
)

// TestEverybodyCanUseSharedChats looks at the dialog and the pages of shared chats, in both themes
// and on screens of three widths.
func TestEverybodyCanUseSharedChats(t *testing.T) {
	t.Parallel()
	fixtures.NeedCheck(t)
	source := axe(t)
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	owner, reader := openBrowser(t, server), openBrowser(t, server)
	looked := 0
	look := func(b *browser, state string) {
		t.Helper()
		for _, width := range []int64{390, 820, 1440} {
			b.size(width, 900, width < 1000)
			b.settled()
			looked++
			b.look(source, fmt.Sprintf("share %s %d", state, width), "heading-order", "region", "landmark-unique")
			if wide := b.value("document.documentElement.scrollWidth - innerWidth"); wide != "0" && !strings.HasPrefix(wide, "-") {
				t.Errorf("%s, %d px: the page is %s px too wide", state, width, wide)
			}
			if cut := b.value(cutOff); cut != "" {
				t.Errorf("%s, %d px: beyond the edge of the dialog are %s", state, width, cut)
			}
		}
	}

	owner.open("/")
	owner.say("What is rain, and why does it fall in drops that are all about as large?")
	first := engine.Next(t)
	first.Write(richAnswer)
	first.Finish()
	owner.until(idle)
	owner.click("[data-share]")
	owner.until("document.querySelector('#share[open] .newshare')")
	look(owner, "the form of a link")
	owner.click("#share .newshare [name=settings]")
	owner.click("#share .newshare [type=submit]")
	owner.until("document.querySelector('#share .sharelink input')?.value")
	path := owner.shownPath()
	look(owner, "a link")

	id := strings.TrimPrefix(owner.value("location.pathname"), "/c/")
	reader.do(chromedp.Navigate(server.URL+path), chromedp.WaitReady("#thread"))
	reader.until("document.querySelector('[data-dot].live')")
	look(reader, "a shared chat")
	owner.press("Escape", 27)
	owner.until("!document.querySelector('#share[open]')")
	owner.say("And snow?")
	answer := engine.Next(t)
	answer.Write("Snow is **slow** rain.\n\n", "It")
	reader.until("document.querySelector('[data-tail]')?.innerText === 'It'")
	look(reader, "an answer that is followed")
	if got := reader.value("document.querySelector('[data-following]').ariaPressed"); got != "true" {
		t.Errorf("after the device was turned the page follows: %s", got)
	}
	answer.Finish()
	reader.until("!document.querySelector('[aria-busy]')")

	reader.click("[data-ask-write]")
	look(reader, "a name to ask with")
	reader.write("#name", "A name with as many letters as may be")
	reader.click("#ask [type=submit]")
	reader.until("!document.querySelector('#asked').hidden")
	look(reader, "a request to write")
	owner.until("!document.querySelector('[data-asks]').hidden")
	look(owner, "somebody who asks")
	owner.click("[data-asks] [data-set=writes]")
	reader.until("!document.querySelector('#composer').hidden")
	look(reader, "a writer")
	look(owner, "somebody who writes")

	owner.do(chromedp.Navigate(server.URL+"/c/"+id+"/share"), chromedp.WaitReady(".sharing-panel"))
	owner.click(".another summary")
	look(owner, "the links of a chat without scripts")

	list, err := chats.Links.List(context.Background(), access.Local, id)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d links, %v", len(list), err)
	}
	if err := chats.Links.End(context.Background(), access.Local, id, list[0].ID); err != nil {
		t.Fatal(err)
	}
	reader.until("document.querySelector('[data-status]').innerText === 'This link has ended'")
	look(reader, "a link that has ended")
	reader.do(chromedp.Navigate(server.URL+path), chromedp.WaitReady("main"))
	look(reader, "nothing under a link")
	if looked != 12*3 {
		t.Errorf("axe-core looked at %d pages", looked)
	}
	owner.clean()
}

// cutOff lists what lies beyond the left or right edge of an open dialog.
const cutOff = `(() => {
	const dialog = document.querySelector('dialog[open]')
	if (!dialog) return ''
	const { left, right } = dialog.getBoundingClientRect()
	return [...dialog.querySelectorAll('*')].filter(el => {
		const box = el.getBoundingClientRect()
		return box.width > 0 && (box.left < left - 1 || box.right > right + 1 || box.right > innerWidth + 1)
	}).map(el => el.tagName + '.' + el.className).join(' ')
})()`
