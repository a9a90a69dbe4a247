package browser

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub/hubtest"
)

func (b *browser) openModels(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.origin+path), chromedp.WaitReady("#models"))
	b.until("document.querySelector('.engine-chip [data-loaded]').innerText !== ''")
}

// forgive forgets troubles that a test has caused on purpose.
func (b *browser) forgive(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = slices.DeleteFunc(b.troubles, func(trouble string) bool { return strings.Contains(trouble, text) })
}

// lookUp asks for a name on the page about the models.
func (b *browser) lookUp(name string) {
	b.t.Helper()
	b.fill("#name", name)
	b.click("#find form button")
}

func card(state string) string {
	return fmt.Sprintf("document.querySelector('[data-download]')?.dataset.state === %q", state)
}

func TestAModelIsDownloadedInTheBrowser(t *testing.T) {
	t.Parallel()
	registry := handlerstest.NewModelRegistry(t)
	dir := t.TempDir()
	server := handlerstest.ServeModels(t, dir, registry)
	b := openBrowser(t, server.Server)
	run := steps(t, b)

	run("the page lists what is there and says where", func(t *testing.T) {
		server.Put(t, "mine/Second-Q8_0.gguf", gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Seed: 3}))
		server.Put(t, "broken.gguf", []byte("GGUF and no more"))
		b.openModels("/models")
		for _, want := range []string{"3 models on this machine", "guide", "Second-Q8_0", "cannot be used", "loaded", "Q8_0"} {
			if got := b.text("main") + b.text("#side"); !strings.Contains(got, want) {
				t.Errorf("the page says %q, without %q", got, want)
			}
		}
		b.shot("models-light")
	})

	run("models for this machine are suggested while only the built-in one is here", func(t *testing.T) {
		if got := b.text("#find"); strings.Contains(got, "For this machine") {
			t.Errorf("with another model the page says %q", got)
		}
		alone := handlerstest.ServeModels(t, t.TempDir(), registry)
		other := openBrowser(t, alone.Server)
		for _, address := range []string{"/", "/models"} {
			other.do(chromedp.Navigate(other.origin+address), chromedp.WaitVisible(".suggested"))
			for _, want := range []string{"Qwen3 4B", "Apache 2.0", "2.5 GB", "fits with a context of"} {
				if got := other.text(".suggested"); !strings.Contains(got, want) {
					t.Errorf("%s suggests %q, without %q", address, got, want)
				}
			}
			other.shot("models-suggested-" + strings.Trim(address, "/"))
		}
	})

	run("the setup is changed on the page, and what is wrong with it is said", func(t *testing.T) {
		b.openModels("/models")
		b.fill("#setup-context", "many")
		b.click("form[action='/models/setup'] button")
		b.until("document.querySelector('#problem').innerText.includes('is not a whole number')")
		b.fill("#setup-context", "128")
		b.click("form[action='/models/setup'] button")
		b.until("document.querySelector('.setup').innerText.includes('The context is 128 tokens now')")
		b.shot("models-setup-light")
		b.fill("#setup-context", "0")
		b.click("form[action='/models/setup'] button")
		b.until("!document.querySelector('.setup').innerText.includes('The context is 128 tokens now')")
		b.forgive("the server responded with a status of 400") // of the context that is no number
	})

	run("a name is looked up before anything is downloaded", func(t *testing.T) {
		b.lookUp("org/repo:Q8_0")
		b.until("document.querySelector('#found')?.innerText.includes('Remote-Q8_0.gguf')")
		for _, want := range []string{"fits", "It fits with a context of 256: ", "Download 727 kB", "Checked by SHA-256", "of 8.0 GB free", "of 212 GB free"} {
			if got := b.text("#found"); !strings.Contains(got, want) {
				t.Errorf("it says %q, without %q", got, want)
			}
		}
		if asked := registry.Requests("cdn"); len(asked) != 1 || asked[0].Header.Get("Range") == "" {
			t.Errorf("more than the header was asked for: %+v", asked)
		}
		b.shot("models-found-light")
	})

	half := len(handlerstest.RemoteModel) / 2
	open := handlerstest.HoldBack(registry, half)
	run("the progress is shown, after a reload and in a second window too", func(t *testing.T) {
		b.click("#found form .btn.primary")
		b.until(card("running"))
		half := fmt.Sprintf("parseInt(document.querySelector('[data-field=amount]').innerText) >= %d", half/1000)
		b.until(half)
		b.shot("models-pull-light")
		b.do(chromedp.Reload(), chromedp.WaitReady("#models"))
		b.until(half)
		other := openBrowser(t, server.Server)
		other.openModels("/models")
		other.until(half)
		other.click("[data-download] form[action$=pause] button")
		other.until(card("paused"))
		b.until(card("paused"))
		other.clean()
	})

	restart := func() { server = handlerstest.ServeModels(t, dir, registry) } // until the whole test ends
	run("after a restart of the server the download is there and goes on", func(t *testing.T) {
		b.clean()
		b.do(chromedp.Navigate("about:blank"))
		server.Stop()
		b.requests = nil // of another origin
		restart()
		b.origin = server.URL
		b.openModels("/models")
		b.until(card("paused"))
		if got := b.text("[data-download]"); !strings.Contains(got, "Resume") {
			t.Errorf("the card says %q", got)
		}
		before := len(registry.Requests("cdn"))
		b.click("[data-download] form[action$=resume] button")
		b.until(card("running"))
		open()
		b.until(card("done"))
		if asked := registry.Requests("cdn"); len(asked) != before+1 || asked[before].Header.Get("Range") < fmt.Sprintf("bytes=%d-", half) {
			t.Errorf("it asked for %v", asked[before:])
		}
		b.until("document.querySelector('#list').innerText.includes('Remote-Q8_0')")
		if got := b.text("[data-download]"); !strings.Contains(got, "SHA-256 checked") {
			t.Errorf("the card says %q", got)
		}
		b.shot("models-done-light")
	})

	run("the model can be used at once", func(t *testing.T) {
		b.click("[data-download] a.primary")
		b.until("document.querySelector('#message') && " + wired)
		b.until("document.querySelector('.engine-chip [data-chosen]').innerText.includes('loads with the next message')")
		b.shot("models-use-light")
		b.say("hello")
		b.until(idle)
		b.until("document.querySelector('.answer:last-child [data-f=model]').textContent.includes('Remote-Q8_0')")
		b.until("document.querySelector('.engine-chip [data-engine=name]').checkVisibility() && document.querySelector('.engine-chip [data-engine=name]').innerText === 'Remote-Q8_0'")
	})
	b.clean()
}

