package browser

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/record"
	"m40-llm/store"
)

// everyTurn makes a chat with each kind of turn that there is.
func everyTurn(t testing.TB, chats *live.Service) string {
	t.Helper()
	failure, _ := json.Marshal(fault.Error{Code: fault.CodeContext, Message: "too long", PromptTokens: 2822, ContextLength: 2048})
	made := func(change func(*store.Answer)) *store.Answer {
		a := store.Answer{
			Seed: 884213, Context: 8192,
			Answer: record.Answer{
				End:     record.End{EndProb: 0.97, Reason: record.FinishStop},
				Usage:   record.Usage{PromptTokens: 1440, CachedTokens: 737, CompletionTokens: 214},
				Timings: record.Timings{Queue: 50e6, Prefill: 360e6, Decode: 5650e6, First: 410e6},
				Receipt: record.Receipt{Model: "an-unusually-long-model-name-instruct-v0.3-Q4_K_M", Device: "NVIDIA Tesla M40 24GB, driver 535.183.01"},
			},
		}
		if change != nil {
			change(&a)
		}
		return &a
	}
	var list []store.Message
	parent := int64(0)
	add := func(m store.Message) {
		m.ID = int64(len(list) + 1)
		if m.Parent == 0 {
			m.Parent = parent
		}
		if m.State == "" {
			m.State = store.Done
		}
		list = append(list, m)
		parent = m.ID
	}
	ask := func(text string) { add(store.Message{Role: store.RoleUser, Text: text}) }
	say := func(state store.State, text string, a *store.Answer) {
		add(store.Message{Role: store.RoleAssistant, State: state, Text: text, Answer: a})
	}
	ask("hello")
	say(store.Done, "Hey!", made(nil))
	ask("Which card? averyveryveryveryveryveryverylongwordthatcannotbebrokenanywhereatallandgoesonandonuntilitisnearlyendless")
	say(store.Done, richAnswer, made(func(a *store.Answer) { a.Receipt.Device = "AMD EPYC 9B14 96-Core Processor, 2 threads" }))
	list[len(list)-1].Reasoning = "A thought that is long enough to be folded. averyveryverylongwordthatcannotbebrokenanywhereatall"
	ask("ما هي أنواع المطر؟")
	say(store.Done, "أنواع المطر:\n\n- مطر خفيف\n- مطر غزير\n\n1. أولا\n2. ثانيا\n\n> اقتباس\n", made(nil))
	ask("And on?")
	say(store.Stopped, "It goes on and", made(func(a *store.Answer) { a.Reason = "" }))
	ask("All of the letters")
	say(store.Failed, "", made(func(a *store.Answer) { a.Error, a.Usage.CompletionTokens, a.Timings = failure, 0, record.Timings{} }))
	ask("And half of them")
	say(store.Failed, "A B C", made(func(a *store.Answer) { a.Error = failure }))
	ask("More")
	say(store.Interrupted, "The server", made(nil))
	ask("To the limit")
	say(store.Done, "One two three", made(func(a *store.Answer) { a.Reason = "length"; a.ContextFull = true }))
	ask("Until a string")
	say(store.Done, "One two", made(func(a *store.Answer) {
		a.StopString = "\n\nOne stop string that is long enough to fill more than one line of a phone"
	}))
	above := parent
	ask("Which version?")
	parent = above
	ask("Which version of the two is this one?")
	question := parent
	say(store.Done, "The first.", made(nil))
	parent = question
	say(store.Done, "The second.", made(nil))
	parent = question
	say(store.Done, "Mine.", nil)
	ask("The last")
	say(store.Stopped, "The end of the", made(func(a *store.Answer) { a.Reason = "" }))
	id, err := handlerstest.ImportList(chats, store.Metadata{
		Title: "A chat with each kind of turn and a title that is so long that it does not fit into the head of the page on any phone",
	}, list, parent)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// layout returns what is wrong with the layout of the middle column: texts that lie over
// each other, what is cut, what scrolls sideways, and targets smaller than least pixels.
const layout = `((least) => {
	const wrong = [], main = document.querySelector('.main'), scroller = document.querySelector('#scroll')
	const name = el => {
		const turn = el.closest('.turn')
		return (turn ? [...turn.parentElement.children].indexOf(turn) + ': ' : '') + el.localName + (el.className.baseVal ?? el.className ? '.' + String(el.className.baseVal ?? el.className).replaceAll(' ', '.') : '') + ' “' + (el.innerText ?? el.textContent).slice(0, 30) + '”'
	}
	const seen = el => el.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !el.closest('.vh, .skip')
	const scrolls = el => /auto|scroll/.test(getComputedStyle(el).overflowX)
	// The part of a box that is shown; what the chat has scrolled away counts.
	const shown = (box, el) => {
		let { left, top, right, bottom } = box
		for (let up = el; up && up !== scroller && up !== document.documentElement; up = up.parentElement) {
			if (getComputedStyle(up).overflow === 'visible') continue
			const r = up.getBoundingClientRect()
			left = Math.max(left, r.left); top = Math.max(top, r.top); right = Math.min(right, r.right); bottom = Math.min(bottom, r.bottom)
		}
		return { left, top, right, bottom }
	}
	if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page scrolls sideways, with ' + [...document.querySelectorAll('body *')].filter(el => el.getBoundingClientRect().right > innerWidth && el.checkVisibility()).map(name).join())
	if (scroller.scrollWidth > scroller.clientWidth) wrong.push('the chat scrolls sideways, with ' + [...scroller.querySelectorAll('*')].filter(el => el.getBoundingClientRect().right > scroller.getBoundingClientRect().left + scroller.clientWidth + 0.5 && seen(el) && !el.closest('.prose')).map(name).join())
	const texts = []
	const walk = document.createTreeWalker(main, NodeFilter.SHOW_TEXT)
	while (walk.nextNode()) {
		const el = walk.currentNode.parentElement
		if (!walk.currentNode.data.trim() || !seen(el)) continue
		const range = document.createRange()
		range.selectNodeContents(walk.currentNode)
		for (const box of range.getClientRects()) {
			if (box.width < 1) continue
			const inside = el.closest('#thread')
			const s = shown(box, el)
			if (s.left < -0.5 || s.right > innerWidth + 0.5) wrong.push('beside the page: ' + name(el))
			if (s.right - s.left > 0.5) texts.push({ ...s, el, inside, node: walk.currentNode })
		}
	}
	texts.sort((a, b) => a.top - b.top)
	for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length && texts[j].top < texts[i].bottom; j++) {
		const a = texts[i], b = texts[j]
		const over = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)
		// Lines are set closer than their fonts are high. Limits and accents may touch what they belong to: fonts for
		// formulas have high boxes.
		const script = a.el.closest('munder, mover, munderover')
		if (a.node !== b.node && a.inside === b.inside && !script?.contains(b.el) && !b.el.closest('munder, mover, munderover')?.contains(a.el) && over > 1 && high > 0.4 * Math.min(a.bottom - a.top, b.bottom - b.top)) wrong.push(name(a.el) + ' lies over ' + name(b.el))
	}
	for (const el of main.querySelectorAll('*')) {
		if (!seen(el) || el.closest('svg') || scrolls(el) || el.clientWidth === 0 || el.matches('textarea')) continue
		const style = getComputedStyle(el)
		if (style.overflowX !== 'visible' && el.scrollWidth > el.clientWidth + 1 && !(style.textOverflow === 'ellipsis' && el.title)) wrong.push('wider than its box: ' + name(el) + ' ' + el.scrollWidth + ' > ' + el.clientWidth)
		if (!/visible|auto|scroll/.test(style.overflowY) && el.scrollHeight > el.clientHeight + 1 && !(style.webkitLineClamp !== 'none' && el.title)) wrong.push('higher than its box: ' + name(el))
	}
	const targets = []
	for (const el of main.querySelectorAll('a[href], button, summary, input, textarea, select')) {
		if (!el.checkVisibility({ visibilityProperty: true }) || el.matches(':disabled') || el.closest('.skip') || el.matches('.prose a')) continue
		const box = el.getBoundingClientRect()
		if (box.left < -0.5 || box.right > innerWidth + 0.5) wrong.push('beside the page: ' + name(el))
		targets.push({ el, box })
		if (box.width < least - 0.5 || box.height < least - 0.5) wrong.push('a small target: ' + name(el) + ' ' + (el.ariaLabel ?? '') + ' ' + Math.round(box.width) + ' x ' + Math.round(box.height))
	}
	for (const [i, a] of targets.entries()) for (const b of targets.slice(i + 1)) {
		const over = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left), high = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top)
		if (over > 1 && high > 1 && a.el.closest('#thread') && b.el.closest('#thread') && !a.el.contains(b.el)) wrong.push('targets lie over each other: ' + name(a.el) + ' and ' + name(b.el))
	}
	return JSON.stringify([...new Set(wrong)])
})`

// TestTheTranscriptIsLaidOutAtEveryWidth looks at each kind of turn on phones, tablets and
// desktops, under a finger and under a mouse.
func TestTheTranscriptIsLaidOutAtEveryWidth(t *testing.T) {
	t.Parallel()
	needFonts(t, pinnedFonts)
	widths := []int64{320, 360, 390, 600, 760, 761, 820, 1000, 1120, 1121, 1440, 1600}
	transcriptIsLaidOut(t, openBrowser, fixtures.At([]int64{320, 820, 1440}, widths, widths)...)
}

// Liberation is what most desktops without DejaVu have, and is narrower.
func TestTheTranscriptIsLaidOutWithLiberation(t *testing.T) {
	t.Parallel()
	fixtures.NeedCheck(t)
	needFonts(t, liberationFonts)
	chromium := newChromium(t, liberationFonts)
	transcriptIsLaidOut(t, chromium.open, 320, 820, 1440)
}

// transcriptIsLaidOut looks at each kind of turn at these widths, in a browser that open opens.
func transcriptIsLaidOut(t *testing.T, open func(testing.TB, *httptest.Server) *browser, widths ...int64) {
	t.Helper()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	id := everyTurn(t, chats)
	b := open(t, server)
	look := func(state string, width int64, coarse bool) {
		t.Helper()
		pointer, least := "fine", 24
		if coarse {
			pointer, least = "coarse", 44
		}
		b.size(width, 900, coarse)
		b.until(fmt.Sprintf("matchMedia('(pointer: coarse)').matches === %t", coarse))
		b.frames()
		var wrong []string
		if err := json.Unmarshal([]byte(b.value(fmt.Sprintf("%s(%d)", layout, least))), &wrong); err != nil {
			t.Fatal(err)
		}
		for _, what := range wrong[:min(len(wrong), 12)] {
			t.Errorf("%s, %d px, %s pointer: %s", state, width, pointer, what)
		}
	}
	each := func(state string, widths ...int64) {
		t.Helper()
		for _, coarse := range []bool{false, true} {
			for _, width := range widths {
				look(state, width, coarse)
			}
		}
	}
	b.open("/c/" + id)
	b.until("document.querySelectorAll('.turn').length === 22")
	b.until(idle)
	each("settled", widths...)
	pictures(b, "turns")
	b.script(`for (const d of document.querySelectorAll('#thread details')) d.open = true`)
	each("unfolded", 320, 820, 1440)
	if t.Failed() {
		return
	}
	b.size(1440, 900, false)
	b.say("And now?")
	answer := engine.Next(t)
	answer.Send(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1200, Total: 1440, Cached: 737}})
	b.until("document.querySelector('.answer:last-child .wait')?.hidden === false")
	each("waiting", 320, 820)
	answer.Write(pieces(sampleAnswer)...)
	b.until(lastAnswer + ".includes('Three things')")
	each("writing", 320, 820, 1440)
	b.clean()
}

