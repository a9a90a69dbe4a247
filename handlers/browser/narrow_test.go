package browser

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
)

// outside returns what is visible and sticks out of the page or, without an ellipsis and a way to scroll, of the box
// that cuts it.
const outside = `JSON.stringify([...new Set([...document.querySelectorAll('body *')].filter(el => el.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !el.closest('svg, .vh, .skip, [popover]:not(:popover-open)')).flatMap(el => {
	const box = el.getBoundingClientRect(), style = getComputedStyle(el), wrong = []
	const name = el.localName + '.' + el.className + ' “' + (el.innerText ?? '').slice(0, 30) + '”'
	const drawer = el.closest('.rail, .insp'), moved = drawer && (drawer.getBoundingClientRect().right <= 0 || drawer.getBoundingClientRect().left >= innerWidth)
	const scrolled = el.closest('.prose, pre, table')
	if (box.width && !moved && !scrolled && (box.left < -0.5 || box.right > innerWidth + 0.5)) wrong.push('beside the page: ' + name)
	if (/hidden|clip/.test(style.overflowX) && style.textOverflow !== 'ellipsis' && el.scrollWidth > el.clientWidth + 1 && el.clientWidth && !el.matches('html, body, .app')) wrong.push('cut: ' + name)
	return wrong
}))])`

func TestNothingIsCutOnNarrowScreensAndTablets(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	engine.List(infer.ModelInfo{Name: "guide", Demo: true}, infer.ModelInfo{Name: longName, Parameters: 8_000_000_000, Quant: "Q4_K_M", Size: 4_900_000_000, ContextTrain: 131072})
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	look := func(t *testing.T, state string, width int64) {
		t.Helper()
		b.frames()
		b.shot(fmt.Sprintf("narrow-%s-%d", state, width))
		var wrong []string
		if err := json.Unmarshal([]byte(b.value(outside)), &wrong); err != nil {
			t.Fatal(err)
		}
		for _, what := range wrong[:min(8, len(wrong))] {
			t.Errorf("%s at %d px: %s", state, width, what)
		}
	}
	for _, width := range []int64{320, 360, 820} {
		b.size(width, 800, true)
		b.open("/")
		look(t, "first screen", width)
		b.fill("#message", "A message that is long enough to be written in more than one line of a narrow screen")
		look(t, "message", width)
		b.fill("#message", "")
		if width < 820 {
			b.script("document.querySelector('[data-sheet-open]').click()")
			b.until("document.body.dataset.open === 'sheet'")
			b.unfold()
			look(t, "panel", width)
			b.script("document.querySelector('[data-sheet-close]').click()")
			b.until("document.body.dataset.open !== 'sheet'")
		}
		b.script("document.querySelector('[data-rail-open]').click()")
		b.until("document.body.dataset.open === 'rail' || !document.querySelector('[data-rail-open]').checkVisibility()")
		look(t, "drawer", width)
		b.openModels("/models")
		look(t, "models", width)
		b.do(chromedp.Navigate(server.URL + "/models?show=" + longName))
		look(t, "model", width)
		b.do(chromedp.Navigate(server.URL + "/activity"))
		b.until("document.readyState === 'complete' && document.querySelector('main')")
		look(t, "activity", width)
	}
	b.clean()
}
