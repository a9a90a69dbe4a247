package browser

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/markdown"
	"m40-llm/handlers/markdown/markdowntest"
)

// answersOf packs payloads into answers. One that leaves a block open ends its
// answer, so that it hides no other.
func answersOf(payloads []string) (answers []string) {
	const most = 3 << 10 // a reader that gets more blocks at once than its queue holds is cut off
	var answer strings.Builder
	for _, payload := range payloads {
		answer.WriteString(strings.ToValidUTF8(payload, "\ufffd") + "\n\n")
		if answer.Len() > most || !strings.HasSuffix(markdown.Text(context.Background(), payload+"\n\nx"), "<p>x</p>\n") {
			answers = append(answers, answer.String())
			answer.Reset()
		}
	}
	return append(answers, answer.String())
}

// forbiddenInThePage finds what the page may not have of an answer. The buttons and
// frames of code blocks are the page's own.
var forbiddenInThePage = func() string {
	var rules strings.Builder
	for element, attributes := range markdowntest.Harmless {
		fmt.Fprintf(&rules, "%s: %s.split(' '),", strconv.Quote(element), strconv.Quote(attributes))
	}
	return `(() => {
		const allowed = {` + rules.String() + `}
		const found = []
		for (const el of document.querySelectorAll('.answer .prose *')) {
			if (el.closest('.code > header') || el.matches('.code, .code > pre, .tail')) continue
			const attributes = allowed[el.localName]
			if (!attributes || el.namespaceURI !== (el.localName.startsWith('m') ? 'http://www.w3.org/1998/Math/MathML' : 'http://www.w3.org/1999/xhtml')) found.push(el.localName)
			else for (const a of el.attributes) if (!attributes.includes(a.name)) found.push(el.localName + ' ' + a.name)
			if (el.localName === 'a' && !['http:', 'https:', 'mailto:'].includes(el.protocol)) found.push(el.href)
		}
		return found
	})().join(', ')`
}()

// asked returns the addresses that the page asked for.
func (b *browser) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

func TestNothingHostileRunsInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	for batch := range slices.Chunk(markdowntest.Payloads(), 250) { // a page of a chat shows 100 messages
		b.open("/")
		b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
		texts := answersOf(batch)
		for i, text := range texts {
			b.say("go")
			answer := engine.Next(t)
			answer.Write(strings.SplitAfterN(text, "\n\n", 4)...)
			answer.Finish()
			b.until(fmt.Sprintf("document.querySelectorAll('.answer').length === %d && document.querySelector('.answer:last-child .why .chip').innerText !== ''", i+1))
		}
		hurt := func(when string) {
			t.Helper()
			b.settled()
			if got := b.value(forbiddenInThePage); got != "" {
				t.Errorf("%s the page has %.500s", when, got)
			}
			if got := b.value("typeof globalThis.pwned"); got != "undefined" {
				t.Errorf("%s a script of the model ran", when)
			}
			if got := b.value("location.pathname.startsWith('/s/') || document.getElementById('message').localName"); got != "textarea" && got != "true" {
				t.Errorf("%s the page is another one: %s", when, got)
			}
			b.clean()
		}
		hurt("while it is written")
		chat := b.value("location.pathname")
		shared, err := chats.Links.Add(t.Context(), access.Local, strings.TrimPrefix(chat, "/c/"), links.Wanted{Live: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, bypass := range []bool{false, true} {
			command(b, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: bypass})
			b.open(chat)
			b.until(fmt.Sprintf("document.querySelectorAll('.answer').length === %d", len(texts)))
			hurt(fmt.Sprintf("loaded, with its policy off: %t,", bypass))
			b.do(chromedp.Navigate(server.URL+"/s/"+shared.Token), chromedp.WaitReady("#thread"))
			b.until(fmt.Sprintf("document.querySelectorAll('.answer').length === %d && document.querySelector('[data-dot].live')", len(texts)))
			hurt(fmt.Sprintf("shared, with its policy off: %t,", bypass))
		}
		if t.Failed() {
			return
		}
	}

	// The policy is off now: what would have run does run, and is seen.
	b.script(`document.getElementById('thread').innerHTML = '<img src=x onerror="pwned=1"><img src="//evil.example/x.png">'`)
	b.until("globalThis.pwned === 1")
	for deadline := time.Now().Add(handlerstest.Hang); ; time.Sleep(20 * time.Millisecond) {
		if slices.ContainsFunc(b.asked(), func(u string) bool { return strings.Contains(u, "evil.example") }) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a request to another server was not seen among %q", b.asked())
		}
	}
}
