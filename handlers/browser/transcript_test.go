package browser

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/store"
)

// importNumbered makes a chat of count messages, "message 1" and so on, of several lines.
func importNumbered(t testing.TB, chats *live.Service, title string, count int64) string {
	t.Helper()
	var list []store.Message
	for i := range count {
		m := store.Message{ID: i + 1, Parent: i, Role: store.RoleUser, State: store.Done, Text: fmt.Sprintf("message %d", i+1)}
		if i%2 == 1 {
			m.Role = store.RoleAssistant
			m.Text += strings.Repeat("\n\nA line.", int(i%7))
		}
		list = append(list, m)
	}
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: title}, list, count)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestAChatThatEndsWithAQuestionIsAnswered(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.ask(engine, "What is rain?", "Water.")
	b.ask(engine, "And snow?", "Ice.")
	fork := func(question int) {
		t.Helper()
		from := b.value("location.pathname")
		b.script(fmt.Sprintf("document.querySelector('.you:nth-child(%d) [data-fork]').click()", question))
		b.until(fmt.Sprintf("location.pathname.startsWith('/c/') && location.pathname !== %q && document.querySelector('.you:last-child [data-answer-this]')?.checkVisibility()", from))
	}
	first := b.value("location.pathname")

	run("the button at its question answers it", func(t *testing.T) {
		fork(3)
		if got := b.value("[...document.querySelectorAll('[data-answer-this]')].filter(e => e.checkVisibility()).length"); got != "1" {
			t.Errorf("%s questions offer to be answered, want the last one alone", got)
		}
		b.shot("answer-this")
		b.click(".you:last-child [data-answer-this]")
		answer := engine.Next(t)
		if m := answer.Request.Messages; len(m) != 3 || m[2].Content != "And snow?" {
			t.Errorf("the engine was asked with %+v", m)
		}
		answer.Write("White.")
		answer.Finish()
		b.until(lastAnswerIs("White."))
		b.until(idle)
		b.until("![...document.querySelectorAll('[data-answer-this]')].some(e => e.checkVisibility())")
	})

	run("the key r at a question answers that question", func(t *testing.T) {
		b.open(first)
		fork(3)
		b.script("document.querySelector('.you:last-child').focus()")
		b.do(chromedp.KeyEvent("r"))
		answer := engine.Next(t)
		if m := answer.Request.Messages; len(m) != 3 || m[2].Content != "And snow?" {
			t.Errorf("the engine was asked with %+v", m)
		}
		answer.Write("Cold.")
		answer.Finish()
		b.until(lastAnswerIs("Cold."))
		b.until(idle)
		b.script("document.querySelector('.you:nth-child(1)').focus()")
		b.do(chromedp.KeyEvent("r"))
		answer = engine.Next(t)
		if m := answer.Request.Messages; len(m) != 1 || m[0].Content != "What is rain?" {
			t.Errorf("at the first question the engine was asked with %+v", m)
		}
		answer.Write("Drops.")
		answer.Finish()
		b.until(idle)
		b.until("document.querySelectorAll('.answer').length === 1 && document.querySelector('.answer .vers').innerText === '2/2'")
	})
	b.clean()

	run("without scripts a form answers it, once", func(t *testing.T) {
		b.open(first)
		fork(3)
		chat := strings.TrimPrefix(b.value("location.pathname"), "/c/")
		page := handlerstest.Call(t, server, http.MethodGet, "/c/"+chat, "")
		_, rest, found := strings.Cut(page.Body, `name="question" value="`)
		if !found {
			t.Fatal("the page has no form that answers the question")
		}
		question, _, _ := strings.Cut(rest, `"`)
		if got := handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/c/"+chat+"/answer", url.Values{"question": {question}})); got != chat {
			t.Errorf("the form leads to %q", got)
		}
		answer := engine.Next(t)
		if m := answer.Request.Messages; len(m) != 3 || m[2].Content != "And snow?" {
			t.Errorf("the engine was asked with %+v", m)
		}
		handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/c/"+chat+"/answer", url.Values{"question": {question}})) // a second click
		answer.Finish()
		b.until(idle)
		handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/c/"+chat+"/answer", url.Values{"question": {question}}))
		if n := len(engine.Answers); n > 0 {
			t.Errorf("%d questions too many were asked", n)
		}
		if got := handlerstest.Submit(t, server, "/c/"+chat+"/answer", url.Values{"question": {"x"}}); got.Status != http.StatusBadRequest {
			t.Errorf("a question that is no number got %d", got.Status)
		}
	})
}

