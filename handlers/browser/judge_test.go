package browser

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

// sampled answers a message with tokens that were drawn among others, and returns how many of them were not the
// likeliest, and the first of those.
func (b *browser) sampled(engine *handlerstest.Script, count int) (unlikely, first int) {
	b.t.Helper()
	b.say("Go.")
	a := engine.Next(b.t)
	texts := make([]string, count)
	for i := range texts {
		texts[i] = fmt.Sprintf("word%d ", i)
	}
	first = -1
	for i, c := range a.WriteSampled(b.t, rand.New(rand.NewPCG(7, 8)), texts...) {
		if c.Rank == 0 {
			continue
		}
		if unlikely++; first < 0 {
			first = i
		}
	}
	a.Finish()
	b.until(idle)
	return unlikely, first
}

func TestAMovedSliderSaysUnderTheAnswerWhatWouldBeImpossible(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	unlikely, first := b.sampled(engine, 70)
	const line, places = "document.querySelector('.judged')", "JSON.stringify([...document.querySelectorAll('.turn .prose, .foot, .made, .composer')].map(e => e.getBoundingClientRect().top))"
	said := fmt.Sprintf("%d of 70 tokens would be impossible.", unlikely)

	run("the line takes the place of the figures, and nothing moves", func(t *testing.T) {
		b.settled()
		before := b.value(places)
		b.set("top_k", "1")
		b.until(line + ".checkVisibility()")
		if got := b.value(line + ".querySelector('p').innerText"); got != said {
			t.Errorf("it says %q, want %q", got, said)
		}
		if after := b.value(places); after != before {
			t.Errorf("what is on the page moved from %s to %s", before, after)
		}
		if got := b.value("document.querySelector('.made > summary').checkVisibility({ visibilityProperty: true })"); got != "false" {
			t.Error("the figures lie behind it")
		}
	})

	run("Undo sets the slider back, and the figures are there again", func(t *testing.T) {
		b.click("[data-undo-moves]")
		b.until("document.querySelector('#n-top_k').value === '40' && " + line + ".hidden")
		if got := b.value("document.querySelector('.made > summary').checkVisibility({ visibilityProperty: true })"); got != "true" {
			t.Error("the figures are hidden")
		}
	})

	run("Show strikes the tokens out where they stand, and the answer can go on from the first of them", func(t *testing.T) {
		b.set("top_k", "1")
		b.click("[data-show-gone]")
		b.until(fmt.Sprintf("document.querySelectorAll('.toks .tok.gone').length === %d", unlikely))
		if got, want := b.text("[data-continue-at]"), fmt.Sprintf("Continue from %d", first+1); got != want {
			t.Errorf("the button says %q, want %q", got, want)
		}
		if got := b.value("document.querySelector('[data-show-gone]').checkVisibility()"); got != "false" {
			t.Error("what is shown can be shown again")
		}
	})

	run("the line stays in sight where the end of the answer is not", func(t *testing.T) {
		b.size(1440, 420, false)
		b.script("document.querySelector('.answer').scrollIntoView()")
		b.frames()
		if got := b.value("(() => { const r = " + line + ".getBoundingClientRect(), s = document.querySelector('#scroll').getBoundingClientRect(); return r.top >= s.top && r.bottom <= s.bottom })()"); got != "true" {
			t.Error("it is out of sight")
		}
		b.size(1440, 900, false)
	})

	run("a new question takes the settings as they are, and the line goes", func(t *testing.T) {
		b.say("On.")
		a := engine.Next(t)
		if a.Request.Params.TopK != 1 {
			t.Errorf("the engine was asked with a top-k of %d", a.Request.Params.TopK)
		}
		b.until("[...document.querySelectorAll('.judged')].every(line => line.hidden) && !document.querySelector('.tok.gone')")
		a.Write("Yes.")
		a.Finish()
		b.until(idle)
	})
	b.clean()
}

func TestNothingInTheInspectorMovesWhileItIsUsed(t *testing.T) {
	t.Parallel()
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	b := openBrowser(t, server)
	for _, touch := range []bool{false, true} {
		b.size(1440, 900, touch)
		b.open("/")
		b.unfold()
		b.frames()
		const places = "JSON.stringify(Object.fromEntries([...document.querySelectorAll('#inspector .param:not([hidden])')].map(e => [e.dataset.param ?? e.id, e.getBoundingClientRect().top + document.querySelector('#inspector').scrollTop])))"
		before := b.value(places)
		for _, c := range []struct{ what, does string }{
			{"a value is not allowed", "const f = document.querySelector('#n-top_p'); f.value = '7'; f.dispatchEvent(new Event('input'))"},
			{"a slider is moved", "const r = document.querySelector('[data-param=temperature] input[type=range]'); r.value = 1.4; r.dispatchEvent(new Event('input'))"},
			{"DRY is on", "const r = document.querySelector('[data-param=dry_multiplier] input[type=range]'); r.value = 1; r.dispatchEvent(new Event('input'))"},
			{"Mirostat is on", "document.querySelector('#n-mirostat').click()"},
			{"a seed is pinned", "document.querySelector('[data-pin]').click()"},
		} {
			b.script(c.does)
			b.frames()
			if after := b.value(places); after != before {
				t.Errorf("touch %v: when %s, the settings move from %s to %s", touch, c.what, before, after)
				break
			}
		}
	}
}

func TestAPhoneHasOneSliderBelowTheAnswer(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.size(390, 844, true)
	b.open("/")
	unlikely, _ := b.sampled(engine, 40)
	b.click("[data-sheet-open]")
	b.until("document.body.dataset.open === 'sheet'")
	b.click("[data-dock]")
	b.until("document.body.dataset.open === 'dock'")
	if got := b.value("[...document.querySelectorAll('#inspector [data-param]')].filter(p => p.checkVisibility()).map(p => p.dataset.param).join()"); got != "top_p" {
		t.Errorf("the dock has the sliders %q", got)
	}
	if got := b.value("document.querySelector('#inspector').getBoundingClientRect().top >= document.querySelector('#scroll').getBoundingClientRect().bottom && document.querySelector('#scroll').clientHeight > innerHeight / 2 && !document.querySelector('.main').inert"); got != "true" {
		t.Error("the dock covers the answer")
	}
	b.click("[data-dock-step='-1']")
	b.until("document.querySelector('[data-param=top_k]').checkVisibility()")
	b.script("const r = document.querySelector('[data-param=top_k] input[type=range]'); r.value = 0; r.dispatchEvent(new Event('input'))")
	b.until(fmt.Sprintf("document.querySelector('.judged').innerText.includes('%d of 40 tokens')", unlikely))
	if got := b.text("[data-dock-keep]"); got != "Keep 1" {
		t.Errorf("the button says %q", got)
	}
	b.click("[data-show-gone]")
	b.until("document.querySelector('.tok.gone')")
	b.click("[data-dock-undo]")
	b.until("document.querySelector('#n-top_k').value === '40' && !document.querySelector('.tok.gone')")
	b.click("[data-dock-keep]")
	b.until("!document.body.dataset.open && document.querySelector('#composer').checkVisibility()")
	b.click("[data-sheet-open]") // with tokens shown, the dock comes first
	b.until("document.body.dataset.open === 'dock' && document.querySelector('[data-param=top_k]').checkVisibility()")
	if wrong := b.value(outside); !strings.HasPrefix(wrong, "[]") {
		t.Errorf("with the dock, %s", wrong)
	}
	b.clean()
}
