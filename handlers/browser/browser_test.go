package browser

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/markdown/markdowntest"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/record"
	"m40-llm/store"
)

var shots = flag.String("shots", "", "folder for screenshots of the page; empty: none are taken")

// browser is a page in headless Chromium that keeps what must never happen:
// errors on the console, violations of the content policy, requests to anybody
// else.
type browser struct {
	t      testing.TB
	ctx    context.Context
	origin string

	clicks int // that click and hold have made

	mu       sync.Mutex
	troubles []string
	requests []string
}

var chromium = sync.OnceValue(func() string {
	for _, path := range []string{"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
})

// A chromiumProcess is a process of Chromium that sees some fonts alone.
type chromiumProcess struct {
	ctx   context.Context
	close func()
}

// shared is the process that the tests share: the first test that needs a browser starts it, closeShared ends it.
var shared = sync.OnceValues(func() (*chromiumProcess, error) { return startChromium(pinnedFonts) })

// sharedStarted is set when shared was called.
var sharedStarted atomic.Bool

func closeShared() {
	if !sharedStarted.Load() {
		return
	}
	if p, err := shared(); err == nil {
		p.close()
	}
}

// newChromium starts a process of the test's own with other fonts.
func newChromium(t testing.TB, fonts fontSet) *chromiumProcess {
	t.Helper()
	needChromium(t)
	p, err := startChromium(fonts)
	if err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	t.Cleanup(p.close)
	return p
}

func needChromium(t testing.TB) {
	t.Helper()
	if chromium() == "" {
		fixtures.Skip(t, "there is no Chromium")
	}
}

func startChromium(fonts fontSet) (*chromiumProcess, error) {
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return nil, err
	}
	config, err := fonts.configure(filepath.Join(dir, "fonts"))
	if err != nil {
		return nil, err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(chromium()),
		// The machine's fonts, language and time zone decide nothing.
		chromedp.Env("FONTCONFIG_FILE="+config, "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC"),
		chromedp.Flag("lang", "en-US"),
		chromedp.WSURLReadTimeout(handlerstest.Hang),
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.UserDataDir(dir),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("hide-scrollbars", false),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	p := &chromiumProcess{ctx, func() {
		cancel()
		stop()
		os.RemoveAll(dir)
	}}
	if err := chromedp.Do(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// openBrowser opens a page that belongs to server in the browser that tests share.
func openBrowser(t testing.TB, server *httptest.Server) *browser {
	t.Helper()
	needChromium(t)
	sharedStarted.Store(true)
	p, err := shared()
	if err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	return p.open(t, server)
}

// open opens a page that belongs to server, with cookies, storage and a cache of its
// own, as if its browser had just been installed.
func (p *chromiumProcess) open(t testing.TB, server *httptest.Server) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(p.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx, origin: server.URL}
	if err := chromedp.Do(ctx); err != nil { // opens it
		t.Fatalf("the page does not open: %v", err)
	}
	if err := chromedp.Listen(ctx, b.watch); err != nil {
		t.Fatal(err)
	}
	command(b, network.Enable, network.EnableParams{})
	command(b, cdplog.Enable, cdp.Empty{})
	command(b, runtime.Enable, cdp.Empty{})
	command(b, page.Enable, page.EnableParams{})
	b.countUnderWay()
	b.keepTimers(noticeTime)
	command(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.size(1440, 900, false)
	return b
}

// command sends a command of the browser's protocol.
func command[P, R any](b *browser, c cdp.Command[P, R], params P) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	}))
}

// watch listens to what the page does.
func (b *browser) watch(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *network.EventWebSocketCreated:
		b.requests = append(b.requests, e.URL)
	case *cdplog.EventEntryAdded:
		if strings.HasSuffix(e.Entry.Text, "Close received after close") {
			return // the websocket package answers the answer to its own farewell
		}
		b.troubles = append(b.troubles, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, "exception: "+e.ExceptionDetails.Exception.Description)
	case *runtime.EventConsoleAPICalled:
		b.troubles = append(b.troubles, fmt.Sprintf("console: %s", e.Args[0].Value))
	case *page.EventJavascriptDialogOpening:
		b.troubles = append(b.troubles, "dialog: "+e.Message)
	}
}

// do takes steps in order. One whose element went away before it could act, because it was drawn anew or the step before
// went to another page, is taken again.
func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, handlerstest.Hang)
	defer cancel()
	for _, step := range steps {
		err := chromedp.Do(ctx, step)
		for elementIsGone(err) {
			err = chromedp.Do(ctx, step)
		}
		if err != nil {
			b.t.Fatalf("the browser failed: %v\ntroubles: %q", err, b.seen())
		}
	}
}

func elementIsGone(err error) bool {
	said, ok := errors.AsType[*cdproto.Error](err)
	return ok && said.Message == "Could not find node with given id"
}

func (b *browser) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.troubles)
}

// clean fails the test if anything happened that must not.
func (b *browser) clean() {
	b.t.Helper()
	for _, trouble := range b.seen() {
		b.t.Errorf("the page had trouble: %s", trouble)
	}
	own, _ := url.Parse(b.origin)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, request := range b.requests {
		u, err := url.Parse(request)
		if err != nil || (u.Host != own.Host && u.Scheme != "data" && u.Scheme != "about") {
			b.t.Errorf("the page asked %s", request)
		}
	}
}

func (b *browser) size(width, height int64, phone bool) {
	b.t.Helper()
	metrics := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: phone}
	command(b, emulation.SetDeviceMetricsOverride, metrics)
	command(b, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: phone})
}

func (b *browser) scheme(value string) {
	b.t.Helper()
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: value},
			{Name: "prefers-reduced-motion", Value: "reduce"}, // no colour is caught on its way to another
		},
	})
}

// wired holds when the scripts of the playground have run: they say what the server
// leaves to them.
const wired = "document.querySelector('[data-context-bar]').getAttribute('aria-label') !== 'Context: nothing used'"