// placeOf is where a turn stands below the top of the scroller.
func (b *browser) placeOf(text string) float64 {
	b.t.Helper()
	place, err := strconv.ParseFloat(b.value(fmt.Sprintf(`[...document.querySelectorAll('.turn')].find(e => e.querySelector('.prose').innerText.split('\n')[0] === %q)?.getBoundingClientRect().top - document.querySelector('#scroll').getBoundingClientRect().top`, text)), 64)
	if err != nil {
		b.t.Fatal(err)
	}
	return place
}

func TestWhatIsReadStandsStillWhileOlderMessagesCome(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	const count = 600
	id := importNumbered(t, chats, "Long", count)
	b := openBrowser(t, server)
	b.open("/c/" + id)
	first := "document.querySelector('.turn .prose').innerText.split('\\n')[0]"
	last := "[...document.querySelectorAll('.turn .prose')].at(-1).innerText.split('\\n')[0]"
	b.until(first + " === 'message 501' && " + last + " === 'message 600'")
	b.until("document.querySelector('#scroll').scrollTop > 0")

	// The reader goes up a little at a time; whatever comes, the turn at the top of the
	// window moves by what was scrolled and by nothing else.
	b.script(`
		const scroller = document.querySelector('#scroll')
		globalThis.jumps = []
		const top = () => scroller.getBoundingClientRect().top
		globalThis.up = () => {
			const turn = [...document.querySelectorAll('.turn')].find(e => e.getBoundingClientRect().bottom > top())
			const stood = turn.getBoundingClientRect().top
			const from = scroller.scrollTop
			scroller.scrollTop = from - 700
			const scrolled = from - scroller.scrollTop
			return new Promise(done => requestAnimationFrame(() => setTimeout(() => {
				const moved = turn.getBoundingClientRect().top - stood
				if (!turn.isConnected || Math.abs(moved - scrolled) >= 1) jumps.push([turn.innerText.split('\n')[2], turn.isConnected, moved, scrolled])
				done()
			}, 20)))
		}
		globalThis.climb = async () => {
			const first = () => document.querySelector('.turn .prose').innerText.split('\n')[0]
			for (let idle = 0, was; first() !== 'message 1' && idle < 500; idle = scroller.scrollTop === 0 && first() === was ? idle + 1 : 0) {
				was = first()
				await up()
			}
			return first()
		}
	`)
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("climb()", chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	if got != "message 1" {
		t.Errorf("at the top of the chat stands %q", got)
	}
	if jumps := b.value("JSON.stringify(jumps.slice(0, 5))"); jumps != "[]" {
		t.Errorf("what was read jumped: %s", jumps)
	}
	if got := b.value("document.querySelectorAll('.turn').length"); got != "300" {
		t.Errorf("the document holds %s turns, want at most 300", got)
	}

	// A page that comes at the very top leaves its place too.
	b.reload() // which scrolls to the end
	b.until(first + " === 'message 501'")
	b.until("document.querySelector('#scroll').scrollTop > 0")
	b.frames() // so that the page takes the next scroll for a person's
	b.script("document.querySelector('#scroll').scrollTop = 0")
	stood := b.placeOf("message 501")
	b.until(first + " !== 'message 501'")
	if got := b.placeOf("message 501"); math.Abs(got-stood) >= 1 {
		t.Errorf("message 501 stands at %v, it stood at %v", got, stood)
	}

	// And down again: what was dropped at the end comes back.
	b.until(last + " !== 'message 600' || (document.querySelector('#older button').click(), false)")
	b.until("(s => { s.scrollTop += 2000; return s })(document.querySelector('#scroll')) && " + last + " === 'message 600'")
	if got := b.value("document.querySelectorAll('.turn').length"); got != "300" {
		t.Errorf("the document holds %s turns, want at most 300", got)
	}
	b.clean()
}

// TestTheFirstMessageOfALongChatIsReached goes up as persons do, with a wheel or the key Home,
// from the end of a chat and from a hit of a search in its middle.
func TestTheFirstMessageOfALongChatIsReached(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	const count = 500
	id := importNumbered(t, chats, "Long", count)
	b := openBrowser(t, server)
	run := steps(t, b)
	const first = `document.querySelector('.turn .prose').innerText.split('\n')[0]`
	const last = `[...document.querySelectorAll('.turn .prose')].at(-1).innerText.split('\n')[0]`
	turn := func(n int) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.turn .prose')].find(e => e.innerText.split('\n')[0] === 'message %d')`, n)
	}
	wheel := func(by float64) {
		command(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: "mouseWheel", X: 700, Y: 400, DeltaX: 1, DeltaY: by}) // a delta of 0 is left out of the command, which needs both
	}
	home := func() { b.press("Home", 36) }
	up := func() { wheel(-1500) }
	// until goes on in one way until a condition holds.
	until := func(goes func(), condition string) {
		b.t.Helper()
		for deadline := time.Now().Add(handlerstest.Hang); b.value(condition) != "true"; b.frames() {
			if time.Now().After(deadline) {
				b.t.Fatalf("waited in vain for %s, the first message here is %q and the place %s", condition, b.value(first), b.value("document.querySelector('#scroll').scrollTop"))
			}
			goes()
		}
	}
	atTop := first + " === 'message 1' && " + turn(1) + ".getBoundingClientRect().top > document.querySelector('#scroll').getBoundingClientRect().top"
	at := func(n int) string {
		page := handlerstest.Call(t, server, http.MethodGet, fmt.Sprintf("/?q=%d", n), "")
		_, rest, _ := strings.Cut(page.Body, `<a class="conv" href="`)
		address, _, _ := strings.Cut(strings.ReplaceAll(rest, "&amp;", "&"), `"`)
		return address
	}
	for _, c := range []struct {
		name  string
		from  int
		first func() // before going up
		goes  func()
	}{
		{"from the end, by wheel", count, nil, up},
		{"from the end, by the key Home", count, nil, home},
		{"from the middle, by the key Home", 250, nil, home},
		{"from the middle, where a page of messages is lost with its connection", 250, func() {
			b.script(`const { send } = WebSocket.prototype
				WebSocket.prototype.send = function (text) {
					if (JSON.parse(text).type === 'older') {
						WebSocket.prototype.send = send
						const { onmessage } = this
						this.onmessage = message => JSON.parse(message.data).type === 'older' ? this.close() : onmessage.call(this, message)
					}
					send.call(this, text)
				}`)
		}, home},
		{"from the middle, first down to the end, by wheel", 250, func() { until(func() { wheel(1500) }, last+" === 'message 500'") }, up},
	} {
		run(c.name, func(t *testing.T) {
			address := "/c/" + id
			if c.from < count {
				address = at(c.from)
			}
			b.open(address)
			b.until(turn(c.from) + " && document.querySelector('#scroll').scrollTop > 0")
			b.click(".turn:nth-last-child(2) .prose") // a person is in the transcript, not in the message field
			if c.first != nil {
				c.first()
			}
			until(c.goes, atTop)
			if got := b.value("document.querySelectorAll('.turn').length <= 300"); got != "true" {
				t.Errorf("the document holds more than 300 turns")
			}
		})
	}
	b.clean()
}

