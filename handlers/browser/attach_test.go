package browser

import (
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

func TestAttachingFilesInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	// drop drops files, which have a name and bytes.
	drop := func(files string) {
		b.script("const data = new DataTransfer(); for (const [name, bytes] of " + files + ") data.items.add(new File([new Uint8Array(bytes)], name));" +
			"document.querySelector('#composer').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }))")
	}
	run("a file that is dropped beside the message is not opened in place of the page", func(t *testing.T) {
		b.script("const data = new DataTransfer(); data.items.add(new File(['b'], 'beside.txt'))\n" +
			"for (const kind of ['dragover', 'drop']) { const e = new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true })\n" +
			"document.querySelector('header').dispatchEvent(e); globalThis[kind] = e.defaultPrevented }")
		b.until("document.querySelector('#attached').innerText.includes('beside.txt')")
		if got := b.value("dragover + ' ' + drop"); got != "true true" {
			t.Errorf("dragover and drop are handled: %s", got)
		}
		b.click("#attached button")
	})

	const refused = "document.querySelector('#senderror [data-error]').innerText"

	run("a file that is no text, and one that is too large, are refused", func(t *testing.T) {
		drop("[['photo.png', [137, 80, 78, 71, 0, 255]]]")
		b.until(refused + " === 'The file is no picture of a known format; send PNG, JPEG, WebP, GIF or BMP.'")
		b.forgive("400 (Bad Request)")
		drop("[['zeros.bin', [65, 0, 66]]]")
		b.until(refused + " === 'zeros.bin is neither a picture nor a text file in UTF-8. Pictures are PNG, JPEG, WebP, GIF or BMP.'")
		drop("[['log.txt', new Array(200000).fill(65)]]")
		b.until(refused + ".startsWith('log.txt has 200 kB: all files of a message can have 164 kB.')")
		if b.value("document.querySelector('#attached').hidden") != "true" {
			t.Error("a file is attached")
		}
	})

	run("files are listed, counted and removed", func(t *testing.T) {
		drop("[['add.go', [...new TextEncoder().encode('func add(a, b int) int {\\r\\n\\treturn a + b // ```\\n}')]], ['b.txt', [98]]]")
		b.until("document.querySelectorAll('#attached li').length === 2")
		b.fill("#message", "What is it?")
		b.until("/^\\d\\d tokens, /.test(document.querySelector('[data-cost]').innerText)")
		b.click("#attached li:last-child button")
		b.until("document.querySelector('#attached').innerText.replace(/\\s+/g, ' ').trim() === 'add.go 48 B'")
		b.look(axe(t), "a file is attached")
	})

	run("they are sent in the message, which shows them folded", func(t *testing.T) {
		b.script("document.querySelector('#composer').requestSubmit()")
		a := engine.Next(t)
		got := a.Request.Messages[0].Content
		if want := "What is it?\n\nFile add.go:\n````go\nfunc add(a, b int) int {\n\treturn a + b // ```\n}\n````"; got != want {
			t.Errorf("the model reads %q, want %q", got, want)
		}
		a.Write("An addition.")
		a.Finish()
		b.until(idle)
		const file = "document.querySelector('.you .file')"
		if got := b.value("document.querySelector('.you .prose').innerText"); !strings.HasPrefix(got, "What is it?") || strings.Contains(got, "return") || b.value(file+".open") != "false" {
			t.Errorf("the message shows %q", got)
		}
		b.script(file + ".open = true")
		if got := b.value(file + ".querySelector('pre').innerText"); !strings.Contains(got, "return a + b // ```\n}") {
			t.Errorf("the file is shown as %q", got)
		}
		if b.value("document.querySelector('#attached').hidden") != "true" {
			t.Error("the file is still attached")
		}
		b.look(axe(t), "a message with a file")
		b.size(390, 844, true)
		b.shot("attach-phone")
		if b.value("document.querySelector('[data-attach] .i').checkVisibility()") != "true" {
			t.Error("on a phone the button to attach files has no icon")
		}
		if over := b.value("document.documentElement.scrollWidth > innerWidth"); over == "true" {
			t.Error("on a phone the page scrolls sideways")
		}
	})
	b.clean()
}
