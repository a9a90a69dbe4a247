package browser

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/visitors"
	"m40-llm/infer"
	"m40-llm/store"
)

// visitedEngine is a script whose answers have the limits of visitors.
type visitedEngine struct {
	*handlerstest.Script
	generate func(context.Context, infer.Request) iter.Seq2[infer.Event, error]
}

func (e *visitedEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return e.generate(ctx, r)
}

// The owner opens the house on the page Settings. A visitor on a phone and one at a desk open the address, ask, see what is left, find their
// chat in the list, and are asked to log in as soon as the house is closed.
func TestAnOpenHouse(t *testing.T) {
	t.Parallel()
	source := axe(t)
	db := handlerstest.OpenStore(t)
	house, err := visitors.New(t.Context(), visitors.Options{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	engine := &visitedEngine{Script: handlerstest.NewScript()}
	engine.generate = house.Limited(engine.Script.Generate)
	chats := live.New(engine, live.Options{Store: db})
	t.Cleanup(chats.Close)
	house.OnEnd(chats.Forget)
	serve := func(c *handlers.Config) {
		c.Asks, c.People, c.Live, c.Visitors = gate.AsksOthers, handlerstest.PeopleOf(t, db, ""), chats, house
	}
	owners, network := handlerstest.Server(t, engine, serve), handlerstest.Server(t, engine, serve)
	handlerstest.FromAddress(network, "192.168.1.20:5555", false)

	owner := openBrowser(t, owners)
	settings := func() {
		owner.do(chromedp.Navigate(owners.URL+"/settings"), chromedp.WaitReady("#open-house"))
	}
	for _, width := range []int64{390, 820, 1440} {
		owner.size(width, 900, width < 800)
		settings()
		owner.click(".house summary")
		for _, theme := range []string{"light", "dark"} {
			owner.scheme(theme)
			owner.look(source, fmt.Sprintf("the open house, closed, %d px, %s", width, theme))
			owner.script("document.querySelector('#open-house').scrollIntoView()")
			owner.shot(fmt.Sprintf("house-closed-%d-%s", width, theme))
		}
		if wide := owner.value("document.documentElement.scrollWidth > innerWidth"); wide != "false" {
			t.Errorf("%d px: the settings are wider than the window", width)
		}
	}
	owner.fill(".house [name=answers]", "3")
	owner.click(".house .primary")
	owner.until("document.querySelector('#open-house ~ .note.warn')?.textContent.includes('Nobody is here now')")
	if got := house.Settings(); got != (visitors.Settings{Open: true, Answers: 3, Tokens: visitors.Default.Tokens}) {
		t.Fatalf("the page set %+v", got)
	}

	for _, width := range []int64{1440, 390} {
		b := openBrowser(t, network)
		b.size(width, 844, width < 800)
		b.scheme("light")
		b.open("/")
		b.until("document.querySelector('.left').textContent.includes('You are visiting') && document.querySelector('[data-kept]').textContent === 'Your chats end with your browser.'")
		b.look(source, fmt.Sprintf("a new chat of a visitor, %d px", width))
		b.shot(fmt.Sprintf("visitor-new-%d", width))
		question := fmt.Sprintf("Who are you at %d?", width)
		b.ask(engine.Script, question, "A model.")
		left := map[int64]string{1440: "2 of 3 answers", 390: "1 of 3 answers"}[width]
		b.until(fmt.Sprintf("document.querySelector('[data-left]').textContent.includes(%q)", left))
		b.until(fmt.Sprintf("document.querySelector('#rail-list').textContent.includes(%q)", question))
		if rail := b.value("document.querySelectorAll('#rail-list li').length"); rail != "1" {
			t.Errorf("%d px: the list has %s chats of a visitor with one", width, rail)
		}
		b.scheme("dark")
		b.look(source, fmt.Sprintf("a chat of a visitor, %d px", width))
		b.shot(fmt.Sprintf("visitor-chat-%d", width))
		if wide := b.value("document.documentElement.scrollWidth > innerWidth"); wide != "false" {
			t.Errorf("%d px: the page of a visitor is wider than the window", width)
		}
		b.do(chromedp.Navigate(network.URL+"/settings"), chromedp.WaitReady("#h-visit"))
		b.look(source, fmt.Sprintf("the settings of a visitor, %d px", width))
		b.shot(fmt.Sprintf("visitor-settings-%d", width))
		b.open("/")
		if width == 1440 {
			continue
		}
		settings()
		owner.until("document.querySelector('#open-house ~ .note.warn').textContent.includes('2 visitors are here now')")
		owner.shot("house-open")
		owner.click("#open-house ~ form .primary")
		owner.until("document.querySelector('.house')")
		b.until("document.querySelector('[data-connbar]').innerText.includes('Your visit has ended')")
		b.shot("visitor-ended")
		b.do(chromedp.Navigate(network.URL + "/"))
		b.until("location.pathname === '/login'")
	}
	if number := house.Number(); number != 0 {
		t.Errorf("%d visitors are in a house that was closed", number)
	}
	if stored, err := db.Conversations(t.Context(), store.OwnerID, store.Filter{}); err != nil || len(stored) != 0 {
		t.Errorf("%d chats are stored (%v)", len(stored), err)
	}
}
