package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/web/states"
)

// German words are longer than English ones.
func TestNothingIsCutInGerman(t *testing.T) {
	t.Parallel()
	b := openBrowser(t, serveStates(t))
	b.open("/")
	b.script("document.cookie = 'm40_language=de; path=/'")
	for _, width := range []int64{390, 820, 1440} {
		b.size(width, 900, width < 500)
		for _, s := range states.All() {
			b.do(chromedp.Navigate(b.origin+states.Path+"/"+s.Name), chromedp.WaitReady("main"))
			if s.Script {
				b.until("'ready' in document.documentElement.dataset")
			}
			if language := b.value("document.documentElement.lang"); language != "de" {
				t.Fatalf("%s speaks %q", s.Name, language)
			}
			b.frames()
			b.shot(fmt.Sprintf("german-%s-%d", s.Name, width))
			var wrong []string
			if err := json.Unmarshal([]byte(b.value(outside)), &wrong); err != nil {
				t.Fatal(err)
			}
			for _, what := range wrong[:min(8, len(wrong))] {
				if strings.HasPrefix(what, "cut: input.") { // a long link
					continue
				}
				t.Errorf("%s at %d px: %s", s.Name, width, what)
			}
		}
	}
	b.clean()
}
