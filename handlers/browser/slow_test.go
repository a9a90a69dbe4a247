package browser

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/handlerstest"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// BenchmarkPage_StreamsOnASlowProcessor streams an answer with code, a table, lists and formulas at 40 tokens a
// second to a page on a processor of a quarter of the speed. An earlier answer is coloured by its tokens, and the
// strips show the candidates. It reports how many tasks of the page were longer than 50 ms, and the longest.
func BenchmarkPage_StreamsOnASlowProcessor(b *testing.B) {
	const text = "## Rain\n\nRain *falls* when `drops` get **heavy**, see the list:\n\n1. Water rises as vapour.\n2. It cools and condenses.\n3. Drops fall.\n\n" +
		"```go\nfunc rain(drops []float64) (sum float64) {\n\tfor _, d := range drops {\n\t\tsum += d // millimetres\n\t}\n\treturn sum\n}\n```\n\n" +
		"| month | rain |\n|---|---|\n| May | 61 mm |\n| June | 74 mm |\n\nThe rate is $r = \\frac{h}{t}$, so that\n\n$$h = \\int_0^t r(s)\\,ds$$\n\n" +
		"> It never rains but it pours.\n\nThat is what the *barometer* says, and most of the time it is right about tomorrow.\n\n"
	words := strings.SplitAfter(strings.Repeat(text, 3), " ")
	for _, screen := range []struct {
		name          string
		width, height int64
		phone         bool
	}{{"phone", 390, 844, true}, {"desktop", 1440, 900, false}} {
		b.Run(screen.name, func(b *testing.B) {
			engine := handlerstest.NewScript()
			server, _ := handlerstest.ServeStored(b, engine)
			page := openBrowser(b, server)
			page.size(screen.width, screen.height, screen.phone)
			page.open("/")
			random := rand.New(rand.NewPCG(1, 2))
			write := func(pause time.Duration) {
				page.say("What is rain?")
				a := engine.Next(b)
				for _, word := range words {
					a.WriteSampled(b, random, word)
					time.Sleep(pause)
				}
				a.Finish()
				page.until("!document.querySelector('[data-send]').hidden")
			}
			write(0)
			page.click(".answer [data-tokens]")
			page.until("document.querySelectorAll('.tok').length > 100")
			command(page, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: 4})
			page.do(chromedp.Sleep(time.Second)) // what the tokens took
			page.script("window.tasks = []; new PerformanceObserver(l => tasks.push(...l.getEntries().map(e => e.duration))).observe({ type: 'longtask' })")
			for b.Loop() {
				write(25 * time.Millisecond)
			}
			tasks := strings.Fields(page.value("tasks.sort((a, b) => b - a).join(' ')"))
			longest := 0.0
			if len(tasks) > 0 {
				longest, _ = strconv.ParseFloat(tasks[0], 64)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(words)), "tokens/op")
			b.ReportMetric(float64(len(tasks))/float64(b.N), "tasks>50ms/op")
			b.ReportMetric(longest, "longest-ms")
		})
	}
}