func TestASearchLeadsToTheMessageAndKeepsItsList(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	importNumbered(t, chats, "Another", 4)
	var list []store.Message
	for i := range int64(400) {
		m := store.Message{ID: i + 1, Parent: i, Role: store.RoleUser, State: store.Done, Text: fmt.Sprintf("question %d", i+1)}
		if i%2 == 1 {
			m.Role, m.Text = store.RoleAssistant, fmt.Sprintf("answer %d", i+1)
		}
		list = append(list, m)
	}
	list[39].Text = "A long line first.\n\nThe keeper of the **Café** sneezed; `sneeze` <mark>twice</mark>."
	list = append(list, store.Message{ID: 401, Parent: 1, Role: store.RoleAssistant, State: store.Done, Text: "Elsewhere stands a walrus."})
	if _, err := handlerstest.ImportList(chats, store.Metadata{Title: "Lighthouse"}, list, 400); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, server)
	run := steps(t, b)
	inSight := func(text string) string {
		return fmt.Sprintf("(t => t && t.top >= -1 && t.bottom <= innerHeight)([...document.querySelectorAll('.turn .prose')].find(e => e.innerText.includes(%q))?.getBoundingClientRect())", text)
	}
	rows := "[...document.querySelectorAll('.conv-row')].map(r => r.querySelector('[data-name]').innerText).join()"

	run("a hit leads to its message, with the words marked, and the list stays", func(t *testing.T) {
		b.open("/")
		b.fill("#search", "cafe sneez")
		b.until(rows + " === 'Lighthouse'")
		b.click(".conv")
		b.until(inSight("keeper of the Café") + " && document.querySelectorAll('#thread mark').length > 0")
		if got := b.value("[...document.querySelectorAll('#thread mark')].map(m => m.innerText).join()"); got != "Café,sneezed,sneeze" {
			t.Errorf("marked is %q", got)
		}
		if got := b.value(rows + " + ' ' + document.querySelector('#search').value + ' ' + document.querySelector('.conv[aria-current]')?.innerText.includes('keeper')"); got != "Lighthouse cafe sneez true" {
			t.Errorf("the list is %q", got)
		}
		b.shot("search-hit")
		b.scheme("dark")
		b.shot("search-hit-dark")
		b.scheme("light")
	})

	run("from there the chat is read on in both directions", func(t *testing.T) {
		b.script("document.querySelector('#scroll').scrollTop = 0")
		b.until("document.querySelector('.turn .prose').innerText === 'question 1'")
		b.until("(s => { s.scrollTop += 3000; return s })(document.querySelector('#scroll')) && [...document.querySelectorAll('.turn .prose')].at(-1).innerText === 'answer 400' && document.querySelector('#tobottom').hidden")
	})

	run("escape ends the search and shows all chats", func(t *testing.T) {
		b.script("document.querySelector('#search').focus()")
		b.press("Escape", 27)
		b.until(rows + " === 'Lighthouse,Another' && document.querySelector('#search').value === ''")
		if got := b.value("location.search + document.activeElement.id"); got != "search" {
			t.Errorf("the address still has %q, or the focus is elsewhere", got)
		}
		b.press("Escape", 27)
		b.until("document.activeElement.id === 'message'")
	})

	run("a hit in another version shows that version", func(t *testing.T) {
		b.fill("#search", "walrus")
		b.until(rows + " === 'Lighthouse' && document.querySelector('.conv .hit').innerText.includes('walrus')")
		b.click(".conv")
		b.until(inSight("Elsewhere stands a walrus") + " && document.querySelector('mark')?.innerText === 'walrus'")
		b.until("document.querySelector('.answer .vers').innerText === '2/2'")
	})
	b.clean()

	run("without scripts the address leads to the message too", func(t *testing.T) {
		page := handlerstest.Call(t, server, http.MethodGet, "/?q=cafe+sneez", "")
		_, rest, _ := strings.Cut(page.Body, `<a class="conv" href="`)
		address, _, _ := strings.Cut(strings.ReplaceAll(rest, "&amp;", "&"), `"`)
		path, anchor, found := strings.Cut(address, "#")
		if !found {
			t.Fatalf("the hit leads to %q", address)
		}
		hit := handlerstest.Call(t, server, http.MethodGet, path, "")
		if !strings.Contains(hit.Body, "That message is in another version.") {
			t.Error("the branch with the walrus is shown, and the page does not say that the message is elsewhere")
		}
		chat, _, _ := strings.Cut(strings.TrimPrefix(path, "/c/"), "?")
		shown := handlerstest.Submit(t, server, "/c/"+chat+"/show", url.Values{"message": {strings.TrimPrefix(anchor, "m-")}})
		if shown.Status != http.StatusSeeOther || !strings.HasSuffix(shown.Header.Get("Location"), "#"+anchor) {
			t.Fatalf("the form got %d to %q", shown.Status, shown.Header.Get("Location"))
		}
		hit = handlerstest.Call(t, server, http.MethodGet, path, "")
		for _, want := range []string{`id="` + anchor + `"`, "Later messages", ">cafe sneez"} {
			if want == ">cafe sneez" {
				want = `value="cafe sneez"`
			}
			if !strings.Contains(hit.Body, want) {
				t.Errorf("the page of the hit is without %q", want)
			}
		}
		for _, at := range []string{"x", "-1"} {
			if got := handlerstest.Call(t, server, http.MethodGet, "/c/"+chat+"?at="+at, ""); got.Status != http.StatusBadRequest {
				t.Errorf("at=%s got %d", at, got.Status)
			}
		}
	})
}

