package handlers

import (
	"testing"

	"github.com/chromedp/chromedp"
)

func TestAnErrorOfALostConnectionGoesWhenItIsBack(t *testing.T) {
	engine := newScript()
	server := serve(t, engine)
	line := newCable(t, server)
	b := openBrowser(t, server)
	b.origin = "http://" + line.Addr().String()
	b.open("/")
	b.ask(engine, "Hello", "Hi.")
	line.cut(true)
	b.until("!document.querySelector('#connbar').hidden")
	b.say("Are you there?")
	b.until("!document.querySelector('#senderror').hidden")
	line.cut(false)
	b.do(chromedp.Click("[data-reconnect]"))
	b.until("document.querySelector('#connbar').hidden")
	b.until("document.querySelector('#senderror').hidden")
	if got := b.value("document.querySelector('#message').value"); got != "Are you there?" {
		t.Errorf("the message that was not sent is now %q", got)
	}
}

func TestATitleThatIsBeingRenamedIsNotShownTwice(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	b := openBrowser(t, server)
	b.size(390, 844, true)
	b.open("/")
	b.ask(engine, "Foxes", "Red.")
	b.click(".top [data-chat-menu]")
	b.until("document.querySelector('#chat-menu').matches(':popover-open')")
	b.click("#chat-menu [data-rename]")
	b.until("document.querySelector('.top.renaming .field')")
	b.until("!document.querySelector('.top .title [data-title]').checkVisibility()")
	b.fill(".top.renaming .field", "Owls")
	b.press("Enter", 13)
	b.until("document.querySelector('.top .title [data-title]').checkVisibility() && document.querySelector('.top .title [data-title]').innerText === 'Owls'")
	b.clean()
}
