package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// sliderTops are where the sliders of the panel begin, by their names.
const sliderTops = `[...document.querySelectorAll('#inspector .sec > .param[data-kind=slider]')].map(p => p.dataset.param + ' ' + p.querySelector('input[type=range]').getBoundingClientRect().top).join()`

func TestNothingAboveTheSlidersChangesItsHeight(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	for _, size := range []struct {
		name          string
		width, height int64
		phone         bool
	}{{"a desktop", 1440, 900, false}, {"a tablet", 820, 1180, true}, {"a phone", 390, 844, true}} {
		t.Run(size.name, func(t *testing.T) {
			ready := handlerstest.NewScript().Current
			engine.Set(func(s *infer.Status) { *s = ready })
			server, _ := handlerstest.ServeStored(t, engine)
			b := openBrowser(t, server)
			b.size(size.width, size.height, size.phone)
			b.open("/")
			b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
			if size.width <= 760 {
				b.click("[data-sheet-open]")
			}
			b.unfold()
			want := b.value(sliderTops)
			if strings.Count(want, ",") < 5 {
				t.Fatalf("the sliders begin at %q", want)
			}
			at := func(state, text string) {
				t.Helper()
				b.until("document.querySelector('.engine [data-engine=state_text]').innerText.startsWith('" + text + "')")
				if got := b.value(sliderTops); got != want {
					t.Errorf("%s: the sliders begin at\n%s, but before at\n%s", state, got, want)
				}
			}
			b.script(`const m = document.querySelector('#message'); m.value = 'Tell me a story.'; document.querySelector('#composer').requestSubmit()`)
			answer := engine.Next(t)
			engine.Set(func(s *infer.Status) { s.Queued, s.Running = 12, 4 })
			answer.Send(infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 2}})
			b.until("document.querySelector('[data-engine=queue]').innerText.startsWith('12 waiting')")
			at("queued", "writing")
			engine.Set(func(s *infer.Status) {
				s.State, s.Queued, s.Running = infer.StateLoading, 0, 0
				s.Model = infer.ModelInfo{Name: "a-model-with-a-rather-long-name-instruct", Quant: "Q4_K_M", Parameters: 8_030_000_000}
				s.Loading = infer.Loading{Done: 3_200_000_000, Total: 4_920_000_000}
			})
			at("loading", "loading, 65 %")
			engine.Set(func(s *infer.Status) { s.Loading.Kernels, s.Loading.KernelsTotal = 3, 12 })
			at("compiling", "compiling kernels")
			engine.Set(func(s *infer.Status) { s.State, s.Running = infer.StateReady, 1 })
			answer.Send(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 737, Total: 1440}})
			at("prefill", "writing")
			engine.Set(func(s *infer.Status) { s.Decode = 1038.2 })
			answer.Write("Once ", "upon ", "a ", "time.")
			b.until("document.querySelector('[data-rate]').innerText.startsWith('1038') && !document.querySelector('[data-rate]').matches('[data-idle]')")
			at("writing", "writing")
			answer.Finish()
			engine.Set(func(s *infer.Status) { s.Running, s.Decode = 0, 0 })
			at("finished", "ready")
			b.until("document.querySelector('[data-rate]').innerText.startsWith('1038') && document.querySelector('[data-rate]').matches('[data-idle]')")
			b.shot("panel-9-idle-" + fmt.Sprint(size.width))
			engine.Set(func(s *infer.Status) {
				s.Device.Notice = "the GPU is not used: its driver is older than 525, which this program needs"
				s.Trouble = "the CPU took over: the GPU failed twice, the second time with: an illegal address was used"
			})
			b.until("document.querySelector('.main [data-trouble]').innerText.includes('took over')")
			at("in trouble", "ready")
			engine.Set(func(s *infer.Status) {
				s.Cache = infer.Cache{Planned: 4_830_000_000, Used: 35_700_000, State: 309_000_000}
			})
			b.until("!document.querySelector('[data-recurrent]').hidden && document.querySelector('[data-recurrent] [data-engine=recurrent_state]').textContent === '309 MB'")
			at("with recurrent state", "ready")
			b.until("[...document.querySelectorAll('[data-decode], [data-ahead]')].every(e => e.hidden)")
			engine.Set(func(s *infer.Status) {
				s.Cache.State, s.Device.Decode, s.Ahead = 0, device.DecodeGraph, infer.Ahead{On: true, Tokens: 1000, Missed: 5}
			})
			b.until("document.querySelector('[data-recurrent]').hidden && [...document.querySelectorAll('.notes [data-decode], .notes [data-ahead]')].map(e => e.innerText).join() === 'Steps: graph,Drawn ahead: 1,000 tokens, 0.5 % wrong'")
			at("on a GPU", "ready")
			engine.Set(func(s *infer.Status) { s.Packing = infer.Packing{Done: 430_000_000, Total: 1_000_000_000} })
			b.until("document.querySelector('.notes [data-packing]')?.innerText === 'Weights arranged for this processor: 43 %. Until then answers are slower.'")
			at("while weights are copied", "ready")
			b.shot("panel-8-packing-" + fmt.Sprint(size.width))
			engine.Set(func(s *infer.Status) { s.Packing = infer.Packing{} })
			b.until("document.querySelector('.notes [data-packing]').hidden")
			engine.Set(func(s *infer.Status) {
				s.State, s.Error = infer.StateFailed, &fault.Error{Code: fault.CodeModelFile, Message: "model \"a-model\" ends early: it has 12 of 4,920 MB; download it again"}
			})
			at("failed", "failed")
			b.shot("panel-9-failed-" + fmt.Sprint(size.width))
			b.script(`document.querySelector('#n-top_k').value = '7'; document.querySelector('#n-top_k').dispatchEvent(new Event('input'))`)
			b.until("document.querySelector('[data-modified]').innerText === 'modified · 1'")
			at("with a value moved", "failed")
			b.clean()
		})
	}
}