// pictures takes some of the page, if that is asked for.
func pictures(b *browser, name string) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	for _, width := range []int64{390, 820, 1440} {
		for _, coarse := range []bool{false, true} {
			b.size(width, 900, coarse)
			pointer := map[bool]string{false: "mouse", true: "touch"}[coarse]
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				for i, at := range []int{0, 7, 15, 99} {
					b.script(fmt.Sprintf("const t = [...document.querySelectorAll('.turn')]; (t[%d] ?? t.at(-1)).scrollIntoView()", at))
					if name == "exchange" && i > 0 {
						break
					}
					b.shot(fmt.Sprintf("%s-%d-%s-%s-%d", name, width, pointer, scheme, i))
				}
			}
		}
	}
	b.size(1440, 900, false)
}

// TestAShortExchangeTakesLittleRoom measures the furniture around two short texts.
func TestAShortExchangeTakesLittleRoom(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	b.ask(engine, "hello", "Hey!")
	const height = "(r => r.at(-1).bottom - r[0].top)([...document.querySelectorAll('.turn')].map(e => e.getBoundingClientRect()))"
	for _, size := range []struct {
		width, height, most int64
		coarse              bool
	}{{1440, 900, 160, false}, {820, 1180, 255, true}, {390, 844, 255, true}} {
		b.size(size.width, size.height, size.coarse)
		b.frames()
		var got float64
		if _, err := fmt.Sscan(b.value(height), &got); err != nil {
			t.Fatal(err)
		}
		t.Logf("at %d px, coarse pointer %t: %.0f px", size.width, size.coarse, got)
		if got > float64(size.most) {
			t.Errorf("at %d px, coarse pointer %t: the exchange is %.0f px high, want at most %d", size.width, size.coarse, got, size.most)
		}
	}
	pictures(b, "exchange")
	b.clean()
}

