package handlers

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/infer"
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

func TestThePageTellsOfAnEngineThatStopped(t *testing.T) {
	engine := newScript()
	server := serve(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
	b.say("Tell me a story")
	answer := engine.next(t)
	answer.write("Once upon ", "a time")
	b.until(lastAnswerIs("Once upon a time"))

	engine.set(func(s *infer.Status) {
		s.State, s.Trouble = infer.StateRestarting, "the engine stopped and is being restarted: SIGSEGV: segmentation violation"
	})
	answer.fail(&infer.Error{Code: infer.CodeLost, Message: "the engine stopped while it worked on this (SIGSEGV: segmentation violation) and is being restarted. What was written is kept; ask again, or write on from there"})
	b.until("!document.querySelector('.answer:last-child .errbox').hidden")
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'restarting'")
	b.until("document.querySelector('.insp [data-trouble]').checkVisibility()")
	if got := b.text(".insp [data-trouble]"); !strings.Contains(got, "being restarted: SIGSEGV: segmentation violation.") {
		t.Errorf("the panel says %q", got)
	}
	if got := b.text(".answer:last-child"); !strings.Contains(got, "Once upon a time") || !strings.Contains(got, "The engine stopped") || !strings.Contains(got, "What was written is kept; ask again, or write on from there.") {
		t.Errorf("the answer says %q", got)
	}
	b.shot("engine-restarting")

	const fallen = "the CPU took over: the GPU failed twice, the second time with: an illegal address was used. A new start of the server tries it again"
	engine.set(func(s *infer.Status) { s.State, s.Trouble = infer.StateReady, fallen })
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
	b.until("document.querySelector('.insp [data-trouble]').innerText.startsWith('The CPU took over: the GPU failed twice')")
	b.shot("engine-fallback")
	b.scheme("dark")
	b.size(390, 844, true)
	b.until("document.querySelector('.main [data-trouble]').checkVisibility()") // the panel is out of sight there
	b.shot("engine-fallback-phone")

	b.do(chromedp.Click(".answer:last-child [data-continue]"))
	again := engine.next(t)
	if !again.request.Continue || again.request.Messages[len(again.request.Messages)-1].Content != "Once upon a time" {
		t.Errorf("the engine is asked %+v", again.request.Messages)
	}
	again.write(" there was a fox.")
	again.finish()
	b.until(lastAnswerIs("Once upon a time there was a fox."))
	b.clean()
}
