package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/hub"
)

func TestWhereAnAnswerLookedIsShownOnThePicture(t *testing.T) {
	t.Parallel()
	seeing := handlerstest.OpenGuide(t, func(o *engine.Options) {
		o.Catalog, o.Model = hub.New(hub.Options{Dir: fixtures.Path(t, "images", "qwen25vl")}), "text"
		o.OpenTower = func(*gguf.File) (device.Device, error) { return cpu.Open(1) }
	})
	held := &handlerstest.HeldEngine{Engine: seeing, Open: make(chan struct{})}
	held.Left.Store(1 << 30)
	t.Cleanup(func() { close(held.Open) })
	server, _ := handlerstest.ServeStored(t, held)
	file, err := os.ReadFile(fixtures.Path(t, "images", "pictures", "large.png"))
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.set("max_tokens", "6")
	b.set("temperature", "0")
	handOver(b, "paste", "#message", map[string][]byte{"large.png": file})
	b.until(thumbnails + " === 1")
	b.say("What is this?")
	b.until(idle)

	const (
		result = "document.querySelector('.looked [data-result]').innerText"
		part   = "document.querySelector('.looked [data-part]').innerText"
		marked = "[...document.querySelectorAll('.looked .parts > *')].findIndex(el => el.getAttribute('aria-pressed') === 'true')"
	)
	run("the microscope of a token says what it costs to know, measured on one part", func(t *testing.T) {
		b.click("[data-tokens]:not([hidden])")
		b.until("document.querySelector('.toks .tok')")
		b.script("document.querySelectorAll('.toks .tok')[1].click()")
		b.until("document.querySelector('.token [data-stages]')?.checkVisibility()")
		b.click(".token [data-stages]")
		b.until("document.querySelector('.micro [data-look]')?.checkVisibility() && document.querySelector('.micro .wf .chosen')") // which changes its height
		b.click(".micro [data-look]")
		b.until("/6 parts.*: 5 prompts; about \\d/.test(document.querySelector('.looked [data-price]')?.innerText)")
		b.look(axe(t), "the cost of looking")
	})

	run("the parts show what they count, and say it in words", func(t *testing.T) {
		b.click(".looked [data-score]")
		b.until("document.querySelectorAll('.looked.known .parts > [aria-label]').length === 6")
		if got := b.value(result); !strings.Contains(got, "and without the part that counts most") {
			t.Errorf("it says %q", got)
		}
		if got, want := b.value(part), b.value("document.querySelector('.looked .parts > [aria-pressed]').ariaLabel"); got != want || !strings.HasPrefix(got, "Row ") {
			t.Errorf("the part that counts most is %q, described as %q", want, got)
		}
		b.look(axe(t), "where it looked")
		b.size(360, 740, true)
		b.look(axe(t), "where it looked, on a phone")
		if wide := b.value("document.documentElement.scrollWidth + ' ' + document.querySelector('.micro').scrollWidth"); wide != "360 360" {
			t.Errorf("on a phone the page and the picture are %s pixels wide", wide)
		}
		b.size(1440, 900, false)
	})

	run("arrow keys move between the parts", func(t *testing.T) {
		b.script("document.querySelector('.looked .parts > [tabindex=\"0\"]').focus()")
		b.press("Home", 36)
		b.until(marked + " === 0")
		b.press("ArrowRight", 39)
		b.press("ArrowDown", 40)
		b.until(marked + " === 4")
		b.until(part + ".startsWith('Row 2, column 2: ')")
		b.press("ArrowLeft", 37)
		b.press("ArrowLeft", 37)
		b.until(marked + " === 3")
	})

	run("another token of the answer is known already", func(t *testing.T) {
		before := b.value(result)
		b.click(".micro [data-walk='1']")
		b.until(fmt.Sprintf("document.querySelector('.looked.known') && %s !== %q", result, before))
	})

	run("a finer division costs more, and can be cancelled", func(t *testing.T) {
		b.click(".looked [data-divisions] button:last-child")
		b.until("/63 parts.*: 64 prompts; about \\d/.test(document.querySelector('.looked [data-price]')?.innerText)")
		held.Left.Store(10)
		b.click(".looked [data-score]")
		b.until("/^\\d+ of 63 parts/.test(document.querySelector('.looked [data-pass-amount]').innerText)")
		// Not every number is shown, so the server is asked.
		address := b.value("location.pathname + '/looked/' + document.querySelector('.turn:last-child').dataset.id + '/2'")
		for deadline := time.Now().Add(handlerstest.Hang); ; time.Sleep(20 * time.Millisecond) {
			var sight struct {
				Pictures []struct{ Divisions []struct{ Prompts int } }
			}
			got := handlerstest.Call(t, server, http.MethodGet, address, "", "Accept", "application/json")
			if err := json.Unmarshal([]byte(got.Body), &sight); err != nil {
				t.Fatalf("%v: %s", err, got.Body)
			}
			if sight.Pictures[0].Divisions[2].Prompts == 53 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("ten parts are not known: %s", got.Body)
			}
		}
		b.click(".looked [data-cancel]")
		b.until("document.querySelector('.looked [data-score]').checkVisibility() && !document.querySelector('.looked .passing').checkVisibility()")
		b.until("/63 parts.*: 53 prompts/.test(document.querySelector('.looked [data-price]').innerText)") // what is done stays known
	})

	run("the button shows the samplers again, and an answer about a text has none", func(t *testing.T) {
		b.click(".micro [data-look]")
		b.until("!document.querySelector('.looked') && document.querySelector('.micro .wf').checkVisibility()")
		b.press("Escape", 27)
		b.open("/")
		b.say("Hello")
		b.until(idle)
		b.click("[data-tokens]:not([hidden])")
		b.until("document.querySelector('.toks .tok')")
		b.script("document.querySelectorAll('.toks .tok')[0].click()")
		b.until("document.querySelector('.token [data-stages]')?.checkVisibility()")
		b.click(".token [data-stages]")
		b.until("document.querySelector('.micro .wf')?.checkVisibility()")
		if b.value("document.querySelector('.micro [data-look]').checkVisibility()") == "true" {
			t.Error("an answer about a text offers to show where it looked")
		}
	})
}
