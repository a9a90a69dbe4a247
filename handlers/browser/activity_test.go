package browser

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/store"
)

// activeAnswers lists answers in every state, of the owner, of a person and of a program.
type activeAnswers struct {
	t       *testing.T
	running *activity.Service
}

// start lists an answer that has had these events, and returns what sends more.
func (a activeAnswers) start(o activity.Origin, events ...infer.Event) chan<- infer.Event {
	a.t.Helper()
	source, seen, ended := make(chan infer.Event), make(chan struct{}, 100), make(chan struct{})
	ctx, cancel := context.WithCancel(activity.With(context.Background(), o))
	generate := a.running.Observe(func(ctx context.Context, _ infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			for {
				select {
				case e := <-source:
					yield(e, nil)
				case <-ctx.Done():
					return
				}
			}
		}
	})
	go func() {
		defer close(ended)
		for range generate(ctx, infer.Request{Model: "guide"}) {
			seen <- struct{}{}
		}
	}()
	a.t.Cleanup(func() { cancel(); <-ended })
	for _, e := range events {
		source <- e
		<-seen
	}
	return source
}

// TestTheActivityIsShownAsItChanges follows the page from an idle engine to answers in every state, and
// stops one, at each width and in both themes.
func TestTheActivityIsShownAsItChanges(t *testing.T) {
	t.Parallel()
	source := axe(t)
	db := handlerstest.OpenStore(t)
	known := handlerstest.PeopleOf(t, db, "")
	anna, err := known.Add(t.Context(), access.Local, "Anna")
	if err != nil {
		t.Fatal(err)
	}
	long, err := known.Add(t.Context(), access.Local, "Somebody with a name that is long enough to wrap")
	if err != nil {
		t.Fatal(err)
	}
	running := activity.New(known.Name)
	engine := handlerstest.NewScript()
	s := handlerstest.Server(t, engine, func(c *handlers.Config) { c.Asks, c.People, c.Activity = gate.AsksOthers, known, running })
	b := openBrowser(t, s)
	b.do(chromedp.Navigate(s.URL + "/activity"))
	b.until("document.querySelector('#activity')?.innerText.includes('Nothing is being written')")
	b.look(source, "activity idle")

	engine.Set(func(s *infer.Status) { s.Running, s.Queued, s.WaitS, s.Decode = 3, 1, 20, 38.2 })
	token := handlerstest.WordEvent(1, "secret")
	list := activeAnswers{t, running}
	own := list.start(activity.Origin{Person: store.OwnerID, Chat: "1"}, token, token)
	source2 := list.start(activity.Origin{Person: anna.ID, Key: "editor"}, token)
	list.start(activity.Origin{Person: anna.ID, Chat: "2"}, infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1200, Total: 4000}})
	list.start(activity.Origin{Person: long.ID, Key: "a key with a long name that says what it is for"}, infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 2, WaitS: 20}})
	b.until("document.querySelectorAll('#activity li').length === 4") // without a reload
	for _, width := range []int64{1440, 820, 390} {
		b.size(width, 900, width < 800)
		b.look(source, fmt.Sprint("activity ", width))
		if wide := b.value("document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide != "0" {
			t.Errorf("at %d px the page is %s px too wide", width, wide)
		}
	}
	b.script("document.querySelector('li:nth-child(2) button').focus()")
	for range 41 {
		source2 <- token
	}
	b.until("document.querySelector('li:nth-child(2)').innerText.includes('42 tokens')")
	if b.value("document.activeElement.ariaLabel") != "Stop the answer of Anna" {
		t.Error("an update takes the focus from the button")
	}
	// Each token changes the text that has the link; a click on it counts anyway.
	b.script("addEventListener('click', e => { if (e.target.closest('a')) { window.clicked = e.target.closest('a').pathname; e.preventDefault() } }, { capture: true })")
	release := b.hold("#activity li:first-child a", 1)
	told := b.received("activity")
	own <- token
	b.until(fmt.Sprintf("underWay.received.activity > %d", told))
	release()
	b.until("window.clicked === '/c/1'")
	b.until("document.querySelector('li:first-child').innerText.includes('3 tokens')")
	b.click("#activity li:nth-child(2) button")
	b.until("document.querySelectorAll('#activity li').length === 3")
	if b.value("document.activeElement.ariaLabel") != "Stop the answer of Anna" {
		t.Errorf("the focus is at %s, and not at the next answer", b.value("document.activeElement.outerHTML"))
	}
	b.clean()
}