// connected holds when the turns of a chat are those that came over its connection, and not those that the server drew, which lack
// what scripts do.
const connected = "!document.querySelector('.turn') || document.querySelector('.turn .acts')"

// open shows an address of the server and waits until the page listens and its chat is there.
func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.origin+path), chromedp.WaitReady("#message"))
	b.until(wired)
	b.until(connected)
}

// reload loads the page anew and waits as open does.
func (b *browser) reload() {
	b.t.Helper()
	b.do(chromedp.Reload(), chromedp.WaitReady("#message"))
	b.until(wired)
	b.until(connected)
}

// chooseModel chooses the model called name in the menu of the top bar.
func (b *browser) chooseModel(name string) {
	b.t.Helper()
	b.click(".top .engine-chip")
	b.until("document.querySelector('#model-menu').matches(':popover-open')")
	b.click(fmt.Sprintf("#model-menu button[value=%q]", name))
	b.until(fmt.Sprintf("document.querySelector('.top .engine-chip').innerText.includes(%q)", name))
}

// frames waits until the page has taken notice of a new size or place of its parts.
func (b *browser) frames() {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void]("new Promise(painted => requestAnimationFrame(() => requestAnimationFrame(painted)))", chromedp.EvalAwaitPromise))
}

// keepTimers has timers of so many milliseconds never end, in documents that are opened from now on: on a slow machine they would
// end before a test has done what a person does meanwhile.
func (b *browser) keepTimers(ms int) {
	b.t.Helper()
	command(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: fmt.Sprintf("{ const set = setTimeout; window.setTimeout = (f, ms, ...rest) => set(f, ms === %d ? 1e9 : ms, ...rest) }", ms),
	})
}

const noticeTime = 10_000 // milliseconds, of notice.js

// until waits for a condition in the page, which looks again after each frame and when nothing is drawn. A condition that
// throws is not true yet: what it looks at may not be there.
func (b *browser) until(condition string) {
	b.t.Helper()
	holds := "(() => { try { return Boolean(" + condition + ") } catch { return false } })()"
	wait := `new Promise(done => {
		const look = () => {
			if (` + holds + `) return done('true')
			let waiting = true
			const next = () => { if (waiting) { waiting = false; look() } }
			requestAnimationFrame(next)
			;(window.underWay?.uncounted ?? setTimeout)(next, 20)
		}
		look()
	})`
	for deadline := time.Now().Add(handlerstest.Hang); time.Now().Before(deadline); {
		// A page that goes to another address ends what is evaluated in it, and one without scripts has neither frames nor
		// timers, so it is asked anew.
		if b.evaluates("String("+holds+")", time.Second) || b.evaluates(wait, 250*time.Millisecond, chromedp.EvalAwaitPromise) {
			return
		}
	}
	b.t.Fatalf("waited in vain for %s\npage: %s\ntroubles: %q", condition, b.text("main"), b.seen())
}

// evaluates reports whether an expression becomes the text true within a time.
func (b *browser) evaluates(expression string, within time.Duration, options ...chromedp.EvaluateOption) bool {
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression, options...))
	return err == nil && v == "true"
}

// value evaluates an expression in the page and returns it as text.
func (b *browser) value(expression string) string {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatalf("cannot evaluate %s: %v", expression, err)
	}
	return v
}

// script runs statements in the page.
func (b *browser) script(statements string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void]("{" + statements + "}"))
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return b.value(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// say writes a message and sends it: by Enter, or by the button on a touch screen, where Enter makes a new line. It waits for the
// end of the answer before, during which the page sends nothing.
func (b *browser) say(text string) {
	b.t.Helper()
	b.until("!document.querySelector('[data-send]').hidden")
	b.do(chromedp.Focus("#message"))
	b.script("for (const answer of document.querySelectorAll('.answer')) answer.beforeSaid = true")
	command(b, input.InsertText, input.InsertTextParams{Text: text})
	if b.value("matchMedia('(pointer: coarse)').matches") == "true" {
		b.click("[data-send]")
		return
	}
	b.press("Enter", 13)
}

// press sends a key as the keyboard does: what the page does not prevent, the
// browser does.
func (b *browser) press(key string, code int64) {
	b.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
		command(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Code: key, WindowsVirtualKeyCode: code})
	}
}

// hold presses the mouse in the middle of an element until release is called: for the nth time in a row there.
func (b *browser) hold(selector string, nth int64) (release func()) {
	b.t.Helper()
	b.stands(selector)
	var at struct{ X, Y float64 }
	middle := fmt.Sprintf("(r => JSON.stringify({ x: r.x + r.width / 2, y: r.y + r.height / 2 }))(document.querySelector(%q).getBoundingClientRect())", selector)
	if err := json.Unmarshal([]byte(b.value(middle)), &at); err != nil {
		b.t.Fatal(err)
	}
	mouse := func(kind input.DispatchMouseEventType) {
		b.t.Helper()
		command(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: at.X, Y: at.Y, Button: "left", ClickCount: nth})
	}
	mouse("mousePressed")
	return func() { mouse("mouseReleased") }
}

func (b *browser) shot(name string) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	b.settled()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

const lastAnswer = "[...document.querySelectorAll('.answer .prose')].at(-1)?.innerText"

func lastAnswerIs(text string) string { return fmt.Sprintf("%s === %q", lastAnswer, text) }

func TestThePageInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server := handlerstest.Serve(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)

	run("the first screen names the model and says that it is a demo", func(t *testing.T) {
		b.open("/")
		b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
		for _, want := range []string{"guide\n", "A tiny model with 14 million parameters", "Chats are kept on this server"} {
			if got := b.text("#empty"); !strings.Contains(got, want) {
				t.Errorf("the empty page says %q, without %q", got, want)
			}
		}
		if got := b.text(".engine-chip"); !strings.Contains(got, "demo") {
			t.Errorf("the top bar says %q, without \"demo\"", got)
		}
		b.shot("first-light")
	})

	run("an answer streams, and a reload in the middle shows the same text and goes on", func(t *testing.T) {
		b.say("Tell me about rain.")
		answer := engine.Next(t)
		answer.Write("Rain ", "is **water**.\n\n", "It fa")
		b.until(lastAnswerIs("Rain is water.\n\nIt fa"))
		b.reload()
		b.until(lastAnswerIs("Rain is water.\n\nIt fa"))
		answer.Write("lls.")
		b.until(lastAnswerIs("Rain is water.\n\nIt falls."))
		answer.Finish()
		b.until("document.querySelector('.why .chip')?.innerText.startsWith('finished')")
		if got := b.text("title"); got != "" && !strings.HasPrefix(got, "Tell me about rain.") {
			t.Errorf("the title is %q", got)
		}
		if got := b.value("location.pathname"); !strings.HasPrefix(got, "/c/") {
			t.Errorf("the address is %q, not that of the chat", got)
		}
	})

	run("stop keeps the text", func(t *testing.T) {
		b.say("And snow?")
		answer := engine.Next(t)
		answer.Write("Snow is ", "slow")
		b.until(lastAnswerIs("Snow is slow"))
		b.press("Escape", 27)
		b.until("[...document.querySelectorAll('.why [data-end]')].at(-1)?.innerText === 'stopped by you at token 2'")
		if got := b.value(lastAnswer); got != "Snow is slow" {
			t.Errorf("after the stop the answer is %q", got)
		}
	})

	run("a slider that was moved reaches the request, with the whole conversation", func(t *testing.T) {
		b.script(`
			const slider = document.querySelector('[data-param=temperature] input[type=range]')
			slider.value = 1.25
			slider.dispatchEvent(new Event('input'))
			const field = document.querySelector('#n-top_k')
			field.value = '7'
			field.dispatchEvent(new Event('input'))
			const seed = document.querySelector('#n-seed')
			seed.value = '8842'
			seed.dispatchEvent(new Event('input'))
		`)
		b.say("Again, please.")
		answer := engine.Next(t)
		r := answer.Request
		if r.Params.Temperature != 1.25 || r.Params.TopK != 7 || r.Params.Seed != 8842 {
			t.Errorf("the engine was asked with %+v", r.Params)
		}
		if len(r.Messages) != 5 || r.Messages[3].Content != "Snow is slow" || r.Messages[4].Content != "Again, please." {
			t.Errorf("the engine was given %+v", r.Messages)
		}
		answer.Write("Yes.")
		answer.Finish()
		b.until(lastAnswerIs("Yes."))
		if got := b.text("[data-modified]"); got != "modified · 2" {
			t.Errorf("the chip says %q", got)
		}
	})

	run("a value out of range is refused beside its field and nothing is sent", func(t *testing.T) {
		b.script(`
			const field = document.querySelector('#n-temperature')
			field.value = '900'
			field.dispatchEvent(new Event('input'))
		`)
		b.say("Too hot?")
		b.until("document.activeElement.id === 'n-temperature'")
		if got := b.text("#e-temperature"); got != "0 to 20" {
			t.Errorf("the field says %q", got)
		}
		if len(engine.Answers) > 0 {
			t.Error("the message was sent all the same")
		}
		b.click("[data-reset-all]")
		b.script(`document.getElementById('message').value = ''`)
	})

	run("answering again replaces the answer", func(t *testing.T) {
		b.click(".answer:last-child .foot [data-again]")
		answer := engine.Next(t)
		answer.Write("No.")
		answer.Finish()
		b.until(lastAnswerIs("No."))
		if got := b.value("document.querySelectorAll('.answer').length"); got != "3" {
			t.Errorf("there are %s answers, want 3", got)
		}
	})

	run("a failure says what happened and what to do", func(t *testing.T) {
		b.say("Too long")
		engine.Next(t).Fail(&fault.Error{Code: fault.CodeContext, Message: "too long", PromptTokens: 8822, ContextLength: 8192})
		b.until("!document.querySelector('.answer:last-child .errbox').hidden")
		for _, want := range []string{"This does not fit into the context", "8,822", "8,192", "630"} {
			if got := b.text(".answer:last-child .errbox"); !strings.Contains(got, want) {
				t.Errorf("the error says %q, without %q", got, want)
			}
		}
	})

	run("nothing the model writes runs or calls out", func(t *testing.T) {
		b.say("Attack")
		answer := engine.Next(t)
		for _, payload := range markdowntest.Samples {
			answer.Write(payload, "\n\n")
		}
		answer.Finish()
		b.until("document.querySelector('.answer:last-child').ariaBusy !== 'true' && document.querySelector('.answer:last-child .why .chip').innerText !== ''")
		if got := b.value("document.querySelectorAll('#thread :is(img, script, iframe, object, embed, form:not(.giving), style, link, svg:not(.i, .lat, .bar, .pace))').length"); got != "0" {
			t.Errorf("%s forbidden elements are in the page", got)
		}
		if got := b.value("typeof globalThis.pwned"); got != "undefined" {
			t.Error("a script of the model ran")
		}
	})
	b.clean()

	run("a chat that is gone is said to be gone, and a new one can begin", func(t *testing.T) {
		b.open("/c/nowhere")
		b.until("!document.querySelector('#senderror').hidden")
		if got := b.text("#senderror"); !strings.Contains(got, "This chat is gone") {
			t.Errorf("the page says %q", got)
		}
		b.say("hello")
		engine.Next(t).Finish()
		b.until("location.pathname.startsWith('/c/') && location.pathname !== '/c/nowhere' && document.querySelectorAll('.answer').length === 1")
	})
}

// ask sends a message and lets the engine answer it.
func (b *browser) ask(engine *handlerstest.Script, question, answer string) {
	b.t.Helper()
	b.say(question)
	a := engine.Next(b.t)
	a.Write(answer)
	a.Finish()
	b.until(lastAnswerIs(answer))
	b.until(idle)
}

