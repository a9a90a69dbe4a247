package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
)

// sheetEnded holds when all answers of a contact sheet have ended.
const sheetEnded = "document.querySelector('[data-stop-all]').hidden && document.querySelectorAll('.cell').length > 0 && !document.querySelector('.cell article[aria-busy=true]')"

// TestAContactSheetOfTheGuide makes contact sheets with the built-in model, and keeps an answer.
func TestAContactSheetOfTheGuide(t *testing.T) {
	t.Parallel()
	source := axe(t)
	server, _ := handlerstest.ServeStored(t, handlerstest.OpenGuide(t))
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")

	run("the composer begins one of a message that has no answer yet", func(t *testing.T) {
		b.fill("#message", "Write a two-sentence weather report for a city that does not exist.")
		b.click("[data-ask-sheet]")
		b.until("location.pathname.endsWith('/sheet') && document.querySelector('[data-count]')?.innerText === '12 answers'")
		if got := b.text("[data-prompt]"); !strings.HasPrefix(got, "Write a two-sentence weather report") {
			t.Errorf("the prompt is %q", got)
		}
		b.look(source, "a contact sheet that is made", "heading-order", "region")
		b.shot("sheet-form")
	})

	run("its answers are written side by side, from one prompt", func(t *testing.T) {
		b.until(sheetEnded)
		if got := b.value("document.querySelectorAll('.cell').length"); got != "12" {
			t.Errorf("there are %s answers, want 12", got)
		}
		if got := b.text(".sheet thead"); !strings.Contains(got, "0.2") || !strings.Contains(got, "1.4") {
			t.Errorf("the columns are %q", got)
		}
		if got := b.text("[data-prompt-cost]"); !strings.HasPrefix(got, "prompt of 26 tokens, too short to be shared") {
			t.Errorf("the figures say %q", got)
		}
		b.until("document.querySelector('.sheetbar [data-states]').innerText === '12 done'")
	})

	run("each says where it parts from the first", func(t *testing.T) {
		texts := func(selector string) string {
			return fmt.Sprintf("JSON.stringify([...document.querySelectorAll('.cell %s')].map(e => e.textContent))", selector)
		}
		whole := b.value("document.querySelector('.cell .txt').textContent.trim()")
		if got := b.value("[...document.querySelectorAll('.cell .same')].every(e => document.querySelector('.cell .txt').textContent.trim().startsWith(e.textContent.trim()))"); got != "true" {
			t.Errorf("the first answer is %q, and the others begin with %s", whole, b.value(texts(".same")))
		}
		if got := b.value("document.querySelectorAll('.cell .split:not([hidden])').length"); got == "0" {
			t.Error("no answer differs from the first")
		}
		b.look(source, "a contact sheet", "heading-order", "region")
		for _, theme := range []string{"light", "dark"} {
			b.scheme(theme)
			for _, width := range []int64{1440, 820, 390} {
				b.size(width, 900, width < 400)
				b.shot(fmt.Sprintf("sheet-%d-%s", width, theme))
			}
		}
		b.look(source, "a contact sheet on a phone", "heading-order", "region")
		b.scheme("light")
	})

	run("on a phone one column is shown", func(t *testing.T) {
		b.until("[...document.querySelectorAll('.cell')].filter(c => c.checkVisibility()).length === 3")
		b.click(".columns button:nth-child(3)")
		b.until("document.querySelectorAll('.cell')[2].checkVisibility() && !document.querySelectorAll('.cell')[0].checkVisibility()")
		if got := b.value("document.documentElement.scrollWidth"); got != "390" {
			t.Errorf("the page is %s px wide", got)
		}
		b.size(1440, 900, false)
	})

	run("arrows walk, and a button keeps an answer", func(t *testing.T) {
		b.script("document.querySelector('.cell article').focus()")
		b.press("ArrowRight", 39)
		b.press("ArrowDown", 40)
		b.until("document.activeElement.getAttribute('aria-label') === 'temperature 0.7, seed 2'")
		b.script("document.activeElement.querySelector('[data-keep]').focus()")
		b.do(chromedp.KeyEvent("\r"))
		b.until("document.querySelector('.cell.kept') && document.querySelector('.kept-note a').href.includes('?at=')")
		b.shot("sheet-kept")
		stored := b.value("[...document.querySelectorAll('.cell.kept :is(.same, .new)')].map(e => e.textContent).join('').trim()")
		b.script("document.querySelector('.kept-note a').click()")
		b.until("document.querySelector('.answer .prose') && location.pathname.startsWith('/c/') && !location.pathname.endsWith('/sheet')")
		b.until(wired)
		if got := b.value(lastAnswer); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(stored), " ") {
			t.Errorf("the chat has %q, and %q was kept", got, stored)
		}
		b.until("document.querySelector('.answer [data-f=seed]').textContent === '2'")
	})

	run("the menu of an answer and a key lead to the sheet of its question", func(t *testing.T) {
		b.click(".answer [data-receipt]")
		b.click("#answer-menu [data-sheet]")
		b.until("location.pathname.endsWith('/sheet') && document.querySelectorAll('.cell.kept').length === 1")
		b.do(chromedp.NavigateBack())
		b.until("document.querySelector('.answer [data-receipt]')") // the script has the answer
		b.script("document.querySelector('.answer').focus()")
		b.press("g", 71)
		b.until("location.pathname.endsWith('/sheet') && document.querySelectorAll('.cell.kept').length === 1")
	})

	b.clean()
}

