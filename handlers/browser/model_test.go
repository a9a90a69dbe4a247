package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
)

const longName = "some-publisher-llama-3.2-1b-instruct-abliterated-q4_k_m"

func TestAChatInABrowserKeepsItsModelAndNamesTheSpeaker(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	loaded := []infer.ModelInfo{{Name: "guide"}, {Name: longName}}
	engine.List(loaded...)
	server, chats := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	load := func(m infer.ModelInfo) { engine.Set(func(s *infer.Status) { s.Model = m }) }
	speaker := "[...document.querySelectorAll('.answer .who b')].at(-1)"
	var first string

	run("the speaker has the name of the model", func(t *testing.T) {
		b.open("/")
		b.ask(engine, "Hello", "Hi.")
		first = b.value("location.pathname")
		if got := b.value(speaker + ".innerText"); got != "guide" {
			t.Errorf("the answer is by %q", got)
		}
	})
	run("a long name wraps into two lines beside the answer, is cut there, and told whole to whoever points at it", func(t *testing.T) {
		load(loaded[1])
		b.open("/")
		b.ask(engine, "Hello again", "Hi.")
		for _, width := range []int64{390, 820, 1440} {
			b.size(width, 900, width < 1000)
			name := fmt.Sprintf("(({title, scrollHeight, clientHeight, scrollWidth, clientWidth}, line) => [title, Math.round(clientHeight / line), scrollHeight > clientHeight, scrollWidth > clientWidth].join(' '))(%[1]s, parseFloat(getComputedStyle(%[1]s).lineHeight))", speaker)
			want := longName + " 2 true false"
			switch width {
			case 390:
				want = longName + " 1 true false"
			case 820: // it has the whole line
				want = longName + " 1 false false"
			}
			if got := b.value(name); got != want {
				t.Errorf("at %d px the name, its lines, and whether it is cut in height and in width are %s, want %s", width, got, want)
			}
			if b.value("document.documentElement.scrollWidth > innerWidth") != "false" {
				t.Errorf("at %d px the page is wider than the window", width)
			}
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				b.shot(fmt.Sprintf("speaker-%d-%s", width, scheme))
			}
		}
		b.size(1440, 900, false)
		b.scheme("light")
	})
	run("a chat does not change its model when another chat loads one", func(t *testing.T) {
		b.open(first)
		b.until("document.querySelector('.engine-chip [data-chosen]').innerText.includes('guide')")
		b.say("And now?")
		a := engine.Next(t)
		if a.Request.Model != "guide" {
			t.Errorf("the engine was asked for %q", a.Request.Model)
		}
		a.Write("Still here.")
		a.Finish()
		b.until(idle)
	})
	run("a chat whose model is gone says so, and offers another", func(t *testing.T) {
		engine.List(loaded[1])
		b.open(first)
		b.until("document.querySelector('[data-model-gone]').checkVisibility()")
		if got := b.text("[data-model-gone]"); !strings.Contains(got, "guide, the model of this chat, is not on this machine any more") {
			t.Errorf("the page says %q", got)
		}
		for _, width := range []int64{390, 820, 1440} {
			b.size(width, 900, width < 400)
			b.shot(fmt.Sprint("model-gone-", width))
		}
		b.click("[data-model-gone] button")
		b.until("document.querySelector('#model-menu').matches(':popover-open')")
		b.click(fmt.Sprintf("#model-menu button[value=%q]", longName))
		b.until("!document.querySelector('[data-model-gone]').checkVisibility()")
		b.say("Who are you?")
		a := engine.Next(t)
		if a.Request.Model != longName {
			t.Errorf("the engine was asked for %q", a.Request.Model)
		}
		a.Finish()
		b.until(idle)
	})
	run("a new chat begins with the model that was chosen last", func(t *testing.T) {
		engine.List(loaded...)
		load(loaded[0])
		b.open("/")
		b.say("Hello")
		a := engine.Next(t)
		if a.Request.Model != longName {
			t.Errorf("the engine was asked for %q", a.Request.Model)
		}
		a.Finish()
		b.until(idle)
	})
	run("without scripts, and in an export, the speaker has the name of the model too", func(t *testing.T) {
		page := handlerstest.Call(t, server, "GET", first, "").Body
		if !strings.Contains(page, `<b title="guide">guide</b>`) || strings.Contains(page, "<b>Model</b>") {
			t.Error("the page does not name the speaker")
		}
		if text := handlerstest.Call(t, server, "GET", first+"/export.md", "").Body; !strings.Contains(text, "\n## guide\n") {
			t.Errorf("the export is %s", text)
		}
	})
	if model, err := chats.Choice.Model(context.Background(), access.Local); err != nil || model != longName {
		t.Errorf("the model chosen last is %q, %v", model, err)
	}
	b.clean()
}
