package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/fixtures"

	"github.com/chromedp/chromedp"
)

// picker is the name of the preset chosen and what the chip says.
const picker = "document.querySelector('#preset').selectedOptions[0]?.label + ', ' + document.querySelector('[data-modified]').innerText"

func (b *browser) pickerSays(want string) {
	b.t.Helper()
	b.until(picker + " === '" + want + "'")
}

func (b *browser) choosePreset(id string) {
	b.t.Helper()
	b.script(`const s = document.querySelector('#preset'); s.value = '` + id + `'; s.dispatchEvent(new Event('change'))`)
}

func (b *browser) presetMenu(item string) {
	b.t.Helper()
	b.click("[popovertarget=preset-menu]")
	b.until("document.querySelector('#preset-menu').matches(':popover-open')")
	b.click("#preset-menu " + item)
}

func TestTheModelsOwnSettingsInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	engine.Suggest(map[string]float64{"temperature": 1, "top_k": 64})
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	fields := func() string {
		return b.value("document.querySelector('#n-temperature').value + ' ' + document.querySelector('#n-top_k').value")
	}
	b.open("/")

	run("an untouched chat begins with them", func(t *testing.T) {
		b.pickerSays("The model’s own, unchanged")
		if got := fields(); got != "1.00 64" {
			t.Errorf("the fields have %s", got)
		}
		b.shot("presets-own-panel")
	})

	run("the page of presets says what they are", func(t *testing.T) {
		b.do(chromedp.Navigate(b.origin+"/presets"), chromedp.WaitReady("#preset-shown"))
		b.until("document.querySelector('.rail-list').innerText.includes('what the model’s maker recommends')")
		b.shot("presets-own")
		b.open("/")
	})

	run("they change with the model, as long as nobody changes them", func(t *testing.T) {
		engine.Suggest(map[string]float64{"temperature": 0.6})
		b.reload()
		b.pickerSays("The model’s own, unchanged")
		if got := fields(); got != "0.60 40" {
			t.Errorf("the fields have %s", got)
		}
		engine.Suggest(nil)
		b.reload()
		b.pickerSays("Balanced, unchanged")
		if got := fields(); got != "0.70 40" {
			t.Errorf("the fields have %s", got)
		}
	})

	run("what a person chose stays", func(t *testing.T) {
		b.choosePreset("precise")
		engine.Suggest(map[string]float64{"temperature": 1})
		b.reload()
		b.pickerSays("Precise, unchanged")
		b.choosePreset("own")
		b.pickerSays("The model’s own, unchanged")
		if got := fields(); got != "1.00 40" {
			t.Errorf("the fields have %s", got)
		}
	})
}

func TestPresetsInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.until("document.querySelector('#preset optgroup')")
	b.pickerSays("Balanced, unchanged")

	run("a preset brings its values, and what is moved then counts as modified", func(t *testing.T) {
		b.choosePreset("precise")
		b.pickerSays("Precise, unchanged")
		if got := b.value("document.querySelector('#n-temperature').value + ' ' + document.querySelector('#n-max_tokens').value"); got != "0.30 1024" {
			t.Errorf("the fields have %s", got)
		}
		b.set("temperature", "0.50")
		b.pickerSays("Precise, modified · 1")
		if got := b.value("document.querySelector('[data-param=temperature] .reset').ariaLabel"); got != "Temperature: back to 0.30" {
			t.Errorf("the button back says %q", got)
		}
	})

	run("a new chat begins with the preset that was used last, without what was moved or pinned", func(t *testing.T) {
		b.click("[data-pin]")
		b.reload()
		b.pickerSays("Precise, unchanged")
		if got := b.value("document.querySelector('#n-temperature').value + ' ' + document.querySelector('[data-seed-note]').innerText"); got != "0.30 new each time" {
			t.Errorf("temperature and seed: %s", got)
		}
		b.set("temperature", "0.50")
	})

	run("what differs is listed", func(t *testing.T) {
		b.click("[data-system]")
		b.fill("#system", "Be exact.")
		b.set("top_k", "100")
		b.presetMenu("[data-differs]")
		b.until("document.querySelector('#differs').open")
		if got := b.value("[...document.querySelectorAll('#differs tbody tr')].map(r => [...r.cells].map(c => c.innerText).join(' ').replace(/\\s+/g, ' ')).join('; ')"); got != "Temperature 0.50 0.30; Top-k 100 20" {
			t.Errorf("the list is %q", got)
		}
		b.shot("presets-differs-light")
		b.press("Escape", 27)
	})

	run("a built-in preset is saved under a name of its own, with the system prompt", func(t *testing.T) {
		b.click("[data-save-preset]")
		b.until("document.querySelector('#preset-dialog').open")
		b.click("#preset-dialog [type=submit]")
		b.until("document.querySelector('#e-preset').innerText === 'A preset needs a name'")
		b.fill("#preset-name", "greedy")
		b.click("#preset-dialog [type=submit]")
		b.until("document.querySelector('#e-preset').innerText === 'There is a preset “greedy” already.'")
		b.fill("#preset-name", "Facts <b>")
		b.shot("presets-name-light")
		b.click("#preset-dialog .switch")
		b.until("document.querySelector('#preset-dialog .switch input').checked")
		b.click("#preset-dialog [type=submit]")
		b.until("!document.querySelector('#preset-dialog').open")
		b.pickerSays("Facts <b>, unchanged")
	})

	run("a chat remembers its panel, and each chat has its own", func(t *testing.T) {
		b.ask(engine, "First chat", "Yes.")
		b.set("top_k", "77")
		b.pickerSays("Facts <b>, modified · 1")
		b.fill("#system", "Be exact and short.")
		b.pickerSays("Facts <b>, modified · 2")
		b.settled() // the server has them
		first := b.value("location.pathname")
		b.open("/")
		b.until("document.querySelector('#system').value === 'Be exact.'") // the preset's
		b.choosePreset("creative")
		b.pickerSays("Creative, unchanged")
		if got := b.value("document.querySelector('#system').value"); got != "" {
			t.Errorf("the system prompt of the preset before stays: %q", got)
		}
		b.ask(engine, "Second chat", "No.")
		second := b.value("location.pathname")
		b.open(first)
		b.pickerSays("Facts <b>, modified · 2")
		if got := b.value("document.querySelector('#n-top_k').value + document.querySelector('#system').value"); got != "77Be exact and short." {
			t.Errorf("the first chat has %q", got)
		}
		b.open(second)
		b.pickerSays("Creative, unchanged")
		b.open(first)
	})

	run("save, rename, and delete with undo", func(t *testing.T) {
		b.pickerSays("Facts <b>, modified · 2")
		b.click("[data-save-preset]")
		b.pickerSays("Facts <b>, unchanged")
		b.presetMenu("[data-rename-preset]")
		b.fill("#preset-name", "Facts")
		b.click("#preset-dialog [type=submit]")
		b.until("!document.querySelector('#preset-dialog').open")
		b.pickerSays("Facts, unchanged")
		b.presetMenu("[data-delete-preset]")
		b.pickerSays("Deleted preset, missing")
		b.click("#undo button")
		b.pickerSays("Facts, unchanged")
		list := handlerstest.PresetsOf(t, server)
		if last := list[len(list)-1]; last.Name != "Facts" || last.System != "Be exact and short." || last.Settings.TopK != 77 {
			t.Errorf("kept is %+v", last)
		}
	})

	run("a preset that another page has deleted is missing, and can be saved anew", func(t *testing.T) {
		list := handlerstest.PresetsOf(t, server)
		handlerstest.PostScripted(t, server, "/presets/"+list[len(list)-1].ID+"/delete", `{}`)
		b.set("top_k", "78")
		b.click("[data-save-preset]")
		b.until("!document.querySelector('#senderror').hidden")
		b.pickerSays("Deleted preset, missing")
		b.shot("presets-missing-light")
		b.click("[data-save-preset]")
		b.fill("#preset-name", "Back")
		b.click("#preset-dialog [type=submit]")
		b.until("!document.querySelector('#preset-dialog').open")
		b.pickerSays("Back, unchanged")
	})

	run("a file of presets is imported, and a bad one is refused", func(t *testing.T) {
		give := func(content string) {
			path := filepath.Join(t.TempDir(), "presets.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			b.do(chromedp.SetUploadFiles("#preset-file", []string{path}))
		}
		give(handlerstest.Call(t, server, "GET", "/presets/export.json?id=greedy", "").Body)
		b.until("[...document.querySelector('#preset').options].some(o => o.label === 'Greedy (2)')")
		give(`{"format":"x"}`)
		b.until("document.querySelector('#senderror').innerText.includes('this program reads')")
	})

	run("the key p goes to the picker", func(t *testing.T) {
		b.key("p")
		b.until("document.activeElement.id === 'preset'")
		b.press("Escape", 27)
	})

	run("the page of presets has all of them, and leads back", func(t *testing.T) {
		b.do(chromedp.Navigate(server.URL+"/presets"), chromedp.WaitReady("#preset-shown"))
		for _, want := range []string{"Balanced", "Back", "Greedy (2)"} {
			if got := b.text(".rail"); !strings.Contains(got, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
		b.shot("presets-page-light")
		b.script(`const s = document.querySelector('#against'); s.value = 'greedy'; s.dispatchEvent(new Event('change'))`)
		b.until("new URLSearchParams(location.search).get('against') === 'greedy' && document.querySelector('#preset-shown').innerText.includes('1 setting differs from Greedy')")
		if got := b.value("document.querySelectorAll('.diff tbody tr').length"); got != "1" {
			t.Errorf("of what differs %s rows are shown", got)
		}
		b.click(".rail-list ul:last-of-type li:last-child a")
		b.until("document.querySelector('h1').innerText === 'Greedy (2)'")
		b.click(".seg a:last-child")
		b.until("document.querySelector('[data-save]').disabled && document.querySelector('#f-top_k')")
		b.fill("#f-top_k", "33")
		b.until("!document.querySelector('[data-save]').disabled")
		b.click("[data-save]")
		b.until("document.querySelector('#f-top_k').value === '33' && document.querySelector('[data-save]').disabled")
		b.do(chromedp.Submit("form[action$=delete]"))
		b.until("document.querySelector('.toast')?.innerText.includes('Deleted')")
		b.click(".toast button")
		b.until("!document.querySelector('.toast') && document.querySelector('h1').innerText === 'Greedy (2)'")
	})

	run("a preset is used in the chat that the page was opened from", func(t *testing.T) {
		b.open("/")
		b.ask(engine, "Use it here", "Yes.")
		chat := b.value("location.pathname")
		b.click(".nav a[href^='/presets']")
		b.until("document.querySelector('#preset-shown .btn.primary').innerText.trim() === 'Use in this chat'")
		b.click(".rail-list a[href*='id=creative']")
		b.until("document.querySelector('h1').innerText === 'Creative'")
		b.click("#preset-shown .btn.primary")
		b.until("location.pathname === '" + chat + "'")
		b.pickerSays("Creative, unchanged")
		b.do(chromedp.Navigate(server.URL+"/presets?id=greedy"), chromedp.WaitReady("#preset-shown"))
		b.click("#preset-shown .btn.primary")
		b.until("location.pathname === '/' && location.search === ''")
		b.pickerSays("Greedy, unchanged")
	})

	run("a tablet breaks no word of compared presets", func(t *testing.T) {
		handlerstest.PostScripted(t, server, "/presets", `{"name":"Stories","system":"Write warmly.","settings":{"temperature":1.2,"stop":["\nYou:","\n\n"],"presence_penalty":0.4}}`)
		b.size(820, 1000, true)
		b.do(chromedp.Navigate(server.URL+"/presets"), chromedp.WaitReady("#preset-shown"))
		b.script("[...document.querySelectorAll('.rail-list a')].find(a => a.innerText.includes('Stories')).click()")
		b.until("document.querySelector('.diff') && document.querySelector('h1').innerText === 'Stories'")
		if got := b.value(brokenWords); got != "" {
			t.Errorf("two lines have a part each of %s", got)
		}
	})
	for _, trouble := range b.seen() {
		if !strings.Contains(trouble, "Failed to load resource") { // what was refused
			t.Errorf("the page had trouble: %s", trouble)
		}
	}
}

// brokenWords lists the words of compared presets that take more than one line.
const brokenWords = `[...document.querySelectorAll('.diff :is(th, td)')].flatMap(cell => {
	const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = []
	for (let text; text = texts.nextNode();) {
		for (const { 0: word, index } of text.data.matchAll(/[\p{L}\d]+/gu)) {
			const range = document.createRange()
			range.setStart(text, index)
			range.setEnd(text, index + word.length)
			if (new Set([...range.getClientRects()].map(line => line.top)).size > 1) broken.push(word)
		}
	}
	return broken
}).join(', ')`

// TestEverybodyCanUsePresets looks at the states of presets in both themes, on a desktop
// and on a phone.
func TestEverybodyCanUsePresets(t *testing.T) {
	t.Parallel()
	fixtures.NeedCheck(t)
	source := axe(t)
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	handlerstest.PostScripted(t, server, "/presets", `{"name":"Mia’s stories","system":"Write warmly, in short sentences.","settings":{"temperature":1.2,"top_k":0,"stop":["\nYou:","\n\n"],"presence_penalty":0.4}}`)
	b := openBrowser(t, server)
	look := func(state string) {
		t.Helper()
		b.look(source, state)
	}
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1440, 900}, {"phone", 390, 844}} {
		phone := size.name == "phone"
		b.size(size.width, size.height, phone)
		b.open("/")
		b.until("document.querySelector('#preset optgroup')")
		if phone {
			b.click("[data-sheet-open]")
		}
		b.choosePreset("1")
		b.pickerSays("Mia’s stories, unchanged")
		b.set("temperature", "0.40")
		b.set("top_p", "0.50")
		b.script(`document.querySelector('#system').value = 'Write in rhymes.'; document.querySelector('#system').dispatchEvent(new Event('input'))`)
		b.pickerSays("Mia’s stories, modified · 3")
		look("presets chosen " + size.name)
		b.unfold()
		b.script(`document.querySelector('#inspector').scrollTo(0, 9999)`)
		look("presets more " + size.name)
		b.script(`document.querySelector('#inspector').scrollTo(0, 0)`)
		b.click("[popovertarget=preset-menu]")
		b.until("document.querySelector('#preset-menu').matches(':popover-open')")
		look("presets menu " + size.name)
		b.click("#preset-menu [data-differs]")
		b.until("document.querySelector('#differs').open")
		look("presets differ " + size.name)
		b.press("Escape", 27)
		b.presetMenu("[data-save-as]")
		b.until("document.querySelector('#preset-dialog').open")
		b.click("#preset-dialog [type=submit]")
		b.until("!document.querySelector('#e-preset').hidden")
		look("presets name " + size.name)
		b.press("Escape", 27)
	}
	for _, size := range []struct {
		name          string
		width, height int64
		touch         bool
	}{{"1440", 1440, 900, false}, {"820-mouse", 820, 1000, false}, {"820", 820, 1000, true}, {"390", 390, 844, true}} {
		b.size(size.width, size.height, size.touch)
		for name, path := range map[string]string{"list": "/presets", "builtin": "/presets?id=precise", "own": "/presets?id=1", "own-all": "/presets?id=1&all=1"} {
			b.do(chromedp.Navigate(server.URL+path), chromedp.WaitReady("#preset-shown"))
			look("panel-12-presets-" + name + "-" + size.name)
			if got := b.value(fmt.Sprintf("document.documentElement.scrollWidth > %d || document.querySelector('#preset-shown').scrollWidth > document.querySelector('#preset-shown').clientWidth", size.width)); got != "false" {
				t.Errorf("%s: the page of presets scrolls sideways at %s", name, size.name)
			}
			listed, shown := b.value("document.querySelector('.rail').checkVisibility()"), b.value("document.querySelector('h1').checkVisibility()")
			if phone := size.width <= 760; phone && (listed == "true") != (name == "list") || phone && (shown == "true") == (name == "list") || !phone && (listed != "true" || shown != "true") {
				t.Errorf("%s at %s: the list is shown: %s, a preset: %s", name, size.name, listed, shown)
			}
		}
	}
}