func TestTheListOfChatsIsOneTabStop(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	for _, title := range []string{"One", "Two", "Three"} {
		importNumbered(t, chats, title, 2)
	}
	b := openBrowser(t, server)
	b.open("/")
	b.until("document.querySelectorAll('.conv-row').length === 3")
	if got := b.value("[...document.querySelectorAll('.rail-list :is(a, button)')].filter(e => e.tabIndex === 0).length"); got != "1" {
		t.Errorf("the list has %s Tab stops", got)
	}
	at := "(e => e.innerText.split('\\n')[0].trim() || e.ariaLabel)(document.activeElement)"
	b.script("document.querySelector('.rail-list [tabindex=\"0\"]').focus()")
	for _, step := range []struct {
		key  string
		code int64
		want string
	}{
		{"ArrowDown", 40, "Two"}, {"ArrowRight", 39, "More about “Two”"}, {"ArrowLeft", 37, "Two"}, {"End", 35, "One"}, {"ArrowDown", 40, "One"},
		{"ArrowUp", 38, "Two"}, {"Home", 36, "Three"},
	} {
		b.press(step.key, step.code)
		if got := b.value(at); got != step.want {
			t.Errorf("after %s the focus is on %q, want %q", step.key, got, step.want)
		}
	}
	if got := b.value("[...document.querySelectorAll('.rail-list :is(a, button)')].filter(e => e.tabIndex === 0).map(e => e.innerText.split('\\n')[0]).join()"); got != "Three" {
		t.Errorf("the Tab stop is %q", got)
	}
	for target, want := range map[string]string{"Skip to the messages": "scroll", "Skip to the parameters": "inspector"} {
		b.script(fmt.Sprintf("[...document.querySelectorAll('.skip')].find(e => e.innerText === %q).click()", target))
		b.until(fmt.Sprintf("document.activeElement.id === %q", want))
	}

	b.click(".conv-row:first-child .conv")
	b.until("location.pathname.startsWith('/c/') && document.querySelector('.turn[tabindex]')")
	b.click(".chat-head h1")
	b.until("document.activeElement === document.querySelector('.chat-head.renaming .field')")
	b.fill(".chat-head .field", "A new name")
	b.press("Enter", 13)
	b.until("document.querySelector('.chat-head h1').innerText === 'A new name' && document.querySelector('.conv[aria-current]').title === 'A new name'")
	b.clean()
}