// idle holds when no answer is being written, and the page shows that to what was said last.
const idle = "!document.querySelector('[data-running]') && document.querySelector('.answer:last-child .why .chip')?.innerText && !document.querySelector('.answer:last-child').beforeSaid"

func (b *browser) click(selector string) {
	b.t.Helper()
	b.stands(selector)
	b.do(chromedp.Click(selector))
}

// stands waits until an element has been in one place for a frame: a click meets what is there, and a menu, for one, gets its place
// after it has opened. A page without scripts draws no frames for it, so there it takes a tenth of a second.
func (b *browser) stands(selector string) {
	b.t.Helper()
	b.clicks++
	b.until(fmt.Sprintf(`(el => {
		const { x, y, width, height } = el.getBoundingClientRect(), at = [%d, x, y, width, height].join(), frame = document.timeline.currentTime, now = performance.now()
		if (el.stood?.at !== at) el.stood = { at, frame, now }
		return frame > el.stood.frame || now > el.stood.now + 100
	})(document.querySelector(%q))`, b.clicks, selector))
}

// unfold opens all sections of the inspector.
func (b *browser) unfold() {
	b.t.Helper()
	b.script("for (const fold of document.querySelectorAll('#inspector details')) fold.open = true")
}

// tokenMenu opens the menu of the row above tokens, and clicks an item of it.
func (b *browser) tokenMenu(item string) {
	b.t.Helper()
	b.click("[data-more-tokens]")
	b.until("document.querySelector('#token-menu').matches(':popover-open')")
	b.click("#token-menu " + item)
}

// reconnect clicks Try now, unless the page has tried by itself before.
func (b *browser) reconnect() {
	b.t.Helper()
	b.script("const button = document.querySelector('[data-reconnect]'); if (button.checkVisibility()) button.click()")
}

// key types a key outside of fields.
func (b *browser) key(key string) {
	b.t.Helper()
	b.script(`document.activeElement.blur()`)
	b.do(chromedp.KeyEvent(key))
}

func (b *browser) rail() string { b.t.Helper(); return b.text("#rail-list .rail-list") }

func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelector(%q)", selector))
	b.script(fmt.Sprintf(`const f = document.querySelector(%q); f.focus(); f.select()`, selector))
	command(b, input.InsertText, input.InsertTextParams{Text: text})
}

func TestVersionsInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.ask(engine, "What is rain?", "Water.")
	b.ask(engine, "And snow?", "Ice.")
	thread := func() string {
		return b.value("[...document.querySelectorAll('#thread .prose')].map(e => e.innerText).join(' | ')")
	}
	shows := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf("[...document.querySelectorAll('#thread .prose')].map(e => e.innerText).join(' | ') === %q", want))
	}

	run("an earlier answer is answered again as a new version, and the old one comes back with what followed it", func(t *testing.T) {
		b.click(".answer:nth-child(2) .foot [data-again]")
		answer := engine.Next(t)
		if n := len(answer.Request.Messages); n != 1 {
			t.Errorf("the engine was given %d messages, want the first question alone", n)
		}
		answer.Write("Drops.")
		answer.Finish()
		shows("What is rain? | Drops.")
		b.until(idle)
		if got := b.text(".answer .vers"); got != "2/2" {
			t.Errorf("the versions are %q", got)
		}
		b.click(`.answer [data-version="-1"]`)
		shows("What is rain? | Water. | And snow? | Ice.")
		selected := b.sent("select")
		b.key("]")
		b.settled()
		if n := b.sent("select") - selected; n != 0 {
			t.Errorf("%d commands were sent to turn a message without versions", n)
		}
		if got := thread(); got != "What is rain? | Water. | And snow? | Ice." {
			t.Errorf("a message without versions turned: %s", got)
		}
		b.key("k")
		b.key("j")
		b.script(`document.querySelector('.answer').focus()`)
		b.do(chromedp.KeyEvent("]"))
		shows("What is rain? | Drops.")
		b.script(`document.querySelector('.answer').focus()`)
		b.do(chromedp.KeyEvent("["))
		shows("What is rain? | Water. | And snow? | Ice.")
	})

	run("a message that is edited is asked again, and the old one stays", func(t *testing.T) {
		b.script(`document.querySelector('.you:nth-child(3) [data-edit]').click()`)
		b.fill(".editor textarea", "And hail?")
		b.click(".editor [type=submit]")
		answer := engine.Next(t)
		answer.Write("Hard.")
		answer.Finish()
		shows("What is rain? | Water. | And hail? | Hard.")
		b.until(idle)
		if got := b.text(".you:nth-child(3) .vers"); got != "2/2" {
			t.Errorf("the versions are %q", got)
		}
		b.reload()
		shows("What is rain? | Water. | And hail? | Hard.")
	})

	run("escape leaves an editor and changes nothing", func(t *testing.T) {
		b.until(idle)
		b.script(`document.querySelector('.answer:last-child').focus()`)
		b.do(chromedp.KeyEvent("e"))
		b.fill(".editor textarea", "Nonsense")
		b.press("Escape", 27)
		b.until("!document.querySelector('.editor')")
		shows("What is rain? | Water. | And hail? | Hard.")
	})

	run("a button that copies says so for a moment, however often it is pressed", func(t *testing.T) {
		const button = ".answer:last-child .foot [data-copy]"
		for range 2 {
			b.script("window.said = false; new MutationObserver(([m]) => { said ||= Boolean(m.target.dataset.said) }).observe(document.querySelector('" + button + "'), { attributeFilter: ['data-said'] })")
			b.click(button)
			b.until("said") // for so short a time that it is remembered
		}
		b.until("!document.querySelector('" + button + "').dataset.said")
		if got := b.value("document.querySelector('" + button + "').title"); got != "Copy as Markdown (c)" {
			t.Errorf("it is called %q now", got)
		}
	})

	run("an answer that is edited is written on", func(t *testing.T) {
		b.click(".answer:last-child .foot [data-edit]")
		b.fill(".editor textarea", "Hail is")
		b.click(".editor [type=submit]")
		answer := engine.Next(t)
		last := answer.Request.Messages[len(answer.Request.Messages)-1]
		if !answer.Request.Continue || last.Content != "Hail is" {
			t.Errorf("the engine was asked %+v", answer.Request)
		}
		answer.Write(" frozen rain.")
		answer.Finish()
		shows("What is rain? | Water. | And hail? | Hail is frozen rain.")
		b.until(idle)
	})

	run("an answer that is edited and saved says so, and offers to go on", func(t *testing.T) {
		b.click(".answer:last-child .foot [data-edit]")
		b.fill(".editor textarea", "Ice balls.")
		b.click(".editor [data-alternative]")
		b.until("document.querySelector('.answer:last-child .why').innerText.startsWith('edited by you')")
		b.until("!document.querySelector('.answer:last-child [data-continue]').hidden")
	})

	run("an edit that could not be saved is in its editor again", func(t *testing.T) {
		// What is sent has lost its text on the way, and is refused.
		b.script(`const send = WebSocket.prototype.send; WebSocket.prototype.send = function (text) { send.call(this, text.replace('A better one.', ' ')) }`)
		for _, turn := range []string{".answer:last-child", ".you:nth-child(3)"} {
			b.click(turn + " [data-edit]")
			b.fill(turn+" .editor textarea", "A better one.")
			b.click(turn + " .editor [type=submit]")
			b.until("document.querySelector('#senderror').checkVisibility()")
			b.until("document.querySelector('" + turn + " .editor textarea').value === 'A better one.'")
			b.press("Escape", 27)
			b.until("!document.querySelector('.editor')")
			shows("What is rain? | Water. | And hail? | Ice balls.")
		}
		b.reload()
		b.until(idle)
	})

	run("an answer that was stopped goes on from there", func(t *testing.T) {
		b.say("And fog?")
		answer := engine.Next(t)
		answer.Write("Fog is")
		b.until(lastAnswerIs("Fog is"))
		b.press("Escape", 27)
		b.until("document.querySelector('.answer:last-child .why .chip').innerText.startsWith('stopped by you')")
		b.shot("stopped")
		b.click(".answer:last-child [data-continue]")
		answer = engine.Next(t)
		answer.Write(" a cloud.")
		answer.Finish()
		b.until(lastAnswerIs("Fog is a cloud."))
		b.until(idle)
	})

	run("a chat forked at a message is a chat of its own up to there", func(t *testing.T) {
		from := b.value("location.pathname")
		b.script(`document.querySelector('.answer').focus()`)
		b.do(chromedp.KeyEvent("f"))
		b.until(fmt.Sprintf("location.pathname.startsWith('/c/') && location.pathname !== %q", from))
		shows("What is rain? | Water.")
	})
	b.clean()
}

