package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/people"
	"m40-llm/store"
)

// TestUnencrypted_InABrowser looks at the note, at the login with a passphrase and at the page on
// which that is changed, in both themes.
func TestUnencrypted_InABrowser(t *testing.T) {
	t.Parallel()
	source := axe(t)
	engine := handlerstest.NewScript()
	s, chats := handlerstest.ServeStored(t, engine)
	handlerstest.FromAddress(s, "192.168.1.7:5000", false)
	known := handlerstest.PeopleOf(t, handlerstest.OpenStore(t), "")
	if err := known.ChangePassphrase(t.Context(), access.Local, store.OwnerID, people.PassphraseChange{New: "the first passphrase"}); err != nil {
		t.Fatal(err)
	}
	anna, err := known.Add(t.Context(), access.Local, "Anna")
	if err != nil {
		t.Fatal(err)
	}
	locked := handlerstest.Server(t, handlerstest.NewScript(), func(c *handlers.Config) { c.Asks, c.People = gate.AsksOthers, known })
	handlerstest.FromAddress(locked, "192.168.1.7:5000", false)
	b := openBrowser(t, s)
	b.open("/")
	b.ask(engine, "Why is the sky blue?", "Air scatters blue light more than red light.")
	id := strings.TrimPrefix(b.value("location.pathname"), "/c/")
	made, err := chats.Links.Add(t.Context(), access.Local, id, links.Wanted{Live: true})
	if err != nil {
		t.Fatal(err)
	}
	look := func(state, address, ready string) {
		t.Helper()
		for _, width := range []int64{1440, 390} {
			b.size(width, 800, width < 800)
			b.do(chromedp.Navigate(address))
			b.until("document.readyState === 'complete' && " + ready)
			b.look(source, fmt.Sprintf("lan %s %d", state, width))
			if wide := b.value("document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide != "0" {
				t.Errorf("%s, %d px: the page is %s px too wide", state, width, wide)
			}
		}
	}
	note := "document.querySelector('.unencrypted')?.getBoundingClientRect().height > 0"
	look("playground", s.URL+"/c/"+id, note)
	look("shared", s.URL+"/s/"+made.Token, note)
	look("login", locked.URL+"/login", note)
	b.fill("#name", "Owner")
	b.fill("#passphrase", "a wrong passphrase")
	b.click(".login .primary")
	b.until("document.querySelector('#wrong')?.textContent.includes('wrong')")
	b.look(source, "lan wrong login")
	b.fill("#passphrase", "the first passphrase")
	b.click(".login .primary")
	b.until("location.pathname === '/'")
	look("own page", locked.URL+"/people/"+store.OwnerID, "document.querySelector('#old')")
	look("page of another", locked.URL+"/people/"+anna.ID, "document.querySelector('#h-passphrase')")
	b.do(chromedp.Navigate(locked.URL + "/people/" + store.OwnerID))
	b.until("document.querySelector('#old')")
	b.fill("#old", "the first passphrase")
	b.fill("#new", "the next passphrase")
	b.click("form[action$='/passphrase'] .btn:not(.danger)")
	b.until("document.readyState === 'complete' && document.querySelector('#old')?.value === ''")
	b.click("details summary")
	b.fill("#newname", "Olga")
	b.click("form[action$='/rename'] .btn")
	b.until("document.querySelector('h1')?.textContent === 'Olga'")

	b.do(chromedp.Navigate(locked.URL))
	b.until(wired)
	account, err := known.Account(t.Context(), access.Local, store.OwnerID)
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range account.Devices {
		if err := known.RevokeDevice(t.Context(), access.Local, store.OwnerID, device.ID); err != nil {
			t.Fatal(err)
		}
	}
	b.until("document.querySelector('[data-connbar]').innerText === 'This device was logged out.'")
	b.look(source, "lan logged out")
	b.click("[data-reconnect]")
	b.until("location.pathname === '/login'")
}