func TestScrollersKeepTheirWidthWhetherOrNotTheyScroll(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	width := "['#inspector', '.rail-list', '#scroll'].map(q => document.querySelector(q).clientWidth).join()"
	b.size(1440, 2400, false)
	b.settled()
	tall := b.value(width)
	b.size(1440, 500, false)
	b.settled()
	if low := b.value(width); low != tall {
		t.Errorf("in a low window the panel, the list and the column are %s wide, in a tall one %s", low, tall)
	}
}

func TestTheSettingsOfAnAnswerComeBackIntoThePanel(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	panel := "['#n-temperature', '#n-top_k', '#n-seed'].map(q => document.querySelector(q).value).join(' ') + ' ' + document.querySelector('[data-seed-note]').innerText"
	b.open("/")
	b.set("temperature", "1.30")
	b.set("top_k", "7")
	b.fill("#n-seed", "8842")
	b.ask(engine, "First", strings.Repeat("A long answer. ", 300)+"End.")
	b.set("temperature", "0.20")
	b.set("top_k", "90")
	b.click("[data-pin]")
	b.until("document.querySelector('[data-seed-note]').innerText === 'new each time'")
	b.say("Second")
	second := engine.Next(t)
	second.Write(strings.Repeat("Another long answer. ", 300))
	second.Finish()
	b.until(idle)
	seed := fmt.Sprint(second.Request.Params.Seed)

	run("the menu of an answer brings its settings and its seed back, and Undo what was there", func(t *testing.T) {
		b.script(`document.querySelector(".answer:nth-of-type(2) [data-receipt]").click()`)
		b.until("document.activeElement.matches('#answer-menu [data-use]')") // it has its place
		b.shot("panel-10-menu-1440-light")
		b.click("#answer-menu [data-use]")
		b.until(panel + " === '1.30 7 8842 pinned'")
		if got := b.text("#undo span"); got != "2 settings of the panel have changed; the seed 8842 is pinned" {
			t.Errorf("the notice says %q", got)
		}
		b.shot("panel-10-used-1440-light")
		b.click("#undo button")
		b.until(panel + " === '0.20 90 " + seed + " new each time' && document.querySelector('#undo').hidden")
	})

	run("what is changed after it takes the notice away", func(t *testing.T) {
		b.script(`document.querySelector(".answer:nth-of-type(2) [data-receipt]").click()`)
		b.until("document.activeElement.matches('#answer-menu [data-use]')")
		b.click("#answer-menu [data-use]")
		b.until("!document.querySelector('#undo').hidden")
		b.set("top_k", "11")
		b.until("document.querySelector('#undo').hidden")
		b.set("temperature", "0.20")
		b.set("top_k", "90")
		b.click("[data-pin]")
	})

	run("so does what another page changes", func(t *testing.T) {
		b.script(`document.querySelector(".answer:nth-of-type(2) [data-receipt]").click()`)
		b.until("document.activeElement.matches('#answer-menu [data-use]')")
		b.click("#answer-menu [data-use]")
		b.until("!document.querySelector('#undo').hidden")
		other := openBrowser(t, server)
		other.open(b.value("location.pathname"))
		other.until("document.querySelector('#n-top_k').value === '7'")
		other.set("temperature", "0.20")
		b.until("document.querySelector('#undo').hidden && document.querySelector('#n-temperature').value === '0.20'")
		other.set("top_k", "90")
		b.until("document.querySelector('#n-top_k').value === '90'")
		b.click("[data-pin]")
		other.clean()
	})

	run("the lock pins the seed of the last answer in view, which the field shows", func(t *testing.T) {
		const lower = "const column = document.querySelector('#scroll'); column.style.maxHeight = column.clientHeight - 20 + 'px'; "
		b.script("document.querySelector('#scroll').scrollTop = 1e6")
		b.settled()
		b.script(lower + "0") // before it is scrolled
		b.settled()
		b.script("document.querySelector('#scroll').scrollTop = 0")
		b.until("document.querySelector('#n-seed').value === '8842'")
		if got := b.value("document.querySelector('[data-pin]').ariaLabel"); got != "Pin 8842, the seed of the answer in view" {
			t.Errorf("the lock is called %q", got)
		}
		b.settled()
		b.script(lower + "column.scrollTop = 1e6") // and while it is
		b.until("document.querySelector('#n-seed').value === '" + seed + "'")
		b.script(`document.querySelector('#scroll').scrollTop = 0`)
		b.until("document.querySelector('#n-seed').value === '8842'")
		b.click("[data-pin]")
		b.until("document.querySelector('[data-seed-note]').innerText === 'pinned'")
		b.script(`document.querySelector('#scroll').scrollTop = 1e6`)
		b.settled()
		if got := b.value(panel); got != "0.20 90 8842 pinned" {
			t.Errorf("after scrolling on the panel has %s", got)
		}
		b.say("Third")
		third := engine.Next(t)
		third.Finish()
		b.until(idle)
		if got := third.Request.Params.Seed; got != 8842 {
			t.Errorf("the answer was asked for with the seed %d", got)
		}
	})
	b.clean()
}

