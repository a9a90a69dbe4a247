package handlers

import (
	"net/http"
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
	b.reconnect()
	b.until("document.querySelector('#connbar').hidden")
	b.until("document.querySelector('#senderror').hidden")
	if got := b.value("document.querySelector('#message').value"); got != "Are you there?" {
		t.Errorf("the message that was not sent is now %q", got)
	}
}

func TestAMessageWaitsForAConnectionThatIsBeingOpened(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	inner, open := server.Config.Handler, make(chan struct{})
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			select {
			case <-open:
			case <-r.Context().Done():
				return
			}
		}
		inner.ServeHTTP(w, r)
	})
	b := openBrowser(t, server)
	// A page gives a connection up that takes 8 s to open. This test may take longer on a slow machine.
	b.keepTimers(8000)
	run := steps(t, b)
	// answered checks that what was written is sent as soon as there is a connection.
	answered := func(t *testing.T) {
		t.Helper()
		b.say("Hello")
		b.until("document.querySelector('#message').value === ''")
		if b.value("document.querySelector('#senderror').checkVisibility()") != "false" {
			t.Errorf("the page shows %q", b.text("#senderror"))
		}
		b.fill("#message", "And then?")
		open <- struct{}{}
		answer := engine.next(t)
		answer.write("Hi.")
		answer.finish()
		b.until(lastAnswerIs("Hi."))
		b.until(idle)
		// What was typed meanwhile is a draft of the chat that began, and not of the next new one.
		drafts := "JSON.stringify(Object.entries(localStorage).filter(([name]) => name.startsWith('m40.draft.')).map(([name, text]) => [`/c/${name.slice(10)}` === location.pathname, text]))"
		b.until(drafts + ` === '[[true,"And then?"]]'`)
		b.fill("#message", "")
	}

	run("of a page that was just opened", func(t *testing.T) {
		b.open("/")
		answered(t)
	})

	run("of a new chat, because the open one was deleted", func(t *testing.T) {
		b.click(".chat-head [data-chat-menu]")
		b.click("#chat-menu [data-act=delete] button")
		b.until("location.pathname === '/' && document.querySelector('#empty').checkVisibility()")
		answered(t)
	})
	b.clean()
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
	b.until("document.querySelector('.main [data-trouble]').checkVisibility()")
	if got := b.text(".main [data-trouble]"); !strings.Contains(got, "being restarted: SIGSEGV: segmentation violation.") {
		t.Errorf("the panel says %q", got)
	}
	if got := b.text(".answer:last-child"); !strings.Contains(got, "Once upon a time") || !strings.Contains(got, "The engine stopped") || !strings.Contains(got, "What was written is kept; ask again, or write on from there.") {
		t.Errorf("the answer says %q", got)
	}
	b.shot("engine-restarting")

	const fallen = "the CPU took over: the GPU failed twice, the second time with: an illegal address was used. A new start of the server tries it again"
	engine.set(func(s *infer.Status) { s.State, s.Trouble = infer.StateReady, fallen })
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
	b.until("document.querySelector('.main [data-trouble]').innerText.startsWith('The CPU took over: the GPU failed twice')")
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

func TestTheFirstScreenBeginsAtItsTopAndTheMessageFieldKeepsTheFocus(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	b := openBrowser(t, server)
	for _, phone := range []bool{true, false} {
		if phone {
			b.size(390, 560, true)
		} else {
			b.size(1280, 520, false)
		}
		b.open("/")
		b.until("document.querySelector('#scroll').scrollHeight > document.querySelector('#scroll').clientHeight")
		b.fill("#message", "one\ntwo\nthree\nfour\nfive") // the field grows, and the page above it gets lower
		b.until("document.querySelector('[data-cost]').innerText.includes('after this')")
		if got := b.value("document.querySelector('#scroll').scrollTop"); got != "0" {
			t.Errorf("with a phone %v, the first screen begins at %s", phone, got)
		}
		b.fill("#message", "")
	}
	b.click("[data-suggestion]")
	b.until("document.activeElement === document.querySelector('#message')")
	a := engine.next(t)
	a.write(strings.Repeat("Once upon a time. ", 400))
	a.finish()
	b.until(idle)
	b.fill("#message", "And then?")
	b.click("[data-send]")
	engine.next(t).finish()
	b.until(idle + " && document.querySelectorAll('.answer').length === 2")
	if got := b.value("document.activeElement.id + (document.querySelector('#scroll').scrollTop > 0)"); got != "messagetrue" {
		t.Errorf("after Send was clicked the focus and the scroll are %s", got)
	}
	b.clean()
}

func TestAModelThatCannotBeUsedLeavesTheChoiceOfAnother(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	engine.set(func(s *infer.Status) {
		s.State, s.Model = infer.StateFailed, infer.ModelInfo{Name: "broken"}
		s.Error = &infer.Error{Code: infer.CodeModelFile, Message: "model \"broken\" ends early"}
	})
	b := openBrowser(t, server)
	b.open("/")
	b.until("document.querySelector('#empty [data-picker]').checkVisibility()")
	b.shot("failed-choose")
	if got := b.text("#empty"); !strings.Contains(got, "Choose another one, or download one.") || strings.Contains(got, "lighthouse") {
		t.Errorf("the page says %q", got)
	}
	b.click("#empty [data-picker]")
	b.until("document.querySelector('#model-menu').matches(':popover-open')")
	b.open("/?model=other")
	b.until("document.querySelector('#empty').innerText.includes('Other answers here')")
	if got := b.text("#empty"); strings.Contains(got, "cannot be used") || strings.Contains(got, "use a real model") || !strings.Contains(got, "lighthouse") {
		t.Errorf("with another model chosen the page says %q", got)
	}
	b.say("Hello")
	if a := engine.next(t); a.request.Model != "other" {
		t.Errorf("asked is %q", a.request.Model)
	} else {
		a.finish()
	}
	b.until(idle)
	b.clean()
}
