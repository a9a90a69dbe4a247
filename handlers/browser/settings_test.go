package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/handlerstest"
)

func TestTheBrowserKeepsItsSettings(t *testing.T) {
	t.Parallel()
	source := axe(t)
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	b := openBrowser(t, server)
	open := func() {
		t.Helper()
		b.do(chromedp.Navigate(b.origin+"/settings"), chromedp.WaitReady("[data-keeps]"))
		b.until("document.querySelector('[data-keeps] [aria-pressed=true]')")
	}
	choose := func(key, value string) {
		t.Helper()
		b.click(fmt.Sprintf("[data-keeps=%q] [value=%q]", key, value))
		b.until(fmt.Sprintf("document.querySelector('[data-keeps=%q] [value=%q]').ariaPressed === 'true'", key, value))
	}
	open()
	b.look(source, "the settings")
	for _, width := range []int64{1440, 820, 390, 320} {
		b.size(width, 900, width < 400)
		if got := b.value("document.documentElement.scrollWidth <= innerWidth"); got != "true" {
			t.Errorf("%d pixels: the page is wider than the window", width)
		}
		b.shot(fmt.Sprintf("settings-%d", width))
	}
	b.size(1440, 900, false)
	choose("m40.theme", "dark")
	choose("m40.text", "larger")
	choose("m40.enter", "line")
	b.script("document.querySelector('[data-single-keys]').click()")
	dark := "document.documentElement.dataset.theme === 'dark' && getComputedStyle(document.documentElement).fontSize === '20px'"
	b.until(dark)
	b.open("/")
	b.until(dark)
	b.until("!document.querySelector('[data-enter-sends]').checked && !document.querySelector('[data-single-keys]').checked")
	open()
	b.until(dark)
	choose("m40.theme", "")
	choose("m40.text", "")
	b.until("!('theme' in document.documentElement.dataset) && !('text' in document.documentElement.dataset)")
	b.clean()
}
