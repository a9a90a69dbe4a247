package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/store"
)

// All of it: the built-in model on the processor, chats in a real database, a real
// browser. With -shots it takes the README's pictures.
func TestRealEngine_InTheBrowser(t *testing.T) {
	t.Parallel()
	server, chats := handlerstest.ServeStored(t, handlerstest.OpenGuide(t))
	for _, title := range []string{"A story about a fox", "Names for a kitten", "What is a token?"} {
		question := []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: title, Version: 1, Versions: 1}}
		if _, err := handlerstest.ImportList(chats, store.Metadata{Title: title}, question, 1); err != nil {
			t.Fatal(err)
		}
	}
	b := openBrowser(t, server)
	b.open("/")
	b.do(chromedp.SendKeys("#n-seed", "8842"))
	for i, question := range []string{"What is the difference between top-k and top-p?", "Write a function that adds two numbers in Python"} {
		b.say(question)
		b.until(fmt.Sprintf("[...document.querySelectorAll('[role=log] .turn [data-f=end]')].filter(end => end.textContent.includes('finished')).length === %d", i+1))
	}
	if text := b.text("[role=log]"); !strings.Contains(text, "Top-k") || !strings.Contains(text, "def ") {
		t.Errorf("the answers are %q", text)
	}
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
	for _, scheme := range []string{"dark", "light"} {
		b.scheme(scheme)
		b.shot("readme-" + scheme)
	}
	b.size(390, 844, true)
	b.shot("readme-phone")

	path := b.value("location.pathname")
	b.open(path)
	b.until("document.querySelector('[role=log]').innerText.includes('def ')")
	for _, trouble := range b.seen() {
		t.Errorf("the page had trouble: %s", trouble)
	}
}

func TestANoticeThatIsClosedComesBackWhenItSaysSomethingElse(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	b := openBrowser(t, handlerstest.Serve(t, engine))
	b.open("/")
	trouble := func(text string) { engine.Set(func(s *infer.Status) { s.Trouble = text }) }
	says := func(text string) {
		t.Helper()
		b.until(fmt.Sprintf("(e => e.checkVisibility() && e.innerText.includes(%q))(document.querySelector('.main [data-trouble]'))", text))
	}
	trouble("the CPU took over: the GPU failed twice")
	says("took over")
	b.click(".main [data-trouble] [data-close-note]")
	b.until("!document.querySelector('.main [data-trouble]').checkVisibility() && document.activeElement.id === 'message'")
	engine.Set(func(s *infer.Status) { s.Packing = infer.Packing{Done: 1, Total: 2} })
	b.until("!document.querySelector('.notes [data-packing]').hidden")
	if b.value("document.querySelector('.main [data-trouble]').checkVisibility()") != "false" {
		t.Error("the notice came back with the same words")
	}
	trouble("the GPU is used again")
	says("used again")
	b.clean()
}
