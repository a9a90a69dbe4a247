package browser

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
)

// pairEnded holds when both answers have ended and can be voted on.
const pairEnded = "document.querySelector('[data-stop-all]').hidden && !document.querySelector('[data-vote=a]').disabled"

// TestABlindComparison compares two presets, and then two models, in the browser.
func TestABlindComparison(t *testing.T) {
	t.Parallel()
	source := axe(t)
	engine := handlerstest.NewScript()
	engine.List(infer.ModelInfo{Name: "guide"}, infer.ModelInfo{Name: "other"})
	server, _, comparing := handlerstest.ServeComparing(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.do(chromedp.Navigate(server.URL + "/presets?id=precise"))
	b.click("a[href^='/blind']")
	b.until("document.querySelector('[name=first]')?.value === 'precise' && document.querySelector('.board').innerText.includes('None yet')")

	// write answers both requests, the one of each temperature or model with its text.
	write := func(t *testing.T, text func(infer.Request) string) (seeds []int64) {
		t.Helper()
		b.click("#blind [type=submit]")
		for range 2 {
			a := engine.Next(t)
			seeds = append(seeds, a.Request.Params.Seed)
			if a.Request.MaxTokens != 256 || a.Request.Messages[0].Content != "Why?" {
				t.Errorf("the engine was asked for %+v", a.Request)
			}
			a.Write(text(a.Request))
			a.Finish()
		}
		b.until(pairEnded)
		return seeds
	}

	run("two presets answer with one seed, without their names", func(t *testing.T) {
		b.fill("#blind-text", "Why?")
		seeds := write(t, func(r infer.Request) string { return fmt.Sprintf("at %v", r.Params.Temperature) })
		if seeds[0] != seeds[1] {
			t.Errorf("the seeds are %v", seeds)
		}
		if got := b.text(".pair"); strings.Contains(got, "Precise") || strings.Contains(got, "Balanced") {
			t.Errorf("before the vote the page says %q", got)
		}
		events := handlerstest.Call(t, server, http.MethodGet, "/blind/events", "").Body
		for _, word := range []string{"Precise", "Balanced", "temperature", "tokens", "mean", "model", "guide"} {
			if strings.Contains(events, word) {
				t.Errorf("before the vote the stream has %q: %s", word, events)
			}
		}
		b.look(source, "two answers without names", "heading-order", "region")
		b.size(390, 844, true)
		b.look(source, "two answers without names on a phone", "heading-order", "region")
		if got := b.value("document.documentElement.scrollWidth"); got != "390" {
			t.Errorf("the page is %s px wide", got)
		}
		b.size(1440, 900, false)
	})

	run("a key votes for one, and the names appear", func(t *testing.T) {
		b.script("document.activeElement.blur()")
		b.press("2", 50)
		b.until("document.querySelector('[data-voted]').innerText.includes('B is ')")
		better := map[string]string{"at 0.3": "Precise", "at 0.7": "Balanced"}[b.text(".pair .cell:nth-child(2) .txt")]
		if got := b.text(".pair .cell:nth-child(2) [data-name]"); got != better || got == "" {
			t.Errorf("answer B is of %q, want %q", got, better)
		}
		b.until("document.querySelector('.standings tbody tr')")
		if got := strings.Join(strings.Fields(b.text(".standings tbody tr")), " "); got != better+" 1 0 0 0 100 % 21 to 100 %" {
			t.Errorf("the first row is %q", got)
		}
		b.look(source, "two answers with their names", "heading-order", "region")
	})

	run("two models answer with one preset", func(t *testing.T) {
		b.script("document.querySelector('[name=second]').value = 'precise'; document.querySelector('[name=second-model]').value = 'other'")
		b.click("#blind [type=submit]")
		var models []string
		for _, note := range []string{"Both are shown when both are written.", "They are written one after the other, because both models do not fit into memory at once. Both are shown when both are written."} {
			a := engine.Next(t)
			models = append(models, a.Request.Model)
			if len(models) == 2 {
				a.Send(infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 1, ForMemory: true}})
			}
			b.until("[...document.querySelectorAll('.pair .cell [data-note]')].every(n => n.innerText === '" + note + "')")
			a.Write("by " + a.Request.Model)
			if got := b.text(".pair"); strings.Contains(got, "by ") {
				t.Errorf("while they are written the page shows %q", got)
			}
			a.Finish()
		}
		b.until(pairEnded)
		if slices.Sort(models); !slices.Equal(models, []string{"guide", "other"}) {
			t.Errorf("%v were asked", models)
		}
		if got := b.text(".pair"); !strings.Contains(got, "by guide") || !strings.Contains(got, "by other") {
			t.Errorf("the page shows %q", got)
		}
		b.click("[data-vote=tie]")
		b.until("document.querySelector('[data-voted]').innerText.includes('Precise · other') && document.querySelector('[data-voted]').innerText.includes('Precise · guide')")
		b.until("document.querySelectorAll('.standings tbody tr').length === 4")
	})

	run("the next question is for the same two, and both answers may be bad", func(t *testing.T) {
		b.until("document.activeElement.matches('[data-next]')")
		b.click("[data-next]")
		b.until("document.activeElement.id === 'blind-text' && document.activeElement.value === '' && !document.querySelector('#pair').checkVisibility() && !document.querySelector('.vote').checkVisibility()")
		b.fill("#blind-text", "Why?")
		write(t, func(r infer.Request) string { return "by " + r.Model })
		b.script("document.activeElement.blur()")
		b.press("4", 52)
		b.until("document.querySelector('[data-voted]').innerText.includes('Precise · other') && [...document.querySelectorAll('.standings td:nth-child(5)')].filter(cell => cell.innerText === '1').length === 2")
	})
	b.clean()

	run("votes are exported and deleted", func(t *testing.T) {
		file := handlerstest.Call(t, server, http.MethodGet, "/blind/export.json", "").Body
		if !strings.Contains(file, `"format": "m40-llm-votes-1"`) || strings.Count(file, `"result"`) != 3 || !strings.Contains(file, `"result": "bad"`) {
			t.Errorf("the file is %s", file)
		}
		b.click(".clear-votes summary")
		b.click(".clear-votes .danger")
		b.until("document.querySelector('.board').innerText.includes('None yet')")
		if board, votes, err := comparing.Leaderboard(t.Context(), access.Local); len(board)+len(votes) != 0 || err != nil {
			t.Errorf("after the reset there are %v and %v, %v", board, votes, err)
		}
	})

	run("what is wrong is refused", func(t *testing.T) {
		for name, test := range map[string]struct{ path, body, says string }{
			"the same twice":      {"", `{"text":"x","max_tokens":8,"first":{"preset":"precise"},"second":{"preset":"precise"}}`, "both answers would be of Precise"},
			"no text":             {"", `{"text":" ","max_tokens":8,"first":{"preset":"precise"},"second":{"preset":"balanced"}}`, "the message is empty"},
			"too many tokens":     {"", `{"text":"x","max_tokens":2049,"first":{"preset":"precise"},"second":{"preset":"balanced"}}`, "from 1 to 2048"},
			"an unknown field":    {"", `{"text":"x","seed":1}`, "unknown field"},
			"a model's long name": {"", `{"text":"x","max_tokens":8,"first":{"preset":"precise","model":"` + strings.Repeat("m", 501) + `"},"second":{"preset":"balanced"}}`, "at most 500"},
			"a second vote":       {"/vote", `{"vote":"a"}`, "you have voted on these answers"},
			"another vote":        {"/vote", `{"vote":"both"}`, "it must be a, b, tie or bad"},
		} {
			if got := handlerstest.Post(t, server, "/blind"+test.path, test.body, "Origin", server.URL); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, test.says) {
				t.Errorf("%s: got %d %s, want %q", name, got.Status, got.Body, test.says)
			}
		}
		if got := handlerstest.Post(t, server, "/blind", `{"text":"x","max_tokens":8,"first":{"preset":"77"},"second":{"preset":"balanced"}}`, "Origin", server.URL); got.Status != http.StatusNotFound {
			t.Errorf("a preset that does not exist: %d %s", got.Status, got.Body)
		}
	})
}

