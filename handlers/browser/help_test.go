package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/docs"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/help"
)

func TestTheDocumentsAreReachedFromTheHelp(t *testing.T) {
	t.Parallel()
	source := axe(t)
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	b := openBrowser(t, server)
	b.open("/")
	b.script("document.querySelector('.top [data-help]').click()")
	b.until("document.querySelector('#help').open")
	b.click("#help a[href='/help']")
	b.until("document.querySelector('.help h1')?.textContent === 'Documents'")
	b.look(source, "the table of contents")
	b.click(".help a[href='/help/api']")
	b.until("location.pathname === '/help/api' && document.querySelector('.help h1')")
	b.look(source, "a document with tables and examples")
	b.click(".help summary")
	b.click(".help nav li:last-child a")
	b.until("location.hash && scrollY > innerHeight")

	pages, err := help.Pages(docs.Files, "/help")
	if err != nil {
		t.Fatal(err)
	}
	for name := range pages {
		b.do(chromedp.Navigate(b.origin+strings.TrimSuffix("/help/"+name, "/")), chromedp.WaitReady(".help"))
		for _, width := range []int64{1440, 390, 320} {
			b.size(width, 900, width < 400)
			if got := b.value("document.documentElement.scrollWidth <= innerWidth"); got != "true" {
				t.Errorf("%q at %d pixels: the page is wider than the window", name, width)
			}
			if name == help.Index || name == "models" {
				b.shot(fmt.Sprintf("help-%s-%d", name, width))
			}
		}
	}
	b.clean()
}
