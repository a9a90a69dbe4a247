package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/handlerstest"
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
