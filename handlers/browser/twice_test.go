package browser

import (
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/store"
)

// TestWhatIsPressedTwiceIsDoneOnce presses buttons twice in a row, as many people do with all of them.
func TestWhatIsPressedTwiceIsDoneOnce(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)

	run("a double-click on Send does not stop the answer, though Stop takes its place", func(t *testing.T) {
		b.open("/")
		b.fill("#message", "What is rain?")
		b.hold("[data-send]", 1)()
		answer := engine.Next(t)
		b.until("!document.querySelector('[data-stop]').hidden")
		answer.Write("Water.")
		b.until(lastAnswerIs("Water."))
		b.hold("[data-stop]", 2)()
		b.settled()
		if n := b.sent("stop"); n != 0 {
			t.Fatalf("the answer was stopped %d times", n)
		}
		answer.Write(" It falls.")
		answer.Finish()
		b.until(idle)
		if got := b.value(lastAnswer); got != "Water. It falls." {
			t.Errorf("the answer is %q", got)
		}
	})

	run("a fork", func(t *testing.T) {
		b.script("const fork = document.querySelector('.you [data-fork]'); fork.click(); fork.click()")
		b.until("document.querySelector('.you:last-child [data-answer-this]')?.checkVisibility()")
		b.until("document.querySelectorAll('#rail-list [data-conv]').length >= 2")
		list, err := chats.List.Conversations(t.Context(), access.Local, store.Filter{})
		if err != nil || len(list) != 2 {
			t.Errorf("there are %d chats, %v; want the chat and its fork", len(list), err)
		}
	})

	run("a link", func(t *testing.T) {
		b.click("[data-share]")
		b.until("document.querySelector('#share[open] .newshare')")
		b.script("const form = document.querySelector('#share .newshare'); form.requestSubmit(); form.requestSubmit()")
		b.until("document.querySelector('#share .sharelink')")
		b.press("Escape", 27)
		b.until("!document.querySelector('#share').open")
		b.click("[data-share]")
		b.until("document.querySelector('#share .sharelink')")
		if got := b.value("document.querySelectorAll('#share .sharelink').length"); got != "1" {
			t.Errorf("%s links were made", got)
		}
	})
	b.clean()
}

// TestNothingTypedIsLostOrStoredBecauseOfAnother writes while another page does something with the same chat.
func TestNothingTypedIsLostOrStoredBecauseOfAnother(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)

	run("an edit that is refused, because another's answer is being written, stays", func(t *testing.T) {
		b.open("/")
		b.ask(engine, "What is rain?", "Water.")
		b.click(".you [data-edit]")
		b.fill(".editor textarea", "What is hail?")
		other := openBrowser(t, server)
		other.open(b.value("location.pathname"))
		other.say("And snow?")
		answer := engine.Next(t)
		b.until("document.querySelectorAll('.answer').length === 2")
		b.click(".editor [type=submit]")
		b.until("document.querySelector('#senderror').checkVisibility() && document.querySelector('.editor textarea')?.value === 'What is hail?'")
		answer.Finish()
		b.until(idle)
		b.click(".editor [type=submit]")
		answer = engine.Next(t)
		answer.Write("Ice.")
		answer.Finish()
		b.until(lastAnswerIs("Ice."))
		b.until(idle)
	})

	run("after a temporary chat that is gone the next one is temporary, too", func(t *testing.T) {
		b.open("/")
		b.click("[data-temporary]")
		b.ask(engine, "Secret", "Hush.")
		id := b.value("location.pathname.slice(3)")
		b.fill("#message", "Another secret")
		if err := chats.Delete(t.Context(), access.Local, id); err != nil {
			t.Fatal(err)
		}
		b.until("document.querySelector('#empty').checkVisibility()")
		if got := b.value("document.querySelector('[data-temporary]').ariaPressed"); got != "true" {
			t.Errorf("that the next chat is temporary is %s", got)
		}
		b.fill("#message", "A third secret")
		if got := b.value("JSON.stringify(localStorage)"); got == "" || strings.Contains(got, "secret") {
			t.Errorf("the browser stores %s", got)
		}
	})
}