// steps runs parts of a test with the browser's complaints going to each.
func steps(t *testing.T, b *browser) func(name string, f func(t *testing.T)) {
	return func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			defer func(outer testing.TB) { b.t = outer }(b.t)
			b.t = t
			f(t)
		})
	}
}

func TestTheRailInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	listed := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf("document.querySelector('#rail-list .rail-list').innerText.includes(%q)", want))
	}
	unlisted := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf("!document.querySelector('#rail-list .rail-list').innerText.includes(%q)", want))
	}
	// menu opens the menu of the row with this title and clicks an entry.
	menu := func(title, entry string) {
		t.Helper()
		b.until(fmt.Sprintf("[...document.querySelectorAll('.conv-row')].some(r => r.innerText.includes(%q))", title))
		b.script(fmt.Sprintf(`[...document.querySelectorAll('.conv-row')].find(r => r.innerText.includes(%q)).querySelector('[data-row-menu]').click()`, title))
		b.until("document.querySelector('#chat-menu').matches(':popover-open')")
		b.script(fmt.Sprintf(`[...document.querySelectorAll('#chat-menu .item')].find(i => i.checkVisibility() && i.innerText.trim() === %q).click()`, entry))
		b.until("!document.querySelector('#chat-menu').matches(':popover-open')")
	}

	run("a chat appears in the list with its first message, live while it is answered", func(t *testing.T) {
		b.open("/")
		listed("No chats yet")
		b.say("Tell me about foxes")
		answer := engine.Next(t)
		listed("Tell me about foxes")
		b.until("document.querySelector('.conv[aria-current] .dot')")
		ground := func() string {
			return b.value("getComputedStyle(document.querySelector('.conv[aria-current] .dot')).backgroundColor")
		}
		was := ground()
		engine.Set(func(s *infer.Status) { s.State = infer.StateRestarting })
		b.until("document.querySelector('[data-engine-dot=restarting]')")
		if got := ground(); got != was {
			t.Errorf("the dot of the chat took the colour of the engine's, %s instead of %s", got, was)
		}
		engine.Set(func(s *infer.Status) { s.State = infer.StateReady })
		answer.Write("Red.")
		answer.Finish()
		b.until("document.querySelector('.conv[aria-current] time')")
		if got := b.rail(); !strings.HasPrefix(got, "Today") {
			t.Errorf("the rail says %q", got)
		}
	})

	run("the key n begins another chat, and a draft waits where it was written", func(t *testing.T) {
		chat := b.value("location.pathname")
		b.fill("#message", "half a thought")
		b.key("n")
		b.until("location.pathname === '/' && document.querySelector('#empty')?.checkVisibility()")
		b.until("document.querySelector('#message').value === ''")
		b.until(wired)
		b.ask(engine, "Tell me about owls", "They fly.")
		b.open(chat)
		b.until("document.querySelector('#message').value === 'half a thought'")
		b.script(`const m = document.querySelector('#message'); m.value = ''; m.dispatchEvent(new Event('input'))`)
	})

	run("the key / searches titles and texts", func(t *testing.T) {
		b.key("/")
		b.until("document.activeElement.id === 'search'")
		command(b, input.InsertText, input.InsertTextParams{Text: "fly"})
		unlisted("foxes")
		listed("They fly.")
		b.fill("#search", "nowhere")
		listed("No chat has")
		b.script(`const s = document.querySelector('#search'); s.value = ''; s.dispatchEvent(new Event('input'))`)
		listed("foxes")
	})

	run("a row is renamed where it stands", func(t *testing.T) {
		menu("owls", "Rename")
		b.fill(".conv-row.renaming .field", "Night birds")
		b.press("Enter", 13)
		b.until("!document.querySelector('.renaming')")
		listed("Night birds")
		unlisted("owls")
	})

	run("the chat's own title follows a rename", func(t *testing.T) {
		menu("foxes", "Rename")
		b.fill(".conv-row.renaming .field", "Foxes")
		b.press("Enter", 13)
		b.until("document.querySelector('.chat-head [data-title]').innerText === 'Foxes'")
	})

	run("a pinned chat stands first", func(t *testing.T) {
		menu("Foxes", "Pin")
		b.until("document.querySelector('#rail-list h2').innerText.trim() === 'Pinned'")
		menu("Foxes", "Unpin")
		b.until("document.querySelector('#rail-list h2').innerText.trim() === 'Today'")
	})

	run("an archived chat is behind its link and comes back", func(t *testing.T) {
		menu("Night birds", "Archive")
		unlisted("Night birds")
		b.click("#rail-list .rail-foot [data-view]")
		listed("Night birds")
		menu("Night birds", "Put back")
		listed("Nothing is archived")
		b.click("#rail-list .rail-foot [data-view]")
		listed("Night birds")
	})

	run("a deleted chat can be brought back", func(t *testing.T) {
		menu("Night birds", "Delete")
		unlisted("Night birds")
		b.until("document.querySelector('#undo').innerText.includes('Deleted “Night birds”')")
		b.click("#undo button")
		listed("Night birds")
	})

	run("deleting the chat that is open leaves a new one, and undo leads back", func(t *testing.T) {
		chat := b.value("location.pathname")
		b.click(".chat-head [data-chat-menu]")
		b.until("document.querySelector('#chat-menu').matches(':popover-open')")
		b.shot("menu")
		b.click("#chat-menu [data-act=delete] button")
		b.until("location.pathname === '/' && document.querySelector('#empty').checkVisibility()")
		b.click("#undo button")
		b.until(fmt.Sprintf("location.pathname === %q", chat))
		b.until(lastAnswerIs("Red."))
	})

	run("a temporary chat is not listed", func(t *testing.T) {
		b.open("/")
		b.click("[data-temporary]")
		b.ask(engine, "Secret", "Hush.")
		b.until("document.querySelector('[data-fleeting]').checkVisibility()")
		if got := b.rail(); strings.Contains(got, "Secret") {
			t.Errorf("the rail lists it: %q", got)
		}
	})
	b.clean()

	run("without scripts a chat is read, found, renamed and deleted", func(t *testing.T) {
		command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		defer command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: false})
		b.do(chromedp.Navigate(b.origin+"/?q=fly"), chromedp.WaitReady("#rail-list"))
		if got := b.rail(); !strings.Contains(got, "Night birds") || strings.Contains(got, "Foxes") {
			t.Errorf("the search shows %q", got)
		}
		b.click(".conv")
		b.do(chromedp.WaitReady("#thread .prose"))
		if got := b.text("#thread"); !strings.Contains(got, "They fly.") {
			t.Errorf("the page shows %q", got)
		}
		b.click(".chat-head [data-chat-menu]")
		b.do(chromedp.WaitVisible("#title"))
		b.shot("without-scripts")
		b.fill("#title", "Birds")
		b.click("#chat-menu .unscripted button")
		b.until("document.querySelector('h1')?.innerText === 'Birds'")
		b.click(".chat-head [data-chat-menu]")
		b.do(chromedp.WaitVisible("#title"))
		b.click("#chat-menu [data-act=delete] button")
		b.until("location.pathname === '/' && !document.querySelector('#rail-list')?.innerText.includes('Birds')")
	})
}

