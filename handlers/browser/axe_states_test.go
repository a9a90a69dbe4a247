package browser

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/store"
)

// TestEverybodyCanUseTheStates looks at states of the page that TestEverybodyCanUseThePage
// does not come to. Headings keep their order, and everything is within a landmark.
func TestEverybodyCanUseTheStates(t *testing.T) {
	t.Parallel()
	fixtures.NeedCheck(t)
	source := axe(t)
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	for _, title := range []string{"One", "Two"} {
		id, err := handlerstest.ImportList(chats, store.Metadata{Title: title}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "x"}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := chats.List.Move(context.Background(), access.Local, id, "A folder"); err != nil {
			t.Fatal(err)
		}
	}
	b := openBrowser(t, server)
	look := func(state string) {
		t.Helper()
		b.look(source, state, "heading-order", "region", "landmark-unique")
	}
	b.open("/")
	b.until("document.querySelector('#rail-list').innerText.includes('A folder')")
	b.script(`document.querySelector('.conv-row [data-row-menu]').click()`)
	b.until("document.querySelector('#chat-menu').matches(':popover-open')")
	b.click(".tofolder summary")
	look("the menu of a chat")
	b.press("Escape", 27)

	b.say("Why?")
	answer := engine.Next(t)
	answer.Think("It rains.\n", "\nOften.")
	b.until("document.querySelector('.thought summary')?.innerText === 'Thinking, 3 words'")
	look("a thought that is written")
	answer.Write("Rain.")
	answer.Finish()
	b.until(idle)
	b.click(".thought summary")
	look("a thought")

	b.open("/")
	b.say("Tokens?")
	answer = engine.Next(t)
	answer.WriteSampled(t, rand.New(rand.NewPCG(1, 2)), "One ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten ", "eleven ", "twelve")
	answer.Finish()
	b.until(idle)
	b.click("[data-tokens]:not([hidden])")
	b.until("document.querySelectorAll('.toks .tok').length === 12")
	look("the tokens of an answer")
	b.click("[data-by=entropy]")
	b.script("document.querySelectorAll('.toks .tok')[3].click()")
	b.until("document.querySelector('.token .alt')")
	look("a token and its candidates")
	b.press("Escape", 27)
	b.set("top_k", "1")
	b.until("document.querySelector('.tok.gone')")
	look("tokens that a slider removes")
	b.set("top_k", "40")

	engine.Set(func(s *infer.Status) { s.ContextLength = 30 })
	b.fill("#message", strings.Repeat("word ", 40))
	b.until("document.querySelector('[data-send]').disabled")
	look("a draft that does not fit")
	b.fill("#message", "x")
	b.say("")
	engine.Next(t).Fail(&fault.Error{Code: fault.CodeDevice, Message: "it burns"})
	b.until("document.querySelector('.answer:last-child .errbox')?.hidden === false")
	look("a failure")

	b.open("/")
	b.click("[data-raw]")
	b.say("Once upon")
	answer = engine.Next(t)
	answer.Write(" a time")
	answer.Finish()
	b.until(idle)
	look("a raw chat")
	b.size(390, 844, true)
	look("a raw chat on a phone")
	b.size(1440, 900, false)

	engine.Set(func(s *infer.Status) { s.TemplateVars = []string{"enable_thinking"} })
	b.open("/")
	b.until("document.querySelector('#n-thinking').checkVisibility()")
	b.unfold()
	for _, key := range []string{"xtc_probability", "dynatemp_range", "dry_multiplier"} {
		b.set(key, "0.50")
	}
	b.click("#n-mirostat")
	b.click("#p-banned_strings [data-add]")
	b.fill("#p-banned_strings li input", "a testament to")
	b.click("[data-stage=dry] input")
	look("all samplers")
	shots := func(size string) {
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			for i, at := range []string{"#preset", "[data-param=top_n_sigma]", "#n-mirostat", "#p-dry_sequence_breakers", "#p-banned_strings"} {
				b.script("document.querySelector('" + at + "').scrollIntoView()")
				b.shot(fmt.Sprintf("samplers-%s-%s-%d", size, scheme, i))
			}
		}
	}
	shots("desktop")
	b.size(390, 844, true)
	b.frames()
	b.click("[data-sheet-open]")
	b.until("document.querySelector('[data-sheet-open]').ariaExpanded === 'true'")
	look("all samplers on a phone")
	shots("phone")
	b.click("[data-sheet-close]")
	b.size(1440, 900, false)

	full, _ := serveFull(t, engine)
	b.origin = full.URL
	b.open("/")
	b.until("document.querySelector('[data-space]').checkVisibility()")
	b.say("Hello")
	b.until("document.querySelector('#senderror').innerText.includes('The disk is full')")
	look("a full disk")
}
