package browser

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"m40-llm/handlers"
	"m40-llm/handlers/document"
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
		b.settled() // the list is drawn anew when the draft has been counted
		b.click("#attached [data-remove]")
		b.until("document.querySelector('#attached').hidden")
	})

	const refused = "document.querySelector('#senderror [data-error]').innerText"

	run("a file that is no text, and one that is too large, are refused", func(t *testing.T) {
		drop("[['photo.png', [137, 80, 78, 71, 0, 255]]]")
		b.until(refused + " === 'The file is no picture of a known format; send PNG, JPEG, WebP, GIF or BMP.'")
		b.forgive("400 (Bad Request)")
		drop("[['zeros.bin', [65, 0, 66]]]")
		b.until(refused + " === 'zeros.bin is neither a picture, a PDF or DOCX file, nor text in UTF-8. Pictures are PNG, JPEG, WebP, GIF or BMP.'")
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
		b.settled()
		b.click("#attached li:last-child [data-remove]")
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

// printed returns a page that Chromium prints as a PDF.
func (b *browser) printed(html string) []byte {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"))
	b.script("document.body.innerHTML = " + strconv.Quote(html))
	out, err := chromedp.Call(b.ctx, page.PrintToPDF, page.PrintToPDFParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	return out.Data
}

func TestDocumentsAndLongPastesAreAttachedAsText(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine, func(c *handlers.Config) { c.Documents = document.NewReader("/proc/self/exe") })
	b := openBrowser(t, server)
	file := b.printed("<h1>Report on moss</h1><p>It grows in shade, and has no roots. Größe: 3 cm.</p><p style='break-before:page'>The second page.</p>")
	empty := b.printed("<svg width=100 height=100><circle r=50 /></svg>")
	b.open("/")
	run := steps(t, b)
	drop := func(name string, file []byte) {
		b.script("const bytes = Uint8Array.from(atob('" + base64.StdEncoding.EncodeToString(file) + "'), c => c.charCodeAt(0)), data = new DataTransfer(); data.items.add(new File([bytes], '" + name + "'))\n" +
			"document.querySelector('.rail').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }))")
	}
	chips := "document.querySelector('#attached').innerText.replace(/\\s+/g, ' ').trim()"
	run("a PDF is read by the server, and its text can be read before it is sent", func(t *testing.T) {
		drop("report.pdf", file)
		b.until(chips + " === 'report.pdf 2 pages · 102 B'")
		b.settled() // the list is drawn anew when the draft has been counted
		b.click("#attached [data-open]")
		b.until("document.querySelector('#file').open")
		if got, want := b.value("document.querySelector('#file pre').textContent"), "[Page 1]\nReport on moss\nIt grows in shade, and has no roots. Größe: 3 cm.\n\n[Page 2]\nThe second page."; got != want {
			t.Errorf("the text is %q, want %q", got, want)
		}
		for _, size := range []int64{390, 820, 1440} {
			b.size(size, 844, size < 500)
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				b.shot(fmt.Sprintf("document-open-%d-%s", size, scheme))
			}
		}
		b.look(axe(t), "the text of a document")
		b.click("#file [data-close]")
		b.shot("document-chip")
		b.look(axe(t), "a document that is attached")
	})
	run("what has no text, and what is too long, says so and is not attached", func(t *testing.T) {
		drop("scan.pdf", empty)
		refused := "document.querySelector('#senderror').innerText"
		b.until(refused + ".includes('scan.pdf was not attached') && " + refused + ".includes('text recognition (OCR)')")
		b.forgive("400 (Bad Request)")
		b.shot("document-refused")
		drop("long.pdf", bytes.Repeat([]byte("%PDF-1.7 "), 4<<20))
		b.until(refused + ".includes('a document can have 33.6 MB')")
		b.until(chips + " === 'report.pdf 2 pages · 102 B'")
	})
	paste := func(text string) {
		b.script("const data = new DataTransfer(); data.setData('text/plain', " + text + ")\n" +
			"const e = new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }); document.querySelector('#message').dispatchEvent(e); globalThis.taken = e.defaultPrevented")
	}
	run("a long paste becomes a file, which can be turned back into text", func(t *testing.T) {
		paste("'x'.repeat(4000)")
		if got := b.value("String(taken)"); got != "false" {
			t.Error("4,000 characters become a file")
		}
		paste("'moss '.repeat(900)")
		b.until(chips + " === 'report.pdf 2 pages · 102 B Pasted text 4.5 kB'")
		b.until("document.querySelector('#senderror').hidden")
		b.shot("pasted-chip")
		b.settled()
		b.click("#attached li:last-child [data-open]")
		b.click("#file [data-inline]")
		b.until("document.querySelector('#message').value === 'moss '.repeat(900)")
		b.until(chips + " === 'report.pdf 2 pages · 102 B'")
		b.fill("#message", "")
		paste("'moss '.repeat(900)")
		b.settled()
		b.click("#attached li:last-child [data-remove]")
		b.until(chips + " === 'report.pdf 2 pages · 102 B'")
	})
	run("the model gets the text, and the message shows it folded", func(t *testing.T) {
		b.fill("#message", "What is it about?")
		b.script("document.querySelector('#composer').requestSubmit()")
		a := engine.Next(t)
		want := "What is it about?\n\nFile report.pdf:\n```\n[Page 1]\nReport on moss\nIt grows in shade, and has no roots. Größe: 3 cm.\n\n[Page 2]\nThe second page.\n```"
		if got := a.Request.Messages[0].Content; got != want {
			t.Errorf("the model gets %q, want %q", got, want)
		}
		a.Write("Moss.")
		a.Finish()
		b.until(idle)
		b.until("document.querySelector('.you .file [data-name]').textContent === 'report.pdf'")
	})
	b.clean()
}