func TestAnAnswerThatTheServerLeftIsWrittenOn(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	// What a store holds of an answer whose server was killed.
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: "Cut"}, []store.Message{
		{ID: 1, Role: store.RoleUser, State: store.Done, Text: "Go on", Version: 1, Versions: 1},
		{ID: 2, Parent: 1, Role: store.RoleAssistant, State: store.Interrupted, Text: "Half an", Version: 1, Versions: 1, Answer: &store.Answer{Answer: record.Answer{Receipt: record.Receipt{Model: "guide"}}}},
	}, 2)
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, server)
	b.open("/c/" + id)
	b.until("document.querySelector('.answer .why .chip')?.innerText === 'the server stopped here'")
	b.shot("interrupted")
	b.click(".answer [data-continue]")
	answer := engine.Next(t)
	answer.Write(" answer.")
	answer.Finish()
	b.until(lastAnswerIs("Half an answer."))
	b.clean()
}

func TestALongChatComesInPages(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	var list []store.Message
	for i := range int64(450) {
		m := store.Message{ID: i + 1, Parent: i, Role: store.RoleUser, State: store.Done, Text: fmt.Sprintf("message %d", i+1), Version: 1, Versions: 1}
		if i%2 == 1 {
			m.Role = store.RoleAssistant
		}
		list = append(list, m)
	}
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: "Long"}, list, 450)
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, server)
	b.open("/c/" + id)
	turns := func(first, last string) string {
		return fmt.Sprintf("document.querySelector('.turn .prose')?.innerText === %q && [...document.querySelectorAll('.turn .prose')].at(-1).innerText === %q", first, last)
	}
	b.until(turns("message 351", "message 450"))
	// The server wrote the newest turns into the page, so they are there before the
	// connection is; until then asking brings nothing. Who asks is at the top: what is far
	// below the reader goes, and comes back to one who is at its end.
	const up = "(document.querySelector('#scroll').scrollTop = 1, document.querySelector('#scroll').scrollTop = 0)"
	for _, step := range []struct{ first, last string }{
		{"message 251", "message 450"}, {"message 151", "message 450"}, {"message 51", "message 350"}, {"message 1", "message 300"},
	} {
		b.until(turns(step.first, step.last) + " || " + up)
	}
	if got := b.value("document.querySelectorAll('.turn').length"); got != "300" {
		t.Errorf("the document holds %s turns, want at most 300", got)
	}
	b.click("#tobottom")
	b.until(turns("message 351", "message 450"))
	b.clean()
}