func TestTheFirstScreenExplainsOnlyUntilThereIsAChat(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	b.until("document.querySelector('#empty').innerText.includes('tiny model') && document.querySelector('#empty .real').checkVisibility() && !document.querySelector('#recent')")
	b.ask(engine, "Hello", "Hi.")
	b.open("/")
	if got := b.value("[...document.querySelectorAll('#recent li a .cut-text, #empty .real')].map(el => el.innerText).join()"); got != "Hello" {
		t.Errorf("with a chat, the first screen has %q", got)
	}
	b.click("[data-temporary]")
	b.until("document.querySelector('#empty').innerText.includes('This chat will not be stored.')")
	b.click("[data-temporary]")
	for _, size := range []int64{390, 820, 1440} {
		b.size(size, 844, size < 1000)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.shot(fmt.Sprintf("panel-12-later-%d-%s", size, scheme))
		}
	}
	engine.Set(func(s *infer.Status) {
		s.State, s.Loading = infer.StateLoading, infer.Loading{Done: 3_200_000_000, Total: 4_920_000_000}
	})
	b.until("document.querySelector('#empty').innerText.includes('Loading guide') && document.querySelector('#empty').innerText.includes('3.2 GB of 4.9 GB')")

	// The archive counts: who has one knows the page.
	list, err := chats.List.Conversations(context.Background(), access.Local, store.Filter{Limit: 9})
	if err != nil || len(list) != 1 {
		t.Fatalf("there are %d chats: %v", len(list), err)
	}
	handlerstest.PostForm(t, server, "/c/"+list[0].ID+"/archive", "value=true")
	b.open("/")
	b.until("document.querySelector('#empty .calm').checkVisibility()")
	b.clean()
}

