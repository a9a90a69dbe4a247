package browser

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"

	"github.com/chromedp/chromedp"
)

// followed opens the page behind a link, as a phone does.
func (b *browser) followed(link string) {
	b.t.Helper()
	b.size(390, 844, true)
	b.do(chromedp.Navigate(link), chromedp.WaitReady("#thread"))
	b.until("document.querySelector('[data-dot].live')")
}

// sharedPath shares the chat that is open and returns the path of its link.
func (b *browser) sharedPath() string {
	b.t.Helper()
	b.click("[data-share]")
	b.until("document.querySelector('#share[open] .newshare')")
	b.shot("share-form")
	b.click("#share .newshare [type=submit]")
	b.until("document.querySelector('#share .sharelink input')?.value")
	b.shot("share-link")
	return b.shownPath()
}

// shownPath returns the path of the link that the share sheet shows.
func (b *browser) shownPath() string {
	b.t.Helper()
	link := b.value("document.querySelector('#share .sharelink input').value")
	return link[strings.Index(link, "/s/"):]
}

const shownTurns = "[...document.querySelectorAll('#thread .prose')].map(el => el.innerText.trim()).join('|')"

func TestAFollowerReadsAlong(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	owner, phone := openBrowser(t, server), openBrowser(t, server)
	owner.size(1440, 900, false)
	owner.open("/")
	owner.say("What is rain?")
	first := engine.Next(t)
	first.Write("Rain is **water** that falls.")
	first.Finish()
	owner.until(lastAnswerIs("Rain is water that falls."))
	owner.until(idle)
	owner.say("And snow?")
	answer := engine.Next(t)
	answer.Write("Snow is ", "slow rain.\n\n", "It is")
	path := owner.sharedPath()
	owner.until("document.querySelector('[data-shared]').textContent === 'Shared' && document.querySelector('#rail-list .conv[aria-current] .shared')")

	phone.followed(server.URL + path)
	phone.until(fmt.Sprintf("%s === %q", shownTurns, "What is rain?|Rain is water that falls.|And snow?|Snow is slow rain.\n\nIt is"))
	phone.shot("follow-running")
	owner.until("document.querySelector('#share [data-readers]').innerText === '1 person is reading now.'")
	answer.Write(" white.")
	phone.until(fmt.Sprintf("%s.endsWith('It is white.')", shownTurns))
	answer.Finish()
	phone.until("document.querySelectorAll('#thread .foot').length === 2 && !document.querySelector('[aria-busy]')")
	phone.shot("follow-finished")
	phone.scheme("dark")
	phone.size(820, 1180, true)
	phone.shot("follow-finished-dark")

	owner.press("Escape", 27)
	owner.until("!document.querySelector('#share[open]')")
	owner.until("document.querySelector('[data-shared]').textContent === 'Shared · 1 reading'")
	owner.shot("shared-reading")
	owner.click(".answer:last-child .foot [data-again]")
	again := engine.Next(t)
	phone.until(fmt.Sprintf("%s === %q", shownTurns, "What is rain?|Rain is water that falls.|And snow?|"))
	again.Write(strings.Repeat("It snows, and what was written before moves up.\n\n", 40), "Frozen.")
	again.Finish()
	phone.until(fmt.Sprintf("%s.endsWith('Frozen.')", shownTurns))
	for _, turned := range [][2]int64{{844, 390}, {390, 844}, {844, 390}} {
		phone.size(turned[0], turned[1], true)
		phone.frames()
		if got := phone.value("document.querySelector('[data-following]').ariaPressed + ' ' + Math.round((s => s.scrollHeight - s.clientHeight - s.scrollTop)(document.querySelector('#scroll')))"); got != "true 0" {
			t.Errorf("on a phone that was turned to %d × %d px it follows, and is px from the end: got %s, want true 0", turned[0], turned[1], got)
		}
	}

	owner.click("[data-share]")
	owner.click("#share .sharelink .danger")
	phone.until("document.querySelector('[data-status]').innerText === 'This link has ended'")
	owner.until("document.querySelector('#share .newshare') && !document.querySelector('#share .sharelink')")
	owner.until("document.querySelector('[data-shared]').textContent === 'Share' && !document.querySelector('#rail-list .shared')")
	response, err := http.Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("a link that was ended answers %s", response.Status)
	}
	owner.clean()
	phone.clean()
}

func TestAFollowerWithoutScriptsReadsAGrowingPage(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	owner := openBrowser(t, server)
	owner.open("/")
	owner.ask(engine, "What is rain?", "Water.")
	path := owner.sharedPath()
	response, err := http.Get(server.URL + path + "?grow=1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page := bufio.NewReader(response.Body)
	var read strings.Builder
	until := func(text string) {
		t.Helper()
		for !strings.Contains(read.String(), text) {
			c, err := page.ReadByte()
			if err != nil {
				t.Fatalf("the page ended before %q: %v\n%s", text, err, read.String())
			}
			read.WriteByte(c)
		}
		read.Reset()
	}
	until("Water.")
	owner.press("Escape", 27)
	owner.until("!document.querySelector('#share[open]')")
	owner.say("And snow?")
	answer := engine.Next(t)
	until("And snow?")
	answer.Write("Frozen ", "water.")
	until("Frozen ")
	until("water.")
	answer.Finish()
	until("2 tokens")
	owner.click("[data-share]")
	owner.click("#share .sharelink .danger")
	until("This link has ended.")
	until("</html>")
}
