package browser

import (
	"fmt"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/units"
)

func TestThePageRoundsAsTheTerminalDoes(t *testing.T) {
	t.Parallel()
	b := openBrowser(t, handlerstest.Server(t, &handlerstest.FakeEngine{}))
	b.open("/")
	sizes := []int64{0, 1, 999, 1000, 99_949, 99_950, 999_499, 999_500, 15_200_224, 727_000, 1_073_741_824, 4_920_739_232, 123_456_789_012, 5e15}
	rates := []float64{0, 0.04, 9.95, 83.6, 99.94, 99.95, 100, 309.4, 11657}
	b.script(fmt.Sprintf(`import(document.querySelector('link[href*="format."]').href).then(f => { window.rounded = [...%s.map(f.bytes), ...%s.map(f.rate)].join('; ') })`,
		strings.ReplaceAll(fmt.Sprint(sizes), " ", ","), strings.ReplaceAll(fmt.Sprint(rates), " ", ",")))
	var want []string
	for _, n := range sizes {
		want = append(want, units.ByteSize(n))
	}
	for _, v := range rates {
		want = append(want, units.TokenRate(v))
	}
	b.until("window.rounded")
	if got := b.value("window.rounded"); got != strings.Join(want, "; ") {
		t.Errorf("the page has %s\nthe terminal   %s", got, strings.Join(want, "; "))
	}
}