func TestALessonOpensWhatItIsAbout(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	for opens, focused := range map[string]string{"tokens": "span", "top_p": "top_p"} {
		b.open("/")
		b.click("[data-lesson=" + opens + "]")
		answer := engine.Next(t)
		answer.WriteSampled(t, rand.New(rand.NewPCG(7, 8)), "Once ", "there ", "was.")
		answer.Finish()
		b.until(idle + " && document.querySelectorAll('.toks .tok').length === 3")
		b.until("(document.activeElement.closest('[data-param]')?.dataset.param ?? document.activeElement.localName) === '" + focused + "'")
	}
	b.open("/")
	b.click("[data-lesson=sheet]")
	first := engine.Next(t)
	for range 11 {
		engine.Next(t).Finish()
	}
	first.Finish()
	b.until("location.pathname.endsWith('/sheet') && document.querySelector('[data-states]')?.textContent.includes('12 done')")
	if got := b.value("location.search.includes('start')"); got != "false" {
		t.Error("loaded again, the sheet would begin anew")
	}
	b.clean()
}

// TestExplanationsStandApart measures the settings that are folded away: no text touches
// another, or a control.
func TestExplanationsStandApart(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	for _, c := range []struct {
		width int64
		touch bool
	}{{390, true}, {820, true}, {820, false}, {1440, false}} {
		b.size(c.width, 900, c.touch)
		b.open("/")
		if c.width == 390 {
			b.click("[data-sheet-open]")
		}
		b.unfold()
		for _, key := range []string{"xtc_probability", "dynatemp_range", "dry_multiplier"} {
			b.set(key, "0.50")
		}
		b.until("document.querySelector('[data-param=dry_base]').checkVisibility()")
		b.shot(fmt.Sprintf("panel-12-more-%d-%v", c.width, c.touch))
		found := b.value(`(() => {
			const wrong = [], seen = el => el.checkVisibility() && el.getBoundingClientRect().height > 0 && (el.matches('input, .strip') || el.innerText.trim())
			for (const p of document.querySelectorAll('#inspector .param')) {
				const parts = [...p.querySelectorAll('.lab > :is(label, .label, .keep, .nf, .reset), .about, .strip, .fielderr')].filter(seen)
				for (const [i, a] of parts.entries()) for (const b of parts.slice(i + 1)) {
					const r = a.getBoundingClientRect(), q = b.getBoundingClientRect()
					const gap = a.matches('.about') || b.matches('.about') ? 2 : 0
					if (r.left < q.right && q.left < r.right && r.top < q.bottom + gap - 0.5 && q.top < r.bottom + gap - 0.5) wrong.push(p.dataset.param + ': ' + a.className + a.tagName + ' and ' + b.className + b.tagName)
				}
				if (p.scrollWidth > p.clientWidth) wrong.push(p.dataset.param + ' is wider than the panel, by ' + [...p.querySelectorAll('*')].filter(el => el.getBoundingClientRect().right > p.getBoundingClientRect().right + 0.5).map(el => el.localName + '.' + el.className + ' ' + (el.innerText ?? '') + ' ' + getComputedStyle(el).fontFamily + Math.round(el.getBoundingClientRect().right - p.getBoundingClientRect().right)).join())
			}
			return wrong.join('; ')
		})()`)
		if found != "" {
			t.Errorf("%d px, touch %v: %s", c.width, c.touch, found)
		}
		b.script(`document.querySelector('[data-reset-all]').click()`)
	}
}