// From a question, or from an answer to the chat with the better one: the "…" menu, Compare blind, Write both answers, a vote, Keep this one.
func TestAMessageIsComparedBlind(t *testing.T) {
	t.Parallel()
	source := axe(t)
	engine := handlerstest.NewScript()
	server, _, _ := handlerstest.ServeComparing(t, engine)
	b := openBrowser(t, server)
	b.size(1440, 900, false)
	b.open("/")
	b.ask(engine, "Why is bread brown?", "The first answer.")
	const opened = "document.querySelector('#blind-text')?.value === 'Why is bread brown?' && document.querySelector('#blind-text').readOnly"
	chat := b.value("location.pathname")
	b.click(".you [data-receipt]")
	b.until("document.querySelector('#answer-menu').matches(':popover-open')")
	if got := b.value("[...document.querySelectorAll('#answer-menu .item')].filter(e => e.checkVisibility()).map(e => e.innerText).join()"); got != "Contact sheet,Compare blind,Delete this message…" {
		t.Errorf("the menu of a question has %q", got)
	}
	b.click("#answer-menu [data-blind]")
	b.until(opened)
	b.open(chat)
	b.click(".answer [data-receipt]")
	b.until("document.querySelector('#answer-menu').matches(':popover-open')")
	b.click("#answer-menu [data-blind]")
	b.until(opened)
	b.until("[...document.querySelector('[name=second]').options].filter(o => o.disabled).map(o => o.value === document.querySelector('[name=first]').value).join() === 'true'")
	b.script("const first = document.querySelector('[name=first]'); first.value = document.querySelector('[name=second]').value; first.dispatchEvent(new Event('change', { bubbles: true }))")
	b.until("document.querySelector('[name=first]').value !== document.querySelector('[name=second]').value")
	b.click("#blind [type=submit]")
	for range 2 {
		a := engine.Next(t)
		a.Write(fmt.Sprintf("at %v", a.Request.Params.Temperature))
		a.Finish()
	}
	b.until(pairEnded)
	if got := b.value("document.querySelectorAll('[data-keep]:not([hidden])').length"); got != "0" {
		t.Errorf("before the vote %s answers can be kept", got)
	}
	b.click("[data-vote=b]")
	b.until("document.querySelectorAll('[data-keep]:not([hidden])').length === 2 && document.activeElement.matches('.cell:nth-child(2) [data-keep].primary')")
	better := b.text(".pair .cell:nth-child(2) .txt")
	for _, width := range []int64{1440, 820, 390} {
		b.size(width, 844, width < 800)
		b.look(source, fmt.Sprintf("a message compared blind, %d px", width), "heading-order", "region")
		b.shot(fmt.Sprintf("blind-message-%d", width))
		if wide := b.value("document.documentElement.scrollWidth > innerWidth"); wide != "false" {
			t.Errorf("%d px: the page is wider than the window", width)
		}
	}
	b.size(1440, 900, false)
	b.click(".cell:nth-child(2) [data-keep]")
	b.until("location.pathname.startsWith('/c/') && [...document.querySelectorAll('.turn.answer')].at(-1)?.innerText.includes(" + strconv.Quote(better) + ")")
	b.until("document.querySelector('.answer .vers').innerText.trim() === '2/2'")
}

// TestAFormThatIsSentBeforeThePagesScriptsIsSentByThem holds the script of a page back until its form has been sent.
func TestAFormThatIsSentBeforeThePagesScriptsIsSentByThem(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	sent := make(chan struct{})
	inner := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/blind.js") {
			<-sent
		}
		inner.ServeHTTP(w, r)
	})
	b := openBrowser(t, server)
	b.script("location = " + strconv.Quote(server.URL+"/blind"))
	b.fill("#blind-text", "Why?")
	b.script("for (let i = 0; i < 2; i++) document.querySelector('#blind [type=submit]').click()")
	close(sent)
	for range 2 {
		a := engine.Next(t)
		if got := a.Request.Messages[0].Content; got != "Why?" {
			t.Errorf("the engine was asked %q", got)
		}
		a.Finish()
	}
	b.until(pairEnded)
	b.clean()
}