// cable is a proxy that can be cut.
type cable struct {
	net.Listener
	mu    sync.Mutex
	to    string // the address of the server
	ends  []net.Conn
	isCut bool
}

func newCable(t testing.TB, to string) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{Listener: listener, to: to}
	t.Cleanup(func() { _ = listener.Close(); c.cut(true) })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			to := c.to
			c.mu.Unlock()
			far, err := net.Dial("tcp", to)
			c.mu.Lock()
			c.ends = append(c.ends, near)
			if err == nil {
				c.ends = append(c.ends, far)
			}
			if c.isCut || err != nil {
				_ = near.Close()
			}
			c.mu.Unlock()
			if err != nil {
				continue
			}
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				}()
			}
		}
	}()
	return c
}

// lead has the connections that are made from now on lead to another server.
func (c *cable) lead(to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = to
}

func (c *cable) cut(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = on
	if on {
		for _, end := range c.ends {
			_ = end.Close()
		}
		c.ends = nil
	}
}

func TestALostConnectionComesBackWithNothingMissing(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server := handlerstest.Serve(t, engine)
	line := newCable(t, server.Listener.Addr().String())
	b := openBrowser(t, server)
	b.origin = "http://" + line.Addr().String()
	b.open("/")
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
	b.say("go")
	answer := engine.Next(t)
	answer.Write("Before. ")
	b.until(lastAnswer + " === 'Before.'")
	line.cut(true)
	b.until("!document.querySelector('#connbar').hidden")
	if got := b.text("#connbar"); !strings.HasPrefix(got, "Connection lost. The server goes on writing the answer, if it still runs.") {
		t.Errorf("the bar says %q", got)
	}
	answer.Write("While ", "nobody ", "looked. ")
	line.cut(false)
	b.reconnect()
	b.until(lastAnswerIs("Before. While nobody looked."))
	answer.Write("After.")
	answer.Finish()
	b.until(lastAnswerIs("Before. While nobody looked. After."))
	b.until("document.querySelector('#connbar').hidden")
	for _, trouble := range b.seen() {
		if !strings.Contains(trouble, "WebSocket connection") && !strings.Contains(trouble, "net::ERR_") { // the browser's own words for refused connections
			t.Errorf("the page had trouble: %s", trouble)
		}
	}
}