func TestNoticesCoverNothingThatCanBePressed(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	for i := range 30 {
		if _, err := handlerstest.ImportList(chats, store.Metadata{Title: fmt.Sprintf("Chat %d", i)}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "x"}}, 1); err != nil {
			t.Fatal(err)
		}
	}
	b := openBrowser(t, server)
	covered := `(() => {
		const bar = document.querySelector('#undo').getBoundingClientRect()
		const over = r => r.bottom > bar.top + 0.5 && r.top < bar.bottom - 0.5 && r.right > bar.left && r.left < bar.right
		const parts = [...document.querySelectorAll('.rail, .scroll, .insp, .composer')].filter(e => e.checkVisibility() && !e.closest('[inert]') && over(e.getBoundingClientRect()))
		return parts.map(e => e.className).concat([...document.querySelectorAll('button, a, input, select, textarea, summary')].filter(e => !e.closest('#undo') && e.checkVisibility() && !e.closest('[inert]')).filter(e => {
			const r = e.getBoundingClientRect(), x = r.left + r.width / 2, y = r.top + r.height / 2
			return r.width && y > bar.top && y < bar.bottom && x > bar.left && x < bar.right && e.closest('.rail-list, .scroll, .insp') === null
		}).map(e => e.outerHTML.slice(0, 80))).join()
	})()`
	for _, size := range []struct{ width, height int64 }{{1440, 900}, {820, 1180}, {390, 844}} {
		b.size(size.width, size.height, size.width < 1000)
		b.open("/")
		birds := fmt.Sprintf("Night birds at %d", size.width)
		b.ask(engine, birds, "Owls.")
		b.until("document.querySelector('#rail-list').innerText.includes('" + birds + "')")
		menu := ".chat-head [data-chat-menu]"
		if size.width <= 760 {
			menu = ".top [data-chat-menu]"
		}
		b.click(menu)
		b.until("document.querySelector('#chat-menu').matches(':popover-open')")
		b.click("#chat-menu .tofolder summary")
		b.until("document.activeElement.id === 'folder'")
		b.click("#chat-menu [data-when=kept] button")
		b.until("document.querySelector('#undo').checkVisibility() && document.querySelector('#undo span').innerText.startsWith('Archived “" + birds + "”')")
		b.until("[...document.querySelectorAll('[data-archived-mark]')].some(e => e.checkVisibility())")
		if got := b.value("[...document.querySelectorAll('[data-archived-mark]')].some(e => e.checkVisibility() && e.offsetHeight > 30)"); got != "false" {
			t.Errorf("%d px: the mark of an archived chat takes two lines", size.width)
		}
		b.until("!document.querySelector('#rail-list .rail-list').innerText.includes('" + birds + "')")
		if got := b.value(covered); got != "" {
			t.Errorf("%d px: the notice covers %s", size.width, got)
		}
		b.shot(fmt.Sprintf("panel-13-archived-%d-light", size.width))
		if size.width <= 760 {
			b.click("[data-sheet-open]")
			b.until("document.querySelector('#inspector').checkVisibility()")
			if got := b.value(covered); got != "" {
				t.Errorf("%d px, with the sheet open: the notice covers %s", size.width, got)
			}
			b.shot(fmt.Sprintf("panel-13-archived-sheet-%d-light", size.width))
			b.press("Escape", 27)
			b.until("!document.querySelector('#inspector').checkVisibility()")
		}
		b.click("#undo button")
		b.until("[...document.querySelectorAll('[data-archived-mark]')].every(e => !e.checkVisibility()) && document.querySelector('#rail-list').innerText.includes('" + birds + "')")
		if size.width < 1121 {
			b.click("[data-rail-open]")
			b.until("document.body.dataset.open === 'rail'")
		}
		b.script(`[...document.querySelectorAll('.conv-row')].find(r => r.innerText.includes('Chat 29')).querySelector('[data-row-menu]').click()`)
		b.until("document.querySelector('#chat-menu').matches(':popover-open')")
		b.click("#chat-menu [data-act=delete] button")
		b.until("document.querySelector('#undo').checkVisibility()")
		if got := b.value(covered); got != "" {
			t.Errorf("%d px, with the list open: the notice covers %s", size.width, got)
		}
		b.shot(fmt.Sprintf("panel-13-deleted-%d-light", size.width))
		b.click("#undo button")
		b.until("document.querySelector('#undo').hidden && document.querySelector('#rail-list').innerText.includes('Chat 29')")
	}
	b.clean()
}

func TestAMovedSliderKeepsTheUndoOfADeletedChat(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	if _, err := handlerstest.ImportList(chats, store.Metadata{Title: "Night birds"}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "x"}}, 1); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, server)
	b.open("/")
	b.script(`document.querySelector('.conv-row [data-row-menu]').click()`)
	b.until("document.querySelector('#chat-menu').matches(':popover-open')")
	b.click("#chat-menu [data-act=delete] button")
	b.until("document.querySelector('#undo').checkVisibility()")
	b.set("temperature", "1.30")
	b.until("document.querySelector('[data-modified]').innerText === 'modified · 1'")
	if got := b.value("document.querySelector('#undo span').checkVisibility() && document.querySelector('#undo span').innerText"); got != "Deleted “Night birds”" {
		t.Errorf("after a slider has moved, the notice says %q", got)
	}
	b.click("#undo button")
	b.until("document.querySelector('#rail-list').innerText.includes('Night birds')")
	b.clean()
}