func TestTheSystemPromptStandsAtTheTopWithItsSize(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	if got := b.value("document.querySelector('[data-system]').ariaPressed + document.querySelector('#sysline').checkVisibility()"); got != "falsefalse" {
		t.Errorf("without a system prompt the page says %s", got)
	}
	accent := func(selector string) string {
		return "(e => getComputedStyle(e).color === getComputedStyle(e.parentElement.appendChild(Object.assign(document.createElement('i'), {style: 'color: var(--accent)', hidden: true}))).color)(document.querySelector('" + selector + "'))"
	}
	if got := b.value(accent("[data-system]")); got != "false" {
		t.Error("the button of the system prompt has an accent without one")
	}
	b.click("[data-system]")
	b.fill("#system", "Be brief. <b>")
	b.until(accent("[data-system]"))
	b.until("document.querySelector('[data-system]').ariaPressed === 'true' && document.querySelector('[data-system-count]').innerText === '3'")
	b.ask(engine, "hello", "Hey!")
	b.until("document.querySelector('#sysline summary').checkVisibility() && document.querySelector('[data-system-tokens]').innerText === '3 tokens'")
	for _, part := range []string{"b", "svg"} {
		if got := b.value(accent("#sysline summary " + part)); got != "true" {
			t.Errorf("%s of the line above the first message has no accent", part)
		}
	}
	b.shot("system-line")
	b.click("#sysline summary")
	b.until("document.querySelector('[data-system-text]').checkVisibility() && document.querySelector('[data-system-text]').innerText === 'Be brief. <b>'")
	b.reload()
	b.until("document.querySelector('[data-system-tokens]').innerText === '3 tokens'")
	b.size(390, 844, true)
	b.scheme("dark")
	b.shot("system-line-phone-dark")
	b.clean()
}