func TestTheLayoutStandsStillWhenABlockEnds(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	b := openBrowser(t, handlerstest.Serve(t, engine))
	b.open("/")
	b.say("Write")
	answer := engine.Next(t)
	// Each piece is drawn as raw text first; what follows ends the block.
	for _, step := range []struct{ open, end string }{
		{"A paragraph that is long enough to fill more than one line of the column in which answers are shown to people.", "\n\n"},
		{"```go\nfunc main() {\n\tprintln(1)\n}\n```", "\n"},
		{"## A heading", "\n"},
		{"Another paragraph\nof two lines.", "\n\n"},
	} {
		answer.Write(step.open)
		b.until(fmt.Sprintf("%s.trimEnd().endsWith(%q)", lastAnswer, strings.TrimPrefix(lastLine(step.open), "## ")))
		before := b.value("document.querySelector('.answer .prose').getBoundingClientRect().height")
		answer.Write(step.end)
		b.until("!document.querySelector('.answer .tail')")
		if after := b.value("document.querySelector('.answer .prose').getBoundingClientRect().height"); after != before {
			t.Errorf("after the end of %q the answer is %s pixels high, it was %s", step.open, after, before)
		}
	}
	answer.Finish()
	b.clean()
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n```"), "\n")
	return lines[len(lines)-1]
}

const sampleAnswer = `Because the two phases ask different things of the card. While it writes, its cores spend most of their time waiting.

**Reading the prompt** handles many tokens together. Each weight is fetched once and used for every token of the chunk, so the arithmetic units stay busy.

**Writing** handles one token at a time. Every weight still has to be fetched, but now for a single multiplication each:

` + "```" + `text
tokens/s ≤ bandwidth ÷ bytes read per token
         = 251 GB/s ÷ 4.92 GB
         = 51
` + "```" + `

Three things move that wall:

1. fewer bytes per weight,
2. more answers per pass over the weights,
3. a layout that the kernel can read in long, aligned runs.
`

// pieces cuts text into what could be tokens.
func pieces(text string) []string { return strings.SplitAfter(text, " ") }

// TestEveryStateOfThePage goes through what a person may see, in both themes and
// on a phone. With -shots it also takes pictures.
func TestEveryStateOfThePage(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	for i, title := range []string{"A quiz about bridges", "Sourdough timing table", "Translate the boiler manual", "Regex for German dates"} {
		id, err := handlerstest.ImportList(chats, store.Metadata{Title: title}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: title, Version: 1, Versions: 1}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := chats.List.Pin(context.Background(), access.Local, id, i == 0); err != nil {
			t.Fatal(err)
		}
	}
	b := openBrowser(t, server)
	fits := func(screen string) {
		t.Helper()
		if got := b.value("document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight"); got != "true" {
			t.Errorf("%s: the document scrolls", screen)
		}
		b.shot(screen)
	}
	both := func(screen string) {
		t.Helper()
		for _, scheme := range []string{"dark", "light"} {
			b.scheme(scheme)
			fits(screen + "-" + scheme)
		}
	}

	engine.Set(func(s *infer.Status) {
		s.State, s.Loading = infer.StateLoading, infer.Loading{Done: 3_200_000_000, Total: 4_920_000_000}
		s.Model = infer.ModelInfo{Name: "Llama 3.1 8B", Quant: "Q4_K_M", Parameters: 8_030_000_000}
	})
	b.open("/")
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'loading, 65 %'")
	both("loading")
	engine.Set(func(s *infer.Status) {
		s.State = infer.StateFailed
		s.Error = &fault.Error{Code: fault.CodeModelFile, Message: "models/llama.gguf ends after 1.2 GB, but its header promises 4.9 GB; download it again"}
	})
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'failed'")
	both("failed")
	engine.Set(func(s *infer.Status) { *s = handlerstest.NewScript().Current })
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
	both("first")

	b.say("Why is my M40 slow at writing but quick at reading the prompt? Keep it short, I know what a matrix product is.")
	answer := engine.Next(t)
	engine.Set(func(s *infer.Status) { s.Running, s.Decode = 1, 905 })
	answer.Send(infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 2, WaitS: 40}})
	b.until("document.querySelector('.wait')?.hidden === false")
	if got, want := b.text("[data-wait-amount]"), "2nd in the queue, about 40 s"; got != want {
		t.Errorf("who waits is told %q, want %q", got, want)
	}
	both("queued")
	answer.Send(infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Model: "Llama 3.1 8B", Done: 3_200_000_000, Total: 4_920_000_000}})
	b.until("document.querySelector('[data-wait]').innerText.startsWith('Loading')")
	fits("answer-loading")
	answer.Send(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 737, Total: 1440, Cached: 737}})
	b.until("document.querySelector('[data-wait-amount]').innerText.startsWith('737')")
	answer.Send(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1200, Total: 1440, Cached: 737}})
	b.until("document.querySelector('[data-wait-amount]').innerText.startsWith('1,200')")
	both("prefill")
	answer.Write(pieces(sampleAnswer)...)
	answer.Finish()
	b.until("document.querySelector('.answer:last-child .why .chip').innerText !== ''")
	both("answered")

	b.script(`document.querySelector('[data-param=temperature] input[type=range]').value = 0.9
		document.querySelector('[data-param=temperature] input[type=range]').dispatchEvent(new Event('input'))
		document.querySelector('[data-param=top_p] input[type=range]').value = 0.8
		document.querySelector('[data-param=top_p] input[type=range]').dispatchEvent(new Event('input'))
		document.querySelector('[data-pin]').click()`)
	engine.Set(func(s *infer.Status) {
		s.Notice = "This model has no chat template. Messages are sent as plain text, so answers may be odd."
	})
	b.say("So if I start a second chat, does the first one slow down?")
	answer = engine.Next(t)
	answer.Write(pieces("Only a little. Both chats need the same weights, so the engine reads them once per step and uses them twice.\n\nWhat grows is the *cache* traffic: each chat also reads its own")...)
	b.until("document.querySelector('.answer:last-child .tail')?.innerText.endsWith('its own')")
	both("writing")
	b.size(390, 844, true)
	b.until("document.querySelector('#tobottom').hidden && document.querySelector('#scroll').scrollTop + document.querySelector('#scroll').clientHeight > document.querySelector('#scroll').scrollHeight - 2")
	both("phone-writing")
	b.frames()
	b.click("[data-sheet-open]")
	b.until("document.body.dataset.open === 'sheet'")
	both("phone-parameters")
	b.click("[data-sheet-close]")
	b.click("[data-rail-open]")
	b.until("document.querySelector('#rail').checkVisibility()")
	both("phone-rail")
	b.script(`document.querySelector('.conv-row:last-child [data-row-menu]').click()`)
	b.until("document.querySelector('#chat-menu').matches(':popover-open')")
	fits("phone-menu")
	b.script(`document.querySelector('#chat-menu').hidePopover()`)
	b.click("[data-rail-close]")
	b.until("!document.querySelector('#rail').checkVisibility()")
	b.size(320, 640, true)
	fits("narrow")
	b.size(900, 700, false)
	b.frames()
	fits("tablet")
	b.click("[data-rail-open]")
	b.until("document.querySelector('#rail').checkVisibility()")
	fits("tablet-rail")
	b.press("Escape", 27)
	b.until("!document.querySelector('#rail').checkVisibility()")
	b.size(1440, 900, false)
	b.press("Escape", 27)
	b.until("document.querySelector('.answer:last-child .why .chip').innerText.startsWith('stopped by you')")
	engine.Set(func(s *infer.Status) { s.Notice, s.Running, s.Decode = "", 0, 0 })
	b.click(".answer:last-child .foot [data-again]")
	answer = engine.Next(t)
	answer.Write(pieces("Only a little. Both chats need the same weights.")...)
	answer.Finish()
	b.until(lastAnswerIs("Only a little. Both chats need the same weights."))
	b.until(idle)
	both("versions")
	b.size(320, 640, true)
	fits("phone-versions")
	if got := b.value("document.querySelector('#scroll').scrollWidth <= document.querySelector('#scroll').clientWidth"); got != "true" {
		t.Error("on a narrow phone the controls of an answer are wider than the page")
	}
	b.size(1440, 900, false)
	b.click(".answer:last-child .foot [data-edit]")
	b.until("document.querySelector('.editor')")
	both("editing")
	b.press("Escape", 27)
	b.until("!document.querySelector('.editor')")
	b.say("And now all of the letters, please.")
	engine.Next(t).Fail(&fault.Error{Code: fault.CodeContext, Message: "too long", PromptTokens: 2822, ContextLength: 2048})
	b.until("!document.querySelector('.answer:last-child .errbox').hidden")
	both("context")
	b.click("[data-help].icon")
	both("help")
	b.clean()
}