func TestDownloadsThatGoWrongInTheBrowser(t *testing.T) {
	t.Parallel()
	registry := handlerstest.NewModelRegistry(t)
	server := handlerstest.ServeModels(t, t.TempDir(), registry)
	b := openBrowser(t, server.Server)
	run := steps(t, b)
	start := func() {
		b.openModels("/models")
		b.lookUp("org/repo:Q8_0")
		b.click("#found form[action$=pull] button")
	}

	// update has the page draw anew what has changed, as far as it may now.
	update := func() {
		b.script(`
			const get = window.fetch
			window.fetch = async (...request) => {
				const response = await get(...request), text = await response.text()
				response.text = async () => (setTimeout(() => window.drawn = true), text)
				return response
			}
			window.drawn = false
			dispatchEvent(new PopStateEvent('popstate'))`)
		b.until("window.drawn")
	}

	run("what cannot be pulled is said beside the name", func(t *testing.T) {
		b.openModels("/models")
		for name, want := range map[string]string{
			"https://example.org/m.gguf": "nly names such as org/repo:quant or model:tag can be pulled here",
			"../../etc/passwd":           "is neither org/repo",
			"mistral":                    "he Ollama library has no model mistral with the tag latest",
			"org/none":                   "does not exist",
		} {
			b.lookUp(name)
			b.until(fmt.Sprintf("document.querySelector('#find .fielderr')?.innerText.includes(%q)", want))
			if got := b.value("document.querySelector('#name').value"); got != name {
				t.Errorf("the field says %q", got)
			}
		}
	})

	run("the example is looked up with a click", func(t *testing.T) {
		b.openModels("/models")
		b.click("#find .linked")
		b.until("document.querySelector('#find .fielderr')?.innerText.includes('does not exist')")
		if got := b.value("document.querySelector('#name').value"); got != "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0" {
			t.Errorf("the field says %q", got)
		}
	})

	run("a quantisation without kernels leads to one that works", func(t *testing.T) {
		b.lookUp("org/repo:Q1_0")
		b.until("document.querySelector('#found .verdict')?.innerText.includes('cannot be used')")
		if b.value("document.querySelector('#found form[action$=pull]')") != "null" {
			t.Error("it can be downloaded")
		}
		b.click("#found form[action$=find] button")
		b.until("document.querySelector('#found')?.innerText.includes('Remote-Q8_0.gguf')")
	})

	run("the quantisations of a repository are compared, and another one is looked up with a click", func(t *testing.T) {
		b.openModels("/models")
		b.lookUp("org/repo")
		b.until("document.querySelectorAll('#found tbody tr').length === 2")
		b.shot("models-choices-light")
		for _, want := range []string{"Q8_0 has the most bits", "about ", "chosen", "weights in Q1_0 are not supported yet", "Runs on", "Download 727 kB"} {
			if got := b.text("#found"); !strings.Contains(got, want) {
				t.Errorf("it says %q, without %q", got, want)
			}
		}
		b.click("#found tbody button")
		b.until("document.querySelector('#found .verdict')?.innerText.includes('cannot be used')")
		b.click("#found form[action$=find] button")
		b.until("document.querySelectorAll('#found tbody tr').length === 2")
	})

	run("a model that is too large says so with the sums", func(t *testing.T) {
		server.Memory.Store(500e3)
		b.lookUp("org/repo:Q8_0")
		b.until("document.querySelector('#found .verdict')?.innerText.includes('does not fit')")
		if got := b.text("#found"); !strings.Contains(got, "2.4 MB of 500 kB free") || !strings.Contains(got, "Download 727 kB") {
			t.Errorf("it says %q", got)
		}
		b.shot("models-too-large-light")
		server.Disk.Store(1e9)
		b.lookUp("org/repo:Q8_0")
		b.until("document.querySelector('#found')?.innerText.includes('1.1 GB of 1.0 GB free')")
		if b.value("document.querySelector('#found form[action$=pull]')") != "null" {
			t.Error("it can be downloaded")
		}
		server.Memory.Store(8e9)
		server.Disk.Store(212e9)
	})

	run("a flipped byte is found, and nothing of the file stays", func(t *testing.T) {
		registry.SetCDN(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			wrong := bytes.Clone(data)
			wrong[len(wrong)-100] ^= 1
			hubtest.Serve(w, r, wrong, `"one"`)
			return true
		})
		start()
		b.until(card("failed"))
		if got := b.text("[data-download]"); !strings.Contains(got, "SHA-256") || !strings.Contains(got, "it was deleted") {
			t.Errorf("the card says %q", got)
		}
		if _, err := os.Stat(filepath.Join(server.Dir, "org")); !os.IsNotExist(err) {
			t.Errorf("something is left: %v", err)
		}
		b.shot("models-failed-light")
	})

	run("it can be tried again, over a connection that is cut", func(t *testing.T) {
		registry.SetCDN(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if try <= 3 {
				hubtest.Truncate(w, r, data, len(data)/5)
			}
			return false
		})
		b.click("[data-download] form[action$=resume] button")
		b.until(card("done"))
		b.until("document.querySelector('#list').innerText.includes('Remote-Q8_0')")
	})

	run("the note goes away, the model stays and can be deleted", func(t *testing.T) {
		b.click("[data-download] form[action$=cancel] button")
		b.until("!document.querySelector('[data-download]')")
		b.script("window.row = document.querySelector('#list a[href*=Remote]')")
		update()
		b.until("window.row.isConnected") // what did not change was not replaced under the pointer
		b.click("#list a[href*=Remote]")
		b.until("document.querySelector('#h-model')?.innerText === 'Remote-Q8_0'")
		for _, want := range []string{handlerstest.RemoteFile, "llama", "Tensors", "Metadata, "} {
			if got := b.text("#details"); !strings.Contains(got, want) {
				t.Errorf("the details say %q, without %q", got, want)
			}
		}
		b.click("#details a[href*=delete]")
		b.until("document.querySelector('#details form[action$=delete]')")
		b.shot("models-delete-light")
		b.click("#details form[action$=delete] button")
		b.until("!document.querySelector('#list').innerText.includes('Remote-Q8_0')")
		if _, err := os.Stat(filepath.Join(server.Dir, "org")); !os.IsNotExist(err) {
			t.Errorf("something is left: %v", err)
		}
	})

	run("a download that is cancelled leaves nothing, though the page is updated during the click", func(t *testing.T) {
		handlerstest.HoldBack(registry, len(handlerstest.RemoteModel)/3)
		start()
		b.until(card("running"))
		b.script("document.querySelector('[data-download] form[action$=cancel] button').scrollIntoView()")
		b.frames()
		release := b.hold("[data-download] form[action$=cancel] button", 1)
		b.script("document.querySelector('[data-download]').dataset.old = ''") // so that the card has changed
		update()
		release()
		b.until("!document.querySelector('[data-download]')")
		if _, err := os.Stat(filepath.Join(server.Dir, "org")); !os.IsNotExist(err) {
			t.Errorf("something is left: %v", err)
		}
	})
	b.forgive("the server responded with a status of 40") // of the names that cannot be pulled
	b.clean()
}