// TestATabletIsMadeForFingers measures what is pressed alongside a chat on a tablet, and that
// who speaks does not lie over what is said.
func TestATabletIsMadeForFingers(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.size(820, 1180, true)
	b.open("/")
	b.ask(engine, "Hello", "Hi.")
	b.unfold()
	b.until("document.querySelector('[data-param=xtc_probability]').checkVisibility()")
	small := b.value(`[...document.querySelectorAll('#inspector :is(button, input, select, textarea, summary)')]
		.filter(e => e.checkVisibility() && !e.matches('[type=checkbox]') && e.getBoundingClientRect().height < 44)
		.map(e => e.id || e.outerHTML.slice(0, 60)).join()`)
	if small != "" {
		t.Errorf("lower than 44 px under a finger: %s", small)
	}
	over := b.value(`[...document.querySelectorAll('[role=log] .turn')].filter(turn => {
		const [who, said] = ['.who', '.prose'].map(q => turn.querySelector(q).getBoundingClientRect())
		return who.bottom > said.top && who.right > said.left
	}).length`)
	if over != "0" {
		t.Errorf("in %s messages the speaker lies over the text", over)
	}
	b.clean()
}

func TestTheTimeBesideMaxTokensIsThatOfTheModel(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	note := "document.querySelector('#k-max_tokens').innerText"
	answer := func() {
		b.say("Tell me a story.")
		a := engine.Next(t)
		a.Write("a ", "b ", "c ", "d") // 9 ms a token: scripted answers say so
		a.Finish()
		b.until(idle)
	}
	b.open("/")
	b.until(wired)
	if got := b.value(note); got != "" {
		t.Errorf("before any answer the page says %q", got)
	}
	answer()
	b.until(note + " === 'up to ≈ 6 s'")
	engine.Set(func(s *infer.Status) { s.Model = infer.ModelInfo{Name: "other"} })
	b.open("/")
	b.until("document.querySelector('[data-engine=name]').innerText === 'other'")
	if got := b.value(note); got != "" {
		t.Errorf("of a model that has not answered yet, the page says %q", got)
	}
	engine.Set(func(s *infer.Status) { s.Model = handlerstest.NewScript().Current.Model })
	b.until(note + " === 'up to ≈ 6 s'")
	b.open("/") // a new chat knows it too
	b.until(note + " === 'up to ≈ 6 s'")
	b.set("max_tokens", "2048")
	b.until(note + " === 'up to ≈ 25 s'")
	b.clean()
}

