package browser

import (
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

func TestAWideTableScrollsAndThePageDoesNot(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	b := openBrowser(t, handlerstest.Serve(t, engine))
	b.open("/")
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
	b.say("Compare")
	answer := engine.Next(t)
	row := strings.Repeat("| amount of bandwidth ", 24) + "|\n"
	answer.Write(row + strings.Repeat("|-", 24) + "|\n" + row + row + "\nAfter.")
	answer.Finish()
	b.until("document.querySelector('.answer .why .chip')?.innerText")
	for _, width := range []int64{1440, 900, 390, 320} {
		b.size(width, 800, width < 500)
		for what, condition := range map[string]string{
			"the page is wider than its window": "document.documentElement.scrollWidth <= innerWidth",
			"the conversation scrolls sideways": "document.querySelector('#scroll').scrollWidth <= document.querySelector('#scroll').clientWidth",
			"the table does not scroll":         "document.querySelector('.table').scrollWidth > document.querySelector('.table').clientWidth",
			"the words of its cells are cut":    "document.querySelector('td').clientWidth > 60",
			"the keyboard does not get to it":   "(document.querySelector('.table').focus(), document.activeElement.matches('.table'))",
			"the table is no table to a reader": "getComputedStyle(document.querySelector('.table > table')).display === 'table'",
		} {
			if b.value(condition) != "true" {
				t.Errorf("at a width of %d %s", width, what)
			}
		}
	}
	b.clean()
}