// TestAContactSheetIsStopped refuses a sheet, stops an answer of one that the engine does not answer, and
// then all of them.
func TestAContactSheetIsStopped(t *testing.T) {
	t.Parallel()
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	chat, _ := handlerstest.Asked(t, chats, access.Local, "Why?")
	b := openBrowser(t, server)
	b.do(chromedp.Navigate(server.URL + "/c/" + chat.ID() + "/sheet"))
	b.until("document.querySelector('[data-count]').innerText === '12 answers'")
	b.fill("[name=seeds]", "1 2 x")
	b.click("#axes [type=submit]")
	b.until("document.querySelector('#problem').innerText.includes('is no number') && document.querySelector('[name=seeds]').ariaInvalid === 'true'")
	b.fill("[name=seeds]", handlerstest.FirstNumbers(16))
	b.until("document.querySelector('[data-count]').innerText === '64 answers'")
	b.click("#axes [type=submit]")
	b.until("document.querySelectorAll('.cell').length === 64 && document.querySelector('.sheetbar [data-states]').innerText === '64 waiting' && document.querySelector('#problem').hidden")
	b.click("[data-stop-cell]:not([hidden])")
	b.until("document.querySelector('.cell [data-chip]').innerText === 'stopped by you'")
	b.click("[data-stop-all]")
	b.until(sheetEnded)
	if got := b.value("[...document.querySelectorAll('.cell [data-chip]')].filter(e => e.innerText === 'stopped by you').length"); got != "64" {
		t.Errorf("%s answers are stopped", got)
	}
}

func TestAnswersOfASheetShowTheirMarkupWhenTheyHaveEnded(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	chat, _ := handlerstest.Asked(t, chats, access.Local, "Why?")
	b := openBrowser(t, server)
	b.do(chromedp.Navigate(server.URL + "/c/" + chat.ID() + "/sheet"))
	b.until("document.querySelector('[data-count]').innerText === '12 answers'")
	b.fill("[name=seeds]", "1 2")
	b.script("for (const name of ['across', 'down']) { const select = document.querySelector(`[name=${name}]`); select.value = ''; select.dispatchEvent(new Event('change', { bubbles: true })) }")
	b.until("document.querySelector('[data-count]').innerText === '2 answers'")
	b.click("#axes [type=submit]")
	for _, last := range []string{"three", "four"} {
		a := engine.Next(t)
		for _, token := range []string{"Some", ":\n\n- ", "**", "one", "**", "\n- ", last, "\n\n```go\nx := 1\n```\n"} {
			a.Write(token)
		}
		a.Finish()
	}
	shown := func() {
		t.Helper()
		b.until(sheetEnded)
		b.until("document.querySelectorAll('.cell .prose:not([hidden]) li strong').length === 2 && document.querySelectorAll('.cell .prose .code').length === 2")
		if got := b.value("[...document.querySelectorAll('.cell p.txt')].some(p => p.checkVisibility())"); got != "false" {
			t.Error("the text is shown without its markup, too")
		}
		if got := b.value("[...document.querySelectorAll('.cell .prose')].map(e => e.innerText).join()"); strings.Contains(got, "\uE000") || !strings.Contains(got, "three") || !strings.Contains(got, "four") {
			t.Errorf("the answers are shown as %q", got)
		}
	}
	shown()
	b.shot("sheet-markup")
	b.do(chromedp.Reload())
	shown()
	b.clean()
}