func TestAnImportOfWhichNothingCameSaysSo(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	path := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(path, []byte(`{"format":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	b.open("/")
	b.choose(path)
	b.until("!document.querySelector('#senderror').hidden")
	if got := b.text("[data-title-of-error]"); got != "Nothing was imported" {
		t.Errorf("the page says %q", got)
	}
}

func TestAPromptThatIsTooLongIsCountedTheSameEverywhere(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	engine.Set(func(s *infer.Status) { s.ContextLength, s.Model.ContextTrain = 40, 40 })
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	draft := func(words int, want string) {
		t.Helper()
		b.fill("#message", strings.TrimSpace(strings.Repeat("word ", words)))
		b.until(fmt.Sprintf("document.querySelector('[data-cost]').innerText === %q", want))
	}
	draft(1024, "1,027 of 40 tokens: 987 too many. Shorten it.")
	draft(37, "40 of 40 tokens: no room for an answer. Shorten it.")
	draft(36, "36 tokens, 39 of 40 after this. 1 left for the answer")
	engine.Set(func(s *infer.Status) { s.Model.ContextTrain = 80 })
	draft(38, "41 of 40 tokens: 1 too many. Shorten it, or raise the context on the page Models.")
	engine.Set(func(s *infer.Status) { s.Model.ContextTrain = 40 })
	draft(39, "42 of 40 tokens: 2 too many. Shorten it.")

	// The engine says the same when it refuses.
	b.fill("#message", "short")
	b.say("")
	engine.Next(t).Fail(&fault.Error{Code: fault.CodeContext, Message: "too long", PromptTokens: 1027, ContextLength: 40})
	b.until("document.querySelector('.answer .errbox')?.hidden === false")
	if got := b.text(".answer .errbox .sum"); !strings.HasSuffix(got, "987") {
		t.Errorf("the sum is %q", got)
	}
	if got := b.text(".answer .errbox [data-error]"); got != "Nothing was cut. Shorten it." {
		t.Errorf("the first question of a chat is told %q", got)
	}
	chat := strings.TrimPrefix(b.value("location.pathname"), "/c/")
	if page := handlerstest.Call(t, server, "GET", "/c/"+chat, ""); !strings.Contains(page.Body, "The prompt has 1,027 tokens, and the context 40. Nothing was cut. Shorten it.") {
		t.Error("without scripts the page says something else")
	}
	b.say("and now")
	engine.Next(t).Fail(&fault.Error{Code: fault.CodeContext, Message: "too long", PromptTokens: 60, ContextLength: 40, Largest: fault.PartSystem, LargestTokens: 50})
	b.until("document.querySelectorAll('.answer .errbox:not([hidden])').length === 2")
	const named = "Your system prompt has 50 tokens of the 40 that fit. Shorten it."
	if got := b.text(".answer:last-child .errbox [data-error]"); got != "Nothing was cut. "+named {
		t.Errorf("of a system prompt the page says %q", got)
	}
	if page := handlerstest.Call(t, server, "GET", "/c/"+chat, ""); !strings.Contains(page.Body, "The prompt has 60 tokens, and the context 40. Nothing was cut. "+named) {
		t.Error("without scripts the page does not name the system prompt")
	}
	b.click(".answer:last-child [data-edit-system]")
	b.until("document.activeElement.id === 'system'")
	b.fill("#system", strings.TrimSpace(strings.Repeat("word ", 50)))
	b.fill("#message", "short")
	b.until("document.querySelector('[data-cost]').innerText.endsWith('too many. " + named + "')")
	b.fill("#system", "")
	b.say("again")
	engine.Next(t).Fail(&fault.Error{Code: fault.CodeContext, Message: "too long", PromptTokens: 40, ContextLength: 40})
	b.until("document.querySelectorAll('.answer .errbox:not([hidden])').length === 3")
	if got := b.text(".answer:last-child .errbox"); strings.Contains(got, "too much") || !strings.Contains(got, "Shorten it, or start a new chat with a summary of this one.") {
		t.Errorf("the second question is told %q", got)
	}
}

func TestWithoutScriptsNoButtonIsDead(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	chat := handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/", url.Values{"text": {"Hello"}}))
	a := engine.Next(t)
	a.Write("Hi.")
	a.Finish()
	b := openBrowser(t, server)
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	for _, size := range []struct{ width, height int64 }{{1440, 900}, {820, 1180}, {390, 844}} {
		b.size(size.width, size.height, size.width < 1000)
		for _, path := range []string{"/", "/c/" + chat, "/presets", "/presets?id=precise"} {
			b.do(chromedp.Navigate(b.origin+path), chromedp.WaitReady("main"))
			dead := b.value(`[...document.querySelectorAll('button')].filter(e => e.checkVisibility() && !(e.form && e.type === 'submit') && !e.hasAttribute('popovertarget')).map(e => e.outerHTML.slice(0, 120)).join('\n')`)
			if dead != "" {
				t.Errorf("%s at %d px has buttons that do nothing:\n%s", path, size.width, dead)
			}
		}
	}
	b.shot("panel-13-noscript")
}

func TestWithoutScriptsStopStandsAtTheEndOfTheAnswer(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(chromedp.Navigate(b.origin+"/"), chromedp.WaitVisible("#message"))
	b.fill("#message", "Tell me about rain.")
	b.script(`document.querySelector('[data-send]').click()`)
	a := engine.Next(t)
	a.Write("Rain is **water**.\n\n", "It falls")
	b.until("document.querySelector('.growing .prose:not(:has(+ *))')?.innerText === 'It falls'")
	var at struct{ Text, Stop float64 }
	if err := json.Unmarshal([]byte(b.value(`JSON.stringify({Text: Math.max(...[...document.querySelectorAll('.growing .prose')].map(p => p.getBoundingClientRect().bottom)), Stop: document.querySelector('.growing form').getBoundingClientRect().top})`)), &at); err != nil {
		t.Fatal(err)
	}
	if at.Stop < at.Text || at.Text == 0 {
		t.Errorf("the text ends at %v, and Stop begins at %v", at.Text, at.Stop)
	}
	if got := b.text(".growing form"); !strings.Contains(got, "being written") {
		t.Errorf("beside Stop the page says %q", got)
	}
	b.shot("panel-13-growing")
	a.Finish()
	b.until("document.querySelector('.growing .foot') && !document.querySelector('.growing form').checkVisibility()")
}
