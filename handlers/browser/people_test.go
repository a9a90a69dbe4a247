package browser

import (
	"net/http/httptest"
	"net/netip"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/share"
	"m40-llm/infer/fixtures"
	"m40-llm/store"

	"github.com/chromedp/chromedp"
)

// TestEverybodyCanLetPeopleIn adds a person, a device and a key in a browser, and looks at each page
// in both themes.
func TestEverybodyCanLetPeopleIn(t *testing.T) {
	t.Parallel()
	fixtures.NeedCheck(t)
	source := axe(t)
	db := handlerstest.OpenStore(t)
	known := handlerstest.PeopleOf(t, db, "")
	reach := share.NewReach(share.ReachOptions{Server: netip.MustParseAddrPort("0.0.0.0:8080"), Addresses: func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.168.1.5")}, nil
	}})
	s := handlerstest.Server(t, handlerstest.NewScript(), func(c *handlers.Config) {
		c.Asks, c.People, c.Reach, c.Announced = gate.AsksOthers, known, reach, func() string { return "m40-llm.local" }
	})
	if _, err := known.CreateKey(t.Context(), access.Local, store.OwnerID, "editor"); err != nil {
		t.Fatal(err)
	}
	handlerstest.LogIn(t, s, known, store.OwnerID, []string{"Via", "1.1 elsewhere", "Origin", s.URL})
	b := openBrowser(t, s)
	for _, width := range []int64{1440, 820, 390} {
		b.size(width, 900, width < 800)
		letPersonIn(t, b, s, source, map[int64]string{1440: "Anna", 820: "Ben", 390: "Somebody with a name that is long enough to wrap"}[width])
	}
}

func letPersonIn(t *testing.T, b *browser, s *httptest.Server, source, name string) {
	t.Helper()
	look := func(state string) {
		t.Helper()
		b.look(source, "people "+state+" "+name[:3])
		if wide := b.value("document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide != "0" {
			t.Errorf("%s of %s: the page is %s px too wide", state, name, wide)
		}
	}
	at := func(path string) {
		b.do(chromedp.Navigate(s.URL + path))
		b.until("document.readyState === 'complete' && document.querySelector('h1')")
	}
	at("/people")
	look("list")
	b.fill("#name", name)
	b.click("main form .primary")
	b.until("document.querySelector('.paircode')")
	look("invitation")
	if links := b.value("[...document.querySelectorAll('.shareside .mono:not(.paircode)')].map(e => e.textContent)"); links != "http://192.168.1.5:8080,http://m40-llm.local:8080" {
		t.Errorf("the addresses are %s", links)
	}
	b.click(".sharelink summary")
	b.until("[...document.querySelectorAll('.qr')].filter(e => e.getBoundingClientRect().width > 0).length === 2")
	look("invitation with the name")
	b.fill("input[placeholder='What it is for']", "script")
	b.click("form[action$='/keys'] button")
	b.until("document.querySelector('#newkey')?.value.startsWith('m40-')")
	look("key")
	b.click("form[action$='/keys/revoke'] button")
	b.until("!document.querySelector('form[action$=\"/keys/revoke\"]')")
	b.fill("[name=at_once]", "2")
	b.fill("[name=answers]", "50")
	b.click("form[action$='/limit'] button")
	b.until("document.querySelector('[name=at_once]')?.getAttribute('value') === '2' && document.querySelector('[name=answers]').getAttribute('value') === '50'") // as the server says
}