func TestAnAnswerWithNothingToAddSaysSo(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	b.ask(engine, "hello", "Hey!")
	b.click(".answer:last-child .foot [data-edit]")
	b.fill(".editor textarea", "Hey you!")
	b.click(".editor [type=submit]")
	engine.Next(t).Finish()
	b.until(idle)
	b.until("document.querySelector('.answer:last-child .why').innerText.startsWith('nothing to add: the model ended the answer at once')")
	b.until("document.querySelector('#spoken').innerText.includes('The model has nothing to add.')")
	b.clean()
}

func TestListsOfTextFromTheRightHaveTheirMarkersThere(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	b := openBrowser(t, handlerstest.Serve(t, engine))
	b.open("/")
	b.say("ما هي؟")
	answer := engine.Next(t)
	answer.Write("أنواع:\n\n- خفيف\n- غزير\n\n> اقتباس\n")
	answer.Finish()
	b.until(idle)
	const sides = "['ul', 'blockquote'].map(q => (s => s.paddingLeft === '0px' && parseFloat(s.paddingRight) > 9)(getComputedStyle(document.querySelector('.answer ' + q)))).join()"
	if got := b.value("getComputedStyle(document.querySelector('.answer .prose')).direction + ' ' + " + sides); got != "rtl true,true" {
		t.Errorf("the direction, and whether the room for the marker is on the right: %s", got)
	}
	b.clean()
}

func TestAnEditAndAForkAreNamed(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.ask(engine, "hello", "Hey!")
	first := b.value("location.pathname")

	run("an answer whose beginning was edited says so after it was continued, and when it comes back", func(t *testing.T) {
		b.click(".answer:last-child .foot [data-edit]")
		b.fill(".editor textarea", "Hey you")
		b.click(".editor [type=submit]")
		answer := engine.Next(t)
		answer.Write(" there.")
		answer.Finish()
		b.until(lastAnswerIs("Hey you there."))
		b.until(idle)
		b.until("document.querySelector('.answer:last-child .why').innerText.startsWith('edited by you')")
		b.reload()
		b.until("document.querySelector('.answer:last-child .why')?.innerText.startsWith('edited by you')")
		page := handlerstest.Call(t, server, http.MethodGet, first, "")
		if !strings.Contains(page.Body, "finished · edited by you") {
			t.Error("without scripts the page does not say it")
		}
	})

	run("a fork names the chat that it is from, and leads there", func(t *testing.T) {
		b.script("document.querySelector('.answer').focus()")
		b.do(chromedp.KeyEvent("f"))
		b.until(fmt.Sprintf("location.pathname.startsWith('/c/') && location.pathname !== %q", first))
		b.until(fmt.Sprintf("document.querySelector('#origin').innerText.replace(/\\s+/g, ' ').trim() === 'Forked from hello' && document.querySelector('#origin a').pathname === %q", first))
		b.until("document.querySelector('.answer:last-child .why')?.innerText.startsWith('edited by you')")
		b.shot("forked")
		b.click("#origin a")
		b.until(fmt.Sprintf("location.pathname === %q && document.querySelector('.turn[tabindex]')", first))
		if got := b.value("document.querySelector('#origin').checkVisibility()"); got != "false" {
			t.Error("the first chat names an origin")
		}
	})
	b.clean()
}
