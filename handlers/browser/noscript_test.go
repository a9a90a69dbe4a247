package browser

import (
	"testing"

	"m40-llm/handlers/handlerstest"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

func TestAPlainChatWithoutScriptsInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(chromedp.Navigate(b.origin+"/"), chromedp.WaitVisible("#message"))
	b.shot("noscript-first")
	b.fill("#message", "Tell me about rain.")
	// The click leads to a page that goes on loading, which is not waited for.
	b.script(`document.querySelector('[data-send]').click()`)
	answer := engine.Next(t)
	answer.Write("Rain is **water**.\n\n", "It falls")
	b.until("[...document.querySelectorAll('.answer .prose')].filter(p => p.checkVisibility()).map(p => p.innerText).join('|') === 'Rain is water.|It falls'")
	b.shot("noscript-growing")
	b.script(`document.querySelector('.answer form button').click()`)
	b.until("document.querySelector('.answer .foot')?.innerText.includes('stopped by you')")
	b.until("document.querySelector('#message').value === ''")
	b.shot("noscript-stopped")
	b.size(390, 844, true)
	b.shot("noscript-phone")
	b.clean()
}
