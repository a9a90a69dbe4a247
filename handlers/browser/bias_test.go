package browser

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

func TestAClickOnATokenKeepsItOutOfTheNextAnswers(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.say("Go.")
	a := engine.Next(t)
	choices := a.WriteSampled(t, rand.New(rand.NewPCG(7, 8)), "One ", "two ", "three ", "four")
	a.Finish()
	b.until(idle)
	b.click("[data-tokens]:not([hidden])")
	b.until("document.querySelectorAll('.toks .tok').length === 4")
	pick := func(i string) {
		b.script("document.querySelectorAll('.toks .tok')[" + i + "].click()")
		b.until("document.querySelector('.token [data-place]')?.innerText.startsWith('token ' + (" + i + " + 1) + ' ') && document.querySelector('.token .alt')")
	}
	const chips = "[...document.querySelectorAll('.chips .chip')].map(c => c.querySelector('span').textContent).join()"

	run("a token that never comes is struck out, and has a chip", func(t *testing.T) {
		pick("1")
		b.click(".token [data-bias='-1000']")
		b.until("document.querySelectorAll('.toks .tok')[1].matches('.gone')")
		if got := b.value(chips); got != "never" {
			t.Errorf("the chips say %q", got)
		}
		if got := b.value("document.querySelector('[data-value-of=texts]').textContent"); got != "1 biased" {
			t.Errorf("the section says %q", got)
		}
		if got := b.value("document.querySelector('.token [data-bias=\"-1000\"]').ariaPressed"); got != "true" {
			t.Error("the button is not pressed")
		}
	})

	run("others come more or less often, and a text is banned", func(t *testing.T) {
		pick("2")
		b.click(".token [data-bias='2']")
		b.until(chips + " === 'never,more likely'")
		b.click(".token [data-bias='-2']")
		b.until(chips + " === 'never,less likely'")
		pick("3")
		b.click(".token [data-ban]")
		b.until("document.querySelectorAll('#p-banned_strings li').length === 1")
		b.press("Escape", 27)
		b.say("On.")
		r := engine.Next(t)
		if want := map[int32]float64{choices[1].ID: -1000, choices[2].ID: -2}; !reflect.DeepEqual(r.Request.Params.LogitBias, want) {
			t.Errorf("the engine was asked with the biases %v, want %v", r.Request.Params.LogitBias, want)
		}
		if len(r.Request.BannedStrings) != 1 {
			t.Errorf("the engine was asked to ban %q", r.Request.BannedStrings)
		}
		r.Write("Yes.")
		r.Finish()
		b.until(idle)
	})

	run("they are there again after a reload, and a chip is removed", func(t *testing.T) {
		b.reload()
		b.until(chips + " === 'never,less likely'")
		b.unfold()
		b.look(axe(t), "chips of biased tokens", "heading-order", "region", "landmark-unique")
		b.shot("bias-chips")
		b.click(".chips .chip button")
		b.until(chips + " === 'less likely'")
	})

	run("the microscope has the same buttons", func(t *testing.T) {
		b.click("[data-tokens]:not([hidden])")
		b.until("document.querySelectorAll('.toks .tok').length === 4")
		pick("0")
		b.press("m", 77)
		b.until("document.querySelector('.micro .biasing')?.checkVisibility() && document.querySelector('.micro .wf .chosen')") // which changes its height
		b.click(".micro [data-bias='-1000']")
		b.until("document.querySelectorAll('.toks .tok')[0].matches('.gone')")
		b.shot("bias-microscope")
		if got := b.value(chips); !strings.HasSuffix(got, "never") {
			t.Errorf("the chips say %q", got)
		}
	})
	b.clean()
}