// TestATurnShowsAtFirstWhatIsWantedMost looks for what stands alongside texts, and what comes
// when it is asked for.
func TestATurnShowsAtFirstWhatIsWantedMost(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	answer := func(device, reason string) *store.Answer {
		return &store.Answer{Seed: 7, Answer: record.Answer{
			End:     record.End{EndProb: 0.97, Reason: record.FinishReason(reason)},
			Usage:   record.Usage{PromptTokens: 1440, CompletionTokens: 214},
			Timings: record.Timings{Prefill: 360e6, Decode: 5650e6, First: 410e6},
			Receipt: record.Receipt{Model: "guide", Device: device},
		}}
	}
	var list []store.Message
	for i, a := range []struct {
		state          store.State
		device, reason string
	}{{store.Done, "a GPU", "stop"}, {store.Stopped, "a GPU", ""}, {store.Done, "a CPU", "stop"}, {store.Done, "a CPU", "length"}} {
		id := int64(2 * i)
		list = append(list,
			store.Message{ID: id + 1, Parent: id, Role: store.RoleUser, State: store.Done, Text: "Question"},
			store.Message{ID: id + 2, Parent: id + 1, Role: store.RoleAssistant, State: a.state, Text: "Answer", Answer: answer(a.device, a.reason)})
	}
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: "Turns"}, list, int64(len(list)))
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, server)
	b.open("/c/" + id)
	b.until("document.querySelectorAll('.answer').length === 4")
	each := func(selector string) string {
		return fmt.Sprintf("[...document.querySelectorAll('.answer')].map(a => [...a.querySelectorAll(%q)].filter(e => e.checkVisibility()).map(e => e.innerText.trim()).join('+')).join('; ')", selector)
	}
	for _, c := range []struct{ what, is, want string }{
		{"an answer has one line of figures", each(".made > summary > span"),
			"37.7 tok/s+214 tokens+0.41 s to first token; 37.7 tok/s+214 tokens+0.41 s to first token; 37.7 tok/s+214 tokens+0.41 s to first token+a CPU; 37.7 tok/s+214 tokens+0.41 s to first token"},
		{"the line is one line", "[...document.querySelectorAll('.made')].every(m => m.clientHeight < 30 && m.querySelector('.lat').checkVisibility())", "true"},
		{"the rest is folded away", each(".made > dl"), "; ; ; "},
		{"an end that is not the natural one has a chip", each(".why .chip"), "; stopped by you at token 214; ; length limit, 512 tokens"},
		{"a device is named where it changed", each("[data-f=elsewhere]"), "; ; a CPU; "},
		{"it does not lie over its author", "[...document.querySelectorAll('.you')].every(q => q.querySelector('.acts').getBoundingClientRect().top >= q.querySelector('.who b').getBoundingClientRect().bottom - 0.5)", "true"},
		{"what is done with a question stands beside it", "[...document.querySelectorAll('.you')].every(q => q.querySelector('.acts').getBoundingClientRect().right <= q.querySelector('.prose').getBoundingClientRect().left && q.querySelector('.acts').getBoundingClientRect().bottom <= q.getBoundingClientRect().bottom)", "true"},
	} {
		if got := b.value(c.is); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
	b.click(".answer .made > summary")
	b.until("document.querySelector('.made > dl').checkVisibility()")
	if got := b.text(".made > dl"); !strings.Contains(got, "1,440 tokens") || !strings.Contains(got, "a GPU") || !strings.Contains(got, "finished") {
		t.Errorf("unfolded, the figures are %q", got)
	}

	// On a phone the panel is a sheet, which begins with the sliders.
	b.size(390, 844, true)
	b.frames()
	b.click("[data-sheet-open]")
	b.until("document.body.dataset.open === 'sheet'")
	if got := b.value("[...document.querySelectorAll('#inspector .sec')].filter(e => e.checkVisibility()).sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top).map(e => e.querySelector('h2').innerText).join()"); !strings.HasPrefix(got, "Sampling,") {
		t.Errorf("the sheet has the sections %s", got)
	}
	if got := b.value("document.querySelector('[data-param=temperature] input[type=range]').getBoundingClientRect().bottom < innerHeight"); got != "true" {
		t.Error("the first slider is below the sheet")
	}
	b.shot("sheet")
	b.clean()
}