func TestTheModelOfAChatIsChosenInTheBrowser(t *testing.T) {
	t.Parallel()
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t))
	for seed, name := range []string{"first.gguf", "second.gguf"} {
		server.Put(t, name, gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Seed: uint64(seed), Context: 8192}))
	}
	b := openBrowser(t, server.Server)
	run := steps(t, b)
	by := func(name string) string {
		return fmt.Sprintf("[...document.querySelectorAll('.answer')].at(-1).querySelector('[data-f=model]').textContent.includes(%q) && %s", name, idle)
	}
	ask := func(text string) {
		b.script(`
			const field = document.querySelector('#n-max_tokens')
			field.value = '8'
			field.dispatchEvent(new Event('input'))
		`)
		b.say(text)
	}
	choose := func(name string) {
		b.chooseModel(name)
	}

	run("a new chat is answered by the model that is chosen", func(t *testing.T) {
		b.open("/")
		b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
		b.click(".top .engine-chip")
		b.until("document.querySelector('#model-menu').matches(':popover-open')")
		b.until("Math.abs(document.querySelector('#model-menu').getBoundingClientRect().right - document.querySelector('.top .engine-chip').getBoundingClientRect().right) < 1")
		for _, want := range []string{"guide", "first", "second", "All models"} {
			if got := b.text("#model-menu"); !strings.Contains(got, want) {
				t.Errorf("the menu says %q, without %q", got, want)
			}
		}
		b.shot("picker-light")
		b.click("#model-menu [value=first]")
		b.until("document.querySelector('.top .engine-chip [data-chosen]').checkVisibility() && document.querySelector('.top .engine-chip [data-chosen-name]').innerText === 'first'")
		b.until("document.querySelector('#message').placeholder === 'Ask first something'")
		ask("hello")
		b.until(by("first"))
		b.until("document.querySelector('.top .engine-chip [data-loaded]').checkVisibility() && document.querySelector('.top .engine-chip [data-engine=name]').innerText === 'first'")
	})
	run("another one answers next, and in a second window too", func(t *testing.T) {
		other := openBrowser(t, server.Server)
		other.open(b.value("location.pathname"))
		other.until(by("first"))
		choose("second")
		other.until("document.querySelector('.top .engine-chip [data-chosen-name]').innerText === 'second' && document.querySelector('.top .engine-chip [data-chosen]').checkVisibility()")
		ask("and you?")
		b.until(by("second"))
		other.until(by("second"))
		other.clean()
	})
	run("the choice outlives a reload, and another chat has its own", func(t *testing.T) {
		choose("guide")
		b.until("document.querySelector('.top .engine-chip [data-chosen-name]').innerText === 'guide'")
		b.reload()
		b.until("document.querySelector('.top .engine-chip [data-chosen]').checkVisibility() && document.querySelector('.top .engine-chip [data-chosen-name]').innerText === 'guide'")
		chat := b.value("location.pathname")
		b.open("/")
		b.until("document.querySelector('.top .engine-chip [data-chosen]').checkVisibility() && document.querySelector('.top .engine-chip [data-chosen-name]').innerText === 'guide'") // chosen last
		b.open(chat)
		ask("once more")
		b.until(by("guide"))
	})
	run("a model that has gone is said to be, and another one answers", func(t *testing.T) {
		choose("first")
		b.until("document.querySelector('.top .engine-chip [data-chosen-name]').innerText === 'first'")
		if err := os.Remove(filepath.Join(server.Dir, "first.gguf")); err != nil {
			t.Fatal(err)
		}
		ask("are you there?")
		b.until("[...document.querySelectorAll('.answer .errbox')].at(-1).innerText.includes('There is no such model')")
		b.settled()
		b.forgive("/count") // the server may have been asked to count the draft for a model that is gone
		b.shot("picker-gone-light")
		b.reload()
		b.until("document.querySelector('.top .engine-chip [data-chosen-note]').innerText === 'not on this machine'")
		b.click(".answer:last-child [data-choose-model]")
		b.until("document.querySelector('#model-menu').matches(':popover-open')")
		b.click("#model-menu [value=second]")
		b.until("document.querySelector('.top .engine-chip [data-chosen-name]').innerText === 'second'")
		b.click(".answer:last-child .errbox [data-again]")
		b.until(by("second"))
	})
	b.clean()
}
